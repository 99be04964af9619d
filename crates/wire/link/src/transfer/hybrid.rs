//! `hybrid`: a value a little longer than whole pages. One command names the whole pages by PRP; the tail
//! follows in *transfer* commands and is copied directly after them.
//!
//! ```text
//!   bytes over the link for v = 4096 k + t: 88 + 4096 k + 88 x ceil(t / 56)      (k >= 1, t > 0; otherwise `prp`)
//! ```

use kvdrive_nvme::{Cqe, PAGE_BYTES, Psdt, Sqe, Status, ValueSource};

use super::piggyback::{Assembly, continue_or_end};
use super::prp::{Prp, point_at, receive_part};
use super::{Arrival, Choice, Landing, Method, Next, Progress, StoreRequest};
use crate::port::Request;

/// Host half.
pub struct Hybrid {
    /// Tails shorter than this are sent in *transfer* commands, bytes.
    tail_below_bytes: f64,
}

impl Hybrid {
    /// Every tail is sent in *transfer* commands.
    pub fn always() -> Hybrid {
        Hybrid::below(f64::from(PAGE_BYTES))
    }

    /// Tails shorter than `tail_below_bytes` bytes are sent in *transfer* commands.
    pub fn below(tail_below_bytes: f64) -> Hybrid {
        Hybrid { tail_below_bytes }
    }
}

impl Choice for Hybrid {
    fn pick(&self, value_bytes: u32, _: u32) -> &dyn Method {
        let tail = value_bytes % PAGE_BYTES;
        if value_bytes > PAGE_BYTES && tail > 0 && f64::from(tail) < self.tail_below_bytes {
            self
        } else {
            &Prp
        }
    }
}

impl Method for Hybrid {
    fn staged_bytes(&self, value_bytes: u32) -> u32 {
        value_bytes / PAGE_BYTES * PAGE_BYTES
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        let value_bytes = store.value.bytes();
        let pages_z = value_bytes / PAGE_BYTES - 1;
        let mut sqe = store.command(ValueSource::Hybrid { pages_z });
        progress.sent_bytes = self.staged_bytes(value_bytes);
        point_at(&mut sqe, store.buffer, store.list, progress.sent_bytes);
        outbox.push(sqe);
        Next::Submit
    }

    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Next {
        continue_or_end(store, progress, cqe, outbox)
    }
}

/// Device half: reserves room for the whole value and transfers its whole pages there; *transfer* commands
/// bring the tail. The packing's copies wait until the tail has arrived, too.
///
/// An SGL is invalid here: read as PRPs, its length would be an address that the host never named.
pub fn receive<K, L: Landing<K>>(
    request: &dyn Request,
    key: K,
    value_bytes: u32,
    pages_z: u32,
    landing: &L,
) -> Result<Assembly<L::Place, K>, Status> {
    if request.sqe().psdt()? != Psdt::Prp {
        return Err(Status::INVALID_FIELD);
    }
    let received_bytes = (pages_z + 1) * PAGE_BYTES;
    request.locate(received_bytes, received_bytes)?;
    let place = landing.reserve(&key, value_bytes, Arrival::Hybrid)?;
    if let Err(status) = receive_part(request, received_bytes, landing, &place, 0) {
        landing.abandon(place);
        return Err(status);
    }
    Ok(Assembly { key, value_bytes, received_bytes, place })
}
