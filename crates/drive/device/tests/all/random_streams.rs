//! Any 64 bytes, from any queue: exactly one completion each, never a panic, and only commands that succeed
//! change anything. The oracle reads commands with `Command::decode` and reads host memory itself.

mod draws;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_device::config::Dispatch;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_link::{BadAddress, HostMemory, Link, QueuePair};
use kvdrive_nvme::batch::{BatchBuilder, BatchReader, RequestKind};
use kvdrive_nvme::inline::{TAIL_INLINE_BYTES, WRITE_INLINE_BYTES, get_tail, get_transfer, get_write};
use kvdrive_nvme::{
    ALL_STREAMS, Batch, Command, Cqe, Key, RetrievePart, Sqe, Status, Store, StorePart, ValueSource, Write,
    opcode,
};
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;

use super::mock_engine::{Jitter, MockEngine};
use super::rig;
pub use draws::{any_sqe, any_stream};

pub const BASE: u64 = 0x10_0000;
const PAGES: u64 = 24;
const PAGE: u64 = 4096;
/// Page of a list that names pages in order, so that whole transfers can succeed.
const LIST: u64 = BASE + (PAGES - 1) * PAGE;
const LARGEST: u32 = 40_000;
/// Pages that begin with a structured value, and its size in bytes.
const BATCHES: [(u64, u32); 2] = [(3, 16 + 2 * (8 + 2 + 30)), (5, 16 + 2 * (8 + 2 + 4_500))];

/// One run of memory at [`BASE`].
#[derive(Clone, PartialEq, Eq)]
pub struct Flat(Vec<u8>);

impl Flat {
    pub fn new() -> Flat {
        let mut bytes = vec![0; (PAGES * PAGE) as usize];
        Rng::stream(9, "host memory").fill(&mut bytes);
        let list = (LIST - BASE) as usize;
        for (index, entry) in bytes[list..].chunks_exact_mut(8).enumerate() {
            let page = BASE + (1 + index as u64 % (PAGES - 2)) * PAGE;
            entry.copy_from_slice(&page.to_le_bytes());
        }
        for (page, size) in BATCHES {
            let value = structured((size - 16) / 2 - 10);
            bytes[(page * PAGE) as usize..][..size as usize].copy_from_slice(&value);
        }
        Flat(bytes)
    }

    fn at(&self, address: u64, bytes: u32) -> Option<usize> {
        let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
        (at.checked_add(bytes as usize)? <= self.0.len()).then_some(at)
    }

    pub fn bytes(&self, address: u64, bytes: u32) -> Option<&[u8]> {
        let at = self.at(address, bytes)?;
        Some(&self.0[at..at + bytes as usize])
    }

    /// The runs of memory with the first `bytes` of the `named` bytes that `sqe` names.
    fn runs(&self, sqe: &Sqe, named: u32, bytes: u32) -> Option<Vec<(u64, u32)>> {
        if bytes == 0 {
            return Some(Vec::new());
        }
        if sqe.flags >> 6 != 0 {
            return Some(vec![(sqe.sgl().address.get(), bytes)]);
        }
        let (prp1, prp2) = (sqe.prp1.get(), sqe.prp2.get());
        let first = bytes.min((PAGE - prp1 % PAGE) as u32);
        let mut runs = vec![(prp1, first)];
        let mut left = bytes - first;
        // Named bytes after the present position; more than `left` if the answer is smaller than its buffer.
        let mut named_left = u64::from(named) - u64::from(first);
        if left > 0 && named_left <= PAGE {
            runs.push((prp2, left));
            left = 0;
        }
        let mut slot = prp2;
        while left > 0 {
            let entry = u64::from_le_bytes(self.bytes(slot, 8)?.try_into().ok()?);
            if (slot + 8) % PAGE == 0 && named_left > PAGE {
                slot = entry;
                continue;
            }
            let here = left.min(PAGE as u32);
            runs.push((entry, here));
            left -= here;
            named_left -= u64::from(here);
            slot += 8;
        }
        Some(runs)
    }

    fn gather(&self, sqe: &Sqe, bytes: u32) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for (address, bytes) in self.runs(sqe, bytes, bytes)? {
            value.extend_from_slice(self.bytes(address, bytes)?);
        }
        Some(value)
    }

    fn scatter(&mut self, sqe: &Sqe, named: u32, value: &[u8]) -> Option<()> {
        let mut rest = value;
        for (address, bytes) in self.runs(sqe, named, value.len() as u32)? {
            let at = self.at(address, bytes)?;
            let (now, later) = rest.split_at(bytes as usize);
            self.0[at..at + now.len()].copy_from_slice(now);
            rest = later;
        }
        Some(())
    }
}

