//! `cxl`: the host stores the value into the drive's page buffer by CXL.mem, flushes the lines, and sends one
//! command with the key and the value's position (BandSlim's CXL article).
//!
//! ```text
//!   bytes over the link for v: 88 + 68 x ceil(v / 64); and 88 whenever the host must ask for a window
//! ```
//!
//! A value longer than a window, and every value while the drive has no window to give, is sent by `prp`.

use kvdrive_nvme::window::ASK;
use kvdrive_nvme::{Cqe, Sqe, Status, ValueSource};

use super::prp::Prp;
use super::{Choice, Method, Next, Progress, StoreRequest, WindowClaim};

/// A window may have been replaced again before the command arrives; more than this many times in a row is an
/// error.
const MOST_STALE_WINDOWS: u32 = 8;

/// Host half.
pub struct Cxl;

/// The command of a value in a window.
fn command(store: &StoreRequest<'_>, window_offset: u32, generation: u32, tail_bytes: u8) -> Sqe {
    store.command(ValueSource::Window { window_offset, generation, tail_bytes })
}

/// Places the value in the window, except for its last `tail_bytes`, which `put_tail` puts into the command;
/// or asks for a window.
pub(super) fn place_or_ask(
    store: &StoreRequest<'_>,
    progress: &mut Progress,
    outbox: &mut Vec<Sqe>,
    tail_bytes: u8,
    put_tail: impl FnOnce(&mut Sqe),
) -> Next {
    let value_bytes = store.value.bytes();
    let Some(window) = store.window.filter(|window| window.holds(value_bytes)) else { return Next::ByPrp };
    let stored_bytes = value_bytes - u32::from(tail_bytes);
    let Some(place) = window.place(value_bytes, stored_bytes) else {
        let Some(generation) = window.ask() else { return Next::WaitForWindow };
        progress.claim = Some(WindowClaim::Asked);
        outbox.push(command(store, ASK, generation, 0));
        return Next::Submit;
    };
    progress.claim = Some(WindowClaim::Placed(place.generation));
    let mut sqe = command(store, place.at, place.generation, tail_bytes);
    put_tail(&mut sqe);
    outbox.push(sqe);
    progress.sent_bytes = value_bytes;
    if stored_bytes == 0 {
        Next::Submit
    } else {
        Next::WriteWindow { address: place.address, bytes: stored_bytes }
    }
}

/// Evaluates the state of window and store in a completion. `None`: place the value again.
pub(super) fn completed(store: &StoreRequest<'_>, progress: &mut Progress, cqe: &Cqe) -> Option<Next> {
    let asked = progress.claim == Some(WindowClaim::Asked);
    if let (Some(window), Some(claim)) = (store.window, progress.claim.take()) {
        window.end(claim);
    }
    match (cqe.status(), store.window) {
        (Status::SUCCESS, Some(window)) => {
            window.adopt(cqe);
            Some(Next::Done(Status::SUCCESS))
        }
        (Status::STALE_WINDOW, Some(window)) if progress.stale_windows < MOST_STALE_WINDOWS => {
            window.adopt(cqe);
            progress.stale_windows += 1;
            progress.sent_bytes = 0;
            None
        }
        (Status::STALE_WINDOW, _) => Some(Next::ByPrp),
        (Status::INVALID_OPCODE, Some(window)) => {
            window.give_up();
            Some(Next::ByPrp)
        }
        // The value is valid, but no window was available.
        (Status::COMMAND_INTERRUPTED, _) => Some(Next::ByPrp),
        (_, _) if asked => Some(Next::ByPrp),
        (status, _) => Some(Next::Done(status)),
    }
}

impl Choice for Cxl {
    fn pick(&self, value_bytes: u32, _: u32) -> &dyn Method {
        if value_bytes == 0 { &Prp } else { self }
    }
}

impl Method for Cxl {
    fn staged_bytes(&self, _: u32) -> u32 {
        0
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        place_or_ask(store, progress, outbox, 0, |_| ())
    }

    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Next {
        completed(store, progress, cqe).unwrap_or_else(|| self.begin(store, progress, outbox))
    }
}
