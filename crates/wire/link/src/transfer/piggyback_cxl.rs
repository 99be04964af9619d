//! `piggyback-cxl`: always one command, with as much of the value in it as is worthwhile. BandSlim's CXL
//! article leaves this open.
//!
//! Up to 35 bytes are carried in a *write* (`piggyback`). Of a longer value the last `v mod 64` bytes are
//! carried in the command if they are at most 24, which saves a flit; all others go through the window
//! (`cxl`).
//!
//! ```text
//!   bytes over the link for v <= 35: 88
//!                       otherwise:   88 + 68 x (ceil(v / 64), one less if 0 < v mod 64 <= 24)
//! ```

use kvdrive_nvme::inline::{TAIL_INLINE_BYTES, WRITE_INLINE_BYTES, put_tail, tail_room};
use kvdrive_nvme::{Cqe, Sqe};

use super::cxl::{completed, place_or_ask};
use super::piggyback::{Piggyback, take};
use super::{Choice, Method, Next, Progress, StoreRequest};

/// Host half, for values that a *write* cannot hold.
pub struct PiggybackCxl;

/// Bytes of the value that are carried in the command.
fn tail_bytes(store: &StoreRequest<'_>) -> u8 {
    let rest = store.value.bytes() % 64;
    let room = tail_room(store.key.map_or(0, |key| key.len()));
    if rest <= room as u32 { rest as u8 } else { 0 }
}

impl Choice for PiggybackCxl {
    fn pick(&self, value_bytes: u32, _: u32) -> &dyn Method {
        if value_bytes <= WRITE_INLINE_BYTES as u32 { &Piggyback } else { self }
    }
}

impl Method for PiggybackCxl {
    fn staged_bytes(&self, _: u32) -> u32 {
        0
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        let tail_bytes = tail_bytes(store);
        place_or_ask(store, progress, outbox, tail_bytes, |sqe| {
            let mut tail = [0; TAIL_INLINE_BYTES];
            let tail = &mut tail[..usize::from(tail_bytes)];
            take(store, store.value.bytes() - u32::from(tail_bytes), tail);
            put_tail(sqe, tail);
        })
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
