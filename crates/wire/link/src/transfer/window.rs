//! Windows into the drive's page buffer: the host's view of its own window, and the interface of an engine.
//! Commands and completions about them are laid out in [`kvdrive_nvme::window`].
//!
//! The host places values itself, in one window per queue at a time. It keeps a write pointer and a log of
//! the values that DMA put into the same window, whose gaps it fills (`backfill`'s rule, evaluated on the
//! host). The drive is the authority: it accepts no value over bytes that hold one, and none in a window that
//! it has replaced. So the host asks for another window only when no value in the present one waits for its
//! command.
//!
//! A refused command leaves nothing in a window, whatever the reason of the refusal: the drive releases the command's
//! bytes before it answers. So a refusal need not mention windows (its completion has no room for it), and the host may
//! continue as if the command had never been sent.
//!
//! ```text
//!   0      write pointer                              grant            window's end
//!   ######.v............[ DMA'd value ]...............|  the drive's until the command completes
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvdrive_nvme::window::{Grant, NO_WINDOW};
use kvdrive_nvme::{Cqe, Key, PAGE_BYTES, Status};

use super::landing::Landing;
use kvdrive_content::Piece;

const LINE_BYTES: u32 = 64;

/// First position at or after `at` where `bytes` bytes touch the least possible number of cache lines, so
/// that the number of flits depends only on a value's size.
pub fn lined(at: u32, bytes: u32) -> u32 {
    let touched = (at % LINE_BYTES + bytes).div_ceil(LINE_BYTES);
    if touched > bytes.div_ceil(LINE_BYTES) { at.next_multiple_of(LINE_BYTES) } else { at }
}

/// The place of a value in the host's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlace {
    /// Generation of the window.
    pub generation: u32,
    /// Offset in the window.
    pub at: u32,
    /// Address at the port.
    pub address: u64,
}

/// A store's claim on its queue's window, until its command completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowClaim {
    /// A value lies in the window of this generation.
    Placed(u32),
    /// The store asked for another window.
    Asked,
}

#[derive(Debug)]
struct WindowState {
    window_bytes: u32,
    generation: u32,
    write_pointer: u32,
    /// Offset and end of values that DMA put into the window and that the write pointer has not passed,
    /// ascending.
    log: VecDeque<(u32, u32)>,
    /// Outstanding grants.
    grants: Vec<Grant>,
    /// Values in this window whose commands have not completed.
    placed: u32,
    /// A store is asking for another window.
    asking: bool,
    /// The drive has no windows.
    absent: bool,
}

/// One queue's window as the host knows it. Shared by the commands of the queue, on any thread.
#[derive(Debug)]
pub struct HostWindow(Mutex<WindowState>);

impl HostWindow {
    /// The initial state, for a port with windows of `window_bytes` bytes.
    pub fn new(window_bytes: u32) -> HostWindow {
        HostWindow(Mutex::new(WindowState {
            window_bytes,
            generation: NO_WINDOW,
            write_pointer: 0,
            log: VecDeque::new(),
            grants: Vec::new(),
            placed: 0,
            asking: false,
            absent: false,
        }))
    }

    fn state(&self) -> MutexGuard<'_, WindowState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Can a value of this size ever be sent through a window?
    pub fn holds(&self, bytes: u32) -> bool {
        let state = self.state();
        !state.absent && bytes <= state.window_bytes
    }

    /// The generation with which to ask for another window; the caller then asks. `None`: another window
    /// would make values in progress stale, or another store asks already; wait until a [`WindowClaim`] ends.
    pub fn ask(&self) -> Option<u32> {
        let state = &mut *self.state();
        let free = state.placed == 0 && !state.asking;
        state.asking |= free;
        free.then_some(state.generation)
    }

    /// The command of a claim has completed, or will never be sent: a waiting task may try again.
    pub fn end(&self, claim: WindowClaim) {
        let state = &mut *self.state();
        match claim {
            WindowClaim::Asked => state.asking = false,
            WindowClaim::Placed(generation) if generation == state.generation => state.placed -= 1,
            WindowClaim::Placed(_) => {}
        }
    }

    /// Notes that the drive has no windows, as it answered.
    pub fn give_up(&self) {
        self.state().absent = true;
    }

