//! Several clients, interleaved by a seed, in front of a drive that applies and answers commands under way in
//! any order. A map says what each read may return; power is cut at every event, and the drive's pairs are
//! then compared with the synced ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Key, StoreOptions};
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_saker::counters::Count;
use kvdrive_saker::range::Merged;
use kvdrive_saker::{BatchSize, Client, Containers, NoSteps, Question, Read, SakerConfig, Sync, Write};
use kvdrive_sim::Rng;

use crate::drive::{Drive, key, saker};

const KEYS: u64 = 24;

/// A client's call in progress.
enum Doing {
    Nothing,
    Write(Key, Option<Vec<u8>>),
    /// A bypass that is under way.
    Bypass(Arc<kvdrive_saker::Batch>, Key),
    /// A question, with the number of versions that the key had when the read began.
    Read(Key, Question, usize),
    /// A sync, with the client's last version of each key when it began.
    Sync(BTreeMap<Key, usize>),
}

struct Rig {
    clients: Vec<(Client, Doing)>,
    drive: Drive,
    rng: Rng,
    /// Versions of each key in the order in which they entered; the first one is "never written".
    versions: BTreeMap<Key, Vec<Option<Vec<u8>>>>,
    /// The last version of each key that each client wrote; and the last one, of any client, that is known to
    /// be durable.
    written: Vec<BTreeMap<Key, usize>>,
    durable: BTreeMap<Key, usize>,
    values: u64,
    /// Ranges that were read to their end.
    ranges: u64,
}

impl Rig {
    fn new(seed: u64) -> Rig {
        let mut rng = Rng::stream(seed, "oracle");
        let mut pick = |of: &[u32]| of[rng.below(of.len() as u64) as usize];
        let batch = match pick(&[1, 2, 3, 8, 64, 0]) {
            0 => BatchSize::Adaptive,
            requests => BatchSize::Fixed(requests),
        };
        let containers = if pick(&[0, 0, 1]) == 1 { Containers::Shared } else { Containers::Own };
        let mut config = SakerConfig {
            batch,
            containers,
            container_bytes: pick(&[100, 300, 4096]),
            ..SakerConfig::default()
        };
        config.in_flight = pick(&[1, 2, 5, 32]);
        config.buckets = pick(&[1, 4, 64]);
        config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
        config.cache.bytes = u64::from(pick(&[0, 300, 10_000]));
        config.cache.admit_bytes = pick(&[20, 60, 1024]);
        let evictions: Vec<u32> = (0..EVICTIONS.len() as u32).collect();
        config.cache.eviction = EVICTIONS[pick(&evictions) as usize].name.into();
        let clients = pick(&[1, 2, 3, 5]);
        let saker = saker(config);
        let versions = (0..KEYS).map(|number| (key(number), vec![None])).collect();
        Rig {
            clients: (0..clients).map(|_| (saker.client(), Doing::Nothing)).collect(),
            drive: Drive::default(),
            rng,
            versions,
            written: vec![BTreeMap::new(); clients as usize],
            durable: BTreeMap::new(),
            values: 0,
            ranges: 0,
        }
    }

    fn newest(&self, key: &Key) -> usize {
        self.versions[key].len() - 1
    }

