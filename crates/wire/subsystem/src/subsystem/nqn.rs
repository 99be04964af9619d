//! Names and identifiers that are derived from a text.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The beginning of a name that is a UUID (NVM Express Base Specification, NVMe Qualified Names).
pub const NQN_OF_UUID: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// An NQN derived from a text: equal texts give equal names.
pub fn nqn_of(text: &str) -> String {
    let id = as_uuid(xxh3_128_with_seed(text.as_bytes(), 0).to_be_bytes());
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (time, rest) = digits.split_at(8);
    let [a, b, c] = [0, 4, 8].map(|at| &rest[at..at + 4]);
    format!("{NQN_OF_UUID}{time}-{a}-{b}-{c}-{}", &rest[12..])
}

/// The same identifier as a UUID of version 8, whose bits are vendor-specific (RFC 9562).
pub(super) fn as_uuid(mut id: [u8; 16]) -> [u8; 16] {
    id[6] = id[6] & 0x0F | 0x80;
    id[8] = id[8] & 0x3F | 0x80;
    id
}
