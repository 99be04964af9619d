//! Any 64 bytes, from any queue: exactly one completion each, never a panic, and nothing changes but what a
//! command that succeeded asked for. The oracle reads commands with `Command::decode` and host memory by
//! itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_device::config::Dispatch;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_link::{BadAddress, HostMemory, Link, QueuePair};
use kvdrive_sim::{Rng, Sim};
use kvdrive_spec::batch::{BatchBuilder, BatchReader, RequestKind};
use kvdrive_spec::inline::{TAIL_INLINE_BYTES, WRITE_INLINE_BYTES, get_tail, get_transfer, get_write};
use kvdrive_spec::window::ASK;
use kvdrive_spec::{
    ALL_STREAMS, Batch, Command, Cqe, Key, RetrievePart, SglDescriptor, Sqe, Status, Store, StoreOptions,
    StorePart, ValueSource, Write, opcode,
};
use proptest::prelude::*;

use super::mock_engine::{Jitter, MockEngine};
use super::rig;

pub const BASE: u64 = 0x10_0000;
const PAGES: u64 = 24;
const PAGE: u64 = 4096;
/// Page of a list that names pages in order, so that whole transfers can succeed.
const LIST: u64 = BASE + (PAGES - 1) * PAGE;
const LARGEST: u32 = 40_000;
/// Pages at whose beginning lies a structured value of so many bytes.
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

    /// Where the first `bytes` of the `named` bytes lie that `sqe` names.
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
        // Not yet reached of what is named; more than `left` when the answer is smaller than its buffer.
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

/// Two stores of values of so many bytes.
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

fn any_key() -> impl Strategy<Value = Key> + Clone {
    (0u8..3, 1usize..5).prop_map(|(byte, len)| Key::new(&[byte; 16][..len]).expect("1 to 4 bytes"))
}

fn any_size() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        4 => 0u32..200,
        2 => 4_000u32..4_300,
        2 => 8_000u32..LARGEST + 100,
        1 => any::<u32>(),
    ]
}

fn any_command() -> impl Strategy<Value = Command> + Clone {
    let options = (any::<bool>(), any::<bool>()).prop_map(|(first, condition)| StoreOptions {
        update_only: first && condition,
        add_only: !first && condition,
        no_compress: false,
    });
    let iterator = prop_oneof![0u32..5, 4_096u32..4_101, any::<u32>()];
    let start = proptest::option::of(any_key());
    prop_oneof![
        4 => (any_key(), any_size(), options)
            .prop_map(|(key, value_bytes, options)| Command::Store(Store { key, value_bytes, options })),
        4 => (any_key(), any_size())
            .prop_map(|(key, value_bytes)| Command::Write(Write { key, value_bytes })),
        3 => (any_key(), any_size(), 0u32..3)
            .prop_map(|(key, value_bytes, pages_z)| Command::Hybrid { key, value_bytes, pages_z }),
        8 => Just(Command::Transfer),
        1 => (0u16..3).prop_map(|stream| Command::Discard { stream }),
        6 => any_store_part(),
        2 => (any_key(), 0u32..5_000, any_size(), 0u16..3, any_size())
            .prop_map(|(key, at, bytes, stream, room)| Command::RetrievePart(RetrievePart {
                key, at, bytes, stream, room, options: Default::default(),
            })),
        4 => (any_key(), any_size()).prop_map(|(key, buffer_bytes)| Command::Retrieve {
            key, buffer_bytes, options: Default::default(),
        }),
        1 => (any_key(), 0u32..200).prop_map(|(key, value_bytes)| {
            Command::Express(Store { key, value_bytes, options: StoreOptions::default() })
        }),
        3 => (any_key(), 24u32..3_000, 0u32..6, any::<u16>(), 0u8..25).prop_map(
            |(key, value_bytes, generation, window_offset, tail_bytes)| {
                let window_offset = if window_offset % 8 == 0 { ASK } else { u32::from(window_offset % 4_500) };
                Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes }
            },
        ),
        3 => (any_source(), prop_oneof![3 => Just(BATCHES[0].1), 3 => Just(BATCHES[1].1), 1 => any_size()])
            .prop_map(|(source, value_bytes)| Command::Batch(Batch { value_bytes, source })),
        1 => (any_key(), any::<bool>()).prop_map(|(key, must_exist)| Command::Delete { key, must_exist }),
        1 => any_key().prop_map(|key| Command::Exist { key }),
        1 => (start.clone(), any_size()).prop_map(|(start, buffer_bytes)| Command::List { start, buffer_bytes }),
        2 => (start, any_size()).prop_map(|(key, buffer_bytes)| Command::Seek { key, buffer_bytes }),
        2 => (iterator.clone(), any_size(), prop_oneof![Just(0), 0u16..5, any::<u16>()])
            .prop_map(|(iterator, buffer_bytes, pairs_z)| Command::Next { iterator, buffer_bytes, pairs_z }),
        1 => iterator.prop_map(|iterator| Command::IterClose { iterator }),
    ]
}

/// All of a value, or one of three parts of one.
fn any_store_part() -> impl Strategy<Value = Command> + Clone {
    let part = prop_oneof![
        any_size().prop_map(|bytes| (bytes, 0, bytes)),
        (0u32..3).prop_map(|part| (11_000, part * 4096, 4096.min(11_000 - part * 4096))),
    ];
    (any_key(), part, 1u16..3).prop_map(|(key, (value_bytes, at, bytes), stream)| {
        let store = Store { key, value_bytes, options: StoreOptions::default() };
        Command::StorePart(StorePart { store, at, bytes, stream })
    })
}

