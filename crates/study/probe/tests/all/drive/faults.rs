//! Every kind of fault, on every engine: it fires, is counted, stops, and changes nothing else. All answers
//! meanwhile are correct or errors.

use std::collections::BTreeMap;

use kvdrive_config::Document;
use kvdrive_config::faults::rules;
use kvdrive_content::{Piece, Region};
use kvdrive_declare::Counts;
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::faults::{Effect, FAULTS, FaultKind, Moment, Rule};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::HostMemory;
use kvdrive_link::transfer::METHODS;
use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::{Key, Sqe, Status, feature, opcode};
use kvdrive_probe::explain::{Kind, explain};
use kvdrive_run::report::Report;
use kvdrive_run::{run, run_faulty};
use kvdrive_sim::{Rng, Sim};
use zerocopy::FromBytes;

use super::storm::submit;
use kvdrive_rigs::drive::{
    Bench, Oracle, SIZES, Stored, check_all, document, is_value, key, step, usual_and_flat, value,
};

pub(super) fn parse(document: &Document, text: &str) -> anyhow::Result<Vec<Rule>> {
    let config = document.config().expect("a test's configuration is valid");
    rules("faults.toml", text, &config.drive().flash.geometry())
}

/// A rule of this kind at this moment that is due as `when` says.
fn rule_text(kind: &FaultKind, moment: Moment, when: &str) -> String {
    let (name, example, at) = (kind.name, kind.example, moment.name());
    format!("[[rule]]\nfault = \"{name}\"\nat = \"{at}\"\n{example}\n{when}\n")
}

/// The possible states of each key: one after a command that succeeded, several after one that failed.
#[derive(Default)]
struct Possible(BTreeMap<Key, Vec<Option<Stored>>>);

impl Possible {
    fn of(&mut self, key: Key) -> &mut Vec<Option<Stored>> {
        self.0.entry(key).or_insert_with(|| vec![None])
    }

    /// Notes that a command that would make the key's state `state` was answered `result`.
    fn note(&mut self, key: Key, state: Option<Stored>, result: Result<(), Status>) {
        match result {
            Ok(()) => *self.of(key) = vec![state],
            // A full drive refuses before it changes any pair.
            Err(Status::CAPACITY_EXCEEDED) => {}
            Err(_) => self.of(key).push(state),
        }
    }

    /// Retrieves, and asserts that the result is a possible state. An error is always possible.
    fn check(&mut self, driver: &Driver, key: Key) -> Result<(), Status> {
        let mut region = Region::new();
        let found = driver.retrieve(key, &mut region);
        let states = self.of(key);
        let fits = |state: &Option<Stored>| match (found, state) {
            (Ok(bytes), Some(stored)) => bytes == stored.bytes && is_value(&region, &key, *stored),
            (Err(Status::KEY_NOT_FOUND), None) => true,
            _ => false,
        };
        match found {
            Ok(_) | Err(Status::KEY_NOT_FOUND) => {
                let state = states.iter().copied().find(fits);
                let state = state.unwrap_or_else(|| panic!("{key:?}: {found:?}, expected {states:?}"));
                *states = vec![state];
                Ok(())
            }
            Err(status) => Err(status),
        }
    }
}

/// Random commands under `rules`: every answer is right or an error. Returns the errors, in order, each with
/// the number of its command.
fn work(driver: &Driver, possible: &mut Possible, rng: &mut Rng, steps: u64) -> Vec<(u64, Status)> {
    let mut errors = Vec::new();
    for number in 0..steps {
        let key = key(rng.below(24), false);
        let result = match rng.below(10) {
            0..=4 => {
                let bytes = SIZES[rng.below(SIZES.len() as u64) as usize];
                let stored = Stored { version: rng.next_u64(), bytes };
                let result = driver.store(key, Piece::Pattern(value(&key, stored)));
                possible.note(key, Some(stored), result);
                result
            }
            5 => {
                let result = driver.delete(key);
                possible.note(key, None, result);
                result
            }
            6 => driver.exist(key).map(|_| ()),
            _ => possible.check(driver, key),
        };
        if let Err(status) = result {
            errors.push((number, status));
        }
    }
    errors
}

