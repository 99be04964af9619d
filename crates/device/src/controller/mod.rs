//! The controller: what one drive's firmware contexts share. Commands themselves are in [`crate::requests`].

mod identify;
mod iterators;
mod loading;
mod targets;
mod unfinished;
mod windows;

use std::cell::Cell;
use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_link::{Exposed, Link};
use kvdrive_sim::{Ns, Sim};
use kvdrive_spec::{Command, Status};
use serde::Deserialize;

use crate::drive::{DriveConfig, PowerOnError, Start, start};
use crate::engines::Engine;
use crate::engines::hash::{self, HashEngine};
use crate::engines::lsm::{self, LsmEngine};
use crate::faults::Faults;
use crate::firmware::{Cores, Roles, copy_ns};
use crate::power::Journal;
use crate::requests::serve;
use iterators::Iterators;
pub(crate) use iterators::{PairAnswer, Walk};
pub(crate) use unfinished::{Unfinished, UnfinishedValues};
pub(crate) use windows::Found;
use windows::Windows;

/// The controller's part of a profile.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Commands the firmware works on at once.
    pub contexts: u32,
    /// Firmware cores, and who takes which step.
    pub roles: Roles,
    /// Largest value accepted, bytes; the engine may accept less.
    pub max_value_bytes: u32,
    /// Iterators open at once.
    pub iterators: u32,
    /// What firmware work costs.
    pub costs: Costs,
}

/// Applies journal records to a protected image: [`Engine::fold`].
pub type Fold = fn(&DriveConfig, &[u8], &[(u8, Vec<u8>)]) -> Result<Vec<u8>, PowerOnError>;

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
    /// Its [`Engine::fold`].
    pub fold: Fold,
    /// Can there be such a drive? If not, a line that begins with the key to blame.
    pub check: fn(&DriveConfig) -> Result<(), PowerOnError>,
    /// Which of its settings two drives must have in common to understand each other's images.
    pub fingerprint: fn(&DriveConfig) -> String,
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
        fingerprint: |config| config.lsm.fingerprint(),
    },
    EngineRow {
        name: hash::original::ROW.name,
        origin: hash::original::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        fingerprint: |config| config.hash.of(&hash::original::ROW).fingerprint(),
    },
    EngineRow {
        name: hash::plus::ROW.name,
        origin: hash::plus::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        fingerprint: |config| config.hash.of(&hash::plus::ROW).fingerprint(),
    },
    EngineRow {
        name: hash::plus2::ROW.name,
        origin: hash::plus2::ROW.origin,
        ordered: false,
        start: start::<HashEngine>,
        fold: HashEngine::fold,
        check: hash::check,
        fingerprint: |config| config.hash.of(&hash::plus2::ROW).fingerprint(),
    },
];

/// Time of firmware work on one core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Costs {
    /// Decoding a command that begins a store.
    pub decode_store_ns: Ns,
    /// Decoding a *transfer*.
    pub decode_transfer_ns: Ns,
    /// Decoding any other command.
    pub decode_other_ns: Ns,
    /// Copying, per KiB.
    pub memcpy_ns_per_kib: Ns,
    /// Copying, per copy.
    pub memcpy_setup_ns: Ns,
    /// Building a completion.
    pub complete_ns: Ns,
}

impl Costs {
    /// Time to decode what came.
    pub fn decode_ns(&self, command: &Result<Command, Status>) -> Ns {
        match command {
            Ok(
                Command::Store(_)
                | Command::Write(_)
                | Command::Hybrid { .. }
                | Command::Express(_)
                | Command::CxlStore { .. },
            ) => self.decode_store_ns,
            Ok(Command::Transfer) => self.decode_transfer_ns,
            _ => self.decode_other_ns,
        }
    }

    /// Time to copy `bytes` bytes.
    pub fn memcpy_ns(&self, bytes: u32) -> Ns {
        copy_ns(bytes, self.memcpy_setup_ns, self.memcpy_ns_per_kib)
    }
}

/// One drive's controller around its engine.
pub struct Controller<E: Engine> {
    pub(crate) link: Rc<Link>,
    pub(crate) cores: Cores,
    pub(crate) costs: Costs,
    pub(crate) engine: E,
    pub(crate) unfinished: UnfinishedValues<E::Place>,
    pub(crate) windows: Windows<E::Window>,
    pub(crate) iterators: Iterators<Walk<E::Cursor>>,
    pub(crate) commands: Cell<u64>,
    pub(crate) journal: Journal,
    pub(crate) faults: Faults,
    max_value_bytes: u32,
}

impl<E: Engine> Controller<E> {
    /// A controller around `engine`, whose firmware runs on `cores`. Nothing is served before
    /// [`Controller::start`]. `journal` is where the engine's protected state is kept, if it is; `faults`
    /// strike commands.
    pub fn new(
        link: Rc<Link>,
        cores: Cores,
        config: &ControllerConfig,
        journal: Journal,
        faults: Faults,
        engine: E,
    ) -> Rc<Controller<E>> {
        Rc::new(Controller {
            link,
            cores,
            costs: config.costs,
            unfinished: UnfinishedValues::new(),
            windows: Windows::new(),
            iterators: Iterators::new(config.iterators),
            commands: Cell::new(0),
            journal,
            faults,
            max_value_bytes: config.max_value_bytes.min(engine.max_value_bytes()),
            engine,
        })
    }

    /// Starts `contexts` firmware contexts.
    pub fn start(self: &Rc<Self>, sim: &Sim, contexts: u32) {
        if self.engine.window_bytes().is_some() {
            let exposed: Weak<dyn Exposed> = Rc::downgrade(&(self.clone() as Rc<dyn Exposed>));
            self.link.expose(exposed);
        }
        let controller = Rc::downgrade(self);
        self.link.on_reset(move |queue| {
            if let Some(controller) = controller.upgrade() {
                controller.discard_unfinished(queue);
            }
        });
        for _ in 0..contexts {
            let controller = self.clone();
            sim.spawn(move || serve(controller));
        }
    }

    /// The engine inside.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Commands handled so far.
    pub fn commands(&self) -> u64 {
        self.commands.get()
    }

    /// A queue is reset or deleted: what it left unfinished is discarded, and its window closed.
    pub fn discard_unfinished(&self, queue: &kvdrive_link::QueuePair) {
        self.discard_value(queue);
        self.windows.close(queue);
    }

    /// Gives up the value that `queue` has begun.
    pub(crate) fn discard_value(&self, queue: &kvdrive_link::QueuePair) {
        if let Some(Unfinished::Value(value)) = self.unfinished.take(queue) {
            self.engine.abandon(value.place);
        }
    }

    pub(crate) fn check_value_bytes(&self, value_bytes: u32) -> Result<(), Status> {
        if value_bytes > self.max_value_bytes { Err(Status::INVALID_VALUE_SIZE) } else { Ok(()) }
    }
}

/// Bytes of window `g` lie at `g` times its size: addresses that no other window ever has.
impl<E: Engine> Exposed for Controller<E> {
    fn window_bytes(&self) -> u32 {
        self.engine.window_bytes().expect("only engines with windows are exposed")
    }

    fn store(&self, address: u64, piece: Piece<'_>) {
        let window_bytes = u64::from(Exposed::window_bytes(self));
        let at = (address % window_bytes) as u32;
        if u64::from(at) + u64::from(piece.bytes()) <= window_bytes {
            let write = |window: &E::Window| self.engine.write_window(window, at, piece);
            self.windows.of_generation(address / window_bytes, write);
        }
    }
}
