//! Messages of a node to the user of the program that it is in.

use std::io::Write;

/// Writes a line to standard error, which is the program's. If that fails, because its reader has ended, the program
/// continues without the line.
pub fn tell(line: &str) {
    _ = writeln!(std::io::stderr(), "{line}");
}
