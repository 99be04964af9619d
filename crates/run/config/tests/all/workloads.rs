//! Workloads against their published distributions, and goldens of their first operations.

use std::collections::BTreeMap;

use kvdrive_config::Document;
use kvdrive_workload::{self as workload, Op, WORKLOADS, Workload};

const OPS: u64 = 200_000;

fn build(sets: &[&str]) -> Box<dyn Workload> {
    try_build(sets).unwrap()
}

fn try_build(sets: &[&str]) -> Result<Box<dyn Workload>, String> {
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in sets {
        document.set(&format!("workload.{set}")).map_err(|error| error.to_string())?;
    }
    workload::build(&document.config().unwrap().workload, 1)
}

fn store_sizes(workload: &mut dyn Workload, ops: u64) -> Vec<u32> {
    (0..ops)
        .filter_map(|_| match workload.next() {
            Op::Store { value, .. } => Some(value.bytes),
            _ => None,
        })
        .collect()
}

fn mean(sizes: &[u32]) -> f64 {
    sizes.iter().map(|&n| f64::from(n)).sum::<f64>() / sizes.len() as f64
}

#[test]
fn mean_sizes_are_the_published_ones() {
    let cases: [(&[&str], f64, f64); 7] = [
        (&["name=w-a", "value_size=100"], 100.0, 0.0),
        (&["name=w-b"], 212.0, 0.015),
        (&["name=w-b", "large_ratio=8:1"], 234.7, 0.015),
        (&["name=w-c"], 1844.0, 0.005),
        (&["name=w-c", "large_ratio=8:1"], 1821.3, 0.005),
        (&["name=w-d"], 454.2, 0.01),
        (&["name=w-m"], 34.87, 0.01),
    ];
    for (sets, expected, tolerance) in cases {
        let sizes = store_sizes(&mut *build(sets), OPS);
        assert_eq!(sizes.len() as u64, OPS, "{sets:?}: stores only");
        let mean = mean(&sizes);
        assert!((mean / expected - 1.0).abs() <= tolerance, "{sets:?}: {mean}");
    }
}

#[test]
fn workload_m_is_as_published() {
    let sizes = store_sizes(&mut *build(&["name=w-m"]), 1_000_000);
    let small = sizes.iter().filter(|&&n| n <= 35).count() as f64 / sizes.len() as f64;
    assert!((small - 0.691).abs() < 0.002, "{small}");
    assert!((mean(&sizes) - 34.87).abs() < 0.15, "{}", mean(&sizes));
    assert!(sizes.iter().max() <= Some(&1022));
}

