//! [`Objects`]: names of any bytes, values of any size. The S3 door stands on it; the Python package writes the same form.
//!
//! ```text
//!   pair under the object's name      manifest, 48 bytes: mark, size, size of a part, beginning of the parts' keys
//!   pairs BEGINNING 00000000 ...      the parts; the last may be shorter than the others
//!   pair BEGINNING ffffffff           what is said of the object, if the manifest says that there is such a pair
//! ```
//!
//! An object that another program stored in one pair, without a manifest, is an object, too. Parts are stored under keys
//! that no other object has, and the manifest last, so an object is there whole or not at all, whatever ends the program or
//! the drive meanwhile. Parts of a store that did not end stay on the drive; they are no object, and are not listed.
//!
//! Not here: who may write an object at a time. Two stores of one name must not run side by side, or parts of one stay.

use std::collections::HashSet;

use kvdrive_nvme::Status;

use crate::client::AsyncClient;
use crate::error::Error;
use crate::key_of;

/// The beginning of every manifest.
const MARK: [u8; 16] = *b"kvdrive parts 1\0";
/// The first bytes of the key of every part. No name of 16 bytes may begin so.
const OF_PARTS: [u8; 4] = *b"\xffkvp";
/// Random bytes after them.
const RANDOM_BYTES: usize = 8;
/// Number of the pair that says what the object is.
const DESCRIPTION: u32 = u32::MAX;
/// Bytes of a part if the drive takes as many: what one command returns of it.
pub const PART_BYTES: u32 = 2 << 20;
/// Bytes before the value of a pair under a name of more than 16 bytes, besides the name.
const FRONT_BYTES: u32 = 8;
/// Bytes of a pair that are read to find a name: all but very long names need no second look.
const LOOK_BYTES: u32 = 2048;

/// Size and parts of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the object.
    pub size: u64,
    /// Bytes of each part but the last.
    pub part_bytes: u64,
    /// Where the keys of its parts begin.
    pub beginning: [u8; 12],
    /// Is there a pair that says what the object is?
    pub is_described: bool,
}

impl Manifest {
    /// Bytes of a manifest.
    pub const BYTES: usize = 48;

    /// Of an object without a byte so far, under keys that no other object has.
    ///
    /// # Errors
    /// [`Error::Refused`]: the system has no random numbers.
    pub fn begin(part_bytes: u32) -> Result<Manifest, Error> {
        let mut beginning = [0; 12];
        let (of_parts, random) = beginning.split_at_mut(OF_PARTS.len());
        of_parts.copy_from_slice(&OF_PARTS);
        debug_assert_eq!(random.len(), RANDOM_BYTES);
        getrandom::fill(random).map_err(|error| Error::Refused(format!("keys of parts: {error}")))?;
        Ok(Manifest { size: 0, part_bytes: part_bytes.into(), beginning, is_described: false })
    }

    /// The manifest in the value of a pair; `None`: it is a value of another kind.
    pub fn read(value: &[u8]) -> Option<Manifest> {
        let value: &[u8; Self::BYTES] = value.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
        let (size, part_bytes) = (number(16), number(24));
        let beginning = value[32..44].try_into().expect("12 bytes");
        let is_one =
            value.starts_with(&MARK) && part_bytes > 0 && size.div_ceil(part_bytes) < DESCRIPTION.into();
        is_one.then_some(Manifest { size, part_bytes, beginning, is_described: value[44] == 1 })
    }

    /// The value of its pair.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&MARK);
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.part_bytes.to_le_bytes());
        bytes[32..44].copy_from_slice(&self.beginning);
        bytes[44] = self.is_described.into();
        bytes
    }

    /// The number of parts.
    pub fn parts(&self) -> u32 {
        u32::try_from(self.size.div_ceil(self.part_bytes)).expect("it was checked when the manifest was read")
    }

    /// The key of a part.
    pub fn key(&self, part: u32) -> [u8; 16] {
        let mut key = [0; 16];
        key[..12].copy_from_slice(&self.beginning);
        key[12..].copy_from_slice(&part.to_be_bytes());
        key
    }

    /// The keys of all its pairs but the manifest.
    pub fn keys(&self) -> impl Iterator<Item = [u8; 16]> + '_ {
        let description = self.is_described.then_some(DESCRIPTION);
        (0..self.parts()).chain(description).map(|part| self.key(part))
    }
}

