//! Pages with valid checks but not the content that was last written there: earlier content put back, pages
//! moved or swapped, with their own headers or with those of the place. Every engine refuses such a medium in
//! one line, or answers 88h for lost pairs; it never panics, neither at power-on nor at the commands that
//! follow. Pages of a hash engine say where and in which life of their superblock they were written, so it
//! never takes a page with the header of another one for its own.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_engines::hash::scheme;
use kvdrive_flash::media::{self, Media, MediaOptions, MediaPage};
use kvdrive_flash::power::Survivors;
use kvdrive_flash::{Ppa, Spare};
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim};

use super::rig;
use super::small_drives::{connect, in_memory, key, variants};

const KEYS: u64 = 60;
/// Moments of a life at which the medium is kept.
const MOMENTS: u32 = 6;
/// Media that are tried on each engine, in turn on the variants of its drive.
const TRIES: u64 = 60;

/// The value under each key: seed and number of its bytes. `None`: unknown.
type Pairs = BTreeMap<u64, Option<(u64, u32)>>;

/// Stores and deletes.
fn work(driver: &Driver, rng: &mut Rng, steps: u32, pairs: &mut Pairs) {
    for _ in 0..steps {
        let number = rng.below(KEYS);
        let (key, seed) = (key(number), rng.next_u64());
        let bytes = [0, 8, 100, 500, 2048, 4096, 6000][rng.below(7) as usize];
        let answer = match rng.below(8) {
            0 => driver.delete(key).map(|()| None),
            _ => {
                let value = Piece::Pattern(Pattern::of_value(&key, seed, bytes));
                driver.store(key, value).map(|()| Some((seed, bytes)))
            }
        };
        match answer {
            Ok(Some(stored)) => _ = pairs.insert(number, Some(stored)),
            Ok(None) => _ = pairs.remove(&number),
            Err(_) => _ = pairs.insert(number, None),
        }
    }
}

/// A drive's life: its medium at some moments, the survivors of the last one, and the pairs at that time.
struct Life {
    config: DriveConfig,
    media: Vec<Box<dyn Media>>,
    protected: Vec<u8>,
    pairs: Pairs,
}

fn life(row: &EngineRow, config: &DriveConfig) -> Life {
    let config = DriveConfig { media: in_memory(), ..config.clone() };
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    let mut pairs = Pairs::new();
    let survivors: Vec<Survivors> = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, &config, None).expect("an empty drive comes up");
        let driver = connect(&sim, &link, &memory);
        let (mut rng, mut cuts) = (Rng::stream(17, "work"), Rng::stream(17, "cuts"));
        let mut survivors = Vec::new();
        for _ in 0..MOMENTS {
            work(&driver, &mut rng, 200, &mut pairs);
            survivors.push(drive.survivors(&mut cuts));
        }
        survivors
    });
    sim.clear();
    let media = survivors.iter().map(|moment| {
        media::from_image(&config.media.kind, &config.flash.geometry(), &moment.media).expect(row.name)
    });
    Life {
        media: media.collect(),
        protected: survivors.last().expect("moments").protected.clone(),
        config,
        pairs,
    }
}

/// The origin of a page of the altered medium.
#[derive(Clone, Copy, Debug)]
struct From {
    moment: usize,
    ppa: Ppa,
    /// Put with the header of its new place, if that place has one.
    made_good: bool,
}

impl Life {
    fn page(&self, from: From) -> Option<(Rc<Region>, Spare)> {
        let medium = &self.media[from.moment];
        match (medium.read(from.ppa), medium.read_spare(from.ppa)) {
            (MediaPage::Programmed(data), MediaPage::Programmed(spare)) => Some((data.into_region(), spare)),
            _ => None,
        }
    }

    /// The last medium with some pages replaced.
    fn medium(&self, replaced: &BTreeMap<Ppa, From>) -> Vec<u8> {
        let geometry = self.config.flash.geometry();
        let last = &self.media[self.media.len() - 1];
        let options = MediaOptions { identity: last.identity(), ..MediaOptions::default() };
        let kind = media::kind(&self.config.media.kind).expect("a row");
        let mut medium = (kind.open)(&geometry, &options).expect("memory is there");
        for ppa in (0..geometry.pages() as u32).map(Ppa) {
            let here = From { moment: self.media.len() - 1, ppa, made_good: false };
            let from = replaced.get(&ppa).copied().unwrap_or(here);
            match (self.page(from), self.page(here)) {
                (Some((data, _)), Some((_, spare))) if from.made_good => {
                    medium.program(ppa, &data.into(), &spare)
                }
                (Some((data, spare)), _) => medium.program(ppa, &data.into(), &spare),
                (None, Some(_)) => medium.tear(ppa),
                (None, None) if last.read_spare(ppa) == MediaPage::Damaged => medium.tear(ppa),
                (None, None) => {}
            }
        }
        medium.image()
    }

