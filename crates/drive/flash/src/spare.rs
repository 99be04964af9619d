//! The header in the spare area of every programmed page, and its encoding.
//!
//! ```text
//!    0     1      2       3         4        8      16         24     72           80           88
//!   +-----+------+-------+---------+--------+------+----------+------+------------+------------+
//!   | 50h | kind | flags | version | erases | lpa  | sequence | tag  | data check | self check |
//!   +-----+------+-------+---------+--------+------+----------+------+------------+------------+
//!     u8    u8     u8      u8        u32      u64    u64        48 B   u64 xxh3     u64 xxh3
//! ```
//!
//! The header is stored twice. Damage to one copy (a single cell, a few bytes) leaves the other one, so a
//! drive knows *which* page it has lost and answers an error instead of an older version. A page that lost
//! both copies was either torn by a power cut, and then its write was never acknowledged, or it was
//! destroyed. Checks are seeded with the page's address: a page in the wrong place is a damaged page.
//!
//! The version says in which form the data are stored: 0: as they are; 1: packed, which only a `file` medium writes
//! ([`crate::media::file`]).
//!
//! Media in memory write these bytes only when they become an image, because nothing outside the program
//! changes their pages; a file writes them with every page.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::geometry::Ppa;
use crate::versions::{Unread, other_version};

/// Bytes of an owner's tag.
pub const TAG_BYTES: usize = 48;
/// Bytes of one copy of the encoded header.
pub const HEADER_BYTES: usize = 88;
/// Bytes of the spare area in use: the header twice.
pub const SPARE_USED_BYTES: usize = 2 * HEADER_BYTES;

/// First byte of a header. An erased spare area is all zero in an image, so it can be anything else.
const PROGRAMMED: u8 = b'P';
/// Bytes of a header that its own check covers.
const CHECKED_BYTES: usize = HEADER_BYTES - 8;
/// The version of a header whose page is stored as it is. Later versions keep its place, the first byte and the check at the
/// end.
const PLAIN_VERSION: u8 = 0;
/// The version of a header whose page is stored packed.
const PACKED_VERSION: u8 = 1;
const VERSION_AT: usize = 3;
/// Flag bit: the content of the page was lost before this copy was made.
const FLAG_LOST: u8 = 1;

/// How a page's data are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Byte by byte.
    Plain,
    /// Without the gaps between its values.
    Packed,
}

/// What the drive keeps beside a page's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The owner's page kind; 0 is reserved for pages whose owner is unknown.
    pub kind: u8,
    /// The page holds no data: it stands for content that was lost, so that no older version is taken
    /// instead.
    pub lost: bool,
    /// Number of erases of the page's block at the time of the program.
    pub block_erases: u32,
    /// Logical page (or whatever the owner addresses by).
    pub lpa: u64,
    /// Number of the data version; a copy by garbage collection keeps it.
    pub sequence: u64,
    /// Free for the owner.
    pub tag: [u8; TAG_BYTES],
}

/// The header of a page in memory. Most readers of the page ask no more of it than whether the content is lost, and
/// find that without fetching the header.
#[derive(Clone)]
pub struct BoxedSpare {
    is_lost: bool,
    spare: Box<Spare>,
}

impl BoxedSpare {
    /// The header of a page that is being programmed.
    pub fn new(spare: &Spare) -> BoxedSpare {
        BoxedSpare { is_lost: spare.lost, spare: Box::new(*spare) }
    }

    /// All of it.
    pub fn spare(&self) -> Spare {
        *self.spare
    }

    /// [`Spare::lost`].
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}

impl Spare {
    /// A header for new data.
    pub fn new(kind: u8, lpa: u64, sequence: u64, tag: [u8; TAG_BYTES]) -> Spare {
        Spare { kind, lost: false, block_erases: 0, lpa, sequence, tag }
    }

    /// Encodes one copy of the header of page `ppa`, whose data has the check `data_check` and is stored as it is.
    pub fn encode(&self, ppa: Ppa, data_check: u64) -> [u8; HEADER_BYTES] {
        self.encode_in(Form::Plain, ppa, data_check)
    }

