//! Exact counts: how many requests fit, the bytes of each structured value, the cost of a store on the link.

use kvdrive_content::{Pattern, Piece};
use kvdrive_nvme::inline::{chunks_for, commands_for};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_saker::counters::Count;
use kvdrive_saker::{BatchSize, Client, Containers, NoSteps, Payload, SakerConfig, Step, Steps, Write};

use crate::drive::{Drive, key, put, saker, sync_done};

const STORES: u64 = 64_000;

/// One batch or bypass: its requests, and the bytes of its command's value.
type Command = (u32, u32);

/// Stores `STORES` pairs of patterns by one client, in the order of their keys; returns the commands that the
/// link would carry.
fn fillseq(value_bytes: u32, sync_every: u64) -> Vec<Command> {
    let saker = saker(SakerConfig::default());
    let mut client = saker.client();
    let mut commands = Vec::new();
    let mut under_way = Vec::new();
    let mut send = |client: &mut Client, under_way: &mut Vec<_>| {
        while let Some(batch) = client.next_batch() {
            commands.push(match batch.payload() {
                Payload::Store { bytes, .. } => (1, bytes),
                Payload::Delete { .. } => panic!("there are no deletes"),
                Payload::Batch { bytes, requests, .. } => (requests, bytes),
            });
            // Patterns are carried, not expanded: only heads and keys are literal bytes.
            let patterns = batch.content().patterns().len();
            assert_eq!(patterns as u32, commands.last().unwrap().0);
            under_way.push(batch);
            assert!(under_way.len() <= 32, "more than in_flight under way");
        }
    };
    let mut bypassed = Vec::new();
    let answer =
        |client: &mut Client, batch| client.complete(&batch, Status::SUCCESS, u32::MAX, &mut NoSteps);
    for number in 0..STORES {
        let key = key(number);
        let value = Piece::Pattern(Pattern::of_value(&key, 1, value_bytes));
        loop {
            let write = client.store(key, value, StoreOptions::default(), &mut NoSteps);
            send(&mut client, &mut under_way);
            match write {
                Write::Buffered => break,
                Write::Bypass(batch) => {
                    bypassed.push((1, value_bytes));
                    answer(&mut client, batch);
                    break;
                }
                Write::Wait(_) => answer(&mut client, under_way.remove(0)),
                Write::Refused(status) => panic!("{status}"),
            }
        }
        if sync_every > 0 && (number + 1) % sync_every == 0 {
            sync(&mut client, &mut under_way, &mut send);
        }
    }
    sync(&mut client, &mut under_way, &mut send);
    let most = u64::from(saker.config().in_flight + 1) * u64::from(saker.config().container_bytes);
    assert!(saker.most_pending_bytes() <= most, "{} bytes pending", saker.most_pending_bytes());
    assert_eq!(saker.pending_bytes(), 0);
    assert_eq!(saker.count(Count::Batches), commands.len() as u64);
    assert_eq!(saker.count(Count::Requests) + saker.count(Count::Bypassed), STORES);
    commands.extend(bypassed);
    commands
}

fn sync(
    client: &mut Client,
    under_way: &mut Vec<std::sync::Arc<kvdrive_saker::Batch>>,
    send: &mut impl FnMut(&mut Client, &mut Vec<std::sync::Arc<kvdrive_saker::Batch>>),
) {
    while let kvdrive_saker::Sync::Wait(_) = client.sync(&mut NoSteps) {
        send(client, under_way);
        let batch = under_way.remove(0);
        client.complete(&batch, Status::SUCCESS, u32::MAX, &mut NoSteps);
    }
}

/// Payload bytes a store, as the papers count them: 64 + 16 + 2 x 4 B a command.
fn per_store(commands: &[Command], data: impl Fn(u32) -> u32) -> f64 {
    let bytes: u64 = commands.iter().map(|&(_, bytes)| u64::from(data(bytes))).sum();
    bytes as f64 / STORES as f64
}

fn by_prp(bytes: u32) -> u32 {
    88 + bytes.div_ceil(4096) * 4096
}

#[test]
fn payload_of_a_store_follows_from_what_fits() {
    // Value bytes, requests of a full batch, its bytes, requests of the last one, payload bytes a store by
    // PRP.
    let table = [
        (16, 64, 16 + 64 * 32, 64, 65.375),
        (64, 51, 16 + 51 * 80, 46, 82.045625),
        (256, 15, 16 + 15 * 272, 10, 278.955125),
        (1024, 3, 16 + 3 * 1040, 1, 1394.71025),
        (4096, 1, 4096, 1, 4184.0),
    ];
    for (value_bytes, requests, bytes, last, payload) in table {
        let commands = fillseq(value_bytes, 0);
        let (full, rest) = commands.split_at(commands.len() - 1);
        assert!(full.iter().all(|command| *command == (requests, bytes)), "{value_bytes} B: {:?}", full[0]);
        assert_eq!(rest[0].0, last, "{value_bytes} B");
        assert_eq!(commands.iter().map(|command| u64::from(command.0)).sum::<u64>(), STORES);
        assert_eq!(per_store(&commands, by_prp), payload, "{value_bytes} B");
    }
}

