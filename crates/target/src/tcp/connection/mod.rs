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
//! Bytes become units in `framing`, a unit's command goes through `command`, answers become bytes in `answers`;
//! what holds a connection together is here.

mod answers;
mod command;
mod framing;

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_auth::TlsPsk;
use kvdrive_spec::tcp::{self, DIGEST_BYTES, Header, digests, fatal, kind};
use kvdrive_spec::{Sqe, Status};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::digest::{DataDigest, Reading};
use super::output::Output;
use super::{Core, Use};
use crate::buffer::Buffer;
use crate::namespace::QueueId;
use crate::subsystem::Address;
use crate::subsystem::transfer::Transfer;

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
