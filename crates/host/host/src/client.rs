//! [`Client`]: key-value commands to a drive over any connection. Code that uses it runs in model time and in
//! wall time, with a drive in this program or on a network.
//!
//! | client | a call that waits |
//! |---|---|
//! | `&`[`modelled::Driver`](crate::modelled::Driver) | suspends the task that it is called on |
//! | [`driver::Blocking`](crate::driver::Blocking) | parks the thread, or reads the socket; [`Driver`](crate::Driver) has the same calls as futures |
//!
//! Submitting and waiting are two calls, so that one core or thread has several commands under way:
//!
//! ```
//! # use kvdrive_content::{Piece, Region};
//! # use kvdrive_host::{Answer, Call, Client, Error};
//! # use kvdrive_nvme::Key;
//! fn two_at_once(client: &mut impl Client, keys: [Key; 2]) -> Result<[u32; 2], Error> {
//!     let mut into = Region::new();
//!     let tickets = [client.submit(Call::retrieve(keys[0]))?, client.submit(Call::retrieve(keys[1]))?];
//!     let mut bytes = [0; 2];
//!     for (ticket, bytes) in tickets.into_iter().zip(&mut bytes) {
//!         *bytes = client.wait(ticket, &mut into)?.value();
//!     }
//!     Ok(bytes)
//! }
//! ```

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::Error;
use crate::answers::{IteratorId, Pair};

/// A value that can be kept until it is stored; it also identifies a command to its owner.
pub trait Content {
    /// The value.
    fn piece(&self) -> Piece<'_>;
}

impl Content for Piece<'_> {
    fn piece(&self) -> Piece<'_> {
        *self
    }
}

impl Content for Vec<u8> {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

impl<const N: usize> Content for [u8; N] {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

impl Content for &[u8] {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

/// No value.
impl Content for () {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(&[])
    }
}

impl Content for Pattern {
    fn piece(&self) -> Piece<'_> {
        Piece::Pattern(*self)
    }
}

/// A command, with the value of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<V> {
    /// Store a value.
    Store {
        /// The key.
        key: Key,
        /// The value.
        value: V,
        /// The condition of the store.
        options: StoreOptions,
    },
    /// Carry out the requests of a structured value ([`kvdrive_nvme::batch`]).
    Batch {
        /// The structured value.
        value: V,
    },
    /// Retrieve a value.
    Retrieve {
        /// The key.
        key: Key,
    },
    /// Retrieve a part of a value.
    RetrievePart {
        /// The key.
        key: Key,
        /// Where the part begins, in bytes from the front of the value.
        at: u32,
        /// Its size in bytes. The part ends with the value, and after 2 MiB.
        bytes: u32,
    },
    /// Remove a pair; removing an absent pair succeeds.
    Delete {
        /// The key.
        key: Key,
    },
    /// Remove a pair, and say whether there was one. Only for drives whose Identify offers it
    /// ([`kvdrive_nvme::identify::VendorNamespace::delete_says`]); others say that there was one.
    Remove {
        /// The key.
        key: Key,
    },
    /// Ask whether there is a pair.
    Exist {
        /// The key.
        key: Key,
    },
    /// List keys in the drive's order.
    List {
        /// The first key to list, or its successor; `None`: from the drive's first key.
        start: Option<Key>,
        /// Room for keys, in bytes; a client's buffer is a second limit.
        buffer_bytes: u32,
    },
    /// Open an iterator on the pairs as they are now and read the first one.
    Seek {
        /// The first key to return, or its successor; `None`: from the drive's first key.
        key: Option<Key>,
    },
    /// Read an iterator's next pair.
    Next {
        /// The iterator. One command of it is under way at a time.
        iterator: IteratorId,
    },
    /// Close an iterator.
    Close {
        /// The iterator.
        iterator: IteratorId,
    },
}

