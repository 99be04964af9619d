//! The state of a store that must survive a power cut and is not on its pages: trimmed pages, the operations
//! that were carried out since the store was last synchronised, and its mark of that moment
//! ([`kvdrive_store::Store::mark`]).
//!
//! ```text
//!   image    part 0: bitmap of pages that are away ([`kvdrive_flash::ftl::away`])
//!            part 1: number of the next write when pages last went away (u64) | next number (u64) | operations, oldest first
//!            part 2: the mark; empty before the store was synchronised
//!   records  part 0: pages go away or are there again
//!            part 1: 1 | operations           they begin: one, or those of an atomic batch
//!                    2 | numbers (u64 each)   they are carried out
//!                    3 | numbers (u64 each)   they failed: forget them
//!                    4 | mark                 the store is synchronised: forget all, remember this
//!                    5 | number (u64)         of the next write, as pages go away
//!
//!   operation   number (u64) | flags (u8) | key bytes (u8) | key | kind (u8: 0 delete, 1 store)
//!               flags: bit 0 it is carried out, bit 1 the next one is of the same atomic batch
//!               of a store:  value bytes (u32) | literal bytes (u32) | bytes | patterns (u32) | patterns
//!   pattern     at (u32) | seed (u64) | offset (u32) | bytes (u32)
//! ```
//!
//! After a cut the store finds what its pages hold. Of each key the last operation that was carried out is
//! carried out again, unless the store has what that gave the key: whatever part of them had reached the pages,
//! each key has it then. All at once they fit, for they did before, into the room that a store leaves to deletes at
//! the latest ([`kvdrive_store::Store::put_again`]); one before the other they may not, so those that find no
//! room are tried again after the others. Operations that were not carried out when the power went come last. They were not
//! acknowledged: each is there afterwards, or, where there is no room for it, is not; those of an atomic batch
//! are handed to the store as one again.

use std::rc::Rc;

use kvdrive_content::{Decoder, Region};
use kvdrive_flash::ftl::away::AwayPages;
use kvdrive_flash::power::{self, ImageError, Owner, PowerOnError};
use kvdrive_spec::Key;
use kvdrive_store::{Kept, MAX_VALUE_BYTES};

use super::pages::{MOST_WRITES, Trimmed};

/// Part of the image, and of records, that says which pages are away.
pub const AWAY_PART: u8 = 0;
/// Part that has the operations.
pub const OPERATIONS_PART: u8 = 1;

const BEGUN: u8 = 1;
const CARRIED_OUT: u8 = 2;
const FAILED: u8 = 3;
const SYNCHRONISED: u8 = 4;
const WRITTEN: u8 = 5;

/// No drive has carried out so many.
const MOST_OPERATIONS: u64 = 1 << 60;

/// Bytes of protected memory for a value beside its own: number, flags, key, lengths.
pub const OPERATION_BYTES: u64 = 64;

/// A store or a delete.
#[derive(Clone)]
pub struct Operation {
    /// Operations are handed to the store in the order of their numbers.
    pub number: u64,
    /// The store has done it.
    pub is_carried_out: bool,
    /// The next one is of the same atomic batch.
    pub goes_on: bool,
    /// Whose value.
    pub key: Key,
    /// The value and its length; `None` deletes.
    pub value: Option<(Rc<Region>, u32)>,
}

impl Operation {
    /// Bytes of protected memory that it takes.
    pub fn bytes(&self) -> u64 {
        OPERATION_BYTES + self.value.as_ref().map_or(0, |(_, bytes)| u64::from(*bytes))
    }

    /// Is this what its key has when it has been carried out?
    pub fn is_result(&self, found: Option<&Kept>) -> bool {
        match (&self.value, found) {
            (Some((region, bytes)), Some(found)) => {
                *bytes == found.bytes() && region.to_bytes(*bytes) == found.to_bytes()
            }
            (None, None) => true,
            _ => false,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.push(u8::from(self.is_carried_out) | u8::from(self.goes_on) << 1);
        let mut key = [0; Key::MAX_LEN];
        self.key.copy_to(&mut key);
        out.push(self.key.len() as u8);
        out.extend_from_slice(&key[..self.key.len()]);
        out.push(self.value.is_some().into());
        if let Some((region, bytes)) = &self.value {
            out.extend_from_slice(&bytes.to_le_bytes());
            region.encode(out);
        }
    }

    fn decode(reader: &mut Decoder<'_>) -> Option<Operation> {
        let number = reader.u64()?;
        let flags = reader.u8().filter(|flags| *flags < 4)?;
        let (is_carried_out, goes_on) = (flags & 1 != 0, flags & 2 != 0);
        let key_bytes = usize::from(reader.u8()?);
        let key = Key::new(reader.take(key_bytes)?)?;
        let value = match flag(reader.u8()?)? {
            false => None,
            true => {
                let bytes = reader.u32()?;
                let region = reader.region()?;
                (region.written_end() <= bytes && bytes <= MAX_VALUE_BYTES).then_some(())?;
                Some((Rc::new(region), bytes))
            }
        };
        Some(Operation { number, is_carried_out, goes_on, key, value })
    }
}

fn flag(byte: u8) -> Option<bool> {
    matches!(byte, 0 | 1).then_some(byte == 1)
}

/// The records of the second part, each as its bytes.
pub mod record {
    use super::{BEGUN, CARRIED_OUT, FAILED, Operation, SYNCHRONISED, WRITTEN};

