//! The longest key of a table, as its footer has room for it.

use kvdrive_nvme::Key;

/// Lengths of keys in steps of 8 B, as a footer has room for: the least that holds a key.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyClass(u8);

impl KeyClass {
    /// Number of classes: 0 for keys of at most 16 B.
    pub const COUNT: u8 = 31;

    /// The class of this number; `None` if there are fewer.
    pub fn new(number: u8) -> Option<KeyClass> {
        (number < Self::COUNT).then_some(KeyClass(number))
    }

    /// The class of a key.
    #[inline]
    pub fn of(key: &Key) -> KeyClass {
        KeyClass(key.tail_bytes().div_ceil(8) as u8)
    }

    /// The class of every key.
    pub const LONGEST: KeyClass = KeyClass(Self::COUNT - 1);

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Most bytes of a key of the class.
    pub fn most_bytes(self) -> usize {
        Key::MAX_LEN.min(Key::IDENTITY_BYTES + 8 * usize::from(self.0))
    }
}

const _: () = assert!(Key::IDENTITY_BYTES + 8 * (KeyClass::COUNT as usize - 1) >= Key::MAX_LEN);
