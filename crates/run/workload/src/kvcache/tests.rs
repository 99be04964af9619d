//! Checks the published traces against the hits on which two independent programs agree, and the handling of
//! invalid requests.

use super::cache::{Admission, Cache};
use super::eviction::POLICIES;
use super::requests::Requests;

/// `(prefix, any)` hits of a trace, root first.
fn hits(trace: &str, policy: &str, capacity: Option<u64>, admission: Admission) -> (u64, u64) {
    let row = POLICIES.iter().find(|row| row.name == policy).unwrap();
    let mut cache = Cache::new(capacity, admission, (row.build)(capacity.unwrap_or(u64::MAX)));
    let mut requests = Requests::open(trace).unwrap();
    while let Some(request) = requests.next().unwrap() {
        cache.look_up(&request.blocks);
        for &block in &request.blocks {
            cache.pass(block);
        }
    }
    let counts = cache.counters();
    assert_eq!(counts.asked, counts.any_hits + counts.stores + counts.not_admitted);
    (counts.prefix_hits, counts.any_hits)
}

#[test]
fn hits_of_the_conversation_trace_are_those_of_two_independent_programs() {
    let table = [
        (1_000, (12_831, 12_831), (12_509, 12_559), 13_871),
        (10_000, (60_921, 60_921), (52_351, 53_812), 38_013),
        (100_000, (104_924, 104_924), (102_794, 103_651), 104_755),
    ];
    for (capacity, lru, fifo, lfu) in table {
        let of = |policy| hits("conversation", policy, Some(capacity), Admission::All);
        assert_eq!(of("lru"), lru, "lru of {capacity}");
        assert_eq!(of("fifo"), fifo, "fifo of {capacity}");
        assert_eq!(of("lfu").1, lfu, "lfu of {capacity}");
    }
    assert_eq!(hits("conversation", "lru", None, Admission::All), (105_710, 105_710));
}

#[test]
fn hits_of_the_synthetic_trace_are_those_of_two_independent_programs() {
    let table =
        [(1_000, 10_050, 9_597, 4_885), (10_000, 51_614, 48_633, 43_602), (50_000, 77_953, 77_953, 77_953)];
    for (capacity, lru, fifo, lfu) in table {
        let of = |policy| hits("synthetic", policy, Some(capacity), Admission::All).1;
        assert_eq!((of("lru"), of("fifo"), of("lfu")), (lru, fifo, lfu), "{capacity}");
    }
}

#[test]
fn a_block_that_is_stored_on_its_second_use_is_found_on_its_third() {
    let row = &POLICIES[0];
    let mut cache = Cache::new(None, Admission::SecondUse, (row.build)(u64::MAX));
    for found in [0, 0, 1, 1] {
        assert_eq!(cache.look_up(&[5]), found);
        cache.pass(5);
    }
    assert_eq!((cache.counters().stores, cache.counters().not_admitted), (1, 1));
}

#[test]
fn a_line_that_lies_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lies.jsonl");
    let good = r#"{"timestamp": 5, "input_length": 513, "output_length": 1, "hash_ids": [0, 1]}"#;
    for (bad, why) in [
        (
            r#"{"timestamp": 5, "input_length": 513, "output_length": 1, "hash_ids": [0]}"#,
            "hash_ids: 1 blocks",
        ),
        (
            r#"{"timestamp": 4, "input_length": 1, "output_length": 1, "hash_ids": [0]}"#,
            "timestamp: 4 after 5",
        ),
        (r#"{"timestamp": -1}"#, "invalid value"),
        ("no JSON", "expected"),
    ] {
        std::fs::write(&path, format!("{good}\n{bad}\n")).unwrap();
        let mut requests = Requests::open(path.to_str().unwrap()).unwrap();
        assert!(requests.next().is_ok());
        let problem = requests.next().unwrap_err();
        assert!(problem.contains("line 2") && problem.contains(why), "{problem}");
    }
}
