//! The table of engines: one row for each folder of this crate that has an engine, and what a row says.
//!
//! A new engine is its folder and its row in `each_engine`. From the row come its settings in a configuration
//! ([`EngineSettings`]), their defaults, the names that a configuration may give, and the
//! drives of crate `device` that are built from it.

use kvdrive_declare::{Section, When};
use kvdrive_flash::ftl::FtlConfig;

/// Passes the rows to the macro `$with`: the name of its settings, their type, which is a [`Family`], and the engine.
#[macro_export]
macro_rules! each_engine {
    ($with:ident) => {
        $with! {
            lsm: $crate::lsm::LsmConfig => $crate::lsm::LsmEngine;
            anykey: $crate::anykey::AnyKeyConfig => $crate::anykey::AnyKeyEngine;
            hash: $crate::hash::HashConfig => $crate::divided::Divided<$crate::hash::HashEngine>;
            stored: $crate::stored::StoredConfig => $crate::divided::Divided<$crate::stored::StoredEngine>;
        }
    };
}

/// An engine by name: what lists, documents and tests read of it.
#[derive(Clone, Copy, Debug)]
pub struct About {
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
    /// The counters ([`Engine::counts`](crate::Engine::counts)) that grow when it reclaims space while iterators are open.
    pub reclaims: &'static [&'static str],
    /// The profile of a run that names this engine and no profile: the drive on which it was published.
    pub profile: &'static str,
}

/// What decides how large a value of an engine may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Largest {
    /// The engine itself; the limit in words.
    Own(&'static str),
    /// The size of the drive: values that the engine does not take whole are divided ([`crate::divided`]), so the width of
    /// the length in its layout sets no limit.
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

/// The settings of a family of engines: of one engine, or of several that have one type.
pub trait Family: Section {
    /// The engines, by name.
    const ENGINES: &'static [About];

    /// The conditions under which a run reads these settings.
    const READ: &'static [When] = &[IN_DRIVE];

    /// TOML: the settings that are the same in every profile, with their sources. An engine whose numbers belong to a
    /// drive has them in that drive's profile instead.
    const DEFAULTS: &'static str = "";
}

/// A drive of blocks: it has no engine.
pub static BLOCK: About = About {
    name: "block",
    origin: "one namespace of 4 KiB blocks on the flash translation layer (NVM command set)",
    largest: Largest::Own("none"),
    sections: &["ftl"],
    ordered: true,
    reclaims: &[],
    profile: "saker-mid",
};

macro_rules! settings {
    ($($field:ident: $settings:ty => $engine:ty;)*) => {
        /// The settings of every engine: a field for each row of the table (`each_engine`).
        #[derive(Clone, Debug, PartialEq, Section)]
        #[section("", default)]
        pub struct EngineSettings {
            /// Page mapping, for engines that are built on it and for drives of blocks.
            #[setting(part, when = &[IN_DRIVE])]
            pub ftl: FtlConfig,
            $(
                #[doc = concat!("Those of row `", stringify!($field), "`.")]
                #[setting(part, when = <$settings as Family>::READ)]
                pub $field: $settings,
            )*
        }
    };
}

each_engine!(settings);

macro_rules! engines_of {
    ($($field:ident: $settings:ty => $engine:ty;)*) => { &[$(<$settings as Family>::ENGINES),*] };
}

macro_rules! defaults_of {
    ($($field:ident: $settings:ty => $engine:ty;)*) => { &[$(<$settings as Family>::DEFAULTS),*] };
}

/// Every engine, by family.
static ENGINES: &[&[About]] = each_engine!(engines_of);

/// [`Family::DEFAULTS`] of each family.
pub static DEFAULTS: &[&str] = each_engine!(defaults_of);

/// The engine of this name, or [`BLOCK`].
pub fn about(name: &str) -> Option<&'static About> {
    ENGINES.iter().copied().flatten().chain([&BLOCK]).find(|about| about.name == name)
}

/// Condition: the engine reads the section of the setting. A section that belongs to no engine in particular is read
/// by all.
pub const IN_DRIVE: When = When::row("engine.name", reads);

fn reads(engine: &str, key: &str) -> bool {
    let section = key.split('.').next().unwrap_or(key);
    let is_of_engines = ENGINES.iter().copied().flatten().any(|about| about.sections.contains(&section));
    !is_of_engines || about(engine).is_some_and(|about| about.sections.contains(&section))
}
