//! Going through all pairs.

use std::pin::pin;
use std::task::{Context, Waker};

use kvdrive_content::Region;
use kvdrive_host::threaded::{self, block_on};
use kvdrive_spec::Key;
#[cfg(doc)]
use kvdrive_spec::Status;

use crate::client::AsyncClient;
use crate::error::Error;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The pairs of a drive as they were when it was made.
///
/// It keeps an iterator of the drive open, which has `lsm.iterators` of them, until it is dropped.
pub struct AsyncPairs<'c> {
    client: &'c AsyncClient,
    iterator: threaded::IteratorId,
    /// What SEEK brought, before it was asked for.
    first: Option<Pair>,
    is_over: bool,
}

impl<'c> AsyncPairs<'c> {
    pub(crate) async fn open(client: &'c AsyncClient, start: Option<Key>) -> Result<AsyncPairs<'c>, Error> {
        let mut value = Region::new();
        let seek = client.driver().seek(start, &mut value);
        let (iterator, first) = client.counted("seek", start, seek).await?;
        let first = first.map(|pair| taken(pair, &value));
        Ok(AsyncPairs { client, iterator, is_over: first.is_none(), first })
    }

    /// The next pair; `None` behind the last. One whose future was dropped is not lost: the next call has it.
    ///
    /// # Errors
    /// The next pair cannot be read ([`Status::UNRECOVERED_ERROR`]), the drive has dropped the iterator
    /// ([`Status::ITERATOR_LOST`]), or is off.
    pub async fn next(&mut self) -> Result<Option<Pair>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.is_over {
            return Ok(None);
        }
        let mut value = Region::new();
        let next = self.client.driver().next(self.iterator, &mut value);
        let pair = self.client.counted("next", None, next).await?;
        self.is_over = pair.is_none();
        Ok(pair.map(|pair| taken(pair, &value)))
    }
}

impl Drop for AsyncPairs<'_> {
    fn drop(&mut self) {
        // What was polled once is submitted, and carried out without anybody who waits for it. With every slot of
        // the queue taken it is not, and the drive keeps the iterator until it is closed.
        let mut close = pin!(self.client.driver().close(self.iterator));
        _ = close.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

fn taken(pair: threaded::Pair, value: &Region) -> Pair {
    (pair.key.to_array()[..pair.key.len()].to_vec(), value.to_bytes(pair.value_bytes))
}

/// [`AsyncPairs`], for a thread that waits. Ends behind the first error: [`Client::pairs_from`] may go on behind
/// the key that was the last.
///
/// [`Client::pairs_from`]: crate::Client::pairs_from
pub struct Pairs<'c>(pub(crate) AsyncPairs<'c>);

impl Iterator for Pairs<'_> {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Result<Pair, Error>> {
        let next = block_on(self.0.next());
        self.0.is_over |= next.is_err();
        next.transpose()
    }
}
