//! Incoming bytes: assembles headers, padding, data and digests from pieces of any size.

use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, flag, kind};
use zerocopy::IntoBytes;

use super::{Body, Connection, ConnectionState, Fatal, Slot, SlotStep, Stage, fatal};
use crate::shared::Core;
use crate::tcp::digest::{self, Reading};

/// Fewer bytes are read together with the following ones, and copied.
const ROOM_MIN_BYTES: u32 = 64 << 10;

impl Connection {
    /// Consumes the next piece from the front of `rest`.
    pub(super) fn step(&mut self, core: &mut Core, rest: &mut &[u8]) -> Result<(), Fatal> {
        match self.stage {
            Stage::Header => self.gather_header(core, rest),
            Stage::Padding { left, then } => {
                let skipped = take(rest, left as usize).len() as u32;
                self.stage = match left - skipped {
                    0 => Stage::Data(then),
                    left => Stage::Padding { left, then },
                };
                Ok(())
            }
            Stage::Data(mut body) => {
                let came = take(rest, body.left as usize);
                let skipped = came.len().min(body.skip as usize);
                let meant = &came[skipped..];
                if let Some(buffer) = body.slot.and_then(|slot| self.slots[usize::from(slot)].buffer.as_mut())
                {
                    let at = (body.at - body.base) as usize;
                    buffer[at..at + meant.len()].copy_from_slice(meant);
                }
                if body.has_digest {
                    body.digest.add(came);
                }
                body.skip -= skipped as u32;
                body.at += meant.len() as u32;
                self.take_data(core, body, came.len() as u32);
                Ok(())
            }
            Stage::Digest { body, mut got, mut bytes } => {
                let came = take(rest, DIGEST_BYTES - got);
                bytes[got..got + came.len()].copy_from_slice(came);
                got += came.len();
                if got < DIGEST_BYTES {
                    self.stage = Stage::Digest { body, got, bytes };
                    return Ok(());
                }
                match (body.digest.check(u32::from_le_bytes(bytes)), body.slot) {
                    (Some(Reading::Unknown), _) => {}
                    (Some(reading), _) => self.reading = reading,
                    (None, Some(slot)) => self.slots[usize::from(slot)].spoilt = true,
                    (None, None) => {}
                }
                self.end_unit(core, body);
                Ok(())
            }
        }
    }

    /// Notes that bytes of a unit's data have arrived at their place.
    fn take_data(&mut self, core: &mut Core, mut body: Body, bytes: u32) {
        if let Some(Slot { step: SlotStep::FromHost { .. }, .. }) =
            body.slot.and_then(|slot| self.slots.get(usize::from(slot)))
        {
            self.asked_bytes += u64::from(bytes);
        }
        body.left -= bytes;
        if body.left > 0 {
            self.stage = Stage::Data(body);
        } else if body.has_digest {
            self.stage = Stage::Digest { body, got: 0, bytes: [0; DIGEST_BYTES] };
        } else {
            self.end_unit(core, body);
        }
    }

