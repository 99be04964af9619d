//! One NVMe/TCP connection, as a state machine over bytes: what a host sent goes in, in pieces of any size,
//! and what it is to be sent comes out. No socket, no clock.
//!
//! ```text
//!   ICReq ─► ICResp ─► Connect ─► a queue of a controller
//!
//!   a command's slot      in-capsule data                                    answer
//!   free ──────► receiving ────────────────────► at the subsystem ─────────────► free
//!          │                                      ▲        ▲         C2HData, CapsuleResp
//!          ├──► waits for memory ─► R2T, H2CData ─┘        │
//!          └──► waits for memory ──────────────────────────┘  an answer's room
//! ```
//!
//! What breaks the protocol ends the connection with a C2HTermReq that names the field; what breaks a command
//! is that command's status. A data digest that is wrong fails its command as a transient transport error.
//! Nothing of a command reaches the subsystem before its last byte is here.
//!
//! Bytes become units in `framing`, answers become bytes in `answers`; what a command goes through is here.

mod answers;
mod framing;

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_auth::TlsPsk;
use kvdrive_spec::fabrics::{ConnectData, Fabrics, fctype, fctype_of, invalid_parameter, nqn};
use kvdrive_spec::tcp::{self, DIGEST_BYTES, Header, digests, fatal, flag, kind};
use kvdrive_spec::{Cqe, Sqe, Status, auth, opcode};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::digest::{DataDigest, Reading};
use super::output::Output;
use super::{Core, Use};
use crate::buffer::Buffer;
use crate::namespace::{QueueId, Tag};
use crate::subsystem::Address;
use crate::subsystem::transfer::{Transfer, transfer};

/// Longest header, with its digest.
const HEADER_MAX_BYTES: usize = 128 + DIGEST_BYTES;
/// A host that has more than this to read is not read from.
const OUTPUT_MAX_BYTES: usize = 1 << 20;
/// From the first byte to Connect, at most.
const HANDSHAKE_MS: u64 = 10_000;
/// Between two bytes of something begun, at most.
const STALL_MS: u64 = 30_000;
/// Size of a queue that is not connected yet: there is one command, Connect.
const UNCONNECTED_ENTRIES: u32 = 2;

/// Identifier of a slot without a command; those of commands have 16 bits.
const NO_CID: u32 = u32::MAX;

/// What connections are offered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// MAXH2CDATA: most data in one H2CData, bytes; at least 4096, a multiple of 4.
    pub data_max_bytes: u32,
    /// Which digests may be used ([`digests`]).
    pub digests: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { data_max_bytes: 256 << 10, digests: digests::HEADER | digests::DATA }
    }
}

/// Why a connection has to end: FES and FEI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fatal {
    reason: u16,
    information: u32,
}

const fn fatal(reason: u16, information: u32) -> Fatal {
    Fatal { reason, information }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// ICReq is to come.
    Initializing,
    /// Commands come.
    Open,
    /// What is in the output is the last.
    Ending,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A header.
    Header,
    /// Bytes between the header and the data.
    Padding { left: u32, then: Body },
    /// Data.
    Data(Body),
    /// The digest of data.
    Digest { body: Body, got: usize, bytes: [u8; DIGEST_BYTES] },
}

/// The data of a unit: whose, and how much is to come.
#[derive(Clone, Copy, Debug)]
struct Body {
    /// `None`: nobody wants them.
    slot: Option<u16>,
    /// Where the next byte goes within the command's data.
    at: u32,
    left: u32,
    has_digest: bool,
    digest: DataDigest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Free,
    /// In-capsule data come, as soon as there is memory.
    Receiving,
    /// Memory is missing.
    WaitsForMemory,
    /// R2T is sent; so many bytes have come.
    FromHost {
        received: u32,
    },
    AtSubsystem,
}

