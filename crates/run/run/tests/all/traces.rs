//! User traces: every format, compressed or not, with or without recorded times; errors name the place, and
//! no trace causes a panic.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::run;
use kvdrive_run::wall::{WallOptions, run_wall};
use kvdrive_sim::wall::Pace;
use kvdrive_workload::{FORMATS, Op, build};
use proptest::prelude::*;

pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

pub(crate) fn document(path: &Path, sets: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").unwrap();
    let trace = format!("workload.trace={}", path.display());
    for set in ["workload.name=trace", &trace].iter().chain(sets) {
        document.set(set).unwrap();
    }
    document
}

pub(crate) fn report(path: &Path, sets: &[&str]) -> Report {
    run(&document(path, sets), &|_, _| {}).unwrap()
}

pub(crate) fn error(path: &Path, sets: &[&str]) -> String {
    run(&document(path, sets), &|_, _| {}).unwrap_err().to_string()
}

/// Every operation of a trace in words, and its recorded time.
pub(crate) fn operations(path: &Path, sets: &[&str]) -> Result<Vec<(String, Option<u64>)>, String> {
    let config = document(path, sets).config().unwrap();
    let mut trace = build(&config.workload, 1)?;
    let mut operations = Vec::new();
    while let Some((op, at)) = trace.draw()? {
        let key = op.key().expect("no format has units");
        let key = String::from_utf8_lossy(&key.to_vec()).into_owned();
        let words = match op {
            Op::Store { value, .. } => format!("store {key} {}", value.bytes),
            Op::Retrieve { .. } => format!("retrieve {key}"),
            Op::Delete { .. } => format!("delete {key}"),
            Op::Exist { .. } => format!("exist {key}"),
            Op::Seek { nexts, .. } => format!("seek {key} {nexts}"),
            Op::List { .. } => format!("list {key}"),
            Op::Modify { .. } | Op::Unit { .. } => unreachable!("no format has one"),
        };
        operations.push((words, at));
    }
    Ok(operations)
}

pub(crate) fn words(path: &Path) -> Vec<String> {
    operations(path, &[]).unwrap().into_iter().map(|(words, _)| words).collect()
}

pub(crate) const OURS: &str = "time,op,key,size\n0,store,a,100\n800,get,a,\n# a comment\n\n2us,Put,user17,4KiB\n3us,scan,a,2\n\
                    4us,exist,a,\n5us,list,a,\n1ms,delete,a,\n";

#[test]
fn ours_has_times_operations_keys_and_sizes() {
    let folder = Folder::new();
    let path = folder.file("ours.csv", OURS.as_bytes());
    let expected = [
        ("store a 100", 0),
        ("retrieve a", 800),
        ("store user17 4096", 2000),
        ("seek a 2", 3000),
        ("exist a", 4000),
        ("list a", 5000),
        ("delete a", 1_000_000),
    ];
    let expected = expected.map(|(words, at)| (words.to_owned(), Some(at)));
    assert_eq!(operations(&path, &[]).unwrap(), expected);
    let report = report(&path, &["workload.verify=values"]);
    let ops = &report.ops;
    assert_eq!([ops.store, ops.retrieve, ops.exist, ops.list, ops.seek, ops.delete], [2, 1, 1, 1, 1, 1]);
    assert!(report.verified.unwrap().is_whole() && ops.errors == 0);
    assert!(report.notes[0].ends_with("ours.csv, read as csv"), "{:?}", report.notes);
}