    /// The place of the next bytes of the host, if they are many and contiguous. They may be read from the socket
    /// directly to it; [`Connection::received`] then notes them.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let Stage::Data(Body { slot: Some(slot), skip: 0, at, base, left, .. }) = self.stage else {
            return None;
        };
        if left < ROOM_MIN_BYTES || self.state != ConnectionState::Open {
            return None;
        }
        let at = (at - base) as usize;
        self.slots.get_mut(usize::from(slot))?.buffer.as_mut()?.get_mut(at..at + left as usize)
    }

    /// The first `bytes` bytes of [`Connection::room`] have come.
    pub fn received(&mut self, core: &mut Core, bytes: usize) {
        let Stage::Data(mut body) = self.stage else { return };
        let buffer = body.slot.and_then(|slot| self.slots[usize::from(slot)].buffer.as_ref());
        if let (Some(buffer), true) = (buffer, body.has_digest) {
            let at = (body.at - body.base) as usize;
            body.digest.add(&buffer[at..at + bytes]);
        }
        body.at += bytes as u32;
        self.received_bytes += bytes as u64;
        self.take_data(core, body, bytes as u32);
    }

    pub(super) fn has_header_digest(&self) -> bool {
        self.digests & digests::HEADER != 0
    }

    /// Length of the present header with its digest, bytes.
    fn header_needs(&self) -> usize {
        let (kind, header_bytes) = (self.header[0], usize::from(self.header[2]));
        let digest = self.has_header_digest() && kind != kind::H2C_TERM_REQ;
        header_bytes + if digest { DIGEST_BYTES } else { 0 }
    }

    fn gather_header(&mut self, core: &mut Core, rest: &mut &[u8]) -> Result<(), Fatal> {
        let is_common = self.filled < Header::BYTES;
        let needs = if is_common { Header::BYTES } else { self.header_needs() };
        let came = take(rest, needs - self.filled);
        self.header[self.filled..self.filled + came.len()].copy_from_slice(came);
        self.filled += came.len();
        if self.filled < needs {
            return Ok(());
        }
        if is_common {
            // The common header says how many bytes follow, so it is checked first.
            return self.check_common();
        }
        let header_bytes = usize::from(self.header[2]);
        if self.filled > header_bytes {
            let (covered, received) = self.header[..self.filled].split_at(header_bytes);
            if digest::header(covered) != received {
                let received = u32::from_le_bytes([received[0], received[1], received[2], received[3]]);
                return Err(fatal(fatal::HEADER_DIGEST, received));
            }
        }
        self.filled = 0;
        self.begin_unit(core)
    }

    pub(super) fn common(&self) -> Header {
        let mut common = Header::new(0, 0);
        common.as_mut_bytes().copy_from_slice(&self.header[..Header::BYTES]);
        common
    }

    /// Most data in a capsule, bytes.
    pub(super) fn in_capsule_max(&self, core: &Core) -> u32 {
        if self.is_admin { tcp::ADMIN_IN_CAPSULE_BYTES } else { core.subsystem.options().in_capsule_bytes }
    }

    /// Checks the eight bytes that begin every unit.
    fn check_common(&self) -> Result<(), Fatal> {
        const AT_KIND: u32 = 0;
        const AT_FLAGS: u32 = 1;
        const AT_HEADER_BYTES: u32 = 2;
        const AT_BYTES: u32 = 4;
        let common = self.common();
        let expected = match (self.state, common.kind) {
            (ConnectionState::Initializing, kind::IC_REQ) => true,
            (ConnectionState::Initializing, _) | (_, kind::IC_REQ) => {
                return Err(fatal(fatal::SEQUENCE, AT_KIND));
            }
            (_, kind::CAPSULE_CMD | kind::H2C_DATA | kind::H2C_TERM_REQ) => true,
            _ => false,
        };
        if !expected {
            return Err(fatal(fatal::INVALID_HEADER, AT_KIND));
        }
        if Some(common.header_bytes) != tcp::header_bytes(common.kind) {
            return Err(fatal(fatal::INVALID_HEADER, AT_HEADER_BYTES));
        }
        let has_digests = matches!(common.kind, kind::CAPSULE_CMD | kind::H2C_DATA);
        let header_digest = common.flags & flag::HEADER_DIGEST != 0;
        let data_digest = common.flags & flag::DATA_DIGEST != 0;
        if header_digest != (has_digests && self.has_header_digest())
            || data_digest && !(has_digests && self.digests & digests::DATA != 0)
        {
            return Err(fatal(fatal::INVALID_HEADER, AT_FLAGS));
        }
        if (common.bytes.get() as usize) < self.header_needs() {
            return Err(fatal(fatal::INVALID_HEADER, AT_BYTES));
        }
        Ok(())
    }

    /// Layout of the data of the present unit: padding after the header, and length.
    pub(super) fn extent(&self, data_max_bytes: u32) -> Result<(u32, u32, bool), Fatal> {
        const AT_FLAGS: u32 = 1;
        const AT_DATA: u32 = 3;
        const AT_BYTES: u32 = 4;
        let common = self.common();
        let header_bytes =
            u32::from(common.header_bytes) + if self.has_header_digest() { DIGEST_BYTES as u32 } else { 0 };
        if common.bytes.get() == header_bytes {
            return Ok((0, 0, false));
        }
        let data_at = u32::from(common.data_at);
        if data_at < header_bytes || !data_at.is_multiple_of(4) {
            return Err(fatal(fatal::INVALID_HEADER, AT_DATA));
        }
        let has_digest = common.flags & flag::DATA_DIGEST != 0;
        let behind = if has_digest { DIGEST_BYTES as u32 } else { 0 };
        let data_bytes = common.bytes.get().checked_sub(data_at + behind).filter(|bytes| *bytes > 0);
        let data_bytes = data_bytes.ok_or(fatal(fatal::INVALID_HEADER, AT_BYTES))?;
        if data_bytes > data_max_bytes {
            return Err(fatal(fatal::DATA_LIMIT, AT_BYTES));
        }
        if self.digests & digests::DATA != 0 && !has_digest {
            return Err(fatal(fatal::INVALID_HEADER, AT_FLAGS));
        }
        Ok((data_at - header_bytes, data_bytes, has_digest))
    }
}

/// Takes up to `bytes` bytes off the front.
fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (front, behind) = rest.split_at(bytes.min(rest.len()));
    *rest = behind;
    front
}
