//! Windows into the page buffer, at most one for each queue: which queue has which window, and when a window is closed.
//! The bytes of one window are in [`super::open_window`].
//!
//! The rules are [`kvdrive_nvme::window`]'s. A window is a reservation whose values are known only when their
//! commands come: until then the host's bytes are in the buffer and belong to no value. A queue that asks for
//! another window, or whose last value would not fit a second time, gets a fresh one, and the old one is
//! closed: its page may leave the buffer.
//!
//! There are fewer windows than there may be queues. A queue keeps its window as long as it uses it: if queues took
//! windows from each other, every store would have to request a new one. An idle window goes to the next queue that
//! asks ([`Sessions::close_idle`]).

use kvdrive_link::Session;
use kvdrive_nvme::Status;
use kvdrive_nvme::window::{ASK, Grant, NO_WINDOW};

use super::open_window::OpenWindow;
use super::sessions::{QueueState, Sessions};

/// A window is idle if none of the last `IDLE_TURNS` x (number of open windows) uses was a use of this window. A
/// request for a window that is refused counts as a use.
const IDLE_TURNS: u64 = 16;

/// The state of the window that a CXL store names.
pub enum WindowMatch {
    /// It is open, and the named bytes now belong to the value.
    Taken,
    /// Another window is open, which the host must name instead.
    Stale,
    /// The queue needs a fresh window.
    Missing,
}

impl<P, W> Sessions<P, W> {
    fn with_window<T>(&self, session: &Session, what: impl FnOnce(&mut OpenWindow<W>) -> T) -> Option<T> {
        self.of(session, |left| left.window.as_mut().map(what)).flatten()
    }

    /// A CXL store of a queue names `at..at + bytes` of window `generation`.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] for bytes outside of the window, or that hold a value.
    pub fn find(
        &self,
        session: &Session,
        generation: u32,
        at: u32,
        bytes: u32,
    ) -> Result<WindowMatch, Status> {
        let uses = self.count_use();
        let found = self.with_window(session, |open| match () {
            () if open.generation != generation => Ok(WindowMatch::Stale),
            () if at == ASK => Ok(WindowMatch::Missing),
            () if open.take(at, bytes) => {
                open.last_use = uses;
                Ok(WindowMatch::Taken)
            }
            () => Err(Status::INVALID_FIELD),
        });
        found.unwrap_or(Ok(WindowMatch::Missing))
    }

    /// Write pointer and generation of a queue's window, as completions report them.
    pub fn present(&self, session: &Session) -> (u32, u32) {
        self.with_window(session, |open| (open.end(), open.generation)).unwrap_or((0, NO_WINDOW))
    }

    /// Is there room for another value like the one that ends at `end`?
    pub fn has_room(&self, session: &Session, end: u32, bytes: u32) -> bool {
        self.with_window(session, |open| open.has_room(end, bytes)).unwrap_or(false)
    }

    /// Closes the window of a queue.
    pub fn close_window(&self, session: &Session) {
        let closed = self.of(session, |left| left.window.take()).flatten();
        // Dropping a window may free a segment, so nothing may be borrowed here.
        drop(closed);
    }

    /// Closes every window. The next command that names a closed window gets an error.
    pub fn close_windows(&self) {
        let mut by_number = self.by_number.borrow_mut();
        let closed: Vec<_> = by_number.iter_mut().filter_map(|left| left.window.take()).collect();
        drop(by_number);
        drop(closed);
    }

    /// Closes the window that was not used for the longest time, if it is idle. `false`: no window is idle.
    pub fn close_idle(&self) -> bool {
        let mut by_number = self.by_number.borrow_mut();
        let windows = || by_number.iter().filter_map(|left| left.window.as_ref());
        let idle_before = self.uses().saturating_sub(windows().count() as u64 * IDLE_TURNS);
        let oldest = windows().map(|open| open.last_use).min().filter(|oldest| *oldest < idle_before);
        let is_oldest =
            |left: &&mut QueueState<P, W>| left.window.as_ref().map(|open| open.last_use) == oldest;
        let closed = oldest.and_then(|_| by_number.iter_mut().find(is_oldest)?.window.take());
        drop(by_number);
        closed.is_some()
    }

    /// Gives a queue a fresh window of `bytes` bytes.
    pub fn open_window(&self, session: &Session, window: W, bytes: u32) {
        let open = OpenWindow::new(self.next_generation(), self.uses(), window, bytes);
        let before = self.of_new(session, |left| left.window.replace(open));
        drop(before);
    }

    /// Takes room for a value that DMA brings, at a slot boundary in the bytes that the host granted. `None`: there is
    /// no room, or the window is closed.
    pub fn take_granted<T>(
        &self,
        session: &Session,
        grant: Grant,
        bytes: u32,
        place: impl FnOnce(&W, u32) -> T,
    ) -> Option<(T, u32)> {
        let uses = self.count_use();
        self.with_window(session, |open| {
            if open.generation != grant.generation || bytes == 0 {
                return None;
            }
            let at = open.take_slot(grant.from, bytes)?;
            open.last_use = uses;
            Some((place(&open.window, at), at))
        })
        .flatten()
    }

    /// Frees `at..at + bytes` of window `generation`, because the command whose value took them is refused; it is
    /// called before the refusal is reported. If that window is closed by now, nothing is freed.
    pub fn release(&self, session: &Session, generation: u32, at: u32, bytes: u32) {
        self.with_window(session, |open| {
            if open.generation == generation {
                open.release(at, bytes);
            }
        });
    }

    /// The window of a queue, for a value in it.
    pub fn use_window<T>(&self, session: &Session, what: impl FnOnce(&W) -> T) -> Option<T> {
        self.with_window(session, |open| what(&open.window))
    }

    /// The open window of that generation, whosever it is.
    pub fn of_generation(&self, generation: u64, what: impl FnOnce(&W)) {
        let by_number = self.by_number.borrow();
        let mut windows = by_number.iter().filter_map(|left| left.window.as_ref());
        if let Some(open) = windows.find(|open| u64::from(open.generation) == generation) {
            what(&open.window);
        }
    }
}
