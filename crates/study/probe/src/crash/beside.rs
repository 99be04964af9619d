//! Work beside the workload while power is cut: atomic batches, and iterators that are open.
//!
//! Every batch stores a new version of the same few pairs. After a power cut at any moment all of them must
//! have the same version: that of the last answered batch, or of the batch under way.

use std::cell::Cell;

use kvdrive_content::{Piece, Region};
use kvdrive_host::modelled::Driver;
use kvdrive_host::{Answer, Call, Calls, Client};
use kvdrive_nvme::batch::{BatchBuilder, RequestKind};
use kvdrive_nvme::{Key, Status};
use kvdrive_run::content;
use kvdrive_sim::Sim;
use kvdrive_workload::ValueSpec;

use super::ledger::{holds, of_drive};

/// Pairs of a batch.
const PAIRS: u8 = 6;
/// Bytes of a batch before its requests.
const HEAD_BYTES: usize = 16;
/// Pairs that an iterator passes before it is closed.
const NEXTS: u32 = 4;
/// Pause between two batches, ns.
const PAUSE_NS: u64 = 50_000;

/// Versions of the pairs that batches store; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// The version of the last batch that was answered.
    acknowledged: u64,
    /// The version of the last batch that was sent.
    sent: u64,
}

/// Atomic batches of the same pairs, one after the other.
pub struct AtomicBatches {
    keys: Vec<Key>,
    versions: Cell<Versions>,
}

impl AtomicBatches {
    /// Pairs with keys of `key_bytes` bytes, the highest there are, from `versions` on.
    pub fn new(key_bytes: usize, versions: Versions) -> AtomicBatches {
        let key = |number: u8| {
            let mut bytes = [0xFF; Key::IDENTITY_BYTES];
            bytes[key_bytes.min(bytes.len()) - 1] -= number;
            Key::from_padded(bytes, key_bytes).expect("a length that keys have")
        };
        AtomicBatches { keys: (0..PAIRS).map(key).collect(), versions: Cell::new(versions) }
    }

    /// The keys of the pairs.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The versions that the drive may have now.
    pub fn versions(&self) -> Versions {
        self.versions.get()
    }

    /// Sends batches and walks iterators as long as `goes_on` returns true.
    pub fn work(&self, sim: &Sim, driver: &Driver, goes_on: impl Fn() -> bool) {
        let mut region = Region::new();
        while goes_on() {
            self.send_batch(driver);
            let from = self.keys.last().copied().filter(|_| self.versions.get().sent.is_multiple_of(2));
            if let Ok((iterator, _)) = driver.seek(from, &mut region) {
                for _ in 0..NEXTS {
                    sim.sleep(PAUSE_NS / 4);
                    // The answer is not checked here: iterators are checked on recovered drives.
                    _ = driver.next(iterator, &mut region);
                }
                _ = driver.close(iterator);
            }
            sim.sleep(PAUSE_NS);
        }
    }

    fn send_batch(&self, mut client: &Driver) {
        let before = self.versions.get();
        let version = before.sent + 1;
        let (mut value, mut batch) = (vec![0; HEAD_BYTES], BatchBuilder::new());
        for key in &self.keys {
            let spec = value_of(version);
            let Piece::Pattern(pattern) = content(key, &spec) else { unreachable!("values are patterns") };
            let mut bytes = vec![0; spec.bytes as usize];
            pattern.expand(&mut bytes);
            batch.append(&mut value, RequestKind::Store, *key, &bytes);
        }
        value[..HEAD_BYTES].copy_from_slice(&batch.head(true));
        self.versions.set(Versions { sent: version, ..before });
        match of_drive(client.call(Call::Batch { value }, &mut Region::new())) {
            Ok(Answer::Applied(_, Status::SUCCESS)) => {
                self.versions.set(Versions { acknowledged: version, sent: version });
            }
            // A full drive refuses before it changes any pair.
            Ok(Answer::Applied(_, Status::CAPACITY_EXCEEDED)) => self.versions.set(before),
            // A drive whose flash wears out becomes write-protected.
            _ => {}
        }
    }

    /// Checks the pairs in a recovered drive, and continues from the version found.
    ///
    /// # Errors
    /// The version found, and those allowed.
    pub fn check(&self, mut client: impl Client, may_be_unreadable: bool) -> Result<(), String> {
        let Versions { acknowledged, sent } = self.versions.get();
        let mut region = Region::new();
        let mut possible: Vec<u64> = (acknowledged..=sent).collect();
        for key in &self.keys {
            let found = of_drive(client.retrieve(*key, &mut region));
            if found == Err(Status::UNRECOVERED_ERROR) && may_be_unreadable {
                continue;
            }
            possible.retain(|version| match (found, *version) {
                (Err(Status::KEY_NOT_FOUND), 0) => true,
                (Ok(bytes), 1..) => {
                    let spec = value_of(*version);
                    bytes == spec.bytes && holds(&region, key, &spec)
                }
                _ => false,
            });
            if possible.is_empty() {
                return Err(format!(
                    "{key}, one of {PAIRS} pairs of an atomic batch: {found:?}; all may have version {acknowledged} or \
                     all {sent}"
                ));
            }
        }
        self.versions.set(Versions { acknowledged: possible[0], sent: possible[possible.len() - 1] });
        Ok(())
    }
}

fn value_of(version: u64) -> ValueSpec {
    ValueSpec { bytes: 20 + (version % 7 * 90) as u32, version: version | 1 << 40 }
}
