//! States of superblocks, kinds of pages, and the streams that fill them: types that images, records and
//! [`super::space`] share.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::Purpose;

/// Kind of a page of pairs, in its header.
pub const KIND_DATA: u8 = 1;
/// Kind of a page of sections and invalid records.
pub const KIND_MAP: u8 = 2;

/// The state of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum SuperblockState {
    /// Erased.
    Free,
    /// A stream appends to it.
    Open,
    /// Written to its end, or to the place where its stream ended.
    Full,
    /// Being collected.
    Victim,
    /// Holds items that can neither be read nor moved; never erased, so that other data are not mistaken for
    /// them.
    Lost,
}

/// The source of appended items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum Stream {
    /// Pairs of the host.
    Data,
    /// Pairs moved by garbage collection.
    DataGc,
    /// Sections and invalid records.
    Map,
    /// Sections and invalid records moved by garbage collection.
    MapGc,
}

/// Every stream.
pub const STREAMS: [Stream; 4] = [Stream::Data, Stream::DataGc, Stream::Map, Stream::MapGc];

impl Stream {
    pub(super) fn purpose(self) -> Purpose {
        match self {
            Stream::Data => Purpose::Data,
            Stream::DataGc => Purpose::DataGc,
            Stream::Map => Purpose::Map,
            Stream::MapGc => Purpose::MapGc,
        }
    }

    /// Kind of its pages.
    pub fn kind(self) -> u8 {
        match self {
            Stream::Data | Stream::DataGc => KIND_DATA,
            Stream::Map | Stream::MapGc => KIND_MAP,
        }
    }
}