    /// An operation begins, or several of an atomic batch.
    pub fn begun(operations: &[Operation]) -> Vec<u8> {
        let mut out = vec![BEGUN];
        operations.iter().for_each(|operation| operation.encode(&mut out));
        out
    }

    /// So many from `first` on are carried out, or have failed.
    pub fn ended(first: u64, count: u64, is_carried_out: bool) -> Vec<u8> {
        let mut out = vec![if is_carried_out { CARRIED_OUT } else { FAILED }];
        (first..first + count).for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out
    }

    /// All that was carried out is on the store's pages, of which this is the mark.
    pub fn synchronised(mark: &[u8]) -> Vec<u8> {
        [&[SYNCHRONISED], mark].concat()
    }

    /// The next write has this number ([`super::super::pages`]).
    pub fn written(next_write: u64) -> [u8; 9] {
        let mut out = [WRITTEN; 9];
        out[1..].copy_from_slice(&next_write.to_le_bytes());
        out
    }
}

/// The image, taken apart.
pub struct Protected {
    /// Whose it is.
    pub owner: Owner,
    /// Trimmed pages.
    pub trimmed: Trimmed,
    /// Operations that the store may not have on its pages yet, oldest first.
    pub operations: Vec<Operation>,
    /// The store's mark.
    pub mark: Vec<u8>,
    /// Number of the next operation.
    pub next_number: u64,
}

impl Protected {
    /// The image's bytes.
    pub fn encode<'a>(
        owner: &Owner,
        trimmed: &Trimmed,
        operations: impl IntoIterator<Item = &'a Operation>,
        next_number: u64,
        mark: &[u8],
    ) -> Vec<u8> {
        let mut part = trimmed.next_write_at_trim.to_le_bytes().to_vec();
        part.extend_from_slice(&next_number.to_le_bytes());
        operations.into_iter().for_each(|operation| operation.encode(&mut part));
        power::frame(owner, &[trimmed.away.to_part(), part, mark.to_vec()])
    }

    /// Takes the image of a drive of `pages` logical pages apart.
    pub fn decode(pages: u32, image: &[u8]) -> Result<Protected, PowerOnError> {
        let (owner, parts) = power::unframe(image)?;
        let [away, operations, mark] = &parts[..] else {
            return Err(ImageError::new(0, format!("{} parts, a store has three", parts.len())).into());
        };
        let away = AwayPages::from_part(away, pages)?;
        let damaged = || ImageError::new(0, "its operations end early or say what no store does");
        let mut reader = Decoder::new(operations);
        let next_write = reader.u64().filter(|number| *number < MOST_WRITES).ok_or_else(damaged)?;
        let next_number = reader.u64().filter(|number| *number < MOST_OPERATIONS).ok_or_else(damaged)?;
        let trimmed = Trimmed { away, next_write, next_write_at_trim: next_write };
        let mut operations: Vec<Operation> = Vec::new();
        while !reader.is_at_end() {
            let operation = Operation::decode(&mut reader).ok_or_else(damaged)?;
            let follows = operations.last().is_none_or(|last| last.number < operation.number);
            if !follows || operation.number >= next_number {
                return Err(ImageError::new(0, "its operations are out of order").into());
            }
            operations.push(operation);
        }
        if operations.last().is_some_and(|last| last.goes_on) {
            return Err(ImageError::new(0, "its operations end within an atomic batch").into());
        }
        Ok(Protected { owner, trimmed, operations, next_number, mark: mark.to_vec() })
    }