struct Slot {
    step: Step,
    cid: u16,
    sqe: Sqe,
    transfer: Transfer,
    buffer: Option<Buffer>,
    /// Some of its data had a wrong digest.
    spoilt: bool,
    /// When it went to the subsystem, ns.
    began_ns: u64,
}

/// A connection.
pub struct Connection {
    /// How those in line for memory are named.
    key: usize,
    limits: Limits,
    reached_at: Rc<Address>,
    /// By what its host came, if it speaks TLS.
    psk: Option<TlsPsk>,
    /// Why it came to nothing, until somebody has been told.
    complaint: Option<String>,
    state: State,
    digests: u8,
    /// Data to the host begin at multiples of this.
    alignment_bytes: usize,
    reading: Reading,

    header: [u8; HEADER_MAX_BYTES],
    filled: usize,
    stage: Stage,

    queue: Option<QueueId>,
    is_admin: bool,
    /// Its host has to authenticate first.
    is_locked: bool,
    entries: u32,
    flow_control: bool,
    /// Commands that have come.
    head: u32,
    slots: Vec<Slot>,
    /// Identifiers of the slots' commands, close together, as every command looks at all of them.
    cids: Vec<u32>,
    free: Vec<u16>,
    /// Slots that wait for memory, in their order, for each [`Use`]. Who has one is in line.
    waiting: [VecDeque<u16>; 2],

    output: Output,
    /// The next digest is to be wrong.
    spoils_digest: bool,
    opened_ms: u64,
    heard_ms: u64,
}

impl Connection {
    /// A connection that was accepted at `reached_at`.
    pub fn new(key: usize, limits: Limits, reached_at: Rc<Address>, now_ms: u64) -> Connection {
        Connection {
            key,
            limits,
            reached_at,
            psk: None,
            complaint: None,
            state: State::Initializing,
            digests: 0,
            alignment_bytes: 4,
            reading: Reading::Unknown,
            header: [0; HEADER_MAX_BYTES],
            filled: 0,
            stage: Stage::Header,
            queue: None,
            is_admin: true,
            is_locked: false,
            entries: UNCONNECTED_ENTRIES,
            flow_control: true,
            head: 0,
            slots: Vec::new(),
            cids: Vec::new(),
            free: Vec::new(),
            waiting: Default::default(),
            output: Output::default(),
            spoils_digest: false,
            opened_ms: now_ms,
            heard_ms: now_ms,
        }
    }

    /// Its bytes come and go by TLS, with this PSK: whoever connects has to be its host, and mean its subsystem.
    pub fn secured_by(&mut self, psk: TlsPsk) {
        self.psk = Some(psk);
    }

    /// Keeps why it comes to nothing, for whoever runs the server; the first reason stays.
    pub fn complain(&mut self, reason: String) {
        self.complaint.get_or_insert(reason);
    }

    /// Why it came to nothing, once.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// The opcode of an I/O command that is at the subsystem, and since when, ns.
    pub fn at_subsystem(&self, slot: u16) -> Option<(u8, u64)> {
        let command = self.slots.get(usize::from(slot)).filter(|slot| slot.step == Step::AtSubsystem)?;
        (!self.is_admin).then_some((command.sqe.opcode, command.began_ns))
    }

    /// The queue it is, once it is one.
    pub fn queue(&self) -> Option<QueueId> {
        self.queue
    }

    /// What is to be sent.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// So many bytes of the output are sent.
    pub fn sent(&mut self, bytes: usize, now_ms: u64) {
        self.heard_ms = now_ms;
        self.output.advance(bytes);
    }

    /// Can it go on with bytes of its host? Not while memory is missing for what came, or while the host does
    /// not read.
    pub fn wants_input(&self) -> bool {
        self.state != State::Ending && self.output.bytes() < OUTPUT_MAX_BYTES && !self.is_stalled()
    }

    /// Is it over, once its output is sent?
    pub fn is_ending(&self) -> bool {
        self.state == State::Ending
    }