/// A structured value of two stores, each of a value of `value_bytes`.
fn structured(value_bytes: u32) -> Vec<u8> {
    let (mut value, mut batch) = (vec![0; 16], BatchBuilder::new());
    for byte in [1, 2] {
        let key = Key::new(&[byte; 2]).expect("2 bytes");
        batch.append(&mut value, RequestKind::Store, key, &vec![byte; value_bytes as usize]);
    }
    value[..16].copy_from_slice(&batch.head(false));
    value
}

pub struct SharedFlat(pub RefCell<Flat>);

impl HostMemory for SharedFlat {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let memory = self.0.borrow();
        sink(Piece::Bytes(memory.bytes(address, bytes).ok_or(BadAddress { address, bytes })?));
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        let bytes = piece.bytes();
        let mut memory = self.0.borrow_mut();
        let at = memory.at(address, bytes).ok_or(BadAddress { address, bytes })?;
        piece.expand(&mut memory.0[at..at + bytes as usize]);
        Ok(())
    }
}

struct World {
    sim: Sim,
    link: Rc<Link>,
    namespace: Rc<KvNamespace<MockEngine>>,
    memory: Rc<SharedFlat>,
    queues: Vec<Rc<QueuePair>>,
}

fn world(sim: Sim, dispatch: Dispatch, engine: MockEngine) -> World {
    let memory = Rc::new(SharedFlat(RefCell::new(Flat::new())));
    let (link, namespace) = rig::start_with(&sim, memory.clone(), rig::link_config(1), dispatch, engine);
    let queues = vec![link.admin_queue(), link.create_queue(16), link.create_queue(16)];
    World { sim, link, namespace, memory, queues }
}

impl World {
    /// Runs one entry until nothing is due; returns its completion, which must be the only one.
    fn complete(&self, queue: &Rc<QueuePair>, sqe: Sqe) -> Cqe {
        assert!(queue.try_submit(sqe));
        self.sim.block_on(|| self.link.ring_submission(queue));
        self.sim.run();
        let cqe = queue.any_completion().expect("every command is completed");
        self.link.ring_completion(queue);
        assert!(self.queues.iter().all(|queue| queue.any_completion().is_none()), "and once");
        assert_eq!((cqe.cid.get(), cqe.sqid.get()), (sqe.cid.get(), queue.id()));
        cqe
    }
}

/// A value of which a part has arrived.
struct Unfinished {
    /// `None`: a batch.
    key: Option<Key>,
    value_bytes: usize,
    value: Vec<u8>,
}

/// The expected content of the drive and of the host's memory.
struct Oracle {
    pairs: BTreeMap<Key, Vec<u8>>,
    unfinished: [Option<Unfinished>; 3],
    /// Values of which the front has come, by queue and stream.
    parts: BTreeMap<(usize, u16), (Store, Vec<u8>)>,
    memory: Flat,
}

impl Oracle {
    fn refused(&mut self, queue: usize, command: Result<Command, Status>, status: Status) {
        match (command, status) {
            (
                Ok(
                    Command::Write(_)
                    | Command::Hybrid { .. }
                    | Command::Batch(Batch {
                        source: ValueSource::Inline | ValueSource::Hybrid { .. }, ..
                    }),
                ),
                Status::COMMAND_SEQUENCE_ERROR,
            ) => {
                assert!(self.unfinished[queue].take().is_some(), "nothing was unfinished");
            }
            (Ok(Command::Transfer), Status::COMMAND_SEQUENCE_ERROR) => {
                assert!(self.unfinished[queue].is_none(), "there was something to continue");
            }
            (Ok(Command::Transfer), Status::INVALID_FIELD | Status::INVALID_KEY_SIZE) => {
                let begun = self.unfinished[queue].take().expect("something to continue");
                assert!(begun.key.is_none(), "only a batch is looked at when it is whole");
            }
            (Ok(Command::Store(Store { key, options, .. })), Status::KEY_EXISTS) => {
                assert!(options.add_only && self.pairs.contains_key(&key));
            }
            (Ok(Command::Store(Store { key, options, .. })), Status::KEY_NOT_FOUND) => {
                assert!(options.update_only && !self.pairs.contains_key(&key));
            }
            (Ok(Command::Retrieve { key, .. } | Command::Exist { key }), Status::KEY_NOT_FOUND) => {
                assert!(!self.pairs.contains_key(&key));
            }
            // Refused before the stream was looked at, or because of it: the stream's value is discarded.
            (Ok(Command::StorePart(_)), Status::INVALID_NAMESPACE | Status::INVALID_FIELD) => {}
            (Ok(Command::StorePart(part)), _) => {
                let begun = self.parts.remove(&(queue, part.stream));
                let follows = begun.is_some_and(|(store, front)| {
                    store == part.store && front.len() == part.at as usize && part.at > 0
                });
                assert!(!(follows && status == Status::COMMAND_SEQUENCE_ERROR), "it continues one");
            }
            (Ok(Command::RetrievePart(part)), _)
                if part.stream > 0 && status != Status::INVALID_NAMESPACE =>
            {
                self.parts.remove(&(queue, part.stream));
            }
            _ => {}
        }
    }

