//! A namespace of pairs: an engine, and the state that outlives single commands of the KV command set: unfinished
//! values and windows by queue, and iterators. What its opcodes do is in [`commands`].

mod batch;
mod commands;
mod commit;
mod iterators;
mod loading;
mod open_window;
mod parts;
mod sessions;
mod staging;
mod walks;
mod windows;

use std::cell::Cell;
use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_declare::Counts;
use kvdrive_engines::firmware::Cores;
use kvdrive_engines::{Engine, Utilization};
use kvdrive_flash::power::{Journal, NamespaceFeatures};
use kvdrive_link::{Exposed, Request, Session};
use kvdrive_nvme::batch::{BATCH_BYTES_MAX, BATCH_REQUESTS_MAX};
use kvdrive_nvme::feature;
use kvdrive_nvme::identify::{self, AtomicLimits, BatchLimits, CSI_KV, KvFormat, VendorNamespace, cns};
use kvdrive_nvme::{ALL_STREAMS, Command, Cqe, Key, Sqe, Status};
use kvdrive_sim::{Sim, TaskCell};
use zerocopy::{FromZeros, IntoBytes};

use super::{Decoded, Namespace, OnListed, OnSliceEnd, Pairs};
use crate::config::ControllerConfig;
use iterators::Iterators;
use iterators::OpenIterator;
use parts::Streams;
use sessions::Sessions;
pub(crate) use sessions::Unfinished;
use staging::Staging;
pub(crate) use windows::WindowMatch;

/// Pairs in engine `E`.
pub struct KvNamespace<E: Engine> {
    sim: Sim,
    pub(crate) engine: E,
    pub(crate) staging: Staging,
    pub(crate) sessions: Sessions<E::Place, E::Window>,
    pub(crate) streams: Streams<E::Place, E::Found>,
    pub(crate) iterators: Iterators<OpenIterator<E::Cursor>>,
    pub(crate) journal: Journal,
    features: NamespaceFeatures,
    /// Is its content being erased?
    is_formatting: Cell<bool>,
    max_value_bytes: u32,
    /// Largest structured value; limited because the whole value is in memory.
    max_batch_bytes: u32,
    on_slice_end: TaskCell<Option<OnSliceEnd>>,
}

impl<E: Engine> KvNamespace<E> {
    /// A namespace around `engine`. `cores` unpack its batches; `journal`, if there is one, keeps the engine's
    /// protected state, and `features` are in that state.
    pub fn new(
        sim: &Sim,
        config: &ControllerConfig,
        cores: &Cores,
        (journal, features): (Journal, NamespaceFeatures),
        engine: E,
    ) -> Rc<KvNamespace<E>> {
        let namespace = Rc::new(KvNamespace {
            sim: sim.clone(),
            on_slice_end: TaskCell::default(),
            staging: Staging::new(cores, config.costs),
            sessions: Sessions::new(),
            streams: Streams::default(),
            iterators: Iterators::new(config.iterators),
            journal,
            features,
            is_formatting: Cell::new(false),
            max_value_bytes: config.max_value_bytes.min(engine.max_value_bytes()),
            max_batch_bytes: config.max_value_bytes.min(engine.max_whole_bytes()).min(BATCH_BYTES_MAX),
            engine,
        });
        let of_held = Rc::downgrade(&namespace);
        let give_up = move || of_held.upgrade().is_some_and(|namespace| namespace.iterators.lose_one());
        namespace.engine.on_held(Rc::new(give_up));
        namespace
    }

    /// The engine inside.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Called between two slices of the running task's long command: lets other commands run.
    pub(crate) fn end_slice(&self) {
        let ended = self.on_slice_end.borrow().clone();
        if let Some(ended) = ended {
            ended();
        }
        self.sim.end_slice();
    }

    /// Gives up the value that a queue has begun.
    pub(crate) fn discard_value(&self, session: &Session) {
        if let Some(Unfinished::Value(value)) = self.sessions.take_unfinished(session) {
            self.engine.abandon(value.place);
        }
    }

