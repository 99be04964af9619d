//! Names of hosts and subsystems on the command line.

use kvdrive_subsystem::subsystem::is_nqn;

/// Reads the name of a subsystem or of a host.
pub fn name(text: &str) -> Result<String, String> {
    let wrong = || "a name begins with \"nqn.\" and has at most 223 bytes".to_owned();
    is_nqn(text).then(|| text.to_owned()).ok_or_else(wrong)
}
