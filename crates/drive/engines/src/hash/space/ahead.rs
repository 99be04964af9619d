//! Flash units that were reserved before a read needs them.

use std::cell::RefCell;

use kvdrive_flash::Reservation;

/// Reservations of a lookup that are not used yet: pages, and the units they lie in.
#[derive(Default)]
pub struct Reservations(RefCell<Vec<(u32, Reservation)>>);

impl Reservations {
    /// Adds the reservation of `unit`, in which `page` lies.
    pub fn note(&self, page: u32, unit: Reservation) {
        self.0.borrow_mut().push((page, unit));
    }

    /// The reservation for `page`, if there is one.
    pub fn take(&self, page: u32) -> Option<Reservation> {
        let mut taken = self.0.borrow_mut();
        let index = taken.iter().position(|(known, _)| *known == page)?;
        Some(taken.remove(index).1)
    }
}
