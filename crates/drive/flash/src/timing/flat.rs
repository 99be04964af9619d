//! Timing `flat`: four numbers, independent of the structure of the medium. Reads pass one line, first come,
//! first served, and programs another; each line has a bandwidth, and after it an operation takes the latency
//! of its kind, during which it delays no other operation:
//!
//! ```text
//!   read      |-- line of reads: bytes / bandwidth --|-- latency of reads --|
//!   program   |-- line of writes: bytes / bandwidth --|-- latency of writes --|
//!   erase     takes no time
//! ```
//!
//! So a single operation takes bytes / bandwidth + latency, and many at once reach the bandwidth. Data bytes
//! count; for a read of a header alone, the header's bytes.
//!
//! The emulator of the SAKER paper models its three classes of drives in this way (SYSTOR'25, Fig. 2): it has
//! no dies, no erase and no collection. Here the owner of flash still erases and collects, and that is
//! counted.

use kvdrive_declare::Section;
use kvdrive_sim::{Ns, Resource, ResourceStatistics, Sim};

use super::{Moved, ProgramTimes, Timing, TimingRow, check_times};
use crate::spare::SPARE_USED_BYTES;
use crate::{FlashConfig, FlashConfigError, Operation};

/// The row of this timing.
pub const ROW: TimingRow = TimingRow {
    name: "flat",
    origin: "a latency and a bandwidth for reads and for writes, no dies, no erase time (SAKER, Fig. 2)",
    program,
    check,
    build: |sim, config| Box::new(Flat::new(sim, &config.timing.flat)),
};

/// The four numbers: section `[flash.flat]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Section)]
#[section("flash.flat")]
pub struct FlatConfig {
    /// Time of a read, besides the time of its bytes, ns.
    #[setting(is = TIME)]
    pub read_latency_ns: u64,
    /// Bandwidth of all reads together, MiB/s.
    #[setting(is = Integer(1, 1 << 20))]
    pub read_mib_s: u32,
    /// Time of a program, besides the time of its bytes, ns.
    #[setting(is = TIME)]
    pub write_latency_ns: u64,
    /// Bandwidth of all programs together, MiB/s.
    #[setting(is = Integer(1, 1 << 20))]
    pub write_mib_s: u32,
}

fn line_ns(bytes: u32, mib_s: u32) -> Ns {
    (u64::from(bytes) * 1_000_000_000).div_ceil(u64::from(mib_s) << 20)
}

fn program(config: &FlashConfig) -> ProgramTimes {
    let flat = &config.timing.flat;
    let line_ns = line_ns(config.page_bytes, flat.write_mib_s);
    ProgramTimes { alone_ns: flat.write_latency_ns + line_ns, share_ns: line_ns }
}

fn check(config: &FlashConfig) -> Result<(), FlashConfigError> {
    let flat = &config.timing.flat;
    for (key, mib_s) in [("flat.read_mib_s", flat.read_mib_s), ("flat.write_mib_s", flat.write_mib_s)] {
        if mib_s == 0 {
            return Err(FlashConfigError { key, what: "is 0, must be at least 1".to_owned() });
        }
    }
    check_times(&[
        ("flat.read_latency_ns", flat.read_latency_ns),
        ("flat.write_latency_ns", flat.write_latency_ns),
    ])
}

/// All operations of one kind.
struct Direction {
    line: Resource,
    mib_s: u32,
    latency_ns: Ns,
}

impl Direction {
    fn pass(&self, moved: Moved) {
        let bytes = match moved {
            Moved::Data(bytes) => bytes,
            Moved::Header => SPARE_USED_BYTES as u32,
            Moved::Nothing => 0,
        };
        self.line.run_then(line_ns(bytes, self.mib_s), self.latency_ns);
    }
}

struct Flat {
    reads: Direction,
    writes: Direction,
}

impl Flat {
    fn new(sim: &Sim, config: &FlatConfig) -> Flat {
        let direction =
            |name, mib_s, latency_ns| Direction { line: Resource::new(sim, name, 1), mib_s, latency_ns };
        Flat {
            reads: direction("flash.reads", config.read_mib_s, config.read_latency_ns),
            writes: direction("flash.writes", config.write_mib_s, config.write_latency_ns),
        }
    }
}

impl Timing for Flat {
    fn holds_units(&self) -> bool {
        false
    }

    fn before(&self, _: Operation, _: u32, _: u32, _: Moved) {}

    fn after(&self, operation: Operation, _: u32, moved: Moved) {
        match operation {
            Operation::Read => self.reads.pass(moved),
            Operation::Program => self.writes.pass(moved),
            Operation::Erase => {}
        }
    }

    fn resources(&self, _: ResourceStatistics) -> [(String, ResourceStatistics); 2] {
        [&self.reads, &self.writes].map(|Direction { line, .. }| (line.name().to_owned(), line.statistics()))
    }

    fn busy_parts(&self, _: Vec<Ns>) -> Vec<(String, Vec<Ns>)> {
        Vec::new()
    }
}
