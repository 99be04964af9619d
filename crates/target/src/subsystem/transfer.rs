//! How much data a command moves, which way, and where its descriptor says they are. The same for every
//! transport that carries capsules.

use kvdrive_spec::fabrics::{fctype, fctype_of};
use kvdrive_spec::opcode::{self, Direction};
use kvdrive_spec::{Psdt, SglDescriptor, Sqe, Status};

/// The data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// There are none.
    None,
    /// They came with the command.
    InCapsule {
        /// How many bytes.
        bytes: u32,
    },
    /// The host has them and waits to be asked.
    FromHost {
        /// How many bytes.
        bytes: u32,
    },
    /// The answer's, at most.
    ToHost {
        /// How many bytes the host has room for.
        bytes: u32,
    },
}

impl Transfer {
    /// How many bytes of memory the command needs.
    pub fn bytes(self) -> u32 {
        match self {
            Transfer::None => 0,
            Transfer::InCapsule { bytes } | Transfer::FromHost { bytes } | Transfer::ToHost { bytes } => {
                bytes
            }
        }
    }
}

/// The direction of a command's data.
fn direction(sqe: &Sqe) -> Direction {
    if sqe.opcode != opcode::FABRICS {
        return opcode::direction(sqe.opcode);
    }
    match fctype_of(sqe) {
        kind @ (fctype::CONNECT
        | fctype::PROPERTY_GET
        | fctype::PROPERTY_SET
        | fctype::AUTHENTICATION_SEND
        | fctype::AUTHENTICATION_RECEIVE
        | fctype::DISCONNECT) => opcode::direction(kind),
        // Unknown types are refused by who knows the others.
        _ => Direction::None,
    }
}

/// What `sqe` says of its data, of which there may be `limit_bytes`.
///
/// # Errors
/// The status of the descriptor or the length, as the base specification has it. Of a command without data
/// the descriptor is not looked at: an inline command has bytes of a value there.
pub fn transfer(sqe: &Sqe, limit_bytes: u32) -> Result<Transfer, Status> {
    let direction = direction(sqe);
    if direction == Direction::None {
        return Ok(Transfer::None);
    }
    if sqe.psdt()? == Psdt::Prp {
        return Err(Status::INVALID_FIELD);
    }
    let descriptor = sqe.sgl();
    let bytes = descriptor.length.get();
    let in_capsule = match descriptor.kind {
        SglDescriptor::DATA_BLOCK_OFFSET => true,
        SglDescriptor::TRANSPORT => false,
        // "No data", as some hosts say it.
        SglDescriptor::DATA_BLOCK if bytes == 0 => false,
        _ => return Err(Status::SGL_TYPE_INVALID),
    };
    if bytes == 0 {
        return Ok(Transfer::None);
    }
    if bytes > limit_bytes {
        return Err(Status::INVALID_FIELD);
    }
    match (direction, in_capsule) {
        (Direction::ToDrive, true) if descriptor.address.get() != 0 => Err(Status::SGL_OFFSET_INVALID),
        (Direction::ToDrive, true) => Ok(Transfer::InCapsule { bytes }),
        (Direction::ToDrive, false) => Ok(Transfer::FromHost { bytes }),
        (Direction::ToHost, false) => Ok(Transfer::ToHost { bytes }),
        (Direction::ToHost, true) => Err(Status::SGL_TYPE_INVALID),
        // No command here moves data both ways.
        (Direction::Both | Direction::None, _) => Err(Status::INVALID_OPCODE),
    }
}
