//! Iteration over all pairs.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use kvdrive_content::Region;
use kvdrive_host::threaded::{self, block_on};
use kvdrive_spec::Key;
#[cfg(doc)]
use kvdrive_spec::Status;

use crate::client::{AsyncClient, Client, NoValue};
use crate::error::{Error, key};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An iterator of the drive that is open: what all kinds of pairs below have in common.
struct Cursor {
    iterator: threaded::IteratorId,
    /// The pair that SEEK brought, until it is returned.
    first: Option<Pair>,
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
        let first = first.map(|pair| taken(pair, &value));
        Ok(Cursor { iterator, is_over: first.is_none(), first, prefix: prefix.to_vec() })
    }

    async fn next(&mut self, client: &AsyncClient) -> Result<Option<Pair>, Error> {
        while let Some(pair) = self.next_of_all(client).await? {
            if pair.0.starts_with(&self.prefix) {
                return Ok(Some(pair));
            }
            if client.context().is_ordered {
                self.is_over = true;
            }
        }
        Ok(None)
    }

    async fn next_of_all(&mut self, client: &AsyncClient) -> Result<Option<Pair>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.is_over {
            return Ok(None);
        }
        let mut value = Region::new();
        let next = NoValue::Next { iterator: self.iterator };
        let pair = client.call("next", next, &mut value).await?.pair();
        self.is_over = pair.is_none();
        Ok(pair.map(|pair| taken(pair, &value)))
    }

    /// As [`Cursor::next`], for a thread that waits: an error is the end.
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
        let mut close = pin!(client.route().call(call, &mut into));
        _ = close.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// The pairs of a drive as they were when the iteration began.
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

    /// The next pair; `None` after the last. One whose future was dropped is not lost: the next call has it.
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

fn taken(pair: threaded::Pair, value: &Region) -> Pair {
    (bytes_of(&pair.key), value.to_bytes(pair.value_bytes))
}

pub(crate) fn bytes_of(key: &Key) -> Vec<u8> {
    key.to_array()[..key.len()].to_vec()
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

/// [`Pairs`] that own a share of their client, and so may outlive the scope that made them: what iterators of
/// other languages need. [`Client::owned_pairs`] makes them.
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
