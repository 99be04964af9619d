//! A whole drive: makes a controller that serves a link from a configuration, a medium and the survivors of the last
//! power cut.
//!
//! The engine's type is erased here, and only here: commands run in code that is generic over it
//! ([`crate::requests`]).

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kvdrive_declare::{Counters, Section, Sections, image_keys};
use kvdrive_engines::firmware::Cores;
use kvdrive_engines::{EngineConfig, EngineSettings, Parts, Utilization};
use kvdrive_flash::faults::Faults;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::media::file::ImageMoment;
use kvdrive_flash::media::file::extent::shortened;
use kvdrive_flash::media::{self, Media, MediaOptions};
use kvdrive_flash::power::file_log::{FileError, FileLog, OpenedLog};
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_flash::power::{
    self, IDENTITY_AT, ImageError, ImageSettings, Journal, NamespaceFeatures, Owner, PowerOnError,
    SETTINGS_AT, Survivors,
};
use kvdrive_flash::{FlashConfig, FlashHealth, FlashPort};
use kvdrive_link::{Link, PciePort};
use kvdrive_nvme::identify::{self, CSI_KV, cns};
use kvdrive_nvme::{Cqe, Key, Status};
use kvdrive_sim::{Ns, ResourceStatistics, Rng, Sim};
use zerocopy::FromBytes;

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
    /// Settings of the engine, and of the others.
    pub engines: EngineSettings,
    /// Power-protected memory, bytes. Needing more is a broken invariant.
    pub protected_bytes: u64,
    /// Where pages are kept.
    pub media: MediaConfig,
    /// The seed of the identity of a drive in memory.
    pub seed: u64,
}

impl DriveConfig {
    /// Can there be such a drive? If not, a line that begins with the key to blame.
    pub fn check(&self) -> Result<(), PowerOnError> {
        self.flash.check().map_err(|error| PowerOnError::Config(format!("flash.{error}")))?;
        // Recovery without flash finds the tables of an image empty, and the image would lose its pairs.
        if !self.flash.enabled && self.media.has_file() {
            let kind = &self.media.kind;
            return Err(PowerOnError::Config(format!(
                "nand.enabled: false; media.kind = \"{kind}\" keeps pages: set media.kind to tags"
            )));
        }
        (engine_row(&self.engine)?.check)(&self.of_engine())
    }

    /// The reason why the engine did not start: that the image file was cut off, if it was, else `cause`.
    fn of_file(&self, cause: PowerOnError) -> PowerOnError {
        let Some(path) = self.media.file() else { return cause };
        match shortened(path) {
            Ok(Some(shortened)) => PowerOnError::CutOff {
                path: path.to_owned(),
                shortened,
                engine: self.engine.clone(),
                cause: Box::new(cause),
            },
            _ => cause,
        }
    }

    /// The configuration of the engine.
    pub fn of_engine(&self) -> EngineConfig {
        EngineConfig {
            name: self.engine.clone(),
            flash: self.flash.clone(),
            engines: self.engines.clone(),
            runners: self.controller.dispatch.runners(),
            copy: self.controller.costs.copy,
            protected_bytes: self.protected_bytes,
        }
    }

    /// Settings that two drives must have in common to read each other's images.
    ///
    /// # Panics
    /// If the engine does not exist; [`DriveConfig::check`] finds that.
    pub fn image_settings(&self) -> ImageSettings {
        let row = engine_row(&self.engine).expect("the configuration was checked");
        let engine = std::iter::once(("engine.name", self.engine.clone()));
        ImageSettings::new(
            engine.chain(image_keys(&self.flash)).chain((row.image_settings)(&self.of_engine())),
        )
    }
}

/// Where pages are kept: section `[media]`.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section("media", default)]
pub struct MediaConfig {
    /// Medium: where pages are kept (`kvdrive list media`).
    #[setting(is = Row(|| media::MEDIA.iter().map(|row| row.name).collect()), option = "media")]
    pub kind: String,
    /// Medium `file`: path of the image file; an empty path is none.
    #[setting(is = Text)]
    pub path: Option<PathBuf>,
    /// Medium `file`: whether a store survives not only the end of the process, but also a crash of the machine. This
    /// is slow.
    pub sync: bool,
    /// Medium `file`: the files are not changed, and a shortened file is read as far as it goes.
    pub read_only: bool,
    /// Medium `file`: most memory for pages that were read and found whole, so that they are not read and checked again;
    /// 0 keeps none. A page that is damaged in the file meanwhile is found once it has left this memory, and by `check`.
    #[setting(is = Integer(0, 1 << 40), when = &[When::one_of("media.kind", &["file"])])]
    pub cache_bytes: u64,
}

