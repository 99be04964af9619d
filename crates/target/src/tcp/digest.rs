//! Digests: CRC-32C over headers and data.
//!
//! Of data whose length is no multiple of 4 there are two readings: Linux takes the bytes as they are, SPDK as
//! if zeros filled them up. Both are accepted; what is sent is what the host was last seen to use, and until
//! then data are filled up where the host has room, so that both readings agree.

/// A digest of data that grows.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct DataDigest {
    crc: u32,
    bytes: usize,
}

/// How a host reads digests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Reading {
    /// It has not shown yet.
    #[default]
    Unknown,
    /// Over the bytes as they are.
    Exact,
    /// Over the bytes and zeros to a multiple of 4.
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

    /// Which reading `received` is, if any is right.
    pub(super) fn check(self, received: u32) -> Option<Reading> {
        match (received == self.crc, received == self.padded()) {
            (true, true) => Some(Reading::Unknown),
            (true, false) => Some(Reading::Exact),
            (false, true) => Some(Reading::Padded),
            (false, false) => None,
        }
    }

    /// The digest in a reading.
    pub(super) fn value(self, reading: Reading) -> u32 {
        if reading == Reading::Padded { self.padded() } else { self.crc }
    }
}

/// The digest of a header.
pub(super) fn header(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}
