//! The revision of the program, for its reports. The program sets it, since only the program knows what it
//! was built from; if a library determined the revision itself, it would be rebuilt for each commit.

use std::sync::OnceLock;

static OF_PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Sets the revision for the reports of this program. The first call counts.
pub fn set(revision: &'static str) {
    OF_PROGRAM.get_or_init(|| revision);
}

/// The revision that was set, or `unknown`.
pub fn of_program() -> &'static str {
    OF_PROGRAM.get().copied().unwrap_or("unknown")
}
