//! Reserving a place for a value and filling it.

use std::borrow::Cow;

use kvdrive_content::Piece;
use kvdrive_link::Arrival;
use kvdrive_nvme::Status;
use kvdrive_sim::join_all;

use super::address::page_kind;
use super::head::{LogHead, OpenPage, OpenSegment};
use super::large::ArrivingLarge;
use super::segments::Segments;
use super::shape::value_share;
use super::{Head, Log, Record, SegmentId, Use, Vaddr, ValueLog, ValueLogState, ValueLogStatistics};
use crate::packing::{LogView, Placement};
use crate::page_buffer::{Hold, PageKind, Pin};

/// The pages of a place, pinned. `None`: not in the buffer yet, or landed.
enum Pages {
    One(Option<Pin>),
    Several(Vec<Option<Pin>>),
    /// It goes past the buffer.
    Past(Box<ArrivingLarge>),
}

/// The place of one value. A place that is dropped is given up, unless its bytes were marked live. While it
/// is held, its segment is not returned. Until [`Place::landed`] its pages stay in the buffer, too.
pub struct Place {
    log: ValueLog,
    address: Vaddr,
    bytes: u32,
    copied_bytes: u32,
    pages: Pages,
    /// `None` for a value of 0 bytes: it lies nowhere.
    segment: Option<SegmentId>,
}

impl Place {
    /// Where the value lies.
    pub fn address(&self) -> Vaddr {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Bytes that firmware must copy after DMA, to get the value where it belongs.
    pub fn copied_bytes(&self) -> u32 {
        self.copied_bytes
    }

    /// Puts `piece` at byte `at` of the value. Not after [`Place::landed`].
    #[inline]
    pub fn write(&self, at: u32, piece: Piece<'_>) {
        assert!(
            at + piece.bytes() <= self.bytes,
            "{at}+{} is beyond a value of {}",
            piece.bytes(),
            self.bytes
        );
        let log = &self.log.0;
        let page_bytes = log.shape.page_bytes;
        let within = (self.address.0 & u64::from(page_bytes - 1)) as u32 + at;
        let pins = match &self.pages {
            Pages::One(Some(pin)) => return log.write_page(pin, self.address.0, within, piece),
            // A value of 0 bytes has no page.
            Pages::One(None) => {
                return assert_eq!(piece.bytes(), 0, "bytes come before the value has landed");
            }
            Pages::Several(pins) => pins,
            Pages::Past(value) => return self.log.write_large(value, at, piece),
        };
        let (mut within, mut done) = (within, 0);
        while done < piece.bytes() {
            let (page, at) = (within / page_bytes, within % page_bytes);
            let take = (page_bytes - at).min(piece.bytes() - done);
            let pin = pins[page as usize].as_ref().expect("bytes come before the value has landed");
            log.write_page(
                pin,
                self.address.0 + u64::from(page) * u64::from(page_bytes),
                at,
                piece.slice(done, take),
            );
            done += take;
            within += take;
        }
    }

    /// Hands out `bytes` bytes of the value from `at` on; bytes that have not arrived are zeros. Not after
    /// [`Place::landed`].
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        assert!(at + bytes <= self.bytes, "{at}+{bytes} is beyond a value of {}", self.bytes);
        let page_bytes = self.log.0.shape.page_bytes;
        let pins = match &self.pages {
            Pages::One(pin) => std::slice::from_ref(pin),
            Pages::Several(pins) => pins,
            Pages::Past(_) => unreachable!("a window is a page"),
        };
        let (mut within, mut left) = ((self.address.0 & u64::from(page_bytes - 1)) as u32 + at, bytes);
        while left > 0 {
            let (page, at) = (within / page_bytes, within % page_bytes);
            let take = (page_bytes - at).min(left);
            pins[page as usize]
                .as_ref()
                .expect("a value that has not landed pins its pages")
                .read(at, take, sink);
            within += take;
            left -= take;
        }
    }

