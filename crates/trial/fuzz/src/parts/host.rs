//! A host of the drive: its two connections without sockets, its commands, and its knowledge from their answers.

use std::collections::BTreeMap;

use kvdrive_nvme::list::ListReader;
use kvdrive_nvme::tcp::{self, flag, kind};
use kvdrive_nvme::{ALL_STREAMS, Command, Cqe, Key, RetrievePart, SglDescriptor, Sqe, Status, StorePart};
use kvdrive_subsystem::shared::{Core, Use};
use kvdrive_subsystem::subsystem::Event;
use kvdrive_subsystem::tcp::connection::{Connection, Limits};
use zerocopy::FromBytes;

use super::oracle::{Oracle, Value, content};
use kvdrive_rigs::wire::{address, connect_as, ic_req, set_cc, units};

/// A header and an entry.
const UNIT_BYTES: usize = 8 + Sqe::BYTES;
/// Most bytes in a capsule.
const CAPSULE_BYTES: u32 = 8192;
/// Most bytes of an H2CData.
pub const DATA_BYTES: u32 = 128 << 10;
/// Bytes of a large value that move at once: much less than by default, so that there are more parts.
const PART_BYTES: u32 = 256 << 10;
const QUEUE_ENTRIES_Z: u8 = 31;

/// A command under way.
struct UnderWay {
    command: Option<Command>,
    /// The value to which its bytes belong, and the position of the first of them in it.
    number: Option<u32>,
    at: u32,
    /// For a lookup: the key's version when it began, and the bytes received.
    version: Option<u64>,
    came: Vec<u8>,
    /// Are the data that the drive asks for sent at once?
    is_prompt: bool,
}

/// Data that the drive asks for.
struct Asked {
    cid: u16,
    tag: u16,
    at: u32,
    end: u32,
}

/// The result of a lookup.
pub struct Answer {
    pub status: Status,
    pub dw0: u32,
    pub bytes: Vec<u8>,
}

pub struct Host {
    number: usize,
    admin: Connection,
    io: Connection,
    /// Bytes that its connection has not taken yet.
    outbox: Vec<u8>,
    under_way: BTreeMap<u16, UnderWay>,
    asked: Vec<Asked>,
    next_cid: u16,
    /// The last lookup's answer.
    pub answer: Option<Answer>,
    /// Alterations of the next unit: positions, and the bits that are flipped.
    pub alterations: Vec<(usize, u8)>,
}

/// Hands events of the subsystem to the connections that they are for; `true` if there was one.
pub fn hand_over(core: &mut Core, hosts: &mut [Host]) -> bool {
    let mut any = false;
    while let Some(event) = core.subsystem.next_event() {
        any = true;
        let queue = match &event {
            Event::Completed(completion) => completion.tag.queue,
            Event::Close(queue) => *queue,
            Event::Abort { .. } | Event::Complaint(..) => continue,
        };
        let connections = hosts.iter_mut().flat_map(|host| [&mut host.admin, &mut host.io]);
        let of = connections.into_iter().find(|connection| connection.queue() == Some(queue));
        match (event, of) {
            (Event::Completed(completion), Some(connection)) => connection.complete(core, completion),
            (Event::Close(_), Some(connection)) => connection.end(core),
            _ => {}
        }
    }
    any
}

/// Gives memory to connections that wait for it, as the listener does.
pub fn give_memory(core: &mut Core, hosts: &mut [Host]) {
    for of in Use::ALL {
        core.memory(of).budget.note_returned();
        let line: Vec<usize> = core.memory(of).line.drain(..).collect();
        for key in line {
            let connections = hosts.iter_mut().flat_map(|host| [&mut host.admin, &mut host.io]);
            let mut connections = connections.zip(0..);
            let Some((connection, _)) = connections.find(|(_, index)| *index == key) else { continue };
            if connection.retry(core, of) != Ok(false) {
                core.memory(of).line.push_back(key);
            }
        }
    }
}

