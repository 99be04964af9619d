//! Transfer methods: how a value gets from the application into the drive.
//!
//! A method has two halves on the two sides of the link, in one file. The *host half* is a state machine
//! without I/O ([`Method`]): it returns what to submit first and what to do on each completion; runners in
//! crate `host` drive it on a modelled core or a real thread. The *device half* is a function that brings the
//! value to a place chosen by the engine ([`Landing`]); it is selected by the command's opcode, so the drive
//! does not depend on the host's method.
//!
//! A new method is one file here and one row in [`METHODS`]. A new rule that chooses among methods needs no opcode: a
//! program can bring it ([`OwnTransfer`]).

pub mod adaptive;
pub mod adaptive_cxl;
pub mod byte_express;
pub mod cxl;
pub mod hybrid;
mod landing;
pub mod piggyback;
pub mod piggyback_cxl;
pub mod piggyback_pipelined;
mod progress;
pub mod prp;
pub mod sgl;
pub mod window;

use kvdrive_declare::{Section, When};
use kvdrive_nvme::{Batch, Command, Cqe, Key, Sqe, Status, Store, StoreOptions, ValueSource, Write};

use kvdrive_content::Piece;

pub use landing::{Arrival, Landing};
pub use piggyback::Assembly;
pub use progress::Progress;
pub use window::{Exposing, HostWindow, NoWindow, WindowClaim};

/// The drive takes pairs, not blocks for a store on the host, which go by `prp`.
pub const PAIRS: When = When::one_of("host.store", &["none"]);
/// The method stores values into a window of the page buffer.
pub const BY_WINDOW: When = When::row("host.transfer", |name, _| row(name).is_none_or(|row| row.by_window));
/// The method looks at this threshold.
const BY_THRESHOLD: When = When::row("host.transfer", |name, key| {
    row(name).is_none_or(|row| row.thresholds.iter().any(|name| key.ends_with(name)))
});

/// The method called `name`; none: a program's own, which may look at any setting.
fn row(name: &str) -> Option<&'static MethodRow> {
    METHODS.iter().find(|row| row.name == name)
}

/// Thresholds of the methods that choose by size (BandSlim, section 3.2).
#[derive(Clone, Debug, PartialEq, Section)]
#[section("host", default)]
pub struct TransferConfig {
    /// How values reach the drive (`kvdrive list transfers`).
    #[setting(is = Row(|| METHODS.iter().map(|row| row.name).collect()), key = "transfer", option = "transfer")]
    pub method: String,
    /// t1: a value below `alpha * t1` bytes is piggybacked or, with `adaptive-cxl`, stored by CXL.mem.
    #[setting(is = Integer(0, BATCH_MAX_BYTES), when = &[BY_THRESHOLD])]
    pub threshold1_bytes: u32,
    /// t2: a tail of fewer than `beta * t2` bytes after whole pages is sent in *transfer* commands.
    #[setting(is = Integer(0, 4096), when = &[BY_THRESHOLD])]
    pub threshold2_bytes: u32,
    /// Factor of t1: the user's weight of traffic against response time for small values.
    #[setting(is = Positive, when = &[BY_THRESHOLD])]
    pub alpha: f64,
    /// Factor of t2: the user's weight of traffic against response time for tails.
    #[setting(is = Positive, when = &[BY_THRESHOLD])]
    pub beta: f64,
    /// A row that is in no table, instead of `method`.
    #[setting(skip)]
    pub own: Option<OwnTransfer>,
}

impl TransferConfig {
    /// The row of the method, if there is such a method.
    pub fn row(&self) -> Option<&'static MethodRow> {
        self.own.map(OwnTransfer::row).or_else(|| row(&self.method))
    }
}

/// A row that [`METHODS`] does not have, of a program that brings its own: a [`Choice`] among methods.
#[derive(Clone, Copy)]
pub struct OwnTransfer(&'static MethodRow);

impl OwnTransfer {
    /// The row.
    pub fn row(self) -> &'static MethodRow {
        self.0
    }
}

