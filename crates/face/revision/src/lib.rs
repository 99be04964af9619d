//! Which source a program was built from. The build script of this crate finds it out, so that a commit has
//! this crate built again and what prints the revision, and nothing below: `kvdrive_run::revision` is told.

/// Revision of the source this program was built from; one that is `dirty` has a digest of what differs.
pub const REVISION: &str = env!("KVDRIVE_REVISION");
/// Files of the source that were not as in the revision; none of one that is clean.
pub const DIFFERS: &str = env!("KVDRIVE_DIFFERS");

/// Whether the source is known and was as committed.
pub fn is_committed() -> bool {
    REVISION != "unknown" && DIFFERS.is_empty()
}