#[test]
fn payload_by_the_other_methods() {
    let commands = fillseq(16, 0);
    assert_eq!(per_store(&commands, |bytes| 88 + bytes), 33.625, "sgl, granularity 1");
    assert_eq!(per_store(&commands, |bytes| 88 + 64 * chunks_for(bytes)), 34.375, "byte-express");
    assert_eq!(per_store(&commands, |bytes| 88 * commands_for(bytes)), 52.25, "piggyback");
    let synced = fillseq(16, 10);
    assert!(synced.iter().all(|command| *command == (10, 16 + 10 * 32)));
    assert_eq!(per_store(&synced, by_prp), 418.4);
}

/// With a batch size of 1 all stores are plain, and at most `in_flight` are under way.
#[test]
fn without_batches_every_store_is_plain() {
    let saker = saker(SakerConfig { batch: BatchSize::Fixed(1), in_flight: 4, ..SakerConfig::default() });
    let (mut client, mut drive) = (saker.client(), Drive::default());
    for number in 0..4 {
        put(&mut client, number, &[number as u8; 30]);
        assert_eq!(drive.take(&mut client), 1);
    }
    let write = client.store(key(4), Piece::Bytes(b"5"), StoreOptions::default(), &mut NoSteps);
    assert!(matches!(write, Write::Wait(batch) if drive.position(&batch) == Some(0)));
    assert_eq!(drive.take(&mut client), 0);
    for sent in &drive.under_way {
        assert!(matches!(sent.batch.payload(), Payload::Store { bytes: 30, .. }));
    }
    drive.answer(2, &mut client);
    put(&mut client, 4, b"5");
    drive.answer_all(&mut client);
    assert_eq!(sync_done(&mut client), []);
    assert_eq!((saker.count(Count::Batches), saker.count(Count::Singles)), (5, 5));
    assert_eq!(drive.pairs.len(), 5);
}

/// A container is sent when no batch is under way, or else when the last one is answered.
#[test]
fn adaptive_batches_grow_with_the_load() {
    let saker = saker(SakerConfig { batch: BatchSize::Adaptive, ..SakerConfig::default() });
    let (mut client, mut drive) = (saker.client(), Drive::default());
    put(&mut client, 1, b"a");
    assert_eq!(drive.take(&mut client), 1, "nothing was under way");
    for number in 2..102 {
        put(&mut client, number, b"b");
    }
    assert_eq!(drive.take(&mut client), 0, "not full, and one is under way");
    drive.answer(0, &mut client);
    assert_eq!(drive.take(&mut client), 1);
    assert_eq!(drive.under_way[0].batch.requests().len(), 100);
    // 240 requests of 17 bytes fit.
    (0..300).for_each(|number| put(&mut client, 200 + number, b"c"));
    assert_eq!(drive.take(&mut client), 1, "full");
    assert_eq!(drive.under_way[1].batch.requests().len(), (4096 - 16) / 17);
    drive.answer(0, &mut client);
    assert_eq!(drive.take(&mut client), 0, "one is still under way");
    drive.answer_all(&mut client);
    assert_eq!(drive.pairs.len(), 401);
    assert_eq!(saker.count(Count::ClosedByIdle), 3);
}

/// The test's time, and the steps that were reported.
#[derive(Default)]
struct Told {
    now_ns: u64,
    steps: Vec<Step>,
}

