//! Crafted images and journal records, with valid checksums and wrong content. Every engine refuses them, or
//! powers on with some state; it never panics, neither at power-on nor at the commands that follow.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::OnceLock;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_device::{Drive, DriveConfig, MediaConfig};
use kvdrive_engines::hash::SCHEMES;
use kvdrive_engines::lsm::{IndexImage, TableId};
use kvdrive_engines::value_log::LogImage;
use kvdrive_flash::media::{self, MediaOptions, MediaPage};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::file_log::FileLog;
use kvdrive_flash::power::{IMAGE, SETTINGS_AT, Survivors, owner_of};
use kvdrive_flash::{Ppa, Spare};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_record::{HEAD_BYTES, decode, encode};
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;
use proptest::sample::Index;

use super::memory;
use super::rig;
use super::small_drives::{connect, in_memory, key, variants};

/// Keys of the drives: so few that most stores overwrite.
const KEYS: u64 = 60;
/// Stores and deletes after a crafted image: enough to merge or move, and delete, all data of an LSM drive.
const FURTHER_WORK: u32 = 200;

/// Stores and deletes; every answer of the drive is accepted.
fn work(driver: &Driver, rng: &mut Rng, steps: u32) {
    for _ in 0..steps {
        let key = key(rng.below(KEYS));
        let bytes = [0, 8, 100, 500, 2048, 4096, 6000][rng.below(7) as usize];
        let _ = match rng.below(8) {
            0 => driver.delete(key),
            _ => driver.store(key, Piece::Pattern(Pattern::of_value(&key, rng.next_u64(), bytes))),
        };
    }
}

/// The survivors of a drive, an earlier image and its records.
struct Remains {
    row: &'static EngineRow,
    config: DriveConfig,
    survivors: Survivors,
    /// An earlier image, and the records since then.
    before: Vec<u8>,
    records: Vec<Vec<u8>>,
    /// Indexes of the records by their first byte (of `lsm`: first two), which is their kind.
    kinds: Vec<Vec<usize>>,
}

/// A drive that was used so long that its image has content of every kind, and its records are of every kind
/// that the engine writes.
fn remains((row, config): (&'static EngineRow, DriveConfig)) -> Remains {
    let folder = tempfile::tempdir().expect("a folder for the image");
    let path = folder.path().join("drive.img");
    let media = MediaConfig { path: Some(path.clone()), ..config.media.clone() };
    let on_file = DriveConfig { media, ..config.clone() };
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    let (survivors, found) = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, &on_file, None).expect("an empty drive comes up");
        let driver = connect(&sim, &link, &memory);
        let mut rng = Rng::stream(7, "work");
        work(&driver, &mut rng, 900);
        drive.settle();
        let found =
            FileLog::read(&path, drive.identity()).expect("the log is whole").expect("there is a log");
        (drive.survivors(&mut rng), found)
    });
    sim.clear();
    let (before, records) = found.records.split_at(found.records.len() / 2);
    let before = (row.fold)(&config.of_engine(), &found.image, before).expect("as the drive wrote it");
    let mut kinds: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    let tags = if row.sections.contains(&"packing") { 2 } else { 1 };
    for (number, record) in records.iter().enumerate() {
        kinds.entry(&record[..tags.min(record.len())]).or_default().push(number);
    }
    let kinds = kinds.into_values().collect();
    Remains { row, config, survivors, before, records: records.to_vec(), kinds }
}

/// A change of bytes, or of the list of records.
#[derive(Clone, Debug)]
enum Change {
    Byte(Index, u8),
    Word(Index, u32),
    Wide(Index, u64),
    Cut(Index),
    Append(Vec<u8>),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let mut put = |at: &Index, new: &[u8]| {
            let at = at.index(bytes.len().saturating_sub(new.len()) + 1);
            bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
        };
        match self {
            Change::Byte(at, new) => put(at, &[*new]),
            Change::Word(at, new) => put(at, &new.to_le_bytes()),
            Change::Wide(at, new) => put(at, &new.to_le_bytes()),
            Change::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Change::Append(more) => bytes.extend_from_slice(more),
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let edge = prop_oneof![0u64..70, (0u32..64).prop_map(|bit| 1 << bit), Just(u64::MAX), any::<u64>()];
    let word = prop_oneof![edge.clone(), edge.clone().prop_map(|number| number.wrapping_sub(1))];
    prop_oneof![
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, new)| Change::Byte(at, new)),
        4 => (any::<Index>(), word).prop_map(|(at, new)| Change::Word(at, new as u32)),
        2 => (any::<Index>(), edge).prop_map(|(at, new)| Change::Wide(at, new)),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => prop::collection::vec(any::<u8>(), 1..20).prop_map(Change::Append),
    ]
}

