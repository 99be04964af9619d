//! An engine that keeps values in a map. It has the properties on which the controller may rely, without flash and
//! without time of its own. It asserts the controller's obligations in turn: bytes stay inside their place, and each
//! place is committed or abandoned once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::Counts;
use kvdrive_engines::{Engine, Utilization};
use kvdrive_engines::{EngineConfig, Parts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_link::transfer::Exposing;
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Ns, Rng, Sim};

/// A value and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub content: Region,
    pub bytes: u32,
}

/// A place that has not been committed.
pub struct Place {
    content: RefCell<Region>,
    bytes: u32,
    arrived_bytes: Cell<u32>,
    /// The host writes it through a window, except for a tail.
    in_window: bool,
}

/// Bytes of a window, unless a test sets another number.
pub const WINDOW_BYTES: u32 = 4096;

/// Waits of random length inside every call, so that commands overtake each other.
pub struct Jitter {
    pub sim: Sim,
    pub rng: RefCell<Rng>,
    pub below_ns: Ns,
}

/// The engine.
#[derive(Default)]
pub struct MockEngine {
    pub values: RefCell<BTreeMap<Key, Rc<Stored>>>,
    /// Places reserved and neither committed nor abandoned.
    pub open_places: Cell<u32>,
    /// Most open places: `reserve` refuses further ones.
    pub most_places: Option<u32>,
    pub largest_value_bytes: u32,
    pub jitter: Option<Jitter>,
    /// How values arrived.
    pub arrivals: RefCell<Vec<(u32, Arrival)>>,
    pub log_arrivals: bool,
    /// Each load: its start, its length, and the end that the reader announced.
    pub loads: RefCell<Vec<(u32, u32, u32)>>,
    /// After this many commits, further ones fail for lack of room.
    pub commits_left: Cell<Option<u32>>,
    /// Cursors have lost their pairs.
    pub lost_cursors: Cell<bool>,
    /// Number of further loads that are answered 21h.
    pub busy_loads: Cell<u32>,
    pub window_bytes: u32,
    /// Most windows; `None`: any number.
    pub most_windows: Option<usize>,
    /// Its reference count is one more than the number of open windows.
    pub windows: Rc<()>,
}

/// An open window.
pub struct Window {
    content: RefCell<Region>,
    _open: Rc<()>,
}

impl MockEngine {
    /// An engine that takes values of up to `largest_value_bytes`.
    pub fn new(largest_value_bytes: u32) -> MockEngine {
        MockEngine { largest_value_bytes, window_bytes: WINDOW_BYTES, ..MockEngine::default() }
    }

    fn wait(&self) {
        let Some(jitter) = &self.jitter else { return };
        let span = jitter.rng.borrow_mut().below(jitter.below_ns);
        jitter.sim.sleep(span);
    }

    fn close_place(&self) {
        let open = self.open_places.get().checked_sub(1);
        self.open_places.set(open.expect("a place is given up once"));
    }

    fn arrive(&self, place: &Place, at: u32, piece: Piece<'_>) {
        let bytes = piece.bytes();
        assert!(at + bytes <= place.bytes, "{at}+{bytes} of {}", place.bytes);
        place.content.borrow_mut().write(at, piece);
        if !place.in_window {
            place.arrived_bytes.set(place.arrived_bytes.get() + bytes);
        }
    }
}

impl Landing for MockEngine {
    type Place = Place;

    fn reserve(&self, _: &Key, bytes: u32, arrival: Arrival) -> Result<Place, Status> {
        self.wait();
        assert!(bytes <= self.largest_value_bytes, "the controller checks sizes");
        if self.most_places.is_some_and(|most| self.open_places.get() >= most) {
            return Err(Status::CAPACITY_EXCEEDED);
        }
        if self.log_arrivals {
            self.arrivals.borrow_mut().push((bytes, arrival));
        }
        self.open_places.set(self.open_places.get() + 1);
        Ok(Place { content: RefCell::default(), bytes, arrived_bytes: Cell::new(0), in_window: false })
    }

    fn copy_in(&self, place: &Place, at: u32, bytes: &[u8]) {
        self.wait();
        self.arrive(place, at, Piece::Bytes(bytes));
    }

    fn dma_in(&self, place: &Place, at: u32, piece: Piece<'_>) {
        self.arrive(place, at, piece);
    }

    fn settle(&self, place: &Place) {
        self.wait();
        assert_eq!(place.arrived_bytes.get(), place.bytes, "settled before everything arrived");
    }

    fn abandon(&self, _: Place) {
        self.close_place();
    }
}

impl Exposing for MockEngine {
    type Window = Window;

    fn window_bytes(&self) -> Option<u32> {
        Some(self.window_bytes)
    }

