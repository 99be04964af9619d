//! Counters: the declarations at fields, and the handling of values.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use kvdrive_declare::{By, Counters, Counts, Form, Kind, Sections, Unit};
use serde_json::json;

const PURPOSES: By = By {
    label: "purpose",
    places: 4,
    name_of: |place| ["value", "other", "index", "other"][place],
    is_sparse: true,
};

#[derive(Default, Counters)]
#[counters(prefix = "log_")]
struct Log {
    /// Pages programmed,
    /// whatever for.
    #[counter(by = &PURPOSES)]
    programs: [Cell<u64>; 4],
    /// Time of that.
    #[counter(modelled)]
    program_ns: u64,
    /// Pages that are free.
    #[counter(name = "free", state)]
    free_pages: u32,
    /// The most that waited.
    #[counter(maximum, unit = Bytes)]
    longest: AtomicU64,
    /// Segments, of a log that has some.
    segments: Option<u64>,
    #[counter(skip)]
    _unseen: u64,
}

#[derive(Counters)]
struct Other {
    /// Of the same name as one of a log.
    log_free: u64,
}

#[derive(Counters)]
#[allow(dead_code)]
enum Count {
    /// Requests.
    Requests,
    /// Containers that were full.
    #[counter(maximum)]
    FullByCount,
}

fn log(programs: [u64; 4], free_pages: u32, longest: u64) -> Counts {
    let log = Log { free_pages, longest: longest.into(), program_ns: 5, ..Log::default() };
    log.programs.iter().zip(programs).for_each(|(cell, count)| cell.set(count));
    log.counts()
}

#[test]
fn a_counter_has_what_its_field_declares() {
    let declared: Vec<_> = Log::COUNTERS
        .iter()
        .map(|counter| (counter.name, counter.unit, counter.kind, counter.form, counter.by.is_some()))
        .collect();
    assert_eq!(declared[0], ("log_programs", Unit::None, Kind::Counted, Form::Sum, true));
    assert_eq!(declared[1], ("log_program_ns", Unit::Ns, Kind::Modelled, Form::Sum, false));
    assert_eq!(declared[2], ("free", Unit::None, Kind::Counted, Form::State, false));
    assert_eq!(declared[3], ("log_longest", Unit::Bytes, Kind::Counted, Form::Maximum, false));
    assert_eq!(declared.len(), 5);
    assert_eq!(Log::COUNTERS[0].help, "Pages programmed, whatever for.");
    let of_enum: Vec<_> = Count::COUNTERS.iter().map(|counter| (counter.name, counter.form)).collect();
    assert_eq!(of_enum, [("requests", Form::Sum), ("full_by_count", Form::Maximum)]);
}

#[test]
fn sums_are_differences_and_states_are_as_they_are() {
    let run = log([5, 1, 2, 3], 7, 9).since(&log([3, 1, 0, 0], 11, 8));
    let shown = json!({
        "log_programs": {"total": 7, "value": 2, "other": 3, "index": 2},
        "log_program_ns": 0, "free": 7, "log_longest": 9,
    });
    assert_eq!(serde_json::to_value(&run).unwrap(), shown);
    // A counter that began later counts from 0, and a value of 0 has no label.
    let run = log([5, 0, 0, 0], 7, 9).since(&Counts::default());
    assert_eq!(serde_json::to_value(&run).unwrap()["log_programs"], json!({"total": 5, "value": 5}));
    assert_eq!((run.get("log_programs.index"), run.get("log_programs.none")), (Some(0), None));
    assert_eq!((run.get("log_segments"), run.of("log_programs")), (None, 5));
}

#[test]
fn a_value_is_read_back_from_its_json() {
    let read = |counter: usize, json| {
        let mut counts = Counts::default();
        counts.put_json(&Log::COUNTERS[counter], &json).map(|()| counts)
    };
    let programs = json!({"total": 7, "other": 5, "index": 2});
    let counts = read(0, programs.clone()).unwrap();
    assert_eq!(serde_json::to_value(&counts).unwrap(), json!({"log_programs": programs}));
    assert_eq!((counts.of("log_programs.value"), counts.of("log_programs.other")), (0, 5));
    assert_eq!(read(3, json!(9)).unwrap().of("log_longest"), 9);
    for (counter, json, problem) in [
        (0, json!({"total": 3, "others": 3}), "log_programs has no purpose others"),
        (0, json!({"total": 3, "other": 2}), r#"log_programs: {"total":3,"other":2} has another total"#),
        (0, json!(3), "log_programs: 3 has no labels"),
        (3, json!(-3), "log_longest: -3 is no number"),
        (
            0,
            json!({"total": 0, "other": 1_u64 << 63, "index": 1_u64 << 63}),
            "log_programs: {\"total\":0,\"other\":9223372036854775808,\"index\":9223372036854775808} is more together \
             than a counter holds",
        ),
    ] {
        assert_eq!(read(counter, json), Err(problem.to_owned()));
    }
}

/// Places with the same label are joined to one value, and so are all labels to the total: by sum for sums,
/// by maximum for maxima.
#[test]
fn values_are_joined_as_the_form_of_their_counter_says() {
    #[derive(Counters)]
    struct Longest {
        /// The most that waited.
        #[counter(maximum, by = &PURPOSES)]
        longest: [u64; 4],
    }
    let longest = Longest { longest: [1, 7, 2, 5] }.counts();
    assert_eq!((longest.of("longest.other"), longest.of("longest")), (7, 7));
    let sums = log([1, 7, 2, 5], 0, 0);
    assert_eq!((sums.of("log_programs.other"), sums.of("log_programs")), (12, 15));
}

#[test]
fn a_section_is_there_if_something_is_counted_there() {
    let mut sections = Sections::default().with("log", log([1; 4], 1, 1)).with("none", Counts::default());
    assert_eq!(
        (sections.get("log.free"), sections.get("none.free"), sections.get("log")),
        (Some(1), None, None)
    );
    sections.set("log", Counts::default());
    assert_eq!(serde_json::to_value(&sections).unwrap(), json!({}));
}

#[test]
#[should_panic(expected = "two counters are called log_free")]
fn a_name_is_there_once() {
    #[derive(Counters)]
    struct Free {
        /// Pages that are free.
        log_free: u64,
    }
    _ = Free { log_free: 1 }.counts().and(&Other { log_free: 1 });
}

#[test]
#[should_panic(
    expected = "log_program: no such counter; there are log_programs, log_program_ns, free, log_longest"
)]
fn a_wrong_name_is_told_the_right_ones() {
    log([0; 4], 0, 0).of("log_program");
}