#[test]
fn keys_of_w_b_to_w_m_are_unique() {
    for name in ["w-b", "w-c", "w-d", "w-m"] {
        let mut workload = build(&[&format!("name={name}")]);
        let mut keys: Vec<_> = (0..OPS)
            .map(|_| match workload.next() {
                Op::Store { key, .. } => key,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(!keys.is_sorted(), "{name}: no pattern");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len() as u64, OPS, "{name}");
        assert!(keys.iter().all(|key| key.len() == 4));
    }
    let error = try_build(&["name=w-m", "ops=4294967297"]).err().unwrap();
    assert_eq!(error, "workload.ops: 4294967297; there are only 4294967296 different 4 B keys");
}

/// Shares of retrieves, stores and seeks, and the count of the most popular key.
fn mix(sets: &[&str]) -> ([f64; 3], u64) {
    let mut workload = build(sets);
    let (mut kinds, mut keys) = ([0u64; 3], std::collections::BTreeMap::new());
    for _ in 0..OPS {
        let (kind, key) = match workload.next() {
            Op::Retrieve { key } => (0, key),
            Op::Store { key, .. } => (1, key),
            Op::Seek { key, nexts } => {
                assert!(nexts < 10_000);
                (2, key)
            }
            other => panic!("{other:?}"),
        };
        kinds[kind] += 1;
        *keys.entry(key).or_insert(0u64) += 1;
    }
    (kinds.map(|n| n as f64 / OPS as f64), *keys.values().max().unwrap())
}

#[test]
fn mixgraph_has_the_ratios_of_its_flags_and_the_keys_of_its_model() {
    // With uniform keys, 200 k draws of 1 M keys, the most frequent key occurs a few times. The models are
    // far from that.
    for (preset, popular) in [
        ("all_random", 1..=8),
        ("all_dist", 200..=20_000),
        ("prefix_random", 1..=60),
        ("prefix_dist", 200..=60_000),
    ] {
        let (kinds, most) = mix(&[&format!("preset={preset}")]);
        for (share, expected) in kinds.into_iter().zip([0.83, 0.14, 0.03]) {
            assert!((share - expected).abs() < 0.005, "{preset}: {kinds:?}");
        }
        assert!(popular.contains(&most), "{preset}: {most}");
    }
}

#[test]
fn mixgraph_has_the_keys_of_its_models_and_loads_what_it_reads() {
    let workload = build(&["preset=all_random"]);
    assert_eq!(workload.notes().len(), 0);
    assert_eq!(workload.preload(), 1_000_000);
    let (key, value) = workload.preload_pair(1);
    assert_eq!((key.len(), value.version), (48, 1));
    let puts = build(&["name=mixgraph", "mix_get_ratio=0", "mix_seek_ratio=0"]);
    assert_eq!((puts.preload(), puts.notes().len()), (0, 0));
}

#[test]
fn mixed_has_its_fractions() {
    let mut workload = build(&[
        "name=mixed",
        "num=1000",
        "read_fraction=0.5",
        "delete_fraction=0.1",
        "exist_fraction=0.1",
        "seek_fraction=0.1",
        "list_fraction=0.1",
    ]);
    let mut kinds = [0u64; 6];
    for _ in 0..OPS {
        kinds[match workload.next() {
            Op::Retrieve { .. } => 0,
            Op::Store { .. } => 1,
            Op::Delete { .. } => 2,
            Op::Exist { .. } => 3,
            Op::Seek { nexts, .. } => {
                assert_eq!(nexts, 10);
                4
            }
            Op::List { .. } => 5,
            Op::Modify { .. } | Op::Unit { .. } => panic!("mixed has none"),
        }] += 1;
    }
    for (kind, share) in kinds.into_iter().zip([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]) {
        assert!((kind as f64 / OPS as f64 - share).abs() < 0.01, "{kinds:?}");
    }
    let error = try_build(&["name=mixed", "delete_fraction=0.6"]).err().unwrap();
    assert_eq!(error, "workload.read_fraction: the fractions of mixed sum to 1.1; at most 1");
}

#[test]
fn unusable_parameters_are_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (&["name=fillseq", "key_size=0"], "workload.key_size: 0; allowed: 1 to 255"),
        (&["name=fillrandom", "key_size=1"], "workload.key_size: 1 B cannot name 1000000 pairs; at most 256"),
        (
            &["name=mixgraph", "mix_get_ratio=0", "mix_put_ratio=0", "mix_seek_ratio=0"],
            "workload.mix_get_ratio: the sum of the three mix ratios is 0",
        ),
        (
            &["preset=prefix_random", "num=29"],
            "workload.keyrange_num: 30 ranges of 29 keys; at most one a key",
        ),
    ];
    for (sets, expected) in cases {
        assert_eq!(try_build(sets).err().unwrap(), *expected);
    }
    let names: Vec<_> = WORKLOADS.iter().map(|row| row.name).chain(["trace", "kvcache"]).collect();
    let there_are = names.join(", ");
    let line = format!("workload.name: no workload \"w-z\"; did you mean w-m?; there are {there_are}");
    assert_eq!(try_build(&["name=w-z"]).err().unwrap(), line);
}

#[test]
fn preloaded_pairs_come_before_later_versions() {
    for name in ["mixed", "mixgraph"] {
        let mut workload = build(&[&format!("name={name}"), "num=1000"]);
        let first = (0..OPS).find_map(|_| match workload.next() {
            Op::Store { value, .. } => Some(value.version),
            _ => None,
        });
        assert_eq!(first, Some(1000), "{name}");
        assert_eq!(workload.preload_pair(999).1.version, 999);
    }
}

