//! The result of a command: status code type (SCT) and status code (SC) in one number, with names.
//!
//! ```text
//!   15 .. 11   10 .. 8   7 .. 0
//!  +---------+---------+--------+
//!  |    0    |   SCT   |   SC   |     87h = SCT 0, SC 87h;  7D0h = SCT 7 (vendor), SC D0h
//!  +---------+---------+--------+
//! ```
//!
//! Phase, "more" and "do not retry" are bits of the completion entry and not of a [`Status`]; they
//! are laid out in [`crate::cqe`]. Sources: NVMe base specification (SCT 0 below 80h, SCT 1; 180h to 185h are of Fabrics), KV
//! command set (85h..89h), vendor codes ours. The released BandSlim firmware answers 7C1h for a
//! missing key; the standard has 87h for that, so C1h stays unused here.

use std::fmt;

/// A status: `SCT << 8 | SC`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// One row of [`Status::table`].
#[derive(Clone, Copy, Debug)]
pub struct StatusRow {
    /// The status.
    pub status: Status,
    /// Its name in lower case, as the specification words it where it has one.
    pub name: &'static str,
}

impl Status {
    /// The command succeeded.
    pub const SUCCESS: Status = Status(0x00);
    /// 01h: no such opcode here.
    pub const INVALID_OPCODE: Status = Status(0x01);
    /// 02h: a field has a value it must not have.
    pub const INVALID_FIELD: Status = Status(0x02);
    /// 03h: a command with this identifier is under way on the queue.
    pub const CID_CONFLICT: Status = Status(0x03);
    /// 04h: moving data or metadata failed.
    pub const DATA_TRANSFER_ERROR: Status = Status(0x04);
    /// 05h: aborted because power is going away.
    pub const ABORTED_POWER_LOSS: Status = Status(0x05);
    /// 06h: the drive is at fault.
    pub const INTERNAL: Status = Status(0x06);
    /// 07h: aborted on request.
    pub const ABORT_REQUESTED: Status = Status(0x07);
    /// 08h: aborted because its submission queue was deleted.
    pub const ABORTED_SQ_DELETION: Status = Status(0x08);
    /// 0Bh: no such namespace, or the command does not match its format.
    pub const INVALID_NAMESPACE: Status = Status(0x0B);
    /// 0Ch: out of order. A *transfer* without a value begun, or a command that broke into one.
    pub const COMMAND_SEQUENCE_ERROR: Status = Status(0x0C);
    /// 0Dh: an SGL segment descriptor is malformed.
    pub const INVALID_SGL_DESCRIPTOR: Status = Status(0x0D);
    /// 0Fh: the SGL describes more or fewer bytes than the command moves.
    pub const SGL_LENGTH_INVALID: Status = Status(0x0F);
    /// 11h: an SGL descriptor type that is not supported here.
    pub const SGL_TYPE_INVALID: Status = Status(0x11);
    /// 13h: a PRP entry has a page offset it must not have.
    pub const PRP_OFFSET_INVALID: Status = Status(0x13);
    /// 16h: the data of a descriptor with an offset do not lie inside the capsule.
    pub const SGL_OFFSET_INVALID: Status = Status(0x16);
    /// 20h: the namespace is write protected; reads continue.
    pub const NAMESPACE_WRITE_PROTECTED: Status = Status(0x20);
    /// 21h: interrupted for a temporary reason; try again.
    pub const COMMAND_INTERRUPTED: Status = Status(0x21);
    /// 22h: a transport error; the same command may succeed when it is sent again.
    pub const TRANSIENT_TRANSPORT_ERROR: Status = Status(0x22);
    /// 80h: blocks beyond the end of the namespace.
    pub const LBA_OUT_OF_RANGE: Status = Status(0x80);
    /// 81h: no room for this pair.
    pub const CAPACITY_EXCEEDED: Status = Status(0x81);
    /// 82h: the namespace cannot be used yet.
    pub const NAMESPACE_NOT_READY: Status = Status(0x82);
    /// 84h: the namespace is being formatted.
    pub const FORMAT_IN_PROGRESS: Status = Status(0x84);
    /// 85h: a value size outside the limits of the KV format.
    pub const INVALID_VALUE_SIZE: Status = Status(0x85);
    /// 86h: a key size outside the limits of the KV format.
    pub const INVALID_KEY_SIZE: Status = Status(0x86);
    /// 87h: no pair has this key.
    pub const KEY_NOT_FOUND: Status = Status(0x87);
    /// 88h: the pair exists but cannot be read any more.
    pub const UNRECOVERED_ERROR: Status = Status(0x88);
    /// 89h: a pair with this key exists.
    pub const KEY_EXISTS: Status = Status(0x89);

