//! One ioctl of a node, from its number to its return value, with the checks in Linux's order.
//!
//! ```text
//!   structure ─► flags ─► namespace ─► rights ─► buffers ─► the drive ─► bytes back ─► result ─► return value
//!    EFAULT      EINVAL    EINVAL      EACCES    EFAULT      EINTR        EFAULT       EFAULT    0, or the status
//! ```
//!
//! A positive return value is the status of the completion without its phase bit: SC in bits 7:0, SCT in 10:8, "do
//! not retry" in 14.

use std::time::Duration;

use kvdrive_host::tcp::Data;
use kvdrive_nvme::property;
use kvdrive_nvme::{Cqe, Sqe};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::abi::{Form, IoVector, Ioctl, Passthrough, VECTORS_MAX};
use crate::drive::{Drive, NoStatus, QueueKind};
use crate::memory::Memory;
use crate::nodes::{Kind, Node};
use crate::rights;

/// How long a command may take if the program does not say.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(60);
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// 370h: host pathing error, which Linux answers while a drive on a network cannot be reached.
const HOST_PATH_ERROR: i32 = 0x370;
/// "NVMe", which resets a subsystem.
const SUBSYSTEM_RESET: u64 = 0x4E56_4D65;
/// Linux maps memory for transfers at addresses and of lengths that are multiples of this, and copies others.
const DMA_ALIGNMENT: u64 = 4;

/// The process that makes the call.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Does the program have CAP_SYS_ADMIN?
    pub privileged: bool,
    /// Is the descriptor open for writing?
    pub writable: bool,
}

/// Where the data of a command are in the program's memory.
struct Buffers {
    pieces: Vec<(u64, u64)>,
    bytes: u64,
}

/// Answers the ioctl `number` with `argument`.
///
/// # Errors
/// What the program finds in `errno`.
pub fn ioctl(
    node: &Node,
    caller: Caller,
    number: u32,
    argument: u64,
    memory: &dyn Memory,
) -> Result<i32, Errno> {
    let request = Ioctl::of(number).ok_or(Errno::NOTTY)?;
    let is_controller = node.kind == Kind::Controller;
    match request {
        Ioctl::Id if is_controller => Err(Errno::NOTTY),
        Ioctl::Id => {
            let session = node.drive.session().map_err(|_| Errno::NXIO)?;
            Ok(i32::try_from(session.facts.nsid).unwrap_or(i32::MAX))
        }
        Ioctl::SubmitIo if is_controller => Err(Errno::NOTTY),
        Ioctl::SubmitIo => Err(Errno::INVAL),
        Ioctl::Reset | Ioctl::SubsystemReset | Ioctl::Rescan if !is_controller => Err(Errno::NOTTY),
        Ioctl::Reset | Ioctl::SubsystemReset | Ioctl::Rescan if !caller.privileged => Err(Errno::ACCESS),
        Ioctl::Reset => node.drive.reset().map(|()| 0).map_err(|_| Errno::IO),
        Ioctl::SubsystemReset => reset_subsystem(&node.drive),
        Ioctl::Rescan => Ok(0),
        Ioctl::Io(Form::Long | Form::Vectors) if is_controller => Err(Errno::NOTTY),
        Ioctl::Io(form) => {
            if is_controller {
                match node.drive.session().map_err(|_| Errno::NOTTY)?.facts.namespaces {
                    0 => return Err(Errno::NOTTY),
                    1 => {}
                    _ => return Err(Errno::INVAL),
                }
            }
            command(node, caller, QueueKind::Io, form, argument, memory)
        }
        Ioctl::Admin(form) => command(node, caller, QueueKind::Admin, form, argument, memory),
    }
}

fn reset_subsystem(drive: &Drive) -> Result<i32, Errno> {
    let session = drive.session().map_err(|_| Errno::IO)?;
    if !session.facts.capabilities.subsystem_reset() {
        return Err(Errno::NOTTY);
    }
    let set = kvdrive_nvme::fabrics::Fabrics::PropertySet {
        wide: false,
        offset: property::NSSR,
        value: SUBSYSTEM_RESET,
    };
    // The controller goes away with it, so nothing need be said.
    let _ = drive.command(QueueKind::Admin, set.encode(0), Data::None, ADMIN_TIMEOUT);
    Ok(0)
}

