//! The configuration: one TOML document that holds every number of a run, each with its source in a comment.
//!
//! A [`Document`] begins as an embedded profile; files and single settings override its keys; it prints
//! itself with comments and overrides, and yields a typed [`Config`]. Nothing is read from the environment,
//! and there is no number outside the document.

mod assigned;
mod document;
mod dram;
mod drive;
pub mod faults;
pub mod grid;
mod ignored;
mod options;
mod plain;
#[cfg(test)]
mod probe;
mod profiles;
mod reference;
mod rules;
mod scale;
mod sections;
pub mod setup;
mod values;

pub use assigned::Assigned;
pub use document::{Document, Origin, WHOLE_TRACE, binary};
pub use dram::{DRAM_KEYS, DRAM_POINTS, DramPoint};
pub use kvdrive_declare::Problem as ConfigError;
pub use options::{COUNTS_LIVE_BYTES, Group, Naming, OptionRow, RunOptions, describes_work, option_rows};
pub use profiles::{DEFAULT_PROFILE, PROFILES, Profile, default_profile};
pub use reference::reference;
pub use rules::{all as settings, check_load_of, conditions, rules, setting};
pub use scale::Scale;
pub use sections::{
    Config, EngineSection, HostSection, NO_STORE, PowerSection, RatedSection, RunSection, SakerSection,
};

/// Is there such a key?
pub fn knows_key(key: &str) -> bool {
    rules::rule(key).is_some()
}