    /// 100h (SCT 1): Create I/O Submission Queue names a completion queue that is not there.
    pub const COMPLETION_QUEUE_INVALID: Status = Status(0x100);
    /// 101h (SCT 1): a queue identifier out of range or in use.
    pub const INVALID_QUEUE_ID: Status = Status(0x101);
    /// 102h (SCT 1): a queue size out of range.
    pub const INVALID_QUEUE_SIZE: Status = Status(0x102);
    /// 105h (SCT 1): more Asynchronous Event Requests than Identify allows.
    pub const ASYNC_EVENT_LIMIT: Status = Status(0x105);
    /// 108h (SCT 1): no such interrupt vector.
    pub const INVALID_INTERRUPT_VECTOR: Status = Status(0x108);
    /// 109h (SCT 1): no such log page.
    pub const INVALID_LOG_PAGE: Status = Status(0x109);
    /// 10Ah (SCT 1): no such format of the namespace.
    pub const INVALID_FORMAT: Status = Status(0x10A);
    /// 10Ch (SCT 1): a completion queue is deleted before its submission queues.
    pub const INVALID_QUEUE_DELETION: Status = Status(0x10C);

    /// 10Dh (SCT 1): a feature that is not kept over power cycles.
    pub const FEATURE_NOT_SAVEABLE: Status = Status(0x10D);
    /// 10Eh (SCT 1): a feature whose value stays as it is.
    pub const FEATURE_NOT_CHANGEABLE: Status = Status(0x10E);

    /// 180h (SCT 1): a Connect in an unknown format.
    pub const CONNECT_FORMAT: Status = Status(0x180);
    /// 181h (SCT 1): the controller, or every one of them, is in use.
    pub const CONTROLLER_BUSY: Status = Status(0x181);
    /// 182h (SCT 1): a Connect with invalid parameters; dword 0 names the byte
    /// ([`crate::fabrics::invalid_parameter`]).
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x182);
    /// 184h (SCT 1): this host may not use this subsystem.
    pub const CONNECT_INVALID_HOST: Status = Status(0x184);
    /// 185h (SCT 1): not on this type of queue.
    pub const INVALID_QUEUE_TYPE: Status = Status(0x185);
    /// 191h (SCT 1): the host of this queue has not authenticated.
    pub const AUTHENTICATION_REQUIRED: Status = Status(0x191);
    /// 281h (SCT 2): the blocks exist but cannot be read any more.
    pub const UNRECOVERED_READ_ERROR: Status = Status(0x281);

    /// 370h (SCT 3): the host has no way to the drive. Drivers say it; no drive answers it.
    pub const HOST_PATH_ERROR: Status = Status(0x370);

    /// 7D0h (vendor): no iterator with this number is open.
    pub const NO_SUCH_ITERATOR: Status = Status(0x7D0);
    /// 7D1h (vendor): no more iterators can be open at a time.
    pub const TOO_MANY_ITERATORS: Status = Status(0x7D1);
    /// 7D2h (vendor): the value has left the page buffer, and this run has its NAND switched off.
    pub const VALUE_NOT_RESIDENT: Status = Status(0x7D2);
    /// 7D3h (vendor): the CXL window named by generation and offset is not the present one; the completion
    /// gives the window to use.
    pub const STALE_WINDOW: Status = Status(0x7D3);
    /// 7D4h (vendor): more has changed since the iterator was opened than the drive keeps. The iterator is
    /// closed; the host may open another one at the last key it received.
    pub const ITERATOR_LOST: Status = Status(0x7D4);

    /// The status of a status code type (its low 3 bits count, as in a completion) and a code.
    #[inline]
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status(((sct & 0b111) as u16) << 8 | sc as u16)
    }

    /// `SCT << 8 | SC`.
    #[inline]
    #[must_use]
    pub const fn raw(self) -> u16 {
        self.0
    }

    /// Status code type.
    #[inline]
    #[must_use]
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Status code.
    #[inline]
    #[must_use]
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether the command succeeded.
    #[inline]
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Whether a completion with this status sets "do not retry": the same command must be expected to fail
    /// again. Clear for success and for temporary conditions.
    #[inline]
    #[must_use]
    pub const fn do_not_retry(self) -> bool {
        !matches!(
            self,
            Status::SUCCESS
                | Status::DATA_TRANSFER_ERROR
                | Status::ABORTED_POWER_LOSS
                | Status::INTERNAL
                | Status::ABORT_REQUESTED
                | Status::ABORTED_SQ_DELETION
                | Status::COMMAND_SEQUENCE_ERROR
                | Status::COMMAND_INTERRUPTED
                | Status::TRANSIENT_TRANSPORT_ERROR
                | Status::CONTROLLER_BUSY
                | Status::NAMESPACE_NOT_READY
                | Status::FORMAT_IN_PROGRESS
                | Status::TOO_MANY_ITERATORS
        )
    }

    /// Every status this drive can answer, ascending.
    #[must_use]
    pub const fn table() -> &'static [StatusRow] {
        &TABLE
    }

    /// The name of this status; `None` if this drive never answers with it.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let row = TABLE.binary_search_by_key(&self.0, |row| row.status.0).ok()?;
        Some(TABLE[row].name)
    }
}