fn command(
    node: &Node,
    caller: Caller,
    set: QueueKind,
    form: Form,
    argument: u64,
    memory: &dyn Memory,
) -> Result<i32, Errno> {
    let mut bytes = [0; 80];
    let bytes = &mut bytes[..form.bytes()];
    memory.read(argument, bytes)?;
    let (command, _) = Passthrough::read_from_prefix(bytes).expect("it has its size");
    if command.flags != 0 {
        return Err(Errno::INVAL);
    }
    let session = match node.drive.session() {
        Ok(session) => session,
        Err(_) => return Ok(HOST_PATH_ERROR),
    };
    if set == QueueKind::Io && command.nsid.get() != session.facts.nsid {
        return Err(Errno::INVAL);
    }
    if !caller.privileged && !rights::may(set, &command, caller.writable, &node.drive) {
        return Err(Errno::ACCESS);
    }
    let buffers = Buffers::of(&command, form, session.facts.transfer_max_bytes, memory)?;
    drop(session);
    let (status, result) = match exchange(&node.drive, set, &command, &buffers, memory)? {
        Some(cqe) => {
            let status = u16::from_le_bytes([cqe.as_bytes()[14], cqe.as_bytes()[15]]) >> 1;
            (i32::from(status), u64::from(cqe.dw1.get()) << 32 | u64::from(cqe.dw0.get()))
        }
        None => (HOST_PATH_ERROR, 0),
    };
    let (at, result) = form.result(result);
    memory.write(argument.wrapping_add(at), &result)?;
    Ok(status)
}

/// Carries a command with its data to the drive and back; `None`: the drive cannot be reached.
fn exchange(
    drive: &Drive,
    set: QueueKind,
    command: &Passthrough,
    buffers: &Buffers,
    memory: &dyn Memory,
) -> Result<Option<Cqe>, Errno> {
    let entry: Sqe = command.entry();
    let timeout = match (command.timeout_ms.get(), set) {
        (0, QueueKind::Admin) => ADMIN_TIMEOUT,
        (0, QueueKind::Io) => IO_TIMEOUT,
        (ms, _) => Duration::from_millis(ms.into()),
    };
    let is_to_drive = command.is_to_drive();
    let mut outgoing: Vec<u8>;
    let data = match (buffers.bytes, is_to_drive) {
        (0, _) => Data::None,
        (bytes, true) => {
            // Zeros that the system makes when they are touched: a length that lies costs nothing.
            outgoing = vec![0; usize::try_from(bytes).map_err(|_| Errno::INVAL)?];
            buffers.gather(memory, &mut outgoing)?;
            Data::Out(&outgoing)
        }
        (bytes, false) => {
            buffers.pieces.iter().try_for_each(|(address, bytes)| memory.expect(*address, *bytes))?;
            Data::In(u32::try_from(bytes).map_err(|_| Errno::INVAL)?)
        }
    };
    match drive.command(set, entry, data, timeout) {
        Ok(completed) => {
            if !is_to_drive {
                buffers.scatter(memory, completed.data)?;
            }
            Ok(Some(completed.cqe))
        }
        Err(NoStatus::Unreachable) => Ok(None),
        Err(NoStatus::Cancelled) => Err(Errno::INTR),
    }
}

impl Buffers {
    /// Those of a command: none if its address or its length is 0.
    fn of(command: &Passthrough, form: Form, most_bytes: u64, memory: &dyn Memory) -> Result<Buffers, Errno> {
        let (address, length) = (command.address.get(), command.data_len.get());
        let mut pieces = Vec::new();
        if address != 0 && length != 0 {
            if command.metadata.get() != 0 && command.metadata_bytes.get() != 0 {
                return Err(Errno::INVAL);
            }
            match form {
                Form::Vectors if length > VECTORS_MAX => return Err(Errno::INVAL),
                Form::Vectors => {
                    let mut vectors = vec![IoVector::new_zeroed(); length as usize];
                    memory.read(address, vectors.as_mut_bytes())?;
                    pieces.extend(vectors.iter().map(|it| (it.address.get(), it.bytes.get())));
                    pieces.retain(|(_, bytes)| *bytes > 0);
                }
                Form::Short | Form::Long => pieces.push((address, length.into())),
            }
        }
        let sum = pieces.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        let bytes =
            sum.filter(|sum| *sum <= most_bytes && *sum <= u64::from(u32::MAX)).ok_or(Errno::INVAL)?;
        Ok(Buffers { pieces, bytes })
    }

    fn gather(&self, memory: &dyn Memory, mut into: &mut [u8]) -> Result<(), Errno> {
        for (address, bytes) in &self.pieces {
            let (piece, rest) = into.split_at_mut(*bytes as usize);
            memory.read(*address, piece)?;
            into = rest;
        }
        Ok(())
    }

    /// Writes the received data. After it, memory that Linux would have copied to is zero, and other memory as it was.
    fn scatter(&self, memory: &dyn Memory, mut from: Vec<u8>) -> Result<(), Errno> {
        let is_odd = |(address, bytes): &(u64, u64)| (address | bytes) % DMA_ALIGNMENT != 0;
        if self.pieces.iter().any(is_odd) {
            from.resize(self.bytes as usize, 0);
        }
        let mut from = &from[..];
        for (address, bytes) in &self.pieces {
            let (piece, rest) = from.split_at(from.len().min(*bytes as usize));
            memory.write(*address, piece)?;
            from = rest;
        }
        Ok(())
    }
}
