//! `sgl`: like `prp`, but the command names bytes instead of pages, so only the value crosses (rounded up to
//! the DMA engine's unit, `dma_granularity_bytes`; with 1 this is byte-exact DMA).
//!
//! ```text
//!   bytes over the link for v: 64 + 16 + 2 x 4 + v rounded up to the unit
//! ```
//!
//! Fewer bytes save line time alone: each DMA pays `dma_page_ns`, the constant of a whole page, however short
//! it is. There is no source for less, and a smaller constant would only make byte-exact DMA look better.
//!
//! The drive takes a single data block descriptor in the command; segments of further descriptors are
//! refused, and Identify does not offer them.

use kvdrive_spec::{Command, Cqe, Key, Psdt, SglDescriptor, Sqe, Status, Store};

use super::{Arrival, Choice, Landing, Method, Next, Progress, StoreRequest};
use crate::pcie::Link;

/// Host half.
pub struct Sgl;

impl Choice for Sgl {
    fn pick(&self, _: u32, _: u32) -> &dyn Method {
        self
    }
}

impl Method for Sgl {
    fn staged_bytes(&self, value_bytes: u32) -> u32 {
        value_bytes
    }

    fn is_inline(&self) -> bool {
        false
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        let value_bytes = store.value.bytes();
        let command = Command::Store(Store { key: store.key, value_bytes, options: store.options });
        let mut sqe = command.encode(store.cid, store.nsid);
        sqe.set_sgl(SglDescriptor::data_block(store.buffer, value_bytes));
        outbox.push(sqe);
        progress.sent_bytes = value_bytes;
        Next::Submit
    }

    fn on_completion(&self, _: &StoreRequest<'_>, _: &mut Progress, cqe: &Cqe, _: &mut Vec<Sqe>) -> Next {
        Next::Done(cqe.status())
    }
}

/// The address a command's data block descriptor names, if it covers `bytes`.
pub fn data_block(sqe: &Sqe, bytes: u32) -> Result<u64, Status> {
    let descriptor = sqe.sgl();
    if descriptor.kind != SglDescriptor::DATA_BLOCK {
        return Err(Status::SGL_TYPE_INVALID);
    }
    if descriptor.length.get() < bytes {
        return Err(Status::SGL_LENGTH_INVALID);
    }
    Ok(descriptor.address.get())
}

/// Does the command name its memory by SGL? An invalid selector is [`Status::INVALID_FIELD`].
pub fn is_used(sqe: &Sqe) -> Result<bool, Status> {
    Ok(sqe.psdt()? != Psdt::Prp)
}

/// Device half: brings a Store's value to a place of the engine's choice.
pub fn receive<L: Landing>(
    link: &Link,
    sqe: &Sqe,
    key: &Key,
    value_bytes: u32,
    landing: &L,
) -> Result<L::Place, Status> {
    let address = data_block(sqe, value_bytes)?;
    let place = landing.reserve(key, value_bytes, Arrival::Dma)?;
    if value_bytes > 0 {
        let mut at = 0;
        let mut deliver = |piece: kvdrive_content::Piece<'_>| {
            landing.dma_in(&place, at, piece);
            at += piece.bytes();
        };
        let moved = link.sgl_moved_bytes(value_bytes);
        if link.dma_to_drive(address, value_bytes, moved, &mut deliver).is_err() {
            landing.abandon(place);
            return Err(Status::DATA_TRANSFER_ERROR);
        }
    }
    landing.settle(&place);
    Ok(place)
}