/// An object that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub size: u64,
    /// Its parts; `None`: it is one pair.
    pub manifest: Option<Manifest>,
}

impl Object {
    /// By the front of the value of its pair, and the size of that value.
    fn of(front: &[u8], value_bytes: u32) -> Object {
        let manifest =
            Some(front).filter(|_| value_bytes as usize == Manifest::BYTES).and_then(Manifest::read);
        Object { size: manifest.as_ref().map_or(value_bytes.into(), |manifest| manifest.size), manifest }
    }
}

/// The objects of a drive, for futures on any executor.
pub struct Objects {
    client: AsyncClient,
    /// Bytes of the largest part.
    part_bytes: u32,
}

impl Objects {
    /// On a drive whose largest value has `value_max_bytes` bytes ([`Namespace`](crate::Namespace)).
    pub fn new(client: AsyncClient, value_max_bytes: u32) -> Objects {
        Objects { client, part_bytes: value_max_bytes.min(PART_BYTES) }
    }

    /// Bytes of a part of an object whose size is not known when it begins.
    pub fn part_bytes(&self) -> u32 {
        self.part_bytes
    }

    /// May an object have this name? Others are keys of parts.
    pub fn allows(name: &[u8]) -> bool {
        !(name.len() == 16 && name.starts_with(&OF_PARTS)) && key_of(name).is_ok()
    }

    /// The object of this name; `None`: there is none.
    ///
    /// # Errors
    /// As [`AsyncClient::get_part`]; also of all calls below.
    pub async fn find(&self, name: &[u8]) -> Result<Option<Object>, Error> {
        match self.client.get_part(name, 0, Manifest::BYTES as u32).await {
            Ok(part) => Ok(part.map(|part| Object::of(&part.bytes, part.value_bytes))),
            // A value without a byte has no part.
            Err(error) if error.status() == Some(Status::INVALID_FIELD) => {
                Ok(self.client.get(name).await?.map(|_| Object { size: 0, manifest: None }))
            }
            Err(error) => Err(error),
        }
    }

    /// What is said of an object; `None`: nothing is.
    pub async fn description(&self, object: &Object) -> Result<Option<Vec<u8>>, Error> {
        match &object.manifest {
            Some(manifest) if manifest.is_described => self.client.get(&manifest.key(DESCRIPTION)).await,
            _ => Ok(None),
        }
    }