impl Steps for Told {
    fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

#[test]
fn what_is_old_enough_goes() {
    let saker = saker(SakerConfig { max_age_ns: 1000, ..SakerConfig::default() });
    let (mut client, mut other, mut drive) = (saker.client(), saker.client(), Drive::default());
    let mut told = Told { now_ns: 500, ..Told::default() };
    assert_eq!(other.send_overdue(&mut told), None);
    for (now_ns, number) in [(500, 1), (1400, 2)] {
        told.now_ns = now_ns;
        let _ = client.store(key(number), Piece::Bytes(b"v"), StoreOptions::default(), &mut told);
    }
    assert_eq!(other.send_overdue(&mut told), Some(1500), "as old as its first request");
    assert_eq!(drive.take(&mut other), 0);
    told.now_ns = 1500;
    assert_eq!(other.send_overdue(&mut told), None);
    assert_eq!(drive.take(&mut other), 1);
    assert_eq!(saker.count(Count::ClosedByAge), 1);
    drive.answer_all(&mut other);
    assert_eq!(sync_done(&mut client), []);
}

#[test]
fn what_a_dropped_client_leaves_is_counted_and_sent() {
    let saker = saker(SakerConfig::default());
    let (mut client, mut other, mut drive) = (saker.client(), saker.client(), Drive::default());
    put(&mut client, 1, b"v1");
    put(&mut client, 2, b"v2");
    assert_eq!((saker.count(Count::ClosedByDrop), saker.count(Count::Unsynced)), (0, 0));
    drop(client);
    assert_eq!((saker.count(Count::ClosedByDrop), saker.count(Count::Unsynced)), (1, 2));
    assert_eq!(drive.take(&mut other), 1);
    drive.answer_all(&mut other);
    assert_eq!(drive.pairs[&key(2)], b"v2");
}

#[test]
fn every_step_is_told() {
    let mut config = SakerConfig { batch: BatchSize::Fixed(2), ..SakerConfig::default() };
    config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
    config.cache.bytes = 100;
    let saker = saker(config);
    let (mut client, mut told) = (saker.client(), Told::default());
    let steps = |told: &mut Told| std::mem::take(&mut told.steps);
    let mut into = kvdrive_content::Region::new();

    let _ = client.store(key(1), Piece::Bytes(&[1; 30]), StoreOptions::default(), &mut told);
    assert_eq!(steps(&mut told), [Step::Bucket, Step::Append { bytes: 46 }, Step::CacheProbe { bytes: 0 }]);
    let _ = client.retrieve(key(1), &mut into, &mut told);
    assert_eq!(steps(&mut told), [Step::Bucket, Step::Unpack { bytes: 30 }]);
    let _ = client.delete(key(2), &mut told);
    let expected = [Step::Bucket, Step::Append { bytes: 16 }, Step::CacheProbe { bytes: 0 }, Step::Close];
    assert_eq!(steps(&mut told), expected);
    let batch = client.next_batch().unwrap();
    client.complete(&batch, Status::SUCCESS, 2, &mut told);
    assert_eq!(steps(&mut told), [Step::Bucket, Step::Bucket]);
    for (number, expected) in [(3, vec![]), (4, vec![]), (5, vec![Step::CacheEvict { pairs: 1 }])] {
        let kvdrive_saker::Read::Ask(ask) = client.retrieve(key(number), &mut into, &mut told) else {
            panic!("nothing of the key is here");
        };
        assert_eq!(steps(&mut told), [Step::Bucket, Step::CacheProbe { bytes: 0 }]);
        let mut value = kvdrive_content::Region::new();
        value.write(0, Piece::Bytes(&[9; 40]));
        client.fill(ask, &value, 40, &mut told);
        let filled = [vec![Step::Bucket, Step::CacheInsert { bytes: 40 }], expected].concat();
        assert_eq!(steps(&mut told), filled);
    }
    let _ = client.retrieve(key(5), &mut into, &mut told);
    assert_eq!(steps(&mut told), [Step::Bucket, Step::CacheProbe { bytes: 40 }]);
}

/// All clients fill one container: the paper's counter-example. Each client learns only of its own failures.
#[test]
fn a_shared_container() {
    let config =
        SakerConfig { containers: Containers::Shared, batch: BatchSize::Fixed(4), ..SakerConfig::default() };
    let saker = saker(config);
    let (mut a, mut b, mut drive) = (saker.client(), saker.client(), Drive::default());
    put(&mut a, 1, b"a1");
    put(&mut b, 2, b"b2");
    put(&mut b, 1, b"b1");
    put(&mut a, 3, b"a3");
    assert_eq!((drive.take(&mut a), drive.take(&mut b)), (1, 0), "who fills it sends it");
    assert_eq!((a.unsynced(), b.unsynced()), (2, 2));
    drive.fail_after = Some(3);
    drive.answer_all(&mut a);
    assert_eq!(drive.pairs[&key(1)], b"b1");
    assert_eq!(sync_done(&mut b), []);
    let failed = sync_done(&mut a);
    assert_eq!((failed.len(), failed[0].key, failed[0].status), (1, key(3), Status::CAPACITY_EXCEEDED));
    assert_eq!(sync_done(&mut a), [], "said once");
}

#[test]
fn settings_that_cannot_be() {
    let refused =
        |config: SakerConfig| kvdrive_saker::Saker::new(config).err().map(|error| error.to_string());
    let default = SakerConfig::default;
    assert_eq!(refused(default()), None);
    let told = refused(SakerConfig { batch: BatchSize::Fixed(0), ..default() });
    assert_eq!(told.unwrap(), "saker.batch is 0; it may be 1 to 65535");
    assert!(refused(SakerConfig { container_bytes: 39, ..default() }).is_some());
    assert!(refused(SakerConfig { in_flight: 0, ..default() }).is_some());
    let mut config = default();
    config.cache.eviction = "fifo".into();
    let names: Vec<_> = EVICTIONS.iter().map(|row| row.name).collect();
    let there_are = format!("saker.cache_eviction is \"fifo\"; there are {}", names.join(", "));
    assert_eq!(refused(config).unwrap(), there_are);
    let longest = Key::new(&[7; 16]).unwrap();
    let saker = saker(SakerConfig { container_bytes: 40, ..default() });
    let mut client = saker.client();
    assert!(matches!(client.delete(longest, &mut NoSteps), Write::Buffered), "the least container has room");
}
