//! What a controller's part of a profile says: who takes commands, and what its firmware costs.

use kvdrive_engines::firmware::{CopyCosts, Role, Roles};
use kvdrive_settings::Rule::{Integer, OneOf, Word};
use kvdrive_settings::{Rules, TIME, VALUE_MAX_BYTES};
use kvdrive_sim::Ns;
use serde::Deserialize;

/// The controller's part of a profile: section `[controller]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ControllerConfig {
    /// Who takes commands, and on which cores they are worked on.
    #[serde(flatten)]
    pub dispatch: Dispatch,
    /// Largest value accepted, bytes; the engine may accept less.
    pub max_value_bytes: u32,
    /// Iterators open at once; key `lsm.iterators`.
    pub iterators: u32,
    /// What firmware work costs.
    #[serde(flatten)]
    pub costs: Costs,
}

impl ControllerConfig {
    /// Keys of `[controller]`. What an index costs is looked at by the engine that has one, and the DMA
    /// engine's unit by the link.
    pub const RULES: Rules = &[
        ("controller.dispatch", Word(&["context", "round-robin"])),
        ("controller.contexts", Integer(1, 65536)),
        ("controller.cores", Integer(1, 1024)),
        ("controller.roles", Word(&["any", "own"])),
        ("controller.io_threads", Integer(1, 256)),
        ("controller.deal_ns", TIME),
        ("controller.decode_store_ns", TIME),
        ("controller.decode_transfer_ns", TIME),
        ("controller.decode_other_ns", TIME),
        ("controller.index_insert_ns", TIME),
        ("controller.index_probe_ns", TIME),
        ("controller.memcpy_ns_per_kib", TIME),
        ("controller.memcpy_setup_ns", TIME),
        ("controller.unpack_ns", TIME),
        ("controller.complete_ns", TIME),
        ("controller.max_value_bytes", Integer(1, VALUE_MAX_BYTES)),
        ("controller.dma_granularity_bytes", OneOf(&[1, 4, 4096])),
    ];
}

/// Time of firmware work on one core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Costs {
    /// Decoding a command that begins a store.
    pub decode_store_ns: Ns,
    /// Decoding a *transfer*.
    pub decode_transfer_ns: Ns,
    /// Decoding any other command.
    pub decode_other_ns: Ns,
    /// Copying.
    #[serde(flatten)]
    pub copy: CopyCosts,
    /// Taking a request out of a batch and checking it.
    pub unpack_ns: Ns,
    /// Building a completion.
    pub complete_ns: Ns,
}

/// Who takes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "DispatchKeys")]
pub enum Dispatch {
    /// Contexts, each of which takes the next command and runs it to its end.
    Context {
        /// So many.
        contexts: u32,
        /// Whose cores take which step.
        roles: Roles,
    },
    /// A dispatcher, which deals commands in turn to I/O threads that run them to their ends. Each has a
    /// core.
    RoundRobin {
        /// So many, besides the dispatcher.
        io_threads: u32,
        /// What the dispatcher takes to deal a command out, besides fetching and decoding it.
        deal_ns: Ns,
    },
}

/// Those keys of `[controller]` that say who takes commands: all of them, whoever it is.
#[derive(Deserialize)]
struct DispatchKeys {
    dispatch: DispatchWord,
    contexts: u32,
    cores: u32,
    roles: RolesWord,
    io_threads: u32,
    deal_ns: Ns,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DispatchWord {
    Context,
    RoundRobin,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RolesWord {
    Any,
    Own,
}

impl TryFrom<DispatchKeys> for Dispatch {
    type Error = String;

    /// Fails with a line that begins with the key to blame.
    fn try_from(keys: DispatchKeys) -> Result<Dispatch, String> {
        let DispatchKeys { dispatch, contexts, cores, roles, io_threads, deal_ns } = keys;
        let roles = match (dispatch, roles) {
            (DispatchWord::RoundRobin, _) => return Ok(Dispatch::RoundRobin { io_threads, deal_ns }),
            (DispatchWord::Context, RolesWord::Any) => Roles::Any(cores),
            (DispatchWord::Context, RolesWord::Own) if cores as usize == Role::ALL.len() => Roles::Own,
            (DispatchWord::Context, RolesWord::Own) => {
                let roles = Role::ALL.len();
                return Err(format!(
                    "controller.cores: {cores}; controller.roles = \"own\" takes {roles}, one a role"
                ));
            }
        };
        Ok(Dispatch::Context { contexts, roles })
    }
}

impl Dispatch {
    /// How many commands are run at once: contexts, or I/O threads.
    pub fn runners(self) -> u32 {
        match self {
            Dispatch::Context { contexts, .. } => contexts,
            Dispatch::RoundRobin { io_threads, .. } => io_threads,
        }
    }

    /// The cores there are.
    pub fn roles(self) -> Roles {
        match self {
            Dispatch::Context { roles, .. } => roles,
            Dispatch::RoundRobin { io_threads, .. } => Roles::Threads(io_threads),
        }
    }
}