    /// A separate place for the `bytes` bytes from `at` on, for a value in a window. Not after [`Place::landed`]. The
    /// new place may outlive this one. Bytes that the host never stored are zero.
    pub fn part(&self, at: u32, bytes: u32) -> Place {
        assert!(at + bytes <= self.bytes, "{at}+{bytes} is beyond a place of {}", self.bytes);
        let (Some(segment), true) = (self.segment, bytes > 0) else { return self.log.nowhere() };
        let log = &self.log.0;
        let address = Vaddr(self.address.0 + u64::from(at));
        let page_bytes = u64::from(log.shape.page_bytes);
        let first = (address.0 / page_bytes) as u32;
        let last = ((address.0 + u64::from(bytes) - 1) / page_bytes) as u32;
        let pin = |lpa| {
            let pin = log.buffer.try_pin(lpa, Hold::Drive).expect("the whole place pins its pages");
            pin.claim();
            Some(pin)
        };
        let pages = if first == last {
            Pages::One(pin(first))
        } else {
            Pages::Several((first..=last).map(pin).collect())
        };
        log.state.borrow_mut().segments.add_place(segment);
        Place { log: self.log.clone(), address, bytes, copied_bytes: 0, pages, segment: Some(segment) }
    }

    /// How many bytes may come next: a value that goes through the buffer has its pages already, and a large value gets
    /// the room for some of its bytes.
    ///
    /// # Errors
    /// [`Status::CAPACITY_EXCEEDED`] when the next byte needs a segment and the head may not take another one.
    #[inline]
    pub fn admit(&self) -> Result<u32, Status> {
        match &self.pages {
            Pages::One(_) | Pages::Several(_) => Ok(u32::MAX),
            Pages::Past(value) => self.log.admit_large(value, self.bytes),
        }
    }

    /// There was no room for bytes of a large value, which are lost.
    pub fn fail(&self) {
        if let Pages::Past(value) = &self.pages {
            value.fail();
        }
    }

    /// Have all bytes of a large value found room?
    ///
    /// # Errors
    /// [`Status::CAPACITY_EXCEEDED`] if not.
    pub fn check_whole(&self) -> Result<(), Status> {
        match &self.pages {
            Pages::Past(value) if !value.is_whole(self.bytes) => Err(Status::CAPACITY_EXCEEDED),
            _ => Ok(()),
        }
    }

    /// Does it go past the buffer?
    #[inline]
    pub fn is_large(&self) -> bool {
        matches!(self.pages, Pages::Past(_))
    }

    /// See [`crate::Engine::begin_unfinished`]; values in the buffer have their share of it since they were reserved.
    pub fn begin_unfinished(&self) -> Result<(), Status> {
        let Pages::Past(value) = &self.pages else { return Ok(()) };
        self.log.begin_unfinished_large(value, self.bytes)
    }

    /// All bytes are there: its pages may leave the buffer. Those of a large value are waited for.
    #[inline]
    pub fn landed(&mut self) {
        match &self.pages {
            Pages::One(_) | Pages::Several(_) => self.pages = Pages::One(None),
            Pages::Past(value) => self.log.land_large(value),
        }
    }
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        let log = &self.log.0;
        if let (Pages::Past(value), false) = (&self.pages, log.sim.halted()) {
            return self.log.end_large(value);
        }
        let Some(segment) = self.segment.filter(|_| !log.sim.halted()) else { return };
        let spent = log.state.borrow_mut().segments.end_place(segment);
        if spent {
            self.pages = Pages::One(None); // no page of a segment given back is pinned
            log.retire(segment);
        }
    }
}

/// Entries promised to a reservation under way.
struct Promise<'a> {
    log: &'a Log,
    pages: u32,
    for_host: bool,
}