/// Shares of retrieves, stores and seeks among the commands in percent, and the stores of keys that were not
/// loaded.
fn shares(sets: &[&str]) -> ([f64; 3], f64) {
    let mut workload = build(sets);
    let loaded: std::collections::BTreeSet<_> =
        (0..1000).map(|index| workload.preload_pair(index).0).collect();
    assert_eq!(loaded.len(), 1000);
    let (mut kinds, mut inserts) = ([0.0; 3], 0.0);
    let mut commands = 0;
    for step in (0..OPS).flat_map(|_| workload.next().steps()) {
        commands += 1;
        match step {
            Op::Retrieve { .. } => kinds[0] += 1.0,
            Op::Store { key, .. } => {
                kinds[1] += 1.0;
                inserts += f64::from(u8::from(!loaded.contains(&key)));
            }
            Op::Seek { nexts, .. } => {
                assert!((0..100).contains(&nexts), "the seek brings the first pair");
                kinds[2] += 1.0;
            }
            other => panic!("{other:?}"),
        }
    }
    let percent = 100.0 / f64::from(commands);
    (kinds.map(|kind| kind * percent), inserts * percent)
}

#[test]
fn ycsb_mixes_are_the_published_ones() {
    let cases = [
        ("a", [50.0, 50.0, 0.0], 0.0),
        ("b", [95.0, 5.0, 0.0], 0.0),
        ("c", [100.0, 0.0, 0.0], 0.0),
        ("d", [95.0, 5.0, 0.0], 5.0),
        ("e", [0.0, 5.0, 95.0], 5.0),
        // Half of the operations read, half read and write: two reads for every write.
        ("f", [66.7, 33.3, 0.0], 0.0),
    ];
    for client in ["ycsb", "plus"] {
        for (letter, kinds, inserts) in cases {
            if client == "plus" && letter == "e" {
                continue;
            }
            let inserts = if client == "plus" { 0.0 } else { inserts };
            for distribution in ["uniform", "zipfian", "latest"] {
                let name = format!("name={client}-{letter}");
                let distribution = format!("distribution={distribution}");
                let found = shares(&[&name, &distribution, "num=1000", "key_size=8"]);
                let near = |a: f64, b: f64| (a - b).abs() < 1.0;
                let fits = found.0.iter().zip(kinds).all(|(a, b)| near(*a, b)) && near(found.1, inserts);
                assert!(fits, "{name} {distribution}: {found:?}");
            }
        }
    }
}

#[test]
fn a_read_modify_write_is_one_operation_of_one_client() {
    let mut workload = build(&["name=ycsb-f"]);
    let modify = std::iter::repeat_with(|| workload.next()).find(|op| matches!(op, Op::Modify { .. }));
    let Some(Op::Modify { key, value }) = modify else { panic!("half of them are") };
    let steps: Vec<Op> = Op::Modify { key, value }.steps().collect();
    assert_eq!(steps, [Op::Retrieve { key }, Op::Store { key, value }]);
    assert_eq!(Op::Retrieve { key }.steps().collect::<Vec<_>>(), [Op::Retrieve { key }]);
}

#[test]
fn ycsb_chooses_keys_as_it_is_told() {
    let hottest = |sets: &[&str]| {
        let mut workload = build(sets);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..OPS {
            if let Op::Retrieve { key } = workload.next() {
                *counts.entry(key).or_insert(0u32) += 1;
            }
        }
        let (key, count) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
        let index = (0..1000).find(|index| workload.preload_pair(*index).0 == key);
        (index, f64::from(count) / OPS as f64)
    };
    let base = ["num=1000", "key_size=8"];
    let with = |name: &'static str, distribution: &'static str| [name, distribution, base[0], base[1]];
    // 1 / zeta(1000, 0.99) is 13.0 %.
    let (index, share) = hottest(&with("name=plus-c", "distribution=zipfian"));
    assert!(index == Some(0) && (share - 0.130).abs() < 0.01, "{index:?} {share}");
    let (index, share) = hottest(&with("name=plus-c", "distribution=latest"));
    assert!(index == Some(999) && (share - 0.130).abs() < 0.01, "{index:?} {share}");
    // 1 / 26.469 of ten thousand million items, and the other draws that are hashed to the same key.
    let (index, share) = hottest(&with("name=ycsb-c", "distribution=zipfian"));
    assert!(index != Some(0) && (share - 0.039).abs() < 0.01, "{index:?} {share}");
    assert!(hottest(&with("name=ycsb-c", "distribution=uniform")).1 < 0.005);
}

