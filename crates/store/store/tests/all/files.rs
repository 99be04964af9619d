//! Files on pages: their content against a map in memory, and after power cuts.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_sim::Rng;
use kvdrive_store::files::{FileId, Files};
use kvdrive_store::{Purpose, StoreError};

use crate::ground::{Cut, World, random_page, value_of};

const PAGE_BYTES: u32 = 512;
const PAGES: u64 = 400;
const NAMES: [&str; 5] = ["db/1.log", "db/2.sst", "db/MANIFEST", "db/CURRENT", "other/2.sst"];

fn open(world: &Rc<World>) -> Files<Rc<World>> {
    Files::open_on(world.clone()).unwrap()
}

fn content(files: &Files<Rc<World>>, name: &str) -> Vec<u8> {
    let file = files.open(name).unwrap();
    let mut bytes = vec![0; files.length(file) as usize + 10];
    let count = files.read(file, 0, &mut bytes, Purpose::Lookup).unwrap();
    assert_eq!(count as u64, files.length(file), "{name}");
    files.close(file);
    bytes.truncate(count);
    bytes
}

fn contents(files: &Files<Rc<World>>) -> Contents {
    files.list("").into_iter().map(|name| (name.clone(), content(files, &name))).collect()
}

type Contents = BTreeMap<String, Vec<u8>>;

/// The expected files: those with names, those that are being written, and the state that the next commit
/// makes durable.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, FileId>,
    bytes: BTreeMap<FileId, Vec<u8>>,
    /// Bytes of each file at its last sync or finish.
    noted: BTreeMap<FileId, usize>,
    writing: Vec<FileId>,
    number: u64,
}

impl Model {
    fn now(&self) -> Contents {
        self.names.iter().map(|(name, file)| (name.clone(), self.bytes[file].clone())).collect()
    }

    fn durable(&self) -> Contents {
        let of = |file: &FileId| self.bytes[file][..self.noted.get(file).copied().unwrap_or(0)].to_vec();
        self.names.iter().map(|(name, file)| (name.clone(), of(file))).collect()
    }

