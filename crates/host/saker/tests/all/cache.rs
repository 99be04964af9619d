//! The read cache, for every eviction policy of the table.

use std::collections::BTreeMap;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_nvme::{Status, StoreOptions};
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_saker::counters::Count;
use kvdrive_saker::{Client, NoSteps, Read, Saker, SakerConfig, Write};
use kvdrive_sim::Rng;

use crate::drive::{Drive, get, key, put, saker};

fn with_cache(eviction: &str, bytes: u64, shards: u32) -> std::sync::Arc<Saker> {
    let mut config = SakerConfig::default();
    config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
    config.cache.bytes = bytes;
    config.cache.eviction = eviction.into();
    config.cache.shards = shards;
    saker(config)
}

/// Retrieves, and fills a miss with `value`; returns whether it was a hit.
fn read(client: &mut Client, number: u64, value: &[u8]) -> bool {
    let mut into = Region::new();
    match client.retrieve(key(number), &mut into, &mut NoSteps) {
        Read::Found(bytes) => {
            assert_eq!(into.to_bytes(bytes), value);
            true
        }
        Read::Ask(ask) => {
            client.fill(ask, &Region::from_bytes(value.to_vec()), value.len() as u32, &mut NoSteps);
            false
        }
        answer => panic!("{answer:?}"),
    }
}

/// Reads and writes at random against a map: a hit is always the newest value, and the bytes keep to the
/// limit.
#[test]
fn every_policy_keeps_the_newest_and_its_bytes() {
    for (row, shards) in EVICTIONS.iter().flat_map(|row| [(row, 1), (row, 4)]) {
        let saker = with_cache(row.name, 4000, shards);
        let (mut client, mut drive) = (saker.client(), Drive::default());
        let mut rng = Rng::stream(7, row.name);
        let mut model = BTreeMap::new();
        let mut hits = 0;
        for step in 0..20_000u64 {
            // A few keys are requested often; all pairs together are five times the cache.
            let among = if rng.one_in(2) { 20 } else { 300 };
            let number = rng.below(among);
            let written = model.get(&number).cloned();
            match (rng.below(10), written) {
                (0, _) | (_, None) => {
                    let value = vec![step as u8; 1 + rng.below(120) as usize];
                    put(&mut client, number, &value);
                    model.insert(number, value);
                    drive.answer_all(&mut client);
                }
                (1, Some(_)) => {
                    assert!(matches!(client.delete(key(number), &mut NoSteps), Write::Buffered));
                    model.remove(&number);
                    assert_eq!(get(&mut client, number), Some(None));
                }
                (_, Some(value)) => hits += u64::from(read(&mut client, number, &value)),
            }
            assert!(saker.cache_bytes() <= 4000, "{} with {} bytes", row.name, saker.cache_bytes());
        }
        let read = |count| saker.count(count);
        assert!(hits > 2000 && read(Count::Evicted) > 100, "{}: {hits} hits", row.name);
        assert_eq!(read(Count::CacheMisses), read(Count::Admitted));
    }
}

/// Two runs with the same calls are equal to the last pair: nothing depends on addresses, threads or time.
#[test]
fn the_same_order_evicts_the_same() {
    for row in EVICTIONS {
        let hits = || {
            let saker = with_cache(row.name, 3000, 1);
            let mut client = saker.client();
            let mut rng = Rng::stream(1, "order");
            (0..5000).filter(|_| read(&mut client, rng.below(100), &[5; 60])).collect::<Vec<i32>>()
        };
        assert_eq!(hits(), hits(), "{}", row.name);
    }
}

#[test]
fn least_recently_used_leaves_first() {
    // Three pairs of 8 + 32 bytes fit.
    let saker = with_cache("lru", 120, 1);
    let mut client = saker.client();
    (1..=3).for_each(|number| assert!(!read(&mut client, number, &[1; 32])));
    assert!(read(&mut client, 1, &[1; 32]));
    assert!(!read(&mut client, 4, &[1; 32]), "2 leaves");
    assert!(read(&mut client, 1, &[1; 32]) && read(&mut client, 3, &[1; 32]));
    assert!(!read(&mut client, 2, &[1; 32]), "4 leaves");
    assert!(!read(&mut client, 4, &[1; 32]));
}

