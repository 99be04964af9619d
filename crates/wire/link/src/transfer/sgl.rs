//! `sgl`: like `prp`, but the command names bytes instead of pages, so only the value crosses (rounded up to
//! the DMA engine's unit, `dma_granularity_bytes`; a unit of 1 is byte-exact DMA).
//!
//! ```text
//!   bytes over the link for v: 64 + 16 + 2 x 4 + v rounded up to the unit
//! ```
//!
//! Fewer bytes save only line time, and an SGL has a cost of its own: the DMA of a data block takes `sgl_block_ns` to set up,
//! and whole pages of it then take a little less than pages that PRPs name. Profiles solve both from the one number that
//! is published: SGLs pay from 32 KiB on (docs/decisions/sgl-cost.md).
//!
//! This host names its buffer by one data block; the drive takes lists of segments, too ([`crate::sgl`]).

use kvdrive_nvme::{Cqe, SglDescriptor, Sqe, ValueSource};

use super::{Choice, Method, Next, Progress, StoreRequest};

/// Host half. The device half is that of [`super::prp`].
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
        let mut sqe = store.command(ValueSource::Data);
        sqe.set_sgl(SglDescriptor::data_block(store.buffer, value_bytes));
        outbox.push(sqe);
        progress.sent_bytes = value_bytes;
        Next::Submit
    }

    fn on_completion(&self, _: &StoreRequest<'_>, _: &mut Progress, cqe: &Cqe, _: &mut Vec<Sqe>) -> Next {
        Next::Done(cqe.status())
    }
}
