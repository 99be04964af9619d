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

/// Reads the image of the drive that `document` describes, and calls `each` with every pair, in the order in
/// which the drive lists them. With `removes` a pair that is damaged or lost is deleted after that.
///
/// # Errors
/// There is no image, the settings describe a drive without one, the drive does not power on, or, with
/// `removes`, its files cannot be written.
pub fn read_image(document: &Document, removes: bool, each: OnPair<'_>) -> anyhow::Result<Tally> {
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
    let tally = sim.block_on(|| walk(&sim, &config, removes, each));
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

fn walk(sim: &Sim, config: &Config, removes: bool, each: OnPair<'_>) -> anyhow::Result<Tally> {
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(sim, config.link.clone(), memory.clone());
    let drive = Drive::power_on(sim, &link, &config.drive(), None)?;
    let drivers = setup::drivers(config, &link, &memory, &setup::cores(config, sim))?;
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    let (mut region, mut is_in_gap) = (Region::new(), false);
    drive.list_all(&mut |listed| match listed {
        Ok(key) => {
            is_in_gap = false;
            if !look(&drivers[0], &key, &mut region, &mut tally, each) {
                broken.push(key);
            }
        }
        Err(unlisted) => {
            tally.gaps += u64::from(!std::mem::replace(&mut is_in_gap, true));
            tally.first_gap.get_or_insert(unlisted);
        }
    });
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

/// Checks one pair; returns whether it is whole.
fn look(driver: &Driver, key: &Key, region: &mut Region, tally: &mut Tally, each: OnPair<'_>) -> bool {
    match driver.retrieve(*key, region) {
        Ok(bytes) => {
            tally.whole += 1;
            tally.whole_bytes += u64::from(bytes);
            each(key, PairState::Whole(&region.to_bytes(bytes)));
            true
        }
        Err(Status::KEY_NOT_FOUND) => {
            tally.lost += 1;
            each(key, PairState::Lost);
            false
        }
        Err(status) => {
            tally.damaged += 1;
            each(key, PairState::Damaged(status));
            false
        }
    }
}
