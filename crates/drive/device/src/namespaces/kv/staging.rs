//! Memory of the controller where structured values land before their requests go to the engine.

use kvdrive_content::{Piece, Region};
use kvdrive_engines::firmware::{Cores, Role};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::Status;
use kvdrive_sim::{Ns, TaskCell};

use crate::config::Costs;

/// Where structured values land: memory of the controller.
pub struct Staging {
    cores: Cores,
    pub(super) costs: Costs,
}

/// A structured value that has landed, or is about to.
pub struct Staged {
    pub(super) content: TaskCell<Region>,
    pub(super) bytes: u32,
}

impl Staged {
    pub(super) fn new(bytes: u32) -> Staged {
        Staged { content: TaskCell::default(), bytes }
    }
}

impl Staging {
    /// `cores` copy bytes that arrive inside commands, and unpack the requests.
    pub fn new(cores: &Cores, costs: Costs) -> Staging {
        Staging { cores: cores.clone(), costs }
    }

    pub(super) fn run(&self, role: Role, span_ns: Ns, what: &'static str) {
        self.cores.of(role).run_noted(span_ns, "controller", what);
    }
}

impl Landing<()> for Staging {
    type Place = Staged;

    fn reserve(&self, _: &(), bytes: u32, _: Arrival) -> Result<Staged, Status> {
        Ok(Staged::new(bytes))
    }

    fn copy_in(&self, place: &Staged, at: u32, bytes: &[u8]) {
        self.run(Role::Copy, self.costs.copy.copy_ns(bytes.len() as u32), "memcpy");
        self.dma_in(place, at, Piece::Bytes(bytes));
    }

    fn dma_in(&self, place: &Staged, at: u32, piece: Piece<'_>) {
        place.content.borrow_mut().write(at, piece);
    }

    fn settle(&self, _: &Staged) {}

    fn abandon(&self, place: Staged) {
        drop(place);
    }
}
