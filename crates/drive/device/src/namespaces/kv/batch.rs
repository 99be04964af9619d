//! Batches: a structured value comes in, and its requests go to the engine one by one.
//!
//! ```text
//!   B1h       prp, sgl        ├─ DMA ────────────────────┐
//!   write     piggyback       ├─ copy 35 B, then 56 B a ─┤                 ┌ unpack ─► reserve ─► copy ─► commit
//!   hybrid                    ├─ DMA pages, then 56 B a ─┼─► a region ─► check ─► for each request, in order
//!   express   byte-express    ├─ copy 64 B a chunk ──────┤                 └ unpack ─► delete
//!   CXL store cxl             ├─ read the window ────────┘
//! ```
//!
//! The layout is [`kvdrive_nvme::batch`]'s. The whole value is checked before the first request is carried out, so a
//! malformed batch changes nothing. After that check the first request that fails ends the batch: dword 0 of the
//! completion has the number of requests before it, and their effects stay. An *atomic* batch goes to the engine as one
//! operation, and is carried out wholly or not at all; Identify reports its largest size.
//!
//! Bytes in the region belong to no value and are not protected: an acknowledgement says that the engine has
//! every request. A queue has one unfinished batch at most, of no more bytes than a value.

use kvdrive_content::{Piece, Region};
use kvdrive_engines::firmware::Role;
use kvdrive_engines::{Engine, PairChange};
use kvdrive_link::transfer::{Assembly, byte_express, hybrid, piggyback, prp};
use kvdrive_link::{Arrival, Landing, Request};
use kvdrive_nvme::batch::{BatchReader, Request as Member, RequestKind};
use kvdrive_nvme::inline::{TAIL_INLINE_BYTES, get_tail};
use kvdrive_nvme::{Batch, Status, StoreOptions, ValueSource};

use super::KvNamespace;
use super::sessions::Unfinished;
use super::staging::Staged;
use crate::answers::Refusal;

/// Requests in one slice of a batch. Other commands have their turn after each slice; they see the effects of the
/// requests so far, but none of an atomic batch.
const SLICE_REQUESTS: u32 = 256;

/// A command that brings a structured value, or begins to.
pub(crate) fn batch<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: Batch,
) -> Result<(u32, u32), Refusal> {
    let Batch { value_bytes, source } = command;
    if let ValueSource::Inline | ValueSource::Hybrid { .. } = source {
        drive.refuse_inside_value(request)?;
    }
    drive.check_batch_bytes(value_bytes)?;
    let staging = &drive.staging;
    let staged = match source {
        ValueSource::Data => prp::receive(request, &(), value_bytes, staging)?,
        ValueSource::Chunks => byte_express::receive(request.chunks(), &(), value_bytes, staging)?,
        ValueSource::Inline => {
            let place = staging.reserve(&(), value_bytes, Arrival::Inline)?;
            let received_bytes = piggyback::copy_write(request.sqe(), value_bytes, &place, staging);
            return keep_or_apply(drive, request, Assembly { key: (), value_bytes, received_bytes, place });
        }
        ValueSource::Hybrid { pages_z } => {
            let assembly = hybrid::receive(request, (), value_bytes, pages_z, staging)?;
            return keep_or_apply(drive, request, assembly);
        }
        ValueSource::Window { window_offset, generation, tail_bytes } => {
            drive.take_in_window(request.session(), generation, window_offset, value_bytes)?;
            let staged = read_window(drive, request, window_offset, value_bytes, tail_bytes);
            let applied = apply(drive, staged);
            // The batch is unpacked: its bytes in the window are free again.
            drive.sessions.release(request.session(), generation, window_offset, value_bytes);
            return applied;
        }
    };
    apply(drive, staged)
}

/// The next bytes of a batch that its queue has begun.
pub(crate) fn transfer<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    mut assembly: Assembly<Staged, ()>,
) -> Result<(u32, u32), Refusal> {
    piggyback::receive_transfer(request.sqe(), &mut assembly, &drive.staging);
    keep_or_apply(drive, request, assembly)
}

fn keep_or_apply<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    assembly: Assembly<Staged, ()>,
) -> Result<(u32, u32), Refusal> {
    if assembly.is_whole() {
        return apply(drive, assembly.place);
    }
    drive.sessions.keep_unfinished(request.session(), Unfinished::Batch(assembly));
    Ok((0, 0))
}

