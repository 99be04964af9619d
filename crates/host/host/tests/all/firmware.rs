//! A drive for driver tests: the device halves of the transfer methods over a map in memory, with a few
//! resources so that commands of several queues wait for each other and overlap. It has no flash, and its
//! pairs are lost at the end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::pcie::PcieRequest;
use kvdrive_link::shared::{BuildError, Built, Controlled, Outcome, RunEnd};
use kvdrive_link::transfer::{Assembly, byte_express, hybrid, piggyback, prp};
use kvdrive_link::{
    Arrival, HostMemory, Interrupt, Landing, Link, LinkConfig, PciePort, Port, Request, Traffic,
};
use kvdrive_nvme::identify::KvNamespace;
use kvdrive_nvme::iter::{IterHeader, pair_at};
use kvdrive_nvme::list::ListWriter;
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Command, Cqe, Key, Status, StoreOptions, Write};
use kvdrive_sim::{Mutex, Ns, Resource, ResourceStatistics, Sim};
use zerocopy::{FromZeros, IntoBytes};

/// Largest value, bytes.
pub const MAX_VALUE_BYTES: u32 = 64 << 10;
/// Firmware contexts.
const CONTEXTS: u32 = 4;

type Answer = Result<(u32, u32), Status>;
type Value = Rc<RefCell<Region>>;

/// The results of a run, which a replay must repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub commands: u64,
    pub events: u64,
    pub now: Ns,
    pub payload: Traffic,
    pub wire: Traffic,
    pub cores: ResourceStatistics,
    pub flash: ResourceStatistics,
    pub link: Vec<ResourceStatistics>,
    /// A hash of the time and the answer of every command, in order.
    pub history: u64,
    /// A hash of every pair.
    pub content: u64,
    pub power_cut: bool,
    pub recorded: bool,
    /// Values of which bytes are missing.
    pub unfinished: usize,
    pub open_iterators: usize,
}

pub struct Drive {
    sim: Sim,
    link: Rc<Link>,
    cores: Resource,
    flash: Resource,
    pairs: RefCell<BTreeMap<Key, (u32, Value)>>,
    unfinished: RefCell<BTreeMap<u32, Assembly<(u32, Value)>>>,
    /// Statuses of refused quiet commands, for the commands that report them.
    refused: RefCell<BTreeMap<u32, Status>>,
    cursors: RefCell<Vec<Option<Key>>>,
    closed_iterators: Cell<usize>,
    store_lock: Mutex,
    commands: Cell<u64>,
    history: Cell<u64>,
    /// The status of every command on I/O queues, if they are refused.
    refusal: Option<Status>,
    /// Core time of a command, ns; a change sets it.
    command_ns: Cell<Ns>,
}

/// The drive as its control channel accesses it.
pub struct Steered(Rc<Drive>);

impl Steered {
    /// Commands that have completed.
    pub fn commands(&self) -> u64 {
        self.0.commands.get()
    }

    /// Values that have arrived in part.
    pub fn unfinished(&self) -> usize {
        self.0.unfinished.borrow().len()
    }

    /// The lowest identifier that no queue has.
    pub fn free_queue_id(&self) -> Option<u16> {
        self.0.link.first_function().free_id()
    }
}

impl Controlled for Steered {
    fn change(&self, change: &str) -> Outcome {
        let command_ns = change.parse().map_err(|error| format!("{change:?}: {error}"))?;
        Ok(format!("{} ns before", self.0.command_ns.replace(command_ns)))
    }
}

