//! Engine `lsm` in the table of engines.

use super::config::LsmConfig;
use super::engine::LsmEngine;
use crate::Engine;
use crate::table::{About, Family, Largest};

impl Family for LsmConfig {
    const ENGINES: &'static [About] = &[About {
        name: "lsm",
        origin: "LSM-tree over a value log with byte addresses (BandSlim, section 3.4; WiscKey's key-value separation)",
        largest: Largest::Own(
            "256 MiB; with lsm.layout = published 16 MiB less 2 B and with segments 8 MiB less 1 B, since their entries have \
             24 and 23 bits for a length",
        ),
        sections: &["buffer", "packing", "lsm", "ftl", "gc"],
        ordered: LsmEngine::ORDERED,
        reclaims: &["segments_freed", "index_merges"],
        profile: "cosmos-plus",
    }];
}
