//! `byte-express`: the value lies in the submission queue, directly after its command, 64 bytes per entry.
//! One doorbell, one completion, and the command keeps all its fields (ByteExpress, HotStorage'25).
//!
//! ```text
//!   bytes over the link for v: 88 + 64 x ceil(v / 64)
//! ```
//!
//! The drive takes command and chunks together ([`crate::queue`]), so there may be any number of queues and
//! firmware contexts; the published prototype works with one queue. The firmware copies each chunk out of its
//! entry's slot. A value for which the host has too few queue entries is sent by `prp`.

use kvdrive_nvme::inline::{CHUNK_BYTES, chunk, chunks_for};
use kvdrive_nvme::{Cqe, Sqe, Status, ValueSource};

use super::piggyback::take;
use super::prp::Prp;
use super::{Arrival, Choice, Landing, Method, Next, Progress, StoreRequest};

/// Host half.
pub struct ByteExpress;

impl Choice for ByteExpress {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if chunks_for(value_bytes) < slots { self } else { &Prp }
    }
}

impl Method for ByteExpress {
    fn staged_bytes(&self, _: u32) -> u32 {
        0
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        let value_bytes = store.value.bytes();
        outbox.push(store.command(ValueSource::Chunks));
        while progress.sent_bytes < value_bytes {
            let mut part = [0; CHUNK_BYTES];
            progress.sent_bytes += take(store, progress.sent_bytes, &mut part) as u32;
            outbox.push(chunk(&part));
        }
        Next::Submit
    }

    fn on_completion(&self, _: &StoreRequest<'_>, _: &mut Progress, cqe: &Cqe, _: &mut Vec<Sqe>) -> Next {
        Next::Done(cqe.status())
    }
}

/// Device half: copies a value out of its chunk entries to a place chosen by the engine. `chunks` is `None`
/// if the host has not published them all.
pub fn receive<K, L: Landing<K>>(
    chunks: Option<&[Sqe]>,
    key: &K,
    value_bytes: u32,
    landing: &L,
) -> Result<L::Place, Status> {
    let chunks = chunks.ok_or(Status::COMMAND_SEQUENCE_ERROR)?;
    let place = landing.reserve(key, value_bytes, Arrival::Inline)?;
    let mut at = 0;
    for chunk in chunks {
        let bytes = (value_bytes - at).min(CHUNK_BYTES as u32);
        landing.copy_in(&place, at, &chunk.as_bytes()[..bytes as usize]);
        at += bytes;
    }
    landing.settle(&place);
    Ok(place)
}
