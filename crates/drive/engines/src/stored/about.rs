//! Stores over pages in the table of engines.

use kvdrive_declare::When;
use kvdrive_store::{STORES, StoreRow};

use super::StoredEngine;
use super::config::{ON_HOST, StoredConfig};
use crate::Engine;
use crate::table::{About, Family, IN_DRIVE, Largest};

impl Family for StoredConfig {
    const ENGINES: &'static [About] = &{
        let (mut engines, mut at) = ([of_store(&STORES[0]); STORES.len()], 1);
        while at < STORES.len() {
            engines[at] = of_store(&STORES[at]);
            at += 1;
        }
        engines
    };

    /// Stores are in the drive or on the host.
    const READ: &'static [When] = &[When::Any(&[IN_DRIVE, ON_HOST])];

    const DEFAULTS: &'static str = include_str!("defaults.toml");
}

const fn of_store(store: &StoreRow) -> About {
    About {
        name: store.name,
        origin: store.about,
        largest: Largest::Divided,
        sections: store.sections,
        ordered: StoredEngine::ORDERED,
        reclaims: store.reclaims,
        profile: "saker-mid",
    }
}
