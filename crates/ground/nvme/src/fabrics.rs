//! Fabrics commands: how a host on a network reaches a controller's queues and properties (opcode 7Fh).
//!
//! ```text
//!  byte   0     1      2     4        5         24          40                     64
//!       +-----+------+-----+--------+----------+-----------+----------------------+
//!       | 7Fh | PSDT | CID | FCTYPE | reserved | SGL 1     | of the type          |
//!       +-----+------+-----+--------+----------+-----------+----------------------+
//!
//!  FCTYPE                  40          42    44      46      48
//!  01h  Connect            RECFMT 0    QID   SQSIZE  CATTR   KATO, ms      1024 bytes of data
//!  04h  Property Get       attribute   -     offset  -       -
//!  00h  Property Set       attribute   -     offset  -       value, 8 bytes
//!  08h  Disconnect         RECFMT 0    -     -       -       -
//!
//!  FCTYPE                  41          42    43      44
//!  05h  Auth. Send         SPSP0 1     SPSP1 1  SECP E9h  length    a message of that length
//!  06h  Auth. Receive      SPSP0 1     SPSP1 1  SECP E9h  length    room for one
//! ```
//!
//! Bits 1:0 of FCTYPE give the direction of the data, as those of an opcode do. Messages are laid out in
//! [`crate::auth`]. SQSIZE is 0's based.
//!
//! This module checks an entry by itself; it does not check whether the controller or queue exists.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::auth;
use crate::opcode;
use crate::sqe::Sqe;
use crate::status::Status;

/// Types of Fabrics commands (byte 4 of the entry).
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect: ends one I/O queue.
    pub const DISCONNECT: u8 = 0x08;
}

/// Name of the discovery subsystem that every port has.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Longest NVMe qualified name in bytes, without the terminating zero.
pub const NQN_MAX_BYTES: usize = 223;
/// Controller identifier in a Connect that leaves the choice to the subsystem.
pub const ANY_CONTROLLER: u16 = 0xFFFF;
/// SQHD of a queue whose host disabled flow control.
pub const NO_FLOW_CONTROL_HEAD: u16 = 0xFFFF;

/// The fields of a Connect's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// RECFMT: format of the data; only 0 is defined.
    pub record_format: u16,
    /// Queue identifier; 0 is the admin queue.
    pub queue_id: u16,
    /// SQSIZE: entries of the queue, 0's based.
    pub entries_z: u16,
    /// CATTR; bit 2: no flow control of the submission queue.
    pub attributes: u8,
    /// KATO: keep-alive timeout of the controller, ms; 0: none.
    pub keep_alive_ms: u32,
}

impl Connect {
    /// CATTR bit 2: the host does not use the queue's head.
    pub const NO_FLOW_CONTROL: u8 = 1 << 2;
    /// Byte of the entry that names the queue, for "invalid parameters".
    pub const QUEUE_ID_AT: u16 = 42;
    /// Byte of the entry with the queue's size.
    pub const ENTRIES_AT: u16 = 44;
}

/// A Fabrics command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fabrics {
    /// Makes this connection a queue of a controller.
    Connect(Connect),
    /// Reads a property.
    PropertyGet {
        /// Eight bytes, not four.
        wide: bool,
        /// Offset of the property ([`crate::property`]).
        offset: u32,
    },
    /// Writes a property.
    PropertySet {
        /// Eight bytes, not four.
        wide: bool,
        /// Offset of the property ([`crate::property`]).
        offset: u32,
        /// The value; for a property of four bytes the low half counts.
        value: u64,
    },
    /// Sends an authentication message.
    AuthenticationSend {
        /// Its length, bytes.
        bytes: u32,
    },
    /// Asks for an authentication message.
    AuthenticationReceive {
        /// Room for it, bytes.
        bytes: u32,
    },
    /// Ends this I/O queue.
    Disconnect,
}

/// The type of a Fabrics command, with the direction in bits 1:0.
#[inline]
#[must_use]
pub fn fctype_of(sqe: &Sqe) -> u8 {
    sqe.nsid.get() as u8
}

