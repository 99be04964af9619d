//! Counters of a subsystem, and the connected hosts: for reports, pages and metrics.

use kvdrive_admin::ControllerKind;
use kvdrive_declare::{By, Counters};
use kvdrive_nvme::{Status, opcode};

use super::{Address, Subsystem};

/// Labels by opcode. All unknown ones share one: a host chooses them, and each label costs every scrape a row.
pub const OPCODES: By = By {
    label: "opcode",
    places: 256,
    name_of: |code| u8::try_from(code).ok().and_then(opcode::name).unwrap_or("other"),
    is_sparse: true,
};

/// Counts since the subsystem was made.
#[derive(Clone, Debug, Counters)]
pub struct Served {
    /// I/O commands of hosts.
    #[counter(by = &OPCODES)]
    pub io_commands: [u64; 256],
    /// I/O commands that found no pair with their key. They are not in `io_errors`.
    pub io_misses: u64,
    /// I/O commands that failed.
    pub io_errors: u64,
    /// Admin and Fabrics commands.
    pub admin_commands: u64,
    /// Bytes that hosts sent to I/O commands.
    pub written_bytes: u64,
    /// Bytes that I/O commands returned.
    pub read_bytes: u64,
    /// Controllers that were created.
    #[counter(name = "controllers_created")]
    pub controllers: u64,
    /// Queues that were created, admin queues included.
    #[counter(name = "queues_created")]
    pub queues: u64,
    /// Controllers that ended because their host was silent.
    #[counter(name = "controllers_expired")]
    pub expired: u64,
    /// Queues that ended because their host failed to authenticate, or not in time.
    pub authentication_failures: u64,
}

impl Default for Served {
    fn default() -> Served {
        Served {
            io_commands: [0; 256],
            io_misses: 0,
            io_errors: 0,
            admin_commands: 0,
            written_bytes: 0,
            read_bytes: 0,
            controllers: 0,
            queues: 0,
            expired: 0,
            authentication_failures: 0,
        }
    }
}

impl Served {
    /// Counts an I/O command that ended with `status`. Namespaces are of the KV command set, so 87h says that a key does
    /// not exist.
    pub(super) fn note_end(&mut self, status: Status) {
        if status == Status::KEY_NOT_FOUND {
            self.io_misses += 1;
        } else if !status.is_success() {
            self.io_errors += 1;
        }
    }
}

/// The state of a controller that a host has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// Name of the host.
    pub host_nqn: String,
    /// CNTLID.
    pub controller: u16,
    /// A discovery controller: it has no I/O queues.
    pub is_discovery: bool,
    /// The host has proved its identity.
    pub is_authenticated: bool,
    /// Number of I/O queues.
    pub io_queues: u32,
    /// The address of this subsystem that the host connected to.
    pub reached_at: Address,
    /// Time since its last command, ms.
    pub silent_ms: u64,
    /// Commands that failed on this controller.
    pub failures: u64,
}

impl Subsystem {
    /// Up to `most` controllers that hosts have at `now_ms`, from index `first` on, and the index at which
    /// the next call continues; the first index is 0.
    pub fn hosts(&self, first: usize, most: usize, now_ms: u64) -> (Vec<HostStatus>, Option<usize>) {
        let there = self.controllers.iter().enumerate().skip(first);
        let mut there = there.filter_map(|(index, controller)| Some((index, controller.as_ref()?)));
        let portion = there
            .by_ref()
            .take(most)
            .map(|(index, controller)| HostStatus {
                host_nqn: controller.host_nqn.clone(),
                controller: index as u16 + 1,
                is_discovery: controller.kind == ControllerKind::Discovery,
                is_authenticated: self.has_authenticated(controller.admin),
                io_queues: controller.io.iter().flatten().count() as u32,
                reached_at: (*controller.reached_at).clone(),
                silent_ms: now_ms.saturating_sub(controller.last_sign_ms),
                failures: controller.logs.errors(),
            })
            .collect();
        (portion, there.next().map(|(index, _)| index))
    }
}
