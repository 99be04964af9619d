//! Values that cross in several commands: *store part* and *retrieve part*. Between two commands of a stream, its
//! unfinished value is kept here, and no firmware context waits for it. A host that is slow, or never sends the next
//! command, holds:
//!
//! ```text
//!   store part      a page of memory, and segments; all such values share a limit (Engine::begin_unfinished)
//!   retrieve part   the segments of the value, if the engine can keep them without delaying others
//!                   (Engine::outlives_command); else a copy of the rest of the value, COPIED_MAX_BYTES for all
//! ```
//!
//! A stored value becomes visible with its last byte, as any other. A part that does not begin where the part before it
//! ended discards the unfinished value, and so does the end of the queue.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use kvdrive_content::Region;
use kvdrive_engines::Engine;
use kvdrive_link::transfer::prp;
use kvdrive_link::{Arrival, Request, Session};
use kvdrive_nvme::{ALL_STREAMS, Key, RetrievePart, Status, Store, StorePart};
use kvdrive_sim::TaskCell;

use super::KvNamespace;
use super::commit::commit;
use crate::answers::Answer;

/// Streams of one queue that may have an unfinished value at a time. A store beyond this is answered 21h (try again).
const STREAMS_MAX: usize = 1024;

/// Most bytes that all queues together may have copied for later parts; one queue may have half of it.
const COPIED_MAX_BYTES: u64 = 64 << 20;

/// The unfinished value of a stream.
pub enum Begun<P, F> {
    /// A value that is being stored; `received_bytes` have arrived.
    Value { store: Store, received_bytes: u32, place: P },
    /// A value that is being retrieved, and where its rest is.
    Front { key: Key, rest: Rest<F> },
}

/// The part of a value that is yet to be retrieved.
pub enum Rest<F> {
    /// The engine keeps the value.
    Found(F),
    /// A copy of its bytes from `from` on; the whole value has `value_bytes`.
    Copy { content: Region, from: u32, value_bytes: u32 },
}

impl<F> Rest<F> {
    fn copied_bytes(&self) -> u64 {
        match self {
            Rest::Found(_) => 0,
            Rest::Copy { from, value_bytes, .. } => u64::from(value_bytes - from),
        }
    }
}

/// Unfinished values, by number of session and stream.
pub struct Streams<P, F>(TaskCell<BTreeMap<(u32, u16), Begun<P, F>>>);

impl<P, F> Default for Streams<P, F> {
    fn default() -> Streams<P, F> {
        Streams(TaskCell::default())
    }
}

impl<P, F> Streams<P, F> {
    fn take(&self, session: &Session, stream: u16) -> Option<Begun<P, F>> {
        self.0.borrow_mut().remove(&(session.number(), stream))
    }

