//! Uploads that were begun, as a bucket knows them.

use std::collections::BTreeMap;

use kvdrive::objects::Manifest;
use tokio::sync::Mutex;

use crate::description::Description;

/// An upload that was begun.
pub struct Upload {
    /// Name of its object.
    pub name: Vec<u8>,
    /// What its program said of the object.
    pub description: Description,
    /// `None`: it was completed or ended.
    pub parts: Mutex<Option<Arrived>>,
}

/// The parts of an upload so far.
pub struct Arrived {
    /// Keys of the parts: the key of part N has number N - 1.
    pub manifest: Manifest,
    /// By their numbers.
    pub parts: BTreeMap<u32, Part>,
}

/// A part that has come.
#[derive(Clone, Copy)]
pub struct Part {
    /// Its length.
    pub bytes: u64,
    /// Its digest, which is its entity tag.
    pub md5: [u8; 16],
}