impl MediaConfig {
    /// Is the drive in files of the machine?
    pub fn has_file(&self) -> bool {
        media::kind(&self.kind).is_some_and(|kind| kind.has_file)
    }

    /// The image file, if the drive is in one.
    pub fn file(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.has_file())
    }

    /// Checks that an empty drive can be made there; an error is a line that begins with the key at fault.
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

/// What the drive itself counts since power-on.
#[derive(Counters)]
struct DriveCounters {
    /// Commands handled.
    commands: u64,
    /// Model time that has passed.
    #[counter(modelled)]
    model_ns: Ns,
    /// Model time that power-on took, recovery included.
    #[counter(modelled, state)]
    recovery_ns: Ns,
}

/// A drive with power. Dropping it does not stop it: its tasks live on the executor.
pub struct Drive {
    sim: Sim,
    namespace: Rc<dyn Namespace>,
    commands: Rc<Cell<u64>>,
    flash: FlashPort,
    cores: Cores,
    journal: Journal,
    identity: Identity,
    recovery_ns: Ns,
    /// The protected image of the moment at which flash ran out of spare blocks, if that has happened: the
    /// state that survives.
    saved: Rc<OnceCell<Vec<u8>>>,
}

/// The medium in `survivors`; without survivors, the one that the configuration names.
fn open_medium(config: &DriveConfig, survivors: Option<&Survivors>) -> Result<Box<dyn Media>, PowerOnError> {
    let geometry = config.flash.geometry();
    let kind = media::kind(&config.media.kind)
        .ok_or_else(|| PowerOnError::Config(format!("media.kind: no medium {:?}", config.media.kind)))?;
    if let Some(survivors) = survivors {
        return Ok((kind.from_image)(&geometry, &survivors.media)?);
    }
    refuse_lost_image(config)?;
    let options = MediaOptions {
        path: config.media.path.clone(),
        sync: config.media.sync,
        read_only: config.media.read_only,
        cache_bytes: config.media.cache_bytes,
        identity: if kind.has_file { Identity::drawn() } else { Identity::of_seed(config.seed) },
    };
    Ok((kind.open)(&geometry, &options)?)
}

/// Where the protected image is kept at the moment that flash is frozen; [`Drive::saved`] has it from then on.
fn keep_image_of_freezing(
    flash: &FlashPort,
    namespace: &Rc<dyn Namespace>,
    image: Option<Vec<u8>>,
) -> Rc<OnceCell<Vec<u8>>> {
    let saved = Rc::new(OnceCell::new());
    if flash.is_frozen() {
        // The state at power-on: nothing has been written since.
        _ = saved.set(image.unwrap_or_else(|| namespace.protected_image()));
    }
    let (slot, owner) = (saved.clone(), Rc::downgrade(namespace));
    flash.before_protection(move || {
        if let Some(namespace) = owner.upgrade() {
            _ = slot.set(namespace.protected_image());
        }
    });
    saved
}

/// What was started, unless recovery met a record of another version: whatever else it says of pages that it could not read,
/// that is the cause.
fn unless_foreign<T>(flash: &FlashPort, started: Result<T, PowerOnError>) -> Result<T, PowerOnError> {
    flash.foreign().map_or(started, |foreign| Err(foreign.into()))
}

impl Drive {
    /// Powers on a drive at the device end of `link`: empty, or with the state in `survivors`, or with the state in the
    /// files of a `file` medium.
    pub fn power_on(
        sim: &Sim,
        link: &Rc<Link>,
        config: &DriveConfig,
        survivors: Option<&Survivors>,
    ) -> Result<Drive, PowerOnError> {
        Drive::power_on_watched(sim, link, config, survivors, &|_| {})
    }

