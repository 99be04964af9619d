//! A device of Linux as a [`Target`]: `/dev/ngXnY`, by the passthrough ioctls of the NVMe driver.
//!
//! The controller is the kernel's: it is not reset from here, since others may use it, and all programs of the machine
//! are one host of it. Commands that a kernel does not send (to another namespace, fused ones) cannot be tried.

use std::io::{self, ErrorKind};

use kvdrive_host::node::{self, Device, Opened, open};
use kvdrive_host::reach::Remote;
use kvdrive_nvme::{Cqe, Sqe};

use crate::target::{Answer, Data, Lost, NoAnswer, Target, UNTOUCHED};

/// A namespace behind a device.
pub struct Node {
    device: Device,
    remote: Remote,
}

impl Node {
    /// Opens the device at the path of `remote`.
    ///
    /// # Errors
    /// A line without the path: no such device, no right to use it, or no namespace of pairs.
    pub fn open(remote: Remote) -> Result<Node, Lost> {
        let Opened { device, .. } = open(&remote).map_err(|error| Lost(error.line()))?;
        Ok(Node { device, remote })
    }
}

/// Has `carry_out` carry out a command of this memory.
fn execute(
    data: Data<'_>,
    carry_out: impl FnOnce(node::Data<'_>) -> io::Result<Cqe>,
) -> Result<Answer, NoAnswer> {
    let mut room = match data {
        Data::In(bytes) => vec![UNTOUCHED; bytes as usize],
        Data::None | Data::Out(_) => Vec::new(),
    };
    let completed = carry_out(match data {
        Data::Out(bytes) => node::Data::Out(bytes),
        _ if !room.is_empty() => node::Data::In(&mut room),
        _ => node::Data::None,
    });
    let cqe = completed.map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => {
            NoAnswer::NotSent(format!("the kernel does not send such a command: {error}"))
        }
        ErrorKind::PermissionDenied => NoAnswer::NotSent(error.to_string()),
        ErrorKind::Interrupted => {
            Lost("the kernel ended the command: it took too long, or the controller was reset".into()).into()
        }
        _ => Lost(error.to_string()).into(),
    })?;
    if !cqe.status().is_success() {
        room.clear();
    }
    Ok(Answer { status: cqe.status(), dw0: cqe.dw0.get(), data: room })
}

impl Target for Node {
    fn name(&self) -> String {
        self.device.path().to_owned()
    }

    fn nsid(&self) -> u32 {
        self.device.nsid()
    }

    fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        execute(data, |data| self.device.admin(&sqe, data))
    }

    fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        execute(data, |data| self.device.io(&sqe, data))
    }

    fn transfer_max_bytes(&self) -> u64 {
        self.device.transfer_max_bytes().map_or(u64::MAX, u64::from)
    }

    /// Opens the device again.
    fn reconnect(&mut self) -> Result<(), Lost> {
        *self = Node::open(self.remote.clone())?;
        Ok(())
    }

    fn owns_controller(&self) -> bool {
        false
    }
}