/// Reads these keys in turn; returns the number of hits.
fn scan(client: &mut Client, numbers: std::ops::Range<u64>) -> usize {
    numbers.filter(|&number| read(client, number, &[1; 32])).count()
}

/// A single scan does not evict pairs that are read repeatedly.
#[test]
fn s3_fifo_outlives_a_scan() {
    let hits_after_scan = |eviction: &str| {
        let saker = with_cache(eviction, 4000, 1);
        let mut client = saker.client();
        for _ in 0..20 {
            scan(&mut client, 0..50);
        }
        scan(&mut client, 1000..1200);
        scan(&mut client, 0..50)
    };
    assert_eq!(hits_after_scan("lru"), 0);
    assert!(hits_after_scan("s3-fifo") > 40, "{}", hits_after_scan("s3-fifo"));
}

#[test]
fn what_is_large_or_written_large_stays_out() {
    for row in EVICTIONS {
        let saker = with_cache(row.name, 1 << 20, 1);
        let (mut client, mut drive) = (saker.client(), Drive::default());
        assert!(!read(&mut client, 1, &[1; 1025]));
        assert_eq!((saker.count(Count::Rejected), saker.cache_bytes()), (1, 0));
        assert!(!read(&mut client, 1, &[1; 1024]));
        assert_eq!(saker.cache_bytes(), 8 + 1024);
        // A new version replaces it, a large one and a delete remove it.
        put(&mut client, 1, &[2; 10]);
        assert_eq!(saker.cache_bytes(), 18);
        put(&mut client, 1, &[3; 1025]);
        assert_eq!(saker.cache_bytes(), 0);
        drive.answer_all(&mut client);
        while let kvdrive_saker::Sync::Wait(_) = client.sync(&mut NoSteps) {
            drive.answer_all(&mut client);
        }
        assert!(!read(&mut client, 1, &[3; 20]));
        assert!(matches!(client.delete(key(1), &mut NoSteps), Write::Buffered));
        assert_eq!(saker.cache_bytes(), 0);
        // A bypass, whatever its outcome.
        assert!(!read(&mut client, 2, &[3; 20]));
        let large = vec![4; 5000];
        let store = client.store(key(2), Piece::Bytes(&large), StoreOptions::default(), &mut NoSteps);
        let Write::Bypass(batch) = store else { panic!("{store:?}") };
        assert_eq!(saker.cache_bytes(), 0);
        client.complete(&batch, Status::SUCCESS, 1, &mut NoSteps);
        assert_eq!(get(&mut client, 2), None);
    }
}

/// Patterns are cached as patterns.
#[test]
fn patterns_travel_through() {
    let saker = with_cache("lru", 10_000, 1);
    let mut client = saker.client();
    let pattern = |number| Pattern::of_value(&key(number), 1, 100);
    let patterns = |client: &mut Client, number| {
        let mut into = Region::new();
        let read = client.retrieve(key(number), &mut into, &mut NoSteps);
        assert!(matches!(read, Read::Found(100)), "{read:?}");
        into.patterns().iter().map(|placed| placed.pattern).collect::<Vec<_>>()
    };
    let value = Piece::Pattern(pattern(1));
    assert!(matches!(client.store(key(1), value, StoreOptions::default(), &mut NoSteps), Write::Buffered));
    assert_eq!(patterns(&mut client, 1), [pattern(1)], "from the container");
    let Read::Ask(ask) = client.retrieve(key(2), &mut Region::new(), &mut NoSteps) else {
        panic!("not here")
    };
    let mut value = Region::new();
    value.write(0, Piece::Pattern(pattern(2)));
    client.fill(ask, &value, 100, &mut NoSteps);
    assert_eq!(patterns(&mut client, 2), [pattern(2)], "from the cache");
}