    fn open_window(&self) -> Result<Window, Status> {
        self.wait();
        if self.most_windows.is_some_and(|most| Rc::strong_count(&self.windows) > most) {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        Ok(Window { content: RefCell::default(), _open: self.windows.clone() })
    }

    fn write_window(&self, window: &Window, at: u32, piece: Piece<'_>) {
        assert!(at + piece.bytes() <= self.window_bytes);
        window.content.borrow_mut().write(at, piece);
    }

    fn read_window(&self, window: &Window, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        assert!(at + bytes <= self.window_bytes);
        window.content.borrow().read(at, bytes, sink);
    }

    fn place_in(&self, window: &Window, _: &Key, at: u32, bytes: u32) -> Result<Place, Status> {
        assert!(at + bytes <= self.window_bytes);
        self.open_places.set(self.open_places.get() + 1);
        let mut content = Region::new();
        let mut to = 0;
        window.content.borrow().read(at, bytes, &mut |piece| {
            content.write(to, piece);
            to += piece.bytes();
        });
        Ok(Place { content: content.into(), bytes, arrived_bytes: Cell::new(bytes), in_window: true })
    }
}

impl Engine for MockEngine {
    type Found = Rc<Stored>;
    /// The remaining pairs, last first.
    type Cursor = Vec<(Key, Rc<Stored>)>;
    const ORDERED: bool = true;

    fn commit(&self, key: Key, place: Place, options: StoreOptions) -> Result<(), Status> {
        self.wait();
        self.close_place();
        assert_eq!(place.arrived_bytes.get(), place.bytes, "committed before everything arrived");
        if let Some(left) = self.commits_left.get() {
            self.commits_left.set(Some(left.checked_sub(1).ok_or(Status::CAPACITY_EXCEEDED)?));
        }
        let mut values = self.values.borrow_mut();
        match values.contains_key(&key) {
            true if options.add_only => return Err(Status::KEY_EXISTS),
            false if options.update_only => return Err(Status::KEY_NOT_FOUND),
            _ => {}
        }
        let stored = Stored { content: place.content.into_inner(), bytes: place.bytes };
        values.insert(key, Rc::new(stored));
        Ok(())
    }

    fn find(&self, key: Key) -> Result<Option<Rc<Stored>>, Status> {
        self.wait();
        Ok(self.values.borrow().get(&key).cloned())
    }

    fn value_bytes(&self, found: &Rc<Stored>) -> u32 {
        found.bytes
    }

    fn load(
        &self,
        found: &Rc<Stored>,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        self.wait();
        if let Some(left) = self.busy_loads.get().checked_sub(1) {
            self.busy_loads.set(left);
            return Err(Status::COMMAND_INTERRUPTED);
        }
        assert!(at + bytes <= until && until <= found.bytes, "{at}+{bytes} of {until} of {}", found.bytes);
        self.loads.borrow_mut().push((at, bytes, until));
        found.content.read(at, bytes, sink);
        Ok(())
    }

    fn delete(&self, key: Key) -> Result<(), Status> {
        self.wait();
        self.values.borrow_mut().remove(&key);
        Ok(())
    }

    fn delete_existing(&self, key: Key) -> Result<(), Status> {
        self.wait();
        self.values.borrow_mut().remove(&key).map(drop).ok_or(Status::KEY_NOT_FOUND)
    }

    /// Its cursors hold no room.
    fn on_held(&self, _: kvdrive_engines::GiveUpCursor) {}

    fn open_cursor(&self, from: Option<Key>) -> Result<Self::Cursor, Status> {
        self.wait();
        let values = self.values.borrow();
        let later = values.iter().filter(|(key, _)| from.is_none_or(|from| **key >= from));
        Ok(later.rev().map(|(key, stored)| (*key, stored.clone())).collect())
    }

    fn next(&self, cursor: &mut Self::Cursor) -> Result<Option<(Key, Rc<Stored>)>, Status> {
        self.wait();
        if self.lost_cursors.get() {
            return Err(Status::ITERATOR_LOST);
        }
        Ok(cursor.pop())
    }

    fn drain(&self) {}

    fn utilization(&self) -> Utilization {
        let live_bytes = self.values.borrow().values().map(|stored| u64::from(stored.bytes)).sum();
        Utilization { live_bytes, capacity_bytes: 1 << 40 }
    }

    fn max_value_bytes(&self) -> u32 {
        self.largest_value_bytes
    }

    fn power_on(_: Parts, _: Option<&[u8]>) -> Result<Self, PowerOnError> {
        unreachable!("tests build it themselves")
    }

    fn protected_image(&self) -> Vec<u8> {
        Vec::new()
    }

    fn fold(_: &EngineConfig, _: &[u8], _: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        unreachable!("nothing keeps its journal")
    }

    fn check(_config: &EngineConfig) -> Result<(), PowerOnError> {
        unreachable!("no configuration names it")
    }

    fn image_settings(_config: &EngineConfig) -> Vec<(&'static str, String)> {
        unreachable!("no configuration names it")
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}
