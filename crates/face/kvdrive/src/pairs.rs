//! Iteration over all pairs.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kvdrive_content::Region;
use kvdrive_host::threaded::{self, block_on};
use kvdrive_nvme::Key;
#[cfg(doc)]
use kvdrive_nvme::Status;

use crate::client::{AsyncClient, Client};
use crate::context::NoValue;
use crate::error::{Error, bytes_of, key, whole};
use crate::names;

/// A key and its value. A key of more than 16 bytes ([`key_of`](crate::key_of)) is returned as it was given.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An open iterator of the drive: the part that all kinds of pairs below share.
struct Cursor {
    iterator: threaded::IteratorId,
    /// The pair that the drive returned last, with the part of its value that was received, until the pair is returned
    /// to the caller.
    ahead: Option<(threaded::Pair, Region)>,
    /// The drive has no more.
    is_over: bool,
    prefix: Vec<u8>,
}

impl Cursor {
    /// The pairs from `start` on that have this prefix.
    async fn open(client: &AsyncClient, start: Option<Key>, prefix: &[u8]) -> Result<Cursor, Error> {
        let from = if prefix.is_empty() { None } else { Some(key(prefix)?) };
        let start = start.or(from.filter(|_| client.context().is_ordered));
        let mut value = Region::new();
        let (iterator, first) = client.call("seek", NoValue::Seek { key: start }, &mut value).await?.opened();
        let ahead = first.map(|pair| (pair, value));
        Ok(Cursor { iterator, is_over: ahead.is_none(), ahead, prefix: prefix.to_vec() })
    }

    async fn next(&mut self, client: &AsyncClient) -> Result<Option<Pair>, Error> {
        while self.look_ahead(client).await? {
            let Some((pair, came)) = &self.ahead else { break };
            let key = bytes_of(&pair.key);
            let value = if !key.starts_with(&self.prefix) {
                self.is_over |= client.context().is_ordered;
                Ok(None)
            } else if pair.came_bytes < pair.value_bytes {
                // A future that is dropped meanwhile leaves the pair ahead.
                client.get(&key).await
            } else {
                whole("next", pair.key, pair.value_bytes, came).map(Some)
            };
            self.ahead = None;
            if let Some(value) = value? {
                return Ok(Some(names::split(&key, &value).unwrap_or((key, value))));
            }
        }
        Ok(None)
    }

    /// Has the drive bring the next pair, unless there is one; `false` after the last.
    async fn look_ahead(&mut self, client: &AsyncClient) -> Result<bool, Error> {
        if self.ahead.is_none() && !self.is_over {
            let mut value = Region::new();
            let next = NoValue::Next { iterator: self.iterator };
            let pair = client.call("next", next, &mut value).await?.pair();
            self.is_over = pair.is_none();
            self.ahead = pair.map(|pair| (pair, value));
        }
        Ok(self.ahead.is_some())
    }

    /// As [`Cursor::next`], for a thread that waits. Ends after the first error.
    fn wait_for_next(&mut self, client: &AsyncClient) -> Option<Result<Pair, Error>> {
        let next = block_on(self.next(client));
        self.is_over |= next.is_err();
        next.transpose()
    }

    /// Closes the iterator and does not wait: a future that was polled once is submitted, and carried out. If every
    /// slot of the queue is taken, it is not, and the drive keeps the iterator until the drive is closed.
    fn close(&self, client: &AsyncClient) {
        if client.context().forks.is_forked() {
            return;
        }
        let (call, mut into) = (NoValue::Close { iterator: self.iterator }, Region::new());
        let mut close = pin!(client.driver().call(call, &mut into));
        // Whoever waits next at this client brings the answer.
        block_on(poll_fn(|_| {
            _ = close.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            Poll::Ready(())
        }));
    }
}

/// The pairs of a drive as they were when the iteration began.
///
/// An iterator of the drive brings about 2 MiB of a value. A longer one is got by its key when its turn comes, so it is the
/// key's value of that time; a pair that was removed meanwhile is left out.
///
/// Until it is dropped, it keeps one of the drive's `lsm.iterators` iterators open.
pub struct AsyncPairs<'c> {
    client: &'c AsyncClient,
    cursor: Cursor,
}

