//! Digests: CRC-32C over headers and data.
//!
//! For data whose length is no multiple of 4, hosts differ: Linux computes the digest over the bytes as they
//! are, SPDK over the bytes padded with zeros. Both are accepted. The target sends the variant that the host
//! used last; until the host has used one, the target pads the data itself where the host has room, so that
//! both variants agree.

/// A digest computed piece by piece.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct DataDigest {
    crc: u32,
    bytes: usize,
}

/// The digest variant of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Reading {
    /// The host has not used one yet.
    #[default]
    Unknown,
    /// Over the bytes as they are.
    Exact,
    /// Over the bytes and zeros up to a multiple of 4.
    Padded,
}

impl DataDigest {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.bytes += bytes.len();
    }

    fn padded(self) -> u32 {
        crc32c::crc32c_append(self.crc, &[0; 3][..self.bytes.next_multiple_of(4) - self.bytes])
    }

    /// The variant that gives `received`; `None` if neither does.
    pub(super) fn check(self, received: u32) -> Option<Reading> {
        match (received == self.crc, received == self.padded()) {
            (true, true) => Some(Reading::Unknown),
            (true, false) => Some(Reading::Exact),
            (false, true) => Some(Reading::Padded),
            (false, false) => None,
        }
    }

    /// The digest in one variant.
    pub(super) fn value(self, reading: Reading) -> u32 {
        if reading == Reading::Padded { self.padded() } else { self.crc }
    }
}

/// The digest of a header.
pub(super) fn header(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}