    /// The next bytes of a value.
    fn store_part(&mut self, queue: usize, sqe: &Sqe, part: StorePart) {
        let StorePart { store, at, bytes, stream } = part;
        let begun = self.parts.remove(&(queue, stream)).filter(|_| at > 0);
        let (of, mut value) = begun.unwrap_or((store, Vec::new()));
        assert!(of == store && value.len() == at as usize, "a part that follows nothing");
        value.extend_from_slice(&self.memory.gather(sqe, bytes).expect("mapped"));
        if value.len() < store.value_bytes as usize {
            self.parts.insert((queue, stream), (store, value));
            return;
        }
        assert!(!(store.options.add_only && self.pairs.contains_key(&store.key)));
        assert!(!store.options.update_only || self.pairs.contains_key(&store.key));
        self.pairs.insert(store.key, value);
    }

    fn succeeded(&mut self, queue: usize, sqe: &Sqe, cqe: &Cqe) {
        match Command::decode(sqe).expect("what succeeds is a command") {
            Command::Flush => {}
            Command::Store(Store { key, value_bytes, options }) => {
                assert!(!(options.add_only && self.pairs.contains_key(&key)));
                assert!(!options.update_only || self.pairs.contains_key(&key));
                let value = self.memory.gather(sqe, value_bytes).expect("mapped");
                self.pairs.insert(key, value);
            }
            Command::Write(Write { key, value_bytes }) => {
                let mut part = [0; WRITE_INLINE_BYTES];
                get_write(sqe, &mut part);
                self.begin(queue, Some(key), value_bytes as usize, part.to_vec());
            }
            Command::Hybrid { key, value_bytes, pages_z } => {
                let pages = self.memory.gather(sqe, (pages_z + 1) * PAGE as u32).expect("mapped");
                self.begin(queue, Some(key), value_bytes as usize, pages);
            }
            Command::Batch(batch) => self.batch_succeeded(queue, sqe, cqe, batch),
            Command::Transfer => {
                let mut part = [0; 56];
                get_transfer(sqe, &mut part);
                let Unfinished { key, value_bytes, mut value } =
                    self.unfinished[queue].take().expect("something to continue");
                value.extend_from_slice(&part);
                self.begin(queue, key, value_bytes, value);
            }
            Command::Discard { stream: 0 } => self.unfinished[queue] = None,
            Command::Discard { stream: ALL_STREAMS } => self.parts.retain(|(of, _), _| *of != queue),
            Command::Discard { stream } => drop(self.parts.remove(&(queue, stream))),
            Command::StorePart(part) => self.store_part(queue, sqe, part),
            Command::RetrievePart(part) => self.part_retrieved(queue, sqe, cqe, part),
            Command::Retrieve { key, buffer_bytes, .. } => {
                let value = self.pairs[&key].clone();
                assert_eq!(cqe.dw0.get() as usize, value.len());
                let fits = value.len().min(buffer_bytes as usize);
                self.memory.scatter(sqe, buffer_bytes, &value[..fits]).expect("mapped");
            }
            Command::Delete { key, must_exist } => {
                let removed = self.pairs.remove(&key);
                assert!(removed.is_some() || !must_exist);
            }
            Command::Exist { key } => assert!(self.pairs.contains_key(&key)),
            Command::List { .. }
            | Command::Seek { .. }
            | Command::Next { .. }
            | Command::IterClose { .. } => {}
            Command::Express(Store { key, value_bytes, .. }) => {
                assert_eq!(value_bytes, 0, "its chunks were never published");
                self.pairs.insert(key, Vec::new());
            }
            Command::CxlStore { key, value_bytes, tail_bytes, .. } => {
                let mut tail = [0; TAIL_INLINE_BYTES];
                get_tail(sqe, &mut tail);
                // No host stores into the windows of this drive.
                let mut value = vec![0; value_bytes as usize - usize::from(tail_bytes)];
                value.extend_from_slice(&tail[..usize::from(tail_bytes)]);
                self.pairs.insert(key, value);
            }
        }
    }

