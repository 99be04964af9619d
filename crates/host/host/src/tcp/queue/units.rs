//! Units that a controller sends: each is checked and taken as soon as it has come as a whole, and its data as they come.
//! What has come of a unit stays where a caller may not wait for the rest, so no lock is held for a controller that
//! stops in the middle of one.

use std::io::ErrorKind;

use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, flag, kind};
use kvdrive_nvme::{Cqe, Status};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Completed, Queue};
use crate::Error;
use crate::tcp::input::Arriving;

impl Queue {
    /// Has the next unit arrived, or a part of the data that are taken now?
    pub(in crate::tcp) fn is_unit_buffered(&self) -> bool {
        let come = self.input.come();
        match self.arriving {
            Some(_) => !come.is_empty(),
            None => {
                Header::read_from_prefix(come).is_ok_and(|(unit, _)| unit.bytes.get() as usize <= come.len())
            }
        }
    }

    /// Takes the next unit if it has come, or what has come of its data; `None`: nothing that ends a unit. Never waits.
    ///
    /// # Errors
    /// As [`Queue::next_completion`].
    pub(in crate::tcp) fn take_arrived(&mut self) -> Result<Option<Option<Completed>>, Error> {
        self.input.wire.may_wait = false;
        let taken = self.take_unit();
        self.input.wire.may_wait = true;
        match taken {
            Err(Error::Io { kind: ErrorKind::WouldBlock, .. }) => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Waits for the next unit; returns the command that it completes, if it does. Where it may not wait, it fails and
    /// leaves what has come for the next call.
    ///
    /// # Errors
    /// As [`Queue::next_completion`].
    pub(super) fn take_unit(&mut self) -> Result<Option<Completed>, Error> {
        if self.arriving.is_some() {
            return self.take_data();
        }
        let first = self.input.need(Header::BYTES)?;
        let (is_last, header_bytes) = (first[0] == kind::C2H_TERM_REQ, usize::from(first[2]));
        if Some(first[2]) != tcp::header_bytes(first[0]) {
            return Err(Error::Protocol("a header of another length"));
        }
        let digest = if self.has(digests::HEADER) && !is_last { DIGEST_BYTES } else { 0 };
        let mut header = [0; 128 + DIGEST_BYTES];
        let whole = header_bytes + digest;
        header[..whole].copy_from_slice(self.input.need(whole)?);
        if is_last {
            let unit = tcp::Termination::read_from_bytes(&header[..24]).expect("it has its size");
            let (reason, information) = (unit.reason.get(), unit.information.get());
            return Err(Error::Terminated { reason, information });
        }
        self.check_header_digest(&header[..header_bytes], &header[header_bytes..whole])?;
        let padding = match header[0] {
            kind::C2H_DATA => self.begin_data(&header[..24])?,
            _ => 0,
        };
        if let Err(error) = self.input.need(whole + padding) {
            self.arriving = None;
            return Err(error.into());
        }
        self.input.take(whole + padding);
        match header[0] {
            kind::CAPSULE_RESP | kind::R2T if !self.is_header_alone(&header) => {
                return Err(Error::Protocol("a unit that is longer or shorter than its header"));
            }
            kind::CAPSULE_RESP => {
                let unit = tcp::ResponseCapsule::read_from_bytes(&header[..24]).expect("it has its size");
                let cid = unit.cqe.cid.get();
                let slot = self.pending.get_mut(usize::from(cid)).and_then(Option::take);
                let pending = slot.ok_or(Error::Protocol("a response without a command"))?;
                if pending.is_free_after {
                    self.free.push(cid);
                }
                // A part of a value must not pass as the value.
                let is_short = pending.data.len() < pending.due_bytes(unit.cqe.dw0.get());
                let cqe = match unit.cqe.status().is_success() && is_short {
                    true => Cqe::new(cid, Status::TRANSIENT_TRANSPORT_ERROR),
                    false => unit.cqe,
                };
                return Ok(Some(Completed { cqe, data: pending.data }));
            }
            kind::C2H_DATA => return self.take_data(),
            kind::R2T => self.send_data(&header[..24])?,
            _ => return Err(Error::Protocol("a unit that only hosts send")),
        }
        Ok(None)
    }

    /// Does the unit end with its header and the header's digest?
    fn is_header_alone(&self, header: &[u8]) -> bool {
        let (unit, _) = Header::read_from_prefix(header).expect("it has its size");
        let digest = if self.has(digests::HEADER) { DIGEST_BYTES } else { 0 };
        unit.bytes.get() as usize == usize::from(unit.header_bytes) + digest
    }

    fn check_header_digest(&self, header: &[u8], digest: &[u8]) -> Result<(), Error> {
        if !self.has(digests::HEADER) {
            return Ok(());
        }
        if header[1] & flag::HEADER_DIGEST == 0 || crc32c::crc32c(header).to_le_bytes() != digest {
            return Err(Error::Protocol("a header digest is wrong"));
        }
        Ok(())
    }

    /// A unit of data begins; returns how many bytes are between its header and the data.
    fn begin_data(&mut self, header: &[u8]) -> Result<usize, Error> {
        let unit = tcp::Transfer::read_from_bytes(header).expect("it has its size");
        let before = 24 + if self.has(digests::HEADER) { DIGEST_BYTES } else { 0 };
        let padding = usize::from(unit.header.data_at)
            .checked_sub(before)
            .ok_or(Error::Protocol("data inside their header"))?;
        let behind = if self.has(digests::DATA) { DIGEST_BYTES } else { 0 };
        let bytes = unit.length.get() as usize;
        if unit.header.bytes.get() as usize != before + padding + bytes + behind {
            return Err(Error::Protocol("data of another length than their unit"));
        }
        let cid = unit.cid.get();
        let pending = self.pending.get(usize::from(cid)).and_then(Option::as_ref);
        let pending = pending.ok_or(Error::Protocol("data for nothing"))?;
        let (from, end) = (pending.data.len(), pending.data.len() + bytes);
        if bytes == 0 || unit.offset.get() as usize != from || end > pending.room as usize {
            return Err(Error::Protocol("data that are empty, too long or not the next ones"));
        }
        let is_success = unit.header.flags & flag::SUCCESS != 0;
        self.arriving = Some(Arriving { cid, from, at: from, end, is_success });
        Ok(padding)
    }

    /// Takes data of the unit that has begun; the completion, if the command has succeeded and no response follows.
    fn take_data(&mut self) -> Result<Option<Completed>, Error> {
        let arriving = self.arriving.as_mut().expect("a unit has begun");
        let pending = self.pending[usize::from(arriving.cid)].as_mut().expect("data are of a command");
        pending.data.resize(arriving.end, 0);
        while arriving.at < arriving.end {
            arriving.at += self.input.take_into(&mut pending.data[arriving.at..])?;
        }
        let Arriving { cid, from, is_success, .. } = *arriving;
        if self.has(digests::DATA) {
            let digest: [u8; DIGEST_BYTES] =
                self.input.need(DIGEST_BYTES)?.try_into().expect("it has its size");
            let pending = self.pending[usize::from(cid)].as_ref().expect("it was there");
            if self.data_digest(&pending.data[from..]) != u32::from_le_bytes(digest) {
                return Err(Error::Protocol("a data digest is wrong"));
            }
            self.input.take(DIGEST_BYTES);
        }
        self.arriving = None;
        if !is_success {
            return Ok(None);
        }
        let pending = self.pending[usize::from(cid)].take().expect("it was there");
        if pending.is_free_after {
            self.free.push(cid);
        }
        let bytes = pending.data.len() as u32;
        // Dword 0 is lost, which has the size of a value: it is known only if the value was shorter than its room.
        if pending.retrieves_from.is_some() && bytes == pending.room {
            return Err(Error::Protocol(
                "data with SUCCESS in place of a response that has the value's size",
            ));
        }
        let dw0 = pending.retrieves_from.map_or(0, |from| from + bytes);
        let cqe = Cqe::new(cid, Status::SUCCESS).with_result(dw0, 0);
        Ok(Some(Completed { cqe, data: pending.data }))
    }

    /// Answers an R2T: sends the data that the controller asks for.
    fn send_data(&mut self, header: &[u8]) -> Result<(), Error> {
        let unit = tcp::Transfer::read_from_bytes(header).expect("it has its size");
        let (from, bytes) = (unit.offset.get() as usize, unit.length.get() as usize);
        let pending = self.pending.get_mut(usize::from(unit.cid.get())).and_then(Option::as_mut);
        let pending = pending.ok_or(Error::Protocol("an R2T without a command"))?;
        let out = std::mem::take(&mut pending.out);
        // `asked` bounds the outbox: a controller that repeats an R2T would fill memory without end.
        pending.asked += bytes;
        if pending.asked > out.len() {
            return Err(Error::Protocol("R2Ts for more data than the command has"));
        }
        let wanted = out.get(from..).and_then(|rest| rest.get(..bytes)).filter(|wanted| !wanted.is_empty());
        let Some(wanted) = wanted else {
            return Err(Error::Protocol("an R2T for data beyond those of the command"));
        };
        let most = self.data_max_bytes as usize;
        for (index, piece) in wanted.chunks(most).enumerate() {
            let at = index * most;
            let mut data = tcp::Transfer::new_zeroed();
            data.header = Header::new(kind::H2C_DATA, 24);
            data.header.flags = if at + piece.len() == bytes { flag::LAST } else { 0 };
            data.cid = unit.cid;
            data.tag = unit.tag;
            data.offset = U32::new((from + at) as u32);
            data.length = U32::new(piece.len() as u32);
            self.put(data.as_mut_bytes(), piece);
        }
        if let Some(pending) = &mut self.pending[usize::from(unit.cid.get())] {
            pending.out = out;
        }
        Ok(self.input.wire.push()?)
    }
}
