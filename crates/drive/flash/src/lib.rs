//! Flash: channels, dies, blocks and pages with time and content, the part of a drive that survives a power
//! cut, and the page mapping on which other crates build.
//!
//! Begin reading at [`port`]: the one way to flash.
//!
//! | module | what it is |
//! |---|---|
//! | [`geometry`] | division of the drive, addresses |
//! | [`purpose`] | what an operation is for |
//! | [`spare`] | the header beside every page's data |
//! | [`port`] | the one way to flash: moves data, takes time, counts |
//! | [`bad_blocks`] | which blocks went bad, and which spare block replaces each |
//! | [`timing`] | how long operations take: `dies`, `flat` |
//! | [`media`] | where the content is kept: `ram`, `tags`, `file` |
//! | [`faults`] | rules by which flash and commands fail |
//! | [`power`] | what survives a power cut: the protected image and its journal |
//! | [`identity`] | the 128 bits that identify a drive |
//! | [`ftl`] | logical pages on flash |
//!
//! The port and the modules below it do not know the meaning of a page, which pages are valid, or when to erase. The
//! owner of the flash decides that ([`ftl`], or an engine that lays out flash itself). Nothing here knows engines,
//! controllers or hosts. Only [`faults`] knows keys, because its rules may name them.

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
pub mod versions;

use kvdrive_declare::{Field, Rule, Section, Value, When};

pub use geometry::{BlockId, Geometry, Ppa};
pub use identity::Identity;
pub use media::{Forward, Media, MediaPage, MediumError, PageData};
pub use port::{FlashHealth, FlashPort, NandCounters, ReadError, Reservation};
pub use purpose::Purpose;
pub use spare::Spare;
pub use timing::TimingConfig;

/// Flash operations happen, and take time.
const OPERATES: When = When::on("nand.enabled");
/// Condition of settings that only timing `dies` reads.
const BY_DIES: When = When::one_of("flash.timing", &["dies"]);
/// What `flash.uncharged` may be.
const UNCHARGED: Rule = Rule::Parsed(
    |text| text.parse::<Uncharged>().is_ok(),
    "a list of OPERATION:PURPOSE[:CHANNEL], as [\"read:data_gc\"]",
);

/// Size and speed of a drive's flash: section `[flash]`. `Default` is the smallest drive, whose operations take no time.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("flash", default)]
pub struct FlashConfig {
    /// Channels (buses) that move data at the same time.
    #[setting(is = Integer(1, 256), image)]
    pub channels: u32,
    /// Dies on one channel.
    #[setting(is = Integer(1, 256), image)]
    pub dies_per_channel: u32,
    /// Planes of a die; each plane runs an operation of its own.
    #[setting(is = Integer(1, 16), image)]
    pub planes: u32,
    /// Blocks of one die, all planes together.
    #[setting(is = Integer(4, 1 << 20), image, shrinks)]
    pub blocks_per_die: u32,
    /// Pages of a block.
    #[setting(is = Integer(4, 1 << 16), image)]
    pub pages_per_block: u32,
    /// Data bytes of a page.
    #[setting(is = Multiple(4096, 4096, 1 << 18), image)]
    pub page_bytes: u32,
    /// Bytes of a page's spare area, beside its data; at least 176 are needed.
    #[setting(is = Integer(64, 1 << 16), default = 192, image)]
    pub spare_bytes: u32,
    /// Spare blocks of each unit, in addition to `flash.blocks_per_die`. When a unit has none left and another block
    /// goes bad, the drive becomes read-only.
    #[setting(is = Integer(0, 1 << 16), image, when = &[OPERATES])]
    pub spare_blocks: u32,
    /// Blocks of each unit, spare ones included, that are bad from the factory. The drive's identity determines which
    /// ones; the drive finds them at its first power-on.
    #[setting(is = Integer(0, 1 << 16), when = &[OPERATES])]
    pub factory_bad_blocks: u32,
    /// How often a page that cannot be read is read again, at other thresholds, before it counts as lost.
    #[setting(is = Integer(0, 1 << 10), when = &[OPERATES])]
    pub read_retries: u32,
    /// Time of each read retry, ns.
    #[setting(is = TIME, when = &[OPERATES])]
    pub read_retry_ns: u64,
    /// Time to sense a page into the page register, ns.
    #[setting(is = TIME, when = &[OPERATES, BY_DIES])]
    pub sense_ns: u64,
    /// Time to program a page, ns.
    #[setting(is = TIME, when = &[OPERATES, BY_DIES])]
    pub program_ns: u64,
    /// Time to erase a block of `flash.erase_block_bytes`, ns; if that is 0, a block of any size.
    #[setting(is = TIME, when = &[OPERATES, BY_DIES])]
    pub erase_ns: u64,
    /// Time to move 1024 B over a channel, ns.
    #[setting(is = TIME, when = &[OPERATES, BY_DIES])]
    pub transfer_ns_per_kib: u64,
    /// Which of these times apply, and further ones.
    #[setting(part)]
    pub timing: TimingConfig,
    /// `false`: the drive has no flash. Nothing is programmed or read, and no flash operation is counted or takes time.
    #[setting(key = "nand.enabled", default = true, option = "nand")]
    pub enabled: bool,
    /// Operations that take no time, only to study a published emulator that left them out. They are still counted.
    #[setting(is = UNCHARGED, when = &[OPERATES])]
    pub uncharged: Vec<Uncharged>,
}

/// The flash operations.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncharged {
    /// Which operation.
    pub operation: Operation,
    /// Its purpose.
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

impl std::fmt::Display for Uncharged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = Operation::ALL.iter().find(|(operation, _)| *operation == self.operation);
        let purpose = Purpose::ALL.iter().find(|(purpose, _)| *purpose == self.purpose);
        write!(f, "{}:{}", operation.map_or("", |row| row.1), purpose.map_or("", |row| row.1))?;
        self.channel.map_or(Ok(()), |channel| write!(f, ":{channel}"))
    }
}

impl Field for Uncharged {
    fn of_value(value: &Value) -> Option<Uncharged> {
        value.as_str()?.parse().ok()
    }

    fn to_value(&self) -> Value {
        self.to_string().into()
    }
}

/// An invalid value of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct FlashConfigError {
    /// The key, relative to its section.
    pub key: &'static str,
    /// The value, and what is allowed.
    pub what: String,
}

impl FlashConfig {
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

    /// Finds the first invalid value.
    pub fn check(&self) -> Result<(), FlashConfigError> {
        self.geometry().check().map_err(|(key, what)| FlashConfigError { key, what })?;
        if (self.spare_bytes as usize) < spare::SPARE_USED_BYTES {
            let what = format!(
                "is {}, must be at least {} (page header, twice)",
                self.spare_bytes,
                spare::SPARE_USED_BYTES
            );
            return Err(FlashConfigError { key: "spare_bytes", what });
        }
        if self.factory_bad_blocks > self.spare_blocks {
            let what = format!(
                "is {}, must be at most {} (spare_blocks): each takes one",
                self.factory_bad_blocks, self.spare_blocks
            );
            return Err(FlashConfigError { key: "factory_bad_blocks", what });
        }
        timing::check_times(&[("read_retry_ns", self.read_retry_ns)])?;
        let Some(timing) = timing::row(&self.timing.name) else {
            let names: Vec<_> = timing::TIMINGS.iter().map(|row| row.name).collect();
            let what = format!("is {:?}, must be one of {}", self.timing.name, names.join(", "));
            return Err(FlashConfigError { key: "timing", what });
        };
        (timing.check)(self)
    }
}