    /// Discards everything that a queue has left unfinished, because the queue ends.
    pub(crate) fn forget(&self, session: &Session) {
        parts::discard(self, session, ALL_STREAMS);
        let Some(left) = self.sessions.end(session) else { return };
        if let Some(Unfinished::Value(value)) = left.unfinished {
            self.engine.abandon(value.place);
        }
        // Dropping a window may free a segment, so nothing may be borrowed here.
        drop(left.window);
    }

    pub(crate) fn check_value_bytes(&self, value_bytes: u32) -> Result<(), Status> {
        if value_bytes > self.max_value_bytes { Err(Status::INVALID_VALUE_SIZE) } else { Ok(()) }
    }

    pub(crate) fn check_batch_bytes(&self, value_bytes: u32) -> Result<(), Status> {
        if value_bytes > self.max_batch_bytes { Err(Status::INVALID_VALUE_SIZE) } else { Ok(()) }
    }

    /// The atomic batches that the engine takes, none longer than any other value.
    pub(crate) fn atomic_batches(&self) -> Option<AtomicLimits> {
        let AtomicLimits { requests, bytes } = self.engine.atomic_batches()?;
        Some(AtomicLimits { requests, bytes: bytes.min(self.max_batch_bytes) })
    }

    /// Why a command is refused now, whatever it asks for.
    #[inline]
    pub(crate) fn refusal(&self, command: &Command) -> Option<Status> {
        if self.is_formatting.get() {
            return Some(Status::FORMAT_IN_PROGRESS);
        }
        let is_protected = self.journal.is_protected() && command.changes_content();
        is_protected.then_some(Status::NAMESPACE_WRITE_PROTECTED)
    }

    /// Is deleting a missing key an error (EDNEK)?
    pub(crate) fn is_missing_key_an_error(&self) -> bool {
        self.features.key_value() & feature::ERROR_ON_MISSING_KEY != 0
    }

    pub(crate) fn identify_namespace(&self, nguid: [u8; 16]) -> identify::KvNamespace {
        let used = self.engine.utilization();
        let mut answer = identify::KvNamespace::new_zeroed();
        answer.size_bytes.set(used.capacity_bytes);
        answer.used_bytes.set(used.live_bytes.min(used.capacity_bytes));
        answer.nguid = nguid;
        let format: &mut KvFormat = &mut answer.formats[0];
        // Other hosts cannot send longer keys: those of our drivers are named by address.
        format.key_max_bytes.set(Key::IDENTITY_BYTES as u16);
        format.value_max_bytes.set(self.max_value_bytes);
        answer.vendor = VendorNamespace::new(Some(BatchLimits {
            requests: BATCH_REQUESTS_MAX,
            bytes: self.max_batch_bytes,
            atomic: self.atomic_batches(),
        }))
        .with_pairs(E::ORDERED);
        answer
    }

