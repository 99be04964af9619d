//! [`Namespace`]: capacity of a drive and limits of pairs.

use kvdrive_nvme::identify::KvNamespace;
use serde::Serialize;

/// The namespace of a drive as Identify reports it, the same for a drive in this program and on a network.
///
/// It has no number of pairs, because drives do not count them ([`Client::count`](crate::Client::count) visits all
/// keys).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Namespace {
    /// Bytes of values that fit.
    pub capacity_bytes: u64,
    /// Bytes of stored values: an upper bound with engine `lsm`, which learns that a value was replaced or deleted when it
    /// merges both entries; exact with the others.
    pub used_bytes: u64,
    /// Longest key, bytes.
    pub key_max_bytes: u16,
    /// Longest value, bytes.
    pub value_max_bytes: u32,
    /// Most pairs; `None`: as many as fit.
    pub keys_max: Option<u32>,
    /// Are keys and pairs listed in order of keys? A drive that is no kvdrive does not say.
    pub is_ordered: bool,
    /// Does the drive itself say of a removed key whether it was there ([`Client::remove`](crate::Client::remove))?
    pub delete_says: bool,
}

impl Namespace {
    pub(crate) fn of(identified: &KvNamespace) -> Namespace {
        let format = identified.format();
        Namespace {
            capacity_bytes: identified.size_bytes.get(),
            used_bytes: identified.used_bytes.get(),
            key_max_bytes: format.key_max_bytes.get(),
            value_max_bytes: format.value_max_bytes.get(),
            keys_max: Some(format.keys_max.get()).filter(|most| *most > 0),
            is_ordered: identified.vendor.is_ordered(),
            delete_says: identified.vendor.delete_says(),
        }
    }
}