#[test]
fn a_compressed_trace_is_the_same_trace_in_several_pieces_too() {
    let folder = Folder::new();
    let plain = words(&folder.file("plain", OURS.as_bytes()));
    let mut gz = Vec::new();
    for part in [&OURS[..40], &OURS[40..]] {
        let mut encoder = GzEncoder::new(&mut gz, Compression::default());
        encoder.write_all(part.as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    assert_eq!(words(&folder.file("trace.gz", &gz)), plain);
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zst: Vec<u8> = [&OURS[..40], &OURS[40..]]
        .iter()
        .flat_map(|part| ruzstd::encoding::compress_to_vec(part.as_bytes(), level))
        .collect();
    assert_eq!(words(&folder.file("trace.zst", &zst)), plain);
    let cut = operations(&folder.file("cut.gz", &gz[..gz.len() - 12]), &[]).unwrap_err();
    assert!(cut.contains("cut.gz, line "), "{cut}");
    assert!(operations(&folder.file("cut.zst", &zst[..zst.len() - 3]), &[]).is_err());
}

#[test]
fn ycsb_prints_what_it_does_among_other_lines() {
    let folder = Folder::new();
    let text = "***************** properties *****************\n\"workload\"=\"site.ycsb\"\n\
                INSERT usertable user628478 [ field1=a b=c [ field0=123 ]\nREAD usertable user628478 [ <all fields>]\n\
                SCAN usertable user1 57 [ <all fields>]\nUPDATE usertable user628478 [ field3=xyz ]\n\
                DELETE usertable user1\n[OVERALL], RunTime(ms), 12\n";
    let path = folder.file("log", text.as_bytes());
    // "a b=c [" and "123".
    let expected =
        ["store user628478 10", "retrieve user628478", "seek user1 56", "store user628478 3", "delete user1"];
    assert_eq!(words(&path), expected);
    assert!(error(&path, &["workload.arrivals=trace"]).contains("format ycsb has no times"));
}

#[test]
fn twitters_keys_may_have_commas_and_its_times_are_seconds() {
    let folder = Folder::new();
    let text = "0,nz:u:eeW,10,16,1,get,0\n0,nz,u,10,1024,2,set,86400\n3,nz:u:eeW,10,0,1,delete,0\n3,k,1,7,1,incr,0\n";
    let path = folder.file("cluster.csv", text.as_bytes());
    let expected = [
        ("retrieve nz:u:eeW", 0),
        ("store nz,u 1024", 0),
        ("delete nz:u:eeW", 3_000_000_000),
        ("store k 7", 3_000_000_000),
    ];
    let expected = expected.map(|(words, at)| (words.to_owned(), Some(at)));
    assert_eq!(operations(&path, &[]).unwrap(), expected);
    let at_times = report(&path, &["workload.arrivals=trace"]);
    assert!((3_000_000_000..3_001_000_000).contains(&at_times.time.virtual_ns), "{:?}", at_times.time);
    assert!(report(&path, &[]).time.virtual_ns < 10_000_000, "closed loop");
}

#[test]
fn metas_columns_are_known_by_their_heading_and_a_line_may_be_several_operations() {
    let folder = Folder::new();
    let path = folder
        .file("kv.csv", b"key,op,size,op_count,key_size\n1,SET,200,1,8\n1,GET,200,3,8\n1,DELETE,0,1,8\n");
    assert_eq!(words(&path), ["store 1 200", "retrieve 1", "retrieve 1", "retrieve 1", "delete 1"]);
    let path = folder.file("kv2.csv", b"op_time,key,key_size,op,op_count,size,cache_hits,ttl\n5,7,4,GET_LEASE,1,0,1,0\n6,7,4,SET,1,33,0,0\n");
    let expected = [("retrieve 7".to_owned(), Some(0)), ("store 7 33".to_owned(), Some(1_000_000_000))];
    assert_eq!(operations(&path, &[]).unwrap(), expected);
}

/// A string as RocksDB writes it, with its length before it.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = match bytes.len() {
        length @ 0..0x80 => vec![length as u8],
        length => vec![length as u8 | 0x80, (length >> 7) as u8],
    };
    [&length[..], bytes].concat()
}

/// A batch of the writes that newer versions of RocksDB have: entities of columns, timed puts, timestamps.
fn wide_batch() -> Vec<u8> {
    [
        &[0; 8][..],
        &5u32.to_le_bytes(),
        &[0x16],
        &string(b"wide"),
        &string(&[7; 50]),
        &[0x17, 3],
        &string(b"wider"),
        &string(&[7; 60]),
        &[0x18],
        &string(b"timed"),
        &string(&[7; 30 + 8]),
        &[0x19, 3],
        &string(b"timely"),
        &string(&[7; 20 + 8]),
        &[0x14],
        &string(b"stamped"),
    ]
    .concat()
}

