//! One NVMe/TCP connection as a state machine over bytes: received bytes go in, in pieces of any size, and
//! bytes to send come out. No socket, no clock.
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
//! A violation of the protocol ends the connection with a C2HTermReq that names the field; an error in a
//! command is that command's status. A wrong data digest fails its command as a transient transport error. A
//! command reaches the subsystem only after its last byte has arrived.
//!
//! A host must keep a minimum rate while it has something unfinished: `progress`, and `begun` for values in parts.
//!
//! `framing` turns bytes into units, `command` handles a unit's command, `parts` one with a large value, `answers` turns
//! answers into bytes;
//! this file has the state that they share.

mod answers;
mod begun;
mod command;
mod framing;
mod parts;
mod progress;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use kvdrive_auth::TlsPsk;
use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, fatal, kind};
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Sqe, Status};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::digest::{DataDigest, Reading};
use super::output::Output;
use crate::buffer::{Buffer, Share, Wait};
use crate::namespace::QueueId;
use crate::shared::{Core, QueuesOfHost, SharedTurn, Shares, Use};
use crate::subsystem::Address;
use crate::subsystem::transfer::Transfer;
use begun::Begun;
pub use progress::LeastRate;
use progress::Progress;

/// Longest header, with its digest.
const HEADER_MAX_BYTES: usize = 128 + DIGEST_BYTES;
/// When this many bytes wait for a host to read them, the connection stops reading from that host.
const OUTPUT_MAX_BYTES: usize = 1 << 20;
/// The same limit for bytes that are not data; the memory that hosts share does not contain them. Enough for more
/// responses than a queue has entries.
const HEADS_MAX_BYTES: usize = 32 << 10;
/// Limit from the first byte to Connect, ms.
const HANDSHAKE_MS: u64 = 10_000;
/// Limit from R2T to the last byte of a command that has the memory of which hosts take turns, while others wait, ms.
const TURN_MS: u64 = 5_000;
/// Entries of a queue that is not connected yet: it takes one command, Connect.
const UNCONNECTED_ENTRIES: u32 = 2;

/// Identifier of a free slot; identifiers of commands have 16 bits.
const NO_CID: u32 = u32::MAX;

/// Limits of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// MAXH2CDATA: most data in one H2CData, bytes; at least 4096, a multiple of 4.
    pub data_max_bytes: u32,
    /// Bytes of a large value that move at once, and memory for them: at least 4096, a multiple of 4, at most
    /// [`WHOLE_MAX_BYTES`](crate::subsystem::transfer::WHOLE_MAX_BYTES).
    pub part_bytes: u32,
    /// Digests that may be used ([`digests`]).
    pub digests: u8,
    /// Connections at one time. If the limit is reached, a new connection replaces the oldest that has not
    /// become a queue; if all are queues, the new one is closed at once.
    pub connections_max: usize,
    /// The minimum rate for a host that has something unfinished.
    pub least: LeastRate,
}

