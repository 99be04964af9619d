//! The state of a store that must survive a power cut and is not on its pages: trimmed pages, the operations since the
//! store was last synchronised, and the store's mark of that moment ([`kvdrive_store::Store::mark`]).
//!
//! After a cut the store finds the content of its pages, which may include any part of these operations. For each key,
//! the last operation that had been carried out is repeated, unless the store already has its result. All of them
//! together fit, as they did before the cut, if they may use the room that a store reserves for deletes
//! ([`kvdrive_store::Store::put_again`]). They may not fit in every order, so an operation that finds no room is tried
//! again after the others. Operations that were still running at the cut come last. They were not acknowledged, so each
//! may or may not take effect; an atomic batch is handed to the store as one again.

use std::borrow::Cow;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_content::Region;
use kvdrive_flash::ftl::away::{AwayChange, AwayPages};
use kvdrive_flash::power::{self, ImageError, Owner, PowerOnError};
use kvdrive_nvme::Key;
use kvdrive_store::{MAX_VALUE_BYTES, StoredValue};

use super::trimmed::{MOST_WRITES, Trimmed};
use crate::divided::Issued;

/// Higher than the number of any operation: no drive carries out so many.
const MOST_OPERATIONS: u64 = 1 << 60;

/// Bytes of protected memory of an operation besides its value: number, flags, key, lengths.
pub const OPERATION_BYTES: u64 = 64;

/// A store or a delete.
#[derive(Clone, BorshSerialize, BorshDeserialize)]
pub struct Operation {
    /// Operations are handed to the store in the order of their numbers.
    pub number: u64,
    /// The store has carried it out.
    pub is_carried_out: bool,
    /// The next operation belongs to the same atomic batch.
    pub goes_on: bool,
    /// The key that it changes.
    pub key: Key,
    /// The value and its length; `None` deletes.
    pub value: Option<(Rc<Region>, u32)>,
}

impl Operation {
    /// Bytes of protected memory that it takes.
    pub fn bytes(&self) -> u64 {
        OPERATION_BYTES + self.value.as_ref().map_or(0, |(_, bytes)| u64::from(*bytes))
    }

    /// Is `found` the value of the key after this operation?
    pub fn is_result(&self, found: Option<&StoredValue>) -> bool {
        match (&self.value, found) {
            (Some((region, bytes)), Some(found)) => {
                *bytes == found.bytes() && region.to_bytes(*bytes) == found.to_bytes()
            }
            (None, None) => true,
            _ => false,
        }
    }

    /// Is this an operation that a store can have been given?
    fn can_be(&self) -> bool {
        let fits =
            |(region, bytes): &(Rc<Region>, u32)| region.written_end() <= *bytes && *bytes <= MAX_VALUE_BYTES;
        self.value.as_ref().is_none_or(fits)
    }
}

/// A change of the protected state of a store, as recorded in the journal.
#[derive(BorshSerialize, BorshDeserialize)]
pub enum StoreRecord<'a> {
    /// Pages were trimmed, or written again.
    Pages(AwayChange),
    /// The number of the next write, at a moment at which pages are trimmed ([`super::pages`]).
    Written(u64),
    /// An operation begins, or all operations of an atomic batch.
    Begun(Cow<'a, [Operation]>),
    /// `count` operations from `first` on have ended: carried out, or failed and forgotten.
    Ended { first: u64, count: u64, is_carried_out: bool },
    /// The store was synchronised, with this mark: all operations are on its pages and are forgotten.
    Synchronised { mark: Cow<'a, [u8]> },
    /// Names that divided values have.
    Issued(Issued),
}

/// The engine's state in the image: trimmed pages, number of the next write when pages were last trimmed, number of the
/// next operation, operations, mark (empty before the first synchronisation), names of divided values.
type StoredState<'a> = (Cow<'a, AwayPages>, u64, u64, Vec<Cow<'a, Operation>>, Cow<'a, [u8]>, Issued);

/// The image, taken apart.
pub struct Protected {
    /// The drive that it belongs to.
    pub owner: Owner,
    /// Trimmed pages.
    pub trimmed: Trimmed,
    /// Operations that the store may not have on its pages yet, oldest first.
    pub operations: Vec<Operation>,
    /// The store's mark.
    pub mark: Vec<u8>,
    /// Number of the next operation.
    pub next_number: u64,
    /// Names that divided values have.
    pub issued: Issued,
}

