//! A whole drive: from configuration, medium and what survived the last power cut to a controller that serves
//! a link.
//!
//! The engine's type is forgotten here, and only here: commands run in code that knows it
//! ([`crate::requests`]).

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kvdrive_engines::firmware::Cores;
use kvdrive_engines::hash::HashConfig;
use kvdrive_engines::lsm::LsmConfig;
use kvdrive_engines::stored::StoredConfig;
use kvdrive_engines::{EngineConfig, EngineCounters, Parts, Utilization};
use kvdrive_flash::faults::Faults;
use kvdrive_flash::ftl::FtlConfig;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::media::file::Moment;
use kvdrive_flash::media::{self, Media, MediaOptions};
use kvdrive_flash::power::file_log::{FileError, FileLog, OpenedLog};
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_flash::power::{
    self, IDENTITY_AT, ImageError, Journal, MAKE_AT, Make, Owner, PowerOnError, Survivors,
};
use kvdrive_flash::{FlashConfig, FlashHealth, FlashPort, Geometry, Purpose};
use kvdrive_link::{Link, PciePort};
use kvdrive_settings::Rule::{Flag, Integer, Row, Text};
use kvdrive_settings::Rules;
use kvdrive_sim::{Ns, ResourceStatistics, Rng, Sim};
use kvdrive_spec::{Cqe, Key, Status};
use serde::{Deserialize, Deserializer};

use crate::config::ControllerConfig;
use crate::controller::Controller;
use crate::dispatch;
use crate::engines::{EngineRow, engine_row};
use crate::namespaces::{Namespace, OnListed, Pairs};

/// Everything that makes a drive.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Name of a row of [`crate::engines::ENGINES`], or of [`crate::engines::BLOCK`].
    pub engine: String,
    /// Firmware.
    pub controller: ControllerConfig,
    /// Flash.
    pub flash: FlashConfig,
    /// Page mapping, for engines that stand on it.
    pub ftl: FtlConfig,
    /// Engine `lsm`.
    pub lsm: LsmConfig,
    /// Engines that are hash FTLs.
    pub hash: HashConfig,
    /// Engines that are stores over pages.
    pub stored: StoredConfig,
    /// Power-protected memory, bytes. Needing more is a broken invariant.
    pub protected_bytes: u64,
    /// Where pages are kept.
    pub media: MediaConfig,
    /// What the identity of a drive in memory is derived from.
    pub seed: u64,
}

impl DriveConfig {
    /// Keys of `[power]`.
    pub const RULES: Rules = &[("power.protected_bytes", Integer(1, 1 << 40))];

    /// Can there be such a drive? If not, a line that begins with the key to blame.
    pub fn check(&self) -> Result<(), PowerOnError> {
        self.flash.check().map_err(|error| PowerOnError::Config(format!("flash.{error}")))?;
        (engine_row(&self.engine)?.check)(&self.of_engine())
    }

    /// What its engine sees of it.
    pub fn of_engine(&self) -> EngineConfig {
        EngineConfig {
            name: self.engine.clone(),
            flash: self.flash.clone(),
            ftl: self.ftl.clone(),
            lsm: self.lsm.clone(),
            hash: self.hash.clone(),
            stored: self.stored.clone(),
            runners: self.controller.dispatch.runners(),
            copy: self.controller.costs.copy,
            protected_bytes: self.protected_bytes,
        }
    }

