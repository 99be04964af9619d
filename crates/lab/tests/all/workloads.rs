//! Workloads against their published distributions, and goldens of their first operations.

use kvdrive_lab::config::Document;
use kvdrive_lab::workload::{self, Op, WORKLOADS, Workload};

const OPS: u64 = 200_000;

fn build(sets: &[&str]) -> Box<dyn Workload> {
    try_build(sets).unwrap()
}

fn try_build(sets: &[&str]) -> Result<Box<dyn Workload>, String> {
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in sets {
        document.set(&format!("workload.{set}")).unwrap();
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
        assert!(
            (mean / expected - 1.0).abs() <= tolerance,
            "{sets:?}: {mean}"
        );
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
    assert_eq!(
        error,
        "workload.ops: 4294967297; there are only 4294967296 different 4 B keys"
    );
}

/// Shares of retrieves, stores and seeks, and how often the most popular key occurs.
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
    (
        kinds.map(|n| n as f64 / OPS as f64),
        *keys.values().max().unwrap(),
    )
}

#[test]
fn mixgraph_has_the_ratios_of_its_flags_and_the_keys_of_its_model() {
    // Uniform: 200 k draws of 1 M keys; the most frequent key has a handful. The models are far from that.
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
fn mixgraph_says_that_it_clamps_and_loads_what_it_reads() {
    let workload = build(&["preset=all_random"]);
    assert_eq!(
        workload.notes(),
        ["keys are 16 B, not 48: the KV command set has no longer ones"]
    );
    assert_eq!(workload.preload(), 1_000_000);
    let (key, value) = workload.preload_pair(1);
    assert_eq!((key.len(), value.version), (16, 1));
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
        }] += 1;
    }
    for (kind, share) in kinds.into_iter().zip([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]) {
        assert!((kind as f64 / OPS as f64 - share).abs() < 0.01, "{kinds:?}");
    }
    let error = try_build(&["name=mixed", "delete_fraction=0.6"])
        .err()
        .unwrap();
    assert_eq!(
        error,
        "workload.read_fraction: the fractions of mixed sum to 1.1; at most 1"
    );
}

#[test]
fn unusable_parameters_are_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["name=w-z"],
            "workload.name: no workload \"w-z\"; there are fillseq, fillrandom, readrandom, mixgraph, mixed, w-a, w-b, w-c, w-d, w-m",
        ),
        (
            &["name=fillseq", "key_size=17"],
            "workload.key_size: 17 B; a key has 1 to 16 B",
        ),
        (
            &["name=fillrandom", "key_size=1"],
            "workload.key_size: 1 B cannot name 1000000 pairs; at most 256",
        ),
        (
            &[
                "name=mixgraph",
                "mix_get_ratio=0",
                "mix_put_ratio=0",
                "mix_seek_ratio=0",
            ],
            "workload.mix_get_ratio: the three mix ratios sum to nothing",
        ),
        (
            &["preset=prefix_random", "num=29"],
            "workload.keyrange_num: 30 ranges of 29 keys; at most one a key",
        ),
    ];
    for (sets, expected) in cases {
        assert_eq!(try_build(sets).err().unwrap(), *expected);
    }
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

/// The same on every machine and in every build: random streams, Pareto table and key layouts are part of it.
#[test]
fn first_operations() {
    let mut text = String::new();
    for row in WORKLOADS {
        let mut workload = build(&[&format!("name={}", row.name)]);
        text.push_str(row.name);
        text.push('\n');
        for _ in 0..4 {
            let line = match workload.next() {
                Op::Store { key, value } => {
                    format!("store {key:?} {} B v{}", value.bytes, value.version)
                }
                other => format!("{other:?}"),
            };
            text.push_str(&format!("  {line}\n"));
        }
    }
    insta::assert_snapshot!(text, @r#"
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
    "#);
}
