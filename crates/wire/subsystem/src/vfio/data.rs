//! The data of a guest's command: how many bytes there are, where they lie, and copies of them.

use kvdrive_link::prp::Segments;
use kvdrive_link::{BadAddress, prp, sgl};
use kvdrive_nvme::identify::IDENTIFY_BYTES;
use kvdrive_nvme::log::LogRequest;
use kvdrive_nvme::opcode::{self, Direction, admin};
use kvdrive_nvme::{Psdt, Sqe, Status, feature};

use super::memory::GuestMemory;

/// Bytes of a host identifier of 128 bits.
const HOST_ID_BYTES: u64 = 16;

/// How many bytes a command moves: of an admin command as its definition says, of an I/O command as dword 10 does.
pub fn bytes_of(sqe: &Sqe, is_admin: bool) -> u64 {
    if opcode::direction(sqe.opcode) == Direction::None {
        return 0;
    }
    match sqe.opcode {
        _ if !is_admin => u64::from(sqe.cdw10.get()),
        admin::IDENTIFY => IDENTIFY_BYTES as u64,
        admin::GET_LOG_PAGE => LogRequest::of(sqe).bytes,
        admin::GET_FEATURES if sqe.cdw10.get() as u8 == feature::HOST_ID => HOST_ID_BYTES,
        _ => 0,
    }
}

/// Where the data of a command lie.
///
/// # Errors
/// What is wrong with the data pointer.
pub fn locate(sqe: &Sqe, bytes: u32, is_admin: bool, memory: &GuestMemory) -> Result<Segments, Status> {
    let fetch_list = &mut |address, into: &mut [u8]| memory.read(address, into);
    match sqe.psdt()? {
        Psdt::Prp => prp::walk(sqe, bytes, bytes, fetch_list),
        // By a PCI function, admin commands have PRPs.
        Psdt::Sgl | Psdt::SglMetadata if is_admin => Err(Status::INVALID_FIELD),
        Psdt::Sgl | Psdt::SglMetadata => sgl::walk(sqe, bytes, fetch_list),
    }
}

/// Copies data of a guest.
///
/// # Errors
/// They are not mapped, or not all.
pub fn copy_from(memory: &GuestMemory, segments: &Segments, into: &mut [u8]) -> Result<(), BadAddress> {
    let mut rest = into;
    for segment in segments.iter() {
        let (here, later) = rest.split_at_mut(segment.bytes as usize);
        memory.read(segment.address, here)?;
        rest = later;
    }
    Ok(())
}

/// Copies an answer, which may be shorter than the memory for it, to a guest.
///
/// # Errors
/// The memory is not mapped, or not all that is needed. Some of the answer may be there.
pub fn copy_to(memory: &GuestMemory, segments: &Segments, from: &[u8]) -> Result<(), BadAddress> {
    let mut rest = from;
    for segment in segments.iter() {
        let (here, later) = rest.split_at(rest.len().min(segment.bytes as usize));
        memory.write(segment.address, here)?;
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    Ok(())
}
