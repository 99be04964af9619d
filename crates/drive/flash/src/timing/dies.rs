//! Timing `dies`: each unit (a plane of a die) runs one operation at a time, and transfers its data over its
//! channel, which it shares with the channel's other units.
//!
//! ```text
//!   read      |-- unit: sense --|-- channel: transfer --|      the unit is held to the end: the page lies
//!   program   |-- channel: transfer --|-- unit: program --|    in its page register
//!   erase     |-- unit: erase --|
//! ```
//!
//! Cells of a block are erased together, so an erase takes as long in a large block as in a small one. A
//! drive that was scaled down by reducing its blocks would then spend far more of its time on erases than the
//! full-size drive: 3 ms for each 4 MiB would become 3 ms for each 128 KiB. `flash.erase_block_bytes` gives
//! the block size that the time refers to; other blocks take a time in proportion to their size.
//!
//! A cell of three bits belongs to three pages, whose bits take one, two or four thresholds to tell apart.
//! `flash.sense_spread_ns` makes every third page sense faster, and every third one slower, by that much.

use kvdrive_sim::{Ns, Resource, ResourceStatistics, Sim};

use super::{Moved, ProgramTimes, Timing, TimingRow, check_times};
use crate::spare::SPARE_USED_BYTES;
use crate::{FlashConfig, FlashConfigError, Operation};

/// The row of this timing.
pub const ROW: TimingRow = TimingRow {
    name: "dies",
    origin: "units and channels: sense, transfer, program and erase, each with the waits of its unit or channel",
    program,
    check,
    build: |sim, config| Box::new(Dies::new(sim, config)),
};

fn check(config: &FlashConfig) -> Result<(), FlashConfigError> {
    let (sense_ns, spread_ns) = (config.sense_ns, config.timing.sense_spread_ns);
    if spread_ns > sense_ns {
        let what = format!("is {spread_ns}, must be at most sense_ns, {sense_ns}");
        return Err(FlashConfigError { key: "sense_spread_ns", what });
    }
    check_times(&[
        ("sense_ns", config.sense_ns),
        ("program_ns", config.program_ns),
        ("erase_ns", erase_ns(config)),
        ("transfer_ns_per_kib", config.transfer_ns_per_kib),
    ])
}

fn program(config: &FlashConfig) -> ProgramTimes {
    let moved_bytes = u64::from(config.page_bytes + config.spare_bytes);
    let transfer_ns = moved_bytes * config.transfer_ns_per_kib / 1024;
    let (channels, dies) = (u64::from(config.channels), u64::from(config.channels * config.dies_per_channel));
    ProgramTimes {
        alone_ns: config.program_ns + transfer_ns,
        share_ns: (config.program_ns / dies).max(transfer_ns / channels),
    }
}

/// Time to erase a block of this flash, ns: `erase_ns`, or its share by block size, rounded up.
fn erase_ns(config: &FlashConfig) -> Ns {
    let block_bytes = u64::from(config.pages_per_block) * u64::from(config.page_bytes);
    match config.timing.erase_block_bytes {
        0 => config.erase_ns,
        whole_bytes => {
            let ns = (u128::from(config.erase_ns) * u128::from(block_bytes)).div_ceil(whole_bytes.into());
            ns.try_into().unwrap_or(Ns::MAX) // which is longer than check() lets it be
        }
    }
}

struct Dies {
    sim: Sim,
    channels: Vec<Resource>,
    /// By the number of a page in its block, in turn.
    sense_ns: [Ns; 3],
    program_ns: Ns,
    erase_ns: Ns,
    page_bytes: u32,
    /// Time on the channel for a page with its spare area, and for the used part of the spare area alone.
    page_transfer_ns: Ns,
    header_transfer_ns: Ns,
}

impl Dies {
    fn new(sim: &Sim, config: &FlashConfig) -> Dies {
        let transfer_ns = |bytes: u64| (bytes * config.transfer_ns_per_kib).div_ceil(1024);
        let channel = |channel: u32| Resource::new(sim, format!("channel {channel}"), 1);
        Dies {
            sim: sim.clone(),
            channels: (0..config.channels).map(channel).collect(),
            sense_ns: [
                config.sense_ns - config.timing.sense_spread_ns,
                config.sense_ns,
                config.sense_ns + config.timing.sense_spread_ns,
            ],
            program_ns: config.program_ns,
            erase_ns: erase_ns(config),
            page_bytes: config.page_bytes,
            page_transfer_ns: transfer_ns(u64::from(config.page_bytes) + u64::from(config.spare_bytes)),
            header_transfer_ns: transfer_ns(SPARE_USED_BYTES as u64),
        }
    }

    fn transfer(&self, channel: u32, moved: Moved) {
        let transfer_ns = match moved {
            Moved::Data(bytes) if bytes == self.page_bytes => self.page_transfer_ns,
            Moved::Data(bytes) => {
                (self.page_transfer_ns * u64::from(bytes)).div_ceil(u64::from(self.page_bytes))
            }
            Moved::Header => self.header_transfer_ns,
            Moved::Nothing => 0,
        };
        self.channels[channel as usize].run(transfer_ns);
    }
}

impl Timing for Dies {
    fn holds_units(&self) -> bool {
        true
    }

    fn before(&self, operation: Operation, channel: u32, page: u32, moved: Moved) {
        match operation {
            Operation::Read => self.sim.sleep(self.sense_ns[page as usize % self.sense_ns.len()]),
            Operation::Program => self.transfer(channel, moved),
            Operation::Erase => {}
        }
    }

    fn after(&self, operation: Operation, channel: u32, moved: Moved) {
        match operation {
            Operation::Read => self.transfer(channel, moved),
            Operation::Program => self.sim.sleep(self.program_ns),
            Operation::Erase => self.sim.sleep(self.erase_ns),
        }
    }

    fn resources(&self, units: ResourceStatistics) -> [(String, ResourceStatistics); 2] {
        let channels = ResourceStatistics::sum(self.channels.iter().map(Resource::statistics));
        [("die".to_owned(), units), ("channel".to_owned(), channels)]
    }

    fn busy_parts(&self, units: Vec<Ns>) -> Vec<(String, Vec<Ns>)> {
        let channels = self.channels.iter().map(|channel| channel.statistics().busy_ns).collect();
        vec![("die".to_owned(), units), ("channel".to_owned(), channels)]
    }
}
