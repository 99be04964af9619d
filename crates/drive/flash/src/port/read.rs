//! Reading a page: all of it, a part of it, or its header. Every read is one sense; `port.rs` takes its time and counts
//! it.

use std::rc::Rc;

use super::{FlashPort, ReadError, Reservation};
use crate::geometry::Ppa;
use crate::media::{MediaPage, PageData};
use crate::purpose::Purpose;
use crate::spare::Spare;
use crate::timing::Moved;

impl FlashPort {
    /// Reads a page with its header.
    pub fn read(&self, ppa: Ppa, purpose: Purpose) -> Result<(PageData, Spare), ReadError> {
        self.read_with_spare(ppa, self.0.geometry.page_bytes, purpose)
    }

    /// Reads `bytes` bytes of a page, in one piece or several, with its header.
    pub fn read_with_spare(
        &self,
        ppa: Ppa,
        bytes: u32,
        purpose: Purpose,
    ) -> Result<(PageData, Spare), ReadError> {
        let moved = Moved::Data(bytes);
        self.sense(ppa, purpose, moved, |media, ppa| match (media.read(ppa), media.read_spare(ppa)) {
            (MediaPage::Programmed(data), MediaPage::Programmed(spare)) => {
                MediaPage::Programmed((data, spare))
            }
            (MediaPage::Erased, _) => MediaPage::Erased,
            _ => MediaPage::Damaged,
        })
    }

    /// Reads `bytes` bytes of a page: a sense, and a transfer of that part with its share of the spare
    /// area. Only these bytes of the data may be used.
    pub fn read_part(&self, ppa: Ppa, bytes: u32, purpose: Purpose) -> Result<PageData, ReadError> {
        self.sense(ppa, purpose, Moved::Data(bytes), |media, ppa| media.read(ppa))
    }

    /// As [`FlashPort::read_part`], on a unit that may have been reserved for it.
    pub fn read_part_reserved(
        &self,
        ppa: Ppa,
        bytes: u32,
        purpose: Purpose,
        reserved: Option<Reservation>,
    ) -> Result<PageData, ReadError> {
        self.sense_reserved(ppa, purpose, Moved::Data(bytes), reserved, |media, ppa| media.read(ppa))
    }

    /// Announces that parts of pages, each given with its first byte, will be read soon: [`crate::media::Media::expect`].
    /// No flash operation.
    pub fn expect(&self, parts: &[(Ppa, u32)], seen: &mut dyn FnMut(usize, &Rc<[u8]>)) {
        if !self.0.config.enabled {
            return;
        }
        if self.0.retirement.is_empty() {
            return self.0.media.borrow().expect(parts, seen);
        }
        let on_medium: Vec<_> = parts.iter().map(|(ppa, at)| (self.on_medium(*ppa), *at)).collect();
        self.0.media.borrow().expect(&on_medium, seen);
    }

    /// The content of a page, for an emulator's accounting only: it is no flash operation and is not counted.
    /// Code that uses the bytes must read the page. `None`: no readable content.
    pub fn peek(&self, ppa: Ppa) -> Option<PageData> {
        let on_medium = self.0.config.enabled.then(|| self.on_medium(ppa))?;
        match self.0.media.borrow().read(on_medium) {
            MediaPage::Programmed(page) => Some(page),
            _ => None,
        }
    }

    /// Reads a page, and whether its content was lost before this copy of it was made ([`Spare::lost`]).
    pub fn read_with_loss(&self, ppa: Ppa, purpose: Purpose) -> Result<(PageData, bool), ReadError> {
        let moved = Moved::Data(self.0.geometry.page_bytes);
        self.sense(ppa, purpose, moved, |media, ppa| media.read_with_loss(ppa))
    }

    /// Reads the header of a page: a sense, and a transfer of the header alone. The header may be readable although the
    /// data are not; only [`FlashPort::read`] shows whether the data are.
    pub fn read_spare(&self, ppa: Ppa, purpose: Purpose) -> Result<Spare, ReadError> {
        self.sense(ppa, purpose, Moved::Header, |media, ppa| media.read_spare(ppa))
    }
}