impl Protected {
    /// The image's bytes.
    pub fn encode<'a>(
        owner: &Owner,
        trimmed: &Trimmed,
        operations: impl IntoIterator<Item = &'a Operation>,
        next_number: u64,
        mark: &[u8],
        issued: Issued,
    ) -> Vec<u8> {
        let operations = operations.into_iter().map(Cow::Borrowed).collect();
        let away = Cow::Borrowed(&trimmed.away);
        let state: StoredState<'_> =
            (away, trimmed.next_write_at_trim, next_number, operations, Cow::Borrowed(mark), issued);
        power::seal(owner, &state)
    }

    /// Takes the image of a drive of `pages` logical pages apart.
    pub fn decode(pages: u32, image: &[u8]) -> Result<Protected, PowerOnError> {
        let (owner, (away, next_write, next_number, operations, mark, issued)) =
            power::open::<StoredState<'_>>(image)?;
        away.check(pages)?;
        let operations: Vec<Operation> = operations.into_iter().map(Cow::into_owned).collect();
        let wrong = |what: &str| Err(ImageError::new(0, what).into());
        if next_write >= MOST_WRITES || next_number >= MOST_OPERATIONS || !issued.can_be() {
            return wrong("one of its numbers is out of range");
        }
        if !operations.iter().all(Operation::can_be) {
            return wrong("an operation is invalid");
        }
        let are_numbered = operations.last().is_none_or(|last| last.number < next_number);
        if !are_numbered || !operations.is_sorted_by(|one, next| one.number < next.number) {
            return wrong("its operations are out of order");
        }
        if operations.last().is_some_and(|last| last.goes_on) {
            return wrong("its operations end within an atomic batch");
        }
        let trimmed = Trimmed::new(away.into_owned(), next_write);
        Ok(Protected { owner, trimmed, operations, next_number, mark: mark.into_owned(), issued })
    }

    /// Applies a change; errors: it does not fit.
    pub fn apply(&mut self, change: StoreRecord<'_>, pages: u32) -> Result<(), &'static str> {
        match change {
            StoreRecord::Pages(change) => self.trimmed.away.apply(change, pages)?,
            StoreRecord::Written(number) if number >= MOST_WRITES => {
                return Err("one of its numbers is out of range");
            }
            StoreRecord::Written(number) => self.trimmed.next_write_at_trim = number,
            StoreRecord::Begun(together) => self.begin(together.into_owned())?,
            StoreRecord::Ended { first, count, is_carried_out } => {
                let end = first.checked_add(count).ok_or("the number of an operation is out of range")?;
                for number in first..end {
                    let at = self.operations.binary_search_by_key(&number, |operation| operation.number);
                    let at = at.map_err(|_| "an operation ends that has not begun")?;
                    match is_carried_out {
                        true => self.operations[at].is_carried_out = true,
                        false => drop(self.operations.remove(at)),
                    }
                }
            }
            StoreRecord::Synchronised { mark } => {
                self.operations.clear();
                self.mark = mark.into_owned();
            }
            StoreRecord::Issued(issued) if !issued.follows(&self.issued) => {
                return Err("names of divided values are taken back");
            }
            StoreRecord::Issued(issued) => self.issued = issued,
        }
        Ok(())
    }

    /// One operation, or all of an atomic batch.
    fn begin(&mut self, together: Vec<Operation>) -> Result<(), &'static str> {
        let goes_on = together.iter().map(|operation| operation.goes_on);
        let is_one = goes_on.eq((0..together.len()).map(|index| index + 1 < together.len()));
        if together.is_empty() || !is_one {
            return Err("its operations are no atomic batch");
        }
        for operation in together {
            if !(self.next_number..MOST_OPERATIONS - 1).contains(&operation.number) || !operation.can_be() {
                return Err("an operation is out of order or invalid");
            }
            self.next_number = operation.number + 1;
            self.operations.push(operation);
        }
        Ok(())
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
        let trimmed = Trimmed::new(away, 0);
        Protected {
            owner: Owner::default(),
            trimmed,
            operations: Vec::new(),
            next_number: 0,
            mark: Vec::new(),
            issued: Issued::default(),
        }
    }

    fn bytes_of(protected: &Protected) -> Vec<u8> {
        let Protected { owner, trimmed, operations, next_number, mark, issued } = protected;
        Protected::encode(owner, trimmed, operations, *next_number, mark, *issued)
    }

    fn flags(protected: &Protected) -> Vec<(u64, bool, bool)> {
        let flags = |one: &Operation| (one.number, one.goes_on, one.is_carried_out);
        protected.operations.iter().map(flags).collect()
    }

    #[test]
    fn an_atomic_batch_comes_back_from_records_and_image_as_one() {
        let mut protected = empty();
        let apply = |protected: &mut Protected, change: StoreRecord<'_>| {
            protected.apply(change, PAGES).expect("it is a record");
        };
        let begun = |first, count| StoreRecord::Begun(batch(first, count).into());
        let ended = |first, count, is_carried_out| StoreRecord::Ended { first, count, is_carried_out };
        apply(&mut protected, begun(0, 1));
        apply(&mut protected, begun(1, 3));
        apply(&mut protected, begun(4, 2));
        apply(&mut protected, ended(1, 3, true));
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
        apply(&mut again, ended(4, 2, false));
        assert_eq!(flags(&again), expected[..4]);
    }

    /// A record and an image with only a part of a batch are refused.
    #[test]
    fn half_a_batch_is_refused() {
        let whole = batch(0, 3);
        for left in 1..3 {
            let begun = StoreRecord::Begun(whole[..left].into());
            assert!(empty().apply(begun, PAGES).is_err(), "a record of {left} of 3");
            let mut protected = empty();
            (protected.operations, protected.next_number) = (whole[..left].to_vec(), 3);
            let image = bytes_of(&protected);
            assert!(Protected::decode(PAGES, &image).is_err(), "an image of {left} of 3");
        }
        let more = [whole, batch(3, 1)].concat();
        assert!(
            empty().apply(StoreRecord::Begun(more.into()), PAGES).is_err(),
            "an operation after the last"
        );
    }

    #[test]
    fn every_byte_of_a_record_is_refused_or_is_another_record() {
        let change = AwayChange { first: 1, pages: 2, is_away: true };
        let records = [
            StoreRecord::Pages(change),
            StoreRecord::Written(3),
            StoreRecord::Begun(batch(4, 2).into()),
            StoreRecord::Ended { first: 5, count: 6, is_carried_out: true },
            StoreRecord::Synchronised { mark: b"mark"[..].into() },
            StoreRecord::Issued(Issued { slots: 1, numbers: 2 }),
        ];
        records.iter().for_each(kvdrive_record::trial::every_byte);
    }
}
