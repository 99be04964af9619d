//! Calls and their answers.

use std::collections::BTreeMap;

use kvdrive::saker::{Ending, Saker, SakerConfig};
use kvdrive::{Done, Error, Key, Pace, Status, StoreOptions};
use kvdrive_device::engines::ENGINES;
use kvdrive_link::transfer::METHODS;
use kvdrive_workload::WORKLOADS;

fn number(index: u32) -> [u8; 4] {
    index.to_be_bytes()
}

#[test]
fn every_transfer_method_and_engine_keeps_pairs() {
    let engines = ENGINES.iter().map(|row| row.name);
    let methods = METHODS.iter().map(|row| ("lsm", row.name));
    for (engine, method) in methods.chain(engines.map(|engine| (engine, "adaptive"))) {
        let mut described = kvdrive::build().transfer(method).engine(engine);
        if engine != "lsm" {
            // Their drives have 128 GB, and its empty map alone would take the time of the test.
            described = described.set("flash.blocks_per_die", 64).set("flash.spare_blocks", 0);
        }
        let drive = described.open().unwrap_or_else(|error| panic!("{engine}, {method}: {error}"));
        let mut oracle = BTreeMap::new();
        for index in 0..200 {
            let value = vec![index as u8; (index * index % 5000) as usize];
            drive.store(&number(index % 150), &value).unwrap();
            oracle.insert(number(index % 150).to_vec(), value);
        }
        for index in (0..150).step_by(3) {
            drive.delete(&number(index)).unwrap();
            oracle.remove(&number(index)[..]);
        }
        for index in 0..160 {
            let expected = oracle.get(&number(index)[..]).cloned();
            assert_eq!(
                drive.exist(&number(index)).unwrap(),
                expected.is_some(),
                "{engine}, {method}: {index}"
            );
            assert_eq!(drive.get(&number(index)).unwrap(), expected, "{engine}, {method}: {index}");
        }
        let found: BTreeMap<_, _> = drive.pairs().unwrap().map(Result::unwrap).collect();
        assert_eq!(found, oracle, "{engine}, {method}");
    }
}

/// The cost of a client does not grow with the number of other clients: quadratic growth would take minutes.
#[test]
fn thousands_of_clients_have_queue_pairs_of_their_own() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let clients: Vec<_> = (0..4_000u32).map(|index| (number(index), drive.client().unwrap())).collect();
    clients.iter().for_each(|(key, client)| client.store(key, key).unwrap());
    for (key, client) in clients.iter().rev() {
        assert_eq!(client.get(key).unwrap().as_deref(), Some(&key[..]));
    }
}

#[test]
fn pairs_from_a_key_are_in_order_and_iterators_are_given_back() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    (0..20).for_each(|index| drive.store(&number(index), b"value").unwrap());
    // More iterators than the drive has, and none of them is read to its end.
    for _ in 0..100 {
        let mut pairs = drive.pairs_from(&number(7)).unwrap();
        assert_eq!(pairs.next().unwrap().unwrap(), (number(7).to_vec(), b"value".to_vec()));
        assert_eq!(pairs.next().unwrap().unwrap().0, number(8));
    }
    assert_eq!(drive.pairs_from(&number(15)).unwrap().count(), 5);
    assert_eq!(drive.pairs_from(b"zzzzz").unwrap().count(), 0);
}

#[test]
fn conditions_and_sizes_are_answered_in_a_line() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let add_only = StoreOptions { add_only: true, ..StoreOptions::default() };
    let update_only = StoreOptions { update_only: true, ..StoreOptions::default() };
    let missing = drive.store_with(b"key", b"", update_only).unwrap_err();
    assert_eq!(missing.status(), Some(Status::KEY_NOT_FOUND));
    drive.store_with(b"key", b"1", add_only).unwrap();
    let there = drive.store_with(b"key", b"2", add_only).unwrap_err();
    assert_eq!(there.to_string(), "store of key 6b6579: key exists (89h)");
    drive.store_with(b"key", b"3", update_only).unwrap();
    assert_eq!(drive.get(b"key").unwrap().as_deref(), Some(&b"3"[..]));

    assert_eq!(
        drive.get(b"").unwrap_err().to_string(),
        "a key has 1 to 65535 bytes, a prefix at most 16; not 0"
    );
    assert_eq!(drive.store(&[0; 65_536], b"").unwrap_err(), Error::KeySize(65_536));
    let large = drive.store(b"key", &vec![0; (256 << 20) + 1]).unwrap_err();
    let line = "store of key 6b6579: a value has at most 268435456 bytes here, not 268435457";
    assert_eq!(large.to_string(), line);
    drive.store(b"large", &vec![9; 2 << 20]).unwrap();
    assert_eq!(drive.get(b"large").unwrap(), Some(vec![9; 2 << 20]));
}

