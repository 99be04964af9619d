//! A namespace of pairs: an engine, and what commands of the KV command set leave behind between them, by
//! queue (unfinished values, windows) or by iterator. The commands themselves are in [`crate::requests`].

pub(crate) mod batch;
mod iterators;
mod loading;
mod sessions;
mod windows;

use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_engines::firmware::Cores;
use kvdrive_engines::{Engine, EngineCounters, Utilization};
use kvdrive_flash::power::Journal;
use kvdrive_link::{Exposed, Request, Session};
use kvdrive_sim::Sim;
use kvdrive_spec::batch::BATCH_REQUESTS_MAX;
use kvdrive_spec::identify::{
    BatchLimits, CSI_KV, KvFormat, KvNamespace as IdentifyNamespace, VendorNamespace, cns,
};
use kvdrive_spec::{Command, Cqe, Key, Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, Namespace, Pairs};
use crate::controller::ControllerConfig;
use crate::requests;
use batch::Staging;
use iterators::Iterators;
pub(crate) use iterators::{PairAnswer, Walk};
use sessions::Sessions;
pub(crate) use sessions::Unfinished;
pub(crate) use windows::WindowMatch;

/// Pairs in engine `E`.
pub struct KvNamespace<E: Engine> {
    sim: Sim,
    pub(crate) engine: E,
    pub(crate) staging: Staging,
    pub(crate) sessions: Sessions<E::Place, E::Window>,
    pub(crate) iterators: Iterators<Walk<E::Cursor>>,
    pub(crate) journal: Journal,
    max_value_bytes: u32,
}

impl<E: Engine> KvNamespace<E> {
    /// A namespace around `engine`, whose batches `cores` unpack. `journal` is where the engine's protected
    /// state is kept, if it is.
    pub fn new(
        sim: &Sim,
        config: &ControllerConfig,
        cores: &Cores,
        journal: Journal,
        engine: E,
    ) -> Rc<KvNamespace<E>> {
        Rc::new(KvNamespace {
            sim: sim.clone(),
            staging: Staging::new(cores, config.costs),
            sessions: Sessions::new(),
            iterators: Iterators::new(config.iterators),
            journal,
            max_value_bytes: config.max_value_bytes.min(engine.max_value_bytes()),
            engine,
        })
    }

    /// The engine inside.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Gives up the value that a queue has begun.
    pub(crate) fn discard_value(&self, session: &Session) {
        if let Some(Unfinished::Value(value)) = self.sessions.take_unfinished(session) {
            self.engine.abandon(value.place);
        }
    }

    pub(crate) fn check_value_bytes(&self, value_bytes: u32) -> Result<(), Status> {
        if value_bytes > self.max_value_bytes { Err(Status::INVALID_VALUE_SIZE) } else { Ok(()) }
    }

    fn identify_namespace(&self, nguid: [u8; 16]) -> Vec<u8> {
        let used = self.engine.utilization();
        let mut answer = IdentifyNamespace::new_zeroed();
        answer.size_bytes.set(used.capacity_bytes);
        answer.used_bytes.set(used.live_bytes.min(used.capacity_bytes));
        answer.nguid = nguid;
        let format: &mut KvFormat = &mut answer.formats[0];
        format.key_max_bytes.set(Key::MAX_LEN as u16);
        format.value_max_bytes.set(self.max_value_bytes);
        answer.vendor = VendorNamespace::new(Some(BatchLimits {
            requests: BATCH_REQUESTS_MAX,
            bytes: self.max_value_bytes,
            atomic: false,
        }));
        answer.as_bytes().to_vec()
    }
}

impl<E: Engine> Namespace for KvNamespace<E> {
    fn command_set(&self) -> u8 {
        CSI_KV
    }

    fn decode(&self, sqe: &Sqe) -> Asked {
        Command::decode(sqe).map_or_else(Asked::Nothing, Asked::Pairs)
    }

    fn execute(&self, request: &dyn Request, asked: &Asked) -> Option<Cqe> {
        let command = match asked {
            Asked::Pairs(command) => Ok(command),
            Asked::Nothing(status) => Err(*status),
            Asked::Blocks(_) => unreachable!("a namespace decodes its own commands"),
        };
        requests::execute(self, request, command)
    }

    fn refuse(&self, request: &dyn Request, status: Status) -> Option<Cqe> {
        requests::refuse(self, request, status)
    }

    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>> {
        (structure == cns::CSI_NAMESPACE).then(|| self.identify_namespace(nguid))
    }

    fn end_session(&self, session: &Session) {
        let Some(left) = self.sessions.end(session) else { return };
        if let Some(Unfinished::Value(value)) = left.unfinished {
            self.engine.abandon(value.place);
        }
        // Its window goes with the rest, while nothing is borrowed: that may free a segment.
        drop(left.window);
    }

    fn exposed(self: Rc<Self>) -> Option<Weak<dyn Exposed>> {
        self.engine.window_bytes()?;
        let exposed: Rc<dyn Exposed> = self;
        Some(Rc::downgrade(&exposed))
    }

    fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        self.load_pairs(pairs)
    }

    fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        self.engine.expect(keys);
    }

    fn drain(&self) {
        self.engine.drain();
    }

    fn protected_image(&self) -> Vec<u8> {
        self.engine.protected_image()
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.engine.details()
    }

    fn dram(&self) -> Vec<(&'static str, u64)> {
        self.engine.dram()
    }

    fn utilization(&self) -> Utilization {
        self.engine.utilization()
    }
}

/// Bytes of window `g` lie at `g` times its size: addresses that no other window ever has.
impl<E: Engine> Exposed for KvNamespace<E> {
    fn window_bytes(&self) -> u32 {
        self.engine.window_bytes().expect("only engines with windows are exposed")
    }

    fn store(&self, address: u64, piece: Piece<'_>) {
        let window_bytes = u64::from(Exposed::window_bytes(self));
        let at = (address % window_bytes) as u32;
        if u64::from(at) + u64::from(piece.bytes()) <= window_bytes {
            let write = |window: &E::Window| self.engine.write_window(window, at, piece);
            self.sessions.of_generation(address / window_bytes, write);
        }
    }
}
