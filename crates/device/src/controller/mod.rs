//! The controller: what one drive's firmware contexts share, whatever its namespace keeps. The life of a
//! command is in [`crate::requests`].

mod admin;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_admin::{Features, Logs};
use kvdrive_engines::firmware::{CopyCosts, Cores};
use kvdrive_engines::hash::{self, HashEngine};
use kvdrive_engines::lsm::{self, LsmEngine};
use kvdrive_engines::stored::{self, StoredEngine};
use kvdrive_engines::{Engine, EngineConfig};
use kvdrive_flash::FlashPort;
use kvdrive_flash::faults::Faults;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::power::{Journal, PowerOnError};
use kvdrive_link::Port;
use kvdrive_settings::Rule::{Integer, OneOf, Word};
use kvdrive_settings::{Rules, TIME, VALUE_MAX_BYTES};
use kvdrive_sim::{Ns, TaskCell};
use kvdrive_spec::Command;
use kvdrive_spec::nvm::NvmCommand;
use kvdrive_store::{Reclaim, StoreRow};
use serde::Deserialize;

use crate::dispatch::{self, Dispatch};
use crate::drive::{Start, start};
use crate::namespaces::{Asked, Namespace, block};

/// The controller's part of a profile: section `[controller]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ControllerConfig {
    /// Who takes commands, and on which cores they are worked on.
    #[serde(flatten)]
    pub dispatch: Dispatch,
    /// Largest value accepted, bytes; the engine may accept less.
    pub max_value_bytes: u32,
    /// Iterators open at once; key `lsm.iterators`.
    pub iterators: u32,
    /// What firmware work costs.
    #[serde(flatten)]
    pub costs: Costs,
}

impl ControllerConfig {
    /// Keys of `[controller]`. What an index costs is looked at by the engine that has one, and the DMA
    /// engine's unit by the link.
    pub const RULES: Rules = &[
        ("controller.dispatch", Word(&["context", "round-robin"])),
        ("controller.contexts", Integer(1, 65536)),
        ("controller.cores", Integer(1, 1024)),
        ("controller.roles", Word(&["any", "own"])),
        ("controller.io_threads", Integer(1, 256)),
        ("controller.deal_ns", TIME),
        ("controller.decode_store_ns", TIME),
        ("controller.decode_transfer_ns", TIME),
        ("controller.decode_other_ns", TIME),
        ("controller.index_insert_ns", TIME),
        ("controller.index_probe_ns", TIME),
        ("controller.memcpy_ns_per_kib", TIME),
        ("controller.memcpy_setup_ns", TIME),
        ("controller.unpack_ns", TIME),
        ("controller.complete_ns", TIME),
        ("controller.max_value_bytes", Integer(1, VALUE_MAX_BYTES)),
        ("controller.dma_granularity_bytes", OneOf(&[1, 4, 4096])),
    ];
}

/// Applies journal records to a protected image: [`kvdrive_engines::Engine::fold`].
pub type Fold = fn(&EngineConfig, &[u8], &[(u8, Vec<u8>)]) -> Result<Vec<u8>, PowerOnError>;

/// One engine.
pub struct EngineRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is and where it comes from.
    pub origin: &'static str,
    /// Sections of a configuration that it looks at, of those that not every engine does.
    pub sections: &'static [&'static str],
    /// Do List and iterators go in the order of keys? Otherwise in an order of the engine's own.
    pub ordered: bool,
    /// How it gets room back while iterators are open, in ways that it counts ([`kvdrive_engines::EngineCounters`]).
    pub reclaims: &'static [Reclaim],
    /// Powers a drive with it on.
    pub start: Start,
    /// Its [`kvdrive_engines::Engine::fold`].
    pub fold: Fold,
    /// Can there be such a drive? If not, a line that begins with the key to blame.
    pub check: fn(&EngineConfig) -> Result<(), PowerOnError>,
    /// Which of its settings two drives must have in common to understand each other's images.
    pub make: fn(&EngineConfig) -> Vec<(&'static str, String)>,
}

/// Every engine.
pub const ENGINES: &[EngineRow] = &[
    EngineRow {
        name: "lsm",
        origin: "LSM-tree over a value log with byte addresses (BandSlim, section 3.4; WiscKey's key-value separation)",
        sections: &["buffer", "packing", "lsm", "ftl", "gc"],
        ordered: true,
        reclaims: &[Reclaim::Segments, Reclaim::Merges],
        start: start::<LsmEngine>,
        fold: LsmEngine::fold,
        check: lsm::check,
        make: |config| config.lsm.make(),
    },
    EngineRow {
        name: hash::original::ROW.name,
        origin: hash::original::ROW.origin,
        sections: &["hash"],
        ordered: false,
        reclaims: &[Reclaim::Segments],
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::original::ROW).make(),
    },
    EngineRow {
        name: hash::plus::ROW.name,
        origin: hash::plus::ROW.origin,
        sections: &["hash"],
        ordered: false,
        reclaims: &[Reclaim::Segments],
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::plus::ROW).make(),
    },
    EngineRow {
        name: hash::plus2::ROW.name,
        origin: hash::plus2::ROW.origin,
        sections: &["hash"],
        ordered: false,
        reclaims: &[Reclaim::Segments],
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::plus2::ROW).make(),
    },
    stored_row(&kvdrive_store::hashlog::ROW, &["ftl", "store", "hashlog"]),
    stored_row(&kvdrive_store::btree::ROW, &["ftl", "store", "btree"]),
];

