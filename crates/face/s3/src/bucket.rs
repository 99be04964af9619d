//! [`Bucket`]: a namespace of a drive, by its name among programs of S3. It connects when it is first asked, and again when
//! the drive was away.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvdrive::objects::{Object, Objects};
use kvdrive::{AsyncClient, Drive, Error, Remote};

use crate::begun::Upload;
use crate::description::Description;
use crate::failure::Failure;

/// Names that are written at a time without waiting for each other, on average.
const LOCKS: usize = 64;
/// How a bucket reaches its drive.
pub struct Way {
    /// A queue pair.
    pub client: AsyncClient,
    /// Bytes of the drive's largest value.
    pub value_max_bytes: u32,
    /// What has to be kept while the queue pair is used.
    pub drive: Option<Drive>,
}

impl Way {
    fn to(remote: &Remote) -> Result<Way, Error> {
        let drive = kvdrive::connect_to(remote)?;
        let value_max_bytes = drive.namespace()?.value_max_bytes;
        Ok(Way { client: drive.async_client()?, value_max_bytes, drive: Some(drive) })
    }
}

/// Opens the way to a drive; it may take a while.
type Open = Arc<dyn Fn() -> Result<Way, Error> + Send + Sync>;

/// A drive that is connected.
pub struct Connected {
    _drive: Option<Drive>,
    /// Its objects.
    pub objects: Objects,
    /// Bytes of its largest value.
    pub value_max_bytes: u32,
}

impl Connected {
    fn new(way: Way) -> Connected {
        let Way { client, value_max_bytes, drive } = way;
        Connected { _drive: drive, objects: Objects::new(client, value_max_bytes), value_max_bytes }
    }

    /// The object of this name, and what is said of it.
    ///
    /// # Errors
    /// There is none.
    pub async fn found(&self, name: &[u8]) -> Result<(Object, Description), Failure> {
        let object = self.objects.find(name).await?.ok_or_else(Failure::no_key)?;
        let description = self.described(&object).await?;
        Ok((object, description))
    }

    /// What is said of an object; nothing of one that another program stored.
    ///
    /// # Errors
    /// The drive cannot read it.
    pub async fn described(&self, object: &Object) -> Result<Description, Failure> {
        let bytes = self.objects.description(object).await?;
        bytes.map_or(Ok(Description::default()), |bytes| Description::read(&bytes))
    }
}

/// See the module.
pub struct Bucket {
    name: String,
    open: Open,
    connected: tokio::sync::Mutex<Option<Arc<Connected>>>,
    /// Stores and removals of one name take turns.
    writing: [tokio::sync::Mutex<()>; LOCKS],
    uploads: Mutex<HashMap<String, Arc<Upload>>>,
    /// The names of the bucket at some time, for the pages of one listing.
    listed: Mutex<Option<Listing>>,
}

/// Objects of a bucket, and the token by which the pages of a listing ask for them again.
#[derive(Clone)]
pub struct Listing {
    /// The token.
    pub token: String,
    /// In the order of their names.
    pub objects: Arc<Vec<(Vec<u8>, Object)>>,
}

impl Bucket {
    /// The objects of a drive on a network under this name.
    pub fn remote(name: String, remote: Remote) -> Bucket {
        Bucket::new(name, move || Way::to(&remote))
    }

    /// The objects of the drive that `open` leads to, under this name. It is called again when the way is lost.
    pub fn new(name: String, open: impl Fn() -> Result<Way, Error> + Send + Sync + 'static) -> Bucket {
        let open = Arc::new(open);
        let writing = [const { tokio::sync::Mutex::const_new(()) }; LOCKS];
        let (connected, uploads) = (tokio::sync::Mutex::default(), Mutex::default());
        Bucket { name, open, connected, writing, uploads, listed: Mutex::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The drive.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn drive(&self) -> Result<Arc<Connected>, Failure> {
        let mut connected = self.connected.lock().await;
        if let Some(connected) = &*connected {
            return Ok(connected.clone());
        }
        let open = self.open.clone();
        let way = tokio::task::spawn_blocking(move || open()).await;
        let way = way.map_err(|error| Failure::new("InternalError", 500, error.to_string()))??;
        Ok(connected.insert(Arc::new(Connected::new(way))).clone())
    }

    /// Forgets a connection that was lost.
    pub async fn lost(&self) {
        self.connected.lock().await.take();
    }

    /// The turn of a store or removal of this name.
    pub async fn turn(&self, name: &[u8]) -> tokio::sync::MutexGuard<'_, ()> {
        let place = name.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        self.writing[place % LOCKS].lock().await
    }

    /// The uploads that were begun and not completed.
    pub fn uploads(&self) -> MutexGuard<'_, HashMap<String, Arc<Upload>>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last listing that was kept.
    pub fn listed(&self) -> MutexGuard<'_, Option<Listing>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