    /// What two drives must have in common to understand each other's images.
    ///
    /// # Panics
    /// If there is no such engine: [`DriveConfig::check`].
    pub fn make(&self) -> Make {
        let row = engine_row(&self.engine).expect("the configuration was checked");
        let Geometry {
            channels,
            dies_per_channel,
            planes,
            blocks_per_die,
            pages_per_block,
            page_bytes,
            spare_bytes,
            spare_blocks,
        } = self.flash.geometry();
        let geometry = [
            ("flash.channels", channels),
            ("flash.dies_per_channel", dies_per_channel),
            ("flash.planes", planes),
            ("flash.blocks_per_die", blocks_per_die),
            ("flash.pages_per_block", pages_per_block),
            ("flash.page_bytes", page_bytes),
            ("flash.spare_bytes", spare_bytes),
            ("flash.spare_blocks", spare_blocks),
        ];
        let geometry = geometry.into_iter().map(|(key, value)| (key, value.to_string()));
        let engine = std::iter::once(("engine.name", self.engine.clone()));
        Make::new(engine.chain(geometry).chain((row.make)(&self.of_engine())))
    }
}

/// Where pages are kept: section `[media]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaConfig {
    /// Name of a row of [`media::MEDIA`].
    pub kind: String,
    /// Image file, for `file`; an empty path is none.
    #[serde(deserialize_with = "path_if_any")]
    pub path: Option<PathBuf>,
    /// For `file`: does a store survive the death of the host too?
    pub sync: bool,
}

fn path_if_any<'de, D: Deserializer<'de>>(path: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(path)?;
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

impl MediaConfig {
    /// Keys of `[media]`.
    pub const RULES: Rules = &[
        ("media.kind", Row(|| media::MEDIA.iter().map(|row| row.name).collect())),
        ("media.path", Text),
        ("media.sync", Flag),
    ];

    /// Is the drive in a file of the machine's?
    pub fn has_file(&self) -> bool {
        media::kind(&self.kind).is_some_and(|kind| kind.has_file)
    }

    /// The image file, if the drive is in one.
    pub fn file(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.has_file())
    }

    /// Can an empty drive begin there? If not, a line that begins with the key to blame.
    pub fn check(&self) -> Result<(), String> {
        if self.has_file() && self.path.is_none() {
            return Err(format!(
                "media.path: empty; media.kind = \"{}\" needs the path of an image",
                self.kind
            ));
        }
        Ok(())
    }
}

/// Counters of a drive, from its power-on.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    programs: [u64; Purpose::COUNT],
    reads: [u64; Purpose::COUNT],
    /// Erased blocks.
    pub erases: u64,
    /// Commands handled.
    pub commands: u64,
    /// What the engine counts.
    pub engine: EngineCounters,
}

impl Counters {
    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            programs: std::array::from_fn(|index| self.programs[index] - earlier.programs[index]),
            reads: std::array::from_fn(|index| self.reads[index] - earlier.reads[index]),
            erases: self.erases - earlier.erases,
            commands: self.commands - earlier.commands,
            engine: self.engine.since(&earlier.engine),
        }
    }

    /// Programmed pages by purpose, those that occurred.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        by_purpose(&self.programs)
    }

    /// Read pages by purpose, those that occurred.
    pub fn reads(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        by_purpose(&self.reads)
    }
}

fn by_purpose(counts: &[u64; Purpose::COUNT]) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    Purpose::ALL.iter().zip(counts).map(|((_, name), count)| (*name, *count)).filter(|(_, count)| *count > 0)
}

/// A drive with power. Dropping it does not stop it: its tasks live on its executor.
pub struct Drive {
    namespace: Rc<dyn Namespace>,
    commands: Rc<Cell<u64>>,
    flash: FlashPort,
    cores: Cores,
    journal: Journal,
    identity: Identity,
    recovery_ns: Ns,
    /// The protected image of the instant at which flash had no spare block, if that has come: what it
    /// survives with.
    saved: Rc<OnceCell<Vec<u8>>>,
}

impl Drive {
    /// Powers a drive on behind `link`: empty, with what `survivors` holds, or with what a `file` medium
    /// holds.
    pub fn power_on(
        sim: &Sim,
        link: &Rc<Link>,
        config: &DriveConfig,
        survivors: Option<&Survivors>,
    ) -> Result<Drive, PowerOnError> {
        Drive::power_on_watched(sim, link, config, survivors, &|_| {})
    }