    /// Notes that a write of client `who` has entered.
    fn entered(&mut self, who: usize, key: Key, value: Option<Vec<u8>>) {
        self.versions.get_mut(&key).unwrap().push(value);
        let newest = self.newest(&key);
        self.written[who].insert(key, newest);
    }

    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let bytes = [0, 8, 30, 90, 290, 5000][self.rng.below(6) as usize];
        let mut value = self.values.to_le_bytes().to_vec();
        value.resize(value.len() + bytes, 7);
        value
    }

    fn step_client(&mut self, who: usize) {
        let doing = std::mem::replace(&mut self.clients[who].1, Doing::Nothing);
        let next = match doing {
            Doing::Nothing => self.begin(who),
            Doing::Write(key, value) => self.write(who, key, value),
            Doing::Bypass(batch, _) if batch.is_answered() => Doing::Nothing,
            Doing::Bypass(batch, key) => Doing::Bypass(batch, key),
            Doing::Read(key, ask, from) => self.asked(who, key, ask, from),
            Doing::Sync(written) => self.sync(who, written),
        };
        self.clients[who].1 = next;
        self.drive.take(&mut self.clients[who].0);
    }

    fn begin(&mut self, who: usize) -> Doing {
        let key = key(self.rng.below(KEYS));
        match self.rng.below(12) {
            0..5 => {
                let value = self.value();
                self.write(who, key, Some(value))
            }
            5 => self.write(who, key, None),
            6..10 => self.read(who, key),
            10 => self.exist(who, key),
            _ => self.sync(who, self.written[who].clone()),
        }
    }

    fn write(&mut self, who: usize, key: Key, value: Option<Vec<u8>>) -> Doing {
        let client = &mut self.clients[who].0;
        let write = match &value {
            Some(value) => client.store(key, Piece::Bytes(value), StoreOptions::default(), &mut NoSteps),
            None => client.delete(key, &mut NoSteps),
        };
        match write {
            Write::Buffered => self.entered(who, key, value),
            Write::Wait(batch) => {
                assert!(!batch.is_answered());
                return Doing::Write(key, value);
            }
            Write::Bypass(batch) => {
                self.drive.submit_requests(batch.clone(), vec![(key, value.clone())]);
                // The caller gets its answer, so no sync waits for it.
                let before = self.written[who].get(&key).copied();
                self.entered(who, key, value);
                match before {
                    Some(before) => self.written[who].insert(key, before),
                    None => self.written[who].remove(&key),
                };
                return Doing::Bypass(batch, key);
            }
            Write::Refused(status) => panic!("{status}"),
        }
        Doing::Nothing
    }

    fn read(&mut self, who: usize, key: Key) -> Doing {
        let mut into = Region::new();
        let newest = &self.versions[&key][self.newest(&key)];
        match self.clients[who].0.retrieve(key, &mut into, &mut NoSteps) {
            Read::Found(bytes) => assert_eq!(Some(into.to_bytes(bytes)), *newest, "{key}"),
            Read::Missing => assert_eq!(*newest, None, "{key}"),
            Read::Ask(ask) => return Doing::Read(key, ask, self.newest(&key)),
            Read::Wait(batch) => assert!(batch.is_bypass()),
        }
        Doing::Nothing
    }

    fn exist(&mut self, who: usize, key: Key) -> Doing {
        let newest = &self.versions[&key][self.newest(&key)];
        match self.clients[who].0.exist(key, &mut NoSteps) {
            Read::Found(_) => assert!(newest.is_some(), "{key}"),
            Read::Missing => assert_eq!(*newest, None, "{key}"),
            Read::Ask(_) => assert_eq!(self.drive.pairs.contains_key(&key), newest.is_some(), "{key}"),
            Read::Wait(batch) => assert!(batch.is_bypass()),
        }
        Doing::Nothing
    }

    /// The drive answers a retrieve with the newest version at the time of the question, or a later one.
    fn asked(&mut self, who: usize, key: Key, ask: Question, from: usize) -> Doing {
        let found = self.drive.pairs.get(&key).cloned();
        let allowed = &self.versions[&key][from..];
        assert!(allowed.contains(&found), "{key}: {found:?} is none of {allowed:?}");
        if let Some(value) = found {
            let bytes = value.len() as u32;
            self.clients[who].0.fill(ask, &Region::from_bytes(value), bytes, &mut NoSteps);
        }
        Doing::Nothing
    }

    fn sync(&mut self, who: usize, written: BTreeMap<Key, usize>) -> Doing {
        match self.clients[who].0.sync(&mut NoSteps) {
            Sync::Wait(batch) => {
                assert!(!batch.is_answered());
                Doing::Sync(written)
            }
            Sync::Done(failures) => {
                assert_eq!(failures, []);
                for (key, version) in written {
                    let durable = self.durable.entry(key).or_default();
                    *durable = version.max(*durable);
                }
                Doing::Nothing
            }
        }
    }

    fn step_drive(&mut self) {
        let under_way = self.drive.under_way.len() as u64;
        if under_way == 0 {
            return;
        }
        let at = self.rng.below(under_way) as usize;
        if self.rng.one_in(2) {
            self.drive.apply(at);
        } else {
            let who = self.rng.below(self.clients.len() as u64) as usize;
            self.drive.answer(at, &mut self.clients[who].0);
            self.drive.take(&mut self.clients[who].0);
        }
    }

    /// The drive after a power cut: synced versions or later ones, and no value that was never written.
    fn check_survivors(&self) {
        for (key, versions) in &self.versions {
            let from = self.durable.get(key).copied().unwrap_or(0);
            let found = self.drive.pairs.get(key).cloned();
            assert!(
                versions[from..].contains(&found),
                "{key}: the drive has {found:?}, synced was version {from} of {versions:?}"
            );
        }
    }

    /// Client `who` reads a range while the others continue: its result is the state that is readable at its
    /// end.
    fn range(&mut self, who: usize) {
        let range = self.clients[who].0.begin_range();
        self.step_others(who);
        let mut cursor = self.drive.pairs.clone().into_iter().peekable();
        self.step_others(who);
        let start = key(self.rng.below(KEYS));
        let Some(mut view) = self.clients[who].0.view(range, Some(start), &mut NoSteps) else { return };
        while cursor.next_if(|(key, _)| *key < start).is_some() {}
        let mut found = BTreeMap::new();
        loop {
            let at = cursor.peek().map(|(key, _)| *key);
            match view.merge(at) {
                Merged::Here(key, value) => {
                    cursor.next_if(|(other, _)| *other == key);
                    let mut bytes = vec![0; value.piece().bytes() as usize];
                    value.piece().expand(&mut bytes);
                    found.insert(key, bytes);
                }
                Merged::Drive => found.extend(cursor.next()),
                Merged::Deleted => drop(cursor.next()),
                Merged::End => break,
            }
        }
        self.ranges += 1;
        for (key, versions) in self.versions.range(start..) {
            // A bypass that is under way may be visible or not.
            let is_alone = |doing: &Doing| matches!(doing, Doing::Bypass(batch, of) if of == key && !batch.is_answered());
            let open = self.clients.iter().any(|(_, doing)| is_alone(doing));
            let allowed = &versions[versions.len() - 1 - usize::from(open)..];
            assert!(
                allowed.contains(&found.get(key).cloned()),
                "{key}: {:?}, not {allowed:?}",
                found.get(key)
            );
        }
    }

    fn step_others(&mut self, who: usize) {
        for _ in 0..self.rng.below(12) {
            let other = self.rng.below(self.clients.len() as u64) as usize;
            if other != who {
                self.step_client(other);
            }
            self.step_drive();
        }
    }

    fn finish(&mut self) {
        let is_busy = |rig: &Rig| rig.clients.iter().any(|(_, doing)| !matches!(doing, Doing::Nothing));
        let mut turns = 0;
        while is_busy(self) {
            let who = turns % self.clients.len();
            let doing = &self.clients[who].1;
            turns += 1;
            assert!(turns < 100_000, "a client waits for ever");
            if !matches!(doing, Doing::Nothing) {
                self.step_client(who);
            }
            self.step_drive();
        }
        for who in 0..self.clients.len() {
            while !matches!(self.sync(who, self.written[who].clone()), Doing::Nothing) {
                self.drive.take(&mut self.clients[who].0);
                assert!(!self.drive.under_way.is_empty(), "a client waits, and nothing is under way");
                self.step_drive();
            }
        }
        for (key, versions) in &self.versions {
            assert_eq!(self.drive.pairs.get(key), versions.last().unwrap().as_ref(), "{key}");
        }
        let saker = self.clients[0].0.saker();
        assert_eq!(saker.pending_bytes(), 0);
        let sequences =
            if saker.config().containers == Containers::Own { self.clients.len() as u64 } else { 1 };
        let most =
            sequences * u64::from(saker.config().in_flight + 1) * u64::from(saker.config().container_bytes);
        assert!(saker.most_pending_bytes() <= most, "{} of {most} bytes", saker.most_pending_bytes());
    }
}

#[test]
fn clients_in_any_order_over_a_drive_in_any_order() {
    let (mut held, mut by_order, mut lost, mut ranges) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut rig = Rig::new(seed);
        // Some drives are slow, so that many writes are pending.
        let of_drive = [1, 3, 8][rig.rng.below(3) as usize];
        for _ in 0..600 {
            let who = rig.rng.below(rig.clients.len() as u64) as usize;
            if rig.rng.one_in(of_drive) {
                rig.step_drive();
            } else {
                rig.step_client(who);
            }
            if rig.rng.one_in(20) {
                rig.range(who);
            }
            rig.check_survivors();
        }
        rig.finish();
        let saker = rig.clients[0].0.saker();
        held += saker.count(Count::Held);
        by_order += saker.count(Count::ClosedByOrder);
        lost += saker.count(Count::LostFills);
        ranges += rig.ranges;
    }
    assert!(ranges > 5000, "{ranges} ranges");
    assert!(
        held > 500 && by_order > 500 && lost > 100,
        "{held} held, {by_order} by order, {lost} lost fills"
    );
}
