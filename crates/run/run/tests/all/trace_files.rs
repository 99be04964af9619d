//! Files of traces as other people make them: pipes, frames to skip, padding, byte order marks, headings, a damaged end.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use kvdrive_run::wall::{WallOptions, run_wall_watched};
use kvdrive_run::{Watch, run, run_watched};
use kvdrive_sim::wall::Pace;
use kvdrive_workload::build;

use super::traces::{Folder, OURS, document, operations, words};

/// The operations before a damaged end were done: they are reported, with the place, and the run is not whole.
#[test]
fn a_bad_end_keeps_the_report_of_what_ran() {
    let folder = Folder::new();
    let trace = folder.file("cut.csv", b"0,store,a,100\n10,store,b,100\n20,stor");
    let ran = run_watched(&document(&trace, &["host.depth=8"]), &[], &Watch::progress(&|_, _| {})).unwrap();
    assert_eq!(ran.report.ops.store, 2);
    let why = ran.failure.unwrap().to_string();
    assert!(why.contains("cut.csv, line 3: expected time,op,key,size, got \"20,stor\""), "{why}");
    assert!(
        why.ends_with("(read as csv, which its beginning looks like; workload.trace_format names another)")
    );
    assert!(ran.report.notes.iter().any(|note| note.contains(&why)), "{:?}", ran.report.notes);
    let options = WallOptions { pace: Pace::Off, record: None, own_thread: false };
    let wall = document(&trace, &["run.clock=wall"]);
    let ran = run_wall_watched(&wall, &options, &Watch::progress(&|_, _| {})).unwrap();
    assert_eq!((ran.report.ops.store, ran.failure.unwrap().to_string()), (2, why));
}

/// A report of nothing looks like one of a fast drive.
#[test]
fn a_run_without_an_operation_is_an_error() {
    let folder = Folder::new();
    let late = folder.file("late.csv", b"0,store,a,100\n");
    let mut nothing = document(&folder.file("no.jsonl", b""), &[]);
    nothing.set("workload.name=kvcache").unwrap();
    let line = run(&nothing, &|_, _| {}).unwrap_err().to_string();
    assert_eq!(line, "no operation was done: the workload has none");
    let only =
        document(&late, &["workload.verify=values", "workload.rate_per_s=1", "workload.duration_ns=1us"]);
    let line = run(&only, &|_, _| {}).map(|report| report.ops.total());
    assert!(line.as_ref().is_ok_and(|ops| *ops == 1) || line.is_err(), "{line:?}");
}

/// Frames that decoders skip may stand anywhere (RFC 8878, section 3.1.2; pzstd and seekable zstd write them), and zeros
/// behind a member of gzip, as a tape leaves them.
#[test]
fn frames_to_skip_and_zeros_at_the_end_are_no_part_of_a_trace() {
    let folder = Folder::new();
    let plain = words(&folder.file("plain", OURS.as_bytes()));
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let frame = |text: &str| ruzstd::encoding::compress_to_vec(text.as_bytes(), level);
    let skipped = |kind: u8, length: u32| {
        [&[0x50 | kind, 0x2a, 0x4d, 0x18][..], &length.to_le_bytes(), &vec![7; length as usize]].concat()
    };
    let whole = [
        skipped(0, 4),
        frame(&OURS[..40]),
        skipped(15, 0),
        skipped(3, 100_000),
        frame(&OURS[40..]),
        skipped(1, 9),
    ]
    .concat();
    assert_eq!(words(&folder.file("trace.zst", &whole)), plain);
    let cut = operations(&folder.file("cut.zst", &whole[..whole.len() - 1]), &[]).unwrap_err();
    assert!(cut.contains("frame 6 of the compressed file: it ends in the middle"), "{cut}");
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    gz.write_all(OURS.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    assert_eq!(words(&folder.file("padded.gz", &[&gz[..], &[0; 70_000]].concat())), plain);
    let other = operations(&folder.file("other.gz", &[&gz[..], &[0, 0, 9]].concat()), &[]).unwrap_err();
    assert!(other.contains("frame 2 of the compressed file: neither gzip nor zstd"), "{other}");
    let mut twice = GzEncoder::new(Vec::new(), Compression::default());
    twice.write_all(&gz).unwrap();
    let twice = operations(&folder.file("twice.gz", &twice.finish().unwrap()), &[]).unwrap_err();
    assert!(twice.contains("twice.gz: compressed by gzip, twice; a trace is read plain"), "{twice}");
}

/// A pipe brings what its writer has flushed, and a compressed file a member at a time.
#[test]
fn a_format_is_decided_from_as_much_as_it_takes() {
    let folder = Folder::new();
    let properties: String = (0..2000).map(|number| format!("\"property{number}\"=\"value\"\n")).collect();
    assert!(properties.len() > 40_000);
    let insert = "INSERT usertable user1 [ field0=abc ]\n";
    let stored = ["store user1 3"];
    assert_eq!(words(&folder.file("far", (properties.clone() + insert).as_bytes())), stored);
    let members: Vec<u8> = [properties.as_str(), insert]
        .iter()
        .flat_map(|part| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(part.as_bytes()).unwrap();
            encoder.finish().unwrap()
        })
        .collect();
    assert_eq!(words(&folder.file("members.gz", &members)), stored);
    assert_eq!(
        words(&folder.file("gone", b"\"workload\"=\"x\"\nDELETE usertable user1\n")),
        ["delete user1"]
    );
    for (number, (first, then, expected)) in [
        ("\"workload\"=\"x\"\n", insert, "store user1 3"),
        ("0,nz:u:ee", "W,10,16,1,get,0\n1,nz,10,1024,2,set,86400\n", "retrieve nz:u:eeW"),
        ("key,o", "p,size\n7,SET,20\n", "store 7 20"),
        ("\u{feff}ti", "me,op,key,size\n0,store,a,1\n", "store a 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.0.path().join(format!("pipe{number}"));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = std::fs::OpenOptions::new().write(true).open(to).unwrap();
            pipe.write_all(first.as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            pipe.write_all(then.as_bytes()).unwrap();
        });
        assert_eq!(words(&path)[0], expected, "{first:?}");
        writer.join().unwrap();
    }
}

