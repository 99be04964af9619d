//! The head of an image file: what it is, its version, its geometry and the identity of its drive; [`super`] draws it.
//!
//! A new file has the first version that this program reads. The later one follows when the first packed page is about to
//! be written ([`super::sectors`]), so that an earlier program refuses the file by its head and never meets such a page, and opens a
//! drive that has none.

use xxhash_rust::xxh3::xxh3_64;

use super::super::MediumError;
use super::super::image::{GEOMETRY_KEYS, geometry_bytes, geometry_fields};
use crate::geometry::Geometry;
use crate::identity::{IDENTITY_BYTES, Identity};
use crate::versions::other_version;

const MAGIC: &[u8; 8] = b"KVDRFILE";
/// The version without packed pages.
pub(super) const WITHOUT_PACKED: u32 = 4;
/// The version of files that may have packed pages.
pub(super) const WITH_PACKED: u32 = 5;
/// Bytes of the block that the heads and other records are in.
pub(super) const HEAD_BYTES: u64 = 4096;
/// Positions of the two copies of the head.
pub(super) const HEADS_AT: [usize; 2] = [0, 2048];

/// The part of a head that all drives of one geometry share.
fn make(geometry: &Geometry, version: u32) -> Vec<u8> {
    let mut make = MAGIC.to_vec();
    make.extend_from_slice(&version.to_le_bytes());
    make.extend_from_slice(&geometry_bytes(geometry));
    let check = xxh3_64(&make);
    make.extend_from_slice(&check.to_le_bytes());
    make
}

/// A head of this version.
pub(super) fn head(geometry: &Geometry, identity: Identity, version: u32) -> Vec<u8> {
    let mut head = make(geometry, version);
    head.extend_from_slice(&identity.to_bytes());
    let check = xxh3_64(&head);
    head.extend_from_slice(&check.to_le_bytes());
    head
}

/// The identity in the heads of `block`, the start of a file, and the version that both of them have reached; `None` if
/// neither is the head of a drive of this geometry.
pub(super) fn found_in(geometry: &Geometry, block: &[u8]) -> Option<(Identity, u32)> {
    let identity_at = make(geometry, WITHOUT_PACKED).len();
    let of_copy = |at: usize| {
        let bytes = block.get(at..)?;
        let identity = Identity::from_bytes(*bytes.get(identity_at..)?.first_chunk::<IDENTITY_BYTES>()?);
        let is_of = |version: &u32| bytes.starts_with(&head(geometry, identity, *version));
        [WITHOUT_PACKED, WITH_PACKED].into_iter().find(is_of).map(|version| (identity, version))
    };
    let copies = HEADS_AT.map(of_copy);
    let version = copies.iter().flatten().map(|(_, version)| *version).min()?;
    copies.into_iter().flatten().next().map(|(identity, _)| (identity, version))
}

/// Was the process that created a file starting with `block` killed before it had written its first head?
pub(super) fn is_unfinished(geometry: &Geometry, block: &[u8]) -> bool {
    let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let (make, written) = (make(geometry, WITHOUT_PACKED), &block[..end]);
    let common = make.len().min(written.len());
    let head_bytes = head(geometry, Identity::default(), WITHOUT_PACKED).len();
    written.len() <= head_bytes && written[..common] == make[..common]
}

/// Why `block`, the start of a file, is not that of a drive of `geometry`.
pub(super) fn refuse(geometry: &Geometry, block: &[u8]) -> MediumError {
    let fields = geometry_fields(geometry);
    let size = MAGIC.len() + 4 + 4 * fields.len();
    for at in HEADS_AT {
        let (body, check) = block[at..at + size + 8].split_at(size);
        let mut numbers = body[MAGIC.len()..]
            .chunks_exact(4)
            .map(|number| u32::from_le_bytes(number.try_into().expect("4 bytes")));
        let version = numbers.next().expect("the head has it");
        // Heads of earlier versions had other lengths and other positions of their check.
        let is_earlier = (1..WITHOUT_PACKED).contains(&version);
        if !body.starts_with(MAGIC) || !is_earlier && *check != xxh3_64(body).to_le_bytes()[..8] {
            continue;
        }
        if ![WITHOUT_PACKED, WITH_PACKED].contains(&version) {
            let found = u8::try_from(version).unwrap_or(u8::MAX);
            return MediumError::whole(other_version("drive", found, WITH_PACKED as u8));
        }
        let names = GEOMETRY_KEYS.iter().zip(numbers).zip(fields);
        let others = names.filter(|((_, of_image), configured)| of_image != configured);
        let others = others
            .map(|((key, of_image), configured)| format!("flash.{key} {of_image} instead of {configured}"));
        return MediumError::whole(format!(
            "a drive of another geometry, {}: set these values, or use another path",
            others.collect::<Vec<_>>().join(", ")
        ));
    }
    MediumError::new(0, "this is no image file of a drive; use another path")
}