/// The row of a store over pages.
const fn stored_row(store: &'static StoreRow, sections: &'static [&'static str]) -> EngineRow {
    EngineRow {
        name: store.name,
        origin: store.about,
        sections,
        ordered: true,
        reclaims: store.reclaims,
        start: start::<StoredEngine>,
        fold: StoredEngine::fold,
        check: stored::check,
        make: stored::make,
    }
}

/// A drive of blocks: no engine, and nothing that the tests of engines could ask it.
pub const BLOCK: EngineRow = EngineRow {
    name: "block",
    origin: "one namespace of 4 KiB blocks on the flash translation layer (NVM command set)",
    sections: &["ftl"],
    ordered: true,
    reclaims: &[],
    start: block::start,
    fold: block::fold,
    check: block::check,
    make: |config| vec![("ftl.over_provisioning", config.ftl.over_provisioning.to_string())],
};

/// Time of firmware work on one core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Costs {
    /// Decoding a command that begins a store.
    pub decode_store_ns: Ns,
    /// Decoding a *transfer*.
    pub decode_transfer_ns: Ns,
    /// Decoding any other command.
    pub decode_other_ns: Ns,
    /// Copying.
    #[serde(flatten)]
    pub copy: CopyCosts,
    /// Taking a request out of a batch and checking it.
    pub unpack_ns: Ns,
    /// Building a completion.
    pub complete_ns: Ns,
}

impl Costs {
    /// Time to decode what is asked of a namespace.
    pub fn decode_ns(&self, asked: &Asked) -> Ns {
        match asked {
            Asked::Pairs(
                Command::Store(_)
                | Command::Write(_)
                | Command::Hybrid { .. }
                | Command::Express(_)
                | Command::CxlStore { .. }
                | Command::Batch(_),
            )
            | Asked::Blocks(NvmCommand::Write(_)) => self.decode_store_ns,
            Asked::Pairs(Command::Transfer) => self.decode_transfer_ns,
            _ => self.decode_other_ns,
        }
    }
}

/// A controller: it takes commands from the queues of its port, has its namespace execute them, and completes
/// them.
pub struct Controller<P> {
    pub(crate) port: P,
    pub(crate) cores: Cores,
    pub(crate) costs: Costs,
    pub(crate) journal: Journal,
    pub(crate) namespace: Rc<dyn Namespace>,
    pub(crate) identity: Identity,
    pub(crate) faults: Faults,
    pub(crate) commands: Rc<Cell<u64>>,
    /// Whose health it tells; none of a controller that stands alone.
    pub(crate) flash: OnceCell<FlashPort>,
    /// What hosts have set, by the number of their admin queue's session.
    pub(crate) features: TaskCell<BTreeMap<u32, Features>>,
    /// What is kept for log pages.
    pub(crate) logs: TaskCell<Logs>,
}

impl<P: Port> Controller<P> {
    /// A controller between `port` and `namespace`, whose firmware runs on `cores`. Nothing is served before
    /// [`Controller::start`]. `journal` is where protected state is kept, if it is; `identity` is told to
    /// hosts; `faults` strike commands.
    pub fn new(
        port: P,
        cores: Cores,
        costs: Costs,
        journal: Journal,
        identity: Identity,
        faults: Faults,
        namespace: Rc<dyn Namespace>,
    ) -> Rc<Controller<P>> {
        Rc::new(Controller {
            port,
            cores,
            costs,
            journal,
            namespace,
            identity,
            faults,
            commands: Rc::default(),
            flash: OnceCell::new(),
            features: TaskCell::default(),
            logs: TaskCell::default(),
        })
    }

    /// From now on hosts are told how this flash holds out.
    ///
    /// # Panics
    /// They are told of another.
    pub fn tell_health_of(&self, flash: FlashPort) {
        assert!(self.flash.set(flash).is_ok(), "a drive has one flash");
    }

    /// Starts whoever takes commands.
    pub fn start(self: &Rc<Self>, dispatch: Dispatch) {
        if let Some(exposed) = self.namespace.clone().exposed() {
            self.port.expose(exposed);
        }
        let controller = Rc::downgrade(self);
        self.port.on_end(Rc::new(move |session| {
            if let Some(controller) = controller.upgrade() {
                controller.features.borrow_mut().remove(&session.number());
                controller.namespace.end_session(session);
            }
        }));
        dispatch::start(self, dispatch);
    }

    /// Where it counts the commands that it has handled.
    pub fn commands(&self) -> Rc<Cell<u64>> {
        self.commands.clone()
    }
}