/// All generators of the published client have one seed, so each of its 20 clients draws the same ranks.
#[test]
fn clients_that_replay_each_other_draw_each_rank_together() {
    let draw = |sets: &[&str]| {
        let mut workload = build(&[&["num=1000", "key_size=8"], sets].concat());
        (0..60).map(|_| workload.next().key()).collect::<Vec<_>>()
    };
    let alone = draw(&["name=plus-c", "distribution=zipfian"]);
    let replayed = draw(&["name=plus-c", "distribution=zipfian", "replayed_by=20"]);
    let thrice: Vec<_> = alone[..3].iter().flat_map(|key| [*key; 20]).collect();
    assert_eq!(replayed, thrice);
    let uniform = draw(&["name=plus-c", "distribution=uniform", "replayed_by=20"]);
    assert_eq!(uniform, draw(&["name=plus-c", "distribution=uniform"]), "uniform keys have a generator each");
}

/// YCSB's `SkewedLatestGenerator`: the rank counts back from the newest pair, which moves on with inserts.
#[test]
fn ycsb_d_reads_most_what_was_inserted_last() {
    let mut workload = build(&["name=ycsb-d", "num=1000", "key_size=8"]);
    let (mut pairs, mut reads, mut newest, mut ten) = (1000u64, 0u32, 0u32, 0u32);
    for _ in 0..OPS {
        match workload.next() {
            Op::Store { .. } => pairs += 1,
            Op::Retrieve { key } => {
                let index = u64::from_be_bytes(key.to_array()[..8].try_into().unwrap());
                assert!(index < pairs, "only what is there");
                reads += 1;
                newest += u32::from(index == pairs - 1);
                ten += u32::from(pairs - index <= 10);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(workload.inserted(), pairs - 1000);
    // 1 / zeta(n, 0.99) falls from 13.0 % at 1000 pairs to 9.7 % at the 11 000 pairs of the end: 10.6 % on
    // average. Ten ranks have 2.96 times that, and a little more by Gray's method, which is exact for two.
    let share = |count: u32| f64::from(count) / f64::from(reads);
    assert!((0.100..0.110).contains(&share(newest)), "{}", share(newest));
    assert!((0.30..0.34).contains(&share(ten)), "{}", share(ten));
}

#[test]
fn ycsb_e_scans_one_to_a_hundred_pairs() {
    let mut workload = build(&["name=ycsb-e", "num=1000", "key_size=8"]);
    let lengths: Vec<u32> = (0..OPS)
        .filter_map(|_| match workload.next() {
            Op::Seek { nexts, .. } => Some(nexts),
            _ => None,
        })
        .collect();
    // The seek brings the first pair of a scan.
    assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&0), Some(&99)));
    assert!((mean(&lengths) - 49.5).abs() < 0.5, "{}", mean(&lengths));
}