    /// As [`Spare::encode`], for data in this form.
    pub fn encode_in(&self, form: Form, ppa: Ppa, data_check: u64) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = PROGRAMMED;
        out[1] = self.kind;
        out[2] = if self.lost { FLAG_LOST } else { 0 };
        out[VERSION_AT] = match form {
            Form::Plain => PLAIN_VERSION,
            Form::Packed => PACKED_VERSION,
        };
        out[4..8].copy_from_slice(&self.block_erases.to_le_bytes());
        out[8..16].copy_from_slice(&self.lpa.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..72].copy_from_slice(&self.tag);
        out[72..80].copy_from_slice(&data_check.to_le_bytes());
        let check = xxh3_64_with_seed(&out[..CHECKED_BYTES], u64::from(ppa.0));
        out[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Header and data check from one copy of the bytes, and the form of the data.
    ///
    /// # Errors
    /// Its check does not match, or it is of another version.
    pub fn decode(ppa: Ppa, bytes: &[u8]) -> Result<(Spare, u64, Form), Unread> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| Unread::Damaged)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[0] != PROGRAMMED || word(80) != xxh3_64_with_seed(&bytes[..CHECKED_BYTES], u64::from(ppa.0))
        {
            return Err(Unread::Damaged);
        }
        let form = match bytes[VERSION_AT] {
            PLAIN_VERSION => Form::Plain,
            PACKED_VERSION => Form::Packed,
            version => return Err(Unread::Version(version)),
        };
        let spare = Spare {
            kind: bytes[1],
            lost: bytes[2] & FLAG_LOST != 0,
            block_erases: u32::from_le_bytes(bytes[4..8].try_into().expect("4 bytes")),
            lpa: word(8),
            sequence: word(16),
            tag: bytes[24..72].try_into().expect("48 bytes"),
        };
        Ok((spare, word(72), form))
    }

    /// The first valid one of the two copies.
    ///
    /// # Errors
    /// Both are damaged, or the first valid one is of another version.
    pub fn decode_pair(ppa: Ppa, bytes: &[u8]) -> Result<(Spare, u64, Form), Unread> {
        let (first, second) = bytes.split_at_checked(HEADER_BYTES).ok_or(Unread::Damaged)?;
        match Spare::decode(ppa, first) {
            Err(Unread::Damaged) => Spare::decode(ppa, second),
            found => found,
        }
    }

    /// As [`Spare::decode_pair`], of a page that is stored as it is.
    ///
    /// # Errors
    /// As there; a page in another form is one of another version.
    pub fn decode_plain_pair(ppa: Ppa, bytes: &[u8]) -> Result<(Spare, u64), Unread> {
        match Spare::decode_pair(ppa, bytes)? {
            (spare, check, Form::Plain) => Ok((spare, check)),
            _ => Err(Unread::Version(PACKED_VERSION)),
        }
    }
}

/// Why page `ppa`, whose header is of version `found`, is refused.
pub(crate) fn of_another_version(ppa: Ppa, found: u8) -> String {
    let known = if found == PACKED_VERSION { PLAIN_VERSION } else { PACKED_VERSION };
    format!("page {} {}", ppa.0, other_version("page", found, known))
}

/// The check over a page's data as stored.
pub fn data_check(ppa: Ppa, data: &[u8]) -> u64 {
    xxh3_64_with_seed(data, u64::from(ppa.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_byte_spoils_one_copy_only() {
        let spare = Spare { lost: true, block_erases: 7, ..Spare::new(2, 77, 1 << 40, [9; 48]) };
        let copy = spare.encode(Ppa(5), 42);
        assert_eq!(Spare::decode(Ppa(5), &copy), Ok((spare, 42, Form::Plain)));
        assert_eq!(Spare::decode(Ppa(6), &copy), Err(Unread::Damaged), "a page in the wrong place");
        let pair = [copy, copy].concat();
        for at in 0..pair.len() {
            let mut damaged = pair.clone();
            damaged[at] ^= 0x10;
            assert_eq!(Spare::decode(Ppa(5), &damaged[..HEADER_BYTES]).is_ok(), at >= HEADER_BYTES);
            assert_eq!(Spare::decode_pair(Ppa(5), &damaged), Ok((spare, 42, Form::Plain)));
            assert_eq!(Spare::decode_plain_pair(Ppa(5), &damaged), Ok((spare, 42)));
        }
    }

    #[test]
    fn a_header_says_in_which_form_its_page_is() {
        let spare = Spare::new(2, 77, 1, [9; 48]);
        let packed = spare.encode_in(Form::Packed, Ppa(5), 42);
        assert_eq!(Spare::decode(Ppa(5), &packed), Ok((spare, 42, Form::Packed)));
        assert_eq!(Spare::decode_plain_pair(Ppa(5), &[packed, packed].concat()), Err(Unread::Version(1)));
    }

    #[test]
    fn a_header_of_a_later_version_is_called_that_unless_it_is_damaged() {
        let mut later = Spare::new(2, 77, 1, [9; 48]).encode(Ppa(5), 42);
        later[VERSION_AT] = 2;
        assert_eq!(Spare::decode(Ppa(5), &later), Err(Unread::Damaged), "a flipped bit is no version");
        let check = xxh3_64_with_seed(&later[..CHECKED_BYTES], 5);
        later[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Spare::decode_pair(Ppa(5), &[later, later].concat()), Err(Unread::Version(2)));
        assert_eq!(Spare::decode_pair(Ppa(5), &[[0; HEADER_BYTES], later].concat()), Err(Unread::Version(2)));
        let said = of_another_version(Ppa(5), 2);
        assert!(
            said.starts_with("page 5 is a page of version 2, which another kvdrive wrote; kvdrive 0."),
            "{said}"
        );
    }
}
