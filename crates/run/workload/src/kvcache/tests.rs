//! Checks the published traces against the hits on which two independent programs agree, and the handling of
//! invalid requests.

use super::admission::ADMISSIONS;
use super::cache::{Cache, CacheCounters};
use super::eviction::POLICIES;
use super::models::MODELS;
use super::requests::{Request, Requests};
use super::{TokenCounters, named};

fn cache(policy: &str, capacity: Option<u64>, admission: &str) -> Cache {
    let policy = named("", "", policy, POLICIES, |row| row.name).unwrap();
    let admission = named("", "", admission, ADMISSIONS, |row| row.name).unwrap();
    Cache::new(capacity, (admission.build)(), (policy.build)(capacity.unwrap_or(u64::MAX)))
}

fn counts(trace: &str, policy: &str, capacity: Option<u64>, admission: &str) -> CacheCounters {
    let mut cache = cache(policy, capacity, admission);
    let mut requests = Requests::open(trace).unwrap();
    while let Some(request) = requests.next().unwrap() {
        cache.look_up(&request.blocks);
        for (index, &block) in request.blocks.iter().enumerate() {
            cache.pass(block, request.block_tokens(index));
        }
    }
    let counts = cache.counters();
    assert_eq!(counts.asked, counts.any_hits + counts.stores + counts.not_admitted);
    counts
}

/// `(prefix, any)` hits of a trace, root first, with every block stored.
fn hits(trace: &str, policy: &str, capacity: Option<u64>) -> (u64, u64) {
    let counts = counts(trace, policy, capacity, "all");
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
        let of = |policy| hits("conversation", policy, Some(capacity));
        assert_eq!(of("lru"), lru, "lru of {capacity}");
        assert_eq!(of("fifo"), fifo, "fifo of {capacity}");
        assert_eq!(of("lfu").1, lfu, "lfu of {capacity}");
    }
    assert_eq!(hits("conversation", "lru", None), (105_710, 105_710));
}

#[test]
fn hits_of_the_synthetic_trace_are_those_of_two_independent_programs() {
    let table =
        [(1_000, 10_050, 9_597, 4_885), (10_000, 51_614, 48_633, 43_602), (50_000, 77_953, 77_953, 77_953)];
    for (capacity, lru, fifo, lfu) in table {
        let of = |policy| hits("synthetic", policy, Some(capacity)).1;
        assert_eq!((of("lru"), of("fifo"), of("lfu")), (lru, fifo, lfu), "{capacity}");
    }
}

/// A full block hits as often as if the others were stored, too: nothing is evicted here.
#[test]
fn full_blocks_alone_are_found_as_the_facts_of_both_traces_say() {
    for (trace, hits) in [("conversation", 105_592), ("synthetic", 77_740)] {
        assert_eq!(counts(trace, "lru", None, "full").any_hits, hits, "{trace}");
    }
}

#[test]
fn a_block_that_is_stored_on_its_second_use_is_found_on_its_third() {
    let mut cache = cache("lru", None, "second-use");
    for found in [0, 0, 1, 1] {
        assert_eq!(cache.look_up(&[5]), found);
        cache.pass(5, 512);
    }
    assert_eq!((cache.counters().stores, cache.counters().not_admitted), (1, 1));
}

#[test]
fn a_prefix_saves_the_computing_of_its_own_tokens() {
    let model = &MODELS[0];
    let request =
        Request { timestamp: 0, at_ns: 7_000_000, input_tokens: 1000, output_tokens: 1, blocks: vec![0, 1] };
    let mut counters = TokenCounters::default();
    for found in 0..=2 {
        counters.note(&request, found, model);
    }
    assert_eq!((counters.asked, counters.prefix_hits, counters.trace_ms), (3000, 512 + 1000, 7));
    assert_eq!(counters.prefill_gflop, 3 * model.prefill_gflop(1000));
    assert_eq!(counters.prefill_saved_gflop, model.prefill_gflop(512) + model.prefill_gflop(1000));
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
        (
            r#"{"timestamp": 5, "input_length": 18446744073709551615, "output_length": 1, "hash_ids": [0]}"#,
            "input_length: 18446744073709551615 tokens; at most",
        ),
        (r#"{"timestamp": -1}"#, "invalid value"),
        ("no JSON", "expected {\"timestamp\": .., \"input_length\": "),
        ("0,store,a,1", "got \"0,store,a,1\""),
    ] {
        std::fs::write(&path, format!("{good}\n{bad}\n")).unwrap();
        let mut requests = Requests::open(path.to_str().unwrap()).unwrap();
        assert!(requests.next().is_ok());
        let problem = requests.next().unwrap_err();
        assert!(problem.contains("line 2") && problem.contains(why), "{problem}");
    }
}

/// A trace may count from any beginning and in any unit: its requests count from the first one.
#[test]
fn times_of_requests_count_from_the_first_one_in_every_unit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("epoch.jsonl");
    for (begin, step, name) in [
        (0, 500, None),
        (70_000, 500, None),
        (1_790_000_000_000_u64, 500_u64, Some("milliseconds since 1970")),
        (1_790_000_000_000_000, 500_000, Some("microseconds since 1970")),
        (1_790_000_000_000_000_000, 500_000_000, Some("nanoseconds since 1970")),
    ] {
        let line = |at: u64| {
            format!("{{\"timestamp\":{at},\"input_length\":20,\"output_length\":5,\"hash_ids\":[1]}}\n")
        };
        std::fs::write(&path, line(begin) + &line(begin + step)).unwrap();
        let mut requests = Requests::open(path.to_str().unwrap()).unwrap();
        let times: Vec<_> = (0..2).map(|_| requests.next().unwrap().unwrap().at_ns).collect();
        assert_eq!((times, requests.unit()), (vec![0, 500_000_000], name), "{begin}");
    }
}
