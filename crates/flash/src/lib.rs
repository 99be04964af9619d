//! Flash: channels, dies, blocks and pages with time and content, what of a drive survives without power, and
//! the page mapping that others stand on.
//!
//! Begin reading at [`port`]: the one way to flash.
//!
//! | module | what it is |
//! |---|---|
//! | [`geometry`] | division of the drive, addresses |
//! | [`purpose`] | what an operation is for |
//! | [`spare`] | the header beside every page's data |
//! | [`port`] | the one way to flash: moves data, takes time, counts |
//! | [`bad_blocks`] | which blocks went bad, and which spare ones stand for them |
//! | [`timing`] | how long that takes: `dies`, `flat` |
//! | [`media`] | where the content is kept: `ram`, `tags`, `file` |
//! | [`faults`] | rules by which flash and commands fail |
//! | [`power`] | what survives a power cut: the protected image and its journal |
//! | [`identity`] | who a drive is |
//! | [`ftl`] | logical pages on flash |
//!
//! The port and below know nothing of what a page means, which pages are valid, or when to erase: that is
//! the business of who lays out the flash ([`ftl`], or an engine that does so itself). Nothing here knows
//! engines, controllers or hosts; of keys only [`faults`], whose rules may name some.

pub mod bad_blocks;
pub mod faults;
pub mod ftl;
pub mod geometry;
pub mod identity;
pub mod media;
pub mod port;
pub mod power;
pub mod purpose;
pub mod spare;
pub mod timing;

use kvdrive_settings::Rule::{Integer, Multiple, Parsed, Row};
use kvdrive_settings::{Rules, TIME};
use serde::Deserialize;

pub use geometry::{BlockId, Geometry, Ppa};
pub use identity::Identity;
pub use media::{Forward, ImageError, Media, MediaPage, PageData};
pub use port::{FlashHealth, FlashPort, ReadError, Reservation};
pub use purpose::Purpose;
pub use spare::Spare;
pub use timing::TimingConfig;

/// Size and speed of a drive's flash: section `[flash]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FlashConfig {
    /// Channels (buses) that move data at the same time.
    pub channels: u32,
    /// Dies behind one channel.
    pub dies_per_channel: u32,
    /// Planes of a die; each works on an operation of its own.
    pub planes: u32,
    /// Blocks of one die, all planes together.
    pub blocks_per_die: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Data bytes of a page.
    pub page_bytes: u32,
    /// Bytes beside the data of a page; at least [`spare::SPARE_USED_BYTES`].
    pub spare_bytes: u32,
    /// Spare blocks of a unit, besides those of `blocks_per_die`: what it can lose before the drive is
    /// read-only.
    pub spare_blocks: u32,
    /// Blocks of a unit, spare ones among them, that are bad from the factory. Which ones they are depends on
    /// the drive's identity; it finds them when it is powered on for the first time.
    pub factory_bad_blocks: u32,
    /// How often a page that cannot be read is tried again, at other thresholds.
    pub read_retries: u32,
    /// Time of each of these attempts, ns.
    pub read_retry_ns: u64,
    /// Time to sense a page into the page register, ns.
    pub sense_ns: u64,
    /// Time to program a page, ns.
    pub program_ns: u64,
    /// Time to erase a block, ns; of which size [`TimingConfig::erase_block_bytes`] says.
    pub erase_ns: u64,
    /// Time for 1024 B on a channel, ns.
    pub transfer_ns_per_kib: u64,
    /// Which of these times are looked at, and what else.
    #[serde(flatten)]
    pub timing: TimingConfig,
    /// `false`: there is no flash. Nothing is programmed, read, counted or charged. Key
    /// `nand.enabled`.
    pub enabled: bool,
    /// Operations that take no time. Only to study a published emulator that left them out; they are still
    /// counted.
    pub uncharged: Vec<Uncharged>,
}

/// What can be done with flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading a page or a part of it.
    Read,
    /// Programming a page.
    Program,
    /// Erasing a block.
    Erase,
}

impl Operation {
    /// Every operation with its name in configurations.
    pub const ALL: [(Operation, &'static str); 3] =
        [(Operation::Read, "read"), (Operation::Program, "program"), (Operation::Erase, "erase")];
}

/// Operations that take no time: `read:data_gc`, or on one channel alone, `program:data:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Uncharged {
    /// Which operation.
    pub operation: Operation,
    /// What for.
    pub purpose: Purpose,
    /// The channel; `None`: all of them.
    pub channel: Option<u32>,
}

impl std::str::FromStr for Uncharged {
    type Err = String;