fn mix(state: u64, with: u64) -> u64 {
    (state ^ with).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

fn link_config() -> LinkConfig {
    LinkConfig {
        generation: 2,
        lanes: 8,
        max_payload_bytes: 256,
        dma_page_ns: 900,
        sqe_fetch_ns: 400,
        cqe_write_ns: 200,
        doorbell_ns: 100,
        interrupt: Interrupt::None,
        dma_granularity_bytes: 4,
        sgl_block_ns: 0,
        sgl_page_saves_ns: 0,
        free_to_host: false,
        cxl_store_ns: 1_000,
        cxl_line_ns: 100,
    }
}

/// Builds a drive, and returns how to collect its counters: the form that
/// [`kvdrive_host::threaded::serve_thread`] and [`kvdrive_link::recording::replay`] take.
pub fn build(
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
) -> Result<Built<Steered, impl FnOnce(RunEnd) -> Counters + use<>>, BuildError> {
    build_refusing(sim, memory, None)
}

pub fn build_refusing(
    sim: &Sim,
    memory: Rc<dyn HostMemory>,
    refusal: Option<Status>,
) -> Result<Built<Steered, impl FnOnce(RunEnd) -> Counters + use<>>, BuildError> {
    let link = Link::new(sim, link_config(), memory);
    let drive = Rc::new(Drive {
        sim: sim.clone(),
        link: link.clone(),
        cores: Resource::new(sim, "cores", 2),
        flash: Resource::new(sim, "flash", 2),
        pairs: RefCell::default(),
        unfinished: RefCell::default(),
        refused: RefCell::default(),
        cursors: RefCell::default(),
        closed_iterators: Cell::new(0),
        store_lock: Mutex::new(sim),
        commands: Cell::new(0),
        history: Cell::new(0),
        refusal,
        command_ns: Cell::new(300),
    });
    let port = PciePort::new(&link);
    let ending = drive.clone();
    port.on_end(Rc::new(move |session| {
        ending.unfinished.borrow_mut().remove(&session.number());
        ending.refused.borrow_mut().remove(&session.number());
    }));
    for _ in 0..CONTEXTS {
        let (context, port) = (drive.clone(), port.clone());
        sim.spawn(move || serve(context, port));
    }
    let steered = Steered(drive.clone());
    let collect = move |ended: RunEnd| drive.counters(&ended);
    Ok(Built { link, drive: steered, finish: collect })
}

fn serve(drive: Rc<Drive>, port: PciePort) {
    loop {
        let request = port.next();
        let (turn, sqe) = (request.turn(), *request.sqe());
        if let Some(turn) = turn {
            request.session().wait_turn(turn);
        }
        let answer = drive.execute(&request);
        let is_quiet = turn.is_some() && sqe.is_quiet();
        if let (true, Err(status)) = (is_quiet, answer) {
            drive.refused.borrow_mut().insert(request.session().number(), status);
        }
        if turn.is_some() {
            request.session().end_turn();
        }
        drive.commands.set(drive.commands.get() + 1);
        if is_quiet {
            request.omit();
            continue;
        }
        let cid = sqe.cid.get();
        let cqe = match answer {
            Ok((dw0, dw1)) => Cqe::new(cid, Status::SUCCESS).with_result(dw0, dw1),
            Err(status) => Cqe::new(cid, status),
        };
        let dword = u64::from_le_bytes(cqe.as_bytes()[..8].try_into().unwrap());
        let session = u64::from(request.session().number());
        let happened = mix(drive.sim.now(), dword ^ session << 48 ^ u64::from(cid));
        drive.history.set(mix(drive.history.get(), happened));
        request.complete(cqe);
    }
}

/// Carries out Create and Delete. This host asks for nothing impossible.
fn change_queues(request: &PcieRequest) -> Answer {
    let queues = request.queues().expect("a link has them");
    match QueueCommand::decode(request.sqe())? {
        QueueCommand::CreateCompletion { id, entries } => queues.create_completion(id, entries),
        QueueCommand::CreateSubmission { id, entries, completion } => {
            queues.create_submission(id, entries, completion);
        }
        QueueCommand::DeleteSubmission { id } => assert!(queues.delete_submission(id)),
        QueueCommand::DeleteCompletion { id } => queues.delete_completion(id),
    }
    Ok((0, 0))
}

impl Drive {
    fn counters(&self, ended: &RunEnd) -> Counters {
        let mut content = 0;
        for (key, (bytes, value)) in &*self.pairs.borrow() {
            for byte in key.to_array().iter().chain(&value.borrow().to_bytes(*bytes)) {
                content = mix(content, u64::from(*byte));
            }
        }
        Counters {
            commands: self.commands.get(),
            events: self.sim.events(),
            now: self.sim.now(),
            payload: self.link.meter().payload(),
            wire: self.link.meter().wire(),
            cores: self.cores.statistics(),
            flash: self.flash.statistics(),
            link: self.link.resources().map(Resource::statistics).to_vec(),
            history: self.history.get(),
            content,
            power_cut: ended.power_cut,
            recorded: ended.recording.is_ok(),
            unfinished: self.unfinished.borrow().len(),
            open_iterators: self.cursors.borrow().len() - self.closed_iterators.get(),
        }
    }

    fn execute(&self, request: &PcieRequest) -> Answer {
        let sqe = request.sqe();
        self.cores.run(self.command_ns.get());
        if request.is_admin() && QueueCommand::is_one(sqe.opcode) {
            return change_queues(request);
        }
        if request.is_admin() {
            return self.identify(request);
        }
        if let Some(status) = self.refusal {
            return Err(status);
        }
        match Command::decode(sqe)? {
            // A pair is durable with its answer.
            Command::Flush => Ok((0, 0)),
            Command::Store(store) => {
                let (key, bytes) = (store.key, store.value_bytes);
                let place = prp::receive(request, &key, bytes, self)?;
                self.commit(key, place, store.options)
            }
            Command::Write(write) => self.write(request, write),
            Command::Hybrid { key, value_bytes, pages_z } => {
                self.refuse_inside_value(request)?;
                let assembly = hybrid::receive(request, key, value_bytes, pages_z, self)?;
                self.keep_or_commit(request, assembly)
            }
            Command::Transfer => self.transfer(request),
            Command::Discard { .. } => {
                self.refused.borrow_mut().remove(&request.session().number());
                self.unfinished.borrow_mut().remove(&request.session().number());
                Ok((0, 0))
            }
            Command::Retrieve { key, buffer_bytes, .. } => self.retrieve(request, &key, buffer_bytes),
            Command::Exist { key } => {
                self.pairs.borrow().contains_key(&key).then_some((0, 0)).ok_or(Status::KEY_NOT_FOUND)
            }
            Command::Delete { key, must_exist } => match self.pairs.borrow_mut().remove(&key) {
                None if must_exist => Err(Status::KEY_NOT_FOUND),
                _ => Ok((0, 0)),
            },
            Command::List { start, buffer_bytes } => self.list(request, start, buffer_bytes),
            Command::Seek { key, buffer_bytes } => {
                let from = key.map_or(Bound::Unbounded, Bound::Included);
                let iterator = self.cursors.borrow().len() as u32;
                self.cursors.borrow_mut().push(None);
                self.answer_pairs(request, buffer_bytes, iterator, from, 1)
            }
            Command::Next { iterator, buffer_bytes, pairs_z } => {
                let last = *self.cursors.borrow().get(iterator as usize).ok_or(Status::NO_SUCH_ITERATOR)?;
                let from = last.map_or(Bound::Unbounded, Bound::Excluded);
                self.answer_pairs(request, buffer_bytes, iterator, from, usize::from(pairs_z) + 1)
            }
            Command::IterClose { .. } => {
                self.closed_iterators.set(self.closed_iterators.get() + 1);
                Ok((0, 0))
            }
            Command::Express(store) => {
                let (key, bytes) = (store.key, store.value_bytes);
                let place = byte_express::receive(request.chunks(), &key, bytes, self)?;
                self.commit(key, place, store.options)
            }
            Command::CxlStore { .. }
            | Command::Batch(_)
            | Command::StorePart(_)
            | Command::RetrievePart(_) => Err(Status::INVALID_OPCODE),
        }
    }

    fn identify(&self, request: &PcieRequest) -> Answer {
        let mut namespace = KvNamespace::new_zeroed();
        namespace.formats[0].value_max_bytes.set(MAX_VALUE_BYTES);
        let answer = namespace.as_bytes().to_vec();
        let bytes = answer.len() as u32;
        self.send(request, bytes, &Region::from_bytes(answer), bytes).map(|()| (0, 0))
    }

    fn write(&self, request: &PcieRequest, write: Write) -> Answer {
        self.refuse_inside_value(request)?;
        let Write { key, value_bytes } = write;
        let place = self.reserve(&key, value_bytes, Arrival::Inline)?;
        let received_bytes = piggyback::copy_write(request.sqe(), value_bytes, &place, self);
        let assembly = Assembly { key, value_bytes, received_bytes, place };
        self.keep_or_commit(request, assembly)
    }

    fn transfer(&self, request: &PcieRequest) -> Answer {
        if let Some(status) = self.refused.borrow_mut().remove(&request.session().number()) {
            return Err(status);
        }
        let unfinished = self.unfinished.borrow_mut().remove(&request.session().number());
        let mut assembly = unfinished.ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
        piggyback::receive_transfer(request.sqe(), &mut assembly, self);
        self.keep_or_commit(request, assembly)
    }

    fn retrieve(&self, request: &PcieRequest, key: &Key, buffer_bytes: u32) -> Answer {
        self.flash.run(5_000);
        let found = self.pairs.borrow().get(key).cloned();
        let (bytes, value) = found.ok_or(Status::KEY_NOT_FOUND)?;
        let value = value.borrow().clone();
        self.send(request, buffer_bytes, &value, bytes)?;
        Ok((bytes, 0))
    }

    fn refuse_inside_value(&self, request: &PcieRequest) -> Result<(), Status> {
        match self.unfinished.borrow_mut().remove(&request.session().number()) {
            None => Ok(()),
            Some(_) => Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    }

    fn keep_or_commit(&self, request: &PcieRequest, assembly: Assembly<(u32, Value)>) -> Answer {
        if assembly.is_whole() {
            return self.commit(assembly.key, assembly.place, StoreOptions::default());
        }
        self.unfinished.borrow_mut().insert(request.session().number(), assembly);
        Ok((0, 0))
    }

    fn commit(&self, key: Key, place: (u32, Value), options: StoreOptions) -> Answer {
        let _order = self.store_lock.lock();
        self.flash.run(700);
        let mut pairs = self.pairs.borrow_mut();
        let exists = pairs.contains_key(&key);
        if options.update_only && !exists {
            return Err(Status::KEY_NOT_FOUND);
        }
        if options.add_only && exists {
            return Err(Status::KEY_EXISTS);
        }
        pairs.insert(key, place);
        Ok((0, 0))
    }

    fn list(&self, request: &PcieRequest, start: Option<Key>, buffer_bytes: u32) -> Answer {
        let mut answer = vec![0; buffer_bytes as usize];
        let mut writer = ListWriter::new(&mut answer);
        let from = start.map_or(Bound::Unbounded, Bound::Included);
        for (key, _) in self.pairs.borrow().range((from, Bound::Unbounded)) {
            if !writer.push(*key) {
                break;
            }
        }
        let (keys, bytes) = (writer.keys(), writer.finish());
        self.send(request, buffer_bytes, &Region::from_bytes(answer), bytes as u32)?;
        Ok((keys, 0))
    }

    fn answer_pairs(
        &self,
        request: &PcieRequest,
        room: u32,
        iterator: u32,
        from: Bound<Key>,
        most: usize,
    ) -> Answer {
        let pairs: Vec<(Key, u32, Value)> = {
            let pairs = self.pairs.borrow();
            let pairs = pairs.range((from, Bound::Unbounded)).take(most);
            pairs.map(|(key, (bytes, value))| (*key, *bytes, value.clone())).collect()
        };
        let (mut answer, mut end) = (Region::new(), 0);
        for (key, bytes, value) in pairs {
            let (header, at) = (IterHeader::new(key, bytes), pair_at(end));
            if end > 0 && at + header.answer_bytes() > room {
                break;
            }
            answer.write(at, Piece::Bytes(header.as_bytes()));
            answer.write(at + IterHeader::BYTES as u32, Piece::Bytes(&value.borrow().to_bytes(bytes)));
            end = at + header.answer_bytes();
            self.cursors.borrow_mut()[iterator as usize] = Some(key);
        }
        if end > 0 {
            self.send(request, room, &answer, end)?;
        }
        Ok((end, iterator))
    }

    /// Sends the first `bytes` bytes of an answer, as far as the `room` bytes that `sqe` names hold them.
    fn send(&self, request: &PcieRequest, room: u32, answer: &Region, bytes: u32) -> Result<(), Status> {
        request.push(room, bytes.min(room), &mut |at, bytes, sink| {
            answer.read(at, bytes, sink);
            Ok(())
        })
    }
}

impl Landing for Drive {
    type Place = (u32, Value);

    fn reserve(&self, _: &Key, bytes: u32, _: Arrival) -> Result<(u32, Value), Status> {
        if bytes > MAX_VALUE_BYTES {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        Ok((bytes, Value::default()))
    }

    fn copy_in(&self, place: &(u32, Value), at: u32, bytes: &[u8]) {
        self.cores.run(bytes.len() as u64);
        place.1.borrow_mut().write(at, Piece::Bytes(bytes));
    }

    fn dma_in(&self, place: &(u32, Value), at: u32, piece: Piece<'_>) {
        place.1.borrow_mut().write(at, piece);
    }

    fn settle(&self, _: &(u32, Value)) {}

    fn abandon(&self, _: (u32, Value)) {}
}
