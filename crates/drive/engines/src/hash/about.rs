//! The hash FTLs in the table of engines.

use super::commands::HashEngine;
use super::config::HashConfig;
use super::scheme::{SCHEMES, SchemeRow};
use crate::Engine;
use crate::table::{About, Family, Largest};

impl Family for HashConfig {
    const ENGINES: &'static [About] = &{
        let (mut engines, mut at) = ([of_scheme(SCHEMES[0]); SCHEMES.len()], 1);
        while at < SCHEMES.len() {
            engines[at] = of_scheme(SCHEMES[at]);
            at += 1;
        }
        engines
    };
}

const fn of_scheme(scheme: &SchemeRow) -> About {
    About {
        name: scheme.name,
        origin: scheme.origin,
        largest: Largest::Divided,
        sections: &["hash"],
        ordered: HashEngine::ORDERED,
        reclaims: &["gc_data_superblocks"],
        profile: "kvvirt",
    }
}
