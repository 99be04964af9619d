//! The engine's protected image, the records that keep a copy of it up to date, and the connection of index and value
//! log.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::{self, ImageError, Journal, Owner};

use super::entry::{Entry, ValueLiveness};
use super::fit::shape_of_config;
use super::index::Index;
use super::recovery::{IndexImage, IndexJournal, IndexRecord};
use crate::config::EngineConfig;
use crate::value_log::{self, LogImage, ProtectedValueLog, Record, Vaddr, ValueLog};

/// A change of the engine's state.
#[derive(BorshSerialize, BorshDeserialize)]
enum Change<'a> {
    Values(Record<'a>),
    Index(IndexRecord<'a>),
}

/// The index's calls to the value log, and the journal of both.
pub struct Liveness {
    log: ValueLog,
    journal: Journal,
}

impl Liveness {
    /// Between `log` and its index.
    pub fn new(log: ValueLog, journal: Journal) -> Liveness {
        Liveness { log, journal }
    }
}

impl ValueLiveness for Liveness {
    fn dead(&self, address: Vaddr, bytes: u32) {
        self.log.note_dead(address, bytes);
    }

    fn next_opening(&self) -> u64 {
        self.log.next_opening()
    }

    fn opening_of(&self, address: Vaddr) -> Option<u64> {
        self.log.opening_of(address)
    }
}

impl value_log::RecordSink for Liveness {
    fn record(&self, record: Record<'_>) {
        self.journal.append(&Change::Values(record));
    }
}

impl IndexJournal for Liveness {
    fn record(&self, record: IndexRecord<'_>) {
        self.journal.append(&Change::Index(record));
    }
}

/// The engine's part of the protected image, taken apart.
pub struct Protected {
    /// The drive that it belongs to.
    pub owner: Owner,
    /// State of the value log.
    pub values: ProtectedValueLog,
    /// State of the index.
    pub index: IndexImage,
}

impl Protected {
    /// The image as it is now, as bytes.
    pub fn of(owner: Owner, log: &ValueLog, index: &Index) -> Vec<u8> {
        Protected { owner, values: log.save(), index: index.image() }.encode()
    }

    fn encode(&mut self) -> Vec<u8> {
        power::seal(&self.owner, &(self.values.image(), &self.index))
    }

    /// Takes an image apart.
    pub fn decode(config: &EngineConfig, image: &[u8]) -> Result<Protected, PowerOnError> {
        let wrong = |what: String| PowerOnError::from(ImageError::new(0, what));
        let (owner, (values, index)) = power::open::<(LogImage, IndexImage)>(image)?;
        let values = ProtectedValueLog::restore(values, &shape_of_config(config)?);
        let values = values.map_err(|error| wrong(error.to_string()))?;
        index.check().map_err(|what| wrong(what.to_owned()))?;
        let fits = |entry: &Entry| !entry.has_bytes() || values.holds(entry.address, entry.bytes);
        if !index.entries().all(fits) {
            return Err(wrong("the address of a value is out of range".to_owned()));
        }
        Ok(Protected { owner, values, index })
    }

    fn apply(&mut self, change: Change<'_>) -> Result<(), String> {
        match change {
            Change::Values(record) => self.values.apply(record).map_err(|error| error.to_string()),
            Change::Index(record) => self.index.apply(record).map_err(str::to_owned),
        }
    }
}

/// Applies journal records to an image.
pub fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
    let mut protected = Protected::decode(config, image)?;
    power::replay(records, |change| protected.apply(change))?;
    Ok(protected.encode())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use kvdrive_content::{Pattern, Piece, Region};
    use kvdrive_nvme::Key;
    use kvdrive_record::trial::every_byte;

    use super::*;
    use crate::lsm::entry::TableId;
    use crate::value_log::{Head, SegmentId};

    #[test]
    fn every_byte_of_a_change_is_refused_or_is_another_change() {
        let mut content = Region::from_bytes(vec![1, 2]);
        let pattern = Pattern { seed: 9, offset: 4, bytes: 300 };
        content.write(5, Piece::Pattern(pattern));
        let (lpa, at, segment, head) = (6, 7, SegmentId(8), Head::Gc);
        let arrival = kvdrive_link::Arrival::Hybrid;
        let values = [
            Record::PageDirtied { lpa, content: Cow::Owned(content) },
            Record::BytesWritten { lpa, at, bytes: Cow::Borrowed(b"bytes") },
            Record::PatternWritten { lpa, at, pattern },
            Record::PageProgrammed { lpa },
            Record::SegmentOpened { segment, head, base: 4096, opening: 3 },
            Record::SegmentSealed { segment },
            Record::SegmentFreed { segment },
            Record::ValuePlaced { head, bytes: 300, arrival },
            Record::Skipped { head, at: 8192 },
            Record::Live { segment, change: -300 },
        ];
        let entry = Entry { address: Vaddr(1), bytes: 2, sequence: 3, tombstone: false };
        let key = Key::new(b"a key").expect("5 bytes");
        let (added, dropped) = (Cow::Owned(vec![(TableId(1), 2)]), Cow::Owned(vec![TableId(3)]));
        let index = [
            IndexRecord::Inserted { key, entry },
            IndexRecord::Frozen(5),
            IndexRecord::IdTaken(TableId(6)),
            IndexRecord::TablesChanged { added, dropped, flushed: true },
        ];
        values.into_iter().for_each(|record| every_byte(&Change::Values(record)));
        index.into_iter().for_each(|record| every_byte(&Change::Index(record)));
        let entries = [(key, entry)].into();
        let image =
            IndexImage { active: [(key, entry)].into(), frozen: Some((7, entries)), ..IndexImage::default() };
        every_byte(&image);
    }
}