#[test]
fn a_wrong_description_names_its_key() {
    let line = |described: kvdrive::Builder| described.open().err().expect("it is wrong").to_string();
    let build = || kvdrive::build().profile("cosmos-plus");
    let unknown = line(kvdrive::build().profile("cosmos"));
    assert!(unknown.starts_with("cosmos: no such profile; there are cosmos-plus, "), "{unknown}");
    let policy = line(build().set("packing.policy", "backfil"));
    assert!(policy.starts_with("packing.policy: \"backfil\""), "{policy}");
    let work = line(build().set("workload.ops", 10));
    assert!(work.starts_with("workload.ops: the program itself is host and work"), "{work}");
    let ignored = line(build().set("packing.policy", "all").set("packing.dlt_entries", 8));
    let expected =
        "packing.dlt_entries: packing.policy=all does not look at it; packing.policy=backfill or blend does";
    assert!(ignored.starts_with(expected), "{ignored}");
    let twice = line(build().transfer("prp").set("host.transfer", "sgl"));
    assert!(twice.starts_with("host.transfer: host.transfer sets host.transfer too"), "{twice}");
    let blocks = line(kvdrive::build().engine("block"));
    assert!(blocks.starts_with("engine.name: block keeps blocks"), "{blocks}");
    let toml = line(build().config("mine.toml", "[packing]\npolicy = 3\n"));
    assert!(toml.contains("packing.policy"), "{toml}");
}

#[test]
fn a_pipeline_answers_every_command_once() {
    let drive = kvdrive::build().set("host.depth", 4).open().unwrap();
    let mut client = drive.client().unwrap();
    let mut pipeline = client.pipeline().unwrap();
    let mut ended = Vec::new();
    for index in 0..50 {
        ended.extend(pipeline.store(&number(index), vec![1; 300]).unwrap());
    }
    while let Some(end) = pipeline.next_ended().unwrap() {
        ended.push(end);
    }
    assert_eq!(ended.len(), 50);
    assert!(ended.iter().all(|end| end.result == Ok(Done::Stored)));
    pipeline.get(&number(1)).unwrap();
    assert_eq!(pipeline.next_ended().unwrap().unwrap().result, Ok(Done::Got(Some(vec![1; 300]))));
    pipeline.get(b"none").unwrap();
    assert_eq!(pipeline.next_ended().unwrap().unwrap().result, Ok(Done::Got(None)));
    pipeline.delete(&number(1)).unwrap();
    assert_eq!(pipeline.next_ended().unwrap().unwrap().result, Ok(Done::Deleted));
    pipeline.exist(&number(1)).unwrap();
    assert_eq!(pipeline.next_ended().unwrap().unwrap().result, Ok(Done::Exists(false)));
    assert_eq!(pipeline.next_ended().unwrap(), None);
}

#[test]
fn numbers_are_of_their_kinds() {
    let drive = kvdrive::build().transfer("piggyback").pace(Pace::Jump).open().unwrap();
    let before = drive.numbers().unwrap();
    (0..100).for_each(|index| drive.store(&number(index), &[0; 32]).unwrap());
    let after = drive.numbers().unwrap();
    assert_eq!(after.of("drive.commands") - before.of("drive.commands"), 100);
    // BandSlim, section 4.2: 64 + 16 + 2 x 4 B a command. The drive sees the last doorbell at its next look.
    let payload_bytes = after.of("traffic.payload_bytes") - before.of("traffic.payload_bytes");
    assert!([8796, 8800].contains(&payload_bytes), "{payload_bytes}");
    assert!(after.of("drive.model_ns") > before.of("drive.model_ns"));
    assert!(after.to_string().contains("(times: fit set guess"), "{after}");
    let report = drive.close().unwrap().report();
    assert_eq!(report["clock"], "wall");
}

#[test]
fn a_key_in_an_error_is_hexadecimal() {
    let key = Key::new(b"key").unwrap();
    let error = Error::Status { call: "get", key: Some(key), status: Status::UNRECOVERED_ERROR };
    assert!(error.to_string().starts_with("get of key 6b6579: "), "{error}");
}

/// Threads count together, by transactions: no count is lost, on any engine.
#[test]
fn transactions_are_wholly_there_or_not() {
    for engine in ["lsm", "plus", "hashlog"] {
        let drive = kvdrive::build().engine(engine).open().unwrap();
        let saker = drive.saker(SakerConfig::default()).unwrap();
        let count = |saker: &Saker| {
            let mut handle = saker.handle().unwrap();
            let mut committed = 0;
            while committed < 50 {
                let mut transaction = handle.transaction();
                let now = transaction.get(b"count").unwrap().map_or(0, |bytes| bytes[0]);
                transaction.store(b"count", &[now + 1]).unwrap();
                transaction.store(b"twice", &[2 * (now + 1)]).unwrap();
                committed += u32::from(transaction.commit().unwrap() == Ending::Committed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| count(&saker));
            }
        });
        assert_eq!(drive.get(b"count").unwrap(), Some(vec![100]));
        assert_eq!(drive.get(b"twice").unwrap(), Some(vec![200]));
    }
}

#[test]
fn numbers_are_the_counters_of_reports() {
    let fillseq = WORKLOADS.iter().find(|row| row.name == "fillseq").expect("a row");
    for engine in ENGINES {
        let described = kvdrive::build().engine(engine.name).set("flash.blocks_per_die", 64);
        let described = described.set("flash.spare_blocks", 0);
        let numbers = described.clone().open().unwrap().numbers().unwrap();
        for (section, counts) in described.set("workload.ops", 50).run(fillseq).unwrap().counts.iter() {
            for count in counts.iter() {
                let name = format!("{section}.{}", count.counter.name);
                assert!(numbers.get(&name).is_some(), "{}: no {name}", engine.name);
            }
        }
    }
}
