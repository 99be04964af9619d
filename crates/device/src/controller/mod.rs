//! The controller: what one drive's firmware contexts share, whatever its namespace keeps. The life of a
//! command is in [`crate::requests`].

mod identify;

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_engines::firmware::{CopyCosts, Cores};
use kvdrive_engines::hash::{self, HashEngine};
use kvdrive_engines::lsm::{self, LsmEngine};
use kvdrive_engines::{Engine, EngineConfig};
use kvdrive_flash::faults::Faults;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::power::{Journal, PowerOnError};
use kvdrive_link::Port;
use kvdrive_sim::Ns;
use kvdrive_spec::Command;
use kvdrive_spec::nvm::NvmCommand;
use serde::Deserialize;

use crate::dispatch::{self, Dispatch};
use crate::drive::{Start, start};
use crate::namespaces::{Asked, Namespace, block};

/// The controller's part of a profile.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Who takes commands, and on which cores they are worked on.
    pub dispatch: Dispatch,
    /// Largest value accepted, bytes; the engine may accept less.
    pub max_value_bytes: u32,
    /// Iterators open at once.
    pub iterators: u32,
    /// What firmware work costs.
    pub costs: Costs,
}

/// Applies journal records to a protected image: [`kvdrive_engines::Engine::fold`].
pub type Fold = fn(&EngineConfig, &[u8], &[(u8, Vec<u8>)]) -> Result<Vec<u8>, PowerOnError>;

/// One engine.
pub struct EngineRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is and where it comes from.
    pub origin: &'static str,
    /// Do List and iterators go in the order of keys? Otherwise in an order of the engine's own.
    pub ordered: bool,
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
        ordered: true,
        start: start::<LsmEngine>,
        fold: LsmEngine::fold,
        check: lsm::check,
        make: |config| config.lsm.make(),
    },
    EngineRow {
        name: hash::original::ROW.name,
        origin: hash::original::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::original::ROW).make(),
    },
    EngineRow {
        name: hash::plus::ROW.name,
        origin: hash::plus::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::plus::ROW).make(),
    },
    EngineRow {
        name: hash::plus2::ROW.name,
        origin: hash::plus2::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        make: |config| config.hash.of(&hash::plus2::ROW).make(),
    },
];

/// A drive of blocks: no engine, and nothing that the tests of engines could ask it.
pub const BLOCK: EngineRow = EngineRow {
    name: "block",
    origin: "one namespace of 4 KiB blocks on the flash translation layer (NVM command set)",
    ordered: true,
    start: block::start,
    fold: block::fold,
    check: block::check,
    make: |config| vec![("ftl.over_provisioning", config.ftl.over_provisioning.to_string())],
};

/// Time of firmware work on one core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Costs {
    /// Decoding a command that begins a store.
    pub decode_store_ns: Ns,
    /// Decoding a *transfer*.
    pub decode_transfer_ns: Ns,
    /// Decoding any other command.
    pub decode_other_ns: Ns,
    /// Copying.
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
        let commands = Rc::default();
        Rc::new(Controller { port, cores, costs, journal, namespace, identity, faults, commands })
    }

    /// Starts whoever takes commands.
    pub fn start(self: &Rc<Self>, dispatch: Dispatch) {
        if let Some(exposed) = self.namespace.clone().exposed() {
            self.port.expose(exposed);
        }
        let namespace = Rc::downgrade(&self.namespace);
        self.port.on_end(Box::new(move |session| {
            if let Some(namespace) = namespace.upgrade() {
                namespace.end_session(session);
            }
        }));
        dispatch::start(self, dispatch);
    }

    /// Where it counts the commands that it has handled.
    pub fn commands(&self) -> Rc<Cell<u64>> {
        self.commands.clone()
    }
}
