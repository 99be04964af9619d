//! Keys without values, prefixes, removals that report, parts of values, the namespace, pipelines that are
//! polled or owned, the parts of an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use kvdrive::{Done, Drive, Error, Status};
use kvdrive_device::engines::ENGINES;

fn open(engine: &str) -> Drive {
    // Drives of hash engines have 128 GB, and its empty map alone would take the time of the test.
    let described =
        kvdrive::build().engine(engine).set("flash.blocks_per_die", 64).set("flash.spare_blocks", 0);
    described.open().unwrap_or_else(|error| panic!("{engine}: {error}"))
}

fn keys(drive: &Drive, prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = drive.keys_with_prefix(prefix).unwrap().map(Result::unwrap).collect();
    if !drive.is_ordered() {
        keys.sort();
    }
    keys
}

#[test]
fn keys_and_pairs_with_a_prefix_are_those_of_an_oracle_on_every_engine() {
    for row in ENGINES {
        let drive = open(row.name);
        let mut oracle = BTreeMap::new();
        // More keys than one List brings.
        for index in 0..6_000_u32 {
            let key = format!("{}-{index:05}", ["a", "ab", "b"][index as usize % 3]).into_bytes();
            drive.store(&key, &index.to_be_bytes()).unwrap();
            oracle.insert(key, index.to_be_bytes().to_vec());
        }
        assert_eq!(drive.is_ordered(), row.ordered, "{}", row.name);
        for prefix in [&b""[..], b"a", b"a-", b"ab-00", b"b-05999", b"c", b"\xff"] {
            let expected: Vec<_> = oracle
                .iter()
                .filter(|(key, _)| key.starts_with(prefix))
                .map(|(key, _)| key.clone())
                .collect();
            assert_eq!(keys(&drive, prefix), expected, "{}: {prefix:?}", row.name);
            assert_eq!(drive.count(prefix).unwrap(), expected.len() as u64, "{}: {prefix:?}", row.name);
            let pairs: BTreeMap<_, _> =
                drive.pairs_with_prefix(prefix).unwrap().map(Result::unwrap).collect();
            let expected: BTreeMap<_, _> =
                expected.into_iter().map(|key| (key.clone(), oracle[&key].clone())).collect();
            assert_eq!(pairs, expected, "{}: {prefix:?}", row.name);
        }
        assert!(matches!(drive.keys_with_prefix(&[0; 17]), Err(Error::KeySize(17))));
        // Listing keys holds no iterator of the drive, so there may be any number of listings.
        let many: Vec<_> = (0..200).map(|_| drive.keys().next()).collect();
        assert!(many.iter().all(|first| first == &many[0]));
    }
}

/// Each further List begins at the last key of the one before, which may have been deleted.
#[test]
fn keys_go_on_when_the_last_one_was_deleted_or_say_that_they_cannot() {
    for engine in ["lsm", "plus"] {
        let drive = open(engine);
        (0..12_000_u32).for_each(|index| drive.store(&index.to_be_bytes(), b"").unwrap());
        let mut keys = drive.keys();
        let first = keys.next().unwrap().unwrap();
        (0..12_000_u32).for_each(|index| drive.delete(&index.to_be_bytes()).unwrap());
        drive.store(&[0xFF; 16], b"").unwrap();
        let rest: Result<Vec<_>, _> = keys.collect();
        match (engine, rest) {
            ("lsm", Ok(rest)) => {
                assert_eq!(first, 0_u32.to_be_bytes());
                assert_eq!(rest.last(), Some(&vec![0xFF; 16]));
            }
            ("plus", Err(error)) => assert_eq!(error.status(), Some(Status::ITERATOR_LOST)),
            (_, other) => panic!("{engine}: {other:?}"),
        }
    }
}