    /// As [`Drive::power_on`]; passes the flash to `watch` before recovery uses it. If the power is cut again during
    /// recovery, the survivors are the medium at that moment and the protected image with which recovery began.
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
        let medium = open_medium(config, survivors)?;
        let (settings, identity) = (config.image_settings(), medium.identity());
        let owner = Owner { identity, settings, features: NamespaceFeatures::default() };
        let (image, journal) = match survivors {
            Some(survivors) => (Some(survivors.protected.clone()), Journal::in_memory(medium.protection())),
            None => open_journal(config, row, &owner, &*medium)?,
        };
        if let Some(image) = &image {
            check_owner(image, &owner)?;
            owner.features.set_key_value(power::owner_of(image)?.features.key_value());
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
        let started = (row.start)(parts, &config.controller, image.as_deref());
        let namespace = unless_foreign(&flash, started).map_err(|error| config.of_file(error))?;
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
        let saved = keep_image_of_freezing(&flash, &namespace, image);
        let commands = controller.commands();
        Ok(Drive {
            sim: sim.clone(),
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

    /// Stores `pairs` in no time, without link and decoder, as if they arrived by DMA: the content of a drive
    /// before a study. The engine does all its work, and flash counts it.
    ///
    /// # Errors
    /// The first key whose store fails, and its status; later pairs may have been drawn from `pairs` already.
    pub fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        self.namespace.load(pairs)
    }

    /// Announces that commands with these keys will come soon, so that a simulation can fetch their data from
    /// the machine's memory together. Nothing in the drive changes.
    pub fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        self.namespace.expect(keys);
    }

    /// Passes every key to `each`, in the order of a List, and every gap with its cause. A host's List fails
    /// as a whole if it meets an unreadable page, since a shorter list would hide the loss; this call is for finding
    /// the pairs that are left. After a gap, keys may appear that were deleted since.
    pub fn list_all(&self, each: OnListed<'_>) {
        self.namespace.list_all(each);
    }

    /// Writes all buffered pages to flash, so that they are counted, and looks whether the drive's files are still in
    /// their places ([`Drive::write_failure`]).
    pub fn drain(&self) {
        self.namespace.drain();
        self.settle();
        self.journal.check_files();
    }

    /// Writes out the journal of a `file` medium, so that everything that completions acknowledge is durable. `false`:
    /// some changes are lost, and [`Drive::revoke`] has to be called for each completion that was posted and not yet
    /// handed over.
    pub fn settle(&self) -> bool {
        self.journal.settle()
    }

    /// From now on, completions are posted before the changes that they acknowledge are in the files of a `file`
    /// medium. The caller has to call [`Drive::settle`] before it hands them to hosts: several completions then share
    /// one group of the journal, and one wait for the machine's storage.
    pub fn defer_settling(&self) {
        self.journal.defer();
    }

    /// Does settling cost anything, so that sharing it pays off?
    pub fn settles_to_files(&self) -> bool {
        self.journal.is_kept()
    }

    /// Sets the status of a completion posted to the queue of this session, if the write that it acknowledges is lost.
    pub fn revoke(&self, session: u32, cqe: &mut Cqe) {
        if self.journal.revokes(session, cqe.cid.get()) {
            let lost = Cqe::new(cqe.cid.get(), Status::NAMESPACE_WRITE_PROTECTED);
            *cqe = lost.with_queue(cqe.sqid.get(), cqe.sqhd.get()).with_phase(cqe.phase());
        }
    }

    /// The state that would survive if power failed now. `rng` chooses for each flash operation in progress
    /// whether it ends old, torn or done.
    pub fn survivors(&self, rng: &mut Rng) -> Survivors {
        Survivors { media: self.flash.media_image(rng), protected: self.protected_image() }
    }

    fn protected_image(&self) -> Vec<u8> {
        self.saved.get().cloned().unwrap_or_else(|| self.namespace.protected_image())
    }

    /// Health of its flash.
    pub fn flash_health(&self) -> FlashHealth {
        self.flash.health()
    }

    /// Its identity.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Why the drive is read-only, if it is: a file could not be written, or flash failed and no spare block was left.
    /// Commands that would change a pair get [`Status::NAMESPACE_WRITE_PROTECTED`]; reads continue, and the files hold
    /// everything that was acknowledged. Until the drive ends, reads may return values of refused stores that are still
    /// in memory.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        self.journal.write_failure()
    }

    /// As [`Drive::survivors`], but no page is torn: each operation in progress ends old or done.
    pub fn survivors_untorn(&self, rng: &mut Rng) -> Survivors {
        let media = self.flash.untorn_media_image(rng);
        Survivors { media, protected: self.protected_image() }
    }

    /// The fault rules; there are none at power-on.
    pub fn faults(&self) -> &Faults {
        self.flash.faults()
    }

