//! Counters of a subsystem, and the connected hosts: for reports, pages and metrics.

use kvdrive_admin::ControllerKind;
use kvdrive_declare::{By, Counters};
use kvdrive_nvme::identify::CSI_NVM;
use kvdrive_nvme::{Status, nvm, opcode};

use super::{Address, Subsystem};

/// Opcodes of one command set.
const OF_SET: usize = 256;
/// Places of [`OPCODES`]: opcodes for pairs, and behind them those for blocks.
pub const OPCODE_PLACES: usize = 2 * OF_SET;

/// Labels by opcode and command set, since 01h stores a pair and writes blocks. All unknown ones share one: a host chooses
/// them, and each label costs every scrape a row.
pub const OPCODES: By = By { label: "opcode", places: OPCODE_PLACES, name_of: name_at, is_sparse: true };

/// The place of an opcode for a namespace of a command set.
pub fn opcode_place(opcode: u8, command_set: u8) -> u16 {
    u16::from(opcode) + if command_set == CSI_NVM { OF_SET as u16 } else { 0 }
}

fn name_at(place: usize) -> &'static str {
    let opcode = (place % OF_SET) as u8;
    let name = if place < OF_SET { opcode::name(opcode) } else { name_of_blocks(opcode) };
    name.unwrap_or("other")
}

fn name_of_blocks(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        nvm::FLUSH => "flush",
        nvm::WRITE => "write",
        nvm::READ => "read",
        nvm::WRITE_ZEROES => "write-zeroes",
        nvm::DATASET_MANAGEMENT => "dataset-management",
        _ => return None,
    })
}

/// Counts since the subsystem was made.
#[derive(Clone, Debug, Counters)]
pub struct Served {
    /// I/O commands of hosts.
    #[counter(by = &OPCODES)]
    pub io_commands: [u64; OPCODE_PLACES],
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
            io_commands: [0; OPCODE_PLACES],
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