/// A drive of its own for each rule: 3 matches pass, then every second match is struck, three times; a fault
/// that stays strikes once.
fn fires_and_stops(settings: &[String], kind: &FaultKind, moment: Moment) {
    let document = document(settings);
    let parse = |when: &str| parse(&document, &rule_text(kind, moment, when)).expect("a rule");
    let stays = parse("").remove(0).effect == Effect::DieOffline;
    let (rules, matched, fired) = match stays {
        true => (parse("after = 3\ntimes = 1"), 4, 1),
        false => (parse("after = 3\nevery = 2\ntimes = 3"), 9, 3),
    };
    let what = format!("{} at {} with {settings:?}", kind.name, moment.name());
    let bench = Bench::new(&document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let (mut possible, mut rng) = (Possible::default(), Rng::stream(3, "commands"));
        assert_eq!(work(&driver, &mut possible, &mut rng, 150), [], "{what}: nothing was asked for");
        drive.faults().set(&rules, 1);
        let count = || drive.faults().counts().remove(0);
        let mut failed = 0;
        for _ in 0..150 {
            if count().struck == fired {
                break;
            }
            failed += work(&driver, &mut possible, &mut rng, 100).len();
            drive.drain();
        }
        let count = count();
        assert_eq!((count.matched, count.struck), (matched, fired), "{what}");
        // A struck command fails, and no command around it is affected.
        let refuses =
            matches!(rules[0].effect, Effect::Refuse(_) | Effect::RefuseChange(_) | Effect::Lose(_));
        let allowed = if refuses { 1..=3 } else { 0..=0 };
        assert!(moment != Moment::Command || allowed.contains(&failed), "{what}: {failed} failed");
        // Data altered on flash are lost (88h); no other command fails any more.
        let errors = work(&driver, &mut possible, &mut rng, 200);
        let is_lost = |status| match status {
            Status::UNRECOVERED_ERROR => true,
            // The lost die's spare blocks are lost, too.
            Status::NAMESPACE_WRITE_PROTECTED => stays,
            _ => false,
        };
        let lost = errors.iter().filter(|(_, status)| is_lost(*status)).count();
        assert_eq!(lost, errors.len(), "{what}: {errors:?}");
        let damages = stays || matches!(rules[0].effect, Effect::Flip | Effect::Unreadable);
        assert!(lost == 0 || damages, "{what}: {errors:?}");
    });
    bench.sim.clear();
}

#[test]
fn every_fault_fires_and_stops_on_every_engine() {
    for row in ENGINES {
        for kind in FAULTS {
            for moment in kind.moments {
                fires_and_stops(&[format!("engine.name={}", row.name)], kind, *moment);
            }
        }
    }
}

/// With every transfer method on every engine: a write-protected drive refuses changes and reads as before;
/// without the rule it works as if nothing had happened.
#[test]
fn a_write_protected_drive_is_read_and_not_changed_until_the_rule_goes() {
    for row in ENGINES {
        for method in METHODS {
            let settings = [format!("engine.name={}", row.name), format!("host.transfer={}", method.name)];
            is_protected_for_a_while(&document(&settings), &format!("{settings:?}"));
        }
    }
}

fn is_protected_for_a_while(document: &Document, what: &str) {
    let rules = parse(document, "[[rule]]\nfault = \"write-protect\"\n").expect("a rule");
    let bench = Bench::new(document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let (there, absent) = (key(1, false), key(2, false));
        let stored = |version| Stored { version, bytes: 300 };
        let store = |key: Key, version| driver.store(key, Piece::Pattern(value(&key, stored(version))));
        let holds = |key: Key, version| {
            let mut region = Region::new();
            let found = driver.retrieve(key, &mut region);
            assert_eq!(found, Ok(stored(version).bytes), "{what}");
            assert!(is_value(&region, &key, stored(version)), "{what}");
        };
        store(there, 1).expect("nothing is protected yet");
        drive.faults().set(&rules, 1);
        let protected = Err(Status::NAMESPACE_WRITE_PROTECTED);
        assert_eq!(store(there, 2), protected, "{what}");
        assert_eq!(store(absent, 2), protected, "{what}");
        assert_eq!(driver.delete(there), protected, "{what}");
        let struck = drive.faults().counts().remove(0);
        assert!(struck.struck >= 3 && struck.matched == struck.struck, "{what}: {struck:?}");
        holds(there, 1);
        assert_eq!(driver.retrieve(absent, &mut Region::new()), Err(Status::KEY_NOT_FOUND), "{what}");
        assert_eq!(driver.exist(there), Ok(true), "{what}");
        assert_eq!(drive.faults().counts().remove(0), struck, "{what}: reads do not match");
        assert!(!drive.flash_health().is_read_only, "{what}: flash does not know of it");
        drive.faults().clear(None);
        store(there, 3).expect("it is over");
        holds(there, 3);
        driver.delete(there).expect("it is over");
    });
    bench.sim.clear();
}

