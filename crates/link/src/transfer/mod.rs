//! Transfer methods: how a value gets from the application into the drive.
//!
//! A method has two halves in two worlds, in one file. The *host half* is a state machine without I/O
//! ([`Method`]): it is asked what to submit first and what to do on each completion; runners in crate `host`
//! pump it on a modelled core or a real thread. The *device half* is a function that brings the value
//! to a place of the engine's choice ([`Landing`]); it is found by the command's opcode, so the drive does
//! not care which method the host used.
//!
//! A new method is one file here and one row in [`METHODS`].

pub mod adaptive;
pub mod adaptive_cxl;
pub mod byte_express;
pub mod cxl;
pub mod hybrid;
pub mod piggyback;
pub mod piggyback_cxl;
pub mod piggyback_pipelined;
pub mod prp;
pub mod sgl;
pub mod window;

use kvdrive_settings::Rule::{Integer, Positive, Row};
use kvdrive_settings::{Rules, VALUE_MAX_BYTES};
use kvdrive_spec::window::Grant;
use kvdrive_spec::{Batch, Command, Cqe, Key, Sqe, Status, Store, StoreOptions, Way, Write};
use serde::Deserialize;

use kvdrive_content::Piece;

pub use piggyback::Assembly;
pub use window::{Exposing, HostWindow, NoWindow, WindowClaim};

/// Thresholds of the methods that choose by size (BandSlim, section 3.2).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TransferConfig {
    /// Name of a row of [`METHODS`]; key `host.transfer`.
    #[serde(rename = "transfer")]
    pub method: String,
    /// t1: below `alpha * t1` bytes a value is piggybacked.
    pub threshold1_bytes: u32,
    /// t2: a tail of fewer than `beta * t2` bytes behind whole pages goes by transfer commands.
    pub threshold2_bytes: u32,
    /// The user's weight of traffic against response time for small values.
    pub alpha: f64,
    /// The user's weight for tails.
    pub beta: f64,
}

impl TransferConfig {
    /// Those keys of `[host]` that choose and tune the method.
    pub const RULES: Rules = &[
        ("host.transfer", Row(|| METHODS.iter().map(|row| row.name).collect())),
        ("host.threshold1_bytes", Integer(0, VALUE_MAX_BYTES)),
        ("host.threshold2_bytes", Integer(0, 4096)),
        ("host.alpha", Positive),
        ("host.beta", Positive),
    ];
}

/// A store as the host half sees it: what, and where in host memory it may put it.
pub struct StoreRequest<'a> {
    /// The key; `None`: the value is a structured value, which has its keys in it.
    pub key: Option<Key>,
    /// The value.
    pub value: Piece<'a>,
    /// Conditions; only methods that leave the option byte alone can carry them.
    pub options: StoreOptions,
    /// Namespace.
    pub nsid: u32,
    /// Command identifier, used for each command of this store.
    pub cid: u16,
    /// A page-aligned DMA buffer, large enough for the value.
    pub buffer: u64,
    /// A page whose entry `i` names page `i + 1` of the buffer, for transfers of more than two pages.
    pub list: u64,
    /// Queue entries that this store may use at once.
    pub slots: u32,
    /// The queue's window into the page buffer, if the host can reach it.
    pub window: Option<&'a HostWindow>,
}

impl StoreRequest<'_> {
    /// The entry of the command that brings the value this way, or begins to.
    fn command(&self, way: Way) -> Sqe {
        let (value_bytes, options) = (self.value.bytes(), self.options);
        let command = match (self.key, way) {
            (None, way) => Command::Batch(Batch { value_bytes, way }),
            (Some(key), Way::Data) => Command::Store(Store { key, value_bytes, options }),
            (Some(key), Way::Inline) => Command::Write(Write { key, value_bytes }),
            (Some(key), Way::Hybrid { pages_z }) => Command::Hybrid { key, value_bytes, pages_z },
            (Some(key), Way::Chunks) => Command::Express(Store { key, value_bytes, options }),
            (Some(key), Way::Window { window_offset, generation, tail_bytes }) => {
                Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes }
            }
        };
        command.encode(self.cid, self.nsid)
    }
}

/// How far a store has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Value bytes handed to the drive by commands submitted so far.
    pub sent_bytes: u32,
    /// What the drive was granted of the window for this value. Whoever drops the store before its end gives
    /// this and the claim back ([`HostWindow::end_dropped`]).
    pub granted: Option<Grant>,
    /// What this store has of the window.
    pub claim: Option<WindowClaim>,
    /// Times a window was asked for or had passed.
    pub stale_windows: u32,
}

