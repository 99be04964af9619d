//! `piggyback`: the value is carried inside commands. A *write* carries the key, the size and the first 35
//! bytes; each *transfer* command carries 56 more. As published, the host sends the next command when the
//! last one has completed, and a value's success is its last completion.
//!
//! ```text
//!   bytes over the link for v: 88 x (1 + ceil((v - 35) / 56) for v > 35)
//! ```
//!
//! A *transfer* names neither key nor offset: it belongs to the unfinished value of its queue. A *write*
//! while a value is unfinished discards that value and is refused, so that the host learns of the loss; a
//! *transfer* without an unfinished value is refused.

use kvdrive_nvme::inline::{
    TRANSFER_INLINE_BYTES, WRITE_INLINE_BYTES, get_transfer, get_write, put_transfer, put_write, write_room,
};
use kvdrive_nvme::{Cqe, Key, Sqe, ValueSource, opcode};

use super::{Choice, Landing, Method, Next, Progress, StoreRequest};

/// Host half.
pub struct Piggyback;

/// Copies at most `out.len()` value bytes from `at` on to `out`; returns how many.
pub(super) fn take(store: &StoreRequest<'_>, at: u32, out: &mut [u8]) -> usize {
    let bytes = (store.value.bytes() - at).min(out.len() as u32);
    store.value.slice(at, bytes).expand(&mut out[..bytes as usize]);
    bytes as usize
}

/// The *write* of a value.
pub(super) fn first(store: &StoreRequest<'_>, progress: &mut Progress) -> Sqe {
    let mut sqe = store.command(ValueSource::Inline);
    let mut part = [0; WRITE_INLINE_BYTES];
    let bytes = take(store, 0, &mut part);
    progress.sent_bytes = put_write(&mut sqe, &part[..bytes]) as u32;
    sqe
}

/// The next *transfer* of an unfinished value.
pub(super) fn further(store: &StoreRequest<'_>, progress: &mut Progress) -> Sqe {
    let mut part = [0; TRANSFER_INLINE_BYTES];
    let bytes = take(store, progress.sent_bytes, &mut part);
    let mut sqe = Sqe::new(opcode::TRANSFER, store.cid, store.nsid);
    progress.sent_bytes += put_transfer(&mut sqe, &part[..bytes]) as u32;
    sqe
}

/// The next *transfer* of a value, or its end.
pub(super) fn continue_or_end(
    store: &StoreRequest<'_>,
    progress: &mut Progress,
    cqe: &Cqe,
    outbox: &mut Vec<Sqe>,
) -> Next {
    let status = cqe.status();
    if !status.is_success() || progress.sent_bytes == store.value.bytes() {
        return Next::Done(status);
    }
    outbox.push(further(store, progress));
    Next::Submit
}

impl Choice for Piggyback {
    fn pick(&self, _: u32, _: u32) -> &dyn Method {
        self
    }
}

impl Method for Piggyback {
    fn staged_bytes(&self, _: u32) -> u32 {
        0
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        outbox.push(first(store, progress));
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

/// A value that has arrived in part: the drive's state of a queue between two inline commands.
pub struct Assembly<P, K = Key> {
    /// Key of the value.
    pub key: K,
    /// Its whole size.
    pub value_bytes: u32,
    /// Bytes that have arrived.
    pub received_bytes: u32,
    /// Its place.
    pub place: P,
}

impl<P, K> Assembly<P, K> {
    /// Has everything arrived?
    pub fn is_whole(&self) -> bool {
        self.received_bytes == self.value_bytes
    }
}

/// Device half of a *write*, after room for the whole value was reserved: copies the first bytes there and
/// returns their number. Most values are complete then, and need no [`Assembly`].
pub fn copy_write<K, L: Landing<K>>(sqe: &Sqe, value_bytes: u32, place: &L::Place, landing: &L) -> u32 {
    let mut part = [0; WRITE_INLINE_BYTES];
    get_write(sqe, &mut part);
    let received_bytes = value_bytes.min(write_room(sqe) as u32);
    if received_bytes > 0 {
        landing.copy_in(place, 0, &part[..received_bytes as usize]);
    }
    received_bytes
}

/// Device half of a *transfer*: copies the next bytes after those that have arrived.
pub fn receive_transfer<K, L: Landing<K>>(sqe: &Sqe, assembly: &mut Assembly<L::Place, K>, landing: &L) {
    let mut part = [0; TRANSFER_INLINE_BYTES];
    get_transfer(sqe, &mut part);
    let bytes = (assembly.value_bytes - assembly.received_bytes).min(TRANSFER_INLINE_BYTES as u32);
    landing.copy_in(&assembly.place, assembly.received_bytes, &part[..bytes as usize]);
    assembly.received_bytes += bytes;
}
