//! The controller: what one drive's firmware contexts share, whatever its namespace keeps. The life of a
//! command is in [`crate::requests`].

mod admin;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_admin::{Features, Logs};
use kvdrive_engines::firmware::Cores;
use kvdrive_flash::FlashPort;
use kvdrive_flash::faults::Faults;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::power::Journal;
use kvdrive_link::Port;
use kvdrive_sim::TaskCell;

use crate::config::Costs;
use crate::namespaces::{Asked, Namespace};

/// A controller: it takes commands from the queues of its port, has its namespace execute them, and completes
/// them.
pub struct Controller<P> {
    pub(crate) port: P,
    pub(crate) cores: Cores,
    pub(crate) costs: Costs,
    pub(crate) journal: Journal,
    pub(crate) namespace: Rc<dyn Namespace>,
    pub(crate) identity: Identity,
    pub(crate) faults: Faults,
    pub(crate) commands: Rc<Cell<u64>>,
    /// Whose health it tells; none of a controller that stands alone.
    pub(crate) flash: OnceCell<FlashPort>,
    /// What hosts have set, by the number of their admin queue's session.
    pub(crate) features: TaskCell<BTreeMap<u32, Features>>,
    /// What is kept for log pages.
    pub(crate) logs: TaskCell<Logs>,
}

impl<P: Port> Controller<P> {
    /// A controller between `port` and `namespace`, whose firmware runs on `cores`. Nothing is served before
    /// [`crate::dispatch::start`]. `journal` is where protected state is kept, if it is; `identity` is told to
    /// hosts; `faults` strike commands.
    pub fn new(
        port: P,
        cores: Cores,
        costs: Costs,
        journal: Journal,
        identity: Identity,
        faults: Faults,
        namespace: Rc<dyn Namespace>,
    ) -> Rc<Controller<P>> {
        Rc::new(Controller {
            port,
            cores,
            costs,
            journal,
            namespace,
            identity,
            faults,
            commands: Rc::default(),
            flash: OnceCell::new(),
            features: TaskCell::default(),
            logs: TaskCell::default(),
        })
    }

    /// From now on hosts are told how this flash holds out.
    ///
    /// # Panics
    /// They are told of another.
    pub fn tell_health_of(&self, flash: FlashPort) {
        assert!(self.flash.set(flash).is_ok(), "a drive has one flash");
    }

    /// Where it counts the commands that it has handled.
    pub fn commands(&self) -> Rc<Cell<u64>> {
        self.commands.clone()
    }
}

/// A command that was taken from its queue, and what it asks of the namespace that it names; `None`: it names
/// none that is there, or is an admin command.
pub(crate) struct Fetched<R> {
    pub(crate) request: R,
    pub(crate) asked: Option<Asked>,
}
