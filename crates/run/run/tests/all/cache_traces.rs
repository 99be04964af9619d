//! Traces of caches above drives: LMCache's, MLPerf's and libCacheSim's.

use super::traces::{Folder, error, operations, report};

/// Objects of a cache with tiers: only one tier is a drive, and an object longer than a value has parts.
#[test]
fn a_log_of_mlperf_is_the_load_of_one_tier() {
    let folder = Folder::new();
    let log = "Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase\n\
        0.5,Write,4096,Tier-2,a,Prefill\n\
        0.75,Write,9,Tier-1,b,Prefill\n\
        1,READ,4096,tier-2,a,Decode\n\
        1.25,write,150000000,Tier-2,long,Prefill\n\
        2,evict,150000000,Tier-2,long,Decode\n";
    let path = folder.file("log", log.as_bytes());
    let found = operations(&path, &["workload.arrivals=trace"]).unwrap();
    let words: Vec<&str> = found.iter().map(|(words, _)| words.as_str()).collect();
    assert_eq!(words[..2], ["store a 4096", "retrieve a"]);
    assert_eq!(words[2..].iter().filter(|words| words.starts_with("store long#")).count(), 3);
    let bytes: u64 =
        words[2..5].iter().map(|words| words.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!((bytes, words.len()), (150_000_000, 8));
    assert_eq!((found[0].1, found[1].1, found[7].1), (Some(0), Some(500_000_000), Some(1_500_000_000)));
    let others = operations(&path, &["workload.trace_tier=Tier-1"]).unwrap();
    assert_eq!(others, [("store b 9".to_owned(), Some(0))]);
    assert_eq!(operations(&path, &["workload.trace_tier=all"]).unwrap().len(), 9);
    let one_of = error(&path, &["workload.trace_tier=Tier-9"]);
    assert!(one_of.ends_with("has no operation"), "{one_of}");
    for (line, reason) in [
        ("1,rename,4,Tier-2,a,x", "no operation \"rename\"; there are write, read and delete"),
        ("1,read,many,Tier-2,a,x", "Object_Size_Bytes: \"many\" is not a number in its range"),
        ("soon,read,4,Tier-2,a,x", "time: \"soon\""),
        ("1,read,4", "3 of 6 fields"),
        ("1,write,9000000000000,Tier-2,a,x", "an object of 9000000000000 bytes"),
    ] {
        let line = error(&folder.file("wrong", format!("{log}{line}\n").as_bytes()), &[]);
        assert!(line.contains("/wrong, line 7: ") && line.contains(reason), "{line}");
    }
}

/// A frame of LMCache's traces, of values in MessagePack.
fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    [&(value.len() as u32).to_be_bytes()[..], &value].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&[0xd9, text.len() as u8][..], text.as_bytes()].concat()
}

/// A map of these names and values.
fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs_of = pairs.iter().flat_map(|(name, value)| [text(name), value.clone()]).flatten();
    [0x80 | pairs.len() as u8].into_iter().chain(pairs_of).collect()
}

fn list(values: &[Vec<u8>]) -> Vec<u8> {
    [0x90 | values.len() as u8].into_iter().chain(values.iter().flatten().copied()).collect()
}

/// A value of a class of Python.
fn tagged(tag: &str, value: Vec<u8>) -> Vec<u8> {
    map(&[("__t__", text(tag)), ("v", value)])
}

fn number(number: u32) -> Vec<u8> {
    [&[0xce][..], &number.to_be_bytes()].concat()
}

fn head(level: &str, version: u32) -> Vec<u8> {
    let magic = [&[0xc4, 4][..], b"LMCT"].concat();
    let (version, level) = (number(version), text(level));
    frame(&[&map(&[
        ("type", text("header")),
        ("magic", magic),
        ("format_version", version),
        ("level", level),
    ])])
}

fn record(at_s: f64, name: &str, args: Vec<u8>) -> Vec<u8> {
    let at = [&[0xcb][..], &at_s.to_be_bytes()].concat();
    frame(&[&map(&[("type", text("record")), ("t_mono", at), ("qualname", text(name)), ("args", args)])])
}