    fn batch_succeeded(&mut self, queue: usize, sqe: &Sqe, cqe: &Cqe, batch: Batch) {
        let Batch { value_bytes, source } = batch;
        match source {
            ValueSource::Data => {
                let value = self.memory.gather(sqe, value_bytes).expect("mapped");
                assert_eq!(cqe.dw0.get(), self.apply(&value));
            }
            ValueSource::Inline => {
                let mut part = [0; WRITE_INLINE_BYTES];
                get_write(sqe, &mut part);
                self.begin(queue, None, value_bytes as usize, part.to_vec());
            }
            ValueSource::Hybrid { pages_z } => {
                let pages = self.memory.gather(sqe, (pages_z + 1) * PAGE as u32).expect("mapped");
                self.begin(queue, None, value_bytes as usize, pages);
            }
            ValueSource::Chunks | ValueSource::Window { .. } => {
                panic!("its bytes are no structured value")
            }
        }
    }

    fn part_retrieved(&mut self, queue: usize, sqe: &Sqe, cqe: &Cqe, part: RetrievePart) {
        let RetrievePart { key, at, bytes, stream, room, .. } = part;
        if at > 0 && stream > 0 {
            return; // of the value that existed then
        }
        self.parts.remove(&(queue, stream));
        let value = self.pairs[&key].clone();
        assert_eq!(cqe.dw0.get() as usize, value.len());
        let until = if stream == 0 { value.len() } else { value.len().min(room as usize) };
        let stop = until.min(at as usize + bytes as usize);
        self.memory.scatter(sqe, bytes, &value[at as usize..stop]).expect("mapped");
    }

    /// A batch was carried out; returns the number of its requests.
    fn apply(&mut self, value: &[u8]) -> u32 {
        let mut reader = BatchReader::of_bytes(value).expect("what succeeds has a head");
        reader.check().expect("what succeeds is whole");
        let requests = reader.requests();
        for request in reader.map(|request| request.expect("it was checked")) {
            let at = request.value_at as usize;
            match request.kind {
                RequestKind::Store => {
                    let value = value[at..at + request.value_bytes as usize].to_vec();
                    self.pairs.insert(request.key, value);
                }
                RequestKind::Delete => drop(self.pairs.remove(&request.key)),
            }
        }
        requests
    }

    fn begin(&mut self, queue: usize, key: Option<Key>, value_bytes: usize, mut value: Vec<u8>) {
        assert!(self.unfinished[queue].is_none());
        if value.len() < value_bytes {
            self.unfinished[queue] = Some(Unfinished { key, value_bytes, value });
        } else {
            value.truncate(value_bytes);
            match key {
                Some(key) => drop(self.pairs.insert(key, value)),
                None => drop(self.apply(&value)),
            }
        }
    }