    /// Bytes of an object from `at` on, which is before its end: `most` of them, or fewer, and at least one. `None`: it was
    /// replaced or removed since it was found.
    pub async fn read(
        &self,
        name: &[u8],
        object: &Object,
        at: u64,
        most: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        let most = most.min(object.size - at).min(PART_BYTES.into());
        let Some(manifest) = &object.manifest else {
            let part = self.client.get_part(name, at as u32, most as u32).await?;
            let part =
                part.filter(|part| u64::from(part.value_bytes) == object.size && !part.bytes.is_empty());
            return Ok(part.map(|part| part.bytes));
        };
        let (part, within) = ((at / manifest.part_bytes) as u32, at % manifest.part_bytes);
        let bytes = most.min(manifest.part_bytes - within) as u32;
        let read = self.client.get_part(&manifest.key(part), within as u32, bytes).await?;
        Ok(read.map(|part| part.bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Stores a part of an object that is not there yet.
    pub async fn put(&self, manifest: &Manifest, part: u32, bytes: &[u8]) -> Result<(), Error> {
        self.client.store(&manifest.key(part), bytes).await
    }

    /// A part of an object that is not there yet.
    pub async fn take(&self, manifest: &Manifest, part: u32) -> Result<Option<Vec<u8>>, Error> {
        self.client.get(&manifest.key(part)).await
    }

    /// Makes an object of the parts that were stored, and replaces one of that name. If that fails there is the old object,
    /// or none, and the parts are still there.
    pub async fn finish(
        &self,
        name: &[u8],
        manifest: &mut Manifest,
        description: &[u8],
    ) -> Result<(), Error> {
        let old = self.find(name).await?;
        manifest.is_described = !description.is_empty();
        if manifest.is_described {
            self.client.store(&manifest.key(DESCRIPTION), description).await?;
        }
        self.client.store(name, &manifest.to_bytes()).await?;
        if let Some(Object { manifest: Some(old), .. }) = old {
            self.forget(&old).await;
        }
        Ok(())
    }

    /// Removes the parts of an object that is not there, or not any more. One that cannot be removed stays.
    pub async fn forget(&self, manifest: &Manifest) {
        for key in manifest.keys() {
            if self.client.delete(&key).await.is_err() {
                return;
            }
        }
    }

    /// Removes a part of an object that is not there. If it cannot be removed, it stays.
    pub async fn forget_part(&self, manifest: &Manifest, part: u32) {
        _ = self.client.delete(&manifest.key(part)).await;
    }

    /// Removes an object; was there one?
    pub async fn delete(&self, name: &[u8]) -> Result<bool, Error> {
        let Some(object) = self.find(name).await? else { return Ok(false) };
        self.client.delete(name).await?;
        if let Some(manifest) = &object.manifest {
            self.forget(manifest).await;
        }
        Ok(true)
    }

    /// All objects by name, in the order of the names. The drive is asked for the front of each pair.
    pub async fn all(&self) -> Result<Vec<(Vec<u8>, Object)>, Error> {
        let (mut found, mut beginnings) = (Vec::new(), HashSet::new());
        let mut keys = self.client.keys();
        while let Some(key) = keys.next().await? {
            if key.len() == 16 && key.starts_with(&OF_PARTS) {
                continue;
            }
            if let Some((name, object)) = self.named(key).await? {
                beginnings.extend(object.manifest.as_ref().map(|manifest| manifest.beginning));
                found.push((name, object));
            }
        }
        // Parts that were stored by a version whose keys have no mark.
        found.retain(|(name, _)| {
            name.len() != 16 || !beginnings.iter().any(|beginning| name.starts_with(beginning))
        });
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// Name and object of the pair of a key; `None`: it was removed meanwhile.
    async fn named(&self, key: Vec<u8>) -> Result<Option<(Vec<u8>, Object)>, Error> {
        let mut front = match self.client.get_part(&key, 0, LOOK_BYTES).await {
            Err(error) if error.status() == Some(Status::INVALID_FIELD) => {
                return Ok(Some((key, Object { size: 0, manifest: None })));
            }
            front => match front? {
                Some(front) => front,
                None => return Ok(None),
            },
        };
        if let Some(needed) = named_bytes(&front.bytes).filter(|_| key.len() == 16) {
            if needed > LOOK_BYTES {
                let Some(longer) = self.client.get_part(&key, 0, needed).await? else { return Ok(None) };
                front = longer;
            }
            let value_at = (needed as usize - Manifest::BYTES).min(front.bytes.len());
            let name = &front.bytes[FRONT_BYTES as usize..value_at];
            if key_of(name).is_ok_and(|digest| digest.to_vec() == key) {
                let value_bytes = front.value_bytes - value_at as u32;
                let value = &front.bytes[value_at..front.bytes.len().min(needed as usize)];
                return Ok(Some((name.to_vec(), Object::of(value, value_bytes))));
            }
        }
        let value = &front.bytes[..front.bytes.len().min(Manifest::BYTES)];
        let object = Object::of(value, front.value_bytes);
        Ok(Some((key, object)))
    }
}

/// Bytes of a pair up to the end of a manifest after its name, if the pair begins as that of a name.
fn named_bytes(front: &[u8]) -> Option<u32> {
    let (bytes, _) = front.strip_prefix(b"kvN1")?.split_first_chunk()?;
    let name = u32::from_le_bytes(*bytes);
    (name > 16 && name <= u16::MAX.into()).then_some(FRONT_BYTES + name + Manifest::BYTES as u32)
}