#[test]
fn of_several_that_remove_a_pair_one_hears_that_it_was_there() {
    for row in ENGINES {
        let drive = open(row.name);
        assert!(drive.namespace().unwrap().delete_says);
        assert!(!drive.remove(b"none").unwrap(), "{}", row.name);
        (0..200_u32).for_each(|index| drive.store(&index.to_be_bytes(), b"value").unwrap());
        let work = || {
            let client = drive.client().unwrap();
            (0..200_u32).filter(|index| client.remove(&index.to_be_bytes()).unwrap()).count()
        };
        let removed: usize = thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(removed, 200, "{}", row.name);
        assert_eq!(drive.count(b"").unwrap(), 0, "{}", row.name);
        drive.store(b"again", b"").unwrap();
        assert!(drive.remove(b"again").unwrap() && !drive.remove(b"again").unwrap());
    }
}

#[test]
fn a_part_of_a_value_has_the_bytes_of_its_place() {
    for row in ENGINES {
        let drive = open(row.name);
        let value: Vec<u8> = (0..50_000_u32).flat_map(|number| (number as u16).to_be_bytes()).collect();
        drive.store(b"key", &value).unwrap();
        for (at, bytes) in
            [(0, 10), (0, 100_000), (1, 4_096), (99_999, 1), (50_000, 60_000), (100_000, 5), (7, 0)]
        {
            let part = drive.get_part(b"key", at, bytes).unwrap().expect("it is there");
            let end = (at + bytes).min(100_000) as usize;
            assert_eq!(part.bytes, value[at as usize..end], "{}: {at}+{bytes}", row.name);
            assert_eq!(part.value_bytes, 100_000);
        }
        let beyond = drive.get_part(b"key", 100_001, 1).unwrap_err();
        assert_eq!(beyond.status(), Some(Status::INVALID_FIELD), "{}", row.name);
        assert_eq!(drive.get_part(b"none", 0, 1).unwrap(), None);
    }
    let drive = kvdrive::open("cosmos-plus").unwrap();
    drive.store(b"large", &vec![5; 5 << 20]).unwrap();
    let part = drive.get_part(b"large", 1 << 20, u32::MAX).unwrap().unwrap();
    assert_eq!((part.bytes.len(), part.value_bytes), (2 << 20, 5 << 20), "2 MiB cross at most");
}

#[test]
fn a_namespace_says_what_fits_and_what_is_there() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let empty = drive.namespace().unwrap();
    assert!(empty.is_ordered && empty.capacity_bytes > 1 << 30);
    assert_eq!(
        (empty.used_bytes, empty.key_max_bytes, empty.value_max_bytes, empty.keys_max),
        (0, 16, 256 << 20, None)
    );
    (0..100_u32).for_each(|index| drive.store(&index.to_be_bytes(), &[1; 1_000]).unwrap());
    assert_eq!(drive.namespace().unwrap().used_bytes, 100_000);
    assert!(!open("plus").namespace().unwrap().is_ordered);
}

/// A drive in memory takes a part of this machine's, unless its size or its medium is set.
#[test]
fn a_drive_has_the_capacity_that_was_set_or_one_that_fits() {
    let capacity = |drive: &kvdrive::Drive| drive.namespace().unwrap().capacity_bytes;
    let share = kvdrive_run::memory::share().map_or(u64::MAX, |share| share.bytes);
    let opened = kvdrive::open("cosmos-plus").unwrap();
    assert!(capacity(&opened) < share.max(1 << 30), "{} of {share}", capacity(&opened));
    assert_eq!(opened.capacity_note().is_some(), share < 64 << 30);
    if let Some(note) = opened.capacity_note() {
        let end = "; the profile has 64 GiB: Builder::capacity, or Builder::file";
        assert!(note.starts_with("capacity ") && note.ends_with(end), "{note}");
    }
    for size in ["2GiB", "2147483648"] {
        let two = kvdrive::build().capacity(size).open().unwrap();
        assert!((1 << 30..2 << 30).contains(&capacity(&two)) && two.capacity_note().is_none());
    }
    let given = kvdrive::build().set("media.kind", "tags").open().unwrap();
    assert!(capacity(&given) > 50 << 30 && given.capacity_note().is_none());
    let small = kvdrive::build().capacity("1MiB").open().map(drop).unwrap_err().to_string();
    assert!(small.starts_with("flash.capacity: 1MiB; allowed with engine.name = \"lsm\""), "{small}");
}

