//! The bytes of a pair on flash: a header, the key, the value.
//!
//! ```text
//!   0            1       2             5
//!   +------------+-------+-------------+-----+-------+
//!   | 40h|klen-1 | probe | value bytes | key | value |    13 B in front of the value of an 8 B key
//!   +------------+-------+-------------+-----+-------+
//! ```
//!
//! The published FTLs keep the hash slot of every grain in the spare area (8 B for each grain: 512 B for 4
//! KiB of 64 B grains, far more than flash has). Here, garbage collection hashes the key that it has just
//! read; `probe` is the index in the key's probe sequence under which the pair was stored. If the byte at a
//! grain is not 4xh, no pair begins there or later in the page.

use kvdrive_content::Piece;
use kvdrive_nvme::Key;

/// Bytes before the key.
pub const PREFIX_BYTES: u32 = 5;
/// Most bytes before a value.
const HEADER_MAX_BYTES: usize = PREFIX_BYTES as usize + Key::MAX_LEN;
const MARK: u8 = 0x40;

/// Length of the key from the first byte of a pair, bytes.
fn key_bytes(first: u8) -> usize {
    usize::from(first & 0x0F) + 1
}

/// The header of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairHeader {
    /// The key.
    pub key: Key,
    /// Bytes of the value; below 2^24.
    pub value_bytes: u32,
    /// Index in the key's probe sequence of the slot that holds the pair.
    pub probe: u8,
}

impl PairHeader {
    /// Bytes of the header with its key.
    pub fn bytes(&self) -> u32 {
        PREFIX_BYTES + self.key.len() as u32
    }

    /// Bytes of the whole pair.
    pub fn pair_bytes(&self) -> u32 {
        self.bytes() + self.value_bytes
    }

    /// Its bytes; the first [`PairHeader::bytes`] count.
    pub fn encode(&self) -> [u8; HEADER_MAX_BYTES] {
        let mut out = [0; HEADER_MAX_BYTES];
        out[0] = MARK | (self.key.len() as u8 - 1);
        out[1] = self.probe;
        out[2..5].copy_from_slice(&self.value_bytes.to_le_bytes()[..3]);
        out[5..].copy_from_slice(&self.key.to_array());
        out
    }

    /// The header of a pair that begins `left_bytes` before the end of the readable data; `read` passes on
    /// that many bytes of it, or all there are. `None` if no pair begins there.
    pub fn read(left_bytes: u32, read: impl FnOnce(u32, &mut dyn FnMut(Piece<'_>))) -> Option<PairHeader> {
        let mut bytes = [0; HEADER_MAX_BYTES];
        let mut done = 0;
        read(left_bytes.min(HEADER_MAX_BYTES as u32), &mut |piece| {
            // The header does not need the value after the key, which may have to be generated.
            if done == 0 || done < PREFIX_BYTES as usize + key_bytes(bytes[0]) {
                let end = done + piece.bytes() as usize;
                piece.expand(&mut bytes[done..end]);
                done = end;
            }
        });
        PairHeader::decode(&bytes)
    }

    /// The header at the start of `bytes`; `None` if no pair begins there.
    fn decode(bytes: &[u8; HEADER_MAX_BYTES]) -> Option<PairHeader> {
        if bytes[0] & 0xF0 != MARK {
            return None;
        }
        let padded = bytes[5..].try_into().expect("16 bytes");
        Some(PairHeader {
            key: Key::from_padded(padded, key_bytes(bytes[0]))?,
            value_bytes: u32::from_le_bytes([bytes[2], bytes[3], bytes[4], 0]),
            probe: bytes[1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_emptiness_is_no_header() {
        for len in 1..=16 {
            let key = Key::new(&vec![7; len]).unwrap();
            let header = PairHeader { key, value_bytes: 0x12_3456, probe: 200 };
            let mut bytes = header.encode();
            // Bytes after a short key are value.
            bytes[header.bytes() as usize..].fill(0xEE);
            assert_eq!(PairHeader::decode(&bytes), Some(header));
        }
        assert_eq!(PairHeader::decode(&[0; HEADER_MAX_BYTES]), None);
        assert_eq!(PairHeader { key: Key::from_u64_be(1), value_bytes: 50, probe: 0 }.pair_bytes(), 63);
    }
}
