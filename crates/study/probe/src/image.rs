//! Checks an image file from end to end: every pair that its drive lists, with its state.
//!
//! The drive is powered on, which recovers the state that an earlier life left; its files are not changed,
//! unless pairs are to be removed. Then its keys are listed and each is retrieved. Errors are reported per
//! key. A gap, where keys cannot be listed, is counted and bounded by the keys that may be missing, as far as
//! the drive knows them.

use std::rc::Rc;

use anyhow::{Context, anyhow, ensure};
use kvdrive_content::Region;
use kvdrive_device::Drive;
use kvdrive_device::namespaces::Unlisted;
use kvdrive_flash::media::file::extent::{Shortened, shortened};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_host::Calls;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Sim;

use kvdrive_config::setup;
use kvdrive_config::{Config, Document};

/// The result of reading a listed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState<'a> {
    /// A value that is whole: its bytes have the checksum they were stored with.
    Whole(&'a [u8]),
    /// A value that the drive does not return, since it may be wrong: 88h, or another status.
    Damaged(Status),
    /// The key is listed, but has no value.
    Lost,
}

/// Numbers of pairs of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pairs that are whole.
    pub whole: u64,
    /// Bytes of the values of whole pairs.
    pub whole_bytes: u64,
    /// Pairs with damaged values.
    pub damaged: u64,
    /// Keys that are listed and not found.
    pub lost: u64,
    /// Keys that were deleted, because their pairs were damaged or lost.
    pub removed: u64,
    /// Gaps where keys could not be listed; the pairs in them are unknown and not counted.
    pub gaps: u64,
    /// The first gap: its status, and the range of keys that may be missing.
    pub first_gap: Option<Unlisted>,
    /// The image was shortened, so the pairs at its end could not be read.
    pub shortened: Option<Shortened>,
    /// Why the drive could not write to its files, for example because the disk is full. All pairs were read
    /// nevertheless.
    pub write_failure: Option<WriteFailure>,
}

impl Tally {
    /// Is nothing damaged, lost or missing?
    pub fn is_whole(&self) -> bool {
        self.damaged == 0 && self.lost == 0 && self.gaps == 0 && self.shortened.is_none()
    }
}

/// Called with every pair.
pub type OnPair<'a> = &'a mut dyn FnMut(&Key, PairState<'_>);

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Pairs that were read.
    pub pairs: u64,
    /// Bytes of their values, as far as they are whole.
    pub bytes: u64,
    /// Bytes of all values, as the drive counts them: with engine `lsm` those that were overwritten and not yet found to be
    /// may be among them.
    pub live_bytes: u64,
}

/// In which order the pairs of an image are read.
enum Order<'a> {
    /// As the drive lists them.
    Keys,
    /// As flash has their values, some at a time; the function is called now and then.
    Flash(&'a dyn Fn(Checked)),
}

/// Pairs that are sorted at a time: with their keys some 50 MB.
const SORTED_PAIRS: usize = 1 << 20;
/// Pairs between two calls of the function for progress.
const PAIRS_A_CALL: u64 = 1 << 12;

/// Reads the image of the drive that `document` describes, and calls `each` with every pair, in the order in
/// which the drive lists them. With `removes` a pair that is damaged or lost is deleted after that.
///
/// # Errors
/// There is no image, the settings describe a drive without one, the drive does not power on, or, with
/// `removes`, its files cannot be written.
pub fn read_image(document: &Document, removes: bool, each: OnPair<'_>) -> anyhow::Result<Tally> {
    read_in(document, removes, &Order::Keys, each)
}

/// As [`read_image`], in the order of the image, so that few pages are read more than once: `each` is called with the pairs
/// that are *not whole*, in the order in which the drive lists them. `going` hears of the progress.
///
/// # Errors
/// As of [`read_image`].
pub fn check_image(
    document: &Document,
    removes: bool,
    going: &dyn Fn(Checked),
    each: OnPair<'_>,
) -> anyhow::Result<Tally> {
    read_in(document, removes, &Order::Flash(going), each)
}

fn read_in(document: &Document, removes: bool, order: &Order<'_>, each: OnPair<'_>) -> anyhow::Result<Tally> {
    let mut config = document.config()?;
    // A drive without flash reads no page, so every pair of the image would count as lost and be deleted.
    ensure!(config.flash.enabled, "nand.enabled: false; an image is of a drive that has flash");
    let path = config.media.path.clone().unwrap_or_default();
    let metadata = std::fs::metadata(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!("{}: there is no such image", path.display()),
        _ => anyhow!("{}: {error}", path.display()),
    })?;
    ensure!(!metadata.is_dir(), "{}: a folder; an image is a file", path.display());
    ensure!(metadata.is_file(), "{}: is no regular file", path.display());
    let shortened = shortened(&path).with_context(|| path.display().to_string())?;
    config.media.read_only = !removes;
    let sim = Sim::new();
    let tally = sim.block_on(|| walk(&sim, &config, (removes, order), each));
    sim.clear();
    match (tally, shortened) {
        (Ok(tally), shortened) => Ok(Tally { shortened, ..tally }),
        (Err(error), Some(shortened))
            if !matches!(error.downcast_ref(), Some(PowerOnError::CutOff { .. })) =>
        {
            Err(error.context(format!("{}: {shortened}", path.display())))
        }
        (Err(error), _) => Err(error),
    }
}