    /// A *write* or *hybrid* arrived inside an unfinished value, so the host's sequence is wrong. The value is
    /// discarded, and this command is refused so that the host learns of it; the next command finds a clean queue. If a
    /// quiet command was refused before, this command reports that refusal.
    pub(crate) fn refuse_inside_value(&self, request: &dyn Request) -> Result<(), Status> {
        match self.sessions.take_unfinished(request.session()) {
            None => Ok(()),
            Some(Unfinished::Refused(status)) => Err(status),
            Some(Unfinished::Value(value)) => {
                self.engine.abandon(value.place);
                Err(Status::COMMAND_SEQUENCE_ERROR)
            }
            Some(Unfinished::Batch(_)) => Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    /// Takes the bytes that a CXL store names in the window of its queue. If it has to name another window, the answer
    /// says which.
    pub(crate) fn take_in_window(
        &self,
        session: &Session,
        generation: u32,
        at: u32,
        bytes: u32,
    ) -> Result<(), Status> {
        if self.engine.window_bytes().is_none() {
            return Err(Status::INVALID_OPCODE);
        }
        self.check_value_bytes(bytes)?;
        match self.sessions.find(session, generation, at, bytes)? {
            WindowMatch::Taken => return Ok(()),
            WindowMatch::Stale => {}
            WindowMatch::Missing => self.fresh_window(session)?,
        }
        Err(Status::STALE_WINDOW)
    }

    /// Closes the window of a queue and opens another. Stores of one queue into windows are handled one at a
    /// time.
    ///
    /// # Errors
    /// [`Status::COMMAND_INTERRUPTED`]: no window is available now.
    pub(crate) fn fresh_window(&self, session: &Session) -> Result<(), Status> {
        self.sessions.close_window(session);
        let bytes = self.engine.window_bytes().ok_or(Status::COMMAND_INTERRUPTED)?;
        let mut opened = self.engine.open_window();
        if opened.is_err() && self.sessions.close_idle() {
            opened = self.engine.open_window();
        }
        let window = opened.map_err(|_| Status::COMMAND_INTERRUPTED)?;
        self.sessions.open_window(session, window, bytes);
        Ok(())
    }
}

/// Fetches a key of more than 16 bytes, whose first 16 the entry had.
///
/// # Errors
/// [`Status::INVALID_FIELD`]: it is another key than the entry says, or more than a size.
#[inline]
fn fetch_key(request: &dyn Request, command: &Command) -> Result<(), Status> {
    match command.key() {
        Some(key) if key.is_long() => fetch_long_key(request, key),
        _ => Ok(()),
    }
}

#[cold]
fn fetch_long_key(request: &dyn Request, key: &Key) -> Result<(), Status> {
    let mut bytes = Vec::with_capacity(key.len());
    request.pull_key(key.len() as u32, &mut |piece| {
        let at = bytes.len();
        bytes.resize(at + piece.bytes() as usize, 0);
        piece.expand(&mut bytes[at..]);
    })?;
    if Key::new(&bytes) == Some(*key) { Ok(()) } else { Err(Status::INVALID_FIELD) }
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

impl<E: Engine> Namespace for KvNamespace<E> {
    fn command_set(&self) -> u8 {
        CSI_KV
    }

    fn decode(&self, sqe: &Sqe) -> Decoded {
        Command::decode(sqe).map_or_else(Decoded::Nothing, Decoded::Pairs)
    }

    fn execute(&self, request: &dyn Request, decoded: &Decoded) -> Option<Cqe> {
        let answer = match decoded {
            Decoded::Pairs(command) => fetch_key(request, command)
                .map_err(Into::into)
                .and_then(|()| commands::answer_to(self, request, command)),
            Decoded::Nothing(status) => Err((*status).into()),
            Decoded::Blocks(_) => unreachable!("a namespace decodes its own commands"),
        };
        commands::conclude(self, request, answer)
    }

    /// Refuses a command. If it is a part of a value that its queue has begun, that value cannot be completed any more
    /// and is discarded.
    fn refuse(&self, request: &dyn Request, status: Status) -> Option<Cqe> {
        if request.turn().is_some() {
            self.discard_value(request.session());
        }
        commands::conclude(self, request, Err(status.into()))
    }

    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>> {
        let namespace = self.identify_namespace(nguid);
        match structure {
            cns::CSI_NAMESPACE => Some(namespace.as_bytes().to_vec()),
            cns::CSI_FORMAT => Some(namespace.of_format().as_bytes().to_vec()),
            _ => None,
        }
    }

    fn features(&self) -> Option<&NamespaceFeatures> {
        Some(&self.features)
    }

    fn format(&self) -> Result<(), Status> {
        if self.is_formatting.replace(true) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let erased = walks::erase(self);
        self.is_formatting.set(false);
        erased
    }

    fn end_session(&self, session: &Session) {
        self.forget(session);
    }

    fn on_slice_end(&self, ended: OnSliceEnd) {
        *self.on_slice_end.borrow_mut() = Some(ended);
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

    fn list_all(&self, each: OnListed<'_>) {
        walks::list_all(self, each);
    }

    fn drain(&self) {
        self.engine.drain();
    }

    fn protected_image(&self) -> Vec<u8> {
        self.engine.protected_image()
    }

    fn counts(&self) -> Counts {
        self.engine.counts()
    }

    fn dram(&self) -> Counts {
        self.engine.dram()
    }

    fn utilization(&self) -> Utilization {
        self.engine.utilization()
    }
}
