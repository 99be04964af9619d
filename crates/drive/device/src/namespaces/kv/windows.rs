//! Windows into the page buffer, one a queue at most: which are open, and which of their bytes hold values.
//!
//! The rules are [`kvdrive_spec::window`]'s. A window is a reservation whose values are known only when their
//! commands come: until then the host's bytes are in the buffer and belong to no value. A queue that asks for
//! another window, or whose last value would not fit a second time, gets a fresh one, and the old one is
//! closed: its page may leave the buffer.
//!
//! There are fewer windows than there may be queues. A queue keeps its window as long as it is used: taking
//! windows from each other, queues would all ask for one with every store. One that is not used goes to the
//! next queue that asks for one ([`Sessions::close_idle`]).

use kvdrive_engines::packing::SLOT_BYTES;
use kvdrive_link::Session;
use kvdrive_link::transfer::window::lined;
use kvdrive_spec::Status;
use kvdrive_spec::window::{ASK, Grant, NO_WINDOW};

use super::sessions::{QueueState, Sessions};

/// Which bytes of a window hold a value.
struct Taken {
    /// One bit a byte.
    bits: Vec<u64>,
    /// First byte after all of them.
    end: u32,
}

impl Taken {
    fn new(bytes: u32) -> Taken {
        Taken { bits: vec![0; bytes.div_ceil(64) as usize], end: 0 }
    }

    /// The words that `from..to` touches, each with the bits of it that are inside.
    fn words(from: u32, to: u32) -> impl Iterator<Item = (usize, u64)> {
        (from / 64..to.div_ceil(64)).map(move |word| {
            let (first, last) = ((word * 64).max(from) % 64, (word * 64 + 64).min(to) - word * 64);
            // A range of no bytes inside a word touches it and has none of its bits.
            (word as usize, u64::MAX.checked_shr(64 - (last - first)).unwrap_or(0) << first)
        })
    }

    /// The first byte after the last taken one in `from..to`; `None`: all are free.
    fn end_of_taken(&self, from: u32, to: u32) -> Option<u32> {
        Taken::words(from, to)
            .map(|(word, mask)| (word, self.bits[word] & mask))
            .filter(|(_, taken)| *taken != 0)
            .last()
            .map(|(word, taken)| word as u32 * 64 + 64 - taken.leading_zeros())
    }

    fn take(&mut self, from: u32, to: u32) {
        if from < to {
            Taken::words(from, to).for_each(|(word, mask)| self.bits[word] |= mask);
            self.end = self.end.max(to);
        }
    }

    /// Frees a range that [`Taken::take`] took.
    fn release(&mut self, from: u32, to: u32) {
        if from < to {
            Taken::words(from, to).for_each(|(word, mask)| self.bits[word] &= !mask);
            if self.end == to {
                self.end = self.end_of_taken(0, from).unwrap_or(0);
            }
        }
    }
}

/// A window is idle when other windows, and queues that asked for one in vain, have had so many turns since it was used
/// last.
const IDLE_TURNS: u64 = 16;

/// An open window.
pub struct Open<W> {
    generation: u32,
    /// [`Sessions::count_use`] when it was opened or last took a value.
    last_use: u64,
    window: W,
    bytes: u32,
    taken: Taken,
}

impl<W> Open<W> {
    /// Takes `at..at + bytes` if it is inside and free.
    fn take(&mut self, at: u32, bytes: u32) -> bool {
        let Some(end) = at.checked_add(bytes).filter(|end| *end <= self.bytes) else { return false };
        let free = self.taken.end_of_taken(at, end).is_none();
        if free {
            self.taken.take(at, end);
        }
        free
    }

    /// Would a host find room for a value of `bytes` bytes at or after `from`?
    fn has_room(&self, mut from: u32, bytes: u32) -> bool {
        loop {
            let at = lined(from, bytes);
            let Some(end) = at.checked_add(bytes).filter(|end| *end <= self.bytes) else { return false };
            match self.taken.end_of_taken(at, end) {
                None => return true,
                Some(after) => from = after,
            }
        }
    }
}

/// What a CXL store meets.
pub enum WindowMatch {
    /// The bytes it names are its value's now.
    Taken,
    /// Another window is open; it is to be named.
    Stale,
    /// There must be a fresh one.
    Missing,
}