    fn check_room(&self, session: &Session) -> Result<(), Status> {
        let begun = self.0.borrow().range(of_queue(session)).count();
        if begun < STREAMS_MAX { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }

    /// Is there room for a copy of `bytes` bytes?
    fn check_copy(&self, session: &Session, bytes: u32) -> Result<(), Status> {
        let begun = self.0.borrow();
        let copied = |begun: &Begun<P, F>| match begun {
            Begun::Front { rest, .. } => rest.copied_bytes(),
            Begun::Value { .. } => 0,
        };
        let of_all: u64 = begun.values().map(copied).sum();
        let of_queue: u64 = begun.range(of_queue(session)).map(|(_, begun)| copied(begun)).sum();
        let more = u64::from(bytes);
        let fits = of_all + more <= COPIED_MAX_BYTES && of_queue + more <= COPIED_MAX_BYTES / 2;
        if fits { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }
}

fn of_queue(session: &Session) -> RangeInclusive<(u32, u16)> {
    (session.number(), 0)..=(session.number(), ALL_STREAMS)
}

/// Keeps the unfinished value of a stream until its next part. If two parts of one stream were under way together, each
/// may have begun a value; the earlier one is given up.
fn keep<E: Engine>(drive: &KvNamespace<E>, session: &Session, stream: u16, begun: Begun<E::Place, E::Found>) {
    let before = drive.streams.0.borrow_mut().insert((session.number(), stream), begun);
    if let Some(Begun::Value { place, .. }) = before {
        drive.engine.abandon(place);
    }
}

/// Gives up the unfinished value of a stream, or, for `ALL_STREAMS`, those of all streams of a queue.
pub(super) fn discard<E: Engine>(drive: &KvNamespace<E>, session: &Session, stream: u16) {
    let key = (session.number(), stream);
    let keys = if stream == ALL_STREAMS { of_queue(session) } else { key..=key };
    loop {
        let next = drive.streams.0.borrow().range(keys.clone()).next().map(|((_, stream), _)| *stream);
        let Some(stream) = next else { return };
        // Abandoning a place may free a segment, so nothing may be borrowed here.
        if let Some(Begun::Value { place, .. }) = drive.streams.take(session, stream) {
            drive.engine.abandon(place);
        }
    }
}

/// The next bytes of a value.
pub(super) fn store<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, part: StorePart) -> Answer {
    let StorePart { store, at, bytes, stream } = part;
    let session = request.session();
    let (place, received_bytes) = if at == 0 {
        discard(drive, session, stream);
        (begin(drive, session, store)?, 0)
    } else {
        match drive.streams.take(session, stream) {
            Some(Begun::Value { store: begun, received_bytes, place }) if begun == store => {
                (place, received_bytes)
            }
            Some(Begun::Value { place, .. }) => {
                drive.engine.abandon(place);
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
            Some(Begun::Front { .. }) | None => return Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    };
    let follows = if at == received_bytes { Ok(()) } else { Err(Status::COMMAND_SEQUENCE_ERROR) };
    let received = follows
        .and_then(|()| request.locate(bytes, bytes))
        .and_then(|()| prp::receive_part(request, bytes, &drive.engine, &place, at));
    let goes_on = at.saturating_add(bytes) < store.value_bytes;
    let received = received.and_then(|()| if goes_on { drive.engine.pause(&place) } else { Ok(()) });
    if let Err(status) = received {
        drive.engine.abandon(place);
        return Err(status);
    }
    let received_bytes = at + bytes;
    if goes_on {
        keep(drive, session, stream, Begun::Value { store, received_bytes, place });
        return Ok((0, 0));
    }
    drive.engine.settle(&place);
    commit(drive, store.key, place, store.options)
}

/// Reserves the place of a value that arrives in parts.
fn begin<E: Engine>(drive: &KvNamespace<E>, session: &Session, store: Store) -> Result<E::Place, Status> {
    drive.check_value_bytes(store.value_bytes)?;
    drive.streams.check_room(session)?;
    let place = drive.engine.reserve(&store.key, store.value_bytes, Arrival::Hybrid)?;
    match drive.engine.begin_unfinished(&place) {
        Ok(()) => Ok(place),
        Err(status) => {
            drive.engine.abandon(place);
            Err(status)
        }
    }
}

/// A part of a value; the completion says how long all of it is.
pub(super) fn retrieve<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    part: &RetrievePart,
) -> Answer {
    let RetrievePart { key, at, bytes, stream, room, .. } = *part;
    let session = request.session();
    let mut rest = if at == 0 || stream == 0 {
        if stream > 0 {
            discard(drive, session, stream);
            drive.streams.check_room(session)?;
        }
        Rest::Found(drive.engine.find(key)?.ok_or(Status::KEY_NOT_FOUND)?)
    } else {
        begun_rest(drive, session, part)?
    };
    let value_bytes = match &rest {
        Rest::Found(found) => drive.engine.value_bytes(found),
        Rest::Copy { value_bytes, .. } => *value_bytes,
    };
    let until = if stream == 0 { value_bytes } else { value_bytes.min(room) };
    let left_bytes = until.checked_sub(at).ok_or(Status::INVALID_FIELD)?;
    let here_bytes = bytes.min(left_bytes);
    let goes_on = stream > 0 && here_bytes < left_bytes;
    let stays = match &mut rest {
        Rest::Found(found) if goes_on => drive.engine.outlives_command(found),
        _ => true,
    };
    // If the rest must be copied, it is read together with this part.
    let stop = if stays { at + here_bytes } else { value_bytes };
    request.push(bytes, here_bytes, &mut |offset, bytes, sink| match &rest {
        Rest::Found(found) => drive.engine.load(found, at + offset, bytes, stop, sink),
        Rest::Copy { content, from, .. } => {
            content.read(at + offset - from, bytes, sink);
            Ok(())
        }
    })?;
    if goes_on {
        let rest = match rest {
            Rest::Found(found) if !stays => copy_of_rest(drive, session, &found, at + here_bytes)?,
            rest => rest,
        };
        keep(drive, session, stream, Begun::Front { key, rest });
    }
    Ok((value_bytes, 0))
}

/// The rest of the value that an earlier part of the stream has begun, if it is of the same key and has not passed this
/// part.
fn begun_rest<E: Engine>(
    drive: &KvNamespace<E>,
    session: &Session,
    part: &RetrievePart,
) -> Result<Rest<E::Found>, Status> {
    match drive.streams.take(session, part.stream) {
        Some(Begun::Front { key, rest: Rest::Found(found) }) if key == part.key => Ok(Rest::Found(found)),
        Some(Begun::Front { key, rest: Rest::Copy { content, from, value_bytes } })
            if key == part.key && from <= part.at =>
        {
            Ok(Rest::Copy { content, from, value_bytes })
        }
        Some(Begun::Value { place, .. }) => {
            drive.engine.abandon(place);
            Err(Status::COMMAND_SEQUENCE_ERROR)
        }
        Some(Begun::Front { .. }) | None => Err(Status::COMMAND_SEQUENCE_ERROR),
    }
}

/// Copies a value from byte `from` on, for later parts.
fn copy_of_rest<E: Engine>(
    drive: &KvNamespace<E>,
    session: &Session,
    found: &E::Found,
    from: u32,
) -> Result<Rest<E::Found>, Status> {
    let value_bytes = drive.engine.value_bytes(found);
    drive.streams.check_copy(session, value_bytes - from)?;
    let (mut content, mut end) = (Region::new(), 0);
    drive.engine.load(found, from, value_bytes - from, value_bytes, &mut |piece| {
        content.write(end, piece);
        end += piece.bytes();
    })?;
    Ok(Rest::Copy { content, from, value_bytes })
}