impl Fabrics {
    /// Decodes an entry with opcode 7Fh.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`] for another type; [`Status::INVALID_FIELD`] for a property size or a
    /// security protocol that does not exist.
    pub fn decode(sqe: &Sqe) -> Result<Fabrics, Status> {
        let wide = match sqe.cdw10.get() & 0b111 {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Status::INVALID_FIELD),
        };
        let authentication = || {
            let [_, specific @ .., protocol] = sqe.cdw10.get().to_le_bytes();
            let is_ours = protocol == auth::SECURITY_PROTOCOL && specific == [auth::PROTOCOL_SPECIFIC; 2];
            if is_ours { Ok(sqe.cdw11.get()) } else { Err(Status::INVALID_FIELD) }
        };
        match fctype_of(sqe) {
            fctype::CONNECT => Ok(Fabrics::Connect(Connect {
                record_format: sqe.cdw10.get() as u16,
                queue_id: (sqe.cdw10.get() >> 16) as u16,
                entries_z: sqe.cdw11.get() as u16,
                attributes: (sqe.cdw11.get() >> 16) as u8,
                keep_alive_ms: sqe.cdw12.get(),
            })),
            fctype::PROPERTY_GET => Ok(Fabrics::PropertyGet { wide: wide?, offset: sqe.cdw11.get() }),
            fctype::PROPERTY_SET => Ok(Fabrics::PropertySet {
                wide: wide?,
                offset: sqe.cdw11.get(),
                value: u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get()),
            }),
            fctype::AUTHENTICATION_SEND => Ok(Fabrics::AuthenticationSend { bytes: authentication()? }),
            fctype::AUTHENTICATION_RECEIVE => Ok(Fabrics::AuthenticationReceive { bytes: authentication()? }),
            fctype::DISCONNECT => Ok(Fabrics::Disconnect),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// The entry of this command. The data pointer is zero.
    #[must_use]
    pub fn encode(&self, cid: u16) -> Sqe {
        let kind = match self {
            Fabrics::Connect(_) => fctype::CONNECT,
            Fabrics::PropertyGet { .. } => fctype::PROPERTY_GET,
            Fabrics::PropertySet { .. } => fctype::PROPERTY_SET,
            Fabrics::AuthenticationSend { .. } => fctype::AUTHENTICATION_SEND,
            Fabrics::AuthenticationReceive { .. } => fctype::AUTHENTICATION_RECEIVE,
            Fabrics::Disconnect => fctype::DISCONNECT,
        };
        let mut sqe = Sqe::new(opcode::FABRICS, cid, u32::from(kind));
        match *self {
            Fabrics::Connect(connect) => {
                sqe.cdw10 = U32::new(u32::from(connect.queue_id) << 16 | u32::from(connect.record_format));
                sqe.cdw11 = U32::new(u32::from(connect.attributes) << 16 | u32::from(connect.entries_z));
                sqe.cdw12 = U32::new(connect.keep_alive_ms);
            }
            Fabrics::PropertyGet { wide, offset } => {
                sqe.cdw10 = U32::new(u32::from(wide));
                sqe.cdw11 = U32::new(offset);
            }
            Fabrics::PropertySet { wide, offset, value } => {
                sqe.cdw10 = U32::new(u32::from(wide));
                sqe.cdw11 = U32::new(offset);
                sqe.cdw12 = U32::new(value as u32);
                sqe.cdw13 = U32::new((value >> 32) as u32);
            }
            Fabrics::AuthenticationSend { bytes } | Fabrics::AuthenticationReceive { bytes } => {
                let specific = auth::PROTOCOL_SPECIFIC;
                sqe.cdw10 = U32::from([0, specific, specific, auth::SECURITY_PROTOCOL]);
                sqe.cdw11 = U32::new(bytes);
            }
            Fabrics::Disconnect => {}
        }
        sqe
    }
}

/// The data of a Connect: 1024 bytes.
///
/// ```text
///  byte 0                16       18         256       512        768        1024
///     +-----------------+--------+----------+---------+----------+----------+
///     | host identifier | CNTLID | reserved | SUBNQN  | HOSTNQN  | reserved |
///     +-----------------+--------+----------+---------+----------+----------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConnectData {
    /// Host identifier: it identifies the machine, which may have several names.
    pub host_id: [u8; 16],
    /// CNTLID: [`ANY_CONTROLLER`] for an admin queue, the controller's own for an I/O queue.
    pub controller_id: U16,
    /// Zero.
    pub reserved_18: [u8; 238],
    /// SUBNQN: the subsystem's name, zero padded.
    pub subsystem_nqn: [u8; 256],
    /// HOSTNQN: the host's name, zero padded.
    pub host_nqn: [u8; 256],
    /// Zero.
    pub reserved_768: [u8; 256],
}

impl ConnectData {
    /// Size in bytes.
    pub const BYTES: usize = 1024;
    /// Byte of the data that names the controller, for "invalid parameters".
    pub const CONTROLLER_ID_AT: u16 = 16;
    /// Byte of the data that names the subsystem.
    pub const SUBSYSTEM_NQN_AT: u16 = 256;
    /// Byte of the data that names the host.
    pub const HOST_NQN_AT: u16 = 512;
}

/// The name in a field of 256 bytes; `None` if the field is not zero terminated, or the name is empty, too
/// long, not UTF-8, or does not start with "nqn.".
#[must_use]
pub fn nqn(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&field[..end]).ok()?;
    (name.len() <= NQN_MAX_BYTES && name.starts_with("nqn.")).then_some(name)
}

/// A name in a field of 256 bytes; `None` if it is too long.
#[must_use]
pub fn nqn_field(name: &str) -> Option<[u8; 256]> {
    let mut field = [0; 256];
    field.get_mut(..name.len()).filter(|_| name.len() <= NQN_MAX_BYTES)?.copy_from_slice(name.as_bytes());
    Some(field)
}

/// Dword 0 of a refused Connect ([`Status::CONNECT_INVALID_PARAMETERS`]): which byte of the data or of the
/// entry is wrong.
#[must_use]
pub fn invalid_parameter(at: u16, in_data: bool) -> u32 {
    u32::from(in_data) << 16 | u32::from(at)
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ConnectData>() == ConnectData::BYTES);
    assert!(offset_of!(ConnectData, controller_id) == 16);
    assert!(offset_of!(ConnectData, subsystem_nqn) == 256);
    assert!(offset_of!(ConnectData, host_nqn) == 512);
};