/// Programs and erases that fail at random.
const FAILING: &str = "[[rule]]\nfault = \"program-error\"\nprobability = 0.1\n\
                       [[rule]]\nfault = \"erase-error\"\nprobability = 0.2\n";

/// As long as there are spare blocks, no pair is lost, refused or altered, also with power cuts in the
/// middle.
#[test]
fn programs_and_erases_that_fail_cost_spare_blocks_and_nothing_else() {
    for row in ENGINES {
        for settings in usual_and_flat(&[&format!("engine.name={}", row.name), "flash.spare_blocks=1000"]) {
            let document = document(&settings);
            let rules = parse(&document, FAILING).expect("rules");
            let mut rng = Rng::stream(5, "steps");
            let (mut oracle, mut survivors, mut retired) = (None, None, 0);
            for life in 0..4 {
                let bench = Bench::new(&document, Sim::new());
                let oracle = oracle.get_or_insert_with(|| Oracle::of(&bench));
                survivors = bench.sim.block_on(|| {
                    let drive = bench.power_on(survivors.as_ref()).expect("it comes up");
                    let driver = bench.connect();
                    drive.faults().set(&rules, life);
                    check_all(&driver, oracle);
                    (0..500).for_each(|_| step(&driver, oracle, &mut rng, 60, false));
                    check_all(&driver, oracle);
                    let health = drive.flash_health();
                    assert!(health.retired_blocks > retired, "{settings:?}, life {life}: {health:?}");
                    retired = health.retired_blocks;
                    assert_eq!(health.spare_blocks_left + retired, health.spare_blocks);
                    Some(drive.survivors(&mut rng))
                });
                bench.sim.clear();
            }
        }
    }
}

/// The first failing program or erase without a spare block makes the drive read-only: acknowledged pairs are
/// readable, in this life and in every later one, and no write is accepted any more.
#[test]
fn a_drive_without_spare_blocks_turns_read_only_and_keeps_what_it_has() {
    for row in ENGINES {
        for (fault, spare_blocks) in [("program-error", 0), ("program-error", 1), ("erase-error", 0)] {
            let (engine, spare) =
                (format!("engine.name={}", row.name), format!("flash.spare_blocks={spare_blocks}"));
            for settings in usual_and_flat(&[&engine, &spare]) {
                let document = document(&settings);
                let text = format!("[[rule]]\nfault = \"{fault}\"\nafter = 6\n");
                let rules = parse(&document, &text).expect("a rule");
                turns_read_only(&document, &rules, &format!("{fault}, {settings:?}"));
            }
        }
    }
}

/// A die that was lost is lost in every later life, from survivors and from the files of an image: reads of
/// its data fail with 88h, or the drive says why it cannot be powered on. No older value is returned, and no
/// pair is reported as absent.
#[test]
fn a_die_that_was_lost_stays_lost_when_the_drive_is_powered_on_again() {
    let mut came_up = 0;
    for row in ENGINES {
        for on_file in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = format!("engine.name={}", row.name);
            let mut settings = vec![engine, "buffer.entries=8".to_owned(), "flash.spare_blocks=4".to_owned()];
            if on_file {
                let path = format!("media.path={}", folder.path().join("drive.img").display());
                settings.extend(["media.kind=file".to_owned(), path]);
            }
            came_up += lives_with_a_lost_die(&document(&settings), on_file, &settings[0]);
        }
    }
    assert!(came_up >= 7, "{came_up} drives came up again");
}

