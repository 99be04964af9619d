//! The commit that a program was built from. The build script of this crate determines it, so a commit rebuilds only this
//! crate and the crates that print the revision. Other crates get it as an argument (`kvdrive_run::revision`).

/// Revision of the source this program was built from; a `dirty` one ends with a digest of what differs.
pub const REVISION: &str = env!("KVDRIVE_REVISION");
/// Source files that differ from the revision; empty if it is clean.
pub const DIFFERS: &str = env!("KVDRIVE_DIFFERS");

/// Whether the source is known and was as committed.
pub fn is_committed() -> bool {
    REVISION != "unknown" && DIFFERS.is_empty()
}
