//! Iteration over keys, without their values.

use std::collections::VecDeque;
use std::sync::Arc;

use kvdrive_content::Region;
use kvdrive_host::threaded::block_on;
use kvdrive_nvme::{Key, Status};

use crate::client::{AsyncClient, Client};
use crate::context::NoValue;
use crate::error::{Error, bytes_of, key};

/// Room for the keys of one List, in bytes: some thousands.
const LIST_BYTES: u32 = 64 << 10;

/// The common part of all iterators over keys.
struct KeyCursor {
    prefix: Vec<u8>,
    /// The start of the next List: the first key of the walk, or the last key that was returned.
    start: Option<Key>,
    /// Was the key at `start` returned by a List?
    has_begun: bool,
    ahead: VecDeque<Key>,
    is_over: bool,
}

impl KeyCursor {
    fn new(client: &AsyncClient, prefix: &[u8]) -> Result<KeyCursor, Error> {
        let from = if prefix.is_empty() { None } else { Some(key(prefix)?) };
        let start = from.filter(|_| client.context().is_ordered);
        let (prefix, ahead) = (prefix.to_vec(), VecDeque::new());
        Ok(KeyCursor { prefix, start, has_begun: false, ahead, is_over: false })
    }

    async fn next(&mut self, client: &AsyncClient) -> Result<Option<Vec<u8>>, Error> {
        loop {
            while let Some(key) = self.ahead.pop_front() {
                let bytes = bytes_of(&key);
                if bytes.starts_with(&self.prefix) {
                    return Ok(Some(bytes));
                }
                if client.context().is_ordered {
                    self.ahead.clear();
                    self.is_over = true;
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.list(client).await?;
        }
    }

    /// The next keys of the drive. A List begins with the key that it starts at, which came before.
    async fn list(&mut self, client: &AsyncClient) -> Result<(), Error> {
        let list = NoValue::List { start: self.start, buffer_bytes: LIST_BYTES };
        let keys = client.call("list", list, &mut Region::new()).await?.keys();
        let came = usize::from(self.has_begun && keys.first() == self.start.as_ref());
        if self.has_begun && came == 0 && !client.context().is_ordered {
            // The key was deleted, and in a hash table no other key marks its position.
            return Err(Error::Status { call: "list", key: self.start, status: Status::ITERATOR_LOST });
        }
        self.is_over = keys.len() == came;
        (self.start, self.has_begun) = (keys.last().copied().or(self.start), true);
        self.ahead.extend(keys.into_iter().skip(came));
        Ok(())
    }

    /// As [`KeyCursor::next`], for a thread that waits: an error is the end.
    fn wait_for_next(&mut self, client: &AsyncClient) -> Option<Result<Vec<u8>, Error>> {
        let next = block_on(self.next(client));
        self.is_over |= next.is_err();
        next.transpose()
    }
}

/// The keys of a drive. Nothing of it is kept on the drive between two calls.
pub struct AsyncKeys<'c> {
    client: &'c AsyncClient,
    cursor: KeyCursor,
}

impl<'c> AsyncKeys<'c> {
    pub(crate) fn new(client: &'c AsyncClient, prefix: &[u8]) -> Result<AsyncKeys<'c>, Error> {
        Ok(AsyncKeys { client, cursor: KeyCursor::new(client, prefix)? })
    }

    /// The next key; `None` after the last.
    ///
    /// # Errors
    /// [`Status::ITERATOR_LOST`]: the key that came last was deleted, on a drive that keeps keys in no order; the drive
    /// cannot list its keys, or is off.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.cursor.next(self.client).await
    }
}

/// [`AsyncKeys`], for a thread that waits. Ends after the first error.
pub struct Keys<'c>(pub(crate) AsyncKeys<'c>);

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        self.0.cursor.wait_for_next(self.0.client)
    }
}

/// [`Keys`] that own a share of their client, and so may outlive the scope that made them.
pub struct OwnedKeys {
    client: Arc<Client>,
    cursor: KeyCursor,
}

impl OwnedKeys {
    pub(crate) fn new(client: &Arc<Client>, prefix: &[u8]) -> Result<OwnedKeys, Error> {
        Ok(OwnedKeys { client: client.clone(), cursor: KeyCursor::new(&client.0, prefix)? })
    }
}

impl Iterator for OwnedKeys {
    type Item = Result<Vec<u8>, Error>;

    fn next(&mut self) -> Option<Result<Vec<u8>, Error>> {
        self.cursor.wait_for_next(&self.client.0)
    }
}

impl AsyncClient {
    /// All keys, without their values. Each command returns many keys.
    ///
    /// They are not a snapshot: a key that is stored or deleted meanwhile may be returned or not.
    pub fn keys(&self) -> AsyncKeys<'_> {
        AsyncKeys::new(self, &[]).expect("no prefix is longer than a key")
    }

    /// The keys that begin with `prefix`, otherwise as [`AsyncClient::keys`].
    ///
    /// # Errors
    /// [`Error::KeySize`]: a prefix is no longer than a key.
    pub fn keys_with_prefix(&self, prefix: &[u8]) -> Result<AsyncKeys<'_>, Error> {
        AsyncKeys::new(self, prefix)
    }

    /// How many keys begin with `prefix`; an empty one: all. It reads all of them, without their values.
    ///
    /// # Errors
    /// As [`AsyncKeys::next`].
    pub async fn count(&self, prefix: &[u8]) -> Result<u64, Error> {
        let (mut keys, mut count) = (AsyncKeys::new(self, prefix)?, 0);
        while keys.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

impl Client {
    /// [`AsyncClient::keys`].
    pub fn keys(&self) -> Keys<'_> {
        Keys(self.0.keys())
    }

    /// [`AsyncClient::keys_with_prefix`].
    pub fn keys_with_prefix(&self, prefix: &[u8]) -> Result<Keys<'_>, Error> {
        self.0.keys_with_prefix(prefix).map(Keys)
    }

    /// [`AsyncClient::count`].
    pub fn count(&self, prefix: &[u8]) -> Result<u64, Error> {
        block_on(self.0.count(prefix))
    }

    /// As [`Client::keys_with_prefix`], in an iterator that borrows nothing.
    pub fn owned_keys(self: &Arc<Self>, prefix: &[u8]) -> Result<OwnedKeys, Error> {
        OwnedKeys::new(self, prefix)
    }
}
