//! SAKER's own steps: the code of crate `saker` with a drive that answers at once and takes no time.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::{
    Batch, BatchSize, CacheConfig, Charge, Client, Read, Saker, SakerConfig, Step, Steps as Reported, Sync,
    Write,
};

use super::exercise::{Exercise, KEY_BYTES, Sample, Steps, WorkingSet, key_of, random_keys};

/// Keys of the costs that are found here.
#[cfg(test)]
pub(super) const KEYS: [&str; 7] = [BUCKET, APPEND, CLOSE, PROBE, INSERT, EVICT, COPY];

const BUCKET: &str = "saker.bucket_ns";
const APPEND: &str = "saker.append_ns";
const CLOSE: &str = "saker.close_ns";
pub(super) const PROBE: &str = "saker.cache_probe_ns";
pub(super) const INSERT: &str = "saker.cache_insert_ns";
pub(super) const EVICT: &str = "saker.cache_evict_ns";
pub(super) const COPY: &str = "saker.copy_ns_per_kib";

/// Requests of a full batch, as in the paper.
const BATCH: u32 = 64;
/// Batches that are pending while the table is searched: the most that a client may have under way.
const PENDING_BATCHES: u64 = 31;
/// Bytes of a value that is large enough for its copying to be measurable.
const LONG_BYTES: u32 = 1024;
/// Pairs whose values are copied: so few that the machine's caches hold both the short and the long values.
const COPIED_PAIRS: u64 = 256;

/// Steps that were reported.
#[derive(Default)]
struct Tally {
    bucket: u64,
    append: u64,
    close: u64,
    probe: u64,
    insert: u64,
    evict: u64,
    copied_bytes: u64,
}

impl Reported for Tally {
    #[inline]
    fn step(&mut self, step: Step) {
        let (count, times, bytes) = match step {
            Step::Bucket => (&mut self.bucket, 1, 0),
            Step::Append { bytes } => (&mut self.append, 1, bytes),
            Step::Close => (&mut self.close, 1, 0),
            Step::Unpack { bytes } => (&mut self.bucket, 0, bytes),
            Step::CacheProbe { bytes } => (&mut self.probe, 1, bytes),
            Step::CacheInsert { bytes } => (&mut self.insert, 1, bytes),
            Step::CacheEvict { pairs } => (&mut self.evict, pairs, 0),
        };
        *count += u64::from(times);
        self.copied_bytes += u64::from(bytes);
    }
}

impl Tally {
    fn take(&mut self) -> Steps {
        let Tally { bucket, append, close, probe, insert, evict, copied_bytes } = std::mem::take(self);
        let counts = [
            (BUCKET, bucket),
            (APPEND, append),
            (CLOSE, close),
            (PROBE, probe),
            (INSERT, insert),
            (EVICT, evict),
        ];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let copied = (copied_bytes > 0).then_some((COPY, copied_bytes as f64 / 1024.0));
        counts.map(|(step, count)| (step, count as f64)).chain(copied).collect()
    }
}

/// A client and its drive.
struct Rig {
    client: Client,
    tally: Tally,
    into: Region,
    value: Vec<u8>,
}

impl Rig {
    fn new(batch: u32, cache_bytes: u64, value_bytes: u32) -> Rig {
        let cache = CacheConfig {
            bytes: cache_bytes,
            charge: Charge::Content { beside: 0 },
            admit_bytes: u32::MAX,
            ..SakerConfig::default().cache
        };
        let config = SakerConfig { batch: BatchSize::Fixed(batch), cache, ..SakerConfig::default() };
        let saker = Saker::new(config).expect("these settings can be");
        let value = vec![7; value_bytes as usize];
        Rig { client: saker.client(), tally: Tally::default(), into: Region::new(), value }
    }

    /// A rig whose cache holds `pairs` pairs, and one more.
    fn with_cache(pairs: u64, value_bytes: u32) -> Rig {
        Rig::new(BATCH, (pairs + 1) * (KEY_BYTES + u64::from(value_bytes)), value_bytes)
    }

    /// Stores a pair; `answer`: the drive answers the batches that this sends.
    fn store(&mut self, key: Key, answer: bool) {
        let written =
            self.client.store(key, Piece::Bytes(&self.value), StoreOptions::default(), &mut self.tally);
        assert!(matches!(written, Write::Buffered), "{written:?}");
        if answer {
            self.answer();
        }
    }

    fn answer(&mut self) {
        while let Some(batch) = self.client.next_batch() {
            self.complete(&batch);
        }
    }

    fn complete(&mut self, batch: &Arc<Batch>) {
        let requests = batch.requests().len() as u32;
        self.client.complete(batch, Status::SUCCESS, requests, &mut self.tally);
    }

    /// Retrieves a pair from the cache, or brings it into the cache.
    fn retrieve(&mut self, key: Key) {
        match self.client.retrieve(key, &mut self.into, &mut self.tally) {
            Read::Found(_) => {}
            Read::Ask(ask) => {
                self.into.clear();
                self.into.write(0, Piece::Bytes(&self.value));
                self.client.fill(ask, &self.into, self.value.len() as u32, &mut self.tally);
            }
            other => panic!("nothing is pending: {other:?}"),
        }
    }