impl<'c> AsyncPairs<'c> {
    pub(crate) async fn open(
        client: &'c AsyncClient,
        start: Option<Key>,
        prefix: &[u8],
    ) -> Result<AsyncPairs<'c>, Error> {
        Ok(AsyncPairs { client, cursor: Cursor::open(client, start, prefix).await? })
    }

    /// The next pair; `None` after the last. If the future is dropped, the pair is returned by the next call.
    ///
    /// # Errors
    /// The next pair cannot be read ([`Status::UNRECOVERED_ERROR`]), the drive has dropped the iterator
    /// ([`Status::ITERATOR_LOST`]), or is off.
    pub async fn next(&mut self) -> Result<Option<Pair>, Error> {
        self.cursor.next(self.client).await
    }
}

impl Drop for AsyncPairs<'_> {
    fn drop(&mut self) {
        self.cursor.close(self.client);
    }
}

/// [`AsyncPairs`], for a thread that waits. Ends after the first error: [`Client::pairs_from`] may go on after
/// the last key.
pub struct Pairs<'c>(pub(crate) AsyncPairs<'c>);

impl Iterator for Pairs<'_> {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Result<Pair, Error>> {
        self.0.cursor.wait_for_next(self.0.client)
    }
}

/// [`Pairs`] that own a share of their client, and so may outlive the scope that made them, as iterators of other
/// languages do. [`Client::owned_pairs`] makes them.
pub struct OwnedPairs {
    client: Arc<Client>,
    cursor: Cursor,
}

impl OwnedPairs {
    pub(crate) fn open(client: &Arc<Client>, prefix: &[u8]) -> Result<OwnedPairs, Error> {
        let cursor = block_on(Cursor::open(&client.0, None, prefix))?;
        Ok(OwnedPairs { client: client.clone(), cursor })
    }
}

impl Iterator for OwnedPairs {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Result<Pair, Error>> {
        self.cursor.wait_for_next(&self.client.0)
    }
}

impl Drop for OwnedPairs {
    fn drop(&mut self) {
        self.cursor.close(&self.client.0);
    }
}

impl AsyncClient {
    /// All pairs as they are now, in the order of the drive: by key if its engine keeps keys in order
    /// ([`Drive::is_ordered`](crate::Drive::is_ordered)), else by the engine's own tables. Values of more than 2 MiB are
    /// those of a later moment ([`AsyncPairs`]).
    ///
    /// # Errors
    /// [`Status::TOO_MANY_ITERATORS`]: all iterators of the drive are in use.
    pub async fn pairs(&self) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, None, &[]).await
    }

    /// The pairs from `start` on.
    ///
    /// # Errors
    /// As [`AsyncClient::pairs`].
    pub async fn pairs_from(&self, start: &[u8]) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, Some(key(start)?), &[]).await
    }

    /// The pairs whose keys begin with `prefix`; an empty one: all. If the drive keeps keys in order
    /// ([`Drive::is_ordered`](crate::Drive::is_ordered)), only these are read, otherwise all.
    ///
    /// # Errors
    /// As [`AsyncClient::pairs`]; a prefix is no longer than a key.
    pub async fn pairs_with_prefix(&self, prefix: &[u8]) -> Result<AsyncPairs<'_>, Error> {
        AsyncPairs::open(self, None, prefix).await
    }
}

impl Client {
    /// [`AsyncClient::pairs`].
    pub fn pairs(&self) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs()).map(Pairs)
    }

    /// [`AsyncClient::pairs_from`].
    pub fn pairs_from(&self, start: &[u8]) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs_from(start)).map(Pairs)
    }

    /// [`AsyncClient::pairs_with_prefix`].
    pub fn pairs_with_prefix(&self, prefix: &[u8]) -> Result<Pairs<'_>, Error> {
        block_on(self.0.pairs_with_prefix(prefix)).map(Pairs)
    }

    /// As [`Client::pairs_with_prefix`], in an iterator that borrows nothing.
    pub fn owned_pairs(self: &Arc<Self>, prefix: &[u8]) -> Result<OwnedPairs, Error> {
        OwnedPairs::open(self, prefix)
    }
}
