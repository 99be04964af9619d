//! `kill -9`: a child process works on a drive whose medium is a file and prints acknowledgements; it is
//! killed at a random moment, and the parent finds every acknowledged store in the file.
//!
//! The child is this test binary, running [`child`].

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use kvdrive_content::{Piece, Region};
use kvdrive_device::engines::ENGINES;
use kvdrive_host::Calls;
use kvdrive_nvme::Key;
use kvdrive_sim::{Rng, Sim};

use kvdrive_rigs::drive::{Bench, Stored, document, is_value, value};

/// Path of the child's medium; without it, [`child`] does nothing.
const PATH: &str = "KVDRIVE_TEST_KILL";
/// The engine of the child's drive.
const ENGINE: &str = "KVDRIVE_TEST_KILL_ENGINE";
const KEYS: u64 = 64;

fn settings(path: &Path, engine: &str) -> [String; 3] {
    ["media.kind=file".into(), format!("media.path={}", path.display()), format!("engine.name={engine}")]
}

fn stored(version: u64) -> (Key, Stored) {
    let mut rng = Rng::stream(version, "store");
    let key = Key::from_u32_be(rng.below(KEYS) as u32);
    (key, Stored { version, bytes: rng.below(6000) as u32 })
}

/// Stores without end, from the version that the parent sends on standard input.
#[test]
#[ignore = "the child of `acknowledged_stores_survive_kill_9`"]
#[expect(clippy::disallowed_methods, reason = "how the parent tells the child where to work")]
fn child() {
    let (Ok(path), Ok(engine)) = (std::env::var(PATH), std::env::var(ENGINE)) else { return };
    let mut first = String::new();
    std::io::stdin().read_line(&mut first).expect("the parent says where to begin");
    let first: u64 = first.trim().parse().expect("a version");
    let bench = Bench::new(&document(&settings(Path::new(&path), &engine)), Sim::new());
    bench.sim.block_on(|| {
        let _drive = bench.power_on(None).expect("the drive comes up");
        let driver = bench.connect();
        let mut out = std::io::stdout();
        for version in first.. {
            let (key, stored) = stored(version);
            driver.store(key, Piece::Pattern(value(&key, stored))).expect("a store succeeds");
            out.write_all(format!("ack {version}\n").as_bytes()).expect("the parent listens");
            out.flush().expect("the parent listens");
        }
    });
}

/// Runs the child, kills it after some acknowledgements, and returns the first version it did not
/// acknowledge.
fn run_and_kill(path: &Path, engine: &str, first: u64, rng: &mut Rng) -> u64 {
    let this = std::env::current_exe().expect("a test binary has a path");
    let mut child = Command::new(this)
        .args(["--exact", "drive::kill::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PATH, path)
        .env(ENGINE, engine)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    writeln!(child.stdin.take().expect("a pipe"), "{first}").expect("the child reads");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut next = first;
    // The test harness prints around and before the first acknowledgement; a line cut short by the kill does
    // not count.
    let mut note = |line: String| {
        let version = line.rsplit_once("ack ").and_then(|(_, version)| version.parse::<u64>().ok());
        next += u64::from(version == Some(next));
        next
    };
    let wanted = first + 1 + rng.below(60);
    while lines.next().is_some_and(|line| note(line) < wanted) {}
    for _ in 0..rng.below(40_000) {
        std::hint::spin_loop();
    }
    child.kill().expect("the child is alive");
    child.wait().expect("the child is gone");
    // Lines printed before the kill count, too.
    lines.for_each(|line| {
        note(line);
    });
    next
}

#[test]
fn acknowledged_stores_survive_kill_9() {
    const KILLS: u32 = 30;
    for row in ENGINES {
        let folder = tempfile::tempdir().expect("a folder for the image");
        let path = folder.path().join("drive.img");
        let mut rng = Rng::stream(5, "kills");
        let mut known = BTreeMap::new();
        let mut next = 0;
        for kill in 0..KILLS {
            let under_way = run_and_kill(&path, row.name, next, &mut rng);
            known.extend((next..under_way).map(stored));
            check(&path, row.name, &mut known, under_way, kill);
            next = under_way + 1;
        }
        assert!(next > u64::from(KILLS) * 10, "{}: only {next} stores in {KILLS} lives", row.name);
    }
}

/// Opens the image: all known pairs exist; the one that was under way may exist.
fn check(path: &Path, engine: &str, known: &mut BTreeMap<Key, Stored>, under_way: u64, kill: u32) {
    let bench = Bench::new(&document(&settings(path, engine)), Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None);
        let _drive = drive.unwrap_or_else(|error| panic!("{engine} after kill {kill}: {error}"));
        let driver = bench.connect();
        let (late_key, late) = stored(under_way);
        let mut region = Region::new();
        if driver.retrieve(late_key, &mut region) == Ok(late.bytes) && is_value(&region, &late_key, late) {
            known.insert(late_key, late);
        }
        for (key, stored) in known.iter() {
            let bytes = driver.retrieve(*key, &mut region);
            assert_eq!(bytes, Ok(stored.bytes), "{engine}: {key:?} after kill {kill}");
            assert!(is_value(&region, key, *stored), "{engine}: {key:?} after kill {kill}: other bytes");
        }
    });
    bench.sim.clear();
}
