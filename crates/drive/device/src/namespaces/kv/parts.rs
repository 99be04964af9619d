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
//!
//! A queue that holds none of what is limited gets its first even if others hold all of it: a queue with more than an
//! equal part loses the value that was not continued for longest ([`victim`]). The next part of that value is answered
//! 21h (try again).

use std::cell::Cell;
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
    /// A value that was given up for one of another queue.
    Lost,
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

/// What queues share, and of which each has a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limited {
    /// Room for values that are being stored.
    Values,
    /// Memory for copies of values that are being retrieved.
    Copies,
}

impl<P, F> Begun<P, F> {
    /// Bytes that it holds of what is limited.
    fn held_bytes(&self, of: Limited) -> u64 {
        match (self, of) {
            (Begun::Value { store, .. }, Limited::Values) => store.value_bytes.into(),
            (Begun::Front { rest, .. }, Limited::Copies) => rest.copied_bytes(),
            _ => 0,
        }
    }
}

/// The unfinished values by number of session and stream, each with the number of its last part among all parts.
type ByStream<P, F> = BTreeMap<(u32, u16), (u64, Begun<P, F>)>;

/// Unfinished values.
pub struct Streams<P, F> {
    begun: TaskCell<ByStream<P, F>>,
    /// Parts so far.
    parts: Cell<u64>,
}

impl<P, F> Default for Streams<P, F> {
    fn default() -> Streams<P, F> {
        Streams { begun: TaskCell::default(), parts: Cell::new(0) }
    }
}

/// The value to give up so that `session` can begin one: of the queues that hold more than an equal part, the value that
/// was not continued for longest. `held` are sessions, streams, last parts and bytes. `None`: `session` holds something
/// itself, or there is none.
fn victim(held: &[(u32, u16, u64, u64)], session: u32) -> Option<(u32, u16)> {
    let mut of_queues = BTreeMap::<u32, u64>::new();
    for (queue, _, _, bytes) in held.iter().filter(|(.., bytes)| *bytes > 0) {
        *of_queues.entry(*queue).or_default() += bytes;
    }
    if of_queues.contains_key(&session) {
        return None;
    }
    let equal_bytes = of_queues.values().sum::<u64>() / (of_queues.len() as u64 + 1);
    let too_rich = held.iter().filter(|(queue, .., bytes)| *bytes > 0 && of_queues[queue] > equal_bytes);
    too_rich.min_by_key(|(_, _, last_part, _)| *last_part).map(|(queue, stream, ..)| (*queue, *stream))
}

impl<P, F> Streams<P, F> {
    fn take(&self, session: &Session, stream: u16) -> Option<Begun<P, F>> {
        Some(self.begun.borrow_mut().remove(&(session.number(), stream))?.1)
    }

    /// What has to be given up so that this queue can hold its first of what is limited; it stays known as lost.
    fn take_victim(&self, session: &Session, of: Limited) -> Option<Begun<P, F>> {
        let mut begun = self.begun.borrow_mut();
        let held: Vec<(u32, u16, u64, u64)> = begun
            .iter()
            .map(|((queue, stream), (part, begun))| (*queue, *stream, *part, begun.held_bytes(of)))
            .collect();
        let at = victim(&held, session.number())?;
        let (_, victim) = begun.get_mut(&at).expect("it is one of them");
        Some(std::mem::replace(victim, Begun::Lost))
    }

    fn check_room(&self, session: &Session) -> Result<(), Status> {
        let begun = self.begun.borrow().range(of_queue(session)).count();
        if begun < STREAMS_MAX { Ok(()) } else { Err(Status::COMMAND_INTERRUPTED) }
    }