    fn check(&mut self, world: &World, moved_freely: bool) {
        let values = world.namespace.engine().values.borrow();
        let stored = values.iter().map(|(key, stored)| (*key, stored.content.to_bytes(stored.bytes)));
        assert!(stored.eq(self.pairs.iter().map(|(key, value)| (*key, value.clone()))), "pairs differ");
        // A batch has no place in the engine before it has arrived as a whole.
        let unfinished = self.unfinished.iter().flatten().filter(|begun| begun.key.is_some()).count();
        assert_eq!(world.namespace.engine().open_places.get() as usize, unfinished + self.parts.len());
        let memory = world.memory.0.borrow();
        if moved_freely {
            self.memory.clone_from(&memory);
        }
        assert!(self.memory == *memory, "host memory differs");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn one_by_one_only_what_succeeds_changes_anything(stream in any_stream(60)) {
        let world = world(Sim::new(), rig::on_contexts(1), MockEngine::new(LARGEST));
        let mut oracle = Oracle {
            pairs: BTreeMap::new(),
            unfinished: Default::default(),
            parts: BTreeMap::new(),
            memory: Flat::new(),
        };
        for (queue, bytes) in stream {
            let sqe = Sqe::from_bytes(bytes);
            let cqe = world.complete(&world.queues[queue], sqe);
            let command = Command::decode(&sqe);
            let status = cqe.status();
            if queue > 0 && status.is_success() {
                prop_assert_eq!(sqe.nsid.get(), 1);
                oracle.succeeded(queue, &sqe, &cqe);
            } else if queue > 0 {
                oracle.refused(queue, command, status);
            }
            // The memory that the command named may hold an answer that the drive made itself, or a part of
            // one.
            let answers = matches!(command, Ok(Command::List { .. } | Command::Seek { .. } | Command::Next { .. }));
            let broke_off = matches!(command, Ok(Command::Retrieve { .. } | Command::RetrievePart(_)))
                && !status.is_success();
            // A later part of a stream belongs to the value that existed when the stream began.
            let answers = answers
                || matches!(command, Ok(Command::RetrievePart(part)) if part.at > 0 && part.stream > 0);
            oracle.check(&world, queue == 0 || answers || broke_off);
        }
    }

    #[test]
    fn side_by_side_each_is_completed_once_and_the_drive_goes_on(
        stream in any_stream(90), seed in any::<u64>(), dispatch in rig::any_dispatch(), most_places in 0u32..4,
    ) {
        let sim = Sim::permuted(seed);
        let jitter = Some(Jitter { sim: sim.clone(), rng: Rng::stream(seed, "jitter").into(), below_ns: 3_000 });
        let most_places = (most_places > 0).then_some(most_places + 2);
        let engine = MockEngine { jitter, most_places, ..MockEngine::new(LARGEST) };
        let world = world(sim, dispatch, engine);
        for burst in stream.chunks(14) {
            let mut submitted: [Vec<u16>; 3] = Default::default();
            for (queue, bytes) in burst {
                let mut sqe = Sqe::from_bytes(*bytes);
                if sqe.opcode == opcode::EXPRESS && *queue > 0 {
                    // Otherwise later entries would be chunks of this one, depending on when they come.
                    sqe.cdw10.set(0);
                }
                prop_assert!(world.queues[*queue].try_submit(sqe));
                submitted[*queue].push(sqe.cid.get());
                let (link, queue) = (world.link.clone(), world.queues[*queue].clone());
                world.sim.spawn(move || { link.ring_submission(&queue) });
            }
            world.sim.run();
            for (queue, mut submitted) in world.queues.iter().zip(submitted) {
                let mut completed = Vec::new();
                while let Some(cqe) = queue.any_completion() {
                    prop_assert_eq!(cqe.sqid.get(), queue.id());
                    completed.push(cqe.cid.get());
                    world.link.ring_completion(queue);
                }
                submitted.sort_unstable();
                completed.sort_unstable();
                prop_assert_eq!(submitted, completed);
            }
        }
        for queue in &world.queues[1..] {
            let status = world.complete(queue, Command::Discard { stream: ALL_STREAMS }.encode(5, 1)).status();
            prop_assert!(status.is_success());
        }
        prop_assert!(world.namespace.engine().open_places.get() <= 2);
        // An unfinished value makes the drive refuse the next *write*, and only that one.
        for (number, queue) in world.queues[1..].iter().enumerate() {
            let key = Key::from_u32_be(number as u32);
            let mut sqe = Command::Write(Write { key, value_bytes: 30 }).encode(5, 1);
            kvdrive_nvme::inline::put_write(&mut sqe, &[number as u8; WRITE_INLINE_BYTES]);
            let first = world.complete(queue, sqe).status();
            if !first.is_success() {
                prop_assert_eq!(first, Status::COMMAND_SEQUENCE_ERROR);
                prop_assert_eq!(world.complete(queue, sqe).status(), Status::SUCCESS);
            }
            let stored = world.namespace.engine().values.borrow()[&key].clone();
            prop_assert_eq!(stored.content.to_bytes(stored.bytes), vec![number as u8; 30]);
        }
        prop_assert_eq!(world.namespace.engine().open_places.get(), 0);
    }
}
