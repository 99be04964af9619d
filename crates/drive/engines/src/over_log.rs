//! Values on their way into the value log of an engine, and windows over its pages: the same for every engine that keeps
//! values in [`crate::value_log`], whatever its index is.
//!
//! It knows no index. An engine says how it makes room, and what it refuses before a value arrives ([`IndexOverLog`]).

use std::ops::Deref;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_link::transfer::Exposing;
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status};

use crate::value_log::{Head, Place, ValueLog, WindowShare};

/// The parts of an engine whose values are in a value log.
pub trait IndexOverLog {
    /// Where its values are.
    fn log(&self) -> &ValueLog;

    /// Bytes of a page of flash, which is a window.
    fn page_bytes(&self) -> u32;

    /// Firmware copies `bytes` bytes.
    fn copy(&self, bytes: u32);

    /// Errors: a value of `bytes` under `key` is one that the index cannot have.
    fn accept(&self, _key: &Key, _bytes: u32) -> Result<(), Status> {
        Ok(())
    }

    /// Begins to collect where that is due, and waits until one more entry has room.
    fn make_ready(self: &Rc<Self>) -> Result<(), Status>;

    /// Frees a segment of the log. Errors: `CAPACITY_EXCEEDED`, nothing can be freed.
    fn make_room(&self) -> Result<(), Status>;
}

/// An engine whose values are in a value log.
pub struct OverLog<T>(pub(crate) Rc<T>);

impl<T> Deref for OverLog<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: IndexOverLog> OverLog<T> {
    fn reserve_in_log(&self, bytes: u32, arrival: Arrival) -> Result<Place, Status> {
        self.0.make_ready()?;
        loop {
            match self.log().reserve(Head::Host, bytes, arrival) {
                Err(Status::CAPACITY_EXCEEDED) => self.0.make_room()?,
                reserved => return reserved,
            }
        }
    }
}

impl<T: IndexOverLog> Landing for OverLog<T> {
    type Place = Place;

    fn reserve(&self, key: &Key, bytes: u32, arrival: Arrival) -> Result<Place, Status> {
        self.accept(key, bytes)?;
        self.reserve_in_log(bytes, arrival)
    }

    fn admit(&self, place: &Place) -> Result<u32, Status> {
        loop {
            match place.admit() {
                Err(Status::CAPACITY_EXCEEDED) => self.0.make_room()?,
                admitted => return admitted,
            }
        }
    }

    fn copy_in(&self, place: &Place, at: u32, bytes: &[u8]) {
        self.copy(bytes.len() as u32);
        if !place.is_large() {
            return place.write(at, Piece::Bytes(bytes));
        }
        let mut done = 0;
        while done < bytes.len() {
            let Ok(room) = self.admit(place) else { return place.fail() };
            let part = &bytes[done..bytes.len().min(done + room as usize)];
            place.write(at + done as u32, Piece::Bytes(part));
            done += part.len();
        }
    }

    fn dma_in(&self, place: &Place, at: u32, piece: Piece<'_>) {
        place.write(at, piece);
    }

    fn settle(&self, place: &Place) {
        if place.copied_bytes() > 0 {
            self.copy(place.copied_bytes());
        }
    }

    fn abandon(&self, place: Place) {
        drop(place);
    }
}

/// An open window: a page of the value log, and the leave to keep it.
pub struct Window {
    place: Place,
    _share: WindowShare,
}

/// A window is a whole page of the value log. The host decides what lies in the page, and the controller in the part
/// that was granted to it; the packing policy sees one value of a page.
impl<T: IndexOverLog> Exposing for OverLog<T> {
    type Window = Window;

    fn window_bytes(&self) -> Option<u32> {
        Some(self.page_bytes()).filter(|bytes| *bytes <= self.log().packed_max_bytes())
    }

    fn open_window(&self) -> Result<Window, Status> {
        let share = self.log().share_for_window().ok_or(Status::COMMAND_INTERRUPTED)?;
        let place = self.reserve_in_log(self.page_bytes(), Arrival::Inline)?;
        Ok(Window { place, _share: share })
    }

    fn write_window(&self, window: &Window, at: u32, piece: Piece<'_>) {
        window.place.write(at, piece);
    }

    fn read_window(&self, window: &Window, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        window.place.read(at, bytes, sink);
    }

    fn place_in(&self, window: &Window, key: &Key, at: u32, bytes: u32) -> Result<Place, Status> {
        self.accept(key, bytes)?;
        Ok(window.place.part(at, bytes))
    }
}