#[test]
fn the_events_of_lmcache_are_the_load_of_its_second_level() {
    let folder = Folder::new();
    let entry = |hash: &str, bytes: u32, salt: &str| {
        let key = map(&[
            ("chunk_hash_hex", text(hash)),
            ("model_name", text("m")),
            ("kv_rank", number(1)),
            ("object_group_id", number(0)),
            ("cache_salt", text(salt)),
        ]);
        map(&[("key", key), ("size_bytes", number(bytes))])
    };
    let batch = |at_s: f64, event: &str, tier: &str, entries: &[Vec<u8>]| {
        let args = map(&[("event_type", text(event)), ("tier", text(tier)), ("entries", list(entries))]);
        record(at_s, "events.batch", args)
    };
    let stored = batch(1.5, "store", "l2", &[entry("0a", 4096, ""), entry("0a", 70 << 20, "user")]);
    let parts = [
        head("events", 1),
        record(1.0, "events.lifecycle", map(&[("phase", text("start"))])),
        batch(1.25, "store", "l1", &[entry("ff", 7, "")]),
        stored.clone(),
        batch(2.0, "access", "l2", &[entry("0a", 0, "user")]),
        batch(2.5, "delete", "l2", &[entry("0a", 0, "user"), entry("0a", 0, "")]),
    ];
    let path = folder.file("some.lct", &parts.concat());
    let found = operations(&path, &["workload.arrivals=trace"]).unwrap();
    let kinds: Vec<&str> = found.iter().map(|(words, _)| words.split(' ').next().unwrap()).collect();
    let expected = ["store", "store", "store", "retrieve", "retrieve", "delete", "delete", "delete"];
    assert_eq!(kinds, expected, "an object of 70 MiB has two parts");
    assert!(found[0].0.ends_with(" 4096") && found[2].0.ends_with(&format!(" {}", 6 << 20)));
    assert_eq!((found[0].1, found[3].1, found[7].1), (Some(0), Some(500_000_000), Some(1_000_000_000)));
    assert_eq!(operations(&path, &["workload.trace_tier=l1"]).unwrap().len(), 1);
    let skipped = report(&path, &["workload.ops=1"]).notes;
    assert!(skipped.iter().any(|note| note == "skipped: 1 entry of another tier"), "{skipped:?}");

    let cut = folder
        .file("cut.lct", &[head("events", 1), stored.clone(), stored[..stored.len() - 3].to_vec()].concat());
    let ended = report(&cut, &[]);
    assert_eq!(ended.ops.store, 3);
    assert!(
        ended.notes.iter().any(|note| note == "skipped: 1 frame that is cut off at the end"),
        "{:?}",
        ended.notes
    );

    for (bytes, reason) in [
        (head("events", 2), "record 1: version 2 of the format; version 1 is read"),
        ([head("events", 1), batch(1.0, "moved", "l2", &[])].concat(), "record 2: event_type: \"moved\""),
        (
            [head("events", 1), record(1.0, "events.batch", map(&[]))].concat(),
            "record 2: event_type: missing",
        ),
        ([head("events", 1), frame(&[&[0xc1]])].concat(), "record 2: byte 1: 0xc1 begins no value"),
        ([head("events", 1), vec![0xff; 8]].concat(), "record 2: a frame of 4294967295 bytes"),
    ] {
        let line = error(&folder.file("wrong.lct", &bytes), &["workload.trace_format=lmcache"]);
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn calls_of_lmcache_become_the_commands_that_they_ask_of_a_drive() {
    let folder = Folder::new();
    let key = |hash: u8| {
        let hash = vec![0xc4, 2, hash, hash];
        let fields = [
            ("chunk_hash", hash),
            ("model_name", text("m")),
            ("kv_rank", number(1)),
            ("object_group_id", number(0)),
        ];
        tagged("ObjectKey", map(&fields))
    };
    let keys = |hashes: &[u8]| list(&hashes.iter().map(|hash| key(*hash)).collect::<Vec<_>>());
    let shape = tagged("torch.Size", list(&[number(2), number(64), number(128)]));
    let layout = map(&[
        ("shapes", list(&[shape])),
        ("dtypes", list(&[tagged("torch.dtype", text("torch.bfloat16"))])),
    ]);
    let layout = tagged("MemoryLayoutDesc", layout);
    let call = |at_s: f64, name: &str, args: &[(&str, Vec<u8>)]| {
        record(at_s, &format!("lmcache.v1.distributed.storage_manager.StorageManager.{name}"), map(args))
    };
    let group = tagged("GroupedObjectKeys", map(&[("keys", keys(&[1, 2, 3]))]));
    let spec = tagged("PrefetchTaskSpec", map(&[("key_groups", list(&[group]))]));
    let parts = [
        head("storage", 1),
        call(0.0, "reserve_write", &[("keys", keys(&[1, 2])), ("layout_desc", layout)]),
        call(0.5, "finish_write", &[("keys", keys(&[1, 2]))]),
        call(0.6, "finish_write", &[("keys", keys(&[1]))]),
        call(1.0, "submit_prefetch_task", &[("spec", spec.clone()), ("skip_l2", vec![0xc2])]),
        call(1.5, "submit_prefetch_task", &[("spec", spec), ("skip_l2", vec![0xc3])]),
        call(2.0, "finish_read_prefetched", &[("keys", keys(&[1]))]),
    ];
    let found = operations(&folder.file("calls.lct", &parts.concat()), &["workload.arrivals=trace"]).unwrap();
    let kinds: Vec<&str> = found.iter().map(|(words, _)| words.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["store", "store", "exist", "exist", "exist", "retrieve", "retrieve"]);
    assert!(found[0].0.ends_with(" 32768"), "2 x 64 x 128 numbers of 2 bytes: {found:?}");
    assert_eq!((found[0].1, found[2].1), (Some(0), Some(500_000_000)));
}

#[test]
fn the_first_request_of_a_cache_stores_and_further_ones_retrieve() {
    let folder = Folder::new();
    let record = |time: u32, object: u64, bytes: u32, next: i64| {
        [&time.to_le_bytes()[..], &object.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let trace = [record(5, 1, 100, 3), record(5, 2, 50, -1), record(7, 1, 100, i64::MAX)].concat();
    let found = operations(&folder.file("trace", &trace), &["workload.arrivals=trace"]).unwrap();
    let kinds: Vec<_> = found.iter().map(|(words, at)| (words.split(' ').next().unwrap(), *at)).collect();
    assert_eq!(kinds, [("store", Some(0)), ("store", Some(0)), ("retrieve", Some(2_000_000_000))]);
    let cut = error(&folder.file("cut", &trace[..60]), &["workload.trace_format=oracleGeneral"]);
    assert!(cut.ends_with("/cut, record 3: the file ends in the middle of it"), "{cut}");
    let wrong = [trace.clone(), record(9, 3, 100, 2)].concat();
    let wrong = error(&folder.file("wrong", &wrong), &["workload.trace_format=oracleGeneral"]);
    assert!(wrong.contains("/wrong, record 4: the next request of object 3 is number 2"), "{wrong}");
}