impl<'a> Promise<'a> {
    fn new(log: &'a Log, pages: u32, hold: Hold) -> Promise<'a> {
        let for_host = hold == Hold::Host;
        log.promised.set(log.promised.get() + pages);
        if for_host {
            log.promised_host.set(log.promised_host.get() + pages);
        }
        Promise { log, pages, for_host }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let log = self.log;
        log.promised.set(log.promised.get() - self.pages);
        if self.for_host {
            log.promised_host.set(log.promised_host.get() - self.pages);
        }
        log.buffer.wake_waiting();
    }
}

/// The right to keep one page for a host to fill, while this is held. All windows together may have half of the host's
/// share of the buffer, so that values that arrive in commands always have the other half, however idle the windows
/// are.
pub struct WindowShare(ValueLog);

impl Drop for WindowShare {
    fn drop(&mut self) {
        let windows = &self.0.0.windows;
        windows.set(windows.get() - 1);
    }
}

/// The decision of the packing policy for a value.
enum Decided {
    /// It has its place, in a page that is being filled.
    There(Place),
    /// Its place is still to be made.
    At(Placement),
}

/// The result of a placement, before its pages are in the buffer.
struct Placed {
    segment: OpenSegment,
    /// First page in the head's linear space.
    first_page: u64,
    first_lpa: u32,
    pages: u32,
    kind: PageKind,
}

impl ValueLog {
    /// A place for a value of `bytes` bytes that arrives as `arrival` says. May wait for programs, if pages
    /// must leave the buffer for it.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`] beyond [`ValueLog::max_value_bytes`]; [`Status::CAPACITY_EXCEEDED`] when the
    /// value needs a segment and the head may not take another one; [`Status::COMMAND_INTERRUPTED`] when unfinished
    /// values of the host pin so much of the buffer that the place would have to wait for the host.
    pub fn reserve(&self, head: Head, bytes: u32, arrival: Arrival) -> Result<Place, Status> {
        if bytes == 0 {
            return Ok(self.nowhere());
        }
        if bytes > self.0.shape.packed_max_bytes {
            return self.reserve_large(head, bytes);
        }
        let (hold, pages) = (hold_of(head, arrival), self.0.pages_at_most(bytes));
        while !self.0.admits(head, hold, pages)? {
            self.0.buffer.wait_for_release();
        }
        let choice = match self.place_in_open_page(head, bytes, arrival, hold)? {
            Decided::There(place) => return Ok(place),
            Decided::At(choice) => choice,
        };
        let (mut place, placed, all_there) = self.place_at(head, choice, bytes, arrival, hold);
        if !all_there {
            let _promise = Promise::new(&self.0, pages, hold);
            self.open_pages(head, &mut place, &placed, hold, arrival)?;
        }
        Ok(place)
    }