/// Number of lives after the first.
fn lives_with_a_lost_die(document: &Document, on_file: bool, what: &str) -> u32 {
    let mut rng = Rng::stream(5, "commands");
    let (mut possible, mut survivors) = (Possible::default(), None);
    let mut lost = 0;
    for life in 0..3 {
        let bench = Bench::new(document, Sim::new());
        let next = bench.sim.block_on(|| {
            let drive = match bench.power_on(survivors.as_ref()) {
                Ok(drive) => drive,
                Err(error) => {
                    assert!(life > 0, "{what}: {error}");
                    return None;
                }
            };
            let driver = bench.connect();
            if life == 0 {
                work(&driver, &mut possible, &mut rng, 300);
                drive.drain();
                let text = "[[rule]]\nfault = \"die-offline\"\nat = \"read\"\ndie = [1]\nnth = 1\n";
                drive.faults().set(&parse(document, text).expect("a rule"), 1);
            }
            let keys: Vec<Key> = possible.0.keys().copied().collect();
            let mut errors = 0;
            for key in keys {
                if let Err(status) = possible.check(&driver, key) {
                    assert_eq!(status, Status::UNRECOVERED_ERROR, "{what}, life {life}: {key:?}");
                    errors += 1;
                }
            }
            if life == 0 {
                lost = errors;
                assert!(lost > 0, "{what}: nothing lay on the die");
            } else {
                assert!(errors > 0, "{what}, life {life}: the die answers again");
            }
            let mut cut = Rng::stream(life, "cut");
            Some(drive.survivors(&mut cut))
        });
        bench.sim.clear();
        drop(bench);
        match next {
            None => return life as u32 - 1,
            Some(next) => survivors = (!on_file).then_some(next),
        }
    }
    2
}

/// The log page 02h of the drive.
fn smart(bench: &Bench) -> Health {
    let (queue, buffer) = (bench.link.admin_queue(), bench.memory.map(4096));
    let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 0, u32::MAX);
    let page = LogRequest { page: lid::HEALTH, retain_event: true, bytes: 512, offset: 0, command_set: 0 };
    page.put(&mut sqe);
    sqe.set_prps(buffer, 0);
    assert_eq!(submit(bench, &queue, sqe), Status::SUCCESS);
    let (mut page, mut at) = (Region::new(), 0);
    let mut take = |piece: Piece<'_>| {
        page.write(at, piece);
        at += piece.bytes();
    };
    bench.memory.read(buffer, 512, &mut take).expect("it is mapped");
    Health::read_from_bytes(&page.to_bytes(512)).expect("it has its size")
}

/// A host learns of it from the standard's own log page.
#[test]
fn smart_tells_of_spare_blocks_and_media_errors() {
    let document = document(&["flash.spare_blocks=10", "buffer.entries=8"]);
    let bench = Bench::new(&document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let (mut possible, mut rng) = (Possible::default(), Rng::stream(3, "commands"));
        work(&driver, &mut possible, &mut rng, 300);
        let told = smart(&bench);
        assert_eq!((told.warnings, told.spare_percent, told.spare_threshold_percent), (0, 100, 10));
        let text =
            "[[rule]]\nfault = \"program-error\"\nevery = 2\n[[rule]]\nfault = \"read-error\"\nnth = 1\n";
        drive.faults().set(&parse(&document, text).expect("rules"), 1);
        let mut few = 0;
        while smart(&bench).warnings & Health::READ_ONLY == 0 {
            let told = smart(&bench);
            let kvdrive_flash::FlashHealth { spare_blocks: all, spare_blocks_left: left, .. } =
                drive.flash_health();
            assert_eq!(u32::from(told.spare_percent), 100 * left / all);
            assert_eq!(told.warnings, if told.spare_percent < 10 { Health::FEW_SPARES } else { 0 });
            few += u32::from(told.warnings);
            work(&driver, &mut possible, &mut rng, 5);
        }
        let told = smart(&bench);
        assert!(drive.write_failure().is_some());
        assert_eq!(told.media_errors[0].get(), drive.flash_health().read_errors);
        assert!(told.media_errors[0].get() > 0, "{few}");
    });
    bench.sim.clear();
}

