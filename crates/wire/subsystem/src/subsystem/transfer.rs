//! How many bytes a command moves, in which direction, and where its descriptor puts them. The rules are the
//! same for every transport with capsules.

use kvdrive_nvme::fabrics::{fctype, fctype_of};
use kvdrive_nvme::opcode::{self, Direction};
use kvdrive_nvme::{Psdt, SglDescriptor, Sqe, Status};

/// Most bytes that a command moves with memory for all of them. Larger ones cross only networks, part by part
/// (`tcp/connection/parts.rs`).
pub const WHOLE_MAX_BYTES: u32 = 2 << 20;

/// The data of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// No data.
    None,
    /// The data came in the capsule.
    InCapsule {
        /// Offset of the data in the capsule's data, bytes.
        offset: u32,
        /// Length, bytes.
        bytes: u32,
    },
    /// The host holds the data until the controller asks for them.
    FromHost {
        /// Length, bytes.
        bytes: u32,
    },
    /// The answer goes to the host.
    ToHost {
        /// Room for the answer at the host, bytes.
        bytes: u32,
    },
}

impl Transfer {
    /// Memory that the command needs, bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Transfer::None => 0,
            Transfer::InCapsule { bytes, .. } | Transfer::FromHost { bytes } | Transfer::ToHost { bytes } => {
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
        // `Subsystem::fabrics` refuses unknown command types.
        _ => Direction::None,
    }
}

/// The data transfer that `sqe` describes, of at most `limit_bytes`.
///
/// # Errors
/// The status that the base specification has for the descriptor or the length. The descriptor of a command
/// without data is ignored: an inline command has bytes of its value there.
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
        // Some hosts encode "no data" like this.
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
        (Direction::ToDrive, true) => {
            let offset = u32::try_from(descriptor.address.get()).map_err(|_| Status::SGL_OFFSET_INVALID)?;
            Ok(Transfer::InCapsule { offset, bytes })
        }
        (Direction::ToDrive, false) => Ok(Transfer::FromHost { bytes }),
        (Direction::ToHost, false) => Ok(Transfer::ToHost { bytes }),
        (Direction::ToHost, true) => Err(Status::SGL_TYPE_INVALID),
        // No command here moves data in both directions.
        (Direction::Both | Direction::None, _) => Err(Status::INVALID_OPCODE),
    }
}