/// Overwrites of the same keys do not make the use grow without a bound, and the size of the namespace stays.
#[test]
fn use_is_bounded_by_what_pairs_take_and_the_size_stays() {
    let (keys, value) = (500_u32, vec![7; 4096]);
    let overwritten = |percent: u32| {
        let small = [("gc.segment_pages", 16), ("lsm.memtable_entries", 256)];
        let builder = small.iter().fold(kvdrive::build(), |builder, (key, value)| builder.set(key, value));
        let drive = builder.set("lsm.count_growth_percent", percent).capacity("1GiB").open().unwrap();
        let size = drive.namespace().unwrap().capacity_bytes;
        let mut most = 0;
        for store in 0..30_000_u32 {
            drive.store(&(store % keys).to_be_bytes(), &value).unwrap();
            if store % 1000 == 0 {
                let now = drive.namespace().unwrap();
                assert_eq!(now.capacity_bytes, size, "after {store} stores");
                most = most.max(now.used_bytes);
            }
        }
        assert_eq!(drive.get(&7_u32.to_be_bytes()).unwrap().as_deref(), Some(&value[..]));
        most
    };
    let (pairs_bytes, segment_bytes) = (u64::from(keys) * 4096, 16 * 16384);
    let flush_bytes = 256 * 4096;
    let most = overwritten(100);
    assert!((pairs_bytes..=2 * pairs_bytes + 16 * segment_bytes + flush_bytes).contains(&most), "{most}");
    assert!(overwritten(0) > 2 * most, "the count has no bound where it is learned only for room");
}

#[test]
fn a_pipeline_is_polled_without_waiting_and_tags_each_call() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let mut pipeline = drive.client().unwrap().into_pipeline().unwrap();
    assert_eq!(pipeline.try_next_ended().unwrap(), None, "nothing is under way");
    let mut ended = Vec::new();
    // The same key twice: the answers are distinguished by their numbers.
    for value in [b"1", b"2"] {
        assert_eq!(pipeline.store(b"key", *value).unwrap(), None);
        while pipeline.with(|pipeline| pipeline.under_way()) > 0 {
            ended.extend(pipeline.try_next_ended().unwrap());
        }
    }
    assert_eq!(pipeline.with(|pipeline| pipeline.begun()), 2);
    assert_eq!(ended.iter().map(|ended| ended.number).collect::<Vec<_>>(), [0, 1]);
    // A pipeline can be moved to another thread.
    let answers = thread::spawn(move || {
        pipeline.get(b"key").unwrap();
        let got = pipeline.next_ended().unwrap().unwrap().result;
        let removed = pipeline.with(|pipeline| {
            pipeline.remove(b"key").unwrap();
            pipeline.remove(b"none").unwrap();
            let mut removed = [pipeline.next_ended(), pipeline.next_ended()].map(|end| end.unwrap().unwrap());
            removed.sort_by_key(|ended| ended.number);
            removed.map(|ended| ended.result)
        });
        (got, removed)
    });
    let (got, removed) = answers.join().unwrap();
    assert_eq!(got, Ok(Done::Got(Some(b"2".to_vec()))));
    assert_eq!(removed, [Ok(Done::Removed(true)), Ok(Done::Removed(false))]);
}