    /// Is there room for a copy of `bytes` bytes?
    fn check_copy(&self, session: &Session, bytes: u32) -> Result<(), Status> {
        let begun = self.begun.borrow();
        let copied = |(_, begun): &(u64, Begun<P, F>)| begun.held_bytes(Limited::Copies);
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
    let Streams { begun: of, parts } = &drive.streams;
    parts.set(parts.get() + 1);
    let before = of.borrow_mut().insert((session.number(), stream), (parts.get(), begun));
    if let Some((_, Begun::Value { place, .. })) = before {
        drive.engine.abandon(place);
    }
}

/// Carries out what needs a part of what is limited. While it is answered 21h because others have all of it, and this
/// queue has none, a value of another queue is given up, and it is tried again.
fn with_room<E: Engine, T>(
    drive: &KvNamespace<E>,
    session: &Session,
    of: Limited,
    attempt: impl Fn() -> Result<T, Status>,
) -> Result<T, Status> {
    loop {
        let outcome = attempt();
        if !matches!(outcome, Err(Status::COMMAND_INTERRUPTED)) {
            return outcome;
        }
        match drive.streams.take_victim(session, of) {
            // Abandoning a place may free a segment, so nothing may be borrowed here.
            Some(Begun::Value { place, .. }) => drive.engine.abandon(place),
            Some(Begun::Front { .. } | Begun::Lost) => {}
            None => return outcome,
        }
    }
}

/// Gives up the unfinished value of a stream, or, for `ALL_STREAMS`, those of all streams of a queue.
pub(super) fn discard<E: Engine>(drive: &KvNamespace<E>, session: &Session, stream: u16) {
    let key = (session.number(), stream);
    let keys = if stream == ALL_STREAMS { of_queue(session) } else { key..=key };
    loop {
        let next = drive.streams.begun.borrow().range(keys.clone()).next().map(|((_, stream), _)| *stream);
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
            Some(Begun::Lost) => return Err(Status::COMMAND_INTERRUPTED),
            Some(Begun::Front { .. }) | None => return Err(Status::COMMAND_SEQUENCE_ERROR),
        }
    };
    let follows = if at == received_bytes { Ok(()) } else { Err(Status::COMMAND_SEQUENCE_ERROR) };
    let received = follows
        .and_then(|()| request.locate(bytes, bytes))
        .and_then(|()| prp::receive_part(request, bytes, &drive.engine, &place, at));
    let goes_on = at.saturating_add(bytes) < store.value_bytes;
    let pause = || with_room(drive, session, Limited::Values, || drive.engine.pause(&place));
    let received = received.and_then(|()| if goes_on { pause() } else { Ok(()) });
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
    with_room(drive, session, Limited::Values, || {
        let place = drive.engine.reserve(&store.key, store.value_bytes, Arrival::Hybrid)?;
        match drive.engine.begin_unfinished(&place) {
            Ok(()) => Ok(place),
            Err(status) => {
                drive.engine.abandon(place);
                Err(status)
            }
        }
    })
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
        Some(Begun::Lost) => Err(Status::COMMAND_INTERRUPTED),
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
    with_room(drive, session, Limited::Copies, || drive.streams.check_copy(session, value_bytes - from))?;
    let (mut content, mut end) = (Region::new(), 0);
    drive.engine.load(found, from, value_bytes - from, value_bytes, &mut |piece| {
        content.write(end, piece);
        end += piece.bytes();
    })?;
    Ok(Rest::Copy { content, from, value_bytes })
}

#[cfg(test)]
mod tests {
    use super::victim;

    /// Values of queues, each as (queue, bytes), the first one not continued for longest.
    fn chosen(held: &[(u32, u64)], session: u32) -> Option<usize> {
        let held: Vec<_> =
            (0..).zip(held).map(|(at, (queue, bytes))| (*queue, at, u64::from(at), *bytes)).collect();
        victim(&held, session).map(|(queue, stream)| {
            assert_eq!(held[usize::from(stream)].0, queue);
            stream.into()
        })
    }

    #[test]
    fn a_queue_that_holds_none_takes_the_stalest_value_of_those_that_hold_too_much() {
        assert_eq!(chosen(&[], 9), None);
        assert_eq!(chosen(&[(1, 8)], 9), Some(0));
        assert_eq!(chosen(&[(1, 8), (9, 1)], 9), None, "it holds one");
        assert_eq!(chosen(&[(1, 8); 14], 9), Some(0));
        assert_eq!(chosen(&[(1, 8), (2, 8), (3, 8)], 9), Some(0), "names are free");
        assert_eq!(
            chosen(&[(1, 1), (2, 0), (2, 9), (2, 9)], 9),
            Some(2),
            "what holds nothing, or little, stays"
        );
    }
}
