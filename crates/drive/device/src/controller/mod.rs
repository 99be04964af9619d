//! The controller: state that a drive's firmware contexts share, for any kind of namespace. The life of a
//! command is in [`crate::requests`].

mod admin;
pub(crate) mod waiting;

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_admin::{Events, Features, Logs};
use kvdrive_engines::firmware::Cores;
use kvdrive_flash::FlashPort;
use kvdrive_flash::faults::Faults;
use kvdrive_flash::identity::Identity;
use kvdrive_flash::power::Journal;
use kvdrive_link::Port;
use kvdrive_sim::TaskCell;

use crate::config::Costs;
use crate::namespaces::{Decoded, Namespace};

/// A controller: it takes commands from the queues of its port, lets its namespace execute them, and
/// completes them.
pub struct Controller<P: Port> {
    pub(crate) port: P,
    pub(crate) cores: Cores,
    pub(crate) costs: Costs,
    pub(crate) journal: Journal,
    pub(crate) namespace: Rc<dyn Namespace>,
    pub(crate) identity: Identity,
    pub(crate) faults: Faults,
    pub(crate) commands: Rc<Cell<u64>>,
    /// The flash whose health is reported; empty for a controller without a drive.
    pub(crate) flash: OnceCell<FlashPort>,
    /// The hosts that are connected, by the session number of their admin queue.
    pub(crate) admin_queues: TaskCell<BTreeMap<u32, AdminQueue<P::Request>>>,
    /// Critical warnings for which events were already generated.
    pub(crate) warned: Cell<u8>,
    /// Data of log pages, except for changed namespaces, which are kept for each host.
    pub(crate) logs: TaskCell<Logs>,
}

/// The state of a host at the controller, which exists as long as its admin queue.
pub(crate) struct AdminQueue<R> {
    /// Features that the host has set.
    pub(crate) features: Features,
    /// Pending events, and the requests that wait for events.
    pub(crate) events: Events<R>,
    /// Changes since the host last read the log page.
    pub(crate) changes: Logs,
}

/// Number of I/O queues; their identifiers are 1 to 65 535.
pub(crate) const IO_QUEUES_MAX: u16 = u16::MAX;

impl<R> Default for AdminQueue<R> {
    fn default() -> AdminQueue<R> {
        AdminQueue {
            features: Features::granting(IO_QUEUES_MAX),
            events: Events::default(),
            changes: Logs::default(),
        }
    }
}

impl<P: Port> Controller<P> {
    /// A controller between `port` and `namespace`, whose firmware runs on `cores`. It serves nothing until
    /// [`crate::dispatch::start`]. `journal` keeps protected state, if it is on; `identity` is reported to
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
            admin_queues: TaskCell::default(),
            warned: Cell::new(0),
            logs: TaskCell::default(),
        })
    }

    /// Enables health reports of this flash: in answers to hosts, and as events.
    ///
    /// # Panics
    /// If the controller has a flash already.
    pub fn tell_health_of(self: &Rc<Self>, flash: FlashPort) {
        let controller = Rc::downgrade(self);
        flash.on_health_change(Rc::new(move || {
            if let Some(controller) = controller.upgrade() {
                controller.note_health();
            }
        }));
        assert!(self.flash.set(flash).is_ok(), "a drive has one flash");
        // Warnings that exist before any host is connected cause no event.
        self.warned.set(self.health().warnings);
    }

    /// Counter of the commands that it has handled.
    pub fn commands(&self) -> Rc<Cell<u64>> {
        self.commands.clone()
    }
}

/// A command taken from its queue, decoded by the namespace that it names; `None`: it names no existing
/// namespace, or is an admin command.
pub(crate) struct Fetched<R> {
    pub(crate) request: R,
    pub(crate) decoded: Option<Decoded>,
}