impl Host {
    /// Connects the host of this number, which is also its place among the hosts. It may have connections that have
    /// ended.
    pub fn connect(core: &mut Core, number: usize) -> Host {
        let limits = Limits { data_max_bytes: DATA_BYTES, part_bytes: PART_BYTES, ..Limits::default() };
        let new = |queue, core: &Core| Connection::new(2 * number + queue, limits, address(), core);
        let (mut admin, mut io) = (new(0, core), new(1, core));
        let letter = b'1' + number as u8;
        admin.receive(core, &ic_req());
        admin.receive(core, &connect_as(letter, 1, 0, 31, [0xFF, 0xFF]));
        let answers = admin.output().take_all();
        let response = *units(&answers).last().expect("an answer to Connect");
        let controller = [response[8], response[9]];
        admin.receive(core, &set_cc(2, "61004600"));
        io.receive(core, &ic_req());
        io.receive(core, &connect_as(letter, 1, 1, QUEUE_ENTRIES_Z, controller));
        admin.output().take_all();
        io.output().take_all();
        Host {
            number,
            admin,
            io,
            outbox: Vec::new(),
            under_way: BTreeMap::new(),
            asked: Vec::new(),
            next_cid: 0,
            answer: None,
            alterations: Vec::new(),
        }
    }

    /// Is its queue open?
    pub fn is_open(&self) -> bool {
        self.io.queue().is_some() && self.admin.queue().is_some()
    }

    /// Ends both connections.
    pub fn end(&mut self, core: &mut Core, oracle: &mut Oracle) {
        self.io.abandon(core);
        self.admin.abandon(core);
        (self.outbox, self.asked) = (Vec::new(), Vec::new());
        self.under_way.clear();
        oracle.queue_ended(self.number);
    }

    pub fn tick(&mut self, core: &mut Core) {
        self.io.tick(core);
        self.admin.tick(core);
    }

    /// Moves bytes in both directions; `true` if any moved.
    pub fn move_bytes(&mut self, core: &mut Core, oracle: &mut Oracle) -> bool {
        let sent = self.io.receive(core, &self.outbox);
        self.outbox.drain(..sent);
        let came = self.io.output().take_all();
        units(&came).into_iter().for_each(|unit| self.take(unit, oracle));
        self.admin.output().take_all();
        sent + came.len() > 0
    }

    /// Sends a command with `data_bytes` bytes of the value `number` from byte `at` on. An alteration may turn it into
    /// another command.
    pub fn send(&mut self, oracle: &mut Oracle, command: Command, data_bytes: u32, is_prompt: bool) {
        // A queue of n entries takes n - 1 commands.
        if !self.is_open() || self.under_way.len() >= usize::from(QUEUE_ENTRIES_Z) {
            return;
        }
        self.next_cid = self.next_cid.wrapping_add(1);
        let cid = self.next_cid;
        let mut sqe = command.encode(cid, 1);
        let is_stored = matches!(command, Command::Store(_) | Command::StorePart(_));
        let in_capsule = is_stored && data_bytes <= CAPSULE_BYTES;
        let (kind, address) =
            if in_capsule { (SglDescriptor::DATA_BLOCK_OFFSET, 0) } else { (SglDescriptor::TRANSPORT, 0) };
        sqe.flags |= 0x40;
        sqe.set_sgl(SglDescriptor { kind, ..SglDescriptor::data_block(address, data_bytes) });
        let capsule_bytes = if in_capsule { data_bytes } else { 0 };
        let bytes = (UNIT_BYTES as u32 + capsule_bytes).to_le_bytes();
        let head = [4, 0, UNIT_BYTES as u8, if in_capsule { UNIT_BYTES as u8 } else { 0 }];
        let unit = [&head[..], &bytes, sqe.as_bytes()].concat();
        let (unit, is_lie) = self.altered(unit);
        let entry = Sqe::from_bytes(unit[8..].try_into().expect("64 bytes"));
        let command = Command::decode(&entry).ok();
        let (number, at) = self.number_of(oracle, command.as_ref());
        let number = number.filter(|_| !is_lie);
        self.note(oracle, cid, command.as_ref(), number);
        let version = command.as_ref().and_then(looked_up).and_then(|key| oracle.version(key));
        self.outbox.extend_from_slice(&unit);
        self.outbox.extend(content(number, at, capsule_bytes as usize));
        let came = Vec::new();
        self.under_way.insert(cid, UnderWay { command, number, at, version, came, is_prompt });
    }