fn walk(
    sim: &Sim,
    config: &Config,
    (removes, order): (bool, &Order<'_>),
    each: OnPair<'_>,
) -> anyhow::Result<Tally> {
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(sim, config.link.clone(), memory.clone());
    let drive = Drive::power_on(sim, &link, &config.drive(), None)?;
    let drivers = setup::drivers(config, &link, &memory, &setup::cores(config, sim))?;
    let live_bytes = drive.utilization().live_bytes;
    let mut reader = Reader {
        driver: &drivers[0],
        order,
        live_bytes,
        region: Region::new(),
        value: Vec::new(),
        listed: Vec::new(),
        tally: Tally::default(),
        broken: Vec::new(),
    };
    let mut is_in_gap = false;
    drive.list_all(&mut |listed| match listed {
        Ok((key, at)) => {
            is_in_gap = false;
            reader.take(key, at, each);
        }
        Err(unlisted) => {
            reader.tally.gaps += u64::from(!std::mem::replace(&mut is_in_gap, true));
            reader.tally.first_gap.get_or_insert(unlisted);
        }
    });
    reader.look_at_listed(each);
    let Reader { mut tally, broken, .. } = reader;
    for key in broken.iter().filter(|_| removes) {
        let deleted = drivers[0].delete(*key);
        deleted.map_err(|status| anyhow::anyhow!("delete of {key}: {status}"))?;
        tally.removed += 1;
    }
    drive.drain();
    tally.write_failure = drive.write_failure().filter(|_| removes);
    match tally.write_failure.clone() {
        Some(failure) => Err(failure.into()),
        None => Ok(tally),
    }
}

/// A key that was listed.
struct Listed {
    /// Where its value lies among the others.
    at: u64,
    /// Its number in the order of the list.
    number: u32,
    key: Key,
}

/// Reads the pairs that were listed.
struct Reader<'a> {
    driver: &'a Driver,
    order: &'a Order<'a>,
    live_bytes: u64,
    region: Region,
    value: Vec<u8>,
    /// Keys whose values are to be read in another order.
    listed: Vec<Listed>,
    tally: Tally,
    broken: Vec<Key>,
}

impl Reader<'_> {
    /// The next key of the list.
    fn take(&mut self, key: Key, at: u64, each: OnPair<'_>) {
        match self.order {
            Order::Keys => {
                let state = self.look(&key);
                self.say(&key, state, each);
            }
            Order::Flash(_) => {
                self.listed.push(Listed { at, number: self.listed.len() as u32, key });
                if self.listed.len() == SORTED_PAIRS {
                    self.look_at_listed(each);
                }
            }
        }
    }

    /// Looks at the listed pairs in the order of flash, and names those that are not whole in the order of the list.
    fn look_at_listed(&mut self, each: OnPair<'_>) {
        let mut listed = std::mem::take(&mut self.listed);
        listed.sort_unstable_by_key(|pair| (pair.at, pair.number));
        let mut found = Vec::new();
        for pair in &listed {
            if let Err(status) = self.look(&pair.key) {
                found.push((pair.number, pair.key, status));
            }
            let pairs = self.tally.whole + self.tally.damaged + self.tally.lost;
            if let Order::Flash(going) = self.order
                && pairs.is_multiple_of(PAIRS_A_CALL)
            {
                going(Checked { pairs, bytes: self.tally.whole_bytes, live_bytes: self.live_bytes });
            }
        }
        found.sort_unstable_by_key(|(number, ..)| *number);
        found.into_iter().for_each(|(_, key, status)| self.say(&key, Err(status), each));
        listed.clear();
        self.listed = listed;
    }

    /// Reads and counts one pair; returns the size of its value.
    fn look(&mut self, key: &Key) -> Result<u32, Status> {
        let retrieved = self.driver.retrieve(*key, &mut self.region);
        match retrieved {
            Ok(bytes) => {
                self.tally.whole += 1;
                self.tally.whole_bytes += u64::from(bytes);
            }
            Err(Status::KEY_NOT_FOUND) => self.tally.lost += 1,
            Err(_) => self.tally.damaged += 1,
        }
        retrieved
    }

    /// Passes one pair on.
    fn say(&mut self, key: &Key, state: Result<u32, Status>, each: OnPair<'_>) {
        match state {
            Ok(bytes) => {
                self.value.resize(bytes as usize, 0);
                self.region.copy_to(0, &mut self.value);
                each(key, PairState::Whole(&self.value));
            }
            Err(status) => {
                self.broken.push(*key);
                let is_lost = status == Status::KEY_NOT_FOUND;
                each(key, if is_lost { PairState::Lost } else { PairState::Damaged(status) });
            }
        }
    }
}