    /// As [`Drive::power_on`]; `watch` gets the flash before anything is done with it. Recovery can be cut
    /// again at its own events: the medium as it is then, and the protected image it began with, survive.
    pub fn power_on_watched(
        sim: &Sim,
        link: &Rc<Link>,
        config: &DriveConfig,
        survivors: Option<&Survivors>,
        watch: &dyn Fn(&FlashPort),
    ) -> Result<Drive, PowerOnError> {
        let began = sim.now();
        let row = engine_row(&config.engine)?;
        config.check()?;
        let geometry = config.flash.geometry();
        let kind = media::kind(&config.media.kind)
            .ok_or_else(|| PowerOnError::Config(format!("media.kind: no medium {:?}", config.media.kind)))?;
        let medium = match survivors {
            Some(survivors) => (kind.from_image)(&geometry, &survivors.media)?,
            None => {
                refuse_lost_image(config)?;
                let options = MediaOptions {
                    path: config.media.path.clone(),
                    sync: config.media.sync,
                    identity: if kind.has_file { Identity::drawn() } else { Identity::of_seed(config.seed) },
                };
                (kind.open)(&geometry, &options)?
            }
        };
        let owner = Owner { make: config.make(), identity: medium.identity() };
        let (image, journal) = match survivors {
            Some(survivors) => (Some(survivors.protected.clone()), Journal::in_memory(medium.protection())),
            None => open_journal(config, row, &owner, &*medium)?,
        };
        if let Some(image) = &image {
            check_owner(image, &owner)?;
        }
        let flash = FlashPort::new(sim, config.flash.clone(), medium);
        watch(&flash);
        flash.find_factory_bad_blocks();
        let cores = Cores::new(sim, config.controller.dispatch.roles());
        let parts = Parts {
            sim: sim.clone(),
            cores: cores.clone(),
            flash: flash.clone(),
            journal: journal.clone(),
            owner: owner.clone(),
            config: config.of_engine(),
        };
        let namespace = (row.start)(parts, &config.controller, image.as_deref())?;
        let costs = config.controller.costs;
        let (identity, faults) = (owner.identity, flash.faults().clone());
        let controller = Controller::new(
            PciePort::new(link),
            cores.clone(),
            costs,
            journal.clone(),
            identity,
            faults,
            namespace.clone(),
        );
        controller.tell_health_of(flash.clone());
        dispatch::start(&controller, config.controller.dispatch);
        if journal.is_kept() {
            journal.checkpoint(&namespace.protected_image());
            if let (None, Some(failure)) = (&image, journal.write_failure()) {
                return Err(PowerOnError::Unwritable(failure));
            }
            let journal = journal.clone();
            flash.before_change(move || _ = journal.settle());
        }
        let saved = Rc::new(OnceCell::new());
        if flash.is_frozen() {
            // As it came up: nothing was written since.
            _ = saved.set(image.unwrap_or_else(|| namespace.protected_image()));
        }
        let (slot, owner) = (saved.clone(), Rc::downgrade(&namespace));
        flash.before_protection(move || {
            if let Some(namespace) = owner.upgrade() {
                _ = slot.set(namespace.protected_image());
            }
        });
        let commands = controller.commands();
        Ok(Drive {
            namespace,
            commands,
            flash,
            cores,
            journal,
            identity,
            recovery_ns: sim.now() - began,
            saved,
        })
    }

