//! The bytes of a pair on flash: a header, the key, the value.
//!
//! ```text
//!   0            1       2             5
//!   +------------+-------+-------------+-----+-------+
//!   | 40h|klen-1 | probe | value bytes | key | value |    13 B in front of the value of an 8 B key
//!   +------------+-------+-------------+-----+-------+
//!   | 50h        | probe | value bytes | key length | key | value |                a key of 17 to 255 B
//!   +------------+-------+-------------+------------+-----+-------+
//! ```
//!
//! The published FTLs keep the hash slot of every grain in the spare area (8 B for each grain: 512 B for 4
//! KiB of 64 B grains, far more than flash has). Here, garbage collection hashes the key that it has just
//! read; `probe` is the index in the key's probe sequence under which the pair was stored. If the byte at a
//! grain is neither 4xh nor 50h, no pair begins there or later in the page.

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Key;

/// Bytes before a key of at most 16 B.
pub const PREFIX_BYTES: u32 = 5;
/// Most bytes of a header before the zeros of a long key.
const HEAD_MAX_BYTES: usize = PREFIX_BYTES as usize + 1 + Key::IDENTITY_BYTES;
const MARK: u8 = 0x40;
const LONG_MARK: u8 = 0x50;

/// Bytes of a header up to the zeros of its key, from its first byte.
fn head_bytes(first: u8) -> usize {
    if first == LONG_MARK { HEAD_MAX_BYTES } else { PREFIX_BYTES as usize + usize::from(first & 0x0F) + 1 }
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
        PREFIX_BYTES + u32::from(self.key.is_long()) + self.key.len() as u32
    }

    /// Bytes of the whole pair.
    pub fn pair_bytes(&self) -> u32 {
        self.bytes() + self.value_bytes
    }

    /// Writes it to the front of a pair.
    pub fn write(&self, pair: &mut Region) {
        let encoded = self.encode();
        let bytes = self.bytes() as usize;
        pair.write(0, Piece::Bytes(&encoded[..bytes.min(HEAD_MAX_BYTES)]));
        if bytes > HEAD_MAX_BYTES {
            const TAIL: [u8; Key::MAX_LEN - Key::IDENTITY_BYTES] = [0; Key::MAX_LEN - Key::IDENTITY_BYTES];
            pair.write(HEAD_MAX_BYTES as u32, Piece::Bytes(&TAIL[..bytes - HEAD_MAX_BYTES]));
        }
    }

    /// Its bytes up to the zeros of a long key.
    fn encode(&self) -> [u8; HEAD_MAX_BYTES] {
        let mut out = [0; HEAD_MAX_BYTES];
        out[1] = self.probe;
        out[2..5].copy_from_slice(&self.value_bytes.to_le_bytes()[..3]);
        if self.key.is_long() {
            (out[0], out[5]) = (LONG_MARK, self.key.len() as u8);
            out[6..].copy_from_slice(&self.key.to_array());
        } else {
            out[0] = MARK | (self.key.len() as u8 - 1);
            out[5..21].copy_from_slice(&self.key.to_array());
        }
        out
    }

    /// The header of a pair that begins `left_bytes` before the end of the readable data; `read` passes on
    /// that many bytes of it, or all there are. `None` if no pair begins there.
    pub fn read(left_bytes: u32, read: impl FnOnce(u32, &mut dyn FnMut(Piece<'_>))) -> Option<PairHeader> {
        let mut bytes = [0; HEAD_MAX_BYTES];
        let mut done = 0;
        read(left_bytes.min(HEAD_MAX_BYTES as u32), &mut |piece| {
            // The header does not need the value after the key, which may have to be generated.
            if done == 0 || done < head_bytes(bytes[0]) {
                let end = done + piece.bytes() as usize;
                piece.expand(&mut bytes[done..end]);
                done = end;
            }
        });
        PairHeader::decode(&bytes)
    }

    /// The header at the start of `bytes`; `None` if no pair begins there.
    fn decode(bytes: &[u8; HEAD_MAX_BYTES]) -> Option<PairHeader> {
        let (key_at, key_bytes) = match bytes[0] {
            LONG_MARK if usize::from(bytes[5]) > Key::IDENTITY_BYTES => (6, usize::from(bytes[5])),
            first if first & 0xF0 == MARK => (5, usize::from(first & 0x0F) + 1),
            _ => return None,
        };
        let padded = bytes[key_at..].first_chunk().expect("16 bytes");
        Some(PairHeader {
            key: Key::from_padded(*padded, key_bytes)?,
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
        for len in 1..=255 {
            let key = Key::from_padded([7; 16], len).unwrap();
            let header = PairHeader { key, value_bytes: 0x12_3456, probe: 200 };
            let mut bytes = header.encode();
            // Bytes after a short key are value.
            if let Some(value) = bytes.get_mut(header.bytes() as usize..) {
                value.fill(0xEE);
            }
            assert_eq!(PairHeader::decode(&bytes), Some(header));
            let mut pair = Region::new();
            header.write(&mut pair);
            assert_eq!(pair.written_end(), header.bytes());
        }
        assert_eq!(PairHeader::decode(&[0; HEAD_MAX_BYTES]), None);
        assert_eq!(PairHeader { key: Key::from_u64_be(1), value_bytes: 50, probe: 0 }.pair_bytes(), 63);
    }
}
