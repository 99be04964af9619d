//! Versions of the records with a fixed layout: heads of images, tables of bad blocks, headers of pages.
//!
//! These are read in place, so they are no [`kvdrive_record::Form`]. Each has a version all the same, at a place and under a
//! check that no later version moves. Bytes whose check is right and whose version is another one are not damaged: another
//! program wrote them, and a drive that has them is refused with both versions.

use kvdrive_record::Flaw;

/// Why bytes are not the record that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Their check is wrong, or they say what cannot be.
    Damaged,
    /// They are such a record, of this version.
    Version(u8),
}

/// The words for a `name` of version `found`, where this program reads version `known`.
pub(crate) fn other_version(name: &'static str, found: u8, known: u8) -> String {
    Flaw::Version { name, found, known }.to_string()
}