/// A trace of RocksDB with a batch of two writes, gets and a seek.
fn rocksdb(version: &str) -> Vec<u8> {
    let has_flags = version != "0.1";
    let record = |micros: u64, kind: u8, payload: &[u8]| {
        [&micros.to_le_bytes()[..], &[kind], &(payload.len() as u32).to_le_bytes(), payload].concat()
    };
    let flagged = |flags: u64, payload: Vec<u8>| {
        if has_flags { [&flags.to_le_bytes()[..], &payload].concat() } else { payload }
    };
    let batch = [
        &[0; 8][..],
        &2u32.to_le_bytes(),
        &[1],
        &string(b"key"),
        &string(&[7; 100]),
        &[0x05, 3],
        &string(b"other"),
        &string(b"v"),
        &[0x08, 3],
        &string(b"gone"),
        &[0x0f],
        &string(b"a"),
        &string(b"b"),
        &[0x03],
        &string(b"for the log"),
        &[0x15],
        &string(b"12345678"),
        &string(b"transaction"),
    ]
    .concat();
    let wide = wide_batch();
    let key = |key: &[u8]| [&0u32.to_le_bytes()[..], &string(key)].concat();
    let head = format!(
        "feedcafedeadbeef\tTrace Version: {version}\tRocksDB Version: 6.20\tFormat: Timestamp OpType Payload\n"
    );
    let batch = if has_flags { flagged(1 << 1, string(&batch)) } else { batch };
    let mut trace = [
        record(1_000_000, 1, head.as_bytes()),
        record(1_000_010, 3, &batch),
        record(1_000_020, 4, &flagged(1 << 2 | 1 << 3, key(b"key"))),
        record(1_000_030, 5, &flagged(1 << 4 | 1 << 5, key(b"k"))),
    ]
    .concat();
    if has_flags {
        let keys = string(&[string(b"key"), string(b"other")].concat());
        let gets = [&2u32.to_le_bytes()[..], &string(&[0; 8]), &keys].concat();
        trace.extend(record(1_000_040, 13, &flagged(1 << 8 | 1 << 9 | 1 << 10, gets)));
        trace.extend(record(1_000_045, 3, &flagged(1 << 1, string(&wide))));
    }
    trace.extend(record(1_000_050, 2, b"Trace end."));
    trace
}

#[test]
fn rocksdbs_trace_is_read_in_both_its_versions() {
    let folder = Folder::new();
    let first =
        ["store key 100", "store other 1", "delete gone", "retrieve key", "seek k 0"].map(str::to_owned);
    let old = folder.file("old", &rocksdb("0.1"));
    assert_eq!(words(&old), first);
    let path = folder.file("trace", &rocksdb("0.2"));
    let found = words(&path);
    assert_eq!(found[..5], first);
    assert_eq!(found[5..7], ["retrieve key", "retrieve other"]);
    let wide = ["store wide 50", "store wider 60", "store timed 30", "store timely 20", "delete stamped"];
    assert_eq!(found[7..], wide);
    let notes = report(&path, &[]).notes;
    assert!(notes.contains(&"skipped: 1 range delete".to_owned()), "{notes:?}");
    let twice = folder.file("twice", &[rocksdb("0.2"), rocksdb("0.1")].concat());
    assert_eq!(words(&twice), [&found[..], &first].concat(), "a trace behind a trace");
    let moments: Vec<_> = operations(&path, &[]).unwrap().into_iter().map(|(_, at)| at.unwrap()).collect();
    assert_eq!(moments[..7], [0, 0, 0, 10_000, 20_000, 30_000, 30_000]);
    let cut = rocksdb("0.2");
    let error = operations(&folder.file("cut", &cut[..cut.len() - 30]), &[]).unwrap_err();
    assert!(error.contains("cut, record 6: the file ends in the middle of it"), "{error}");
}

#[test]
fn a_key_that_is_too_long_stands_by_its_digest_and_the_report_says_so() {
    let folder = Folder::new();
    let text = "0,store,short,10\n0,store,a-key-of-more-than-16-bytes,20\n0,get,a-key-of-more-than-16-bytes,\n\
                0,get,a-key-of-more-than-16-bytez,\n";
    let report = report(&folder.file("long.csv", text.as_bytes()), &[]);
    assert_eq!(report.value_bytes.retrieved, 20, "its own digest and no other's");
    let note = report.notes.iter().find(|note| note.contains("digest")).unwrap();
    assert!(note.ends_with("long.csv, line 2"), "{note}");
}

