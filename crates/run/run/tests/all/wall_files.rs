//! Drives on files in wall time: acknowledged writes survive every kind of end, and one wait for the
//! machine's storage serves many completions.

use std::path::Path;

use kvdrive_config::{Config, Document};
use kvdrive_content::Region;
use kvdrive_flash::power::machine_file::faults::{self, Call, Fault};
use kvdrive_host::Calls;
use kvdrive_host::threaded::{Connector, Pipelined, Serving, block_on, serve_thread};
use kvdrive_link::shared::ServerConfig;
use kvdrive_link::transfer::method;
use kvdrive_nvme::{Key, Status};
use kvdrive_run::wall::{Change, Running, ServedDrive, served};
use kvdrive_sim::wall::Pace;

const DEPTH: u32 = 32;

/// A drive on files in `folder`, whose values come by `transfer`, and with this few entries in its memtable.
fn config(folder: &Path, sync: bool, transfer: &str, memtable_entries: u32) -> Config {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    let path = folder.join("drive.img");
    let path = format!("media.path={}", path.display());
    let sync = format!("media.sync={sync}");
    let transfer = format!("host.transfer={transfer}");
    let memtable = format!("lsm.memtable_entries={memtable_entries}");
    for setting in ["media.kind=file", &path, &sync, &transfer, &memtable] {
        document.set(setting).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    document.config().expect("a valid configuration")
}

fn serve(config: &Config, pace: Pace) -> (Connector, Serving<Running, ServedDrive>) {
    let server = ServerConfig { pace, recorder: None };
    serve_thread(server, served(config.clone(), None)).unwrap_or_else(|error| panic!("{error}"))
}

fn value(number: u32) -> Vec<u8> {
    (0..1 + number % 200).map(|at| (number * 7 + at) as u8).collect()
}

fn number_of(key: &Key) -> u32 {
    u32::from_be_bytes(*key.to_array().first_chunk().expect("keys have 16 bytes"))
}

/// Stores pairs `numbers` at depth 32 until the drive is off; returns the answer to each.
fn store(
    config: &Config,
    connector: &Connector,
    numbers: std::ops::Range<u32>,
) -> Vec<(u32, Result<(), Status>)> {
    let choice = method(&config.host.transfer).expect("a row of METHODS");
    let mut driver = connector.connect(choice, 256, DEPTH).expect("it is on");
    let mut pipeline = driver.pipeline().expect("it is on");
    let mut answers = Vec::new();
    for number in numbers {
        while !pipeline.has_room() {
            let Ok(completion) = pipeline.next_completion() else { return answers };
            let completion = completion.expect("commands are under way");
            answers.push((
                number_of(&completion.call.key().expect("a store has a key")),
                completion.result.map(|_| ()),
            ));
        }
        assert!(pipeline.store(Key::from_u32_be(number), value(number)).is_ok());
    }
    while let Ok(Some(completion)) = pipeline.next_completion() {
        answers.push((
            number_of(&completion.call.key().expect("a store has a key")),
            completion.result.map(|_| ()),
        ));
    }
    answers
}

/// Checks that every acknowledged pair is readable, as it was stored.
fn check(config: &Config, connector: &Connector, answers: &[(u32, Result<(), Status>)], what: &str) {
    let choice = method(&config.host.transfer).expect("a row of METHODS");
    let driver = connector.connect(choice, 16, 1).expect("it is on");
    let mut region = Region::new();
    for (number, _) in answers.iter().filter(|(_, answer)| answer.is_ok()) {
        let found = driver.blocking().retrieve(Key::from_u32_be(*number), &mut region);
        let expected = value(*number);
        assert_eq!(found, Ok(expected.len() as u32), "{what}: pair {number}");
        assert_eq!(region.to_bytes(expected.len() as u32), expected, "{what}: pair {number}");
    }
}

#[test]
fn completions_that_are_ready_together_wait_for_storage_once() {
    let folder = tempfile::tempdir().expect("a folder");
    // One command a value, and flash is not written: before a write to flash the records so far are synced,
    // too.
    let config = config(folder.path(), true, "byte-express", 4096);
    let (connector, serving) = serve(&config, Pace::Off);
    let counted = || serving.control().look(|_, _| faults::arm(None)).expect("it is on");
    counted();
    let answers = store(&config, &connector, 0..640);
    let [_, writes, syncs] = counted();
    assert!(answers.len() == 640 && answers.iter().all(|(_, answer)| answer.is_ok()));
    assert!(syncs > 0 && syncs < 640 / 3, "{syncs} waits for storage and {writes} writes for 640 stores");
    drop(connector);
    serving.join();
}

/// A rule cuts the power at any command: completions that were posted and not handed over yet were not
/// acknowledged.
#[test]
fn what_was_acknowledged_in_a_group_outlives_a_power_cut() {
    for (round, sync) in [(0u32, false), (1, true), (2, false), (3, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), sync, "byte-express", 64);
        let pace = if round == 3 { Pace::Model } else { Pace::Off };
        let (connector, serving) = serve(&config, pace);
        let rule =
            format!("[[rule]]\nfault = \"power-cut\"\nat = \"command\"\nafter = {}\n", 300 + 211 * round);
        serving.control().change(Change::AddFaults(rule)).expect("it is on").expect("it fits");
        let answers = store(&config, &connector, 0..3000);
        assert!((100..2900).contains(&answers.len()), "the power went after {} answers", answers.len());
        assert!(serving.join().take_survivors().is_none(), "what survives is on the files");
        drop(connector);
        let (connector, serving) = serve(&config, Pace::Off);
        check(&config, &connector, &answers, &format!("round {round}"));
        drop(connector);
        serving.join();
    }
}

/// A disk that is full or fails, at any write and any wait for storage: stores are refused from then on, the
/// drive reports the reason and still reads, and powers on again with every pair that it acknowledged.
#[test]
fn a_full_disk_is_a_status_and_a_message_and_nothing_acknowledged_is_lost() {
    let faults_of = |call, error, numbers: &[u64]| {
        numbers.iter().map(|first| Fault { call, which: *first..u64::MAX, error }).collect::<Vec<_>>()
    };
    let full = faults_of(Call::Write, std::io::ErrorKind::StorageFull, &[0, 1, 2, 3, 40, 41]);
    let broken = faults_of(Call::Sync, std::io::ErrorKind::Other, &[0, 1]);
    for fault in full.into_iter().chain(broken) {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), fault.call == Call::Sync, "byte-express", 64);
        let (connector, serving) = serve(&config, Pace::Off);
        let what = format!("{fault:?}");
        let mut answers = store(&config, &connector, 0..100);
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{what}");
        serving.control().look(move |_, _| _ = faults::arm(Some(fault))).expect("it is on");
        answers.extend(store(&config, &connector, 100..1000));
        let refused = answers.iter().filter_map(|(_, answer)| answer.err()).collect::<Vec<_>>();
        assert!(!refused.is_empty(), "{what}");
        assert!(
            refused.iter().all(|status| *status == Status::NAMESPACE_WRITE_PROTECTED),
            "{what}: {refused:?}"
        );
        let message = block_on(connector.write_failure()).expect("it answers").expect("it is read-only");
        assert!(message.contains("drive.img") && message.contains("read-only"), "{what}: {message}");
        check(&config, &connector, &answers, &what);
        drop(connector);
        serving.join();
        let (connector, serving) = serve(&config, Pace::Off);
        check(&config, &connector, &answers, &format!("{what}, again"));
        drop(connector);
        serving.join();
    }
}
