//! Units that were taken before anybody came to read from them.

use std::cell::RefCell;

use kvdrive_flash::Reservation;

/// What a lookup has taken ahead and not used yet: pages, and the units they lie in.
#[derive(Default)]
pub struct Ahead(RefCell<Vec<(u32, Reservation)>>);

impl Ahead {
    /// `unit`, in which `page` lies, is taken.
    pub fn note(&self, page: u32, unit: Reservation) {
        self.0.borrow_mut().push((page, unit));
    }

    /// The unit of `page`, if it was taken for it.
    pub fn take(&self, page: u32) -> Option<Reservation> {
        let mut taken = self.0.borrow_mut();
        let index = taken.iter().position(|(known, _)| *known == page)?;
        Some(taken.remove(index).1)
    }
}
