//! The way of a command to the subsystem: its slot, its memory, its data.

use std::net::IpAddr;

use kvdrive_auth::TlsPsk;
use kvdrive_nvme::door::names_door_stream;
use kvdrive_nvme::fabrics::{ConnectData, Fabrics, fctype, fctype_of, invalid_parameter, nqn};
use kvdrive_nvme::tcp::{self, Header, flag, kind};
use kvdrive_nvme::{Cqe, Sqe, Status, auth, opcode};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::parts::split;
use super::{Body, Connection, Fatal, Part, Slot, SlotStep, Stage, fatal};
use crate::buffer::{Buffer, NoBuffer};
use crate::namespace::Tag;
use crate::shared::{Core, Shares, Use};
use crate::subsystem::Reach;
use crate::subsystem::transfer::{Transfer, WHOLE_MAX_BYTES, transfer};
use crate::tcp::digest::DataDigest;

impl Connection {
    pub(super) fn begin_command(&mut self, core: &mut Core) -> Result<(), Fatal> {
        let (padding, data_bytes, has_digest) = self.extent(self.in_capsule_max(core))?;
        let mut sqe = Sqe::from_bytes([0; Sqe::BYTES]);
        sqe.as_mut_bytes().copy_from_slice(&self.header[8..8 + Sqe::BYTES]);
        self.head = self.head.wrapping_add(1);
        let receiver = self.admit(core, sqe, data_bytes)?;
        let offset = receiver.map_or(0, |slot| match self.slots[usize::from(slot)].transfer {
            Transfer::InCapsule { offset, .. } => offset,
            _ => 0,
        });
        let digest = DataDigest::default();
        let body =
            Body { slot: receiver, skip: offset, at: 0, base: 0, left: data_bytes, has_digest, digest };
        if data_bytes == 0 {
            self.stage = Stage::Header;
        } else if padding > 0 {
            self.stage = Stage::Padding { left: padding, then: body };
        } else {
            self.stage = Stage::Data(body);
        }
        Ok(())
    }

    /// Admits a command; returns the slot for which in-capsule data follow, if any. A refused command is
    /// answered here.
    fn admit(&mut self, core: &mut Core, mut sqe: Sqe, data_bytes: u32) -> Result<Option<u16>, Fatal> {
        let cid = sqe.cid.get();
        if self.cids.contains(&u32::from(cid)) && !self.forget_event_request(core, cid) {
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
            Ok(Transfer::InCapsule { offset, .. }) if offset > data_bytes => Err(Status::SGL_OFFSET_INVALID),
            Ok(Transfer::InCapsule { offset, bytes }) if bytes != data_bytes - offset => {
                Err(Status::SGL_LENGTH_INVALID)
            }
            Ok(_) if !self.is_admin && names_door_stream(&sqe) => Err(Status::INVALID_FIELD),
            other => other,
        };
        let is_io = !self.is_admin;
        let split = |transfer| match is_io {
            true => split(&mut sqe, transfer, WHOLE_MAX_BYTES, self.limits.part_bytes),
            false => Ok((transfer, None)),
        };
        let (transfer, part) = match transfer.and_then(split) {
            Ok(transfer) => transfer,
            Err(status) => {
                self.respond(Cqe::new(cid, status));
                return Ok(None);
            }
        };
        let slot = self.new_slot(cid, sqe, transfer, part)?;
        match transfer {
            Transfer::None => {
                self.slots[usize::from(slot)].buffer = Some(Buffer::empty());
                self.submit(core, slot);
                Ok(None)
            }
            Transfer::InCapsule { .. } => {
                self.slots[usize::from(slot)].step = SlotStep::Receiving;
                self.ask_for_memory(core, slot);
                Ok(Some(slot))
            }
            Transfer::FromHost { .. } | Transfer::ToHost { .. } => {
                self.slots[usize::from(slot)].step = SlotStep::WaitsForMemory;
                self.ask_for_memory(core, slot);
                Ok(None)
            }
        }
    }