    /// Some pages, and the pages to put there.
    fn draw(&self, rng: &mut Rng) -> BTreeMap<Ppa, From> {
        let last = self.media.len() - 1;
        let pages = self.config.flash.geometry().pages();
        let is_there = |ppa: &Ppa| self.page(From { moment: last, ppa: *ppa, made_good: false }).is_some();
        let written: Vec<Ppa> = (0..pages as u32).map(Ppa).filter(is_there).collect();
        let any = |rng: &mut Rng| written[rng.below(written.len() as u64) as usize];
        let mut replaced = BTreeMap::new();
        for _ in 0..1 + rng.below(3) {
            let (here, there) = (any(rng), any(rng));
            let moment = rng.below(last as u64) as usize;
            let made_good = rng.one_in(2);
            match rng.below(4) {
                0 => _ = replaced.insert(here, From { moment, ppa: here, made_good }),
                1 => _ = replaced.insert(here, From { moment: last, ppa: there, made_good }),
                2 => _ = replaced.insert(here, From { moment, ppa: there, made_good }),
                _ => {
                    replaced.insert(here, From { moment: last, ppa: there, made_good });
                    replaced.insert(there, From { moment: last, ppa: here, made_good });
                }
            }
        }
        replaced
    }

    /// Powers on with an altered medium and works; then does so again. `check`: no page is taken for another one, so
    /// each pair is as stored, or reported as lost.
    fn live_on(&self, media: Vec<u8>, check: bool) -> bool {
        let mut survivors = Survivors { media, protected: self.protected.clone() };
        for life in 0..2 {
            let sim = Sim::new();
            let memory = Rc::new(LocalMemory::new());
            let link = Link::new(&sim, rig::link_config(4096), memory.clone());
            let left = sim.block_on(|| {
                let drive = match Drive::power_on(&sim, &link, &self.config, Some(&survivors)) {
                    Ok(drive) => drive,
                    Err(error) => {
                        assert_eq!(error.to_string().lines().count(), 1, "{error}");
                        return None;
                    }
                };
                let driver = connect(&sim, &link, &memory);
                if life == 0 {
                    self.retrieve_all(&driver, check);
                }
                let _ = driver.list(None, 4096);
                work(&driver, &mut Rng::stream(8, "work"), 150, &mut Pairs::new());
                Some(drive.survivors(&mut Rng::stream(9, "cut")))
            });
            sim.clear();
            match left {
                Some(left) => survivors = left,
                None => return life > 0,
            }
        }
        true
    }

    fn retrieve_all(&self, driver: &Driver, check: bool) {
        for number in 0..KEYS {
            let (key, mut region) = (key(number), Region::new());
            let answer = driver.retrieve(key, &mut region);
            let right = match (answer, self.pairs.get(&number)) {
                (Err(Status::UNRECOVERED_ERROR), _) | (_, Some(None)) => true,
                (Err(status), None) => status == Status::KEY_NOT_FOUND,
                (Ok(bytes), Some(Some((seed, stored)))) => {
                    let mut expected = vec![0; *stored as usize];
                    Pattern::of_value(&key, *seed, *stored).expand(&mut expected);
                    bytes == *stored && region.to_bytes(bytes) == expected
                }
                _ => false,
            };
            assert!(right || !check, "key {number} answers {answer:?}");
        }
    }
}

#[test]
fn pages_put_back_moved_and_swapped_are_refused_or_lost() {
    for row in ENGINES {
        let mut came_up = 0;
        let variants = variants(row);
        for (turn, config) in variants.iter().enumerate() {
            let life = life(row, config);
            assert!(life.live_on(life.medium(&BTreeMap::new()), true), "{}: as it was", row.name);
            for seed in (turn as u64..TRIES).step_by(variants.len()) {
                let replaced = life.draw(&mut Rng::stream(seed, "pages"));
                // An LSM drive recognises the newest version of a page by the pages that it finds.
                let tells = scheme(row.name).is_some() && replaced.values().all(|from| !from.made_good);
                let medium = life.medium(&replaced);
                let tried =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.live_on(medium, tells)));
                came_up += u64::from(tried.unwrap_or_else(|_| panic!("{}, {seed}: {replaced:?}", row.name)));
            }
        }
        assert!(came_up > TRIES / 10, "{}: {came_up} drives came up", row.name);
    }
}