#[test]
fn values_of_a_pipeline_come_into_one_memory() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let value = |index: u32| vec![index as u8; (index * 37 % 9_000) as usize];
    (0..100_u32).for_each(|index| drive.store(&index.to_be_bytes(), &value(index)).unwrap());
    let mut client = drive.client().unwrap();
    let mut pipeline = client.pipeline().unwrap();
    let (mut values, mut places) = (b"front".to_vec(), BTreeMap::new());
    for index in 0..101_u32 {
        while !pipeline.has_room() {
            let from = values.len();
            let ended = pipeline.next_ended_into(&mut values).unwrap().unwrap();
            places.insert(ended.number, (from, ended.result));
        }
        assert_eq!(pipeline.get(&index.to_be_bytes()).unwrap(), None);
    }
    loop {
        let from = values.len();
        let Some(ended) = pipeline.next_ended_into(&mut values).unwrap() else { break };
        places.insert(ended.number, (from, ended.result));
    }
    assert_eq!(places.remove(&100).unwrap().1, Ok(Done::Appended(None)));
    assert_eq!(places.len(), 100);
    for (index, (from, result)) in places {
        let expected = value(index as u32);
        assert_eq!(result, Ok(Done::Appended(Some(expected.len() as u32))));
        assert_eq!(values[from..from + expected.len()], expected);
    }
}

#[test]
fn owned_keys_and_pairs_outlive_the_scope_that_made_them() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    (0..50_u8).for_each(|index| drive.store(&[index % 2, index], b"").unwrap());
    let (keys, pairs) = {
        let client = Arc::new(drive.client().unwrap());
        (client.owned_keys(&[1]).unwrap(), client.owned_pairs(&[0]).unwrap())
    };
    assert_eq!((keys.map(Result::unwrap).count(), pairs.map(Result::unwrap).count()), (25, 25));
}

#[test]
fn an_error_has_its_parts() {
    let error = kvdrive::build().set("flash.channels", 0).open().err().expect("there are channels");
    assert_eq!(error.setting(), Some("flash.channels"));
    let (line, allowed) = (error.to_string(), error.allowed().unwrap());
    assert!(line.starts_with("flash.channels: 0") && line.ends_with(&allowed), "{line} - {allowed}");
    let word = kvdrive::build().set("packing.policy", "none").open().err().expect("there is no such policy");
    assert!(word.allowed().unwrap().contains("backfill"), "{word}");
    assert_eq!(kvdrive::open("none").err().unwrap().allowed(), None);

    let drive = kvdrive::open("cosmos-plus").unwrap();
    drive.store(b"key", b"value").unwrap();
    // A drive in the program of its host has no port at which answers have faults of a network.
    let error = drive.inject("[[rule]]\nfault = \"drop-connection\"\n").unwrap_err().to_string();
    assert!(error.contains("drop-connection 1: a drop-connection never strikes here"), "{error}");
    drive.inject("[[rule]]\nfault = \"status\"\nopcode = \"retrieve\"\nstatus = \"88h\"\n").unwrap();
    let error = drive.get(b"key").unwrap_err();
    assert_eq!(error.status().map(|status| status.raw()), Some(0x88));
    assert_eq!((error.call(), error.pair(), error.setting()), (Some("get"), kvdrive::Key::new(b"key"), None));
}

/// As many queue pairs as there are identifiers can be opened at equal cost each; a further one is refused,
/// and dropping one makes room.
#[test]
fn as_many_queue_pairs_as_identifiers_are_opened() {
    // A slot has 4 KiB for a list of pages: with 32 slots, all queue pairs would take 9 GB.
    let drive = kvdrive::build().set("host.depth", 1).open().unwrap();
    let mut clients = Vec::new();
    let refused = loop {
        match drive.client() {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    // The admin queue and that of the drive's own calls have an identifier each.
    assert!(matches!(refused, Error::NoQueue(_)), "{refused}");
    assert_eq!(clients.len(), (1 << 16) - 2);
    for (index, client) in clients.iter_mut().enumerate().step_by(1_000) {
        client.store(&index.to_be_bytes(), b"value").unwrap();
        assert_eq!(client.get(&index.to_be_bytes()).unwrap().as_deref(), Some(&b"value"[..]));
    }
    drop(clients.swap_remove(777));
    clients.push(drive.client().unwrap());
    assert!(matches!(drive.client(), Err(Error::NoQueue(_))));
    drop(clients);
    drive.client().unwrap().store(b"key", b"value").unwrap();
}