    /// Takes room for `bytes` bytes, of which the host stores the first `stored_bytes`, until
    /// [`HostWindow::end`]. `None`: the window is full, or there is none.
    pub fn place(&self, bytes: u32, stored_bytes: u32) -> Option<WindowPlace> {
        let state = &mut *self.state();
        if state.generation == NO_WINDOW {
            return None;
        }
        let granted = state.grants.iter().filter(|grant| grant.generation == state.generation);
        let limit = granted.map(|grant| grant.from).min().unwrap_or(state.window_bytes);
        let mut pointer = state.write_pointer;
        let mut passed = 0;
        let at = loop {
            let at = lined(pointer, stored_bytes);
            match state.log.get(passed) {
                Some((value_at, end)) if at + bytes > *value_at => {
                    pointer = pointer.max(*end);
                    passed += 1;
                }
                _ => break at,
            }
        };
        if at + bytes > limit {
            return None;
        }
        state.log.drain(..passed);
        state.write_pointer = at + bytes;
        state.placed += 1;
        let address = u64::from(state.generation) * u64::from(state.window_bytes) + u64::from(at);
        Some(WindowPlace { generation: state.generation, at, address })
    }

    /// Takes over the window that a completion named.
    pub fn adopt(&self, cqe: &Cqe) {
        let (write_pointer, generation) = (cqe.dw0.get(), cqe.dw1.get());
        let state = &mut *self.state();
        // Completions overtake each other, but generations only grow.
        if generation.wrapping_sub(state.generation).cast_signed() <= 0 {
            return;
        }
        state.generation = generation;
        state.write_pointer = write_pointer;
        state.log.clear();
        state.placed = 0;
    }

    /// Grants the end of the window, from the next page boundary on, to the drive for a value of `bytes`
    /// bytes. `None` if it would not fit.
    pub fn grant(&self, bytes: u32) -> Option<Grant> {
        let state = &mut *self.state();
        let behind = state.log.back().map_or(0, |(_, end)| *end).max(state.write_pointer);
        let from = behind.next_multiple_of(PAGE_BYTES);
        if state.generation == NO_WINDOW || bytes == 0 || from.saturating_add(bytes) > state.window_bytes {
            return None;
        }
        let grant = Grant { generation: state.generation, from };
        state.grants.push(grant);
        Some(grant)
    }

    /// Withdraws the grant of a command that will never be sent.
    pub(super) fn withdraw(&self, grant: Grant) {
        let grants = &mut self.state().grants;
        if let Some(index) = grants.iter().position(|other| *other == grant) {
            grants.swap_remove(index);
        }
    }

    /// Ends the grant of a command that has completed, and notes where the value went. A refused command left
    /// none.
    pub fn end_grant(&self, grant: Grant, cqe: &Cqe, bytes: u32) {
        self.withdraw(grant);
        let state = &mut *self.state();
        let (at, generation) = (cqe.dw0.get(), cqe.dw1.get());
        if cqe.status() == Status::SUCCESS && generation != NO_WINDOW && generation == state.generation {
            let index = state.log.partition_point(|(value_at, _)| *value_at < at);
            state.log.insert(index, (at, at.saturating_add(bytes)));
        }
    }
}

/// An engine whose page buffer a host can store into. An engine without windows implements it with
/// [`NoWindow`] and nothing else.
pub trait Exposing: Landing {
    /// An open window: pages that stay in the buffer, for the host's use, until it is dropped.
    type Window;

    /// Bytes of a window; `None`: there are no windows.
    fn window_bytes(&self) -> Option<u32> {
        None
    }

    /// Opens a window. Errors: as [`Landing::reserve`].
    fn open_window(&self) -> Result<Self::Window, Status> {
        Err(Status::INVALID_OPCODE)
    }

    /// Handles the host's store of `piece` at byte `at`.
    fn write_window(&self, _: &Self::Window, _at: u32, _: Piece<'_>) {
        unreachable!("no window was opened")
    }

    /// Passes `bytes` bytes of the window from `at` on to the sink: what the host stored there, else zeros.
    fn read_window(&self, _: &Self::Window, _at: u32, _bytes: u32, _sink: &mut dyn FnMut(Piece<'_>)) {
        unreachable!("no window was opened")
    }

    /// A place for a value of `bytes` bytes at byte `at` of the window. The bytes that the host stored there have
    /// landed. Errors: the engine does not accept such a key.
    fn place_in(&self, _: &Self::Window, _: &Key, _at: u32, _bytes: u32) -> Result<Self::Place, Status> {
        unreachable!("no window was opened")
    }
}

/// The window of an engine that has none.
pub enum NoWindow {}