impl From<&'static MethodRow> for OwnTransfer {
    fn from(row: &'static MethodRow) -> OwnTransfer {
        OwnTransfer(row)
    }
}

impl PartialEq for OwnTransfer {
    fn eq(&self, other: &OwnTransfer) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl std::fmt::Debug for OwnTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnTransfer({})", self.0.name)
    }
}

/// A store as the host half sees it: its value, and the host memory that it may use.
pub struct StoreRequest<'a> {
    /// The key; `None`: the value is a structured value, which has its keys in it.
    pub key: Option<Key>,
    /// The value.
    pub value: Piece<'a>,
    /// Conditions; only methods that leave the option byte unused can carry them.
    pub options: StoreOptions,
    /// Namespace.
    pub nsid: u32,
    /// Command identifier, used for each command of this store.
    pub cid: u16,
    /// A page-aligned DMA buffer, large enough for the value.
    pub buffer: u64,
    /// Where the key lies in host memory, if it is longer than 16 bytes.
    pub key_at: u64,
    /// A page whose entry `i` names page `i + 1` of the buffer, for transfers of more than two pages.
    pub list: u64,
    /// Queue entries that this store may use at once.
    pub slots: u32,
    /// The queue's window into the page buffer, if the host can reach it.
    pub window: Option<&'a HostWindow>,
}

impl StoreRequest<'_> {
    /// The command that carries the value, or starts to carry it, from this source.
    fn command(&self, source: ValueSource) -> Sqe {
        let (value_bytes, options) = (self.value.bytes(), self.options);
        let command = match (self.key, source) {
            (None, source) => Command::Batch(Batch { value_bytes, source }),
            (Some(key), ValueSource::Data) => Command::Store(Store { key, value_bytes, options }),
            (Some(key), ValueSource::Inline) => Command::Write(Write { key, value_bytes }),
            (Some(key), ValueSource::Hybrid { pages_z }) => Command::Hybrid { key, value_bytes, pages_z },
            (Some(key), ValueSource::Chunks) => Command::Express(Store { key, value_bytes, options }),
            (Some(key), ValueSource::Window { window_offset, generation, tail_bytes }) => {
                Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes }
            }
        };
        let mut sqe = command.encode(self.cid, self.nsid);
        if sqe.has_long_key() && self.key.is_some() {
            sqe.set_key_address(self.key_at);
        }
        sqe
    }
}

/// The runner's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Submit the entries in the outbox with one doorbell, then wait for a completion.
    Submit,
    /// As `Submit`, but wait for this many completions and acknowledge them with one doorbell;
    /// [`Method::on_completion`] gets them combined by [`outcome`].
    SubmitForAll(u32),
    /// Store the value's first `bytes` bytes at `address` of the drive's CXL.mem port, then as `Submit`.
    WriteWindow {
        /// Address at the port.
        address: u64,
        /// Number of bytes.
        bytes: u32,
    },
    /// The window is full of values in progress: nothing was submitted. Wait until a [`WindowClaim`] of the
    /// queue ends, then call [`Method::begin`] again.
    WaitForWindow,
    /// The method cannot be used for this value now: nothing was submitted; the store starts again by `prp`.
    ByPrp,
    /// The store has ended.
    Done(Status),
}

/// Combines several completions of one store: the first that is not success; but a *transfer* whose *write*
/// was refused does not count.
pub fn outcome(first: Cqe, next: Cqe) -> Cqe {
    match (first.status(), next.status()) {
        (Status::SUCCESS, _) => next,
        (Status::COMMAND_SEQUENCE_ERROR, status) if !status.is_success() => next,
        _ => first,
    }
}

/// Selects the method for a value: the host half of a row of [`METHODS`]. A method that does not choose
/// returns itself.
pub trait Choice: Send + Sync {
    /// The method for a value of `value_bytes` bytes, with this many queue entries.
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method;
}

/// How a value is sent, once the method is selected. It has no state, so threads may share it.
pub trait Method: Send + Sync {
    /// How many of the value's first bytes must lie in the DMA buffer before [`Method::begin`].
    fn staged_bytes(&self, value_bytes: u32) -> u32;
    /// Does it use its queue's sequence of inline commands?
    fn is_inline(&self) -> bool;
    /// Puts the first commands into `outbox`.
    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next;
    /// Handles a completion.
    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Next;
}

