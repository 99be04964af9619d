//! Drives by the name of their engine, and drives of blocks, which have none.

use std::ops::Deref;
use std::rc::Rc;

use kvdrive_declare::image_keys;
pub use kvdrive_engines::table::Largest;
use kvdrive_engines::table::{self, About, Family};
use kvdrive_engines::{Engine, EngineConfig, Parts};
use kvdrive_flash::power::PowerOnError;

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

/// An engine: what it says of itself, and the functions of its type.
#[derive(Clone, Copy)]
pub struct EngineRow {
    about: &'static About,
    /// Powers a drive with it on.
    pub start: Start,
    /// Its [`kvdrive_engines::Engine::fold`].
    pub fold: Fold,
    /// Checks that such a drive can be made; an error is a line that begins with the key at fault.
    pub check: fn(&EngineConfig) -> Result<(), PowerOnError>,
    /// Settings that two drives must have in common to read each other's images.
    pub image_settings: fn(&EngineConfig) -> Vec<(&'static str, String)>,
}

impl Deref for EngineRow {
    type Target = About;

    fn deref(&self) -> &About {
        self.about
    }
}

impl EngineRow {
    const fn of<E: Engine>(about: &'static About) -> EngineRow {
        EngineRow {
            about,
            start: start::<E>,
            fold: E::fold,
            check: E::check,
            image_settings: E::image_settings,
        }
    }
}

macro_rules! rows {
    ($($field:ident: $settings:ty => $engine:ty;)*) => {{
        const COUNT: usize = 0 $(+ <$settings as Family>::ENGINES.len())*;
        let (mut rows, mut filled) = ([BLOCK; COUNT], 0);
        $(
            let (engines, mut at) = (<$settings as Family>::ENGINES, 0);
            while at < engines.len() {
                rows[filled] = EngineRow::of::<$engine>(&engines[at]);
                (at, filled) = (at + 1, filled + 1);
            }
        )*
        rows
    }};
}

/// All engines ([`kvdrive_engines::table`]).
pub static ENGINES: &[EngineRow] = &kvdrive_engines::each_engine!(rows);

/// A drive of blocks: it has no engine, and tests of engines do not apply to it.
pub const BLOCK: EngineRow = EngineRow {
    about: &table::BLOCK,
    start: block::start,
    fold: block::fold,
    check: block::check,
    image_settings: |config| image_keys(&config.engines.ftl),
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
