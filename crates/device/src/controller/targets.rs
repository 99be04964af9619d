//! Where an answer goes: the host memory a command names, as runs with the bytes that really cross for each.

use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::prp::walk_first;
use kvdrive_link::transfer::sgl;
use kvdrive_spec::{Sqe, Status};

use super::Controller;
use crate::engines::Engine;

/// A run of host memory that takes part of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// First byte.
    pub address: u64,
    /// Bytes of the answer that go there.
    pub bytes: u32,
    /// Bytes the DMA engine moves for them.
    pub moved_bytes: u32,
}

/// One command's runs. The usual single one needs no allocation.
pub enum Targets {
    /// By PRP: a page each, and the engine moves whole pages. The read path is not slimmed on the published
    /// board (BandSlim's firmware), nor is a Retrieve by PRP here.
    Pages(kvdrive_link::prp::Segments),
    /// By SGL: one run.
    Block(Option<Target>),
}

impl Targets {
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Target> + '_ {
        let (pages, block) = match self {
            Targets::Pages(segments) => (Some(segments.iter()), None),
            Targets::Block(target) => (None, *target),
        };
        let page = |segment: kvdrive_link::prp::Segment| Target {
            address: segment.address,
            bytes: segment.bytes,
            moved_bytes: PAGE_BYTES,
        };
        pages.into_iter().flatten().map(page).chain(block)
    }
}

impl<E: Engine> Controller<E> {
    /// The host memory for an answer of `bytes` bytes, of the `buffer_bytes` that `sqe` names.
    pub(crate) fn targets(&self, sqe: &Sqe, buffer_bytes: u32, bytes: u32) -> Result<Targets, Status> {
        if !sgl::is_used(sqe)? {
            return Ok(Targets::Pages(walk_first(&self.link, sqe, buffer_bytes, bytes)?));
        }
        let address = sgl::data_block(sqe, bytes)?;
        let moved_bytes = self.link.sgl_moved_bytes(bytes);
        Ok(Targets::Block((bytes > 0).then_some(Target { address, bytes, moved_bytes })))
    }
}
