//! The engine's protected image, the records that keep a copy of it up to date, and what joins index and
//! value log.
//!
//! ```text
//!   image   = frame of 2 parts: value log | index
//!   records = part 0: a record of the value log     part 1: a record of the index
//! ```

use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::{self, ImageError, Journal, Owner};
use kvdrive_sim::TaskCell;

use super::entry::{Entry, ValueLiveness};
use super::fit::shape_of_config;
use super::index::Index;
use super::recovery::{IndexImage, IndexJournal, IndexRecord};
use crate::config::EngineConfig;
use crate::value_log::{self, ProtectedValueLog, Record, Vaddr, ValueLog};

const VALUE_LOG: u8 = 0;
const INDEX: u8 = 1;

/// The index's calls to the value log, and the journal of both.
pub struct Liveness {
    log: ValueLog,
    journal: Journal,
    /// The record being written, kept for its memory.
    record: TaskCell<Vec<u8>>,
}

impl Liveness {
    /// Between `log` and its index.
    pub fn new(log: ValueLog, journal: Journal) -> Liveness {
        Liveness { log, journal, record: TaskCell::default() }
    }

    fn append(&self, part: u8, write: impl FnOnce(&mut Vec<u8>)) {
        if self.journal.is_kept() {
            let mut record = self.record.borrow_mut();
            record.clear();
            write(&mut record);
            self.journal.append(part, &record);
        }
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
    fn record(&self, record: &Record<'_>) {
        self.append(VALUE_LOG, |out| record.encode(out));
    }
}

impl IndexJournal for Liveness {
    fn record(&self, record: IndexRecord<'_>) {
        self.append(INDEX, |out| record.encode(out));
    }
}

/// The engine's part of the protected image, taken apart.
pub struct Protected {
    /// Whose it is.
    pub owner: Owner,
    /// The value log's.
    pub values: ProtectedValueLog,
    /// The index's.
    pub index: IndexImage,
}

impl Protected {
    /// The image as it is now, as bytes.
    pub fn of(owner: Owner, log: &ValueLog, index: &Index) -> Vec<u8> {
        Protected { owner, values: log.save(), index: index.image() }.encode()
    }

    fn encode(&self) -> Vec<u8> {
        power::frame(&self.owner, &[self.values.encode(), self.index.to_bytes()])
    }

    /// Takes an image apart.
    pub fn decode(config: &EngineConfig, image: &[u8]) -> Result<Protected, PowerOnError> {
        let (owner, parts) = power::unframe(image)?;
        let [values, index] = parts.as_slice() else {
            return Err(ImageError::new(0, format!("it has {} parts instead of 2", parts.len())).into());
        };
        let values = ProtectedValueLog::decode(values, &shape_of_config(config)?)
            .map_err(|error| ImageError::new(0, error.to_string()))?;
        let index = IndexImage::from_bytes(index)
            .ok_or_else(|| ImageError::new(0, "the index's part makes no sense"))?;
        let fits = |entry: &Entry| !entry.has_bytes() || values.holds(entry.address, entry.bytes);
        if !index.entries().all(fits) {
            return Err(ImageError::new(0, "a value is where none can be").into());
        }
        Ok(Protected { owner, values, index })
    }
}

/// Applies journal records to an image.
pub fn fold(config: &EngineConfig, image: &[u8], records: &[(u8, Vec<u8>)]) -> Result<Vec<u8>, PowerOnError> {
    let mut protected = Protected::decode(config, image)?;
    for (number, (part, payload)) in records.iter().enumerate() {
        let bad =
            |what: &dyn std::fmt::Display| ImageError::new(0, format!("record {number} after it: {what}"));
        match *part {
            VALUE_LOG => {
                let record = Record::decode(payload).ok_or_else(|| bad(&"it makes no sense"))?;
                protected.values.apply(&record).map_err(|error| bad(&error))?;
            }
            INDEX => protected.index.apply_encoded(payload).ok_or_else(|| bad(&"it makes no sense"))?,
            other => return Err(bad(&format!("unknown part {other}")).into()),
        }
    }
    Ok(protected.encode())
}