    fn is_stalled(&self) -> bool {
        match self.stage {
            Stage::Data(Body { slot: Some(slot), .. }) => self.slots[usize::from(slot)].buffer.is_none(),
            _ => false,
        }
    }

    /// Takes bytes of the host; returns how many. The others are to be brought again when
    /// [`Connection::wants_input`].
    pub fn receive(&mut self, core: &mut Core, bytes: &[u8]) -> usize {
        self.heard_ms = core.now_ms;
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Ending && !self.is_stalled() {
            if let Err(reason) = self.step(core, &mut rest) {
                self.terminate(core, reason);
            }
        }
        // Whatever comes behind the end is not looked at.
        if self.state == State::Ending { bytes.len() } else { bytes.len() - rest.len() }
    }

    /// A header is whole.
    fn begin_unit(&mut self, core: &mut Core) -> Result<(), Fatal> {
        match self.common().kind {
            kind::IC_REQ => self.initialize(),
            kind::CAPSULE_CMD => self.begin_command(core),
            kind::H2C_DATA => self.begin_data(),
            // The host has had enough of us. What follows is not looked at.
            _ => {
                self.end(core);
                Ok(())
            }
        }
    }

    fn initialize(&mut self) -> Result<(), Fatal> {
        const AT_FORMAT: u32 = 8;
        const AT_ALIGNMENT: u32 = 10;
        const AT_BYTES: u32 = 4;
        let Ok(request) = tcp::InitializeRequest::read_from_bytes(&self.header[..128]) else {
            return Err(fatal(fatal::INVALID_HEADER, AT_BYTES));
        };
        if request.header.bytes.get() != 128 {
            return Err(fatal(fatal::INVALID_HEADER, AT_BYTES));
        }
        if request.format_version.get() != tcp::FORMAT_VERSION {
            return Err(fatal(fatal::UNSUPPORTED, AT_FORMAT));
        }
        // 31 is the largest there is: 128 bytes.
        if request.data_alignment_z > 31 {
            return Err(fatal(fatal::INVALID_HEADER, AT_ALIGNMENT));
        }
        self.digests = request.digests & self.limits.digests;
        self.alignment_bytes = (usize::from(request.data_alignment_z) + 1) * 4;
        let mut response = tcp::InitializeResponse::new_zeroed();
        response.header = Header::new(kind::IC_RESP, 128);
        response.digests = self.digests;
        response.data_max_bytes = U32::new(self.limits.data_max_bytes);
        self.output.put(response.as_bytes());
        self.state = State::Open;
        Ok(())
    }

    fn begin_command(&mut self, core: &mut Core) -> Result<(), Fatal> {
        let (padding, data_bytes, has_digest) = self.extent(self.in_capsule_max(core))?;
        let mut sqe = Sqe::from_bytes([0; Sqe::BYTES]);
        sqe.as_mut_bytes().copy_from_slice(&self.header[8..8 + Sqe::BYTES]);
        self.head = self.head.wrapping_add(1);
        let receiver = self.admit(core, sqe, data_bytes)?;
        let body =
            Body { slot: receiver, at: 0, left: data_bytes, has_digest, digest: DataDigest::default() };
        if data_bytes == 0 {
            self.stage = Stage::Header;
        } else if padding > 0 {
            self.stage = Stage::Padding { left: padding, then: body };
        } else {
            self.stage = Stage::Data(body);
        }
        Ok(())
    }

