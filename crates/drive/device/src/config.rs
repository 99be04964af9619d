//! The controller's part of a profile: the loops or threads that take commands, and the times of firmware work.

use kvdrive_declare::{Entry, GivenValues, Problem, Section, Values, When, Words, default_of};
use kvdrive_engines::firmware::{CopyCosts, Role, Roles};
use kvdrive_sim::Ns;

/// The controller's part of a profile: section `[controller]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("controller", default)]
pub struct ControllerConfig {
    /// Which tasks take commands, and on which cores they run.
    #[setting(part)]
    pub dispatch: Dispatch,
    /// Largest value that the controller accepts, bytes; the limit of the engine may be lower.
    #[setting(is = Integer(1, VALUE_MAX_BYTES))]
    pub max_value_bytes: u32,
    /// Most iterators that are open at once, with every engine.
    #[setting(is = Integer(1, 4095), key = "lsm.iterators")]
    pub iterators: u32,
    /// Times of firmware work.
    #[setting(part)]
    pub costs: Costs,
}

/// Time of firmware work on one core, ns. Sources are in the profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
#[section("controller", default)]
pub struct Costs {
    /// Firmware time to decode a command that begins a store, ns.
    #[setting(is = TIME)]
    pub decode_store_ns: Ns,
    /// Firmware time to decode a *transfer* command, ns.
    #[setting(is = TIME)]
    pub decode_transfer_ns: Ns,
    /// Firmware time to decode any other command, ns.
    #[setting(is = TIME)]
    pub decode_other_ns: Ns,
    /// Copying.
    #[setting(part)]
    pub copy: CopyCosts,
    /// Firmware time to take one request out of a batch and to check it, ns.
    #[setting(is = TIME)]
    pub unpack_ns: Ns,
    /// Firmware time to build a completion, ns.
    #[setting(is = TIME)]
    pub complete_ns: Ns,
}

/// How commands are taken from queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Contexts: each takes the next command and runs it to its end.
    Context {
        /// Number of contexts.
        contexts: u32,
        /// Which cores run which step.
        roles: Roles,
    },
    /// A dispatcher, which deals commands in turn to I/O threads that run them to their ends. Each has a core
    /// of its own.
    RoundRobin {
        /// Number of I/O threads, without the dispatcher.
        io_threads: u32,
        /// Time of the dispatcher for dealing out a command, in addition to fetching and decoding it, ns.
        deal_ns: Ns,
    },
}

impl Dispatch {
    /// How many commands run side by side.
    pub fn side_by_side(self) -> u32 {
        match self {
            Dispatch::Context { contexts, .. } => contexts,
            Dispatch::RoundRobin { io_threads, .. } => io_threads,
        }
    }
}

/// The keys of `[controller]` that say which cores take commands; all are kept, whichever applies.
#[derive(Section)]
#[section("controller")]
struct DispatchKeys {
    /// How commands are taken from queues. `context`: each of `controller.contexts` contexts takes the next command and
    /// runs it to its end. `round-robin`: a dispatcher deals commands in turn to I/O threads, each of which has a core.
    dispatch: DispatchWord,
    /// Contexts of the firmware, each of which runs one command at a time.
    #[setting(is = Integer(1, 65536), when = &[ON_CONTEXTS])]
    contexts: u32,
    /// Firmware cores; with `controller.roles` = `own` there must be 4, one for each role.
    #[setting(is = Integer(1, 1024), when = &[ON_CONTEXTS])]
    cores: u32,
    /// `any`: each core takes any step; `own`: dispatching, copying, collection and eviction have a core each.
    #[setting(when = &[ON_CONTEXTS])]
    roles: RolesWord,
    /// I/O threads of the firmware, without the dispatcher. Each has a core.
    #[setting(is = Integer(1, 256), option = "io-threads", when = &[ON_THREADS])]
    io_threads: u32,
    /// Time that the dispatcher takes to deal out a decoded command, ns.
    #[setting(is = TIME, when = &[ON_THREADS])]
    deal_ns: Ns,
}

const ON_CONTEXTS: When = When::one_of("controller.dispatch", &["context"]);
const ON_THREADS: When = When::one_of("controller.dispatch", &["round-robin"]);

#[derive(Clone, Copy, PartialEq, Words)]
enum DispatchWord {
    Context,
    RoundRobin,
}

#[derive(Clone, Copy, PartialEq, Words)]
enum RolesWord {
    Any,
    Own,
}

/// Reading takes all keys of `DispatchKeys`. Writing gives keys that do not apply to the chosen dispatch their least
/// values.
impl Section for Dispatch {
    const ENTRIES: &'static [Entry] = DispatchKeys::ENTRIES;

    fn take(values: &Values<'_>) -> Result<Dispatch, Problem> {
        DispatchKeys::take(values)?.try_into()
    }

    fn give(&self, values: &mut GivenValues) {
        let keys = default_of::<DispatchKeys>();
        let keys = match *self {
            Dispatch::Context { contexts, roles } => {
                let (cores, roles) = match roles {
                    Roles::Any(cores) => (cores, RolesWord::Any),
                    _ => (Role::ALL.len() as u32, RolesWord::Own),
                };
                DispatchKeys { dispatch: DispatchWord::Context, contexts, cores, roles, ..keys }
            }
            Dispatch::RoundRobin { io_threads, deal_ns } => {
                DispatchKeys { dispatch: DispatchWord::RoundRobin, io_threads, deal_ns, ..keys }
            }
        };
        keys.give(values);
    }
}

impl TryFrom<DispatchKeys> for Dispatch {
    type Error = Problem;

    fn try_from(keys: DispatchKeys) -> Result<Dispatch, Problem> {
        let DispatchKeys { dispatch, contexts, cores, roles, io_threads, deal_ns } = keys;
        let roles = match (dispatch, roles) {
            (DispatchWord::RoundRobin, _) => return Ok(Dispatch::RoundRobin { io_threads, deal_ns }),
            (DispatchWord::Context, RolesWord::Any) => Roles::Any(cores),
            (DispatchWord::Context, RolesWord::Own) if cores as usize == Role::ALL.len() => Roles::Own,
            (DispatchWord::Context, RolesWord::Own) => {
                let roles = Role::ALL.len();
                let problem = format!("{cores}; controller.roles = \"own\" takes {roles}, one a role");
                return Err(Problem::new("controller.cores", problem));
            }
        };
        Ok(Dispatch::Context { contexts, roles })
    }
}

impl Dispatch {
    /// How many commands run at once: contexts or I/O threads.
    pub fn runners(self) -> u32 {
        match self {
            Dispatch::Context { contexts, .. } => contexts,
            Dispatch::RoundRobin { io_threads, .. } => io_threads,
        }
    }

    /// The cores.
    pub fn roles(self) -> Roles {
        match self {
            Dispatch::Context { roles, .. } => roles,
            Dispatch::RoundRobin { io_threads, .. } => Roles::Threads(io_threads),
        }
    }
}