/// A host that waits for events gets one when few spare blocks are left, and one when the drive becomes
/// read-only; after each it has to read the log before it gets another one.
#[test]
fn a_host_that_waits_is_told_of_spare_blocks_and_of_the_end_of_writing() {
    let document = document(&["flash.spare_blocks=10", "buffer.entries=8"]);
    let bench = Bench::new(&document, Sim::new());
    bench.sim.block_on(|| {
        let drive = bench.power_on(None).expect("an empty drive comes up");
        let driver = bench.connect();
        let hosts = [(); 2].map(|()| bench.link.create_function(bench.memory.clone()).admin_queue());
        for (host, wanted) in hosts.iter().zip([0x1FF, 0]) {
            let mut sqe = Sqe::new(opcode::admin::SET_FEATURES, 9, 0);
            sqe.cdw10.set(feature::ASYNC_EVENTS.into());
            sqe.cdw11.set(wanted);
            assert_eq!(submit(&bench, host, sqe), Status::SUCCESS);
            for cid in 0..2 {
                assert!(host.try_submit(Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, cid, 0)));
                bench.link.ring_submission(host);
            }
        }
        let text = "[[rule]]\nfault = \"program-error\"\nevery = 2\n";
        drive.faults().set(&parse(&document, text).expect("rules"), 1);
        let (mut possible, mut rng) = (Possible::default(), Rng::stream(3, "commands"));
        let mut told = Vec::new();
        while drive.write_failure().is_none() || told.len() < 2 {
            work(&driver, &mut possible, &mut rng, 5);
            bench.sim.sleep(1_000_000);
            while let Some(cqe) = hosts[0].any_completion() {
                bench.link.ring_completion(&hosts[0]);
                assert!(cqe.status().is_success());
                let event = cqe.dw0.get();
                told.push(event);
                let page = (event >> 16) as u8;
                let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 7, u32::MAX);
                let asked = LogRequest { page, retain_event: false, bytes: 512, offset: 0, command_set: 0 };
                asked.put(&mut sqe);
                sqe.set_prps(bench.memory.map(4096), 0);
                assert!(hosts[0].try_submit(sqe));
                bench.link.ring_submission(&hosts[0]);
                assert!(hosts[0].completion(7).status().is_success());
                bench.link.ring_completion(&hosts[0]);
            }
        }
        // One event for each log page: SMART's, and that of changed namespaces, whose attributes include
        // write protection.
        let health = told.iter().filter(|event| [0x02_02_01, 0x02_00_01].contains(event)).count();
        let changed = told.iter().filter(|event| **event == 0x04_00_02).count();
        assert_eq!(health + changed, told.len(), "{told:X?}");
        assert!(health >= 1 && told.len() == 2, "{told:X?}");
        assert!(hosts[1].any_completion().is_none(), "it does not want to hear of anything");
    });
    bench.sim.clear();
}

fn turns_read_only(document: &Document, rules: &[Rule], what: &str) {
    let refused = |errors: &[(u64, Status)]| {
        let protected = |(_, status): &(u64, Status)| *status == Status::NAMESPACE_WRITE_PROTECTED;
        assert!(errors.iter().all(protected), "{what}: {errors:?}");
    };
    let mut rng = Rng::stream(3, "commands");
    let (mut possible, mut survivors) = (Possible::default(), None);
    for life in 0..3 {
        let bench = Bench::new(document, Sim::new());
        survivors = bench.sim.block_on(|| {
            let drive = bench.power_on(survivors.as_ref()).expect("it comes up");
            let driver = bench.connect();
            assert_eq!(drive.write_failure().is_some(), life > 0, "{what}: it stays so");
            drive.faults().set(rules, 1);
            // A log erases late: all of its flash is written first.
            for _ in 0..30_000 {
                if drive.write_failure().is_some() {
                    break;
                }
                refused(&work(&driver, &mut possible, &mut rng, 1));
            }
            assert!(drive.write_failure().is_some() && drive.flash_health().is_read_only, "{what}");
            // The command that met the failure was refused: in this life it may have been carried out.
            let states = possible.0.clone();
            let errors = work(&driver, &mut possible, &mut rng, 100);
            assert!(!errors.is_empty(), "{what}, life {life}: stores are taken");
            refused(&errors);
            for key in states.keys() {
                assert_eq!(possible.check(&driver, *key), Ok(()), "{what}, life {life}");
            }
            possible.0 = states;
            Some(drive.survivors(&mut rng))
        });
        bench.sim.clear();
    }
}

