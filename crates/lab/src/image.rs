//! An image file from end to end: every pair that its drive lists, with what became of it.
//!
//! The drive is powered on as ever, which finds on flash what an earlier life left; then its keys are listed
//! and each is retrieved. What is wrong is said of each key; nothing is passed over.

use std::rc::Rc;

use anyhow::ensure;
use kvdrive_content::Region;
use kvdrive_device::Drive;
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::Sim;
use kvdrive_spec::{Key, Status};

use crate::config::{Config, Document};
use crate::setup;

/// Room for one answer to a List, bytes.
const LIST_BYTES: u32 = 1 << 16;

/// What was found under a key that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairState<'a> {
    /// A value that is whole: its bytes have the checksum they were stored with.
    Whole(&'a [u8]),
    /// A value that the drive cannot vouch for, and does not hand out: 88h, or what else it answered.
    Damaged(Status),
    /// Nothing, although the key is listed.
    Lost,
}

/// How many pairs of each kind there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pairs that are whole, and bytes of their values.
    pub whole: u64,
    /// See `whole`.
    pub whole_bytes: u64,
    /// Pairs whose values are damaged.
    pub damaged: u64,
    /// Keys that are listed and not found.
    pub lost: u64,
    /// Keys that were deleted, because their pairs were damaged or lost.
    pub removed: u64,
    /// What ended the listing before its end: keys behind that are not known, and not counted.
    pub listing_failed: Option<Status>,
}

impl Tally {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.damaged == 0 && self.lost == 0 && self.listing_failed.is_none()
    }
}

/// Hears of every pair.
pub type OnPair<'a> = &'a mut dyn FnMut(&Key, PairState<'_>);

/// Reads the image of the drive that `document` describes, and tells `each` of every pair in the order in which
/// the drive lists them. With `removes` a pair that is damaged or lost is deleted behind that.
///
/// # Errors
/// There is no image, its drive does not power on, or a pair cannot be deleted.
pub fn read_image(document: &Document, removes: bool, each: OnPair<'_>) -> anyhow::Result<Tally> {
    let config = document.config()?;
    let path = config.media.path.clone().unwrap_or_default();
    ensure!(path.is_file(), "{}: there is no such image", path.display());
    let sim = Sim::new();
    let tally = sim.block_on(|| walk(&sim, &config, removes, each));
    sim.clear();
    tally
}

fn walk(sim: &Sim, config: &Config, removes: bool, each: OnPair<'_>) -> anyhow::Result<Tally> {
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(sim, config.link.clone(), memory.clone());
    let drive = Drive::power_on(sim, &link, &config.drive(), None)?;
    let drivers = setup::drivers(config, &link, &memory, &setup::cores(config, sim))?;
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    let mut region = Region::new();
    let mut from = None;
    loop {
        let keys = match drivers[0].list(from, LIST_BYTES) {
            Ok(keys) => keys,
            Err(status) => {
                tally.listing_failed = Some(status);
                break;
            }
        };
        // A list begins with the key it is asked from.
        let fresh: Vec<Key> = keys.into_iter().filter(|key| Some(*key) != from).collect();
        let Some(last) = fresh.last() else { break };
        let last = *last;
        for key in &fresh {
            if !look(&drivers[0], key, &mut region, &mut tally, each) {
                broken.push(*key);
            }
        }
        from = Some(last);
    }
    for key in broken.iter().filter(|_| removes) {
        let deleted = drivers[0].delete(*key);
        deleted.map_err(|status| anyhow::anyhow!("delete of {key}: {status}"))?;
        tally.removed += 1;
    }
    drive.drain();
    drive.write_failure().map_or(Ok(()), |failure| Err(failure.into())).map(|()| tally)
}

/// Looks at one pair, and says whether it is whole.
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
