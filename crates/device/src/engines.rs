//! The engines that a drive can have, and drives of blocks, which have none.

use std::rc::Rc;

use kvdrive_engines::hash::{self, HashEngine, SCHEMES, SchemeRow};
use kvdrive_engines::lsm::{self, LsmEngine};
use kvdrive_engines::stored::{self, StoredEngine};
use kvdrive_engines::{Engine, EngineConfig, Parts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_store::{Reclaim, STORES, StoreRow};

use crate::config::ControllerConfig;
use crate::namespaces::kv::KvNamespace;
use crate::namespaces::{Namespace, block};

/// Builds a namespace from its parts and what survived; the rows of [`ENGINES`] name instances of this.
pub type Start = fn(Parts, &ControllerConfig, Option<&[u8]>) -> Result<Rc<dyn Namespace>, PowerOnError>;

/// A namespace of pairs in engine `E`.
pub fn start<E: Engine>(
    parts: Parts,
    config: &ControllerConfig,
    image: Option<&[u8]>,
) -> Result<Rc<dyn Namespace>, PowerOnError> {
    let (sim, cores, journal) = (parts.sim.clone(), parts.cores.clone(), parts.journal.clone());
    let engine = E::power_on(parts, image)?;
    Ok(KvNamespace::new(&sim, config, &cores, journal, engine))
}

/// Applies journal records to a protected image: [`kvdrive_engines::Engine::fold`].
pub type Fold = fn(&EngineConfig, &[u8], &[(u8, Vec<u8>)]) -> Result<Vec<u8>, PowerOnError>;

/// One engine.
#[derive(Clone, Copy)]
pub struct EngineRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is and where it comes from.
    pub origin: &'static str,
    /// The embedded profile (crate `lab`) with the drive that it was published on: that of a run that names none.
    pub profile: &'static str,
    /// Sections of a configuration that it looks at, of those that not every engine does.
    pub sections: &'static [&'static str],
    /// Do List and iterators go in the order of keys? Otherwise in an order of the engine's own.
    pub ordered: bool,
    /// How it gets room back while iterators are open, in ways that it counts ([`kvdrive_engines::EngineCounters`]).
    pub reclaims: &'static [Reclaim],
    /// Powers a drive with it on.
    pub start: Start,
    /// Its [`kvdrive_engines::Engine::fold`].
    pub fold: Fold,
    /// Can there be such a drive? If not, a line that begins with the key to blame.
    pub check: fn(&EngineConfig) -> Result<(), PowerOnError>,
    /// Which of its settings two drives must have in common to understand each other's images.
    pub make: fn(&EngineConfig) -> Vec<(&'static str, String)>,
}

/// Every engine: those with a row of their own, the hash FTLs, and the stores over pages.
pub const ENGINES: &[EngineRow] = &every_engine();

/// Engines that stand in no other table.
const OWN: &[EngineRow] = &[EngineRow {
    name: "lsm",
    origin: "LSM-tree over a value log with byte addresses (BandSlim, section 3.4; WiscKey's key-value separation)",
    profile: "cosmos-plus",
    sections: &["buffer", "packing", "lsm", "ftl", "gc"],
    ordered: true,
    reclaims: &[Reclaim::Segments, Reclaim::Merges],
    start: start::<LsmEngine>,
    fold: LsmEngine::fold,
    check: lsm::check,
    make: |config| config.lsm.make(),
}];

/// [`OWN`], [`SCHEMES`] and [`STORES`], one behind the other.
const fn every_engine() -> [EngineRow; OWN.len() + SCHEMES.len() + STORES.len()] {
    let mut rows = [OWN[0]; OWN.len() + SCHEMES.len() + STORES.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = if at < OWN.len() {
            OWN[at]
        } else if at < OWN.len() + SCHEMES.len() {
            hash_row(SCHEMES[at - OWN.len()])
        } else {
            stored_row(&STORES[at - OWN.len() - SCHEMES.len()])
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
        profile: "kvvirt",
        sections: &["hash"],
        ordered: false,
        reclaims: &[Reclaim::Segments],
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: hash::make,
    }
}

/// The row of a store over pages.
const fn stored_row(store: &'static StoreRow) -> EngineRow {
    EngineRow {
        name: store.name,
        origin: store.about,
        profile: "saker-mid",
        sections: store.sections,
        ordered: true,
        reclaims: store.reclaims,
        start: start::<StoredEngine>,
        fold: StoredEngine::fold,
        check: stored::check,
        make: stored::make,
    }
}

/// A drive of blocks: no engine, and nothing that the tests of engines could ask it.
pub const BLOCK: EngineRow = EngineRow {
    name: "block",
    origin: "one namespace of 4 KiB blocks on the flash translation layer (NVM command set)",
    // The same stores stand on it that are engines.
    profile: "saker-mid",
    sections: &["ftl"],
    ordered: true,
    reclaims: &[],
    start: block::start,
    fold: block::fold,
    check: block::check,
    make: |config| vec![("ftl.over_provisioning", config.ftl.over_provisioning.to_string())],
};

/// Does the engine called `name` look at this section?
pub fn looks_at(name: &str, section: &str) -> bool {
    engine_row(name).is_ok_and(|row| row.sections.contains(&section))
}

/// The row called `name`, which may be [`BLOCK`]'s.
///
/// # Errors
/// There is none; the line has those that there are.
pub fn engine_row(name: &str) -> Result<&'static EngineRow, PowerOnError> {
    let rows = || ENGINES.iter().chain([&BLOCK]);
    rows().find(|row| row.name == name).ok_or_else(|| {
        let names: Vec<_> = rows().map(|row| row.name).collect();
        PowerOnError::Config(format!("engine.name: no engine {name:?}; there are {}", names.join(", ")))
    })
}