#[test]
fn a_run_on_failing_flash_reports_what_became_of_it() {
    let document = small_run(&["buffer.entries=8", "flash.spare_blocks=200"]);
    let rules = parse(&document, FAILING).expect("rules");
    let report = run_faulty(&document, &rules, &|_, _| {}).expect("it runs");
    assert_eq!(report.ops.errors, 0);
    let health = |name| report.counts.section("flash_health").of(name);
    assert!(health("retired_blocks") > 0 && health("program_errors") + health("erase_errors") > 0);
    assert_eq!(health("spare_blocks_left"), health("spare_blocks") - health("retired_blocks"));
    assert!(report.counts.of("nand.programs.retire") > 0);
    assert!(report.to_string().contains("FLASH HEALTH"), "{report}");
    // Without spare blocks it ends nevertheless, and says which operations were refused.
    let document = small_run(&["buffer.entries=8", "flash.spare_blocks=0"]);
    let rules = parse(&document, FAILING).expect("rules");
    let report = run_faulty(&document, &rules, &|_, _| {}).expect("it runs");
    assert!(report.ops.errors > 0 && report.counts.of("flash_health.is_read_only") == 1);
}

/// Inline commands have turns, windows and parts of values to give back.
#[test]
fn commands_of_every_transfer_method_are_struck() {
    for row in METHODS {
        for kind in FAULTS.iter().filter(|kind| kind.moments.contains(&Moment::Command)) {
            fires_and_stops(&[format!("host.transfer={}", row.name)], kind, Moment::Command);
        }
    }
}

/// A run on a drive that collects garbage.
fn small_run(settings: &[&str]) -> Document {
    let mut all =
        vec!["workload.name=ycsb-a", "workload.num=60", "workload.ops=600", "workload.value_size=2000"];
    all.extend(settings);
    document(&all)
}

/// All of a report except rules and the machine's time.
fn plain(mut report: Report) -> Report {
    let time = kvdrive_run::report::Time { wall_s: 0.0, ..report.time };
    report.counts.set("flash_health", Counts::default());
    Report { faults: Vec::new(), time, ..report }
}

#[test]
fn a_rule_that_never_fires_changes_nothing() {
    for row in ENGINES {
        let engine = format!("engine.name={}", row.name);
        let document = small_run(&[&engine]);
        let without = plain(run(&document, &|_, _| {}).expect("it runs"));
        for kind in FAULTS {
            for moment in kind.moments {
                let rules = parse(&document, &rule_text(kind, *moment, "after = 1000000")).expect("a rule");
                let with = run_faulty(&document, &rules, &|_, _| {}).expect("it runs");
                let [fault] = &with.faults[..] else { panic!("one rule, {:?}", with.faults) };
                assert_eq!((fault.fault, fault.struck), (kind.name, 0));
                assert_eq!(plain(with), without, "{} at {}, {}", kind.name, moment.name(), row.name);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let document = small_run(&["buffer.entries=8"]);
    let text = "[[rule]]\nfault = \"read-error\"\nprobability = \"20%\"\n\
                [[rule]]\nfault = \"delay\"\nat = \"program\"\nprobability = 0.3\ndelay_ns = \"1ms\"\n";
    let rules = parse(&document, text).expect("rules");
    let faulty = |document: &Document| run_faulty(document, &rules, &|_, _| {}).expect("it runs");
    let first = faulty(&document);
    assert!(first.faults.iter().all(|fault| fault.struck > 0), "{:?}", first.faults);
    assert!(first.ops.errors > 0, "reads that fail are answered so");
    let again = faulty(&document);
    assert_eq!((&first.faults, plain(first.clone())), (&again.faults, plain(again.clone())));
    let other = faulty(&small_run(&["buffer.entries=8", "run.seed=2"]));
    assert_ne!(first.faults, other.faults);
}

#[test]
fn a_fault_is_a_step_of_what_is_explained() {
    let document = document::<&str>(&[]);
    let rules = parse(&document, "[[rule]]\nfault = \"delay\"\nopcode = [\"write\"]\ndelay_ns = \"7us\"\n");
    let without = explain(&document, Kind::Store, &[]).expect("it runs");
    let with = explain(&document, Kind::Store, &rules.expect("a rule")).expect("it runs");
    assert_eq!(with.latency_ns, without.latency_ns + 7_000);
    let step = with.steps.iter().find(|step| step.room == "fault").expect("it is a step");
    assert_eq!((step.what, step.purpose), ("delay", "write"));
}