    /// Takes a command; returns the slot that in-capsule data are for, if they are for one. What is refused is
    /// answered here.
    fn admit(&mut self, core: &mut Core, sqe: Sqe, data_bytes: u32) -> Result<Option<u16>, Fatal> {
        let cid = sqe.cid.get();
        if self.cids.contains(&u32::from(cid)) {
            self.respond(Cqe::new(cid, Status::CID_CONFLICT));
            return Ok(None);
        }
        let is_connect = sqe.opcode == opcode::FABRICS && fctype_of(&sqe) == fctype::CONNECT;
        if self.queue.is_none() && !is_connect {
            self.respond(Cqe::new(cid, Status::COMMAND_SEQUENCE_ERROR));
            return Ok(None);
        }
        if self.is_locked && !self.may_pass(core, &sqe) {
            self.respond(Cqe::new(cid, Status::AUTHENTICATION_REQUIRED));
            return Ok(None);
        }
        let limit_bytes = core.subsystem.options().transfer_max_bytes;
        let transfer = match transfer(&sqe, limit_bytes) {
            Ok(Transfer::InCapsule { bytes }) if bytes != data_bytes => Err(Status::SGL_LENGTH_INVALID),
            other => other,
        };
        let transfer = match transfer {
            Ok(transfer) => transfer,
            Err(status) => {
                self.respond(Cqe::new(cid, status));
                return Ok(None);
            }
        };
        let slot = self.new_slot(cid, sqe, transfer)?;
        match transfer {
            Transfer::None => {
                self.slots[usize::from(slot)].buffer = Some(Buffer::empty());
                self.submit(core, slot);
                Ok(None)
            }
            Transfer::InCapsule { .. } => {
                self.slots[usize::from(slot)].step = Step::Receiving;
                self.ask_for_memory(core, slot);
                Ok(Some(slot))
            }
            Transfer::FromHost { .. } | Transfer::ToHost { .. } => {
                self.slots[usize::from(slot)].step = Step::WaitsForMemory;
                self.ask_for_memory(core, slot);
                Ok(None)
            }
        }
    }