/// Reads a structured value: its bytes in the window of its queue, which are already taken, and the last bytes, which
/// are in the command.
fn read_window<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    at: u32,
    bytes: u32,
    tail_bytes: u8,
) -> Staged {
    let staged = Staged::new(bytes);
    let in_window = bytes - u32::from(tail_bytes);
    let mut to = 0;
    let mut sink = |piece: Piece<'_>| {
        drive.staging.dma_in(&staged, to, piece);
        to += piece.bytes();
    };
    let read = |window: &E::Window| drive.engine.read_window(window, at, in_window, &mut sink);
    drive.sessions.use_window(request.session(), read).expect("it was found");
    if tail_bytes > 0 {
        let mut tail = [0; TAIL_INLINE_BYTES];
        get_tail(request.sqe(), &mut tail);
        drive.staging.copy_in(&staged, in_window, &tail[..usize::from(tail_bytes)]);
    }
    staged
}

/// Checks a structured value and carries its requests out. Dword 0 of the answer is their number.
fn apply<E: Engine>(drive: &KvNamespace<E>, staged: Staged) -> Result<(u32, u32), Refusal> {
    let content = staged.content.into_inner();
    let read = |at: u32, out: &mut [u8]| content.copy_to(at, out);
    let mut reader = BatchReader::new(staged.bytes, read).map_err(|error| error.status())?;
    reader.check().map_err(|error| error.status())?;
    if reader.is_atomic() {
        return apply_all(drive, reader, &content, staged.bytes);
    }
    let mut value = Vec::new();
    let mut applied = 0;
    for member in reader {
        let member = member.expect("all of it was checked");
        let staging = &drive.staging;
        staging.run(Role::Dispatch, staging.costs.unpack_ns, "unpack");
        carry_out(drive, &member, &content, &mut value).map_err(|status| Refusal { status, dw0: applied })?;
        applied += 1;
        if applied.is_multiple_of(SLICE_REQUESTS) {
            drive.end_slice();
        }
    }
    Ok((applied, 0))
}

/// Carries all requests of an atomic batch out, or none.
fn apply_all<E: Engine, R: FnMut(u32, &mut [u8])>(
    drive: &KvNamespace<E>,
    reader: BatchReader<R>,
    content: &Region,
    bytes: u32,
) -> Result<(u32, u32), Refusal> {
    let limits = drive.atomic_batches().ok_or(Status::INVALID_FIELD)?;
    if reader.requests() > limits.requests || bytes > limits.bytes {
        return Err(Status::INVALID_VALUE_SIZE.into());
    }
    let mut changes = Vec::with_capacity(reader.requests() as usize);
    for member in reader {
        let Member { kind, key, value_at, value_bytes } = member.expect("all of it was checked");
        drive.staging.run(Role::Dispatch, drive.staging.costs.unpack_ns, "unpack");
        let value = (kind == RequestKind::Store).then(|| {
            let mut value = vec![0; value_bytes as usize];
            content.copy_to(value_at, &mut value);
            value
        });
        changes.push(PairChange { key, value });
        if changes.len().is_multiple_of(SLICE_REQUESTS as usize) {
            drive.end_slice();
        }
    }
    if drive.journal.is_protected() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.into());
    }
    let count = changes.len() as u32;
    drive.engine.commit_all(changes)?;
    Ok((count, 0))
}

/// Carries one request out. The value of a store is placed like one that arrived inside commands: at any byte.
fn carry_out<E: Engine>(
    drive: &KvNamespace<E>,
    member: &Member,
    content: &Region,
    value: &mut Vec<u8>,
) -> Result<(), Status> {
    let Member { kind, key, value_at, value_bytes } = *member;
    if drive.journal.is_protected() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED);
    }
    if kind == RequestKind::Delete {
        return drive.engine.delete(key);
    }
    let place = drive.engine.reserve(&key, value_bytes, Arrival::Inline)?;
    if value_bytes > 0 {
        value.resize(value_bytes as usize, 0);
        content.copy_to(value_at, value);
        drive.engine.copy_in(&place, 0, value);
    }
    drive.engine.settle(&place);
    drive.engine.commit(key, place, StoreOptions::default())
}
