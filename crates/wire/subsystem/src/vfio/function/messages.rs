//! Messages of the client of a function. Each gets one reply, unless its flags ask for none.

use std::fs::File;
use std::io::ErrorKind;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Client, Function, TURN_MESSAGES, is_pin_up};
use crate::shared::Core;
use crate::vfio::config_space::{BAR0_BYTES, CONFIG_BYTES};
use crate::vfio::doorbells::{DOORBELLS_AT, DOORBELLS_BYTES};
use crate::vfio::interrupts;
use crate::vfio::memory::{REGIONS_MAX, Refused};
use crate::vfio::message::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, RegionAccess, RegionInfo, SparseMap, Version,
    command, irq, region,
};
use crate::vfio::socket::{DESCRIPTORS_MAX, Message, Received};

/// The version of the protocol.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// A reply after its header, and a descriptor with it.
#[derive(Default)]
struct Reply {
    bytes: Vec<u8>,
    descriptor: Option<File>,
}

impl Reply {
    fn of(parts: &[&[u8]]) -> Reply {
        Reply { bytes: parts.concat(), descriptor: None }
    }
}

/// The structure at the front of a payload, and the rest of the payload.
fn front<T: FromBytes + KnownLayout + Immutable + Copy>(payload: &[u8]) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(payload).map_err(|_| Errno::INVAL)
}

impl Function {
    /// Answers messages; `true` if there were some.
    pub(super) fn take_messages(&mut self, core: &mut Core) -> bool {
        let mut any = false;
        for _ in 0..TURN_MESSAGES {
            let Some(client) = self.client.as_mut().filter(|client| client.is_readable) else { break };
            match client.socket.receive() {
                Ok(Received::Message(message)) => {
                    any = true;
                    self.answer(core, message);
                }
                Ok(Received::Dropped) => any = true,
                Ok(Received::Nothing) => client.is_readable = false,
                Err(error) if error.kind() == ErrorKind::InvalidData => self.complain("it sent no message"),
                // The client has disconnected, which needs no line in the log.
                Err(_) => self.complain(""),
            }
            let Some(client) = &mut self.client else { break };
            if client.complaint.is_some() {
                break;
            }
            if client.socket.flush().is_err() {
                self.complain("");
            }
        }
        if let Some(client) = &mut self.client
            && client.socket.flush().is_err()
        {
            self.complain("");
        }
        any
    }

    fn answer(&mut self, core: &mut Core, message: Message) {
        let mut header = message.header;
        if header.flags.get() & Header::TYPE == Header::REPLY {
            // A reply needs no answer.
            return;
        }
        self.take_heads(core);
        let outcome = if message.is_too_long {
            Err(Errno::INVAL)
        } else {
            self.carry_out(core, header.command.get(), message)
        };
        if header.flags.get() & Header::NO_REPLY != 0 {
            return;
        }
        let Some(client) = &mut self.client else { return };
        let (flags, errno, reply) = match outcome {
            Ok(reply) => (Header::REPLY, 0, reply),
            Err(errno) => (Header::REPLY | Header::ERROR, errno.raw_os_error() as u32, Reply::default()),
        };
        header.flags.set(flags);
        header.errno.set(errno);
        header.bytes.set((Header::BYTES + reply.bytes.len()) as u32);
        client.socket.send([header.as_bytes(), &reply.bytes].concat(), reply.descriptor);
    }