/// One transfer method.
pub struct MethodRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is and where it comes from.
    pub origin: &'static str,
    /// Its host half.
    pub build: fn(&TransferConfig) -> Box<dyn Choice>,
    /// Fields of [`TransferConfig`] that select the path of a value.
    pub thresholds: &'static [&'static str],
    /// Does the host store values into a window of the page buffer, through the drive's CXL.mem port?
    pub by_window: bool,
    /// Are several commands of one value outstanding at once?
    pub overlaps: bool,
}

/// The method that sends a value by `prp` if it is too long for the queue.
pub const BYTE_EXPRESS: &str = "byte-express";

/// Every transfer method.
pub static METHODS: &[MethodRow] = &[
    MethodRow {
        name: "prp",
        origin: "page-unit DMA of whole 4 KiB pages: the NVMe KV baseline of all papers",
        build: |_| Box::new(prp::Prp),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
    MethodRow {
        name: "sgl",
        origin: "DMA of a scatter-gather list, rounded up to dma_granularity_bytes (NVMe base specification)",
        build: |_| Box::new(sgl::Sgl),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
    MethodRow {
        name: "piggyback",
        origin: "value bytes inside write and transfer commands (BandSlim, section 3.2)",
        build: |_| Box::new(piggyback::Piggyback),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
    MethodRow {
        name: "hybrid",
        origin: "whole pages by DMA, the tail in transfer commands (BandSlim, section 3.2)",
        build: |_| Box::new(hybrid::Hybrid::always()),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
    MethodRow {
        name: "adaptive",
        origin: "piggyback, hybrid or prp by thresholds alpha*t1, beta*t2 (BandSlim, section 3.2)",
        build: |config| Box::new(adaptive::Adaptive::new(config)),
        thresholds: &["threshold1_bytes", "threshold2_bytes", "alpha", "beta"],
        by_window: false,
        overlaps: false,
    },
    MethodRow {
        name: "cxl",
        origin: "CXL.mem stores into the exposed page buffer, one command with the key (BandSlim's CXL article)",
        build: |_| Box::new(cxl::Cxl),
        thresholds: &[],
        by_window: true,
        overlaps: false,
    },
    MethodRow {
        name: "adaptive-cxl",
        origin: "cxl below alpha*t1, prp from there on (BandSlim's CXL article)",
        build: |config| Box::new(adaptive_cxl::AdaptiveCxl::new(config)),
        thresholds: &["threshold1_bytes", "alpha"],
        by_window: true,
        overlaps: false,
    },
    MethodRow {
        name: "piggyback-cxl",
        origin: "35 bytes in the command, longer values by CXL.mem, with a short tail in the command (ours)",
        build: |_| Box::new(piggyback_cxl::PiggybackCxl),
        thresholds: &[],
        by_window: true,
        overlaps: false,
    },
    MethodRow {
        name: "piggyback-pipelined",
        origin: "piggyback with one doorbell for all commands of a value (ours)",
        build: |_| Box::new(piggyback_pipelined::PiggybackPipelined::all_complete()),
        thresholds: &[],
        by_window: false,
        overlaps: true,
    },
    MethodRow {
        name: "piggyback-pipelined-1",
        origin: "piggyback-pipelined with one completion for the whole value (ours)",
        build: |_| Box::new(piggyback_pipelined::PiggybackPipelined::last_completes()),
        thresholds: &[],
        by_window: false,
        overlaps: true,
    },
    MethodRow {
        name: BYTE_EXPRESS,
        origin: "the value in 64-byte queue entries behind its command (ByteExpress, HotStorage'25)",
        build: |_| Box::new(byte_express::ByteExpress),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
];

/// The host half that the configuration names, or brings.
pub fn method(config: &TransferConfig) -> Option<Box<dyn Choice>> {
    config.row().map(|row| (row.build)(config))
}