    fn from_str(text: &str) -> Result<Uncharged, String> {
        let wrong = || format!("\"{text}\": expected OPERATION:PURPOSE[:CHANNEL], as read:data_gc");
        let mut parts = text.split(':');
        let (operation, purpose, channel) = (parts.next(), parts.next(), parts.next());
        let operation = Operation::ALL.iter().find(|(_, name)| Some(*name) == operation).ok_or_else(wrong)?.0;
        let purpose = Purpose::ALL.iter().find(|(_, name)| Some(*name) == purpose).ok_or_else(wrong)?.0;
        let channel = channel.map(|channel| channel.parse().map_err(|_| wrong())).transpose()?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Uncharged { operation, purpose, channel })
    }
}

impl TryFrom<String> for Uncharged {
    type Error = String;

    fn try_from(text: String) -> Result<Uncharged, String> {
        text.parse()
    }
}

/// A value of a configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct ConfigError {
    /// The key, relative to its section.
    pub key: &'static str,
    /// What it is and what is allowed.
    pub what: String,
}

impl FlashConfig {
    /// Keys of `[flash]`; those of a timing with a section of its own are beside that.
    pub const RULES: Rules = &[
        ("flash.channels", Integer(1, 256)),
        ("flash.dies_per_channel", Integer(1, 256)),
        ("flash.planes", Integer(1, 16)),
        ("flash.blocks_per_die", Integer(4, 1 << 20)),
        ("flash.pages_per_block", Integer(4, 1 << 16)),
        ("flash.page_bytes", Multiple(4096, 4096, 1 << 18)),
        ("flash.spare_bytes", Integer(64, 1 << 16)),
        ("flash.spare_blocks", Integer(0, 1 << 16)),
        ("flash.factory_bad_blocks", Integer(0, 1 << 16)),
        ("flash.read_retries", Integer(0, 1 << 10)),
        ("flash.read_retry_ns", TIME),
        ("flash.timing", Row(|| timing::TIMINGS.iter().map(|row| row.name).collect())),
        ("flash.sense_ns", TIME),
        ("flash.program_ns", TIME),
        ("flash.erase_ns", TIME),
        ("flash.erase_block_bytes", Integer(0, 1 << 40)),
        ("flash.transfer_ns_per_kib", TIME),
        (
            "flash.uncharged",
            Parsed(
                |text| text.parse::<Uncharged>().is_ok(),
                "a list of OPERATION:PURPOSE[:CHANNEL], as [\"read:data_gc\"]",
            ),
        ),
    ];

    /// The division of the drive.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            channels: self.channels,
            dies_per_channel: self.dies_per_channel,
            planes: self.planes,
            blocks_per_die: self.blocks_per_die,
            pages_per_block: self.pages_per_block,
            page_bytes: self.page_bytes,
            spare_bytes: self.spare_bytes,
            spare_blocks: self.spare_blocks,
        }
    }

    /// Says which value cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.geometry().check().map_err(|(key, what)| ConfigError { key, what })?;
        if (self.spare_bytes as usize) < spare::SPARE_USED_BYTES {
            let what = format!(
                "is {}, must be at least {} (page header, twice)",
                self.spare_bytes,
                spare::SPARE_USED_BYTES
            );
            return Err(ConfigError { key: "spare_bytes", what });
        }
        if self.factory_bad_blocks > self.spare_blocks {
            let what = format!(
                "is {}, must be at most {} (spare_blocks): each takes one",
                self.factory_bad_blocks, self.spare_blocks
            );
            return Err(ConfigError { key: "factory_bad_blocks", what });
        }
        timing::check_times(&[("read_retry_ns", self.read_retry_ns)])?;
        let Some(timing) = timing::row(&self.timing.name) else {
            let names: Vec<_> = timing::TIMINGS.iter().map(|row| row.name).collect();
            let what = format!("is {:?}, must be one of {}", self.timing.name, names.join(", "));
            return Err(ConfigError { key: "timing", what });
        };
        (timing.check)(self)
    }
}