    /// A place for a value that is too large for the buffer. Its bytes come in order.
    fn reserve_large(&self, head: Head, bytes: u32) -> Result<Place, Status> {
        if head != Head::Host || bytes > self.max_value_bytes() {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let value = self.begin_large(bytes)?;
        let address = self.addresses(value.first()).start;
        let pages = Pages::Past(Box::new(value));
        Ok(Place { log: self.clone(), address, bytes, copied_bytes: 0, pages, segment: None })
    }

    /// It is obtained before a window is reserved, and kept with it. `None`: others have all there is.
    pub fn share_for_window(&self) -> Option<WindowShare> {
        let log = &self.0;
        let windows = log.windows.get();
        (windows < value_share(log.buffer.entries()) / 2).then(|| {
            log.windows.set(windows + 1);
            WindowShare(self.clone())
        })
    }

    /// A value without bytes.
    fn nowhere(&self) -> Place {
        Place {
            log: self.clone(),
            address: Vaddr(0),
            bytes: 0,
            copied_bytes: 0,
            pages: Pages::One(None),
            segment: None,
        }
    }

    /// Asks the packing policy. In the usual case the value goes to a page that is being filled, and has its
    /// place without a search or an allocation.
    ///
    /// Nothing is awaited between the decision and the pin, here and in [`ValueLog::place_at`]: a page that
    /// leaves the buffer in between would get bytes after it left.
    #[inline]
    fn place_in_open_page(
        &self,
        head_name: Head,
        bytes: u32,
        arrival: Arrival,
        hold: Hold,
    ) -> Result<Decided, Status> {
        let log = &*self.0;
        let mut state = log.state.borrow_mut();
        let ValueLogState { heads, segments, statistics } = &mut *state;
        let head = &mut heads[head_name as usize];
        let choice = log.choose(head_name, head, bytes, arrival)?;
        log.record(|| Record::ValuePlaced { head: head_name, bytes, arrival });
        statistics.values[head_name as usize] += 1;
        statistics.copied_bytes[head_name as usize] += u64::from(choice.copied_bytes);

        let page_bytes = u64::from(log.view.page_bytes);
        let start = log.view.page_start(choice.at);
        let end = choice.at + u64::from(bytes);
        // A value that fills its page ends the filling of it: that takes a search anyway.
        if end >= start + page_bytes || head.packing.oldest_open() >= head.open_from + page_bytes {
            return Ok(Decided::At(choice));
        }
        let Some(page) = head.open_page(start) else { return Ok(Decided::At(choice)) };
        let Some(pin) = log.buffer.try_pin_at(page.slot, page.lpa, hold) else {
            return Ok(Decided::At(choice));
        };
        segments.add_place(page.segment);
        Ok(Decided::There(Place {
            log: self.clone(),
            address: Vaddr(u64::from(page.lpa) * page_bytes + (choice.at - start)),
            bytes,
            copied_bytes: choice.copied_bytes,
            pages: Pages::One(Some(pin)),
            segment: Some(page.segment),
        }))
    }

    /// Takes a segment if need be and pins the pages that are in the buffer. Says whether that is all of
    /// them.
    fn place_at(
        &self,
        head_name: Head,
        choice: Placement,
        bytes: u32,
        arrival: Arrival,
        hold: Hold,
    ) -> (Place, Placed, bool) {
        let log = &*self.0;
        let mut state = log.state.borrow_mut();
        let ValueLogState { heads, segments, statistics } = &mut *state;
        let head = &mut heads[head_name as usize];
        let segment = match head.segment_at(choice.at, log.view.segment_bytes) {
            Some(segment) => segment,
            None => log.open_segment(head_name, head, segments, statistics, choice.at),
        };
        let page_bytes = u64::from(log.view.page_bytes);
        let first_page = log.view.page_start(choice.at);
        let within = choice.at - first_page;
        let lpas = log.pool.lpas(segment.id);
        let first_lpa = lpas.start + ((first_page - segment.base) / page_bytes) as u32;
        let pages = (within + u64::from(bytes)).div_ceil(page_bytes) as u32;
        assert!(
            first_lpa + pages <= lpas.end,
            "a value of {bytes} bytes at {} leaves its segment",
            choice.at
        );
        segments.add_place(segment.id);
        let kind = page_kind(head_name, segments.get(segment.id).opening, pages);
        let placed = Placed { segment, first_page, first_lpa, pages, kind };
        let mut place = Place {
            log: self.clone(),
            address: Vaddr(u64::from(first_lpa) * page_bytes + within),
            bytes,
            copied_bytes: choice.copied_bytes,
            pages: Pages::One(None),
            segment: Some(segment.id),
        };
        let all_there = log.pin_resident(&mut place, &placed, hold);
        if all_there {
            head.remember_pages(&place.pages, &placed, arrival, &log.view);
        }
        let spent = log.close_passed(head, segments);
        drop(state);
        log.retire_all(spent);
        (place, placed, all_there)
    }

    /// Brings the pages of a place that are not in the buffer.
    fn open_pages(
        &self,
        head: Head,
        place: &mut Place,
        placed: &Placed,
        hold: Hold,
        arrival: Arrival,
    ) -> Result<(), Status> {
        let buffer = &self.0.buffer;
        match &mut place.pages {
            Pages::One(pin) => *pin = Some(buffer.open(placed.first_lpa, placed.kind, hold)?),
            Pages::Past(_) => unreachable!("it has no pages in the buffer"),
            Pages::Several(pins) => {
                // Side by side, as each may have to wait for a program.
                let missing: Vec<u32> =
                    (0..placed.pages).filter(|page| pins[*page as usize].is_none()).collect();
                let open = |page: &u32| buffer.open(placed.first_lpa + page, placed.kind, hold);
                let opens = missing.iter().map(|page| || open(page));
                for (page, pin) in missing.iter().zip(join_all(&self.0.sim, opens)) {
                    pins[*page as usize] = Some(pin?);
                }
            }
        }
        let mut state = self.0.state.borrow_mut();
        state.heads[head as usize].remember_pages(&place.pages, placed, arrival, &self.0.view);
        Ok(())
    }
}

impl LogHead {
    /// Remembers the last page of a complete place, for the next value. Closes those of its pages that the head passed
    /// while they were loaded.
    fn remember_pages(&mut self, pages: &Pages, placed: &Placed, arrival: Arrival, view: &LogView) {
        let pins = match pages {
            Pages::One(pin) => std::slice::from_ref(pin),
            Pages::Several(pins) => pins,
            Pages::Past(_) => unreachable!("it has no pages in the buffer"),
        };
        for (pin, page) in pins.iter().zip(0..) {
            let pin = pin.as_ref().expect("every page was brought");
            let start = placed.first_page + u64::from(page) * u64::from(view.page_bytes);
            if start < self.open_from {
                pin.close();
            } else if page + 1 == placed.pages {
                let (lpa, slot) = (placed.first_lpa + page, pin.slot());
                let open = OpenPage { start, lpa, segment: placed.segment.id, slot };
                self.remember(open, arrival == Arrival::Inline);
            }
        }
    }
}

impl Log {
    /// Most pages that a value of `bytes` bytes lies in.
    #[inline]
    fn pages_at_most(&self, bytes: u32) -> u32 {
        if bytes <= self.shape.page_bytes && !self.view.slots_cross_pages {
            1
        } else {
            bytes.div_ceil(self.shape.page_bytes) + 1
        }
    }