    /// May a command of a host that had to authenticate pass? Else it gets no memory.
    fn may_pass(&mut self, core: &Core, sqe: &Sqe) -> bool {
        self.is_locked = self.queue.is_some_and(|queue| core.subsystem.is_locked(queue));
        let authenticates = [fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
        !self.is_locked || sqe.opcode == opcode::FABRICS && authenticates.contains(&fctype_of(sqe))
    }

    fn new_slot(&mut self, cid: u16, sqe: Sqe, transfer: Transfer) -> Result<u16, Fatal> {
        const AT_COMMAND: u32 = 8;
        let new =
            Slot { step: Step::AtSubsystem, cid, sqe, transfer, buffer: None, spoilt: false, began_ns: 0 };
        if let Some(slot) = self.free.pop() {
            self.slots[usize::from(slot)] = new;
            self.cids[usize::from(slot)] = u32::from(cid);
            return Ok(slot);
        }
        // More commands than the queue holds: the host has lost count.
        if self.slots.len() as u32 >= self.entries.min(u32::from(u16::MAX)) {
            return Err(fatal(fatal::SEQUENCE, AT_COMMAND));
        }
        self.slots.push(new);
        self.cids.push(u32::from(cid));
        Ok(self.slots.len() as u16 - 1)
    }

    /// Takes memory for a slot, or gets it in line.
    fn ask_for_memory(&mut self, core: &mut Core, slot: u16) {
        let transfer = self.slots[usize::from(slot)].transfer;
        let of = use_of(transfer);
        let memory = core.memory(of);
        let buffer =
            if memory.line.is_empty() { memory.budget.take(transfer.bytes() as usize) } else { None };
        match buffer {
            Some(buffer) => self.go_on(core, slot, buffer),
            None => {
                let waiting = &mut self.waiting[of as usize];
                if waiting.is_empty() {
                    memory.line.push_back(self.key);
                }
                waiting.push_back(slot);
            }
        }
    }

    /// Its turn has come, and it is out of the line: the first of its commands that waits gets memory, and if
    /// there is another, that one stands behind all others. `false` while there is not enough; then it is to be
    /// put back to where it stood.
    pub fn retry(&mut self, core: &mut Core, of: Use) -> bool {
        let Some(slot) = self.waiting[of as usize].front().copied() else { return true };
        let bytes = self.slots[usize::from(slot)].transfer.bytes() as usize;
        let Some(buffer) = core.memory(of).budget.take(bytes) else { return false };
        self.waiting[of as usize].pop_front();
        if !self.waiting[of as usize].is_empty() {
            core.memory(of).line.push_back(self.key);
        }
        self.go_on(core, slot, buffer);
        true
    }

    /// A slot has its memory.
    fn go_on(&mut self, core: &mut Core, slot: u16, buffer: Buffer) {
        let command = &mut self.slots[usize::from(slot)];
        command.buffer = Some(buffer);
        match command.transfer {
            Transfer::FromHost { bytes } => {
                command.step = Step::FromHost { received: 0 };
                let cid = command.cid;
                let mut request = tcp::Transfer::new_zeroed();
                request.header = Header::new(kind::R2T, 24);
                request.cid = U16::new(cid);
                request.tag = U16::new(slot);
                request.length = U32::new(bytes);
                self.put(request.as_mut_bytes(), 0, None);
            }
            Transfer::ToHost { .. } => self.submit(core, slot),
            // Its data come with the next bytes.
            Transfer::InCapsule { .. } | Transfer::None => {}
        }
    }

    fn begin_data(&mut self) -> Result<(), Fatal> {
        const AT_FLAGS: u32 = 1;
        const AT_BYTES: u32 = 4;
        const AT_CID: u32 = 8;
        const AT_TAG: u32 = 10;
        const AT_OFFSET: u32 = 12;
        const AT_LENGTH: u32 = 16;
        let (padding, data_bytes, has_digest) = self.extent(self.limits.data_max_bytes)?;
        let Ok(data) = tcp::Transfer::read_from_bytes(&self.header[..24]) else {
            return Err(fatal(fatal::INVALID_HEADER, AT_BYTES));
        };
        let slot = data.tag.get();
        let Some(Slot { step: Step::FromHost { received }, cid, transfer, .. }) =
            self.slots.get(usize::from(slot))
        else {
            return Err(fatal(fatal::INVALID_HEADER, AT_TAG));
        };
        if data.cid.get() != *cid {
            return Err(fatal(fatal::INVALID_HEADER, AT_CID));
        }
        if data.length.get() != data_bytes || data_bytes == 0 {
            return Err(fatal(fatal::INVALID_HEADER, AT_LENGTH));
        }
        if data.offset.get() != *received {
            return Err(fatal(fatal::DATA_OUT_OF_RANGE, AT_OFFSET));
        }
        let left = transfer.bytes() - received;
        if data_bytes > left {
            return Err(fatal(fatal::DATA_OUT_OF_RANGE, AT_LENGTH));
        }
        // That the last one says so is not insisted on; that another one does would lose data.
        if data.header.flags & flag::LAST != 0 && data_bytes < left {
            return Err(fatal(fatal::INVALID_HEADER, AT_FLAGS));
        }
        let body = Body {
            slot: Some(slot),
            at: *received,
            left: data_bytes,
            has_digest,
            digest: DataDigest::default(),
        };
        self.stage =
            if padding > 0 { Stage::Padding { left: padding, then: body } } else { Stage::Data(body) };
        Ok(())
    }

    /// The data of a unit are here.
    fn end_unit(&mut self, core: &mut Core, body: Body) {
        self.stage = Stage::Header;
        let Some(slot) = body.slot else { return };
        let command = &mut self.slots[usize::from(slot)];
        if let Step::FromHost { received } = &mut command.step {
            *received = body.at;
        }
        if body.at < command.transfer.bytes() {
            return;
        }
        if command.spoilt {
            self.answer(slot, Status::TRANSIENT_TRANSPORT_ERROR, 0, 0);
        } else {
            self.submit(core, slot);
        }
    }

    /// A command is whole.
    fn submit(&mut self, core: &mut Core, slot: u16) {
        let command = &mut self.slots[usize::from(slot)];
        command.step = Step::AtSubsystem;
        command.began_ns = core.now_ns;
        let buffer = command.buffer.take().unwrap_or(Buffer::empty());
        match self.queue {
            Some(queue) => {
                let sqe = command.sqe;
                core.subsystem.execute(Tag { queue, slot }, &sqe, buffer, core.now_ms);
            }
            None => self.connect(core, slot, &buffer),
        }
    }

    fn connect(&mut self, core: &mut Core, slot: u16, data: &[u8]) {
        let command = Fabrics::decode(&self.slots[usize::from(slot)].sqe);
        let Ok(Fabrics::Connect(connect)) = command else {
            self.answer(slot, Status::COMMAND_SEQUENCE_ERROR, 0, 0);
            return;
        };
        if let Some((at, complaint)) = self.psk.as_ref().and_then(|psk| others_psk(psk, data)) {
            self.complain(complaint);
            let dw0 = invalid_parameter(at, true);
            self.answer(slot, Status::CONNECT_INVALID_PARAMETERS, dw0, 0);
            self.end(core);
            return;
        }
        match core.subsystem.connect(&connect, data, &self.reached_at, core.now_ms) {
            Ok(connected) => {
                self.queue = Some(connected.queue);
                self.is_admin = connected.is_admin;
                self.is_locked = connected.is_locked;
                self.entries = connected.entries;
                self.flow_control = connected.flow_control;
                let required = if connected.is_locked { auth::REQUIRED } else { 0 };
                self.answer(slot, Status::SUCCESS, u32::from(connected.controller_id) | required, 0);
            }
            Err(refused) => self.answer(slot, refused.status, refused.dw0, 0),
        }
    }

    /// Ends the connection: its queue, its commands, its memory. What was to be sent still is.
    pub fn end(&mut self, core: &mut Core) {
        self.state = State::Ending;
        self.stage = Stage::Header;
        self.slots.clear();
        self.cids.clear();
        self.free.clear();
        for of in Use::ALL {
            if !std::mem::take(&mut self.waiting[of as usize]).is_empty() {
                core.memory(of).line.retain(|key| *key != self.key);
            }
        }
        if let Some(queue) = self.queue.take() {
            core.subsystem.disconnect(queue);
        }
    }

    /// Ends it, and nothing more is sent: nobody reads.
    pub fn abandon(&mut self, core: &mut Core) {
        self.end(core);
        self.output.clear();
    }

    /// Ends a connection that does not get on: that has not become a queue in time, or began something and does
    /// not go on with it.
    pub fn tick(&mut self, core: &mut Core) {
        let handshake_late = self.queue.is_none() && core.now_ms > self.opened_ms + HANDSHAKE_MS;
        let is_inside = self.filled > 0
            || !matches!(self.stage, Stage::Header) && !self.is_stalled()
            || self.slots.iter().any(|slot| matches!(slot.step, Step::FromHost { .. }))
            || !self.output.is_empty();
        if handshake_late || is_inside && core.now_ms > self.heard_ms + STALL_MS {
            self.abandon(core);
        }
    }
}

/// Where the data of a Connect name somebody else than the PSK does by which their host came, and in words.
fn others_psk(psk: &TlsPsk, data: &[u8]) -> Option<(u16, String)> {
    let (data, _) = ConnectData::read_from_prefix(data).ok()?;
    let named = [
        ("host", ConnectData::HOST_NQN_AT, nqn(&data.host_nqn), &psk.host_nqn),
        ("subsystem", ConnectData::SUBSYSTEM_NQN_AT, nqn(&data.subsystem_nqn), &psk.subsystem_nqn),
    ];
    named.into_iter().find_map(|(what, at, name, own)| {
        let name = name.filter(|name| name != own)?;
        Some((at, format!("its PSK is of {what} {own:?}, and it connects as {what} {name:?}")))
    })
}

/// Whose memory a transfer needs.
fn use_of(transfer: Transfer) -> Use {
    if matches!(transfer, Transfer::InCapsule { .. }) { Use::Capsule } else { Use::Transfer }
}
