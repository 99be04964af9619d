//! Who is waited for by an operation on flash, and how long. What an operation does, in which order those of
//! one unit take effect, and what is counted of them is the [port](super::port)'s and the same under every
//! timing.
//!
//! | file | what |
//! |---|---|
//! | [`dies`] | units and channels, as NAND has them |
//! | [`flat`] | a latency and a bandwidth for reads and for writes, as some emulators have them |

pub mod dies;
pub mod flat;

use kvdrive_sim::{Ns, ResourceStatistics, Sim};
use serde::Deserialize;

use super::{ConfigError, FlashConfig, Operation};
use flat::FlatConfig;

/// Which timing, and the numbers of those that have some of their own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TimingConfig {
    /// Name of a row of [`TIMINGS`]; key `flash.timing`.
    #[serde(rename = "timing")]
    pub name: String,
    /// For `dies`: data bytes of the block that `erase_ns` is the time of. A block of another size takes in
    /// proportion, so that a byte of flash costs as much to erase whatever blocks it lies in. 0: `erase_ns` is
    /// the time of any block. Key `flash.erase_block_bytes`.
    pub erase_block_bytes: u64,
    /// For `flat`.
    pub flat: FlatConfig,
}

/// Dies and channels.
impl Default for TimingConfig {
    fn default() -> TimingConfig {
        TimingConfig { name: dies::ROW.name.to_owned(), erase_block_bytes: 0, flat: FlatConfig::default() }
    }
}

/// What an operation moves between flash and controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many data bytes of a page, with their share of the spare area.
    Data(u32),
    /// The header in the spare area alone.
    Header,
    /// Nothing: an erase.
    Nothing,
}

/// How long operations on flash take.
pub trait Timing {
    /// Does a unit work on one operation at a time, to its end? Otherwise it takes the next one as soon as
    /// this one is on its way; those that alter a block still take effect in the order of their calls.
    fn holds_units(&self) -> bool;

    /// Waits for what comes before an operation's effect: before the content of a read is fixed, before a
    /// program or erase is under way, so that a power cut may leave a part of it.
    fn before(&self, operation: Operation, channel: u32, moved: Moved);

    /// Waits for the rest of it.
    fn after(&self, operation: Operation, channel: u32, moved: Moved);

    /// What operations wait for, in two kinds, for reports. `units` is what all units did together.
    fn resources(&self, units: ResourceStatistics) -> [(String, ResourceStatistics); 2];
}

/// What a program of a whole page takes, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTimes {
    /// One alone, from its call to its end.
    pub alone_ns: Ns,
    /// Each of many side by side: its share of what they share.
    pub share_ns: Ns,
}

/// One timing.
pub struct TimingRow {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Keys of section `[flash]` that it looks at, of those that not every timing does.
    pub keys: &'static [&'static str],
    /// What a program of a whole page takes.
    pub program: fn(&FlashConfig) -> ProgramTimes,
    /// Says which of its numbers cannot be.
    pub check: fn(&FlashConfig) -> Result<(), ConfigError>,
    /// That of a drive with this flash, which was checked.
    pub build: fn(&Sim, &FlashConfig) -> Box<dyn Timing>,
}

/// Every timing there is.
pub const TIMINGS: &[TimingRow] = &[dies::ROW, flat::ROW];

/// The timing called `name`.
pub fn row(name: &str) -> Option<&'static TimingRow> {
    TIMINGS.iter().find(|row| row.name == name)
}

/// An hour: beyond that a time is a typing error, and sums of times could overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Says which of these times is too long.
pub(crate) fn check_times(times: &[(&'static str, u64)]) -> Result<(), ConfigError> {
    match times.iter().find(|(_, value)| *value > LONGEST_NS) {
        None => Ok(()),
        Some((key, value)) => {
            Err(ConfigError { key, what: format!("is {value}, must be at most {LONGEST_NS}") })
        }
    }
}
