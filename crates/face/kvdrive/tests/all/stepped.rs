//! Drives whose time the caller moves.

use std::collections::BTreeMap;

use kvdrive::stepped::{Completion, Op, Stepped, Value};
use kvdrive::workload::{self, KeyFormat, Row, ValueSpec, Workload, WorkloadParams};
use kvdrive::{Builder, Error, Image, Status};
use kvdrive_sim::{Histogram, Summary};

const RATE_PER_S: u64 = 170_000;
const OPS: u64 = 4_000;
const LOADED: u64 = 500;

/// Operation `n` of the load: a store, a retrieve or a delete of one of some keys.
fn drawn(n: u64) -> (u64, Option<u32>, bool) {
    let key = n * n % 701;
    match n % 5 {
        0 | 3 => (key, Some(100 + (n * 37 % 9_000) as u32), false),
        4 if n.is_multiple_of(3) => (key, None, true),
        _ => (key, None, false),
    }
}

struct Load(KeyFormat, u64);

impl Workload for Load {
    fn next(&mut self) -> workload::Op {
        let (n, key) = (self.1, self.0.key(drawn(self.1).0));
        self.1 += 1;
        match drawn(n) {
            (_, Some(bytes), _) => workload::Op::Store { key, value: ValueSpec { bytes, version: n } },
            (_, None, true) => workload::Op::Delete { key },
            _ => workload::Op::Retrieve { key },
        }
    }

    fn preload(&self) -> u64 {
        LOADED
    }

    fn preload_pair(&self, index: u64) -> (kvdrive::Key, ValueSpec) {
        (self.0.key(index), ValueSpec { bytes: 2_000, version: 1 << 40 })
    }
}

fn build(_: &WorkloadParams, _: u64) -> Result<Box<dyn Workload>, String> {
    Ok(Box::new(Load(KeyFormat::new(4, OPS)?, 0)))
}

static LOAD: Row = Row { name: "stepped", origin: "for a comparison", own_sizes: true, build, ..Row::PLAIN };

fn submit_load(drive: &mut Stepped) -> Vec<(&'static str, u64)> {
    let format = KeyFormat::new(4, OPS).unwrap();
    drive.load((0..LOADED).map(|index| format.key(index).to_vec()), 2_000).unwrap();
    let submit = |n: u64| {
        let ((key, size, deletes), at) = (drawn(n), n * 1_000_000_000 / RATE_PER_S);
        let (kind, op) = match size {
            Some(bytes) => ("store", Op::Store(Value::Size(bytes))),
            None if deletes => ("delete", Op::Delete),
            None => ("retrieve", Op::Retrieve { keep: false }),
        };
        assert_eq!(drive.submit(at, op, &format.key(key).to_vec()).unwrap(), n);
        (kind, at)
    };
    (0..OPS).map(submit).collect()
}

