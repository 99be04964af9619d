//! Names of parts, heads and slots in the engine, and the notes that heads and slots hold.
//!
//! ```text
//!   0              8                  14      16
//!   +--------------+------------------+-------+
//!   | of the drive | number of value  | index |    part `index`; FFFFh: the head
//!   +--------------+-------+----------+-------+
//!   | of the drive | FFFFh |     0    | slot  |    a slot (u32)
//!   +--------------+-------+----------+-------+
//! ```
//!
//! All names are keys of 16 B, big endian, whose first 8 B follow from the drive's identity. A command of a host whose
//! key has these first bytes is refused or finds nothing: this concerns one in 2^64 keys of 16 B, other keys on each
//! drive.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::identity::Identity;
use kvdrive_nvme::Key;
use kvdrive_record::Form;

/// Most parts of a value.
pub const PARTS_MAX: u64 = HEAD_INDEX as u64;

/// The index of a head.
const HEAD_INDEX: u16 = u16::MAX;
/// In the name of a slot, these bits stand where other names have the highest bits of their number.
const SLOT_MARK: u64 = 0xFFFF << 48;
/// Higher than any number of a value: no drive stores so many large values.
const NUMBERS_MAX: u64 = 1 << 40;
/// Largest number of slots, and so of divided values at a time. A store beyond this is answered 21h (try again).
pub const SLOTS_MAX: u32 = 1 << 20;

/// Names that have been given out, as recorded in the protected image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Issued {
    /// Number of slots.
    pub slots: u32,
    /// Number of values so far: the number of the next one.
    pub numbers: u64,
}

impl Issued {
    /// Are these counts possible?
    pub fn can_be(&self) -> bool {
        self.slots <= SLOTS_MAX && self.numbers < NUMBERS_MAX && u64::from(self.slots) <= self.numbers
    }

    /// Can this follow `before`?
    pub fn follows(&self, before: &Issued) -> bool {
        self.can_be() && self.slots >= before.slots && self.numbers >= before.numbers
    }
}

/// The names of one drive.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    prefix: u64,
}

impl Names {
    /// The names of the drive with this identity.
    pub fn of_drive(identity: Identity) -> Names {
        /// The golden ratio's fraction: an identity of zeros, which tests have, gets no zeros for its prefix.
        const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
        let bytes = identity.to_bytes();
        let half = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Names { prefix: (half(0) ^ half(8).rotate_left(32) ^ GOLDEN).wrapping_mul(GOLDEN) }
    }

    /// Is this key a name?
    #[inline]
    pub fn are(&self, key: &Key) -> bool {
        key.len() == Key::IDENTITY_BYTES && key.halves().0 == self.prefix
    }

    /// Part `index` of value `number`.
    pub fn part(&self, number: u64, index: u32) -> Key {
        self.name(number << 16 | u64::from(index))
    }

    /// The head of value `number`.
    pub fn head(&self, number: u64) -> Key {
        self.name(number << 16 | u64::from(HEAD_INDEX))
    }

    /// A slot.
    pub fn slot(&self, slot: u32) -> Key {
        self.name(SLOT_MARK | u64::from(slot))
    }

    fn name(&self, rest: u64) -> Key {
        let name = u128::from(self.prefix) << 64 | u128::from(rest);
        Key::from_padded(name.to_be_bytes(), Key::IDENTITY_BYTES).expect("16 bytes are a key")
    }
}

/// What a slot or a head holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum Note {
    /// There may be parts of this value.
    Slot {
        /// Its number.
        number: u64,
        /// Its size.
        bytes: u32,
        /// Bytes of each part but the last.
        part_bytes: u32,
    },
    /// Its parts are the value of this key.
    Head {
        /// The key.
        key: Key,
    },
}

const NOTE: Form = Form { name: "note of a divided value", magic: b"kvdrvDV", version: 1 };

/// Every note has fewer bytes than this.
pub const NOTE_MAX_BYTES: u32 = 128;

impl Note {
    /// The note as bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        NOTE.seal(&self)
    }

    /// The note in `bytes`; `None` if they are no note.
    pub fn of_bytes(bytes: &[u8]) -> Option<Note> {
        NOTE.open(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_are_of_one_drive() {
        let (one, other) = (Names::of_drive(Identity::of_seed(1)), Names::of_drive(Identity::of_seed(2)));
        let numbers = [0, 1, NUMBERS_MAX - 1];
        let mut names: Vec<Key> = [0, 1, SLOTS_MAX].map(|slot| one.slot(slot)).to_vec();
        names.extend(numbers.map(|number| one.head(number)));
        for index in [0, 1, PARTS_MAX as u32 - 1] {
            names.extend(numbers.map(|number| one.part(number, index)));
        }
        assert!(names.iter().all(|name| one.are(name) && !other.are(name)));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(!one.are(&Key::from_u64_be(one.prefix)), "another length is another key");
    }

    #[test]
    fn every_byte_of_a_note_counts() {
        let notes = [
            Note::Slot { number: 7, bytes: 1 << 28, part_bytes: 1 << 20 },
            Note::Head { key: Key::new(&[5; 16]).unwrap() },
        ];
        for note in notes {
            kvdrive_record::trial::every_byte_of_a_record(&NOTE, &note);
            assert_eq!(Note::of_bytes(&note.to_bytes()), Some(note));
            assert!(note.to_bytes().len() < NOTE_MAX_BYTES as usize);
        }
    }

    #[test]
    fn counts_that_go_back_or_too_far_are_refused() {
        let issued = |slots, numbers| Issued { slots, numbers };
        assert!(issued(2, 5).follows(&issued(1, 5)) && issued(0, 0).can_be());
        assert!(!issued(1, 5).follows(&issued(2, 5)) && !issued(2, 4).follows(&issued(2, 5)));
        assert!(!issued(SLOTS_MAX + 1, 1 << 30).can_be() && !issued(1, NUMBERS_MAX).can_be());
        assert!(!issued(3, 2).can_be(), "a slot was taken for each");
    }
}
