//! Which source a program was built from. The build script of this crate finds it out, so a commit rebuilds only this crate
//! and what prints the revision. Crates below are handed it: `kvdrive_run::revision`.

/// Revision of the source this program was built from; a `dirty` one ends with a digest of what differs.
pub const REVISION: &str = env!("KVDRIVE_REVISION");
/// Source files that differ from the revision; empty if it is clean.
pub const DIFFERS: &str = env!("KVDRIVE_DIFFERS");

/// Whether the source is known and was as committed.
pub fn is_committed() -> bool {
    REVISION != "unknown" && DIFFERS.is_empty()
}