/// What editors and people put around lines: a byte order mark, comments before the heading and in it, other letters.
#[test]
fn a_heading_is_known_behind_comments_and_a_byte_order_mark() {
    let folder = Folder::new();
    for text in [
        "\u{feff}time,op,key,size\n0,store,user17,128\n",
        "\u{feff}0,store,user17,128\n",
        "# made by me\ntime,op,key,size\n0,store,user17,128\n",
        "time,op,key,size   # ns; store, get; bytes of a store, pairs of a scan\n0,store,user17,128\n",
        "\n\"Time\",\"Op\",\"Key\",\"Size\"\n0,store,user17,128\n",
    ] {
        let path = folder.file("trace", text.as_bytes());
        assert_eq!(words(&path), ["store user17 128"], "{text}");
        let format = build(&document(&path, &[]).config().unwrap().workload, 1).unwrap().notes()[0].clone();
        assert!(format.ends_with("read as csv"), "{text}: {format}");
    }
    let meta = "Key,OP,\"size\"\n#tag,SET,9\n# a comment\n#tag,GET,0\n";
    assert_eq!(words(&folder.file("meta", meta.as_bytes())), ["store #tag 9", "retrieve #tag"]);
}

/// The prefix of fields is a property of YCSB; a value has its bytes whatever it is.
#[test]
fn fields_of_ycsb_are_known_by_the_name_of_the_first_one() {
    let folder = Folder::new();
    let text = "INSERT usertable user1 [ f0=abc f1=defgh ]\nREAD usertable user1 [ <all fields>]\n\
                UPDATE usertable user1 [ COL-12=a f1=b COL-3= ]\n";
    let path = folder.file("prefix", text.as_bytes());
    assert_eq!(words(&path), ["store user1 8", "retrieve user1", "store user1 6"]);
    let path = folder.file("none", b"INSERT usertable user1 [ abc ]\n");
    let line = operations(&path, &[]).unwrap_err();
    assert!(line.contains("none, line 1: expected [ field0=... ], got \"[ abc ]\" (read as ycsb"), "{line}");
}

/// 104 days are 2^53 ns: later times with decimals are exact, too.
#[test]
fn late_times_are_exact_with_decimals() {
    let folder = Folder::new();
    let ours = folder.file("ours.csv", b"1790000000.5s,store,a,1\n1790000000500.123456ms,get,a,\n");
    assert_eq!(operations(&ours, &[]).unwrap()[1].1, Some(123_456));
    let twitter = b"1790000000.123456789,k,1,7,1,set,0\n1790000000.1234567915,k,1,7,1,get,0\n";
    assert_eq!(operations(&folder.file("twitter", twitter), &[]).unwrap()[1].1, Some(3));
}