/// YCSB hashes ranks over the pairs that will exist, and draws again for a pair that does not exist yet:
/// inserts move no hot key.
#[test]
fn ycsb_e_keeps_its_hot_keys_while_it_inserts() {
    let mut workload = build(&["name=ycsb-e", "num=20000", "ops=20000", "key_size=8"]);
    let (mut pairs, mut seeks, mut counts) = (20_000u64, 0u32, std::collections::BTreeMap::new());
    for _ in 0..20_000 {
        match workload.next() {
            Op::Store { .. } => pairs += 1,
            Op::Seek { key, .. } => {
                let index = u64::from_be_bytes(key.to_array()[..8].try_into().unwrap());
                assert!(index < pairs, "only what is there");
                seeks += 1;
                *counts.entry(index).or_insert(0u32) += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // 1 / 26.469 of the draws, including repeated ones: 20 000 to 21 000 of 22 000 pairs exist.
    let hottest = f64::from(*counts.values().max().unwrap()) / f64::from(seeks);
    assert!((0.035..0.050).contains(&hottest), "{hottest}");
}

#[test]
fn preconditioning_overwrites_uniform_keys_the_same_way_every_time() {
    let sets = ["name=plus-a", "num=1000", "key_size=8", "overwrites=20000"];
    let workload = build(&sets);
    assert_eq!(workload.preload(), 21_000);
    assert_eq!(build(&sets).preload_pair(20_999), workload.preload_pair(20_999));
    let mut counts = std::collections::BTreeMap::new();
    for index in 1000..21_000 {
        let (key, value) = workload.preload_pair(index);
        assert_eq!(value.version, index);
        *counts.entry(key).or_insert(0u32) += 1;
    }
    assert_eq!(counts.len(), 1000);
    assert!(counts.values().all(|count| (4..=45).contains(count)), "{counts:?}");
}

/// Workloads, and below each one its first operations.
const FIRST_OPERATIONS: &str = r#"
fillseq
  store Key(00000000) 32 B v0
  store Key(00000001) 32 B v1
  store Key(00000002) 32 B v2
  store Key(00000003) 32 B v3
fillrandom
  store Key(00097868) 32 B v0
  store Key(000f30cf) 32 B v1
  store Key(00090094) 32 B v2
  store Key(000262fe) 32 B v3
readrandom
  Retrieve { key: Key(00097868) }
  Retrieve { key: Key(000f30cf) }
  Retrieve { key: Key(00090094) }
  Retrieve { key: Key(000262fe) }
mixgraph
  Retrieve { key: Key(0005286b) }
  Retrieve { key: Key(00097bd9) }
  Retrieve { key: Key(00002d18) }
  store Key(0006cda8) 23 B v1000000
mixed
  Retrieve { key: Key(00097868) }
  store Key(000f30cf) 32 B v1000000
  Retrieve { key: Key(00090094) }
  Retrieve { key: Key(000262fe) }
w-a
  store Key(00000000) 32 B v0
  store Key(00000001) 32 B v1
  store Key(00000002) 32 B v2
  store Key(00000003) 32 B v3
w-b
  store Key(b4c4b378) 2048 B v0
  store Key(40dc950e) 8 B v1
  store Key(6195a027) 8 B v2
  store Key(ba65c638) 8 B v3
w-c
  store Key(b4c4b378) 8 B v0
  store Key(40dc950e) 2048 B v1
  store Key(6195a027) 2048 B v2
  store Key(ba65c638) 2048 B v3
w-d
  store Key(b4c4b378) 8 B v0
  store Key(40dc950e) 2048 B v1
  store Key(6195a027) 16 B v2
  store Key(ba65c638) 2048 B v3
w-m
  store Key(b4c4b378) 184 B v0
  store Key(40dc950e) 1 B v1
  store Key(6195a027) 75 B v2
  store Key(ba65c638) 1 B v3
ycsb-a
  Retrieve { key: Key(000aaf85) }
  store Key(0001b6b9) 32 B v1000000
  Retrieve { key: Key(000ac05c) }
  Retrieve { key: Key(00048782) }
ycsb-b
  Retrieve { key: Key(000aaf85) }
  Retrieve { key: Key(0001b6b9) }
  Retrieve { key: Key(000ac05c) }
  Retrieve { key: Key(00048782) }
ycsb-c
  Retrieve { key: Key(000aaf85) }
  Retrieve { key: Key(0001b6b9) }
  Retrieve { key: Key(000ac05c) }
  Retrieve { key: Key(00048782) }
ycsb-d
  Retrieve { key: Key(000f2eeb) }
  Retrieve { key: Key(0000e6b0) }
  Retrieve { key: Key(000f35d2) }
  Retrieve { key: Key(000f423b) }
ycsb-e
  Seek { key: Key(00061ba5), nexts: 39 }
  Seek { key: Key(00033d59), nexts: 64 }
  Seek { key: Key(0004a5dc), nexts: 68 }
  Seek { key: Key(000daf42), nexts: 74 }
ycsb-f
  Retrieve { key: Key(000aaf85) }
  modify Key(0001b6b9) 32 B v1000000
  Retrieve { key: Key(000ac05c) }
  Retrieve { key: Key(00048782) }
plus-a
  Retrieve { key: Key(00001354) }
  store Key(000e5b8f) 32 B v1000000
  Retrieve { key: Key(00000c6d) }
  Retrieve { key: Key(00000004) }
plus-b
  Retrieve { key: Key(00001354) }
  Retrieve { key: Key(000e5b8f) }
  Retrieve { key: Key(00000c6d) }
  Retrieve { key: Key(00000004) }
plus-c
  Retrieve { key: Key(00001354) }
  Retrieve { key: Key(000e5b8f) }
  Retrieve { key: Key(00000c6d) }
  Retrieve { key: Key(00000004) }
plus-d
  Retrieve { key: Key(000f2eeb) }
  Retrieve { key: Key(0000e6b0) }
  Retrieve { key: Key(000f35d2) }
  Retrieve { key: Key(000f423b) }
plus-f
  Retrieve { key: Key(00001354) }
  modify Key(000e5b8f) 32 B v1000000
  Retrieve { key: Key(00000c6d) }
  Retrieve { key: Key(00000004) }
tpcc
  Unit { number: 0 }
  Unit { number: 1 }
  Unit { number: 2 }
  Unit { number: 3 }
"#;

/// The same on every machine and in every build: random streams, Pareto table and key layouts are part of it.
#[test]
fn first_operations() {
    let (mut name, mut held) = ("", BTreeMap::<&str, Vec<&str>>::new());
    for line in FIRST_OPERATIONS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ") {
            Some(operation) => held.entry(name).or_default().push(operation),
            None => name = line,
        }
    }
    assert!(held.len() > 15, "{held:?}");
    for (name, operations) in held {
        let mut workload = build(&[&format!("name={name}")]);
        let first = |_| match workload.next() {
            Op::Store { key, value } => format!("store {key:?} {} B v{}", value.bytes, value.version),
            Op::Modify { key, value } => format!("modify {key:?} {} B v{}", value.bytes, value.version),
            other => format!("{other:?}"),
        };
        assert_eq!((0..4).map(first).collect::<Vec<_>>(), operations, "{name}");
    }
}

/// By default keys are uniform; with a Zipfian distribution some keys are hot, the same in both workloads.
#[test]
fn fillrandom_and_readrandom_draw_as_asked() {
    let popular = |sets: &[&str]| {
        let mut workload = build(sets);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..OPS {
            *counts.entry(workload.next().key()).or_insert(0u64) += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).unwrap()
    };
    let of = |name: &str, distribution: &str| {
        popular(&[&format!("name={name}"), "num=1000", &format!("distribution={distribution}")])
    };
    let (hot_stores, hot_reads) = (of("fillrandom", "zipfian"), of("readrandom", "zipfian"));
    assert!(hot_stores.1 > OPS / 30, "{hot_stores:?}");
    assert_eq!(hot_stores.0, hot_reads.0);
    for name in ["fillrandom", "readrandom"] {
        assert!(of(name, "usual").1 < OPS / 100, "{name}");
        assert_eq!(of(name, "usual"), of(name, "uniform"), "{name}");
    }
}

/// Keys and values of AnyKey's fourteen workloads, a fifth of whose operations are stores.
#[test]
fn the_workloads_of_anykey_have_its_sizes() {
    const SIZES: [(&str, usize, u32); 14] = [
        ("kvssd", 16, 4096),
        ("ycsb", 20, 1000),
        ("w-pink", 32, 1024),
        ("xbox", 94, 1200),
        ("etc", 41, 358),
        ("udb", 27, 127),
        ("cache", 42, 188),
        ("var", 35, 115),
        ("crypto2", 37, 110),
        ("dedup", 20, 44),
        ("cache15", 38, 38),
        ("zippydb", 48, 43),
        ("crypto1", 76, 50),
        ("rtdata", 24, 10),
    ];
    assert_eq!(WORKLOADS.iter().filter(|row| row.name.starts_with("anykey-")).count(), SIZES.len());
    for (name, key_bytes, value_bytes) in SIZES {
        let mut workload = build(&[&format!("name=anykey-{name}"), "num=1000"]);
        let (mut stores, ops) = (0, 5000);
        for _ in 0..ops {
            let key = match workload.next() {
                Op::Store { key, value } => {
                    assert_eq!(value.bytes, value_bytes, "{name}");
                    stores += 1;
                    key
                }
                Op::Retrieve { key } => key,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(key.len(), key_bytes, "{name}");
        }
        assert!((900..1100).contains(&stores), "{name}: {stores} stores of {ops} operations");
    }
}
