//! The bytes of generated values.

use kvdrive_content::{Pattern, Piece, Placed, Region};
use kvdrive_nvme::Key;
use kvdrive_workload::ValueSpec;

/// The content that generated workloads give to a version of a key.
pub fn content(key: &Key, value: &ValueSpec) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(key, value.version, value.bytes))
}

/// Does the region hold the first `came_bytes` bytes of this version of the key, and no fewer? The buffers are for bytes of
/// the value, found and expected.
pub fn is_content(
    region: &Region,
    came_bytes: u32,
    key: &Key,
    value: &ValueSpec,
    [found, expected]: &mut [Vec<u8>; 2],
) -> bool {
    let Piece::Pattern(pattern) = content(key, value).slice(0, came_bytes) else {
        unreachable!("generated values are patterns")
    };
    if region.patterns() == [Placed { at: 0, pattern }] {
        return true;
    }
    if region.written_end() < came_bytes {
        return false;
    }
    for bytes in [&mut *found, &mut *expected] {
        bytes.resize(came_bytes as usize, 0);
    }
    region.copy_to(0, found);
    pattern.expand(expected);
    found == expected
}