fn any_source() -> impl Strategy<Value = ValueSource> + Clone {
    prop_oneof![
        6 => Just(ValueSource::Data),
        1 => Just(ValueSource::Inline),
        1 => (0u32..2).prop_map(|pages_z| ValueSource::Hybrid { pages_z }),
        1 => Just(ValueSource::Chunks),
        1 => (0u32..6, 0u32..200, 0u8..25).prop_map(|(generation, window_offset, tail_bytes)| {
            ValueSource::Window { window_offset, generation, tail_bytes }
        }),
    ]
}

/// Mostly inside the memory and aligned, sometimes anything.
fn any_address() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        8 => (0..PAGES).prop_map(|page| BASE + page * PAGE),
        2 => prop_oneof![Just(BATCHES[0].0), Just(BATCHES[1].0)].prop_map(|page| BASE + page * PAGE),
        4 => Just(LIST),
        2 => (0..PAGES * PAGE / 4).prop_map(|dword| BASE + dword * 4),
        1 => (0..PAGES * PAGE).prop_map(|byte| BASE + byte),
        1 => (0u64..8_300).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

pub fn any_sqe() -> impl Strategy<Value = [u8; 64]> {
    let data = (any_address(), any_address(), proptest::option::weighted(0.25, any_size()));
    let valid = (any_command(), any::<u16>(), data).prop_map(|(command, cid, (first, second, sgl))| {
        let mut sqe = command.encode(cid, 1);
        // Inline commands keep value bytes where others have the data pointer; a *hybrid* has pages as well.
        match (command.opcode(), sgl) {
            (opcode::WRITE | opcode::TRANSFER, _) => {
                kvdrive_spec::inline::put_write(&mut sqe, &[cid as u8; WRITE_INLINE_BYTES]);
            }
            (_, Some(length)) => sqe.set_sgl(SglDescriptor::data_block(first, length)),
            (_, None) => sqe.set_prps(first, second),
        }
        *sqe.as_bytes()
    });
    let mutated = (valid.clone(), proptest::collection::vec((0usize..64, any::<u8>()), 1..4));
    prop_oneof![
        6 => valid,
        2 => mutated.prop_map(|(mut sqe, changes)| {
            changes.iter().for_each(|(at, byte)| sqe[*at] = *byte);
            sqe
        }),
        1 => proptest::collection::vec(any::<u8>(), 64).prop_map(|bytes| bytes.try_into().expect("64")),
    ]
}

/// Which queue (0 is the admin queue), and what. None is quiet: each must be completed.
pub fn any_stream(longest: usize) -> impl Strategy<Value = Vec<(usize, [u8; 64])>> {
    let queue = prop_oneof![1 => Just(0usize), 12 => 1usize..3];
    let loud = (queue, any_sqe()).prop_map(|(queue, mut bytes)| {
        bytes[1] &= !4;
        // Neither the end of a queue that the stream uses, nor what waits for an event: see `queues.rs`.
        let waits = [opcode::admin::DELETE_IO_SQ, opcode::admin::ASYNC_EVENT_REQUEST];
        if queue == 0 && waits.contains(&bytes[0]) {
            bytes[0] = opcode::admin::KEEP_ALIVE;
        }
        (queue, bytes)
    });
    proptest::collection::vec(loud, 1..longest)
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

/// A value that has arrived in part.
struct Unfinished {
    /// `None`: it is a batch.
    key: Option<Key>,
    value_bytes: usize,
    value: Vec<u8>,
}

/// What the drive and the host's memory should hold.
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
            // Refused before a stream is looked at, or because of it: what it had begun is gone.
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
            Command::Batch(Batch { value_bytes, source }) => match source {
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
            },
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
            Command::RetrievePart(RetrievePart { key, at, bytes, stream, room, .. }) => {
                if at > 0 && stream > 0 {
                    return; // of the value that there was
                }
                self.parts.remove(&(queue, stream));
                let value = self.pairs[&key].clone();
                assert_eq!(cqe.dw0.get() as usize, value.len());
                let until = if stream == 0 { value.len() } else { value.len().min(room as usize) };
                let stop = until.min(at as usize + bytes as usize);
                self.memory.scatter(sqe, bytes, &value[at as usize..stop]).expect("mapped");
            }
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

    /// A batch was carried out; the number of its requests.
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
        // A batch has no place of the engine's before it is whole.
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
            // An answer of the drive's own making, or one that broke off, may lie in the memory the command
            // named.
            let answers = matches!(command, Ok(Command::List { .. } | Command::Seek { .. } | Command::Next { .. }));
            let broke_off = matches!(command, Ok(Command::Retrieve { .. } | Command::RetrievePart(_)))
                && !status.is_success();
            // A later part of a stream is of the value that there was.
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
                    // Others would be taken for its chunks or not, as they come.
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
        // An unfinished value costs the next *write* a refusal, and no more than one.
        for (number, queue) in world.queues[1..].iter().enumerate() {
            let key = Key::from_u32_be(number as u32);
            let mut sqe = Command::Write(Write { key, value_bytes: 30 }).encode(5, 1);
            kvdrive_spec::inline::put_write(&mut sqe, &[number as u8; WRITE_INLINE_BYTES]);
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