    /// A host that detaches treats the identifiers of its Asynchronous Event Requests as free although the
    /// requests still wait here: SPDK reuses one of them to shut the controller down. In that case this drops
    /// the request without an answer; `false` if another command has the identifier.
    fn forget_event_request(&mut self, core: &mut Core, cid: u16) -> bool {
        let (Some(queue), true) = (self.queue, self.is_admin) else { return false };
        let Some(slot) = self.cids.iter().position(|of| *of == u32::from(cid)) else { return false };
        let tag = Tag { queue, slot: slot as u16 };
        if !core.subsystem.forget_event_request(tag) {
            return false;
        }
        self.free_slot(tag.slot);
        true
    }

    /// May this command run on a queue that has to authenticate? If not, it gets no memory.
    fn may_pass(&mut self, core: &Core, sqe: &Sqe) -> bool {
        self.is_locked = self.queue.is_some_and(|queue| core.subsystem.is_locked(queue));
        let authenticates = [fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
        !self.is_locked || sqe.opcode == opcode::FABRICS && authenticates.contains(&fctype_of(sqe))
    }

    fn new_slot(&mut self, cid: u16, sqe: Sqe, transfer: Transfer, part: Option<Part>) -> Result<u16, Fatal> {
        const AT_COMMAND: u32 = 8;
        let step = SlotStep::AtSubsystem;
        let new = Slot {
            step,
            cid,
            sqe,
            transfer,
            part,
            buffer: None,
            spoilt: false,
            began_ns: 0,
            turn_since_ms: None,
        };
        if let Some(slot) = self.free.pop() {
            self.slots[usize::from(slot)] = new;
            self.cids[usize::from(slot)] = u32::from(cid);
            return Ok(slot);
        }
        // More commands than the queue has entries: the host violates the queue size.
        if self.slots.len() as u32 >= self.entries.min(u32::from(u16::MAX)) {
            return Err(fatal(fatal::SEQUENCE, AT_COMMAND));
        }
        self.slots.push(new);
        self.cids.push(u32::from(cid));
        Ok(self.slots.len() as u16 - 1)
    }

    /// Takes memory for a slot, or puts the slot in line for it.
    pub(super) fn ask_for_memory(&mut self, core: &mut Core, slot: u16) {
        let of = use_of(self.slots[usize::from(slot)].transfer);
        if !self.shares[of as usize].is_awaited()
            && let Ok(buffer) = self.lend(core, of, slot)
        {
            return self.go_on(core, slot, buffer);
        }
        let waiting = &mut self.waiting[of as usize];
        if waiting.is_empty() {
            core.memory(of).line.push_back(self.key);
            self.waits[of as usize] = Some(self.shares[of as usize].wait());
        }
        waiting.push_back(slot);
    }

    /// Memory for the next step of a command: an answer brings its own, as a rule. If the host holds none, its reserve
    /// is free; then a larger command takes a smaller step, or its turn if its data cannot be divided.
    fn lend(&mut self, core: &Core, of: Use, slot: u16) -> Result<Buffer, NoBuffer> {
        let (command, share) = (&mut self.slots[usize::from(slot)], &self.shares[of as usize]);
        let bytes = command.wanted_bytes() as usize;
        // A connection takes one such command before it is a queue.
        if self.queue.is_none() && bytes <= ConnectData::BYTES {
            return Ok(Buffer::unbudgeted(bytes));
        }
        let lend = |bytes: usize, transfer| {
            if matches!(transfer, Transfer::ToHost { .. }) { share.room(bytes) } else { share.take(bytes) }
        };
        lend(bytes, command.transfer).or_else(|refused| {
            let reserve_bytes = share.reserve_bytes();
            let may_lessen = !self.is_admin && share.used_bytes() == 0 && (1..bytes).contains(&reserve_bytes);
            if may_lessen && command.lessen(reserve_bytes as u32) {
                lend(command.wanted_bytes() as usize, command.transfer)
            } else if may_lessen && matches!(command.transfer, Transfer::FromHost { .. }) {
                command.turn_since_ms = Some(core.now_ms);
                share.take_apart(bytes).map_err(|_| refused)
            } else {
                Err(refused)
            }
        })
    }

    /// Called when the connection's turn in the line has come: gives memory to its first waiting command.
    /// `true` if another of its commands waits, which goes to the end of the line.
    ///
    /// # Errors
    /// There is no memory for it: it keeps its place.
    pub fn retry(&mut self, core: &mut Core, of: Use) -> Result<bool, NoBuffer> {
        let Some(slot) = self.waiting[of as usize].front().copied() else { return Ok(false) };
        let buffer = self.lend(core, of, slot)?;
        self.waiting[of as usize].pop_front();
        let waits_again = !self.waiting[of as usize].is_empty();
        if !waits_again {
            self.waits[of as usize] = None;
        }
        self.go_on(core, slot, buffer);
        Ok(waits_again)
    }

    /// The host is known: from now on the connection takes memory from that host's shares.
    fn take_shares(&mut self, shares: Shares) {
        self.shares = shares;
        for (wait, share) in self.waits.iter_mut().zip(&self.shares) {
            *wait = wait.take().map(|_| share.wait());
        }
    }

    /// Aborts the command with this identifier if it still waits for memory.
    pub fn abort(&mut self, core: &mut Core, cid: u16) -> Reach {
        let slot = self.cids.iter().position(|of| *of == u32::from(cid));
        let (Some(slot), Some(queue)) = (slot, self.queue) else { return Reach::Kept };
        let command = &self.slots[slot];
        match command.step {
            SlotStep::WaitsForMemory if command.begins() => {}
            SlotStep::AtSubsystem if command.part.is_none() => {
                return Reach::Submitted(Tag { queue, slot: slot as u16 });
            }
            _ => return Reach::Kept,
        }
        let of = use_of(command.transfer);
        self.waiting[of as usize].retain(|other| usize::from(*other) != slot);
        if self.waiting[of as usize].is_empty() {
            self.leave_line(core, of);
        }
        self.answer(slot as u16, Status::ABORT_REQUESTED, 0, 0);
        Reach::Aborted
    }

    /// Removes the connection from the line for memory.
    pub(super) fn leave_line(&mut self, core: &mut Core, of: Use) {
        core.memory(of).line.retain(|key| *key != self.key);
        self.waits[of as usize] = None;
    }

    /// Continues a command that has got its memory.
    fn go_on(&mut self, core: &mut Core, slot: u16, buffer: Buffer) {
        let command = &mut self.slots[usize::from(slot)];
        command.buffer = Some(buffer);
        match command.transfer {
            Transfer::FromHost { .. } => {
                let (from, to) = command.window();
                command.step = SlotStep::FromHost { received: from };
                let cid = command.cid;
                let mut request = tcp::Transfer::new_zeroed();
                request.header = Header::new(kind::R2T, 24);
                request.cid = U16::new(cid);
                request.tag = U16::new(slot);
                request.offset = U32::new(from);
                request.length = U32::new(to - from);
                self.put(request.as_mut_bytes(), 0, None);
            }
            Transfer::ToHost { .. } => self.submit(core, slot),
            // In-capsule data follow with the next bytes.
            Transfer::InCapsule { .. } | Transfer::None => {}
        }
    }

    pub(super) fn begin_data(&mut self) -> Result<(), Fatal> {
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
        let Some(command @ Slot { step: SlotStep::FromHost { received }, cid, .. }) =
            self.slots.get(usize::from(slot))
        else {
            return Err(fatal(fatal::INVALID_HEADER, AT_TAG));
        };
        let (base, end) = command.window();
        if data.cid.get() != *cid {
            return Err(fatal(fatal::INVALID_HEADER, AT_CID));
        }
        if data.length.get() != data_bytes || data_bytes == 0 {
            return Err(fatal(fatal::INVALID_HEADER, AT_LENGTH));
        }
        if data.offset.get() != *received {
            return Err(fatal(fatal::DATA_OUT_OF_RANGE, AT_OFFSET));
        }
        let left = end - received;
        if data_bytes > left {
            return Err(fatal(fatal::DATA_OUT_OF_RANGE, AT_LENGTH));
        }
        // A missing LAST flag on the last unit is accepted; the flag on an earlier unit would lose data.
        if data.header.flags & flag::LAST != 0 && data_bytes < left {
            return Err(fatal(fatal::INVALID_HEADER, AT_FLAGS));
        }
        let body = Body {
            slot: Some(slot),
            skip: 0,
            at: *received,
            base,
            left: data_bytes,
            has_digest,
            digest: DataDigest::default(),
        };
        self.stage =
            if padding > 0 { Stage::Padding { left: padding, then: body } } else { Stage::Data(body) };
        Ok(())
    }

    /// Submits a command whose data are complete.
    pub(super) fn submit(&mut self, core: &mut Core, slot: u16) {
        let command = &mut self.slots[usize::from(slot)];
        command.step = SlotStep::AtSubsystem;
        let begun = command.begins().then_some(command.sqe.opcode);
        if begun.is_some() {
            command.began_ns = core.now_ns;
        }
        let buffer = command.buffer.take().unwrap_or(Buffer::empty());
        match self.queue {
            Some(queue) => {
                let sqe = match command.next_entry(slot) {
                    Ok(sqe) => sqe,
                    Err(status) => return self.answer(slot, status, 0, 0),
                };
                core.subsystem.execute_part(Tag { queue, slot }, &sqe, begun, buffer, core.now_ms);
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
        // A name is worth nothing if its host does not prove that it is the one.
        let is_proved =
            self.psk.is_some() || named_host(data).is_some_and(|host| core.subsystem.has_secret(host));
        let unproved = self.from.filter(|_| !is_proved);
        let refusal = named_host(data).and_then(|host| self.refusal(core, host, unproved));
        if let Some(refusal) = refusal {
            self.complain(refusal.into());
            self.answer(slot, Status::CONTROLLER_BUSY, 0, 0);
            return;
        }
        match core.subsystem.connect(&connect, data, &self.reached_at, self.from, core.now_ms) {
            Ok(connected) => {
                self.queue = Some(connected.queue);
                self.is_admin = connected.is_admin;
                self.is_locked = connected.is_locked;
                self.entries = connected.entries;
                self.flow_control = connected.flow_control;
                let host_nqn = core.subsystem.host_of(connected.queue).map(str::to_owned);
                let shares = host_nqn.as_ref().and_then(|host| core.shares_of(host, unproved));
                if let (Some(host_nqn), Some(shares)) = (host_nqn, shares) {
                    self.take_shares(shares);
                    let host = core.queues.join(&host_nqn, unproved);
                    self.turn = host.turn.clone();
                    self.host = Some(host);
                }
                let required = if connected.is_locked { auth::REQUIRED } else { 0 };
                self.answer(slot, Status::SUCCESS, u32::from(connected.controller_id) | required, 0);
            }
            Err(refused) => self.answer(slot, refused.status, refused.dw0, 0),
        }
    }

    /// Why this host gets no further queue, if so; `unproved` is its address if it does not prove who it is.
    fn refusal(&self, core: &mut Core, host: &str, unproved: Option<IpAddr>) -> Option<&'static str> {
        if !core.queues.admits(host, unproved, self.limits.connections_max) {
            return Some("refused: its host, or its address, has as many connections as one may have");
        }
        if core.shares_of(host, unproved).is_none() {
            return Some(
                "refused: no reserve of memory is left for a further host of its address (--memory)",
            );
        }
        None
    }
}

/// The host that the data of a Connect name.
fn named_host(data: &[u8]) -> Option<&str> {
    let (data, _) = ConnectData::ref_from_prefix(data).ok()?;
    nqn(&data.host_nqn)
}

/// If the data of a Connect name another host or subsystem than the PSK of the connection: the offset of that
/// name, and a line for the log.
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

/// The use of memory that a transfer counts as.
fn use_of(transfer: Transfer) -> Use {
    if matches!(transfer, Transfer::InCapsule { .. }) { Use::Capsule } else { Use::Transfer }
}
