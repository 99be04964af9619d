//! The engines that a drive can have, and drives of blocks, which have none.

use std::rc::Rc;

use kvdrive_declare::image_keys;
use kvdrive_engines::divided::Divided;
use kvdrive_engines::hash::{self, HashEngine, SCHEMES, SchemeRow};
use kvdrive_engines::lsm::{self, LsmEngine};
use kvdrive_engines::stored::{self, StoredEngine};
use kvdrive_engines::{Engine, EngineConfig, Parts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_store::{STORES, StoreRow};

use crate::config::ControllerConfig;
use crate::namespaces::kv::KvNamespace;
use crate::namespaces::{Namespace, block};

/// Builds a namespace from its parts and the surviving state; the rows of [`ENGINES`] name instances of this.
pub type Start = fn(Parts, &ControllerConfig, Option<&[u8]>) -> Result<Rc<dyn Namespace>, PowerOnError>;

/// A namespace of pairs in engine `E`.
pub fn start<E: Engine>(
    parts: Parts,
    config: &ControllerConfig,
    image: Option<&[u8]>,
) -> Result<Rc<dyn Namespace>, PowerOnError> {
    let (sim, cores, journal) = (parts.sim.clone(), parts.cores.clone(), parts.journal.clone());
    let features = parts.owner.features.clone();
    let engine = E::power_on(parts, image)?;
    Ok(KvNamespace::new(&sim, config, &cores, (journal, features), engine))
}

/// Folds journal records into a protected image: [`kvdrive_engines::Engine::fold`].
pub type Fold = fn(&EngineConfig, &[u8], &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError>;

/// What decides how large a value of an engine may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Largest {
    /// The engine itself; the limit in words.
    Own(&'static str),
    /// The size of the drive: values that the engine does not take whole are divided ([`kvdrive_engines::divided`]), so
    /// the width of the length in its layout sets no limit.
    Divided,
}

impl Largest {
    /// The limit in words, for lists of engines.
    pub fn words(self) -> &'static str {
        match self {
            Largest::Own(words) => words,
            Largest::Divided => "256 MiB, or a quarter of the drive; in parts above what it takes whole",
        }
    }
}

/// An engine.
#[derive(Clone, Copy)]
pub struct EngineRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is, and where it comes from.
    pub origin: &'static str,
    /// The largest value that the engine takes on a drive that is large enough. Identify reports the limit of a drive.
    pub largest: Largest,
    /// Sections of the configuration that this engine reads and some other engine does not.
    pub sections: &'static [&'static str],
    /// Do List and iterators return keys in key order? Otherwise the order is the engine's own.
    pub ordered: bool,
    /// The counters ([`Engine::counts`]) that grow when it reclaims space while iterators are open.
    pub reclaims: &'static [&'static str],
    /// Powers a drive with it on.
    pub start: Start,
    /// Its [`kvdrive_engines::Engine::fold`].
    pub fold: Fold,
    /// Checks that such a drive can be made; an error is a line that begins with the key at fault.
    pub check: fn(&EngineConfig) -> Result<(), PowerOnError>,
    /// Settings that two drives must have in common to read each other's images.
    pub image_settings: fn(&EngineConfig) -> Vec<(&'static str, String)>,
}

/// All engines: those with a row of their own, the hash FTLs, and the stores over pages.
pub static ENGINES: &[EngineRow] = &every_engine();

/// Engines that are in no other table.
const OTHER_ENGINES: &[EngineRow] = &[EngineRow {
    name: "lsm",
    origin: "LSM-tree over a value log with byte addresses (BandSlim, section 3.4; WiscKey's key-value separation)",
    largest: Largest::Own(
        "256 MiB; with lsm.layout = published 16 MiB less 2 B and with segments 8 MiB less 1 B, since their entries have \
         24 and 23 bits for a length",
    ),
    sections: &["buffer", "packing", "lsm", "ftl", "gc"],
    ordered: LsmEngine::ORDERED,
    reclaims: &["segments_freed", "index_merges"],
    start: start::<LsmEngine>,
    fold: LsmEngine::fold,
    check: lsm::check,
    image_settings: lsm::image_settings,
}];

/// [`OTHER_ENGINES`], [`SCHEMES`] and [`STORES`], concatenated.
const fn every_engine() -> [EngineRow; OTHER_ENGINES.len() + SCHEMES.len() + STORES.len()] {
    let mut rows = [OTHER_ENGINES[0]; OTHER_ENGINES.len() + SCHEMES.len() + STORES.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = if at < OTHER_ENGINES.len() {
            OTHER_ENGINES[at]
        } else if at < OTHER_ENGINES.len() + SCHEMES.len() {
            hash_row(SCHEMES[at - OTHER_ENGINES.len()])
        } else {
            stored_row(&STORES[at - OTHER_ENGINES.len() - SCHEMES.len()])
        };
        at += 1;
    }
    rows
}

/// The row of a hash FTL.
const fn hash_row(scheme: &'static SchemeRow) -> EngineRow {
    EngineRow {
        name: scheme.name,
        origin: scheme.origin,
        largest: Largest::Divided,
        sections: &["hash"],
        ordered: HashEngine::ORDERED,
        reclaims: &["gc_data_superblocks"],
        start: start::<Divided<HashEngine>>,
        fold: HashEngine::fold,
        check: hash::check,
        image_settings: hash::image_settings,
    }
}

/// The row of a store over pages.
const fn stored_row(store: &'static StoreRow) -> EngineRow {
    EngineRow {
        name: store.name,
        origin: store.about,
        largest: Largest::Divided,
        sections: store.sections,
        ordered: StoredEngine::ORDERED,
        reclaims: store.reclaims,
        start: start::<Divided<StoredEngine>>,
        fold: StoredEngine::fold,
        check: stored::check,
        image_settings: stored::image_settings,
    }
}

/// A drive of blocks: it has no engine, and tests of engines do not apply to it.
pub const BLOCK: EngineRow = EngineRow {
    name: "block",
    origin: "one namespace of 4 KiB blocks on the flash translation layer (NVM command set)",
    largest: Largest::Own("none"),
    sections: &["ftl"],
    ordered: true,
    reclaims: &[],
    start: block::start,
    fold: block::fold,
    check: block::check,
    image_settings: |config| image_keys(&config.ftl),
};

/// Does the engine `name` use this section?
pub fn looks_at(name: &str, section: &str) -> bool {
    engine_row(name).is_ok_and(|row| row.sections.contains(&section))
}

/// The row of `name`, which may be [`BLOCK`].
///
/// # Errors
/// There is no such row; the line lists the rows that exist.
pub fn engine_row(name: &str) -> Result<&'static EngineRow, PowerOnError> {
    let rows = || ENGINES.iter().chain([&BLOCK]);
    rows().find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<_> = rows().map(|row| row.name).collect();
        PowerOnError::Config(format!("engine.name: no engine {name:?}; there are {}", names.join(", ")))
    })
}
