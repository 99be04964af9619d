//! `prp`: the value lies in pages of host memory; one Store command names them; the drive's DMA engine moves
//! whole pages.
//!
//! ```text
//!   bytes over the link for v: 64 + 16 + 2 x 4 + 4096 x ceil(v / 4096) + 8 x (pages - 1) if pages > 2
//! ```

use kvdrive_content::expanding;
use kvdrive_nvme::{Cqe, PAGE_BYTES, Sqe, Status, ValueSource};

use super::{Arrival, Choice, Landing, Method, Next, Progress, StoreRequest};
use crate::port::Request;

/// Largest value of a capsule that is copied to its place, bytes. On the published board firmware copies 512
/// B in 10.5 us, where DMA takes 6.8 us for them and a slot of 4 KiB.
const COPIED_MAX_BYTES: u32 = 512;

/// Host half.
pub struct Prp;

/// Pages that a command names with one list page: the first one stands in the command.
pub const LISTED_MAX_PAGES: u32 = PAGE_BYTES / 8 + 1;

/// Points `sqe` at the first `bytes` bytes of the DMA buffer at `buffer`, whose list page is `list`; if it cannot name
/// all pages, the chain of list pages after it names the rest.
pub fn point_at(sqe: &mut Sqe, buffer: u64, list: u64, bytes: u32) {
    let prp2 = match bytes.div_ceil(PAGE_BYTES) {
        0 | 1 => 0,
        2 => buffer + u64::from(PAGE_BYTES),
        pages if pages <= LISTED_MAX_PAGES => list,
        _ => list + u64::from(PAGE_BYTES),
    };
    sqe.set_prps(if bytes == 0 { 0 } else { buffer }, prp2);
}

impl Choice for Prp {
    fn pick(&self, _: u32, _: u32) -> &dyn Method {
        self
    }
}

impl Method for Prp {
    fn staged_bytes(&self, value_bytes: u32) -> u32 {
        value_bytes
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        let value_bytes = store.value.bytes();
        let mut sqe = store.command(ValueSource::Data);
        point_at(&mut sqe, store.buffer, store.list, value_bytes);
        // A structured value is not stored as it arrives, so it cannot use a window.
        if let Some(window) = store.window.filter(|_| store.key.is_some()) {
            progress.granted = window.grant(value_bytes);
            progress.granted.inspect(|grant| grant.put(&mut sqe));
        }
        outbox.push(sqe);
        progress.sent_bytes = value_bytes;
        Next::Submit
    }

    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        _: &mut Vec<Sqe>,
    ) -> Next {
        if let (Some(window), Some(grant)) = (store.window, progress.granted.take()) {
            window.end_grant(grant, cqe, store.value.bytes());
        }
        Next::Done(cqe.status())
    }
}

/// Device half: brings a Store's value to a place chosen by the engine. It serves `sgl`, too: the port
/// resolves the form in which the command names its memory.
pub fn receive<K, L: Landing<K>>(
    request: &dyn Request,
    key: &K,
    value_bytes: u32,
    landing: &L,
) -> Result<L::Place, Status> {
    request.locate(value_bytes, value_bytes)?;
    if request.is_in_capsule() && value_bytes <= COPIED_MAX_BYTES {
        return receive_capsule(request, key, value_bytes, landing);
    }
    let place = landing.reserve(key, value_bytes, Arrival::Dma)?;
    receive_into(request, value_bytes, place, landing)
}

/// As [`receive`], for a short value that arrived in a capsule: firmware copies it directly after the value
/// before it, like an inline value, where DMA would take a page-sized slot.
fn receive_capsule<K, L: Landing<K>>(
    request: &dyn Request,
    key: &K,
    value_bytes: u32,
    landing: &L,
) -> Result<L::Place, Status> {
    // Copying takes a core's time, and the memory of the capsule is locked while it is read.
    let mut value = vec![0; value_bytes as usize];
    request.pull(value_bytes, &mut expanding(&mut value))?;
    let place = landing.reserve(key, value_bytes, Arrival::Inline)?;
    landing.copy_in(&place, 0, &value);
    landing.settle(&place);
    Ok(place)
}

/// As [`receive`], to a place that was found before: in a window.
pub fn receive_into<K, L: Landing<K>>(
    request: &dyn Request,
    value_bytes: u32,
    place: L::Place,
    landing: &L,
) -> Result<L::Place, Status> {
    if let Err(status) = receive_part(request, value_bytes, landing, &place, 0) {
        landing.abandon(place);
        return Err(status);
    }
    landing.settle(&place);
    Ok(place)
}

/// Moves the `bytes` bytes that a command names to byte `to` of `place`, piece by piece as the place admits them.
pub fn receive_part<K, L: Landing<K>>(
    request: &dyn Request,
    bytes: u32,
    landing: &L,
    place: &L::Place,
    to: u32,
) -> Result<(), Status> {
    let mut at = 0;
    loop {
        let part = landing.admit(place)?.min(bytes - at);
        let mut to = to + at;
        request.pull_part(bytes, at, part, &mut |piece| {
            landing.dma_in(place, to, piece);
            to += piece.bytes();
        })?;
        at += part;
        if at == bytes {
            return Ok(());
        }
    }
}
