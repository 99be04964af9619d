//! The `kvdrive` command.
fn main() {}