/// What the runner has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Submit what was put into the outbox with one doorbell, then wait for a completion.
    Submit,
    /// As `Submit`, but wait for so many completions and acknowledge them with one doorbell;
    /// [`Method::on_completion`] gets what [`outcome`] makes of them.
    SubmitForAll(u32),
    /// Store the value's first `bytes` bytes at `address` of the drive's CXL.mem port, then as `Submit`.
    WriteWindow {
        /// Where.
        address: u64,
        /// How many.
        bytes: u32,
    },
    /// The window is full of values under way: nothing was submitted. Wait until a [`WindowClaim`] of the queue
    /// ends, then [`Method::begin`] anew.
    WaitForWindow,
    /// The method cannot be used for this value now: nothing was submitted; the store begins anew by `prp`.
    ByPrp,
    /// The store has ended.
    Done(Status),
}

/// What several completions of one store say together: the first that is not success; but a *transfer* that
/// found its *write* refused says nothing of its own.
pub fn outcome(first: Cqe, next: Cqe) -> Cqe {
    match (first.status(), next.status()) {
        (Status::SUCCESS, _) => next,
        (Status::COMMAND_SEQUENCE_ERROR, status) if !status.is_success() => next,
        _ => first,
    }
}

/// Which method a value goes by: the host half of a row of [`METHODS`]. A method that does not choose is its
/// own answer.
pub trait Choice: Send + Sync {
    /// The method for a value of `value_bytes` bytes, with so many queue entries.
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method;
}

/// How a value of a size that was picked for it is sent. It has no state of its own, so that threads may
/// share it.
pub trait Method: Send + Sync {
    /// How many of the value's first bytes must lie in the DMA buffer before [`Method::begin`].
    fn staged_bytes(&self, value_bytes: u32) -> u32;
    /// Does it occupy its queue's sequence of inline commands?
    fn is_inline(&self) -> bool;
    /// Puts the first commands into `outbox`.
    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next;
    /// A completion came.
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
    /// Fields of [`TransferConfig`] that decide how a value goes.
    pub thresholds: &'static [&'static str],
    /// Whether the host stores values into a window of the page buffer, over the drive's CXL.mem port.
    pub by_window: bool,
    /// Whether several commands of one value are under way at once.
    pub overlaps: bool,
}

/// Every transfer method.
pub const METHODS: &[MethodRow] = &[
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
        origin: "35 bytes in the command, longer values by CXL.mem with a short tail in it (ours; named as open there)",
        build: |_| Box::new(piggyback_cxl::PiggybackCxl),
        thresholds: &[],
        by_window: true,
        overlaps: false,
    },
    MethodRow {
        name: "piggyback-pipelined",
        origin: "piggyback with all commands of a value behind one doorbell (ours)",
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
        name: "byte-express",
        origin: "the value in 64-byte queue entries behind its command (ByteExpress, HotStorage'25)",
        build: |_| Box::new(byte_express::ByteExpress),
        thresholds: &[],
        by_window: false,
        overlaps: false,
    },
];

/// The host half called `name`.
pub fn method(config: &TransferConfig) -> Option<Box<dyn Choice>> {
    METHODS.iter().find(|row| row.name == config.method).map(|row| (row.build)(config))
}

/// How a value reaches the drive, as far as placing it is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// In commands: firmware copies it, to any byte.
    Inline,
    /// By page-unit DMA: it lands on a 4 KiB boundary first.
    Dma,
    /// Whole pages by DMA, the tail copied right behind them.
    Hybrid,
}

/// Where the drive puts a value that arrives. The engine implements it; a transfer method knows no more of an
/// engine.
///
/// The order is `reserve`, then any mixture of `copy_in` and `dma_in` that covers the value, then `settle`;
/// or `abandon` at any point after `reserve`. The value is not visible under its key before the engine's
/// commit.
///
/// `K` names the value that a place is for: its key, or nothing for a structured value, which is unpacked when
/// it has landed.
pub trait Landing<K = Key> {
    /// A reserved place for one value.
    type Place;
    /// Finds room for a value of `bytes` bytes.
    fn reserve(&self, key: &K, bytes: u32, arrival: Arrival) -> Result<Self::Place, Status>;
    /// Firmware copies bytes out of a command to byte `at` of the value; takes a core's time.
    fn copy_in(&self, place: &Self::Place, at: u32, bytes: &[u8]);
    /// The DMA engine delivers a piece to byte `at` of the value; its time was taken on the link.
    fn dma_in(&self, place: &Self::Place, at: u32, piece: Piece<'_>);
    /// All bytes have arrived: makes the copies that the packing of DMA'd values asks for.
    fn settle(&self, place: &Self::Place);
    /// Gives a place back; its bytes are lost.
    fn abandon(&self, place: Self::Place);
}
