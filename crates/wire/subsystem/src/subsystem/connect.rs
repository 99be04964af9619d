//! Connect: a host names itself and a subsystem; its connection becomes a queue, or the host gets a status.

use std::net::IpAddr;
use std::rc::Rc;

use kvdrive_admin::ControllerKind;
use kvdrive_nvme::Status;
use kvdrive_nvme::fabrics::{ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NQN, invalid_parameter, nqn};
use zerocopy::FromBytes;

use super::controller::{Controller, Transport};
use super::{Address, Host, Queue, Subsystem};
use crate::namespace::QueueId;

/// Smallest queue, entries: one entry of a ring always stays empty.
const ENTRIES_MIN: u32 = 2;
/// Most entries of an admin queue (ASQSZ in discovery).
pub const ADMIN_ENTRIES_MAX: u32 = 128;

/// A connection that has become a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connected {
    /// The queue.
    pub queue: QueueId,
    /// Is it an admin queue?
    pub is_admin: bool,
    /// CNTLID.
    pub controller_id: u16,
    /// QID.
    pub number: u16,
    /// Its size.
    pub entries: u32,
    /// Does the host want the submission queue head in completions?
    pub flow_control: bool,
    /// Does the host have to authenticate before anything else?
    pub is_locked: bool,
}

/// A Connect that was refused: the status and dword 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedConnect {
    /// The reason.
    pub status: Status,
    /// Offset of the wrong byte, if the status reports one.
    pub dw0: u32,
}

impl From<Status> for RefusedConnect {
    fn from(status: Status) -> RefusedConnect {
        RefusedConnect { status, dw0: 0 }
    }
}

fn wrong(at: u16, in_data: bool) -> RefusedConnect {
    RefusedConnect { status: Status::CONNECT_INVALID_PARAMETERS, dw0: invalid_parameter(at, in_data) }
}