    /// Applies a record of `part`.
    pub fn apply(&mut self, part: u8, record: &[u8], pages: u32) -> Result<(), ImageError> {
        if part == AWAY_PART {
            return self.trimmed.away.apply(record, pages);
        }
        let wrong = || ImageError::new(0, "a record of its operations says nothing that this program knows");
        let mut reader = Decoder::new(record);
        let kind = reader.u8().filter(|_| part == OPERATIONS_PART).ok_or_else(wrong)?;
        match kind {
            BEGUN => loop {
                let operation = Operation::decode(&mut reader).ok_or_else(wrong)?;
                if !(self.next_number..MOST_OPERATIONS - 1).contains(&operation.number) {
                    return Err(wrong());
                }
                let goes_on = operation.goes_on;
                self.next_number = operation.number + 1;
                self.operations.push(operation);
                if !goes_on {
                    break;
                }
            },
            CARRIED_OUT | FAILED => loop {
                let number = reader.u64().ok_or_else(wrong)?;
                let index = self.operations.binary_search_by_key(&number, |operation| operation.number);
                let index = index.map_err(|_| wrong())?;
                match kind {
                    CARRIED_OUT => self.operations[index].is_carried_out = true,
                    _ => drop(self.operations.remove(index)),
                }
                if reader.is_at_end() {
                    break;
                }
            },
            SYNCHRONISED => {
                self.operations.clear();
                let bytes = reader.rest().len();
                self.mark = reader.take(bytes).expect("it is the rest").to_vec();
            }
            WRITTEN => {
                let number = reader.u64().filter(|number| *number < MOST_WRITES);
                self.trimmed.next_write_at_trim = number.ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
        if reader.is_at_end() { Ok(()) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 64;

    /// The operations of an atomic batch, of which the first has this number.
    fn batch(first: u64, count: u64) -> Vec<Operation> {
        let operation = |index: u64| Operation {
            number: first + index,
            is_carried_out: false,
            goes_on: index + 1 < count,
            key: Key::from_u64_be(index),
            value: (index != 1).then(|| (Rc::new(Region::from_bytes(vec![7; 5])), 5)),
        };
        (0..count).map(operation).collect()
    }

    fn empty() -> Protected {
        let away = AwayPages::all(PAGES);
        let trimmed = Trimmed { away, next_write: 0, next_write_at_trim: 0 };
        Protected {
            owner: Owner::default(),
            trimmed,
            operations: Vec::new(),
            next_number: 0,
            mark: Vec::new(),
        }
    }

    fn bytes_of(protected: &Protected) -> Vec<u8> {
        let Protected { owner, trimmed, operations, next_number, mark } = protected;
        Protected::encode(owner, trimmed, operations, *next_number, mark)
    }

    fn flags(protected: &Protected) -> Vec<(u64, bool, bool)> {
        let flags = |one: &Operation| (one.number, one.goes_on, one.is_carried_out);
        protected.operations.iter().map(flags).collect()
    }

    #[test]
    fn an_atomic_batch_comes_back_from_records_and_image_as_one() {
        let mut protected = empty();
        let apply = |protected: &mut Protected, record: &[u8]| {
            protected.apply(OPERATIONS_PART, record, PAGES).expect("it is a record");
        };
        apply(&mut protected, &record::begun(&batch(0, 1)));
        apply(&mut protected, &record::begun(&batch(1, 3)));
        apply(&mut protected, &record::begun(&batch(4, 2)));
        apply(&mut protected, &record::ended(1, 3, true));
        let expected = [
            (0, false, false),
            (1, true, true),
            (2, true, true),
            (3, false, true),
            (4, true, false),
            (5, false, false),
        ];
        assert_eq!(flags(&protected), expected);
        let mut again = Protected::decode(PAGES, &bytes_of(&protected)).expect("it is an image");
        assert_eq!((flags(&again), again.next_number), (expected.to_vec(), 6));
        apply(&mut again, &record::ended(4, 2, false));
        assert_eq!(flags(&again), expected[..4]);
    }

    /// A record and an image with only a part of a batch are refused.
    #[test]
    fn half_a_batch_is_refused() {
        let whole = batch(0, 3);
        for left in 1..3 {
            let begun = record::begun(&whole[..left]);
            assert!(empty().apply(OPERATIONS_PART, &begun, PAGES).is_err(), "a record of {left} of 3");
            let mut protected = empty();
            (protected.operations, protected.next_number) = (whole[..left].to_vec(), 3);
            let image = bytes_of(&protected);
            assert!(Protected::decode(PAGES, &image).is_err(), "an image of {left} of 3");
        }
        let mut more = record::begun(&whole);
        more.extend_from_slice(&record::begun(&batch(3, 1))[1..]);
        assert!(empty().apply(OPERATIONS_PART, &more, PAGES).is_err(), "an operation after the last");
    }
}
