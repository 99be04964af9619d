//! How long flash operations take, and what they wait for. The effect of an operation, the order in which the
//! operations of one unit take effect, and the counters belong to the [port](super::port) and are the same in every
//! timing.
//!
//! | file | what |
//! |---|---|
//! | [`dies`] | units and channels, as NAND has them |
//! | [`flat`] | a latency and a bandwidth for reads and for writes, as some emulators have them |

pub mod dies;
pub mod flat;

use kvdrive_declare::{Section, When};
use kvdrive_sim::{Ns, ResourceStatistics, Sim};

use super::{BY_DIES, FlashConfig, FlashConfigError, OPERATES, Operation};
use flat::FlatConfig;

/// The timing is `flat`.
const BY_FLAT: When = When::one_of("flash.timing", &["flat"]);

/// Which timing, and the numbers of those that have some of their own.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section("flash", default)]
pub struct TimingConfig {
    /// Timing of flash operations (`kvdrive list timings`).
    #[setting(is = Row(|| TIMINGS.iter().map(|row| row.name).collect()), key = "timing", when = &[OPERATES])]
    pub name: String,
    /// Timing `dies`: data bytes of a block whose erase takes `flash.erase_ns`. Other sizes take proportional times, so
    /// that erasing a byte costs the same with blocks of every size. 0: the erase of any block takes `flash.erase_ns`.
    #[setting(is = Integer(0, 1 << 40), when = &[OPERATES, BY_DIES])]
    pub erase_block_bytes: u64,
    /// Timing `dies`: difference between the sense times of pages that share cells of three bits, ns. The pages of a
    /// block take, in turn, `flash.sense_ns` less this, `flash.sense_ns`, and `flash.sense_ns` plus this. 0: all pages
    /// take `flash.sense_ns`.
    #[setting(is = TIME, when = &[OPERATES, BY_DIES])]
    pub sense_spread_ns: u64,
    /// For `flat`.
    #[setting(part, when = &[OPERATES, BY_FLAT])]
    pub flat: FlatConfig,
}

/// What an operation moves between flash and controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many data bytes of a page, with their share of the spare area.
    Data(u32),
    /// The header in the spare area alone.
    Header,
    /// Nothing: an erase.
    Nothing,
}

/// How long operations on flash take.
pub trait Timing {
    /// Does a unit run one operation at a time, to its end? Otherwise it takes the next one as soon as this
    /// one has started; operations that change a block still take effect in the order of their calls.
    fn holds_units(&self) -> bool;

    /// Waits for the part of an operation before its effect: before the content of a read is fixed, or before
    /// a program or erase starts, so that a power cut may leave a part of it. `page` is the number of its page in its
    /// block, 0 for an erase.
    fn before(&self, operation: Operation, channel: u32, page: u32, moved: Moved);

    /// Waits for the rest of the operation.
    fn after(&self, operation: Operation, channel: u32, moved: Moved);

    /// Statistics of the resources that operations wait for, in two kinds, for reports. `units` is the sum
    /// over all units.
    fn resources(&self, units: ResourceStatistics) -> [(String, ResourceStatistics); 2];

    /// How long each part of these resources was busy, ns, under their names. `units` are the times of all units.
    fn busy_parts(&self, units: Vec<Ns>) -> Vec<(String, Vec<Ns>)>;
}

/// Times of a program of a whole page, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTimes {
    /// A single program, from its call to its end.
    pub alone_ns: Ns,
    /// Each of many concurrent programs: its share of the shared resources.
    pub share_ns: Ns,
}

/// One timing.
pub struct TimingRow {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Time of programming a whole page, ns.
    pub program: fn(&FlashConfig) -> ProgramTimes,
    /// Says which of its numbers cannot be.
    pub check: fn(&FlashConfig) -> Result<(), FlashConfigError>,
    /// That of a drive with this flash, which was checked.
    pub build: fn(&Sim, &FlashConfig) -> Box<dyn Timing>,
}

/// Every timing there is.
pub static TIMINGS: &[TimingRow] = &[dies::ROW, flat::ROW];

/// The timing called `name`.
pub fn row(name: &str) -> Option<&'static TimingRow> {
    TIMINGS.iter().find(|row| row.name == name)
}

/// An hour: beyond that a time is a typing error, and sums of times could overflow.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Says which of these times is too long.
pub(crate) fn check_times(times: &[(&'static str, u64)]) -> Result<(), FlashConfigError> {
    match times.iter().find(|(_, value)| *value > LONGEST_NS) {
        None => Ok(()),
        Some((key, value)) => {
            Err(FlashConfigError { key, what: format!("is {value}, must be at most {LONGEST_NS}") })
        }
    }
}