#[test]
fn what_is_wrong_names_the_file_and_the_line_and_what_was_done_is_not_reported() {
    let folder = Folder::new();
    let with = |line: &str| folder.file("bad.csv", format!("0,store,a,1\n{line}\n").as_bytes());
    for (line, problem) in [
        ("0,store,a", "bad.csv, line 2: size: expected an integer"),
        ("0,steal,a,1", "bad.csv, line 2: no operation \"steal\"; there are store, retrieve"),
        ("0,store,,1", "bad.csv, line 2: an empty key"),
        ("0,store,a,99999999999", "bad.csv, line 2: size: 99999999999 is too large"),
        ("-5,store,a,1", "bad.csv, line 2: time: -5 is below 0"),
        ("hello", "bad.csv, line 2: expected time,op,key,size, got \"hello\""),
    ] {
        let error = error(&with(line), &[]);
        assert!(error.contains(problem), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let path = with("0,get,a,");
    assert!(
        error(&path, &["workload.trace_format=tsv"])
            .starts_with("workload.trace_format: no format of traces")
    );
    assert!(error(Path::new("/no/such/trace"), &[]).starts_with("workload.trace: /no/such/trace: "));
}

#[test]
fn a_trace_ends_a_run_before_its_operations_and_is_cut_by_them() {
    let folder = Folder::new();
    let lines: String = (0..500).map(|n| format!("{n}000,store,key{n},64\n")).collect();
    let path = folder.file("trace", lines.as_bytes());
    assert_eq!(report(&path, &["host.depth=8"]).ops.store, 500);
    assert_eq!(report(&path, &["workload.ops=20"]).ops.store, 20);
    // The configuration keeps the number of operations that was set, even if a trace may have fewer.
    let said = document(&path, &["workload.ops=1M"]).config().unwrap();
    assert_eq!(said.workload.ops, 1_000_000);
    // A busy drive begins operations late; latencies include that delay.
    let busy = report(&path, &["workload.arrivals=trace"]);
    assert!(busy.latency_ns.get("store").unwrap().max > 1_000_000, "{:?}", busy.latency_ns);
}

#[test]
fn formats_are_known_by_their_beginning() {
    let folder = Folder::new();
    for row in FORMATS {
        let report = report(&folder.file(row.name, row.example), &[]);
        assert!(report.notes[0].ends_with(&format!(", read as {}", row.name)), "{:?}", report.notes);
        assert!(report.ops.total() > 0, "{}", row.name);
    }
}

/// The last line or record of each format's example is cut: other lines follow, or the file ends there.
#[test]
fn a_line_that_is_cut_in_its_middle_is_refused_by_its_place_in_every_format() {
    let folder = Folder::new();
    for row in FORMATS {
        let format = format!("workload.trace_format={}", row.name);
        let whole = row.example.trim_ascii_end();
        let last_at = whole.iter().rposition(|byte| *byte == b'\n').map_or(whole.len() / 2, |at| at + 1);
        let (before, last) = whole.split_at(last_at);
        let all = operations(&folder.file("whole", row.example), &[&format]).unwrap();
        for rest in [&b""[..], b"\n", b"\n# and more\n"] {
            let path = folder.file("cut", &[before, &last[..last.len() / 2], rest].concat());
            if row.ends_anywhere {
                let ended = operations(&path, &[&format]).map(|played| played.len());
                assert!(ended.is_err() || ended < Ok(all.len()), "{}: {ended:?}", row.name);
                continue;
            }
            let config = document(&path, &[&format]).config().unwrap();
            let (mut played, mut problem) = (Vec::new(), None);
            match build(&config.workload, 1) {
                Err(error) => problem = Some(error),
                Ok(mut trace) => {
                    while problem.is_none() {
                        match trace.draw() {
                            Ok(Some((op, _))) => played.push(op),
                            Ok(None) => panic!("{}: {rest:?}: the cut line was accepted", row.name),
                            Err(error) => problem = Some(error),
                        }
                    }
                }
            }
            let problem = problem.expect("it did not end otherwise");
            assert!(played.len() < all.len(), "{}: {played:?}", row.name);
            let [line, record] = ["line", "record"].map(|unit| format!("/cut, {unit} "));
            assert!(problem.contains(&line) || problem.contains(&record), "{}: {problem}", row.name);
            assert_eq!(problem.lines().count(), 1, "{}: {problem}", row.name);
            // The run as a whole: an error instead of a report.
            assert_eq!(error(&path, &[&format]), problem, "{}", row.name);
        }
    }
}

/// What is left of such a line would be an operation on another key, or one of another size.
#[test]
fn what_is_left_of_a_cut_line_is_no_operation() {
    let folder = Folder::new();
    let insert = "INSERT usertable user1 [ field0=abc ]\n";
    let meta = "key,op,size,op_count,key_size\n1,SET,200,1,8\n";
    for (format, before, cut, reason) in [
        ("ycsb", insert, "READ usertable us", "expected [ and ] after the key"),
        ("ycsb", insert, "READ usertable user1 [ <all fie", "expected [ and ] after the key"),
        ("ycsb", insert, "UPDATE usertable user1 [ field0=ab", "expected [ and ] after the key"),
        ("ycsb", insert, "SCAN usertable user1 5", "expected [ and ] after the key"),
        ("meta", meta, "1,GET,2", "3 of 5 fields"),
        ("meta", meta, "1,SET,200,1", "4 of 5 fields"),
        ("twitter", "0,nz,10,16,1,get,0\n", "1,nz,10,1024,2,set", "expected time,key,key size"),
        ("csv", "0,store,a,9\n", "1,store,user17", "size: expected an integer"),
    ] {
        let path = folder.file("cut", format!("{before}{cut}").as_bytes());
        let format = format!("workload.trace_format={format}");
        let line = error(&path, &[&format]);
        assert!(line.contains("/cut, line ") && line.contains(reason), "{cut}: {line}");
    }
}

fn read_all(format: &str, bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.file("bytes", bytes);
    let format = format!("workload.trace_format={format}");
    // Operations, then an end or one line of error.
    if let Err(error) = operations(&path, &[&format]) {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn bytes_of_any_kind_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for row in FORMATS {
            read_all(row.name, &bytes);
        }
    }

    /// Traces similar enough to a format to be read for some time.
    #[test]
    fn traces_with_some_bytes_altered_never_panic(
        alterations in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..8),
        which in 0..FORMATS.len() + 2,
    ) {
        let examples = FORMATS.iter().map(|row| (row.name, row.example.to_vec()));
        let whole = ["0.2", "0.1"].map(|version| ("db_bench", rocksdb(version)));
        let traces: Vec<_> = examples.chain(whole).collect();
        let (format, mut bytes) = traces[which].clone();
        for (at, byte) in alterations {
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        read_all(format, &bytes);
        read_all("", &bytes);
        read_all("csv", &bytes);
    }
}

#[test]
fn reads_of_what_nothing_stored_are_counted_as_not_found_and_the_report_says_so() {
    let folder = Folder::new();
    let trace = folder.file("reads.csv", b"0,get,a\n1,get,b\n2,store,b,9\n3,get,b\n4,exist,c\n5,scan,z,1\n");
    let report = report(&trace, &["workload.verify=values"]);
    let missed = |kind| report.not_found.get(kind).copied();
    assert_eq!(
        (missed("retrieve"), missed("exist"), missed("seek"), missed("store")),
        (Some(2), Some(1), Some(1), None)
    );
    let verified = report.verified.as_ref().unwrap();
    assert_eq!((verified.checked, verified.absent, verified.unchecked), (3, 2, 2), "{verified:?}");
    let text = report.to_string();
    assert!(text.contains("note: 4 of 5 reads found nothing"), "{text}");
    assert!(text.contains("not found"), "{text}");
}

#[test]
fn a_trace_finds_what_was_loaded_before_it() {
    let folder = Folder::new();
    let trace = folder.file("reads.csv", b"0,get,a\n1,get,b\n2,store,b,9\n3,get,b\n");
    let loading = folder.file("load.csv", b"0,store,a,100\n1,store,b,50\n2,store,c,50\n3,delete,c,\n");
    let by_trace = format!("workload.load=trace:{}", loading.display());
    for (load, loaded_bytes, note) in [
        ("workload.load=reads:1KiB", 2 * 1024, "2 pairs of 1024 B"),
        (&by_trace, 150, "2 pairs, which the stores of"),
    ] {
        let report = report(&trace, &[load, "workload.verify=values"]);
        assert!(report.not_found.is_empty(), "{load}: {:?}", report.not_found);
        let loading = report.precondition.as_ref().unwrap();
        assert_eq!((loading.stores, loading.stored_bytes), (2, loaded_bytes), "{load}");
        assert!(report.notes.iter().any(|line| line.contains(note)), "{load}: {:?}", report.notes);
        let verified = report.verified.unwrap();
        assert_eq!((verified.checked, verified.absent, verified.is_whole()), (3, 0, true), "{load}");
    }
    assert!(
        error(&trace, &["workload.load=all"])
            .starts_with("workload.load: \"all\"; allowed: nothing, reads:SIZE")
    );
    assert!(error(&trace, &["workload.load=trace:/nowhere"]).starts_with("workload.load: /nowhere: "));
}

/// What the setting itself says is refused with the configuration, before other runs of a comparison; what a file says,
/// before the first operation. Both name the flash, whether the run is in model time or in wall time.
#[test]
fn pairs_that_do_not_fit_are_refused_before_a_trace_begins() {
    let folder = Folder::new();
    let trace = folder.file("reads.csv", b"0,get,a\n1,get,b\n");
    let loading = folder.file("load.csv", b"0,store,a,4000000000\n1,store,b,4000000000\n");
    let by_trace = format!("workload.load=trace:{}", loading.display());
    let small = "flash.blocks_per_die=64";
    let keys = document(&trace, &["workload.load=keys:1M:1MiB", small]).config().unwrap();
    let line = keys.check_room().unwrap_err().to_string();
    let refused = "workload.load: 1 000 000 values of 1 048 576 B are 1.049 TB, and the drive has ";
    assert!(line.starts_with(refused) && line.ends_with(" of flash"), "{line}");
    for load in ["workload.load=reads:3GiB", &by_trace] {
        let line = error(&trace, &[load, small]);
        assert!(line.starts_with("workload.load: 2 values are ") && line.ends_with(" of flash"), "{line}");
        let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
        let wall = document(&trace, &[load, small, "run.clock=wall"]);
        assert_eq!(run_wall(&wall, &options, &|_, _| {}).unwrap_err().to_string(), line);
    }
    assert_eq!(report(&trace, &["workload.load=reads:1KiB", small]).precondition.unwrap().stores, 2);
}

#[test]
fn a_trace_without_operations_and_one_whose_time_goes_back_are_refused() {
    let folder = Folder::new();
    for (name, content) in [("empty.csv", &b""[..]), ("heading.csv", b"time,op,key,size\n# nothing\n")] {
        let trace = folder.file(name, content);
        let line = error(&trace, &[]);
        assert!(line.starts_with("workload.trace: ") && line.ends_with(": has no operation"), "{line}");
        let full = folder.file("full.csv", b"0,get,a,\n");
        let line = error(&full, &[&format!("workload.load=trace:{}", trace.display())]);
        assert!(line.starts_with("workload.load: ") && line.ends_with(": has no operation"), "{line}");
    }
    let trace = folder.file("back.csv", b"5s,store,a,1\n4.5s,store,b,1\n1s,store,c,1\n");
    assert_eq!(operations(&trace, &[]).unwrap().len(), 3, "without its times it is read");
    let line = error(&trace, &["workload.arrivals=trace"]);
    assert!(
        line.contains("back.csv, line 3: its time lies") && line.contains("before that of an earlier"),
        "{line}"
    );
}

/// RocksDB's keys are known: 8 bytes with the number, and `0` for the rest.
#[test]
fn a_trace_of_db_bench_finds_its_range_of_keys() {
    let folder = Folder::new();
    let get = |index: u8| {
        let key = [&[0, 0, 0, 0, 0, 0, 0, index][..], b"00000000"].concat();
        // Time, type, length; column family, length of the key.
        [&[0x4a, 0x42, 0x0f, 0, 0, 0, 0, 0, 4, 21, 0, 0, 0, 0, 0, 0, 0, 16][..], &key].concat()
    };
    let begin = b"\x40\x42\x0f\0\0\0\0\0\x01\x24\0\0\0feedcafedeadbeef\tTrace Version: 0.1\t";
    let trace = folder.file("query.trace", &[&begin[..], &get(0), &get(4), &get(5)].concat());
    let report = report(&trace, &["workload.load=keys:5:100", "workload.verify=values"]);
    assert!(report.notes[0].ends_with("read as db_bench"), "{:?}", report.notes);
    assert_eq!(report.not_found.get("retrieve"), Some(&1), "key 5 is beyond them");
    assert_eq!(report.precondition.as_ref().unwrap().stores, 5);
    assert!(report.notes.iter().any(|note| note.contains("5 pairs of 100 B, the first of db_bench")));
    for (load, problem) in
        [("keys:0:100", "0 keys; allowed: 1 to"), ("keys:5", "allowed: nothing"), ("keys:5:", "")]
    {
        let line = error(&trace, &[&format!("workload.load={load}")]);
        assert!(line.starts_with("workload.load: ") && line.contains(problem), "{load}: {line}");
    }
}

#[test]
fn times_that_go_back_a_little_are_told() {
    let folder = Folder::new();
    let trace = folder.file("back.csv", b"5s,store,a,1\n4.5s,store,b,1\n6s,store,c,1\n");
    let at_times = report(&trace, &["workload.arrivals=trace"]);
    let is_told = |note: &String| note.contains("lies before") && note.ends_with("back.csv, line 2");
    assert_eq!(at_times.notes.iter().filter(|note| is_told(note)).count(), 1, "{:?}", at_times.notes);
    assert!(!report(&trace, &[]).notes.iter().any(is_told));
}