impl Subsystem {
    /// Turns a connection, made to `reached_at`, into a queue of a host at the address `from`. A refused
    /// Connect changes nothing.
    pub fn connect(
        &mut self,
        connect: &Connect,
        data: &[u8],
        reached_at: &Rc<Address>,
        from: Option<IpAddr>,
        now_ms: u64,
    ) -> Result<Connected, RefusedConnect> {
        let Ok((data, _)) = ConnectData::read_from_prefix(data) else {
            return Err(Status::SGL_LENGTH_INVALID.into());
        };
        if connect.record_format != 0 {
            return Err(Status::CONNECT_FORMAT.into());
        }
        let host = nqn(&data.host_nqn).ok_or(wrong(ConnectData::HOST_NQN_AT, true))?;
        let kind = self.kind(&data)?;
        let has_psk = self.host(host).is_some_and(|host| host.psk.is_some());
        if kind == ControllerKind::Io && has_psk && !reached_at.is_secure {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let entries = self.entries(connect)?;
        let index = if connect.queue_id == 0 {
            self.check_host(kind, host)?;
            if data.controller_id.get() != ANY_CONTROLLER {
                return Err(wrong(ConnectData::CONTROLLER_ID_AT, true));
            }
            self.free_controller()?
        } else {
            self.controller_for_queue(connect, &data, kind, host)?
        };
        let is_locked =
            kind == ControllerKind::Io && self.host(host).is_some_and(|host| host.secret.is_some());
        let queue = self.add_queue(Queue {
            controller: index,
            number: connect.queue_id,
            entries,
            from,
            sessions: Vec::new(),
            locked_since_ms: is_locked.then_some(now_ms),
            authentication: None,
        });
        if connect.queue_id == 0 {
            self.served.controllers += 1;
            let mut controller = Controller::new(kind, host, data.host_id, queue, reached_at.clone());
            controller.io = vec![None; usize::from(self.options.io_queues_max)];
            controller.features.queues_z = self.options.io_queues_max - 1;
            controller.features.keep_alive_ms = connect.keep_alive_ms;
            controller.last_sign_ms = now_ms;
            self.controllers[index] = Some(controller);
        } else if let Some(controller) = &mut self.controllers[index] {
            controller.io[usize::from(connect.queue_id) - 1] = Some(queue);
            controller.last_sign_ms = now_ms;
        }
        Ok(Connected {
            queue,
            is_admin: connect.queue_id == 0,
            controller_id: index as u16 + 1,
            number: connect.queue_id,
            entries,
            flow_control: connect.attributes & Connect::NO_FLOW_CONTROL == 0,
            is_locked,
        })
    }

    /// The kind of controller that a host asks for, by the name of the subsystem.
    fn kind(&self, data: &ConnectData) -> Result<ControllerKind, RefusedConnect> {
        match nqn(&data.subsystem_nqn) {
            Some(DISCOVERY_NQN) => Ok(ControllerKind::Discovery),
            Some(name) if name == self.options.nqn => Ok(ControllerKind::Io),
            _ => Err(wrong(ConnectData::SUBSYSTEM_NQN_AT, true)),
        }
    }

    /// Size of the queue.
    fn entries(&self, connect: &Connect) -> Result<u32, RefusedConnect> {
        let entries = u32::from(connect.entries_z) + 1;
        let most = if connect.queue_id == 0 { ADMIN_ENTRIES_MAX } else { self.options.queue_entries_max };
        if (ENTRIES_MIN..=most).contains(&entries) {
            Ok(entries)
        } else {
            Err(wrong(Connect::ENTRIES_AT, false))
        }
    }

    /// The allowed host of this name.
    pub(super) fn host(&self, nqn: &str) -> Option<&Host> {
        self.options.hosts.iter().flatten().find(|host| host.nqn == nqn)
    }

    /// Does this host have to authenticate?
    pub(crate) fn has_secret(&self, nqn: &str) -> bool {
        self.host(nqn).is_some_and(|host| host.secret.is_some())
    }

    fn check_host(&self, kind: ControllerKind, host: &str) -> Result<(), RefusedConnect> {
        let allowed = kind != ControllerKind::Io || self.options.hosts.is_none() || self.host(host).is_some();
        if allowed { Ok(()) } else { Err(Status::CONNECT_INVALID_HOST.into()) }
    }

    pub(super) fn free_controller(&mut self) -> Result<usize, RefusedConnect> {
        if let Some(index) = self.controllers.iter().position(Option::is_none) {
            return Ok(index);
        }
        if self.controllers.len() >= usize::from(self.options.controllers_max) {
            return Err(Status::CONTROLLER_BUSY.into());
        }
        self.controllers.push(None);
        Ok(self.controllers.len() - 1)
    }

    /// The controller that a Connect for an I/O queue names, if it can take the queue.
    fn controller_for_queue(
        &self,
        connect: &Connect,
        data: &ConnectData,
        kind: ControllerKind,
        host: &str,
    ) -> Result<usize, RefusedConnect> {
        let index = usize::from(data.controller_id.get()).wrapping_sub(1);
        let controller = self
            .controllers
            .get(index)
            .and_then(Option::as_ref)
            .filter(|controller| controller.kind == kind && controller.transport == Transport::Fabric)
            .ok_or(wrong(ConnectData::CONTROLLER_ID_AT, true))?;
        if controller.host_nqn != host {
            return Err(wrong(ConnectData::HOST_NQN_AT, true));
        }
        if controller.host_id != data.host_id {
            return Err(wrong(0, true));
        }
        if kind == ControllerKind::Discovery {
            return Err(wrong(Connect::QUEUE_ID_AT, false));
        }
        if !controller.status.ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.into());
        }
        match controller.io.get(usize::from(connect.queue_id) - 1) {
            Some(None) => Ok(index),
            _ => Err(wrong(Connect::QUEUE_ID_AT, false)),
        }
    }
}
