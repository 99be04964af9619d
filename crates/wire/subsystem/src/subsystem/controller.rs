//! One controller: the state of a host in the subsystem, from its first Connect to the end of its admin queue.

use std::rc::Rc;

use kvdrive_admin::{ControllerKind, Events, Features, Logs, Notice};
use kvdrive_nvme::Status;
use kvdrive_nvme::log::Health;
use kvdrive_nvme::property::{self, Capabilities, Configuration, ControllerStatus, VERSION_2_0};

use super::{Address, Options};
use crate::namespace::QueueId;

/// CAP.TO: longest time from enabling to ready, in units of 500 ms. Enabling is immediate; hosts wait at
/// least this long before they give up.
const READY_500MS: u8 = 10;
/// CC.CSS values that are accepted: all supported I/O command sets; admin commands only; NVM, which older
/// hosts set.
const COMMAND_SETS: [u8; 3] = [0b110, 0b111, 0b000];
/// A discovery controller without a keep-alive timer ends after two minutes without a command, as NVM Express
/// over Fabrics specifies for connections that are not persistent.
const DISCOVERY_IDLE_MS: u64 = 120_000;
/// Tolerance for a late host: its timer and ours are two clocks, and a command spends time in transit.
const KEEP_ALIVE_GRACE_MS: u64 = 1000;

/// How a host reaches a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    /// By capsules, over a network.
    Fabric,
    /// As a PCI function: by registers, and by rings in the host's memory.
    Pcie,
}

pub(super) struct Controller {
    pub kind: ControllerKind,
    pub transport: Transport,
    pub host_nqn: String,
    pub host_id: [u8; 16],
    pub admin: QueueId,
    /// I/O queue `n` is at index `n - 1`.
    pub io: Vec<Option<QueueId>>,
    pub reached_at: Rc<Address>,
    pub configuration: Configuration,
    pub status: ControllerStatus,
    pub last_sign_ms: u64,
    pub features: Features,
    pub logs: Logs,
    /// Asynchronous Event Requests are identified by the transport's slot and the command identifier.
    pub events: Events<(u16, u16)>,
}

impl Controller {
    pub(super) fn new(
        kind: ControllerKind,
        host: &str,
        host_id: [u8; 16],
        admin: QueueId,
        reached_at: Rc<Address>,
    ) -> Controller {
        Controller {
            kind,
            transport: Transport::Fabric,
            host_nqn: host.to_owned(),
            host_id,
            admin,
            io: Vec::new(),
            reached_at,
            configuration: Configuration::new(),
            status: ControllerStatus::new(),
            last_sign_ms: 0,
            features: Features::default(),
            logs: Logs::default(),
            events: Events::default(),
        }
    }

    /// Reads a property.
    pub(super) fn property(&self, options: &Options, offset: u32, wide: bool) -> Result<u64, Status> {
        match (offset, wide) {
            (property::CAP, true) => Ok(capabilities(options).into_bits()),
            (property::VS, false) => Ok(u64::from(VERSION_2_0)),
            (property::CC, false) => Ok(u64::from(self.configuration.into_bits())),
            (property::CSTS, false) => Ok(u64::from(self.status.into_bits())),
            // A subsystem reset is not supported: CAP does not offer it, and NSSR reads as zero.
            (property::NSSR, false) => Ok(0),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Writes CC: enables, resets or shuts down the controller.
    pub(super) fn configure(&mut self, wanted: Configuration) {
        let was_enabled = self.configuration.enable();
        self.configuration = wanted;
        if was_enabled && !wanted.enable() {
            self.reset();
        }
        if !was_enabled && wanted.enable() {
            let fits = wanted.page_log2() == 0
                && wanted.arbitration() == 0
                && COMMAND_SETS.contains(&wanted.command_set())
                && matches!(wanted.sqe_log2(), 0 | 6)
                && matches!(wanted.cqe_log2(), 0 | 4);
            self.status.set_ready(fits);
            self.status.set_fatal(!fits);
        }
        if wanted.shutdown() != 0 {
            // Every acknowledged write is durable already, so a shutdown has nothing to do.
            self.status.set_shutdown(ControllerStatus::SHUTDOWN_DONE);
        }
    }

    /// Controller level reset: keeps the admin queue and the properties that Connect set.
    fn reset(&mut self) {
        self.status = ControllerStatus::new();
        self.features.reset();
        self.events.clear();
        self.logs.changed_namespaces.clear();
    }

    /// Has the host been silent for longer than its timeout?
    pub(super) fn expired(&self, now_ms: u64) -> bool {
        let silent_ms = now_ms.saturating_sub(self.last_sign_ms);
        let timeout_ms = match (u64::from(self.features.keep_alive_ms), self.kind) {
            (0, ControllerKind::Discovery) => DISCOVERY_IDLE_MS,
            (timeout_ms, _) => timeout_ms,
        };
        timeout_ms != 0 && silent_ms > timeout_ms + KEEP_ALIVE_GRACE_MS
    }

    pub(super) fn note_namespace(&mut self, nsid: u32) {
        if self.kind == ControllerKind::Io {
            self.logs.changed_namespaces.insert(nsid);
            self.events.note(Notice::Namespaces, self.features.wanted_events);
        }
    }

    /// Notes critical warnings that a namespace began to report.
    pub(super) fn note_warnings(&mut self, nsid: u32, warnings: u8) {
        if self.kind != ControllerKind::Io {
            return;
        }
        if warnings & Health::FEW_SPARES != 0 {
            self.events.note(Notice::FewSpares, self.features.wanted_events);
        }
        if warnings & Health::READ_ONLY != 0 {
            self.events.note(Notice::ReadOnly, self.features.wanted_events);
            // The attributes of the namespace show the warning, too.
            self.note_namespace(nsid);
        }
    }
}

/// CAP.
pub(super) fn capabilities(options: &Options) -> Capabilities {
    Capabilities::new()
        .with_entries_max_z((options.queue_entries_max - 1) as u16)
        .with_contiguous(true)
        .with_ready_500ms(READY_500MS)
        .with_command_sets(Capabilities::CSS_NVM | Capabilities::CSS_IO_SETS)
}