fn latencies(ended: &[Completion], submitted: &[(&'static str, u64)]) -> BTreeMap<&'static str, Summary> {
    let mut all = BTreeMap::<_, Histogram>::new();
    for ended in ended {
        let (kind, at) = submitted[ended.id as usize];
        all.entry(kind).or_default().record(ended.ended_at_ns - at);
    }
    all.into_iter().map(|(kind, latencies)| (kind, latencies.summary())).collect()
}

fn sized(profile: &str, depth: u32, capacity: &str) -> Builder {
    kvdrive::build().profile(profile).capacity(capacity).set("host.depth", depth)
}

fn small(profile: &str, depth: u32) -> Builder {
    sized(profile, depth, "1GiB")
}

#[test]
fn the_same_load_at_the_same_times_is_that_of_a_run() {
    for (profile, depth) in [("pm983", 8), ("cosmos-plus", 32), ("kvvirt", 1)] {
        let described = small(profile, depth);
        let with = |key: &str, value: String| described.clone().set(key, value);
        let run = with("workload.ops", OPS.to_string())
            .set("host.think_ns", 0)
            .set("workload.rate_per_s", RATE_PER_S);
        let report = run.set("workload.timed_load", false).run(&LOAD).unwrap();
        let mut drive = described.stepped().unwrap();
        let submitted = submit_load(&mut drive);
        let ended = drive.advance(u64::MAX >> 1).unwrap();
        assert_eq!(ended.len() as u64, OPS, "{profile}");
        let found = latencies(&ended, &submitted);
        for (kind, summary) in &found {
            let count = report.ops.by_name().into_iter().find(|(name, _)| name == kind).unwrap().1;
            let latency = report.latency_ns.get(kind).unwrap();
            assert_eq!(summary.count, count, "{profile}, {kind}");
            let run = (latency.mean, latency.p50, latency.p99, latency.p999, latency.max);
            assert_eq!(
                (summary.mean, summary.p50, summary.p99, summary.p999, summary.max),
                run,
                "{profile}, {kind}"
            );
        }
        let lost = ended.iter().filter(|ended| ended.status == Status::KEY_NOT_FOUND).count() as u64;
        assert_eq!(lost, report.not_found.get("retrieve").copied().unwrap_or(0), "{profile}");
        assert!(lost > 0 && found.len() == 3);
    }
}

#[test]
fn results_do_not_depend_on_the_steps_of_time() {
    let described = small("pm983", 8);
    let whole = {
        let mut drive = described.stepped().unwrap();
        submit_load(&mut drive);
        drive.advance(100_000_000).unwrap()
    };
    assert_eq!(whole.len() as u64, OPS);
    let mut drive = described.stepped().unwrap();
    submit_load(&mut drive);
    let mut cut = Vec::new();
    for until in (0..=100_000_000).step_by(7_919) {
        cut.extend(drive.advance(until).unwrap());
        assert_eq!(drive.now_ns(), until);
        assert_eq!(drive.under_way(), OPS - cut.len() as u64);
    }
    assert!(cut == whole);
    let mut drive = described.stepped().unwrap();
    submit_load(&mut drive);
    let (mut one_by_one, mut stops) = (Vec::new(), 0);
    while drive.under_way() > 0 {
        let ended = drive.advance_to_next(100_000_000).unwrap();
        assert!(ended.iter().all(|ended| ended.ended_at_ns == drive.now_ns()));
        one_by_one.extend(ended);
        stops += 1;
    }
    assert!(one_by_one == whole && stops > OPS * 9 / 10, "{stops}");
}

#[test]
fn time_that_is_over_is_refused_and_nothing_changes() {
    let mut drive = small("pm983", 8).stepped().unwrap();
    assert_eq!((drive.now_ns(), drive.next_event_ns()), (0, None));
    assert_eq!(drive.advance(5_000).unwrap(), []);
    let past = |call, at_ns| Error::TimePassed { call, at_ns, now_ns: 5_000 };
    assert_eq!(drive.advance(4_999), Err(past("advance", 4_999)));
    assert_eq!(drive.advance_to_next(0), Err(past("advance", 0)));
    assert_eq!(drive.submit(4_999, Op::Exist, b"k"), Err(past("submit", 4_999)));
    assert_eq!(past("submit", 3).to_string(), "submit: 3 ns is over; the drive stands at 5000 ns");
    assert_eq!(drive.submit(9_000, Op::Exist, b""), Err(Error::KeySize(0)));
    let most = drive.namespace().value_max_bytes;
    let large = drive.submit(9_000, Op::Store(Value::Size(most + 1)), b"k");
    assert!(matches!(large, Err(Error::ValueSize { .. })), "{large:?}");
    assert_eq!((drive.under_way(), drive.now_ns()), (0, 5_000));
    assert_eq!(drive.submit(9_000, Op::Exist, b"k"), Ok(0), "refused commands have no number");
    assert_eq!(drive.submit(7_000, Op::Exist, b"l"), Ok(1));
    assert_eq!(drive.next_event_ns(), Some(7_000));
    assert_eq!(drive.advance(5_000).unwrap(), []);
    let ended = drive.advance(1_000_000).unwrap();
    assert_eq!(ended.iter().map(|ended| ended.id).collect::<Vec<_>>(), [1, 0], "in the order of time");
    assert!(ended.iter().all(|ended| ended.status == Status::KEY_NOT_FOUND));
}

#[test]
fn more_commands_than_places_wait_in_their_order() {
    let answered = |depth: u32| {
        let mut drive = small("pm983", depth).stepped().unwrap();
        drive.fill(0.1, 4_096).unwrap();
        for n in 0..2_000_u64 {
            drive.submit(0, Op::Retrieve { keep: false }, &(n * 7).to_be_bytes()).unwrap();
        }
        let mut most = 0;
        let mut ended = Vec::new();
        while drive.under_way() > 0 {
            ended.extend(drive.advance_to_next(u64::MAX >> 1).unwrap());
            most = most.max(drive.now_ns());
        }
        assert!(ended.iter().all(|ended| (ended.status, ended.value_bytes) == (Status::SUCCESS, 4_096)));
        (ended.iter().map(|ended| ended.id).collect::<Vec<_>>(), most)
    };
    let ((order, alone), (_, many)) = (answered(1), answered(64));
    assert!(order.is_sorted() && order.len() == 2_000, "one at a time, in the order of submission");
    assert!(many * 8 < alone, "64 at once end in {many} ns, one at a time in {alone}");
    let refused = small("pm983", 64).set("host.queue_entries", 64).stepped().map(drop).unwrap_err();
    assert!(refused.to_string().contains("host.depth"), "{refused}");
}

#[test]
fn values_come_back_as_they_were_stored() {
    for media in ["tags", "ram"] {
        let mut drive = small("cosmos-plus", 8).set("media.kind", media).stepped().unwrap();
        let bytes: Vec<u8> = (0..5_000_u32).map(|index| (index * 7) as u8).collect();
        let name = b"a name of more than 16 bytes";
        drive.submit(0, Op::Store(Value::Bytes(bytes.clone())), name).unwrap();
        drive.submit(0, Op::Store(Value::Size(3_000)), b"size").unwrap();
        drive.advance(10_000_000).unwrap();
        for (key, keep) in [(&name[..], true), (b"size", true), (b"size", false), (b"none", true)] {
            drive.submit(20_000_000, Op::Retrieve { keep }, key).unwrap();
        }
        drive.submit(40_000_000, Op::Delete, name).unwrap();
        drive.submit(60_000_000, Op::Exist, name).unwrap();
        let mut ended = drive.advance(80_000_000).unwrap();
        ended.sort_by_key(|ended| ended.id);
        let found = |place: usize| {
            (ended[place].status, ended[place].value_bytes, ended[place].value.as_ref().map(Vec::len))
        };
        assert_eq!(ended[0].value.as_ref(), Some(&bytes));
        assert_eq!(found(1), (Status::SUCCESS, 3_000, Some(3_000)));
        assert_eq!(found(2), (Status::SUCCESS, 3_000, None));
        assert_eq!(found(3), (Status::KEY_NOT_FOUND, 0, None));
        assert_eq!((found(4).0, found(5).0), (Status::SUCCESS, Status::KEY_NOT_FOUND));
        assert!(drive.numbers().of("drive.commands") >= 8);
    }
}

/// Retrieves after which stores come, of a drive that `fill` has filled.
fn mixed(drive: &mut Stepped, pairs: u64) -> Vec<Completion> {
    let start = drive.now_ns();
    for n in 0..600 {
        let (key, at) = ((n * 13 % pairs).to_be_bytes(), start + n * 3_000);
        let op = if n % 3 == 0 { Op::Store(Value::Size(8_192)) } else { Op::Retrieve { keep: false } };
        drive.submit(at, op, &key).unwrap();
    }
    drive.advance(start + 1_000_000_000).unwrap()
}

#[test]
fn a_loaded_drive_is_kept_and_opened_many_times() {
    let described = small("pm983", 8);
    let mut loaded = described.stepped().unwrap();
    let pairs = loaded.fill(0.5, 8_192).unwrap();
    let (used, capacity) = (loaded.namespace().used_bytes, loaded.namespace().capacity_bytes);
    assert_eq!(used, pairs * 8_192);
    assert!((used as f64 / capacity as f64 - 0.5).abs() < 0.01, "{used} of {capacity}");
    assert_eq!(loaded.now_ns(), 0, "loading takes no time");
    loaded.submit(9, Op::Exist, &0_u64.to_be_bytes()).unwrap();
    let busy = loaded.image().map(drop);
    assert_eq!(busy, Err(Error::Refused("image: 1 commands have not ended".into())));
    loaded.advance(1_000_000).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("half.image");
    loaded.image().unwrap().save(&path).unwrap();
    let image = Image::read(&path).unwrap();
    let answers = |image: &Image| {
        let mut drive = described.stepped_from(image).unwrap();
        assert_eq!((drive.now_ns(), drive.namespace().used_bytes), (0, used));
        mixed(&mut drive, pairs)
    };
    let (first, second) = (answers(&image), answers(&image));
    assert!(first.iter().all(|ended| ended.status == Status::SUCCESS) && first.len() == 600);
    assert!(first == second, "the image does not change");

    let other = sized("pm983", 8, "2GiB").stepped_from(&image).map(drop).unwrap_err();
    assert!(matches!(&other, Error::PowerOn(_)), "{other}");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let damaged = Image::read(&path).map(drop).unwrap_err().to_string();
    assert!(damaged.contains("half.image: byte ") && damaged.contains("is damaged"), "{damaged}");
    assert!(Image::from_bytes(b"hello").is_err());
    let file = described.file(folder.path().join("d.img")).stepped().map(drop).unwrap_err();
    assert_eq!(file.setting(), Some("media.kind"));
}

#[test]
fn a_drive_fails_on_command_and_loses_no_acknowledged_store() {
    let described = small("cosmos-plus", 8);
    let mut drive = described.stepped().unwrap();
    let names =
        drive.inject("[[rule]]\nfault = \"status\"\nopcode = \"retrieve\"\nstatus = \"88h\"\nevery = 4\n");
    assert_eq!(names.unwrap().len(), 1);
    drive.fill(0.01, 4_096).unwrap();
    let ended = mixed(&mut drive, 1_000);
    let failed = ended.iter().filter(|ended| ended.status == Status::UNRECOVERED_ERROR).count();
    assert_eq!(failed, 100, "every fourth of 400");
    drive.clear_faults(None).unwrap();
    assert!(drive.clear_faults(Some("status 1")).is_err());
    assert!(drive.inject("[[rule]]\nfault = \"no such\"\n").is_err());
    let error = drive.inject("[[rule]]\nfault = \"stall\"\ndelay_ns = \"1ms\"\n").unwrap_err().to_string();
    assert!(error.contains("stall 1: a stall never strikes here"), "{error}");

    drive
        .inject("[[rule]]\nfault = \"power-cut\"\nat = \"command\"\nopcode = \"store\"\nnth = 40\n")
        .unwrap();
    let start = drive.now_ns();
    for n in 0..100_u64 {
        drive
            .submit(
                start + n * 20_000,
                Op::Store(Value::Size(4_096)),
                &[&b"cut"[..], &n.to_be_bytes()].concat(),
            )
            .unwrap();
    }
    let ended = drive.advance(start + 1_000_000_000).unwrap();
    assert!((30..40).contains(&ended.len()), "{}", ended.len());
    assert_eq!(drive.advance(start + 1_000_000_000), Err(Error::Off));
    assert_eq!(drive.submit(u64::MAX, Op::Delete, b"k"), Err(Error::Off));
    assert_eq!(drive.next_event_ns(), None);
    let mut again = described.stepped_from(&drive.image().unwrap()).unwrap();
    for ended in &ended {
        let n = ended.id - 600;
        again.submit(0, Op::Exist, &[&b"cut"[..], &n.to_be_bytes()].concat()).unwrap();
    }
    let there = again.advance(1_000_000_000).unwrap();
    assert_eq!(there.len(), ended.len());
    assert!(there.iter().all(|ended| ended.status == Status::SUCCESS));
}

#[test]
fn keys_of_a_run_are_refused_and_those_of_the_host_are_not() {
    let refused = |key: &str, value: &str| small("pm983", 8).set(key, value).stepped().map(drop).unwrap_err();
    for (key, value) in
        [("workload.ops", "3"), ("saker.enabled", "true"), ("host.think_ns", "5"), ("run.clock", "wall")]
    {
        assert_eq!(refused(key, value).setting(), Some(key));
    }
    assert_eq!(
        small("pm983", 8).pace(kvdrive::Pace::Jump).stepped().map(drop).unwrap_err().setting(),
        Some("pace")
    );
    let time = |submit_ns: u64| {
        let mut drive =
            small("pm983", 8).set("host.submit_ns", submit_ns).set("host.threads", 2).stepped().unwrap();
        drive.submit(0, Op::Exist, b"k").unwrap();
        drive.advance(1_000_000_000).unwrap()[0].ended_at_ns
    };
    assert_eq!(time(5_000) - time(1_000), 4_000);
}

/// Mappings of this process's memory, of which the system allows 65 530; `None`: it does not say.
fn mappings() -> Option<usize> {
    std::fs::read_to_string("/proc/self/maps").ok().map(|text| text.lines().count())
}

#[test]
fn a_program_has_thousands_of_drives() {
    // A profile of 256 contexts, of which 4 commands use 5.
    let described = sized("pm983", 4, "1GiB");
    let mut loaded = described.stepped().unwrap();
    loaded.fill(0.001, 4_096).unwrap();
    let image = loaded.image().unwrap();
    let before = mappings();
    let mut drives: Vec<Stepped> = (0..400).map(|_| described.stepped_from(&image).unwrap()).collect();
    let mut ends = Vec::new();
    for at in [0, 500_000] {
        for drive in &mut drives {
            for n in 0..6_u64 {
                drive.submit(at, Op::Retrieve { keep: false }, &n.to_be_bytes()).unwrap();
            }
        }
        for drive in &mut drives {
            ends.push(drive.advance(at + 400_000).unwrap());
        }
    }
    if let Some((before, now)) = before.zip(mappings()) {
        assert!(
            (now - before) * 5 < 65_530,
            "{before} and {now} mappings: a program has room for 2 000 such drives"
        );
    }
    assert!(ends.iter().all(|ended| !ended.is_empty()));
    for turn in ends.chunks(drives.len()) {
        assert!(turn.iter().all(|ended| *ended == turn[0]), "drives do not know each other");
    }
}
