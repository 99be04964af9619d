//! The bytes of generated values.

use kvdrive_content::{Pattern, Piece};
use kvdrive_nvme::Key;
use kvdrive_workload::ValueSpec;

/// The content that generated workloads give to a version of a key.
pub fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}
