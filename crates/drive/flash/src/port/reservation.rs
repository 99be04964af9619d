//! Units that are reserved ahead of a read: an emulator books all hops of a command when the command arrives.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_sim::{Ns, Sim, WaitQueue};

use super::FlashPort;
use crate::geometry::Ppa;

/// A unit that is reserved before the operation on it can begin, as in an emulator that books all hops of a
/// command when it arrives. Released when this is dropped, or after [`RESERVED_AT_MOST_NS`].
pub struct Reservation(Rc<Booking>);

struct Booking {
    sim: Sim,
    unit: u32,
    is_held: Cell<bool>,
    is_over: Cell<bool>,
    changed: WaitQueue,
}

/// Longest time that a unit stays reserved for a read that does not come: that read may itself wait for the
/// unit.
const RESERVED_AT_MOST_NS: Ns = 1_000_000;

impl Booking {
    fn end(&self) {
        self.is_over.set(true);
        self.changed.wake_all();
    }
}

impl Reservation {
    /// Is it a reservation of this unit?
    pub(super) fn is_of(&self, unit: u32) -> bool {
        self.0.unit == unit
    }

    /// Waits for the unit. `false`: the reservation has ended in the meantime.
    pub(super) fn wait(&self) -> bool {
        while !self.0.is_held.get() && !self.0.is_over.get() {
            self.0.changed.wait();
        }
        !self.0.is_over.get()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.0.sim.halted() {
            self.0.end();
        }
    }
}

impl FlashPort {
    /// Reserves the unit of a page for a later read of it ([`FlashPort::read_part_reserved`]), after the
    /// operations that asked for the unit before.
    pub fn reserve(&self, ppa: Ppa) -> Reservation {
        let sim = &self.0.sim;
        let unit = self.0.geometry.unit_of(self.0.geometry.block_of(ppa));
        let booking = Rc::new(Booking {
            sim: sim.clone(),
            unit,
            is_held: Cell::new(false),
            is_over: Cell::new(false),
            changed: WaitQueue::new(sim),
        });
        let (core, held) = (self.0.clone(), booking.clone());
        sim.spawn(move || {
            let _unit = core.units[held.unit as usize].resource.acquire();
            held.is_held.set(true);
            held.changed.wake_all();
            let late = held.clone();
            core.sim.spawn(move || {
                late.sim.sleep(RESERVED_AT_MOST_NS);
                late.end();
            });
            while !held.is_over.get() {
                held.changed.wait();
            }
        });
        Reservation(booking)
    }
}
