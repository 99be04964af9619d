//! The controller: what one drive's firmware contexts share, whatever its namespace keeps. The life of a
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
use crate::namespaces::{Asked, Namespace};

/// A controller: it takes commands from the queues of its port, has its namespace execute them, and completes
/// them.
pub struct Controller<P: Port> {
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
    /// By the number of their sessions.
    pub(crate) admin_queues: TaskCell<BTreeMap<u32, AdminQueue<P::Request>>>,
    /// Critical warnings that hosts could have been told of.
    pub(crate) warned: Cell<u8>,
    /// What is kept for log pages, but for changes, which each host hears of for itself.
    pub(crate) logs: TaskCell<Logs>,
}

/// What a host has of the controller by one admin queue, and loses with it.
pub(crate) struct AdminQueue<R> {
    /// What it has set.
    pub(crate) features: Features,
    /// What it is to be told, and the requests by which it wants to be.
    pub(crate) events: Events<R>,
    /// What has changed since it last looked.
    pub(crate) changes: Logs,
}

/// Identifiers of I/O queues: 1 to 65 535.
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
            admin_queues: TaskCell::default(),
            warned: Cell::new(0),
            logs: TaskCell::default(),
        })
    }

    /// From now on hosts are told how this flash holds out, when they ask and when something happens to it.
    ///
    /// # Panics
    /// They are told of another.
    pub fn tell_health_of(self: &Rc<Self>, flash: FlashPort) {
        let controller = Rc::downgrade(self);
        flash.on_health_change(Rc::new(move || {
            if let Some(controller) = controller.upgrade() {
                controller.note_health();
            }
        }));
        assert!(self.flash.set(flash).is_ok(), "a drive has one flash");
        // What was so before anybody was connected is no event.
        self.warned.set(self.health().warnings);
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