    /// Stores `pairs` in no time, past link and decoder, as they would arrive by DMA: what is on a drive
    /// before a study begins. The engine does all its work, and flash counts it.
    ///
    /// # Errors
    /// The first key whose store fails, and what it would be answered; some pairs behind it may have been
    /// asked for.
    pub fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        self.namespace.load(pairs)
    }

    /// Commands with these keys will come soon: a simulation that knows can go through the machine's memory
    /// for all of them at once. Nothing of the drive changes by it.
    pub fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        self.namespace.expect(keys);
    }

    /// Tells `each` of every key, in the order of a List, and of what kept some from being told. A host's List that
    /// meets a page that cannot be read fails as a whole, since a shorter one would hide what is lost; this is for
    /// whoever wants to know what is left. Behind a loss keys may come that were deleted since.
    pub fn list_all(&self, each: OnListed<'_>) {
        self.namespace.list_all(each);
    }

    /// Writes everything buffered to flash, so that it is counted.
    pub fn drain(&self) {
        self.namespace.drain();
        self.settle();
    }

    /// Writes what the journal of a `file` medium holds back, so that everything lasts that completions
    /// acknowledge. `false`: some of it is lost, and [`Drive::revoke`] has to look at each of those that were
    /// posted and not handed over.
    pub fn settle(&self) -> bool {
        self.journal.settle()
    }

    /// From now on completions are posted before what they acknowledge is on the files of a `file` medium.
    /// Whoever hands them to hosts calls [`Drive::settle`] before that: several share one group of the journal,
    /// and one wait for the machine's storage.
    pub fn defer_settling(&self) {
        self.journal.defer();
    }

    /// Does settling cost anything, so that it pays to share it?
    pub fn settles_to_files(&self) -> bool {
        self.journal.is_kept()
    }

    /// Makes a completion that was posted to the queue of this session say so if what it acknowledges is lost.
    pub fn revoke(&self, session: u32, cqe: &mut Cqe) {
        if self.journal.revokes(session, cqe.cid.get()) {
            let lost = Cqe::new(cqe.cid.get(), Status::NAMESPACE_WRITE_PROTECTED);
            *cqe = lost.with_queue(cqe.sqid.get(), cqe.sqhd.get()).with_phase(cqe.phase());
        }
    }

    /// What would survive if power failed now. Operations under way on flash end old, torn or done, by `rng`.
    pub fn survivors(&self, rng: &mut Rng) -> Survivors {
        Survivors { media: self.flash.media_image(rng), protected: self.protected_image() }
    }

    fn protected_image(&self) -> Vec<u8> {
        self.saved.get().cloned().unwrap_or_else(|| self.namespace.protected_image())
    }

    /// How its flash holds out.
    pub fn flash_health(&self) -> FlashHealth {
        self.flash.health()
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Why it is read-only, if it is: one of its files could not be written, or its flash failed where no
    /// spare block was left. Commands that would change a
    /// pair are answered [`Status::NAMESPACE_WRITE_PROTECTED`], reads go on, and nothing that was
    /// acknowledged is missing on the files. What a refused store has left in memory may be read until the
    /// drive ends.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        self.journal.write_failure()
    }

    /// As [`Drive::survivors`], and no page is torn: what was under way is as before or as afterwards.
    pub fn survivors_untorn(&self, rng: &mut Rng) -> Survivors {
        let media = self.flash.untorn_media_image(rng);
        Survivors { media, protected: self.protected_image() }
    }

    /// The rules by which it fails; none as it comes up.
    pub fn faults(&self) -> &Faults {
        self.flash.faults()
    }

    /// Counters from power-on to now.
    pub fn counters(&self) -> Counters {
        let by_purpose = |count: fn(&FlashPort, Purpose) -> u64| {
            std::array::from_fn(|index| count(&self.flash, Purpose::ALL[index].0))
        };
        Counters {
            programs: by_purpose(FlashPort::programs),
            reads: by_purpose(FlashPort::reads),
            erases: self.flash.erases(),
            commands: self.commands.get(),
            engine: self.namespace.counters(),
        }
    }

    /// What the engine counts by names of its own: [`kvdrive_engines::Engine::details`].
    pub fn engine_details(&self) -> Vec<(&'static str, u64)> {
        self.namespace.details()
    }

    /// What the engine's structures take of the DRAM, in bytes: [`kvdrive_engines::Engine::dram`].
    pub fn dram(&self) -> Vec<(&'static str, u64)> {
        self.namespace.dram()
    }

    /// Firmware cores, channels and dies with what they did.
    pub fn resources(&self) -> Vec<(String, ResourceStatistics)> {
        let cores =
            self.cores.resources().into_iter().map(|core| (core.name().to_owned(), core.statistics()));
        cores.chain(self.flash.resources()).collect()
    }

    /// How full it is.
    pub fn utilization(&self) -> Utilization {
        self.namespace.utilization()
    }

    /// Model time that power-on took, recovery included.
    pub fn recovery_ns(&self) -> Ns {
        self.recovery_ns
    }
}

