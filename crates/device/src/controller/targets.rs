//! The host memory a command names, as runs with the bytes that really cross for each; data to and from it.

use kvdrive_content::{Piece, Region};
use kvdrive_link::Link;
use kvdrive_link::pcie::PAGE_BYTES;
use kvdrive_link::prp::walk_first;
use kvdrive_link::transfer::sgl;
use kvdrive_spec::{Sqe, Status};

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

/// The host memory for an answer of `bytes` bytes, of the `buffer_bytes` that `sqe` names.
pub(crate) fn targets(link: &Link, sqe: &Sqe, buffer_bytes: u32, bytes: u32) -> Result<Targets, Status> {
    if !sgl::is_used(sqe)? {
        return Ok(Targets::Pages(walk_first(link, sqe, buffer_bytes, bytes)?));
    }
    let address = sgl::data_block(sqe, bytes)?;
    let moved_bytes = link.sgl_moved_bytes(bytes);
    Ok(Targets::Block((bytes > 0).then_some(Target { address, bytes, moved_bytes })))
}

/// Sends the first `bytes` bytes of an answer to the command's host memory of `buffer_bytes`.
pub(crate) fn send(
    link: &Link,
    sqe: &Sqe,
    buffer_bytes: u32,
    answer: &Region,
    bytes: u32,
) -> Result<(), Status> {
    let mut at = 0;
    let mut failed = false;
    for target in targets(link, sqe, buffer_bytes, bytes)?.iter() {
        link.dma_to_host(target.moved_bytes);
        let mut address = target.address;
        answer.read(at, target.bytes, &mut |piece| {
            failed |= link.write_memory(address, piece).is_err();
            address = address.wrapping_add(u64::from(piece.bytes()));
        });
        at += target.bytes;
    }
    if failed { Err(Status::DATA_TRANSFER_ERROR) } else { Ok(()) }
}

/// Brings the `bytes` bytes that a command names from host memory, in order.
pub(crate) fn receive(
    link: &Link,
    sqe: &Sqe,
    bytes: u32,
    sink: &mut dyn FnMut(Piece<'_>),
) -> Result<(), Status> {
    for target in targets(link, sqe, bytes, bytes)?.iter() {
        let moved = link.dma_to_drive(target.address, target.bytes, target.moved_bytes, sink);
        moved.map_err(|_| Status::DATA_TRANSFER_ERROR)?;
    }
    Ok(())
}