    /// What it counts since power-on, by section.
    pub fn counts(&self) -> Sections {
        let (commands, model_ns, recovery_ns) = (self.commands.get(), self.sim.now(), self.recovery_ns);
        let drive = DriveCounters { commands, model_ns, recovery_ns }.counts();
        Sections::default()
            .with("nand", self.flash.counts())
            .with("drive", drive.and(&self.utilization()))
            .with("engine", self.namespace.counts())
            .with("dram", self.namespace.dram())
            .with("flash_health", self.flash_health().counts())
    }

    /// Statistics of firmware cores, channels and dies.
    pub fn resources(&self) -> Vec<(String, ResourceStatistics)> {
        let cores =
            self.cores.resources().into_iter().map(|core| (core.name().to_owned(), core.statistics()));
        cores.chain(self.flash.resources()).collect()
    }

    /// How long each die and each channel was busy since power-on, by the name of their resource, ns.
    pub fn busy_parts(&self) -> Vec<(String, Vec<Ns>)> {
        self.flash.busy_parts()
    }

    /// How full it is.
    pub fn utilization(&self) -> Utilization {
        self.namespace.utilization()
    }

    /// The largest value that it takes, as Identify reports it, bytes; `None`: it has blocks and no pairs.
    pub fn value_max_bytes(&self) -> Option<u32> {
        let page = self.namespace.identify(cns::CSI_NAMESPACE, [0; 16])?;
        let page = identify::KvNamespace::read_from_bytes(&page).ok()?;
        (self.namespace.command_set() == CSI_KV).then(|| page.format().value_max_bytes.get())
    }
}

/// Checks that a protected image was made by this drive, with the same settings.
fn check_owner(image: &[u8], drive: &Owner) -> Result<(), ImageError> {
    let image = power::owner_of(image)?;
    if let Some(difference) = drive.settings.difference(&image.settings) {
        let what = format!("it was made by a drive of another configuration: {difference}");
        return Err(ImageError::new(SETTINGS_AT, what));
    }
    if image.identity != drive.identity {
        let what = format!("it is of drive {}, and the medium of drive {}", image.identity, drive.identity);
        return Err(ImageError::new(IDENTITY_AT, what));
    }
    Ok(())
}

/// The image file of a medium that has one, with symbolic links resolved: the protected image lies beside the file
/// itself, by whichever name the file is opened.
fn image_path(config: &DriveConfig) -> Option<PathBuf> {
    let path = config.media.path.as_deref().filter(|_| config.media.has_file())?;
    let target = std::fs::read_link(path).map(|target| path.parent().unwrap_or(Path::new("")).join(target));
    // A link to a file that does not exist yet is followed one step, to where the file will be.
    Some(path.canonicalize().or(target).unwrap_or_else(|_| path.to_owned()))
}

/// Refuses a drive whose image file was lost: an image file gets its heads before the protected image is
/// written, so a protected image beside a file without heads means a loss. This runs before a medium makes a
/// new file in its place.
fn refuse_lost_image(config: &DriveConfig) -> Result<(), PowerOnError> {
    let Some(path) = image_path(config) else { return Ok(()) };
    let is_there = std::fs::metadata(&path).is_ok_and(|file| file.len() > 0);
    let is_lost = !is_there && FileLog::newest(&path)?.is_some_and(|found| !found.image.is_empty());
    if is_lost { Err(PowerOnError::Imageless(path)) } else { Ok(()) }
}

/// Reads the protected image that a `file` medium left, and begins a new journal. The engine folds the
/// records since the last checkpoint into the image.
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
    // Checked before anything is written, so that the missing files can still be put back.
    if image.is_none() && !medium.is_blank() {
        return Err(PowerOnError::Unprotected(path.to_owned()));
    }
    let after = found.as_ref().map_or_else(ImageMoment::default, OpenedLog::moment);
    let protection = medium.protection();
    if protection.is_on() {
        return Ok((image, Journal::to_file(None, protection)));
    }
    let content = image.as_deref().unwrap_or(&[]);
    let log = match FileLog::create(path, medium.identity(), after, content, config.media.sync) {
        Ok(log) => Some(log),
        // A drive on a full disk can still be read.
        Err(FileError { path, error }) if image.is_some() => {
            protection.turn_on(&path, "cannot be written", &error);
            None
        }
        Err(error) => return Err(error.into()),
    };
    Ok((image, Journal::to_file(log, protection)))
}
