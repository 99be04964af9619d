//! Engine `anykey` in the table of engines.

use super::config::AnyKeyConfig;
use super::engine::AnyKeyEngine;
use crate::Engine;
use crate::table::{About, Family, Largest};

impl Family for AnyKeyConfig {
    const ENGINES: &'static [About] = &[About {
        name: "anykey",
        origin: "LSM-tree of groups of pages sorted by hash, over a value log (AnyKey and AnyKey+, ASPLOS'25; deletes, \
                 iterators and recovery are ours)",
        largest: Largest::Own("256 MiB"),
        sections: &["buffer", "packing", "anykey", "ftl", "gc"],
        ordered: AnyKeyEngine::ORDERED,
        // A tree of few keys is one level, which is compacted by flushes alone.
        reclaims: &["segments_freed"],
        profile: "cosmos-plus",
    }];

    const DEFAULTS: &'static str = include_str!("defaults.toml");
}