impl<P, W> Sessions<P, W> {
    fn with_window<T>(&self, session: &Session, what: impl FnOnce(&mut Open<W>) -> T) -> Option<T> {
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

    /// The window that a queue has: write pointer and generation, as completions say it.
    pub fn present(&self, session: &Session) -> (u32, u32) {
        self.with_window(session, |open| (open.taken.end, open.generation)).unwrap_or((0, NO_WINDOW))
    }

    /// Is there room for another value like the one that ends at `end`?
    pub fn has_room(&self, session: &Session, end: u32, bytes: u32) -> bool {
        self.with_window(session, |open| open.has_room(end, bytes)).unwrap_or(false)
    }

    /// Closes the window of a queue.
    pub fn close_window(&self, session: &Session) {
        let closed = self.of(session, |left| left.window.take()).flatten();
        // Dropped here, with nothing borrowed: that may free a segment.
        drop(closed);
    }

    /// Closes every window. The next command that names a closed window is told so.
    pub fn close_windows(&self) {
        let mut by_number = self.by_number.borrow_mut();
        let closed: Vec<_> = by_number.iter_mut().filter_map(|left| left.window.take()).collect();
        drop(by_number);
        drop(closed);
    }

    /// Closes the window that was not used for the longest time, if it is idle. `false`: none is.
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
        let generation = self.next_generation();
        let open = Open { generation, last_use: self.uses(), window, bytes, taken: Taken::new(bytes) };
        let before = self.of_new(session, |left| left.window.replace(open));
        drop(before);
    }

    /// Takes room for a value that DMA brings, at a slot boundary of what the host granted. `None`: there is
    /// none, or the window has passed.
    pub fn take_granted<T>(
        &self,
        session: &Session,
        grant: Grant,
        bytes: u32,
        place: impl FnOnce(&W, u32) -> T,
    ) -> Option<(T, u32)> {
        let uses = self.count_use();
        self.with_window(session, |open| {
            let mut at = grant.from.checked_next_multiple_of(SLOT_BYTES)?;
            while open.generation == grant.generation && bytes > 0 {
                let end = at.checked_add(bytes).filter(|end| *end <= open.bytes)?;
                match open.taken.end_of_taken(at, end) {
                    Some(after) => at = after.next_multiple_of(SLOT_BYTES),
                    None => {
                        open.taken.take(at, end);
                        open.last_use = uses;
                        return Some((place(&open.window, at), at));
                    }
                }
            }
            None
        })
        .flatten()
    }

    /// The command whose value took `at..at + bytes` of window `generation` is refused: those bytes are
    /// free again, before the host hears of it. If the window has passed meanwhile there is nothing to
    /// give back.
    pub fn release(&self, session: &Session, generation: u32, at: u32, bytes: u32) {
        self.with_window(session, |open| {
            if open.generation == generation {
                open.taken.release(at, at + bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The bitmap against one flag a byte.
        #[test]
        fn bytes_are_taken_once(ranges in proptest::collection::vec((0u32..520, 0u32..200), 1..40)) {
            let mut open = Open { generation: 1, last_use: 0, window: (), bytes: 512, taken: Taken::new(512) };
            let mut flags = [false; 512];
            for (at, bytes) in ranges {
                let span = at as usize..(at + bytes) as usize;
                let free = span.end <= 512 && !flags[span.clone()].contains(&true);
                let fits = (0..512usize).any(|from| {
                    let at = lined(from as u32, bytes) as usize;
                    at >= span.start && at + bytes as usize <= 512
                        && !flags[at..at + bytes as usize].contains(&true)
                });
                prop_assert_eq!(open.has_room(at, bytes), fits);
                prop_assert_eq!(open.take(at, bytes), free);
                if free {
                    // Some are refused.
                    if bytes.is_multiple_of(3) {
                        open.taken.release(at, at + bytes);
                    } else {
                        flags[span].fill(true);
                    }
                }
                let end = flags.iter().rposition(|taken| *taken).map_or(0, |last| last + 1);
                prop_assert_eq!(open.taken.end as usize, end);
            }
        }
    }
}
