//! Namespaces: what takes a command of an I/O queue. What an opcode means depends on the command set of the
//! namespace it names: 02h is Retrieve of pairs and Read of blocks.
//!
//! | module | what it keeps |
//! |---|---|
//! | [`kv`] | pairs, in an engine (KV command set and the vendor commands beside it) |
//! | [`block`] | numbered blocks, on the flash translation layer alone (NVM command set) |
//!
//! A controller fetches commands, keeps their turns, posts completions and speaks of itself
//! ([`crate::controller`]); of what is stored it knows this trait and nothing else.

pub mod block;
pub mod kv;

use std::rc::{Rc, Weak};

use kvdrive_content::Piece;
use kvdrive_engines::{EngineCounters, Utilization};
use kvdrive_link::{Exposed, Request, Session};
use kvdrive_sim::Ns;
use kvdrive_spec::nvm::NvmCommand;
use kvdrive_spec::{Command, Cqe, Key, Sqe, Status};

use crate::answers::completion_of;
use crate::config::Costs;

/// The namespace that a drive has.
pub const NSID: u32 = 1;

/// Pairs to be stored.
pub type Pairs<'a> = dyn Iterator<Item = (Key, Piece<'static>)> + 'a;

/// What an entry asks of the namespace that it names. It is decoded once, when it was fetched.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// Of one of pairs.
    Pairs(Command),
    /// Of one of blocks.
    Blocks(NvmCommand),
    /// Nothing that it knows: the answer.
    Nothing(Status),
}

impl Asked {
    /// Would it alter what is stored? A read-only drive refuses such a one.
    pub(crate) fn changes_content(&self) -> bool {
        match self {
            Asked::Pairs(command) => command.changes_content(),
            Asked::Blocks(command) => command.changes_content(),
            Asked::Nothing(_) => false,
        }
    }

    /// Time to decode it, ns.
    pub(crate) fn decode_ns(&self, costs: &Costs) -> Ns {
        match self {
            Asked::Pairs(
                Command::Store(_)
                | Command::Write(_)
                | Command::Hybrid { .. }
                | Command::Express(_)
                | Command::CxlStore { .. }
                | Command::Batch(_),
            )
            | Asked::Blocks(NvmCommand::Write(_)) => costs.decode_store_ns,
            Asked::Pairs(Command::Transfer) => costs.decode_transfer_ns,
            _ => costs.decode_other_ns,
        }
    }
}

/// Hears of a key, or of why some could not be told.
pub type OnListed<'a> = &'a mut dyn FnMut(Result<Key, Status>);

/// One namespace of a drive.
pub trait Namespace {
    /// Its command set identifier: [`kvdrive_spec::identify::CSI_KV`] or
    /// [`kvdrive_spec::identify::CSI_NVM`].
    fn command_set(&self) -> u8;

    /// What an entry asks of it.
    fn decode(&self, sqe: &Sqe) -> Asked;

    /// Executes a command of an I/O queue that names this namespace, decoded by it and in its turn. `None`:
    /// nothing is posted for it, as the host asked.
    fn execute(&self, request: &dyn Request, asked: &Asked) -> Option<Cqe>;

    /// Answers such a command with `status` instead of executing it, in its turn. `None` as of
    /// [`Namespace::execute`].
    fn refuse(&self, request: &dyn Request, status: Status) -> Option<Cqe> {
        Some(completion_of(request, Err(status)))
    }

    /// Identify data of CNS `structure`, of those that depend on the namespace's command set; `None`: it has
    /// no such structure. `nguid` is the namespace's globally unique identifier.
    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>>;

    /// A queue is given up: what it left unfinished here is discarded.
    fn end_session(&self, _session: &Session) {}

    /// The memory that hosts may store into, if there is some.
    fn exposed(self: Rc<Self>) -> Option<Weak<dyn Exposed>> {
        None
    }

    /// MDTS: the most data that a command moves, 4096 bytes times 2 to this; 0: no limit.
    fn transfer_max_log2(&self) -> u8 {
        0
    }

    /// Stores pairs in no model time: what is on a drive before a study begins.
    ///
    /// # Errors
    /// The first key whose store fails, and what it would be answered; some pairs behind it may have been
    /// asked for.
    fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)>;

    /// Commands with these keys will come soon: [`kvdrive_engines::Engine::expect`].
    fn expect(&self, _keys: &mut dyn Iterator<Item = Key>) {}

    /// Tells `each` of every key, and of what keys could not be told: [`crate::Drive::list_all`].
    fn list_all(&self, _each: OnListed<'_>) {}

    /// Writes everything buffered to flash, so that it is counted.
    fn drain(&self) {}

    /// Everything that must survive a power cut and is not on flash.
    fn protected_image(&self) -> Vec<u8>;

    /// What its engine counts.
    fn counters(&self) -> EngineCounters;

    /// What else it counts, by names of its own: [`kvdrive_engines::Engine::details`].
    fn details(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What its structures take of the drive's DRAM, in bytes: [`kvdrive_engines::Engine::dram`].
    fn dram(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// How full it is.
    fn utilization(&self) -> Utilization;
}