/// A change of the list of records, from one record of a kind on.
#[derive(Clone, Debug)]
enum Crafted {
    Altered(Vec<Change>),
    Dropped,
    Repeated,
    Moved(Index),
}

fn crafted() -> impl Strategy<Value = Crafted> {
    prop_oneof![
        6 => prop::collection::vec(change(), 1..3).prop_map(Crafted::Altered),
        1 => Just(Crafted::Dropped),
        1 => Just(Crafted::Repeated),
        1 => any::<Index>().prop_map(Crafted::Moved),
    ]
}

impl Remains {
    /// The records with one of them crafted.
    fn records(&self, kind: Index, which: Index, how: &Crafted) -> Vec<Vec<u8>> {
        let mut records = self.records.clone();
        let numbers = kind.get(&self.kinds);
        let at = *which.get(numbers);
        match how {
            Crafted::Altered(changes) => changes.iter().for_each(|change| change.apply(&mut records[at])),
            Crafted::Dropped => drop(records.remove(at)),
            Crafted::Repeated => records.insert(at, records[at].clone()),
            Crafted::Moved(to) => {
                let record = records.remove(at);
                records.insert(to.index(records.len() + 1), record);
            }
        }
        records
    }

    /// Position of the engine's state in the protected image.
    fn state_at(&self) -> usize {
        HEAD_BYTES + encode(&owner_of(&self.survivors.protected).expect("its own image")).len()
    }

    /// The engine's state, as bytes.
    fn state(&self) -> &[u8] {
        &self.survivors.protected[self.state_at()..]
    }

    /// A protected image with this state.
    fn image_with(&self, state: &[u8]) -> Vec<u8> {
        let mut image = [&self.survivors.protected[..self.state_at()], state].concat();
        IMAGE.finish(&mut image);
        image
    }

    /// For an LSM drive: the index in its state, and the position of the index.
    fn index(&self) -> (IndexImage, usize) {
        let (_, index) = decode::<(LogImage, IndexImage)>(self.state()).expect("its own state");
        let at = self.state().len() - encode(&index).len();
        (index, at)
    }

    /// Powers on with another index.
    fn use_index(&self, index: &IndexImage) -> Result<(), PowerOnError> {
        let (_, at) = self.index();
        self.use_image_twice(self.image_with(&[&self.state()[..at], &encode(index)].concat()))
    }

    /// Powers a drive on with `image` and the other survivors, and works with it; returns its survivors.
    fn use_image(&self, image: Vec<u8>) -> Result<Survivors, PowerOnError> {
        let survivors = Survivors { media: self.survivors.media.clone(), protected: image };
        use_survivors(&self.config, &survivors)
    }

    /// The same, and then again with the survivors, which are the drive's own but follow from crafted bytes.
    fn use_image_twice(&self, image: Vec<u8>) -> Result<(), PowerOnError> {
        let left = self.use_image(image)?;
        one_line(use_survivors(&self.config, &left).map(drop));
        Ok(())
    }

    /// Powers a drive on with a medium on whose pages `change` was applied, and works with it.
    fn use_medium(&self, change: impl FnMut(usize, &mut Vec<u8>, &mut Spare)) -> Result<(), PowerOnError> {
        let config = DriveConfig { media: in_memory(), ..self.config.clone() };
        let media = changed_medium(&self.config, &self.survivors.media, change);
        let survivors = Survivors { media, protected: self.survivors.protected.clone() };
        use_survivors(&config, &survivors).map(drop)
    }
}