    fn carry_out(&mut self, core: &mut Core, number: u16, message: Message) -> Result<Reply, Errno> {
        let client = self.client.as_mut().ok_or(Errno::INVAL)?;
        let payload = &message.payload[..];
        match number {
            command::VERSION => client.agree(payload),
            _ if !client.is_agreed => Err(Errno::INVAL),
            command::DMA_MAP => {
                let (map, _) = front::<DmaMap>(payload)?;
                client.map(&map, message.descriptors).map_err(|refused| {
                    let (bytes, address, why) = (map.bytes.get(), map.address.get(), refused.why);
                    let path = self.path.display();
                    let line =
                        format!("{path}: memory of its client refused: {bytes} B at {address:#x}: {why}");
                    core.log.note(core.now_ms, &line);
                    refused.errno
                })?;
                Ok(Reply::default())
            }
            command::DMA_UNMAP => client.unmap(payload),
            command::DEVICE_GET_INFO => device_info(payload),
            command::DEVICE_GET_REGION_INFO => self.region_info(payload),
            command::DEVICE_GET_IRQ_INFO => irq_info(payload),
            command::DEVICE_SET_IRQS => {
                let (set, data) = front::<IrqSet>(payload)?;
                client.interrupts.set(&set, data, message.descriptors)?;
                Ok(Reply::default())
            }
            command::REGION_READ => self.read_region(core, payload),
            command::REGION_WRITE => self.write_region(core, payload),
            command::DEVICE_RESET => {
                self.reset(core);
                Ok(Reply::default())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn region_info(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (mut info, _) = front::<RegionInfo>(payload)?;
        let room = info.argsz.get() as usize;
        let (flags, bytes) = match info.index.get() {
            region::BAR0 => (
                RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP | RegionInfo::CAPABILITIES,
                BAR0_BYTES,
            ),
            region::CONFIG => (RegionInfo::READ | RegionInfo::WRITE, CONFIG_BYTES as u64),
            index if index < region::COUNT => (0, 0),
            _ => return Err(Errno::INVAL),
        };
        info.flags.set(flags);
        info.bytes.set(bytes);
        info.offset.set(0);
        let has_capabilities = flags & RegionInfo::CAPABILITIES != 0;
        let whole = size_of::<RegionInfo>() + if has_capabilities { size_of::<SparseMap>() } else { 0 };
        info.argsz.set(whole as u32);
        // Without room for the capabilities the reply says where they would be: QEMU 11.1 refuses a region that has
        // some nowhere.
        info.capability_at.set(if has_capabilities { size_of::<RegionInfo>() as u32 } else { 0 });
        if !has_capabilities || room < whole {
            return Ok(Reply::of(&[info.as_bytes()]));
        }
        let sparse = SparseMap {
            id: SparseMap::ID.into(),
            version: 1.into(),
            next: 0.into(),
            areas: 1.into(),
            reserved: 0.into(),
            offset: DOORBELLS_AT.into(),
            bytes: DOORBELLS_BYTES.into(),
        };
        let descriptor = self.doorbells.file().map_err(|_| Errno::MFILE)?;
        if let Some(client) = &mut self.client {
            client.has_doorbells = true;
        }
        Ok(Reply { descriptor: Some(descriptor), ..Reply::of(&[info.as_bytes(), sparse.as_bytes()]) })
    }

    fn read_region(&mut self, core: &Core, payload: &[u8]) -> Result<Reply, Errno> {
        let (access, _) = front::<RegionAccess>(payload)?;
        let (at, count) = (access.offset.get(), access.count.get() as usize);
        let bytes = match access.region.get() {
            region::BAR0 if fits(at, count, BAR0_BYTES) => self.read_bar(core, at, count),
            region::CONFIG => {
                let is_up = is_pin_up(&self.completions, &self.registers);
                self.config.read(at, count, is_up).ok_or(Errno::INVAL)?
            }
            _ => return Err(Errno::INVAL),
        };
        // A device without power drives no line of its bus.
        let bytes = if self.admin.is_some() { bytes } else { vec![0xFF; count] };
        Ok(Reply::of(&[access.as_bytes(), &bytes]))
    }

    fn write_region(&mut self, core: &mut Core, payload: &[u8]) -> Result<Reply, Errno> {
        let (access, bytes) = front::<RegionAccess>(payload)?;
        let (at, count) = (access.offset.get(), access.count.get() as usize);
        let bytes = bytes.get(..count).ok_or(Errno::INVAL)?;
        match access.region.get() {
            region::BAR0 if fits(at, count, BAR0_BYTES) => {
                if self.admin.is_some() {
                    self.write_bar(core, at, bytes);
                }
            }
            region::CONFIG => {
                if self.config.write(at, bytes).ok_or(Errno::INVAL)? {
                    self.reset(core);
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Reply::of(&[access.as_bytes()]))
    }
}

impl Client {
    fn agree(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (mut version, _) = front::<Version>(payload)?;
        if version.major.get() != MAJOR || self.is_agreed {
            return Err(Errno::INVAL);
        }
        self.is_agreed = true;
        version.minor.set(version.minor.get().min(MINOR));
        let capabilities = format!(
            "{{\"capabilities\":{{\"max_msg_fds\":{DESCRIPTORS_MAX},\"max_data_xfer_size\":{BAR0_BYTES},\
             \"max_dma_maps\":{REGIONS_MAX},\"pgsizes\":4096}}}}\0"
        );
        Ok(Reply::of(&[version.as_bytes(), capabilities.as_bytes()]))
    }

    fn map(&mut self, map: &DmaMap, descriptors: Vec<std::os::fd::OwnedFd>) -> Result<(), Refused> {
        let mut descriptors = descriptors.into_iter();
        let descriptor = descriptors.next();
        if descriptors.next().is_some() {
            return Err(Refused { errno: Errno::INVAL, why: "it came with several descriptors" });
        }
        self.memory.map(map, descriptor)
    }

    /// Nothing is under way in the memory: data are copied while a command is taken or answered.
    fn unmap(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (unmap, _) = front::<DmaUnmap>(payload)?;
        match (unmap.flags.get(), unmap.address.get(), unmap.bytes.get()) {
            (0, address, bytes) => self.memory.unmap(address, bytes)?,
            (DmaUnmap::ALL, 0, 0) => self.memory.unmap_all(),
            _ => return Err(Errno::INVAL),
        }
        Ok(Reply::of(&[unmap.as_bytes()]))
    }
}

fn fits(at: u64, count: usize, bytes: u64) -> bool {
    at.checked_add(count as u64).is_some_and(|end| end <= bytes)
}

fn device_info(payload: &[u8]) -> Result<Reply, Errno> {
    let (mut info, _) = front::<DeviceInfo>(payload)?;
    info.argsz.set(size_of::<DeviceInfo>() as u32);
    info.flags.set(DeviceInfo::RESET | DeviceInfo::PCI);
    info.regions.set(region::COUNT);
    info.irqs.set(irq::COUNT);
    Ok(Reply::of(&[info.as_bytes()]))
}

fn irq_info(payload: &[u8]) -> Result<Reply, Errno> {
    let (mut info, _) = front::<IrqInfo>(payload)?;
    let (count, flags) = interrupts::info(info.index.get()).ok_or(Errno::INVAL)?;
    info.argsz.set(size_of::<IrqInfo>() as u32);
    info.flags.set(flags);
    info.count.set(count);
    Ok(Reply::of(&[info.as_bytes()]))
}
