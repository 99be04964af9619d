//! The boundary between clauses and the way to a namespace: an entry and its data go out, a completion and the answer's
//! bytes come in. A target does not interpret what it carries.

use std::fmt;

use kvdrive_nvme::{Sqe, Status};

/// The data of a command.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// The command has no data.
    None,
    /// The data go to the controller.
    Out(&'a [u8]),
    /// The answer has room for this many bytes.
    In(u32),
}

/// A completion, and the data that came with it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Dword 0.
    pub dw0: u32,
    /// The data. A target that cannot see how many bytes were transferred gives all of the room, where bytes that did not
    /// arrive are [`UNTOUCHED`].
    pub data: Vec<u8>,
}

/// What room for an answer contains before the answer arrives, for targets whose memory is written by the controller.
pub const UNTOUCHED: u8 = 0xA5;

/// There is no completion: the way to the namespace failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lost {}

/// Why a command has no completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The way to the namespace failed.
    Lost(Lost),
    /// This way cannot send such a command, for this reason; it stands.
    NotSent(String),
}

impl From<Lost> for NoAnswer {
    fn from(lost: Lost) -> NoAnswer {
        NoAnswer::Lost(lost)
    }
}

impl From<NoAnswer> for Lost {
    /// For commands that every way has to carry.
    fn from(why: NoAnswer) -> Lost {
        match why {
            NoAnswer::Lost(lost) => lost,
            NoAnswer::NotSent(reason) => Lost(reason),
        }
    }
}

/// A namespace, and the controller that it is reached by.
///
/// A new way to a namespace is one implementation. An entry comes with opcode, namespace and dwords 2, 3 and 10 to 15; the
/// target sets command identifier and data pointer.
pub trait Target: Send {
    /// What it is, for the report: an address, a path, a profile.
    fn name(&self) -> String;

    /// The namespace.
    fn nsid(&self) -> u32;

    /// Executes a command of the admin queue.
    ///
    /// # Errors
    /// There is no completion.
    fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer>;

    /// Executes a command of an I/O queue.
    ///
    /// # Errors
    /// There is no completion.
    fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer>;

    /// Most bytes that this way moves for one command, besides MDTS.
    fn transfer_max_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Is the controller this host's own, so that it can be ended?
    fn owns_controller(&self) -> bool {
        true
    }

    /// Ends the controller and begins another one, or resets it; one that others use stays, and is reached anew.
    ///
    /// # Errors
    /// There is no way to the namespace any more.
    fn reconnect(&mut self) -> Result<(), Lost>;

    /// Another host of the same namespace, which may be used at the same time; `None`: this way has one host.
    ///
    /// # Errors
    /// There should be one, and it cannot be reached.
    fn another(&self) -> Result<Option<Box<dyn Target>>, Lost> {
        Ok(None)
    }

    /// Cuts the power and gives it back; `false`: that cannot be done from here.
    ///
    /// # Errors
    /// The namespace has not come back.
    fn power_cycle(&mut self) -> Result<bool, Lost> {
        Ok(false)
    }

    /// What only a fabric has; `None`: there is no fabric between host and controller.
    fn fabric(&mut self) -> Option<&mut dyn Fabric> {
        None
    }
}

/// What a host does on a fabric besides commands.
pub trait Fabric {
    /// The identifier that the controller answered to Connect.
    fn controller_id(&self) -> u16;

    /// Reads a property, of 8 bytes if it is `wide`; dword 0 and 1 of the answer.
    ///
    /// # Errors
    /// There is no completion.
    fn property(&mut self, offset: u32, wide: bool) -> Result<(Status, u64), Lost>;

    /// Another host, which asks for digests of headers and data; `padded`: data digests include zeros to a multiple of 4
    /// bytes, as SPDK computes them. Returns which of both were granted.
    ///
    /// # Errors
    /// It cannot be reached.
    fn with_digests(&self, wanted: Digests) -> Result<(Box<dyn Target>, Digests), Lost>;

    /// Names of the subsystems that discovery at this address reports.
    ///
    /// # Errors
    /// Discovery cannot be reached.
    fn discovered(&self) -> Result<Vec<String>, Lost>;

    /// Name of the subsystem.
    fn nqn(&self) -> &str;
}

/// Digests of NVMe/TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of headers.
    pub header: bool,
    /// Of data.
    pub data: bool,
    /// Data digests include zeros to a multiple of 4 bytes.
    pub padded: bool,
}