impl<V> Call<V> {
    /// The key that the call names.
    pub fn key(&self) -> Option<Key> {
        match *self {
            Call::Store { key, .. }
            | Call::Retrieve { key }
            | Call::RetrievePart { key, .. }
            | Call::Delete { key }
            | Call::Remove { key }
            | Call::Exist { key } => Some(key),
            Call::List { start: key, .. } | Call::Seek { key } => key,
            Call::Batch { .. } | Call::Next { .. } | Call::Close { .. } => None,
        }
    }

    /// The call without the value of a store or a batch, and that value.
    pub fn split(self) -> (Call<()>, Option<V>) {
        match self {
            Call::Store { key, value, options } => (Call::Store { key, value: (), options }, Some(value)),
            Call::Batch { value } => (Call::Batch { value: () }, Some(value)),
            call => (call.with(()), None),
        }
    }

    /// The same call with this value, if it has one.
    pub(crate) fn with<W>(self, value: W) -> Call<W> {
        match self {
            Call::Store { key, options, .. } => Call::Store { key, value, options },
            Call::Batch { .. } => Call::Batch { value },
            Call::Retrieve { key } => Call::Retrieve { key },
            Call::RetrievePart { key, at, bytes } => Call::RetrievePart { key, at, bytes },
            Call::Delete { key } => Call::Delete { key },
            Call::Remove { key } => Call::Remove { key },
            Call::Exist { key } => Call::Exist { key },
            Call::List { start, buffer_bytes } => Call::List { start, buffer_bytes },
            Call::Seek { key } => Call::Seek { key },
            Call::Next { iterator } => Call::Next { iterator },
            Call::Close { iterator } => Call::Close { iterator },
        }
    }

    /// The value of a store.
    pub(crate) fn value(&self) -> Piece<'_>
    where
        V: Content,
    {
        match self {
            Call::Store { value, .. } | Call::Batch { value } => value.piece(),
            _ => Piece::Bytes(&[]),
        }
    }
}

impl Call<&'static [u8]> {
    /// A retrieve, as a call that has no value.
    pub fn retrieve(key: Key) -> Call<&'static [u8]> {
        Call::Retrieve { key }
    }
}

/// What a drive answered to a [`Call`] that succeeded, and to any batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a store, a delete, a close.
    Done,
    /// To a batch: how many of its requests, in their order, were carried out, and the status: without
    /// success that of the first request that was not, or of the whole batch.
    Applied(u32, Status),
    /// To an exist: is there a pair? To a remove: was there?
    Exists(bool),
    /// To a retrieve, also of a part: the size of the whole value, bytes; the bytes themselves are in `into`.
    /// If the value is longer than the client's largest, only its front was received, up to [`Region::written_end`].
    Value(u32),
    /// To a list.
    Keys(Vec<Key>),
    /// To a seek: the iterator, which is open, and the first pair, if there is one; its value is in `into`.
    Opened(IteratorId, Option<Pair>),
    /// To a next: the pair, whose value is in `into`; `None` after the last one.
    Pair(Option<Pair>),
}

const OTHER_CALL: &str = "an answer is to the call that was made";

impl Answer {
    /// The answer to an exist or a remove. Panics if the call was another one, as the functions below do.
    pub fn exists(self) -> bool {
        let Answer::Exists(exists) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        exists
    }

    /// The answer to a batch.
    pub fn applied(self) -> (u32, Status) {
        let Answer::Applied(requests, status) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        (requests, status)
    }

    /// The answer to a retrieve.
    pub fn value(self) -> u32 {
        let Answer::Value(bytes) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        bytes
    }

    /// The answer to a list.
    pub fn keys(self) -> Vec<Key> {
        let Answer::Keys(keys) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        keys
    }

    /// The answer to a seek.
    pub fn opened(self) -> (IteratorId, Option<Pair>) {
        let Answer::Opened(iterator, pair) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        (iterator, pair)
    }

    /// The answer to a next.
    pub fn pair(self) -> Option<Pair> {
        let Answer::Pair(pair) = self else { panic!("{OTHER_CALL}, not {self:?}") };
        pair
    }
}