const fn row(status: Status, name: &'static str) -> StatusRow {
    StatusRow { status, name }
}

const TABLE: [StatusRow; 51] = [
    row(Status::SUCCESS, "success"),
    row(Status::INVALID_OPCODE, "invalid command opcode"),
    row(Status::INVALID_FIELD, "invalid field in command"),
    row(Status::CID_CONFLICT, "command identifier conflict"),
    row(Status::DATA_TRANSFER_ERROR, "data transfer error"),
    row(Status::ABORTED_POWER_LOSS, "aborted due to power loss notification"),
    row(Status::INTERNAL, "internal error"),
    row(Status::ABORT_REQUESTED, "command abort requested"),
    row(Status::ABORTED_SQ_DELETION, "aborted due to submission queue deletion"),
    row(Status::INVALID_NAMESPACE, "invalid namespace or format"),
    row(Status::COMMAND_SEQUENCE_ERROR, "command sequence error"),
    row(Status::INVALID_SGL_DESCRIPTOR, "invalid SGL segment descriptor"),
    row(Status::SGL_LENGTH_INVALID, "data SGL length invalid"),
    row(Status::SGL_TYPE_INVALID, "SGL descriptor type invalid"),
    row(Status::PRP_OFFSET_INVALID, "PRP offset invalid"),
    row(Status::SGL_OFFSET_INVALID, "SGL offset invalid"),
    row(Status::NAMESPACE_WRITE_PROTECTED, "namespace is write protected"),
    row(Status::COMMAND_INTERRUPTED, "command interrupted"),
    row(Status::TRANSIENT_TRANSPORT_ERROR, "transient transport error"),
    row(Status::LBA_OUT_OF_RANGE, "LBA out of range"),
    row(Status::CAPACITY_EXCEEDED, "capacity exceeded"),
    row(Status::NAMESPACE_NOT_READY, "namespace not ready"),
    row(Status::FORMAT_IN_PROGRESS, "format in progress"),
    row(Status::INVALID_VALUE_SIZE, "invalid value size"),
    row(Status::INVALID_KEY_SIZE, "invalid key size"),
    row(Status::KEY_NOT_FOUND, "key does not exist"),
    row(Status::UNRECOVERED_ERROR, "unrecovered error"),
    row(Status::KEY_EXISTS, "key exists"),
    row(Status::COMPLETION_QUEUE_INVALID, "completion queue invalid"),
    row(Status::INVALID_QUEUE_ID, "invalid queue identifier"),
    row(Status::INVALID_QUEUE_SIZE, "invalid queue size"),
    row(Status::ASYNC_EVENT_LIMIT, "asynchronous event request limit exceeded"),
    row(Status::INVALID_INTERRUPT_VECTOR, "invalid interrupt vector"),
    row(Status::INVALID_LOG_PAGE, "invalid log page"),
    row(Status::INVALID_FORMAT, "invalid format"),
    row(Status::INVALID_QUEUE_DELETION, "invalid queue deletion"),
    row(Status::FEATURE_NOT_SAVEABLE, "feature identifier not saveable"),
    row(Status::FEATURE_NOT_CHANGEABLE, "feature not changeable"),
    row(Status::CONNECT_FORMAT, "connect incompatible format"),
    row(Status::CONTROLLER_BUSY, "controller busy"),
    row(Status::CONNECT_INVALID_PARAMETERS, "connect invalid parameters"),
    row(Status::CONNECT_INVALID_HOST, "connect invalid host"),
    row(Status::INVALID_QUEUE_TYPE, "invalid queue type"),
    row(Status::AUTHENTICATION_REQUIRED, "authentication required"),
    row(Status::UNRECOVERED_READ_ERROR, "unrecovered read error"),
    row(Status::HOST_PATH_ERROR, "host pathing error"),
    row(Status::NO_SUCH_ITERATOR, "no such iterator"),
    row(Status::TOO_MANY_ITERATORS, "too many iterators"),
    row(Status::VALUE_NOT_RESIDENT, "value not resident"),
    row(Status::STALE_WINDOW, "stale window"),
    row(Status::ITERATOR_LOST, "iterator lost"),
];

// `name` uses binary search, and a completion has 11 bits for a status.
const _: () = {
    let mut at = 1;
    while at < TABLE.len() {
        assert!(TABLE[at - 1].status.0 < TABLE[at].status.0, "status rows do not ascend");
        assert!(TABLE[at].status.0 < 1 << 11, "a status has 11 bits");
        at += 1;
    }
};

/// Name and number: `key does not exist (87h)`; an unknown one is `status 7FFh`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:02X}h)", self.0),
            None => write!(f, "status {:02X}h", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

impl std::error::Error for Status {}