    /// Makes the same random call on both; `true` if it was a commit.
    fn step(&mut self, files: &Files<Rc<World>>, rng: &mut Rng) -> Result<bool, StoreError> {
        let name = NAMES[rng.below(NAMES.len() as u64) as usize].to_owned();
        let writing =
            (!self.writing.is_empty()).then(|| self.writing[rng.below(self.writing.len() as u64) as usize]);
        match (rng.below(20), writing) {
            (0 | 1, _) | (2..=16, None) => {
                let file = files.create(&name);
                self.names.insert(name, file);
                self.bytes.insert(file, Vec::new());
                self.writing.push(file);
            }
            (2..=10, Some(file)) => {
                self.number += 1;
                let most = [40, 700, 3000][rng.below(3) as usize];
                let bytes = value_of(self.number, rng.below(most) as u32);
                files.append(file, &bytes, Purpose::Table)?;
                self.bytes.get_mut(&file).unwrap().extend(bytes);
            }
            (11..=13, Some(file)) => {
                self.noted.insert(file, self.bytes[&file].len());
                files.sync(file)?;
                return Ok(true);
            }
            (14..=16, Some(file)) => {
                self.writing.retain(|other| *other != file);
                self.noted.insert(file, self.bytes[&file].len());
                files.finish(file, Purpose::Table)?;
                files.close(file);
            }
            (17, _) => {
                let to = NAMES[rng.below(NAMES.len() as u64) as usize].to_owned();
                let file = self.names.remove(&name);
                assert_eq!(files.rename(&name, &to), file.is_some());
                file.map(|file| self.names.insert(to, file));
            }
            (18, _) => {
                assert_eq!(files.remove(&name), self.names.remove(&name).is_some());
            }
            _ => {
                files.commit()?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[test]
fn are_what_a_map_says() {
    for seed in 0..12 {
        let (world, mut rng) = (World::new(PAGE_BYTES, PAGES), Rng::stream(seed, "files"));
        let mut model = Model::default();
        for round in 0..4 {
            let files = open(&world);
            assert_eq!(contents(&files), model.durable(), "seed {seed}, round {round}");
            let before = model.durable();
            model.bytes = before.iter().map(|(name, bytes)| (model.names[name], bytes.clone())).collect();
            model.writing.clear();
            for step in 0..150 {
                model.step(&files, &mut rng).unwrap();
                if step % 10 == 0 {
                    assert_eq!(contents(&files), model.now(), "seed {seed}, round {round}, step {step}");
                }
            }
            // Files that are being written keep their content, whichever files have their names.
            for file in &model.writing {
                let bytes = &model.bytes[file];
                let at = rng.below(bytes.len() as u64 + 1);
                let mut some = vec![0; rng.below(2000) as usize];
                let count = files.read(*file, at, &mut some, Purpose::Lookup).unwrap();
                let expected = &bytes[at as usize..bytes.len().min(at as usize + some.len())];
                assert_eq!(&some[..count], expected, "seed {seed}, {file:?} from {at}");
            }
            files.commit().unwrap();
        }
    }
}

/// A cut leaves the state of some commit: none before the last one that had ended, and none that had not
/// begun.
#[test]
fn survive_a_cut_at_every_event() {
    let mut found = BTreeMap::<bool, u64>::new();
    for seed in 0..10 {
        let (world, mut rng) = (World::new(PAGE_BYTES, PAGES), Rng::stream(seed, "cuts of files"));
        let files = open(&world);
        world.collect_cuts();
        // The state after each step, and the time when the step began; the step of the last commit, and the
        // time when that had ended.
        let (mut left, mut commits) = (vec![(0, Contents::new())], vec![(0, 0)]);
        let mut model = Model::default();
        for _ in 0..60 {
            let began = world.tick();
            let is_commit = model.step(&files, &mut rng).unwrap();
            left.push((began, model.durable()));
            if is_commit {
                commits.push((left.len() - 1, world.tick()));
            }
        }
        for (number, cut) in world.take_cuts().iter().enumerate() {
            let seed = seed * 10_000 + number as u64;
            let after = contents(&open(&cut.world(&world, seed)));
            let from = commits.iter().rev().find(|(_, ended)| *ended <= cut.at).unwrap().0;
            let to = left.iter().rposition(|(began, _)| *began <= cut.at).unwrap();
            let at = (from..=to).find(|step| left[*step].1 == after);
            assert!(at.is_some(), "seed {seed}, cut at {}: {:?}", cut.at, after.keys());
            *found.entry(at > Some(from)).or_default() += 1;
        }
    }
    // Both states must occur, or the test would test only one.
    assert!(found.len() == 2, "{found:?}");
}

/// A second cut, during recovery from the first, loses nothing either: pages that the first cut left after
/// the last complete commit are not taken for later ones.
#[test]
fn survive_a_cut_of_recovery() {
    for seed in 0..20 {
        let (world, mut rng) = (World::new(PAGE_BYTES, PAGES), Rng::stream(seed, "cuts of recovery"));
        let files = open(&world);
        let mut model = Model::default();
        for _ in 0..40 {
            model.step(&files, &mut rng).unwrap();
        }
        world.collect_cuts();
        for _ in 0..10 {
            model.step(&files, &mut rng).unwrap();
        }
        for (number, cut) in world.take_cuts().iter().enumerate() {
            let seed = seed * 1000 + number as u64;
            let expected = contents(&open(&cut.world(&world, seed)));
            let again = cut.world(&world, seed);
            again.collect_cuts();
            let files = open(&again);
            // One durable commit, after the recovered ones.
            files.create("new");
            files.commit().unwrap();
            let mut with_new = expected.clone();
            with_new.insert("new".into(), Vec::new());
            assert_eq!(contents(&open(&again)), with_new, "seed {seed}");
            let cuts: Vec<Cut> = again.take_cuts();
            let second = cuts[rng.below(cuts.len() as u64) as usize].world(&again, seed);
            let after = contents(&open(&second));
            assert!(after == expected || after == with_new, "seed {seed}: {:?}", after.keys());
        }
    }
}

#[test]
fn give_the_pages_of_what_has_gone_back() {
    let world = World::new(PAGE_BYTES, PAGES);
    let files = open(&world);
    let free = files.free_bytes();
    for round in 0..20 {
        let file = files.create("big");
        let bytes = value_of(round, (free / 2) as u32 - 1);
        files.append(file, &bytes, Purpose::Table).unwrap();
        files.finish(file, Purpose::Table).unwrap();
        files.close(file);
        assert_eq!(content(&files, "big"), bytes, "round {round}");
    }
    files.remove("big");
    files.commit().unwrap();
    assert_eq!(files.free_bytes(), free);
    // They were trimmed: only the journal is left.
    let journal = 2 * 16;
    for (page, content) in world.used() {
        assert!(page < journal || content.written_end() == 0, "page {page}");
    }
    let file = files.create("too big");
    let all = vec![1; free as usize + 1];
    assert!(files.append(file, &all, Purpose::Table) == Ok(()), "the last byte is in memory");
    assert_eq!(files.append(file, &all, Purpose::Table), Err(StoreError::Full));
    assert_eq!(files.length(file), free + 1);
}

#[test]
fn a_file_without_a_name_is_there_while_it_is_open() {
    let world = World::new(PAGE_BYTES, PAGES);
    let files = open(&world);
    let file = files.create("a");
    files.append(file, &value_of(1, 1500), Purpose::Table).unwrap();
    let other = files.create("b");
    assert!(files.rename("b", "a"));
    files.sync(other).unwrap();
    files.append(file, &value_of(2, 1500), Purpose::Table).unwrap();
    let mut bytes = vec![0; 4000];
    assert_eq!(files.read(file, 0, &mut bytes, Purpose::Lookup), Ok(3000));
    assert_eq!(bytes[1500..3000], value_of(2, 1500));
    assert_eq!(files.list(""), ["a"]);
    assert_eq!(files.find("a"), Some(0));
    files.sync(file).unwrap();
    files.close(file);
    assert_eq!(contents(&open(&world)), Contents::from([("a".into(), Vec::new())]));
}

#[test]
fn a_short_append_that_is_synchronised_is_one_page() {
    let world = World::new(4096, 4000);
    let files = open(&world);
    let file = files.create("log");
    files.sync(file).unwrap();
    let written = || world.written.borrow().values().sum::<u64>();
    let before = written();
    for number in 0..10 {
        files.append(file, &value_of(number, 100), Purpose::Wal).unwrap();
        files.sync(file).unwrap();
    }
    assert_eq!(written() - before, 10);
}

#[test]
fn what_is_no_journal_is_refused() {
    let world = World::new(PAGE_BYTES, PAGES);
    drop(open(&world));
    let mut rng = Rng::stream(1, "damage");
    for half in [0, 16] {
        world.scribble(half, random_page(&mut rng, PAGE_BYTES));
    }
    let refused = Files::open_on(world.clone()).err();
    assert!(matches!(refused, Some(StoreError::Damaged { .. })), "{refused:?}");
    let lost = World::new(PAGE_BYTES, PAGES);
    drop(open(&lost));
    lost.lose(16);
    assert!(matches!(Files::open_on(lost).err(), Some(StoreError::Page(_))));
    assert_eq!(Files::open_on(World::new(PAGE_BYTES, 20)).err(), Some(StoreError::Full));
}

#[test]
fn after_a_page_that_refuses_nothing_becomes_durable() {
    let world = World::new(PAGE_BYTES, PAGES);
    let files = open(&world);
    files.create("a");
    world.fail_from(0);
    let error = files.commit().unwrap_err();
    world.fail_from(u64::MAX);
    assert_eq!(files.commit(), Err(error));
    assert!(contents(&open(&world)).is_empty());
}