/// Was a protected image made by a drive like this, and by this one?
fn check_owner(image: &[u8], drive: &Owner) -> Result<(), ImageError> {
    let image = power::owner_of(image)?;
    if let Some(difference) = drive.make.difference(&image.make) {
        let what = format!("it was made by a drive of another configuration: {difference}");
        return Err(ImageError::new(MAKE_AT, what));
    }
    if image.identity != drive.identity {
        let what = format!("it is of drive {}, and the medium of drive {}", image.identity, drive.identity);
        return Err(ImageError::new(IDENTITY_AT, what));
    }
    Ok(())
}

/// The image file of a medium that has one, itself and not a symbolic link to it: the protected image lies
/// beside it, whatever name it is opened by.
fn image_path(config: &DriveConfig) -> Option<PathBuf> {
    let path = config.media.path.as_deref().filter(|_| config.media.has_file())?;
    let target = std::fs::read_link(path).map(|target| path.parent().unwrap_or(Path::new("")).join(target));
    // One that leads nowhere yet is followed a step, to where the file will be.
    Some(path.canonicalize().or(target).unwrap_or_else(|_| path.to_owned()))
}

/// An image file has its heads before it has a protected image: one without them, beside a protected image,
/// was lost. It is looked at before a medium makes a new one in its place.
fn refuse_lost_image(config: &DriveConfig) -> Result<(), PowerOnError> {
    let Some(path) = image_path(config) else { return Ok(()) };
    let is_there = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
    let is_lost = !is_there && FileLog::newest(&path)?.is_some_and(|found| !found.image.is_empty());
    if is_lost { Err(PowerOnError::Imageless(path)) } else { Ok(()) }
}

/// Reads the protected image a `file` medium left, and begins a new journal. The records since the last
/// checkpoint are folded into the image by the engine they belong to.
fn open_journal(
    config: &DriveConfig,
    row: &EngineRow,
    owner: &Owner,
    medium: &dyn Media,
) -> Result<(Option<Vec<u8>>, Journal), PowerOnError> {
    let Some(path) = image_path(config) else { return Ok((None, Journal::in_memory(medium.protection()))) };
    let path = &*path;
    let found = FileLog::read(path, medium.identity())?;
    let image = match &found {
        Some(found) if found.image.is_empty() => None,
        Some(found) => {
            check_owner(&found.image, owner)?;
            Some((row.fold)(&config.of_engine(), &found.image, &found.records)?)
        }
        None => None,
    };
    // Before anything is written: whoever finds the missing files may put them back.
    if image.is_none() && !medium.is_blank() {
        return Err(PowerOnError::Unprotected(path.to_owned()));
    }
    let after = found.as_ref().map_or_else(Moment::default, OpenedLog::moment);
    let protection = medium.protection();
    if protection.is_on() {
        return Ok((image, Journal::to_file(None, protection)));
    }
    let content = image.as_deref().unwrap_or(&[]);
    let log = match FileLog::create(path, medium.identity(), after, content, config.media.sync) {
        Ok(log) => Some(log),
        // A full disk can be read.
        Err(FileError { path, error }) if image.is_some() => {
            protection.turn_on(&path, "cannot be written", &error);
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok((image, Journal::to_file(log, protection)))
}
