//! The state that clients share: the pending table, the read cache, and the list of clients.

use std::sync::atomic::{AtomicU64 as Gauge, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use kvdrive_declare::Counts;
use kvdrive_nvme::Key;

use crate::batch::{Batch, BatchSequence};
use crate::cache::{self, Cache};
use crate::config::{BatchSize, Containers, SakerConfig, SakerConfigError};
use crate::counters::{Count, Counters};
use crate::remembered::Remembered;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::table::PendingTable;
use crate::writer::ClientId;

/// SAKER in front of one namespace of one drive.
pub struct Saker {
    pub(crate) config: SakerConfig,
    pub(crate) table: PendingTable,
    pub(crate) cache: Option<Box<dyn Cache>>,
    pub(crate) pending: PendingBytes,
    pub(crate) remembered: Remembered,
    /// Batches of dropped clients that can be sent: the next client that asks for a batch gets them.
    orphans: Mutex<Vec<Arc<Batch>>>,
    has_orphans: AtomicBool,
    sequences: Mutex<Vec<Weak<BatchSequence>>>,
    shared: Option<Arc<BatchSequence>>,
    counters: Mutex<CountersOfAll>,
    batches: AtomicU64,
}

/// Counters of each client, and the sums of dropped clients.
#[derive(Default)]
struct CountersOfAll {
    present: Vec<Arc<Counters>>,
    past: Counters,
    /// Number of clients that were made.
    clients: u32,
}

/// Bytes that SAKER holds.
#[derive(kvdrive_declare::Counters)]
#[counters(state)]
struct Held {
    /// The most bytes that were pending at one time, heads included.
    #[counter(maximum)]
    most_pending_bytes: u64,
    /// Bytes of containers and unanswered batches, heads included.
    pending_bytes: u64,
    /// Bytes of keys and values in the cache.
    cache_bytes: u64,
}

/// Bytes of containers and unanswered batches, heads included, and the most there ever were.
#[derive(Default)]
pub(crate) struct PendingBytes {
    now: Gauge,
    most: Gauge,
}

impl PendingBytes {
    pub(crate) fn add(&self, bytes: u32) {
        let now = self.now.fetch_add(u64::from(bytes), Relaxed) + u64::from(bytes);
        if now > self.most.load(Relaxed) {
            self.most.fetch_max(now, Relaxed);
        }
    }

    pub(crate) fn sub(&self, bytes: u32) {
        self.now.fetch_sub(u64::from(bytes), Relaxed);
    }
}

impl Saker {
    /// SAKER with these settings. A drive that takes no batches needs `batch` = 1.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn new(config: SakerConfig) -> Result<Arc<Saker>, SakerConfigError> {
        config.check()?;
        let shared = (config.containers == Containers::Shared).then(Arc::<BatchSequence>::default);
        let saker = Saker {
            table: PendingTable::new(config.buckets),
            cache: cache::new(&config.cache),
            pending: PendingBytes::default(),
            remembered: Remembered::default(),
            orphans: Mutex::default(),
            has_orphans: AtomicBool::new(false),
            sequences: Mutex::new(shared.iter().map(Arc::downgrade).collect()),
            shared,
            counters: Mutex::default(),
            batches: AtomicU64::new(0),
            config,
        };
        Ok(Arc::new(saker))
    }

    /// Adds a client: its number, its sequence and its counters.
    pub(crate) fn enlist(&self) -> (ClientId, Arc<BatchSequence>, Arc<Counters>) {
        let counters = Arc::<Counters>::default();
        let mut all = lock(&self.counters);
        let id = ClientId(all.clients);
        all.clients += 1;
        all.present.push(counters.clone());
        drop(all);
        let sequence = self.shared.clone().unwrap_or_else(|| {
            let sequence = Arc::<BatchSequence>::default();
            let mut sequences = lock(&self.sequences);
            sequences.retain(|sequence| sequence.strong_count() > 0);
            sequences.push(Arc::downgrade(&sequence));
            sequence
        });
        (id, sequence, counters)
    }

    /// Notes that a write of `key` that did not go through SAKER has been answered: the key leaves the cache,
    /// a retrieve under way does not enter the cache, and transactions that have read the key end in a
    /// conflict.
    pub fn written_elsewhere(&self, key: &Key) {
        let mut bucket = self.table.bucket(key);
        bucket.writes += 1;
        if let Some(cache) = &self.cache {
            cache.remove(key);
        }
    }

    /// The settings.
    pub fn config(&self) -> &SakerConfig {
        &self.config
    }

    /// A count over all clients, also dropped ones.
    pub fn count(&self, count: Count) -> u64 {
        self.sums().get(count as usize)
    }

    fn sums(&self) -> Counters {
        let (all, sums) = (lock(&self.counters), Counters::default());
        sums.add_all(&all.past);
        all.present.iter().for_each(|counters| sums.add_all(counters));
        sums
    }

    /// Ends a client: its counts are kept.
    pub(crate) fn part_with(&self, counters: &Arc<Counters>) {
        let mut all = lock(&self.counters);
        all.present.retain(|other| !Arc::ptr_eq(other, counters));
        all.past.add_all(counters);
    }

    /// Every count, and the bytes that SAKER holds.
    pub fn counts(&self) -> Counts {
        let (sums, mut counts) = (self.sums(), Counts::default());
        for (place, counter) in Count::COUNTERS.iter().enumerate() {
            counts.put(counter, &sums.get(place));
        }
        counts.and(&Held {
            most_pending_bytes: self.most_pending_bytes(),
            pending_bytes: self.pending_bytes(),
            cache_bytes: self.cache_bytes(),
        })
    }

    /// Most bytes that were pending at a time: containers and unanswered batches, heads included.
    pub fn most_pending_bytes(&self) -> u64 {
        self.pending.most.load(Relaxed)
    }

    /// Bytes pending now.
    pub fn pending_bytes(&self) -> u64 {
        self.pending.now.load(Relaxed)
    }

    /// Bytes of keys and values in the cache.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.bytes())
    }

    pub(crate) fn is_adaptive(&self) -> bool {
        self.config.batch == BatchSize::Adaptive
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn sequences(&self) -> Vec<Arc<BatchSequence>> {
        lock(&self.sequences).iter().filter_map(Weak::upgrade).collect()
    }

    /// Leaves batches to the next client that asks for one.
    pub(crate) fn leave(&self, batches: impl Iterator<Item = Arc<Batch>>) {
        let mut orphans = lock(&self.orphans);
        orphans.extend(batches);
        self.has_orphans.store(!orphans.is_empty(), Ordering::SeqCst);
    }

    /// Takes the batches that dropped clients have left.
    pub(crate) fn adopt(&self) -> Vec<Arc<Batch>> {
        if !self.has_orphans.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut orphans = lock(&self.orphans);
        self.has_orphans.store(false, Ordering::SeqCst);
        std::mem::take(&mut *orphans)
    }
}
