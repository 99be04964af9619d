//! Namespaces: they execute the commands of I/O queues. The meaning of an opcode depends on the command set of the
//! namespace that the command names: 02h is Retrieve of pairs and Read of blocks.
//!
//! | module | content |
//! |---|---|
//! | [`kv`] | pairs, in an engine (KV command set and the vendor commands beside it) |
//! | [`block`] | numbered blocks, on the flash translation layer alone (NVM command set) |
//!
//! A controller fetches commands, keeps their order, posts completions and reports on itself
//! ([`crate::controller`]); of the stored content it knows only this trait.

pub mod block;
pub mod kv;

use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_declare::Counts;
use kvdrive_engines::{Gap, Utilization};
use kvdrive_flash::power::NamespaceFeatures;
use kvdrive_link::{Exposed, Request, Session};
use kvdrive_nvme::nvm::NvmCommand;
use kvdrive_nvme::{Command, Cqe, Key, Sqe, Status};
use kvdrive_sim::Ns;

use crate::answers::completion_of;
use crate::config::Costs;

/// Pairs to be stored.
pub type Pairs<'a> = dyn Iterator<Item = (Key, Piece<'static>)> + 'a;

/// The request of an entry to the namespace that it names. It is decoded once, after it was fetched.
#[derive(Clone, Copy, Debug)]
pub enum Decoded {
    /// A command to a namespace of pairs.
    Pairs(Command),
    /// A command to a namespace of blocks.
    Blocks(NvmCommand),
    /// An unknown command, with the status of its answer.
    Nothing(Status),
}

impl Decoded {
    /// Would the command change stored content? A read-only drive refuses it then.
    pub(crate) fn changes_content(&self) -> bool {
        match self {
            Decoded::Pairs(command) => command.changes_content(),
            Decoded::Blocks(command) => command.changes_content(),
            Decoded::Nothing(_) => false,
        }
    }

    /// Time to decode it, ns.
    pub(crate) fn decode_ns(&self, costs: &Costs) -> Ns {
        match self {
            Decoded::Pairs(
                Command::Store(_)
                | Command::Write(_)
                | Command::Hybrid { .. }
                | Command::Express(_)
                | Command::CxlStore { .. }
                | Command::StorePart(_)
                | Command::Batch(_),
            )
            | Decoded::Blocks(NvmCommand::Write(_)) => costs.decode_store_ns,
            Decoded::Pairs(Command::Transfer) => costs.decode_transfer_ns,
            _ => costs.decode_other_ns,
        }
    }
}

/// Called with a key and the place of its value in an order of reads ([`kvdrive_engines::Engine::order_on_flash`]), or with a
/// gap.
pub type OnListed<'a> = &'a mut dyn FnMut(Result<(Key, u64), Unlisted>);

/// Keys that cannot be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// The status of a List that reaches this range.
    pub status: Status,
    /// The range of keys that may be missing.
    pub keys: Gap,
}

/// Called by the task of a long command between two slices of it.
pub type OnSliceEnd = Rc<dyn Fn()>;

/// One namespace of a drive.
pub trait Namespace {
    /// Its command set identifier: [`kvdrive_nvme::identify::CSI_KV`] or
    /// [`kvdrive_nvme::identify::CSI_NVM`].
    fn command_set(&self) -> u8;

    /// Decodes an entry.
    fn decode(&self, sqe: &Sqe) -> Decoded;

    /// Executes a command of an I/O queue that names this namespace, which has decoded it, in the order of
    /// its queue. `None`: no completion is posted, as the host asked.
    fn execute(&self, request: &dyn Request, decoded: &Decoded) -> Option<Cqe>;

    /// Answers such a command with `status` instead of executing it, in the order of its queue. `None` as for
    /// [`Namespace::execute`].
    fn refuse(&self, request: &dyn Request, status: Status) -> Option<Cqe> {
        Some(completion_of(request, Err(status)))
    }

    /// Identify data of CNS `structure`, if it depends on the namespace's command set; `None`: no such
    /// structure. `nguid` is the namespace's globally unique identifier.
    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>>;

    /// Features of the namespace that outlive power; `None`: its command set has none.
    fn features(&self) -> Option<&NamespaceFeatures> {
        None
    }

    /// Format NVM: erases the content. Commands that arrive meanwhile are refused with [`Status::FORMAT_IN_PROGRESS`];
    /// a power cut leaves a part of the content.
    ///
    /// # Errors
    /// The status of an operation that failed; the content before it is erased.
    fn format(&self) -> Result<(), Status>;

    /// Discards the unfinished work of a session, because its queue has ended.
    fn end_session(&self, _session: &Session) {}

    /// Sets the function that is called between two slices of a long command, so that other commands need not wait for
    /// all of it. A namespace without long commands ignores it.
    fn on_slice_end(&self, _ended: OnSliceEnd) {}

    /// The memory that hosts may store into, if there is any.
    fn exposed(self: Rc<Self>) -> Option<Weak<dyn Exposed>> {
        None
    }

    /// MDTS: the most data that a command moves is 4096 bytes times 2 to this power; 0: no limit.
    fn transfer_max_log2(&self) -> u8 {
        0
    }

    /// Stores pairs in no model time: the content of a drive before a study.
    ///
    /// # Errors
    /// The first key whose store fails, and its status; later pairs may have been drawn from `pairs` already.
    fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)>;

    /// Announces that commands with these keys will come soon: [`kvdrive_engines::Engine::expect`].
    fn expect(&self, _keys: &mut dyn Iterator<Item = Key>) {}

    /// Passes every key and every gap to `each`: [`crate::Drive::list_all`].
    fn list_all(&self, _each: OnListed<'_>) {}

    /// Writes all buffered pages to flash, so that they are counted.
    fn drain(&self) {}

    /// All state that must survive a power cut and is not on flash.
    fn protected_image(&self) -> Vec<u8>;

    /// The counters of the namespace: [`kvdrive_engines::Engine::counts`].
    fn counts(&self) -> Counts;

    /// DRAM used by its structures, bytes: [`kvdrive_engines::Engine::dram`].
    fn dram(&self) -> Counts {
        Counts::default()
    }

    /// How full it is.
    fn utilization(&self) -> Utilization;
}