/// A medium in memory with the pages of an image of a file; `change` is applied to data and header of the
/// readable pages, with their numbers.
fn changed_medium(
    config: &DriveConfig,
    image: &[u8],
    mut change: impl FnMut(usize, &mut Vec<u8>, &mut Spare),
) -> Vec<u8> {
    let geometry = config.flash.geometry();
    let before = media::from_image(&config.media.kind, &geometry, image).expect("as the drive left it");
    let kind = media::kind(&in_memory().kind).expect("a row");
    let mut after =
        (kind.open)(&geometry, &MediaOptions { identity: before.identity(), ..MediaOptions::default() })
            .expect("memory is there");
    let mut number = 0;
    for ppa in (0..geometry.pages() as u32).map(Ppa) {
        match (before.read_spare(ppa), before.read(ppa)) {
            (MediaPage::Programmed(mut spare), MediaPage::Programmed(data)) => {
                let mut bytes = data.to_bytes(geometry.page_bytes);
                change(number, &mut bytes, &mut spare);
                bytes.truncate(geometry.page_bytes as usize);
                after.program(ppa, &Rc::new(Region::from_bytes(bytes)).into(), &spare);
                number += 1;
            }
            (MediaPage::Erased, _) => {}
            _ => after.tear(ppa),
        }
    }
    after.image()
}

/// Powers a drive on and works with it; returns its survivors.
fn use_survivors(config: &DriveConfig, survivors: &Survivors) -> Result<Survivors, PowerOnError> {
    use_and_watch(config, survivors, &|_| ())
}

/// The same; `watch` reads the drive's state at the end.
fn use_and_watch(
    config: &DriveConfig,
    survivors: &Survivors,
    watch: &dyn Fn(&Drive),
) -> Result<Survivors, PowerOnError> {
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    let used = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, config, Some(survivors))?;
        let driver = connect(&sim, &link, &memory);
        for number in 0..KEYS {
            let _ = driver.retrieve(key(number), &mut Region::new());
        }
        let _ = driver.list(None, 4096);
        work(&driver, &mut Rng::stream(8, "work"), FURTHER_WORK);
        watch(&drive);
        Ok(drive.survivors(&mut Rng::stream(9, "cut")))
    });
    sim.clear();
    used
}

impl Remains {
    /// Folds the records and powers on; an error is one line.
    fn use_records(&self, records: &[Vec<u8>]) -> Result<(), PowerOnError> {
        self.use_image_twice((self.row.fold)(&self.config.of_engine(), &self.before, records)?)
    }

    /// Powers on with the image after a change of its state, or of one part (value log or index) of an LSM
    /// drive's state.
    fn use_changed_image(&self, in_index: bool, changes: &[Change]) -> Result<(), PowerOnError> {
        let index_at = if self.row.name == "lsm" { self.index().1 } else { self.state().len() };
        let (values, index) = self.state().split_at(index_at);
        let (mut values, mut index) = (values.to_vec(), index.to_vec());
        let part = if in_index && !index.is_empty() { &mut index } else { &mut values };
        changes.iter().for_each(|change| change.apply(part));
        self.use_image_twice(self.image_with(&[values, index].concat()))
    }
}

fn all_remains() -> &'static [Remains] {
    static REMAINS: OnceLock<Vec<Remains>> = OnceLock::new();
    REMAINS.get_or_init(|| {
        let drives =
            ENGINES.iter().flat_map(|row| variants(row).into_iter().map(move |config| (row, config)));
        drives.map(remains).collect()
    })
}

fn of_lsm() -> impl Iterator<Item = &'static Remains> {
    all_remains().iter().filter(|remains| remains.row.name == "lsm")
}

