//! The identity of a drive: 128 bits that it gets when it is made and keeps for its life. Its medium and its
//! protected image carry them, and Identify reports them; an image that belongs to another drive is refused.
//!
//! A drive on a file draws its identity at random; a drive in memory derives it from the seed, so that runs
//! with the same seed are equal.

use std::fmt;

use borsh::io::{Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_sim::Rng;
use uuid::{Builder, Uuid};

/// Bytes of an identity.
pub const IDENTITY_BYTES: usize = 16;

/// The identity of one drive, a UUID (RFC 9562: version 4 if drawn, version 8 if derived).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Uuid);

impl Identity {
    /// A random identity.
    pub fn drawn() -> Identity {
        Identity(Uuid::new_v4())
    }

    /// The identity of drives with this seed.
    pub fn of_seed(seed: u64) -> Identity {
        let mut bytes = [0; IDENTITY_BYTES];
        Rng::stream(seed, "identity").fill(&mut bytes);
        Identity(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The identity as images and Identify contain it.
    pub fn to_bytes(self) -> [u8; IDENTITY_BYTES] {
        *self.0.as_bytes()
    }

    /// Reads [`Identity::to_bytes`]: any bytes are an identity.
    pub const fn from_bytes(bytes: [u8; IDENTITY_BYTES]) -> Identity {
        Identity(Uuid::from_bytes(bytes))
    }

    /// The first 80 bits as the 20 characters of a serial number (NVMe base specification, Identify
    /// Controller, SN).
    pub fn serial(self) -> String {
        let mut digits = format!("{:X}", self.0.simple());
        digits.truncate(20);
        digits
    }
}

impl BorshSerialize for Identity {
    fn serialize<W: Write>(&self, writer: &mut W) -> Result<()> {
        self.to_bytes().serialize(writer)
    }
}

impl BorshDeserialize for Identity {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Identity> {
        <[u8; IDENTITY_BYTES]>::deserialize_reader(reader).map(Identity::from_bytes)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}