impl Default for Limits {
    fn default() -> Limits {
        let digests = digests::HEADER | digests::DATA;
        let least = LeastRate::default();
        Limits { data_max_bytes: 256 << 10, part_bytes: 1 << 20, digests, connections_max: 1 << 16, least }
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
enum ConnectionState {
    /// ICReq is expected.
    Initializing,
    /// Commands are expected.
    Open,
    /// The output is sent to its end, and nothing more.
    Ending,
}

/// The next part of the input.
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

/// The data of a unit: the command they belong to, and how many are to come.
#[derive(Clone, Copy, Debug)]
struct Body {
    /// The command's slot; `None`: the command was refused, and its data are dropped.
    slot: Option<u16>,
    /// Bytes to drop before those that the command refers to.
    skip: u32,
    /// Offset of the next byte within the command's data, and of the first byte of its memory.
    at: u32,
    base: u32,
    left: u32,
    has_digest: bool,
    digest: DataDigest,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotStep {
    Free,
    /// In-capsule data are expected as soon as there is memory.
    Receiving,
    /// The command waits for memory.
    WaitsForMemory,
    /// R2T is sent; this many bytes have arrived.
    FromHost {
        received: u32,
    },
    AtSubsystem,
}

/// The present part of a transfer that crosses part by part.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Offset and length, bytes.
    at: u32,
    bytes: u32,
    /// A fault of the command's answer, which an earlier part has brought.
    fault: Option<TransportFault>,
    /// The status to answer after the unfinished value of the stream is discarded.
    verdict: Option<Status>,
}

struct Slot {
    step: SlotStep,
    cid: u16,
    sqe: Sqe,
    transfer: Transfer,
    /// The present part, if the command moves its data part by part.
    part: Option<Part>,
    buffer: Option<Buffer>,
    /// Some of its data had a wrong digest.
    spoilt: bool,
    /// When it was submitted to the subsystem, its first part if it has several, ns.
    began_ns: u64,
    /// Since when its data, which cannot be divided, have the memory of which hosts take turns, ms.
    turn_since_ms: Option<u64>,
}

/// A connection.
pub struct Connection {
    /// Identifies the connection in the line for memory.
    key: usize,
    limits: Limits,
    reached_at: Rc<Address>,
    /// Address of its host.
    from: Option<IpAddr>,
    /// The PSK of the host, if it uses TLS.
    psk: Option<TlsPsk>,
    /// Why the connection failed, until the log has taken it.
    complaint: Option<String>,
    state: ConnectionState,
    digests: u8,
    /// Data to the host start at multiples of this.
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
    /// Commands received.
    head: u32,
    slots: Vec<Slot>,
    /// Command identifiers by slot, packed together because every new command is compared with all of them.
    cids: Vec<u32>,
    free: Vec<u16>,
    /// Slots that wait for memory, in order, for each [`Use`]. A connection with such slots is in the line.
    waiting: [VecDeque<u16>; 2],
    /// The shares of memory of its host.
    shares: Shares,
    /// For each [`Use`]: that this connection waits for it.
    waits: [Option<Wait>; 2],
    /// The queues of its host, this connection among them.
    host: Option<Rc<QueuesOfHost>>,
    /// Its host's turn at the sockets.
    turn: SharedTurn,
    begun: Begun,
    progress: [Progress; 3],
    /// Bytes of R2T data received, bytes received in all, and bytes sent.
    asked_bytes: u64,
    received_bytes: u64,
    sent_bytes: u64,

    output: Output,
    /// The next digest is to be wrong (an injected fault).
    spoils_digest: bool,
    opened_ms: u64,
}

impl Connection {
    /// A connection that was accepted on `reached_at`.
    pub fn new(key: usize, limits: Limits, reached_at: Rc<Address>, core: &Core) -> Connection {
        Connection {
            key,
            limits,
            reached_at,
            from: None,
            psk: None,
            complaint: None,
            state: ConnectionState::Initializing,
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
            shares: core.unnamed(),
            waits: [None, None],
            host: None,
            turn: core.queues.unnamed.clone(),
            begun: Begun::default(),
            progress: Default::default(),
            asked_bytes: 0,
            received_bytes: 0,
            sent_bytes: 0,
            output: Output::default(),
            spoils_digest: false,
            opened_ms: core.now_ms,
        }
    }

    /// Sets the address of its host; costly work is shared out among addresses.
    pub fn come_from(&mut self, address: IpAddr) {
        self.from = Some(address);
    }

    /// Marks the connection as TLS with this PSK: a Connect has to name the host and the subsystem of the
    /// PSK.
    pub fn secured_by(&mut self, psk: TlsPsk) {
        self.psk = Some(psk);
    }

    /// Keeps the reason of a failure for the server's log; the first reason stays.
    pub fn complain(&mut self, reason: String) {
        self.complaint.get_or_insert(reason);
    }

    /// Takes the reason of its failure, if there is one.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// The turn of its host at the sockets.
    pub fn host_turn(&self) -> &SharedTurn {
        &self.turn
    }

    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The queue that the connection has become.
    pub fn queue(&self) -> Option<QueueId> {
        self.queue
    }

    /// Bytes to send.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Notes that `bytes` bytes of the output are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
        self.output.advance(bytes);
    }

    /// Can it take more bytes from its host? Not while a received command waits for memory, nor while the
    /// host does not read.
    pub fn wants_input(&self) -> bool {
        let is_read = self.output.bytes() < OUTPUT_MAX_BYTES && self.output.head_bytes() < HEADS_MAX_BYTES;
        self.state != ConnectionState::Ending && is_read && !self.is_stalled()
    }

    /// Does it end as soon as its output is sent?
    pub fn is_ending(&self) -> bool {
        self.state == ConnectionState::Ending
    }

    fn is_stalled(&self) -> bool {
        match self.stage {
            Stage::Data(Body { slot: Some(slot), .. }) => self.slots[usize::from(slot)].buffer.is_none(),
            _ => false,
        }
    }

    /// Consumes bytes of the host; returns how many. The caller passes the rest again once
    /// [`Connection::wants_input`] is true.
    pub fn receive(&mut self, core: &mut Core, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != ConnectionState::Ending && !self.is_stalled() {
            if let Err(reason) = self.step(core, &mut rest) {
                self.terminate(core, reason);
            }
        }
        self.received_bytes += (bytes.len() - rest.len()) as u64;
        // Bytes after the end are ignored.
        if self.state == ConnectionState::Ending { bytes.len() } else { bytes.len() - rest.len() }
    }

    /// Handles a complete header.
    fn begin_unit(&mut self, core: &mut Core) -> Result<(), Fatal> {
        match self.common().kind {
            kind::IC_REQ => self.initialize(),
            kind::CAPSULE_CMD => self.begin_command(core),
            kind::H2C_DATA => self.begin_data(),
            // The host ends the connection. Later bytes are ignored.
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
        // The field has 5 bits; 31 means 128 bytes.
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
        self.state = ConnectionState::Open;
        Ok(())
    }

    /// Handles the end of a unit's data.
    fn end_unit(&mut self, core: &mut Core, body: Body) {
        self.stage = Stage::Header;
        let Some(slot) = body.slot else { return };
        let command = &mut self.slots[usize::from(slot)];
        if let SlotStep::FromHost { received } = &mut command.step {
            *received = body.at;
        }
        if body.at < command.window().1 {
            return;
        }
        if command.spoilt {
            self.give_up(core, slot, Status::TRANSIENT_TRANSPORT_ERROR);
        } else {
            self.submit(core, slot);
        }
    }

    /// Ends the connection: its queue, its commands, its memory. Pending output is still sent.
    pub fn end(&mut self, core: &mut Core) {
        self.state = ConnectionState::Ending;
        self.stage = Stage::Header;
        self.slots.clear();
        self.cids.clear();
        self.free.clear();
        for of in Use::ALL {
            if !std::mem::take(&mut self.waiting[of as usize]).is_empty() {
                self.leave_line(core, of);
            }
        }
        if let Some(queue) = self.queue.take() {
            core.subsystem.disconnect(queue);
        }
        if let Some(host) = self.host.take() {
            core.queues.leave(&host);
        }
    }

    /// Ends the connection and drops pending output.
    pub fn abandon(&mut self, core: &mut Core) {
        self.end(core);
        self.output.clear();
    }

    /// Ends a connection that makes no progress: it has not become a queue in time, or it has something
    /// unfinished and moves less than [`Limits::least`].
    pub fn tick(&mut self, core: &mut Core) {
        let handshake_late = self.queue.is_none() && core.now_ms > self.opened_ms + HANDSHAKE_MS;
        // In each of these cases the host has to move bytes, and only those bytes count as progress.
        let is_asked = self.slots.iter().any(|slot| matches!(slot.step, SlotStep::FromHost { .. }));
        let is_inside = (self.filled > 0 || !matches!(self.stage, Stage::Header)) && self.wants_input();
        let begun = [
            (is_asked, self.asked_bytes),
            (is_inside, self.received_bytes),
            (!self.output.is_empty(), self.sent_bytes),
        ];
        let mut is_slow = false;
        let holds_others_up = self.shares.iter().any(Share::keeps_others_waiting);
        let least = if holds_others_up { self.limits.least.sooner() } else { self.limits.least };
        for (progress, (is_begun, bytes)) in self.progress.iter_mut().zip(begun) {
            is_slow |= progress.is_slow(is_begun, bytes, core.now_ms, least);
        }
        if let Some(stream) = self.begun.late(core.now_ms, self.limits.least.window_ms) {
            self.complain(format!("the next part of the value on stream {stream} did not come"));
            is_slow = true;
        }
        if self.is_late_in_its_turn(core) {
            self.complain(format!("a batch took longer than {TURN_MS} ms while other hosts waited"));
            is_slow = true;
        }
        if handshake_late || is_slow {
            self.abandon(core);
        }
    }

    /// Does a command of it keep the memory of which hosts take turns for too long?
    fn is_late_in_its_turn(&self, core: &mut Core) -> bool {
        let from_ms = core.now_ms.saturating_sub(TURN_MS);
        let is_late = |slot: &Slot| {
            let is_sent = matches!(slot.step, SlotStep::FromHost { .. });
            is_sent && slot.turn_since_ms.is_some_and(|since_ms| since_ms < from_ms)
        };
        self.slots.iter().any(is_late) && !core.memory(Use::Transfer).line.is_empty()
    }
}
