//! Studies at a part of their full size: drive, pairs and operations shrink together.
//!
//! Numbers of parallel parts (channels, dies, cores, clients) stay, and so do the sizes of a superblock, of
//! the write buffer and of data on their way to flash, which follow from dies and clients. There are
//! therefore fewer superblocks, and those that collection keeps free are a larger share: 8 of 16384 at full
//! size; at 1/64 not less than 4 of 256.
//!
//! Buffers of a store over pages (memtables, levels, nodes in memory) and read caches shrink as well, so that
//! a short run fills and empties them as often as a long one and has the same hit rate. A duration of a run,
//! and its intervals, are divided, too. So is the memtable of an index with a budget of DRAM: levels have sizes in
//! memtables, and the same levels fit into the same share of DRAM then.

use std::fmt;
use std::str::FromStr;

use kvdrive_declare::Problem as ConfigError;
use kvdrive_engines::hash::config::OPEN_SUPERBLOCKS;
use kvdrive_engines::hash::layout::Layout;
use kvdrive_engines::hash::protected::bytes_on_their_way;
use kvdrive_engines::hash::{self, Accounting};

use crate::document::Document;
use crate::dram::DRAM_BYTES;
use crate::rules;
use crate::sections::Config;

/// Divisor of the rows of `tpcc`; shrinking multiplies it.
const FEWER_ROWS: &str = "workload.shrink";
/// Keys of superblocks that are kept free, which are divided too, with the least value of each.
const KEPT_FREE: &[(&str, u64)] = &[("hash.gc_low_superblocks", 4), ("hash.gc_stall_superblocks", 3)];
/// Entries of the memtable of an index, the fewest that there may be, and its budget of DRAM.
const MEMTABLES: &[(&str, u64, &str)] =
    &[("lsm.memtable_entries", 16, "lsm.dram_bytes"), ("anykey.memtable_entries", 16, "anykey.dram_bytes")];

/// A part of the full size: 1, 1/64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    divisor: u64,
}

impl Scale {
    /// The full size.
    pub const FULL: Scale = Scale { divisor: 1 };

    /// How many times the full size is that of this scale.
    pub fn divisor(self) -> u64 {
        self.divisor
    }

    /// Largest divisor: with a larger one so little is left of a run that its figures mean nothing.
    const SMALLEST: u64 = 256;
    /// The same for engines that collect superblocks: at 1/256 an eighth of the superblocks is kept free or
    /// open, and counts do not represent a larger drive any more.
    const SMALLEST_OF_HASH: u64 = 128;

    /// A quarter of this scale, but at least the smallest that every engine can have.
    pub fn quarter(self) -> Scale {
        Scale { divisor: (4 * self.divisor).min(self.divisor.max(Scale::SMALLEST_OF_HASH)) }
    }

    /// Refuses a scale at which the counts of the drive's engine differ from those at full size.
    ///
    /// # Errors
    /// The size of the shrunk drive, and the least scale.
    pub fn check(self, config: &Config) -> Result<(), ConfigError> {
        if self.divisor <= Scale::SMALLEST_OF_HASH || config.ignores(KEPT_FREE[0].0).is_some() {
            return Ok(());
        }
        let (left, free) =
            (config.flash.blocks_per_die, config.engines.hash.gc_low_superblocks + OPEN_SUPERBLOCKS);
        let problem = format!(
            "{self} leaves {} {left} superblocks, {free} of them free or open: counts differ from those of \
             larger drives; the smallest scale of this engine is 1/{}",
            config.engine.name,
            Scale::SMALLEST_OF_HASH
        );
        Err(ConfigError::new("scale", problem))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.divisor {
            1 => f.pad("1"),
            divisor => f.pad(&format!("1/{divisor}")),
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Scale, String> {
        let divisor = match text.trim() {
            "1" => Some(1),
            other => other.strip_prefix("1/").and_then(|divisor| divisor.trim().parse().ok()),
        };
        let whole = |divisor: &u64| divisor.is_power_of_two() && *divisor <= Scale::SMALLEST;
        divisor
            .filter(whole)
            .map(|divisor| Scale { divisor })
            .ok_or_else(|| format!("\"{text}\": expected 1, or 1/2, 1/4, ... 1/{}", Scale::SMALLEST))
    }
}

impl Document {
    /// Multiplies drive, pairs, operations and DRAM by `scale`.
    ///
    /// # Errors
    /// One of them would be too small.
    pub fn shrink(&mut self, scale: Scale) -> Result<(), ConfigError> {
        if scale == Scale::FULL {
            return Ok(());
        }
        let config = self.config()?;
        // Pairs and operations are divided even if this workload does not read the key.
        let shrinks = |key: &str| !is_buffer(key) || config.ignores(key).is_none();
        for setting in rules::all().filter(|setting| setting.shrinks && shrinks(setting.key)) {
            let value = self.integer(setting.key);
            if value > 0 {
                self.set(&format!("{}={}", setting.key, value / scale.divisor))?;
            }
        }
        if config.ignores(FEWER_ROWS).is_none() {
            let times = (u64::from(config.workload.shrink) * scale.divisor).min(Scale::SMALLEST);
            self.set(&format!("{FEWER_ROWS}={times}"))?;
        }
        let has_budget =
            |(key, _, budget): &&(&str, u64, &str)| config.ignores(key).is_none() && self.integer(budget) > 0;
        let memtables: Vec<_> =
            MEMTABLES.iter().filter(has_budget).map(|(key, least, _)| (*key, *least)).collect();
        for (key, least) in KEPT_FREE.iter().copied().chain(memtables) {
            let value = self.integer(key);
            self.set(&format!("{key}={}", (value / scale.divisor).max(least.min(value))))?;
        }
        let kept = if config.engines.hash.dram_accounting == Accounting::Total {
            buffered_bytes(&config)
        } else {
            0
        };
        let dram_bytes = config.engines.hash.dram_bytes.saturating_sub(kept) / scale.divisor + kept;
        // The shrunk DRAM still belongs to the named point.
        let point = self.dram_point;
        self.set(&format!("{DRAM_BYTES}={dram_bytes}"))?;
        self.dram_point = point;
        Ok(())
    }
}

/// Is it a size of a store or of SAKER?
fn is_buffer(key: &str) -> bool {
    !["flash.", "workload.", "run."].iter().any(|section| key.starts_with(section))
}

/// Bytes of the write buffer and of pages on their way to flash: part of a DRAM budget for everything, and
/// not shrunk.
fn buffered_bytes(config: &Config) -> u64 {
    let drive = config.drive();
    let Ok((_, hash)) = hash::of_config(&drive.of_engine()) else { return 0 };
    let layout = Layout::new(drive.flash.geometry(), hash.grain_bytes, hash.unit_bytes);
    hash.write_buffer_bytes + bytes_on_their_way(&layout, &hash)
}