    /// The unit with the pending alterations; its opcode and identifier stay. `true`: its bytes may belong to another
    /// part of the value than the unit says.
    fn altered(&mut self, unit: Vec<u8>) -> (Vec<u8>, bool) {
        let mut altered = unit.clone();
        let places = (0..8).chain([9]).chain(12..UNIT_BYTES).collect::<Vec<usize>>();
        let mut is_lie = false;
        for (at, exchanged) in self.alterations.drain(..) {
            let at = places[at % places.len()];
            altered[at] ^= exchanged;
            // The unit's header, and the data pointer.
            is_lie |= at < 8 || (8 + 24..8 + 40).contains(&at);
        }
        (altered, is_lie)
    }

    /// Which value a command's bytes are of, and where they begin.
    fn number_of(&mut self, oracle: &mut Oracle, command: Option<&Command>) -> (Option<u32>, u32) {
        match command {
            Some(Command::Store(_)) => (Some(oracle.new_number()), 0),
            Some(Command::StorePart(part)) => {
                let is_of_stream = |other: &UnderWay| {
                    stream_of(other.command.as_ref())
                        .is_some_and(|stream| [part.stream, ALL_STREAMS].contains(&stream))
                };
                let is_alone = !self.under_way.values().any(is_of_stream);
                (oracle.part_sent(self.number, part, is_alone), part.at)
            }
            _ => (None, 0),
        }
    }

    /// Notes the change that a command may make.
    fn note(&self, oracle: &mut Oracle, cid: u16, command: Option<&Command>, number: Option<u32>) {
        let id = (self.number, cid);
        match command {
            Some(Command::Store(store)) => {
                oracle.submitted(id, store.key, Some(Value { number, bytes: store.value_bytes }));
            }
            Some(Command::StorePart(StorePart { store, at, bytes, .. }))
                if at.checked_add(*bytes) == Some(store.value_bytes) =>
            {
                oracle.submitted(id, store.key, Some(Value { number, bytes: store.value_bytes }));
            }
            Some(Command::Delete { key, .. }) => oracle.submitted(id, *key, None),
            _ => {}
        }
    }

    fn take(&mut self, unit: &[u8], oracle: &mut Oracle) {
        let transfer = tcp::Transfer::read_from_prefix(unit).map(|(transfer, _)| transfer);
        match (unit[0], transfer) {
            (kind::R2T, Ok(ask)) => {
                let (cid, tag, at) = (ask.cid.get(), ask.tag.get(), ask.offset.get());
                self.asked.push(Asked { cid, tag, at, end: at + ask.length.get() });
                if self.under_way.get(&cid).is_some_and(|command| command.is_prompt) {
                    self.send_data(self.asked.len() - 1, u32::MAX);
                }
            }
            (kind::C2H_DATA, Ok(data)) => {
                let bytes = &unit[usize::from(unit[3])..];
                let command = self.under_way.get_mut(&data.cid.get()).expect("data of a command");
                assert_eq!(
                    data.offset.get() as usize,
                    command.came.len(),
                    "a gap between two pieces of data"
                );
                command.came.extend_from_slice(bytes);
            }
            (kind::CAPSULE_RESP, _) => {
                let response = tcp::ResponseCapsule::read_from_bytes(unit).expect("a unit of its length");
                let Cqe { cid, dw0, .. } = response.cqe;
                self.asked.retain(|asked| asked.cid != cid.get());
                self.answered(cid.get(), response.cqe.status(), dw0.get(), oracle);
            }
            _ => {}
        }
    }