    /// Removes pairs from the cache again, and leaves no write pending.
    fn forget(&mut self, keys: &[Key]) {
        for key in keys {
            let written = self.client.delete(*key, &mut self.tally);
            assert!(matches!(written, Write::Buffered), "{written:?}");
            self.answer();
        }
        while matches!(self.client.sync(&mut self.tally), Sync::Wait(_)) {
            self.answer();
        }
    }

    fn sample(&mut self, keys: &[Key], mut call: impl FnMut(&mut Rig, Key)) -> Sample {
        self.tally.take();
        let mut sample = Sample::of(keys.len() as u64, |at| call(self, keys[at as usize]), Steps::new);
        sample.steps = self.tally.take();
        sample.steps.values_mut().for_each(|count| *count /= keys.len() as f64);
        sample
    }
}

/// Time of a copied byte: hits of long values compared with hits of short ones.
pub(super) fn copies(set: &WorkingSet) -> Vec<Exercise> {
    let keys = random_keys(set.calls(), 0, COPIED_PAIRS);
    let mut rigs = [LONG_BYTES, 16].map(|bytes| Rig::with_cache(COPIED_PAIRS, bytes));
    let working_set = format!("cached values of {LONG_BYTES} B against 16 B, {COPIED_PAIRS} pairs");
    let repeat = move || {
        let [long, short] = rigs.each_mut().map(|rig| rig.sample(&keys, Rig::retrieve));
        let mut more = long.minus(&short);
        // All calls are hits except in the first round, whose misses would leave other steps in the
        // difference.
        more.steps.retain(|step, _| *step == COPY);
        more
    };
    vec![Exercise::new(COPY, working_set, repeat)]
}

/// Pending table and containers.
pub(super) fn buffer(set: &WorkingSet) -> Vec<Exercise> {
    let pairs = set.pairs;
    let mut searched = Rig::new(BATCH, 0, 16);
    for number in 0..PENDING_BATCHES * u64::from(BATCH) {
        searched.store(key_of(number), false);
    }
    let absent = random_keys(set.calls(), pairs.max(1 << 20), 2 * pairs.max(1 << 20));
    let pending = PENDING_BATCHES * u64::from(BATCH);
    let bucket = Exercise::new(BUCKET, format!("{pending} writes pending"), move || {
        searched.sample(&absent, |rig, key| {
            let read = rig.client.exist(key, &mut rig.tally);
            assert!(matches!(read, Read::Ask(_)), "{read:?}");
        })
    });
    let keys = random_keys(set.calls(), 0, pairs);
    let stored = move |batch: u32, value_bytes: u32| {
        let (mut rig, keys) = (Rig::new(batch, 0, value_bytes), keys.clone());
        move || rig.sample(&keys, |rig, key| rig.store(key, true))
    };
    let value_bytes = set.value_bytes.min(LONG_BYTES);
    let (mut pairwise, mut full) = (stored(2, value_bytes), stored(BATCH, value_bytes));
    let close =
        Exercise::new(CLOSE, format!("stores of {value_bytes} B, batches of 2 against {BATCH}"), move || {
            let mut more = pairwise().minus(&full());
            more.steps.retain(|step, _| *step == CLOSE);
            more
        });
    let full = stored(BATCH, value_bytes);
    let append = Exercise::new(APPEND, format!("stores of {value_bytes} B, batches of {BATCH}"), full);
    vec![bucket, close, append]
}

/// The cache: hits, fills into free room, and fills that evict.
pub(super) fn cache(set: &WorkingSet) -> Vec<Exercise> {
    let (pairs, calls, value_bytes) = (set.pairs, set.calls(), set.value_bytes);
    let filled = |room: u64| {
        let mut rig = Rig::with_cache(pairs + room, value_bytes);
        (0..pairs).for_each(|number| rig.retrieve(key_of(number)));
        rig
    };
    let working_set = |what| set.describe(pairs, what);
    let (mut rig, keys) = (filled(0), random_keys(calls, 0, pairs));
    let hit =
        Exercise::new(PROBE, working_set("in the cache, hits"), move || rig.sample(&keys, Rig::retrieve));
    let fresh = move |round: u64| -> Vec<Key> {
        (0..calls).map(|at| key_of((1 << 40) + round * calls + at)).collect()
    };
    let (mut rig, keys) = (filled(calls), fresh(0));
    let insert = Exercise::new(INSERT, working_set("in the cache, fills of free room"), move || {
        let sample = rig.sample(&keys, Rig::retrieve);
        rig.forget(&keys);
        sample
    });
    let (mut rig, mut round) = (filled(0), 0);
    let evict = Exercise::new(EVICT, working_set("in the cache, fills that evict"), move || {
        round += 1;
        rig.sample(&fresh(round), Rig::retrieve)
    });
    vec![hit, insert, evict]
}