fn one_line(result: Result<(), PowerOnError>) {
    if let Err(error) = result {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn what_is_not_crafted_comes_up() {
    for remains in all_remains() {
        assert!(remains.kinds.len() > 2, "{}: {} kinds of records", remains.row.name, remains.kinds.len());
        remains.use_records(&remains.records).expect("as the drive wrote it");
        let counts_right = |drive: &Drive| {
            let miscounted = drive.counts().get("engine.miscounted_bytes");
            assert!(miscounted.is_none_or(|bytes| bytes == 0), "{miscounted:?}");
        };
        let mut survivors = remains.survivors.clone();
        for _ in 0..5 {
            survivors = use_and_watch(&remains.config, &survivors, &counts_right).expect("its own image");
        }
    }
}

/// An earlier program did not name `ftl.over_provisioning` in images of `lsm`.
#[test]
fn an_image_that_does_not_name_a_key_opens_and_names_it_afterwards() {
    for remains in all_remains().iter().filter(|remains| remains.row.sections.contains(&"ftl")) {
        let own = owner_of(&remains.survivors.protected).expect("its own image").settings;
        let text: String = decode(&encode(&own)).expect("settings are a text");
        let earlier: String =
            text.split_inclusive('\n').filter(|line| !line.starts_with("ftl.over_provisioning")).collect();
        assert!(earlier.len() < text.len(), "{}: {text}", remains.row.name);
        let head = &remains.survivors.protected[..SETTINGS_AT];
        let mut image = [head, &encode(&earlier), remains.state()].concat();
        IMAGE.finish(&mut image);
        let later = remains.use_image(image).unwrap_or_else(|error| panic!("{}: {error}", remains.row.name));
        assert_eq!(owner_of(&later.protected).map(|owner| owner.settings), Ok(own), "{}", remains.row.name);
    }
}

/// Write positions in a hash engine's state: byte positions of the next grain of each stream that has a
/// superblock.
fn stream_positions(state: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(state[at..at + 4].try_into().expect("4 bytes")) as usize;
    let superblocks = 16;
    let free = superblocks + 4 + 6 * word(superblocks);
    let mut at = free + 4 + 4 * word(free);
    let mut positions = Vec::new();
    for stream in 0..4 {
        at += 1;
        if state[at - 1] == 1 {
            positions.push((stream, at + 4));
            at += 8;
        }
    }
    positions
}

/// A stream that continued before the end of its written grains would overwrite them; a stream that left a
/// gap would hide the grains after the gap.
#[test]
fn a_stream_that_stands_elsewhere_is_refused_or_borne() {
    for remains in all_remains().iter().filter(|remains| SCHEMES.iter().any(|s| s.name == remains.row.name)) {
        let state = remains.state();
        for (stream, at) in stream_positions(state) {
            let stands = u32::from_le_bytes(state[at..at + 4].try_into().expect("4 bytes"));
            for other in stands.saturating_sub(130)..stands + 130 {
                let mut crafted = state.to_vec();
                crafted[at..at + 4].copy_from_slice(&other.to_le_bytes());
                let used = remains.use_image(remains.image_with(&crafted));
                let holds_pairs = stream < 2;
                assert!(!holds_pairs || used.is_ok() == (other == stands), "{}: {other}", remains.row.name);
                one_line(used.map(drop));
            }
        }
    }
}

/// Positions of the segments in a value log's image: byte positions of their live bytes.
fn live_positions(state: &[u8]) -> Vec<usize> {
    let word = |at: usize| u32::from_le_bytes(state[at..at + 4].try_into().expect("4 bytes")) as usize;
    let host = 3 * 4 + 8;
    let gc = host + 4 + word(host);
    let segments = gc + 4 + word(gc);
    (0..word(segments)).map(|segment| segments + 4 + segment * 30 + 22).collect()
}

/// A count of live bytes that is too low is noticed only when more bytes die than it has.
#[test]
fn a_segment_that_counts_too_few_live_bytes_costs_values_and_no_drive() {
    of_lsm().for_each(count_too_few);
}

fn count_too_few(remains: &Remains) {
    let state = remains.state();
    let positions = live_positions(state);
    assert!(positions.len() > 5, "{} segments", positions.len());
    let live = |at: usize| u64::from_le_bytes(state[at..at + 8].try_into().expect("8 bytes"));
    assert!(
        positions.iter().map(|at| live(*at)).sum::<u64>() > 50_000,
        "live bytes are where they are sought"
    );
    let lies: [fn(u64) -> u64; 4] = [|_| 0, |_| 1, |live| live / 2, |live| live.saturating_sub(1)];
    for lie in lies {
        let one_by_one = positions.iter().map(|at| vec![*at]);
        for segments in one_by_one.chain([positions.clone()]) {
            let mut crafted = state.to_vec();
            for at in segments {
                crafted[at..at + 8].copy_from_slice(&lie(live(at)).to_le_bytes());
            }
            remains.use_image_twice(remains.image_with(&crafted)).expect("it comes up");
        }
    }
}

/// Insertions and tables are numbered; the image has the next number.
#[test]
fn an_index_that_has_no_numbers_left_is_refused_or_borne() {
    for remains in of_lsm() {
        let (index, _) = remains.index();
        for left in 0..3 {
            one_line(remains.use_index(&IndexImage { next_table: u32::MAX - left, ..index.clone() }));
            let next_sequence = u64::MAX - u64::from(left);
            let refused = remains.use_index(&IndexImage { next_sequence, ..index.clone() });
            assert!(refused.is_err(), "{left} insertions are left");
            one_line(refused);
        }
    }
}

/// New tables get the numbers from the image's next one on; a table that cannot be found has only its number.
#[test]
fn a_table_numbered_like_one_that_is_yet_to_come_is_refused() {
    for remains in of_lsm() {
        let (index, _) = remains.index();
        for ahead in 0..3 {
            let mut crafted = index.clone();
            let (id, level) = crafted.tables.pop_first().expect("it has tables");
            assert!(id.0 < index.next_table);
            crafted.tables.insert(TableId(index.next_table + ahead), level);
            let refused = remains.use_index(&crafted);
            assert!(
                refused.is_err(),
                "a table has number {} of {}",
                index.next_table + ahead,
                index.next_table
            );
            one_line(refused);
        }
    }
}

/// A short record of each kind that engines write, with every byte altered, and cut off at every length. A
/// reader refuses it or folds it, and takes no more memory than an image has.
#[test]
fn every_byte_of_a_record_is_refused_or_borne() {
    for remains in all_remains() {
        let (row, config) = (remains.row, remains.config.of_engine());
        let fold = |image: &[u8], records: &[Vec<u8>]| (row.fold)(&config, image, records);
        for numbers in &remains.kinds {
            let number = *numbers.iter().min_by_key(|number| remains.records[**number].len()).expect("one");
            let image = fold(&remains.before, &remains.records[..number]).expect("as the drive wrote it");
            let record = &remains.records[number];
            let refuses = |altered: Vec<u8>| {
                memory::begin();
                let folded = fold(&image, &[altered]);
                assert!(
                    memory::largest() < 2 * image.len() + (2 << 20),
                    "{} bytes at once",
                    memory::largest()
                );
                let refuses = folded.is_err();
                one_line(folded.map(drop));
                refuses
            };
            assert!(!refuses(record.clone()));
            assert!(refuses([record, &[0][..]].concat()), "{}: a byte follows", row.name);
            for at in 0..record.len().min(200) {
                assert!(refuses(record[..at].to_vec()), "{}: {at} bytes of {record:?}", row.name);
                for altered in [record[at] ^ 1, record[at] ^ 0x80, 0, 0xff] {
                    let mut crafted = record.clone();
                    crafted[at] = altered;
                    refuses(crafted);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Pages with valid checks: of tables and of values, of pairs and of sections.
    #[test]
    fn crafted_pages_are_refused_or_borne(
        which in prop::collection::vec(any::<Index>(), 1..4), changes in prop::collection::vec(change(), 1..4),
        engine in any::<Index>(), kind in any::<Index>(), part in 0..3u32,
    ) {
        let remains = engine.get(all_remains());
        let mut by_kind: BTreeMap<u8, Vec<usize>> = BTreeMap::new();
        changed_medium(&remains.config, &remains.survivors.media, |number, _, spare| {
            by_kind.entry(spare.kind).or_default().push(number);
        });
        let pages = &by_kind.into_values().collect::<Vec<_>>()[..];
        let pages = kind.get(pages);
        let chosen: Vec<usize> = which.iter().map(|index| *index.get(pages)).collect();
        one_line(remains.use_medium(|number, data, spare| {
            if !chosen.contains(&number) {
                return;
            }
            let mut bytes = match part {
                0 => std::mem::take(data),
                1 => spare.tag.to_vec(),
                _ => [spare.lpa.to_le_bytes(), spare.sequence.to_le_bytes()].concat(),
            };
            let before = bytes.len();
            changes.iter().for_each(|change| change.apply(&mut bytes));
            bytes.resize(before, 0);
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            match part {
                0 => *data = bytes,
                1 => spare.tag = bytes.try_into().expect("as long as before"),
                _ => (spare.lpa, spare.sequence) = (word(0), word(8)),
            }
        }));
    }

}

proptest! {
    #[test]
    fn crafted_records_are_refused_or_borne(
        engine in any::<Index>(), kind in any::<Index>(), which in any::<Index>(), how in crafted(),
    ) {
        let remains = engine.get(all_remains());
        one_line(remains.use_records(&remains.records(kind, which, &how)));
    }

    #[test]
    fn crafted_images_are_refused_or_borne(
        engine in any::<Index>(), in_index in any::<bool>(), changes in prop::collection::vec(change(), 1..3),
    ) {
        one_line(engine.get(all_remains()).use_changed_image(in_index, &changes));
    }
}