    fn answered(&mut self, cid: u16, status: Status, dw0: u32, oracle: &mut Oracle) {
        let UnderWay { command, version, came, .. } =
            self.under_way.remove(&cid).expect("one answer to each command");
        let is_success = status.is_success();
        oracle.answered((self.number, cid), is_success);
        match &command {
            None => assert!(!is_success, "an entry that is none has succeeded"),
            Some(Command::StorePart(part)) => oracle.part_answered(self.number, part, is_success),
            Some(Command::Retrieve { key, .. }) if is_success => oracle.found(*key, version, dw0, 0, &came),
            Some(Command::RetrievePart(part)) if is_success => {
                let RetrievePart { key, at, stream, .. } = *part;
                // Of a stream: perhaps an older one.
                let version = version.filter(|_| stream == 0 || at == 0);
                oracle.found(key, version, dw0, at, &came);
                oracle.stream_ended(self.number, stream);
            }
            Some(Command::Retrieve { key, .. } | Command::RetrievePart(RetrievePart { key, .. }))
                if status == Status::KEY_NOT_FOUND =>
            {
                oracle.missing(*key, version);
            }
            Some(Command::Discard { stream: ALL_STREAMS }) if is_success => {
                (0..ALL_STREAMS).for_each(|stream| oracle.stream_ended(self.number, stream));
            }
            Some(Command::Discard { stream }) if is_success => oracle.stream_ended(self.number, *stream),
            _ => {}
        }
        self.answer = Some(Answer { status, dw0, bytes: came });
    }

    /// Sends up to `bytes` of the data that the drive has requested.
    pub fn send_data(&mut self, index: usize, bytes: u32) {
        if self.asked.is_empty() {
            return;
        }
        let index = index % self.asked.len();
        let Asked { cid, tag, at, end } = self.asked[index];
        let until = at + bytes.min(end - at);
        let (number, from) = self.under_way.get(&cid).map_or((None, 0), |of| (of.number, of.at));
        for at in (at..until).step_by(DATA_BYTES as usize) {
            let piece = content(number, from + at, DATA_BYTES.min(until - at) as usize);
            let is_last = at + piece.len() as u32 == end;
            self.put_data(cid, tag, at, piece.len() as u32, &piece, is_last);
        }
        if until == end {
            self.asked.remove(index);
        } else {
            self.asked[index].at = until;
        }
    }

    /// Sends data of which offset and length are wrong by these numbers.
    pub fn send_wrong_data(&mut self, index: usize, offset: u32, length: u32) {
        if (offset, length) == (0, 0) {
            return self.send_data(index, u32::MAX);
        }
        let Some(asked) = self.asked.get(index % self.asked.len().max(1)) else { return };
        let Asked { cid, tag, at, end } = *asked;
        let bytes = (end - at).min(4096);
        let named = bytes.wrapping_add(length);
        let piece = content(None, 0, bytes as usize);
        self.put_data(cid, tag, at.wrapping_add(offset), named, &piece, false);
    }

    fn put_data(&mut self, cid: u16, tag: u16, at: u32, named: u32, piece: &[u8], is_last: bool) {
        let head = [kind::H2C_DATA, if is_last { flag::LAST } else { 0 }, 24, 24];
        let bytes = (24 + piece.len() as u32).to_le_bytes();
        let fields = [&cid.to_le_bytes()[..], &tag.to_le_bytes(), &at.to_le_bytes(), &named.to_le_bytes()];
        self.outbox.extend([&head[..], &bytes, &fields.concat(), &[0; 4], piece].concat());
    }
}

fn looked_up(command: &Command) -> Option<Key> {
    match command {
        Command::Retrieve { key, .. } | Command::RetrievePart(RetrievePart { key, .. }) => Some(*key),
        _ => None,
    }
}

fn stream_of(command: Option<&Command>) -> Option<u16> {
    match command {
        Some(Command::StorePart(part)) => Some(part.stream),
        Some(Command::RetrievePart(part)) => Some(part.stream),
        Some(Command::Discard { stream }) => Some(*stream),
        _ => None,
    }
}

/// The keys in the answer to a List.
pub fn keys_of(answer: &Answer) -> Vec<Key> {
    let keys = ListReader::new(&answer.bytes).and_then(Iterator::collect);
    keys.expect("a list as the specification has it")
}