    /// May a reservation pin `pages` more entries? `false`: not yet.
    ///
    /// | who | may pin, of all entries |
    /// |---|---|
    /// | open windows | half of 3/8 |
    /// | those and values whose rest the host has yet to send | 3/8 |
    /// | those and values that DMA brings | 6/8 |
    /// | those and garbage collection | 7/8 |
    ///
    /// One value needs at most 3/8, so each line leaves room for one value beyond the line above: a task that
    /// waits, waits for pins that end by themselves.
    #[inline]
    fn admits(&self, head: Head, hold: Hold, pages: u32) -> Result<bool, Status> {
        let (entries, pinned, host_pinned) = self.buffer.occupancy();
        let share = value_share(entries);
        if hold == Hold::Host {
            if host_pinned + pages > share {
                self.state.borrow_mut().statistics.interrupted += 1;
                return Err(Status::COMMAND_INTERRUPTED);
            }
            if host_pinned + self.promised_host.get() + pages > share {
                return Ok(false);
            }
        }
        let limit = if head == Head::Gc { entries - entries / 8 } else { 2 * share };
        Ok(pinned + self.promised.get() + pages <= limit)
    }

    /// Lets the policy choose a place, and undoes the choice if it needs a segment that the head may not take.
    #[inline]
    fn choose(
        &self,
        head_name: Head,
        head: &mut LogHead,
        bytes: u32,
        arrival: Arrival,
    ) -> Result<Placement, Status> {
        if self.pool.may_take(use_of(head_name)) {
            return Ok(head.packing.place(bytes, arrival, &self.view));
        }
        let before = head.packing.save();
        let choice = head.packing.place(bytes, arrival, &self.view);
        if head.segment_at(choice.at, self.view.segment_bytes).is_some() {
            return Ok(choice);
        }
        let undone = head.packing.restore(&before);
        assert!(undone, "a packing policy does not understand itself");
        Err(Status::CAPACITY_EXCEEDED)
    }

    /// Takes the segment that linear offset `at` falls into.
    fn open_segment(
        &self,
        head_name: Head,
        head: &mut LogHead,
        segments: &mut Segments,
        statistics: &mut ValueLogStatistics,
        at: u64,
    ) -> OpenSegment {
        let base = at - at % self.view.segment_bytes;
        let last = head.window.back().map_or(0, |last| last.base + self.view.segment_bytes);
        assert!(base >= last, "a segment at {base} after one that ends at {last}");
        let id = self.pool.alloc(use_of(head_name)).expect("the pool was asked before");
        let opening = segments.open(id, head_name, base);
        statistics.segments_opened += 1;
        self.record(|| Record::SegmentOpened { segment: id, head: head_name, base, opening });
        let segment = OpenSegment { base, id };
        head.window.push_back(segment);
        segment
    }

    /// Pins those pages of a place that are in the buffer. `true` when all are.
    fn pin_resident(&self, place: &mut Place, placed: &Placed, hold: Hold) -> bool {
        if placed.pages == 1 {
            let pin = self.buffer.try_pin(placed.first_lpa, hold);
            let there = pin.is_some();
            place.pages = Pages::One(pin);
            return there;
        }
        let lpas = placed.first_lpa..placed.first_lpa + placed.pages;
        let pins: Vec<Option<Pin>> = lpas.map(|lpa| self.buffer.try_pin(lpa, hold)).collect();
        let all_there = pins.iter().all(Option::is_some);
        place.pages = Pages::Several(pins);
        all_there
    }

    #[inline]
    fn write_page(&self, pin: &Pin, address: u64, at: u32, piece: Piece<'_>) {
        pin.write(at, piece);
        let lpa = (address / u64::from(self.shape.page_bytes)) as u32;
        self.record(|| match piece {
            Piece::Bytes(bytes) => Record::BytesWritten { lpa, at, bytes: Cow::Borrowed(bytes) },
            Piece::Pattern(pattern) => Record::PatternWritten { lpa, at, pattern },
        });
    }
}

/// The share of the buffer in which the pages of a value are pinned.
#[inline]
fn hold_of(head: Head, arrival: Arrival) -> Hold {
    match (head, arrival) {
        (Head::Gc | Head::Large, _) | (_, Arrival::Dma) => Hold::Drive,
        (Head::Host, Arrival::Inline | Arrival::Hybrid) => Hold::Host,
    }
}

fn use_of(head: Head) -> Use {
    match head {
        Head::Host | Head::Large => Use::Value,
        Head::Gc => Use::Gc,
    }
}