/// Key-value commands on a drive; see above. [`Calls`] has a function for each.
pub trait Client {
    /// A command under way. Dropping it blocks no other command: a submitted command is carried out, an iterator that
    /// no caller learned of is closed, and a pair that no caller received is returned again.
    type Ticket<V: Content>;

    /// Submits a command. Waits for a free slot, so the caller must not hold all of them as tickets. If a
    /// value needs several commands, each is submitted after the answer to the one before, and this call
    /// returns after the last one.
    ///
    /// # Errors
    /// The connection failed. A status of the drive is returned by [`Client::wait`].
    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Self::Ticket<V>, Error>;

    /// Waits for a command's answer; a value is written to `into`, from its byte 0.
    ///
    /// # Errors
    /// The status that the drive answered, except to a batch that was sent; or the connection failed.
    fn wait<V: Content>(&mut self, ticket: Self::Ticket<V>, into: &mut Region) -> Result<Answer, Error>;

    /// Submits and waits.
    ///
    /// # Errors
    /// As [`Client::wait`].
    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        let ticket = self.submit(call)?;
        self.wait(ticket, into)
    }
}

/// Calls that wait for their answers, one function each: of every [`Client`], and of drivers that are shared
/// and so are not a client themselves, such as a [`modelled::Driver`](crate::modelled::Driver).
pub trait Calls: Sized {
    /// The error of a call.
    type Error;

    /// Makes a call and waits for its answer; a value is written to `into`, from its byte 0.
    ///
    /// # Errors
    /// As [`Client::wait`]; the calls below have the same errors.
    fn ask<V: Content>(self, call: Call<V>, into: &mut Region) -> Result<Answer, Self::Error>;

    /// Stores a value.
    fn store(self, key: Key, value: Piece<'_>) -> Result<(), Self::Error> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Stores a value under a condition; such a store uses `prp`, whatever the driver's method is.
    fn store_with(self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Self::Error> {
        self.ask(Call::Store { key, value, options }, &mut Region::new()).map(|_| ())
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size in bytes.
    fn retrieve(self, key: Key, into: &mut Region) -> Result<u32, Self::Error> {
        self.ask(NoValue::Retrieve { key }, into).map(Answer::value)
    }

    /// Removes a pair; removing an absent pair succeeds.
    fn delete(self, key: Key) -> Result<(), Self::Error> {
        self.ask(NoValue::Delete { key }, &mut Region::new()).map(|_| ())
    }

    /// Is there a pair?
    fn exist(self, key: Key) -> Result<bool, Self::Error> {
        self.ask(NoValue::Exist { key }, &mut Region::new()).map(Answer::exists)
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    fn list(self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Self::Error> {
        self.ask(NoValue::List { start, buffer_bytes }, &mut Region::new()).map(Answer::keys)
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None`:
    /// there is no such pair, but the iterator is open.
    fn seek(self, key: Option<Key>, into: &mut Region) -> Result<(IteratorId, Option<Pair>), Self::Error> {
        self.ask(NoValue::Seek { key }, into).map(Answer::opened)
    }

    /// The iterator's next pair; `None` after the last one.
    fn next(self, iterator: IteratorId, into: &mut Region) -> Result<Option<Pair>, Self::Error> {
        self.ask(NoValue::Next { iterator }, into).map(Answer::pair)
    }

    /// Closes an iterator.
    fn close(self, iterator: IteratorId) -> Result<(), Self::Error> {
        self.ask(NoValue::Close { iterator }, &mut Region::new()).map(|_| ())
    }
}

impl<C: Client> Calls for &mut C {
    type Error = Error;

    fn ask<V: Content>(self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        C::call(self, call, into)
    }
}

impl<C: Client> Client for &mut C {
    type Ticket<V: Content> = C::Ticket<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Self::Ticket<V>, Error> {
        C::submit(self, call)
    }

    fn wait<V: Content>(&mut self, ticket: Self::Ticket<V>, into: &mut Region) -> Result<Answer, Error> {
        C::wait(self, ticket, into)
    }

    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        C::call(self, call, into)
    }
}

/// A call without a value.
pub(crate) type NoValue = Call<()>;
