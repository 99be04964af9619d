//! List, and iterators: SEEK and NEXT. Pairs that an iterator has passed and its host has not received are kept with it
//! ([`super::iterators`]), so that no pair is skipped.

use kvdrive_content::Region;
use kvdrive_engines::{Engine, Gap};
use kvdrive_link::Request;
use kvdrive_nvme::iter::{IterHeader, pair_at};
use kvdrive_nvme::list::ListWriter;
use kvdrive_nvme::{Key, Status};

use super::KvNamespace;
use super::iterators::{OpenIterator, Unsent};
use crate::answers::{Answer, send};
use crate::namespaces::{OnListed, Unlisted};

/// Longest answer to a List, however much room the host offers, because the drive builds the answer in its memory.
const LIST_MAX_BYTES: u32 = 2 << 20;

/// Keys of one slice of a List, after which other commands have their turn. A List of 1 MiB has up to 87 000 keys and
/// takes some ten milliseconds.
const SLICE_KEYS: u32 = 256;

/// Pairs in one slice of a NEXT, which reads a value for each key.
const SLICE_PAIRS: usize = 64;

/// After its first pair, an answer takes more pairs until it has this many bytes: a host that asks for many pairs may
/// use few of them.
const AHEAD_BYTES: u32 = 64 << 10;

/// After this many losses in a row a walk ends, because the cursor of a store stays at a page that it cannot read.
const LOSSES_MAX: u32 = 1 << 16;

pub(crate) fn list<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    start: Option<Key>,
    buffer_bytes: u32,
) -> Answer {
    let mut answer = vec![0; buffer_bytes.min(LIST_MAX_BYTES) as usize];
    if answer.len() < kvdrive_nvme::list::LIST_HEADER_BYTES {
        return Err(Status::INVALID_FIELD);
    }
    let mut writer = ListWriter::new(&mut answer);
    let mut cursor = drive.engine.open_cursor(start)?;
    while let Some((key, _)) = drive.engine.next(&mut cursor).map_err(of_own_cursor)? {
        if !writer.push(key) {
            break;
        }
        if writer.keys().is_multiple_of(SLICE_KEYS) {
            drive.end_slice();
        }
    }
    let keys = writer.keys();
    let bytes = writer.finish();
    answer.truncate(bytes);
    send(request, buffer_bytes, &Region::from_bytes(answer), bytes as u32)?;
    Ok((keys, 0))
}

/// Deletes every pair. The cursor stays open while pairs behind it are deleted, since a walk from the front would pass all
/// of their traces again; an engine that keeps too few changes for that loses the cursor, and the walk begins anew.
pub(crate) fn erase<E: Engine>(drive: &KvNamespace<E>) -> Result<(), Status> {
    loop {
        let mut cursor = drive.engine.open_cursor(None)?;
        let mut erased = 0;
        let is_lost = loop {
            let mut keys = Vec::new();
            let met = loop {
                match drive.engine.next(&mut cursor) {
                    Ok(Some((key, _))) => keys.push(key),
                    met => break met.map(drop),
                }
                if keys.len() as u32 == SLICE_KEYS {
                    break Ok(());
                }
            };
            keys.iter().try_for_each(|key| drive.engine.delete(*key))?;
            erased += keys.len();
            drive.end_slice();
            match met {
                Err(Status::ITERATOR_LOST) => break true,
                Err(status) => return Err(status),
                Ok(()) if keys.is_empty() => break false,
                Ok(()) => {}
            }
        };
        // A command that was under way when this began may have stored a pair behind the cursor.
        if erased == 0 && !is_lost {
            return Ok(());
        }
    }
}

/// As of [`crate::Drive::list_all`].
pub(crate) fn list_all<E: Engine>(drive: &KvNamespace<E>, each: OnListed<'_>) {
    let mut cursor = match drive.engine.open_cursor(None) {
        Ok(cursor) => cursor,
        Err(status) => return each(Err(Unlisted { status, keys: Gap::default() })),
    };
    let mut losses = 0;
    while losses < LOSSES_MAX {
        match drive.engine.next(&mut cursor) {
            Ok(Some((key, found))) => {
                losses = 0;
                each(Ok((key, drive.engine.order_on_flash(&found))));
            }
            Ok(None) => return,
            Err(status) => {
                losses += 1;
                each(Err(Unlisted { status, keys: drive.engine.gap(&cursor) }));
            }
        }
    }
}

pub(crate) fn seek<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    key: Option<Key>,
    buffer_bytes: u32,
) -> Answer {
    let slot = drive.iterators.reserve(request.session().number())?;
    // Until the host has the first pair, no other command can reach the cursor: the host does not know its number
    // yet, and never will if the pair cannot be sent.
    match open_and_send(drive, request, key, buffer_bytes) {
        Ok((iterator, bytes)) => Ok((bytes, drive.iterators.fill(slot, iterator))),
        Err(status) => {
            drive.iterators.cancel(slot);
            Err(of_own_cursor(status))
        }
    }
}

/// The status for a command that opened the failed cursor itself. A second try opens a new cursor, so the status
/// says to try again and not that an iterator is lost.
fn of_own_cursor(status: Status) -> Status {
    if status == Status::ITERATOR_LOST { Status::COMMAND_INTERRUPTED } else { status }
}

fn open_and_send<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    key: Option<Key>,
    buffer_bytes: u32,
) -> Result<(OpenIterator<E::Cursor>, u32), Status> {
    let mut iterator = OpenIterator { cursor: drive.engine.open_cursor(key)?, unsent: Unsent::default() };
    let bytes = send_pairs(drive, request, &mut iterator, buffer_bytes, 1)?;
    Ok((iterator, bytes))
}

/// Answers the iterator's next pairs, `pairs` at most. Dword 0 is the size of the whole answer, 0 after the
/// last pair.
pub(crate) fn next<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    id: u32,
    buffer_bytes: u32,
    pairs: u32,
) -> Answer {
    let mut iterator = drive.iterators.take(id)?;
    let sent = send_pairs(drive, request, &mut iterator, buffer_bytes, pairs);
    drive.iterators.put_back(id, iterator);
    if sent == Err(Status::ITERATOR_LOST) {
        drive.iterators.close(id).expect("it was put back");
    }
    Ok((sent?, id))
}

/// Sends the iterator's next pair, as far as it fits, and up to `pairs` in all, as many as fit whole; returns
/// the size of the whole answer, 0 after the last pair. Pairs that the host did not receive are returned again.
///
/// Errors: [`Status::ITERATOR_LOST`] when that cannot be, and sent again the command would pass a pair over.
fn send_pairs<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    iterator: &mut OpenIterator<E::Cursor>,
    buffer_bytes: u32,
    pairs: u32,
) -> Result<u32, Status> {
    if !read_pair(drive, iterator, 0, buffer_bytes)? {
        return Ok(0);
    }
    let (mut end, mut count) = match iterator.unsent.pair(0) {
        Some(first) if first.fills(buffer_bytes) => (first.bytes, 1usize),
        // It was read for a smaller buffer.
        Some(_) => return Err(Status::ITERATOR_LOST),
        None => return Err(iterator.unsent.take_refusal().expect("there is a pair or a status")),
    };
    while (count as u32) < pairs && end < AHEAD_BYTES.min(buffer_bytes) {
        if count.is_multiple_of(SLICE_PAIRS) {
            drive.end_slice();
        }
        // An error after the first pair is reported to the command that asks for that pair.
        if !read_pair(drive, iterator, count, buffer_bytes).unwrap_or(false) {
            break;
        }
        let Some(pair) = iterator.unsent.pair(count) else { break };
        match pair_at(end).checked_add(pair.bytes) {
            Some(after) if after <= buffer_bytes && pair.is_whole() => (end, count) = (after, count + 1),
            _ => break,
        }
    }
    send(request, buffer_bytes, iterator.unsent.answer(), end.min(buffer_bytes))?;
    iterator.unsent.sent(count, end);
    Ok(end)
}

/// Reads pairs until there is one at `index` of those that were not sent, or the iterator cannot continue; `false`: it ends
/// before.
///
/// Errors: a status of the engine that may not occur again at a second try. If the iterator cannot continue, its status
/// is answered after the pairs before it.
fn read_pair<E: Engine>(
    drive: &KvNamespace<E>,
    iterator: &mut OpenIterator<E::Cursor>,
    index: usize,
    buffer_bytes: u32,
) -> Result<bool, Status> {
    if iterator.unsent.pair(index).is_some() || iterator.unsent.has_refusal() {
        return Ok(true);
    }
    match next_pair(drive, iterator, buffer_bytes) {
        Err(status) if status != Status::COMMAND_INTERRUPTED => {
            iterator.unsent.refuse(status);
            Ok(true)
        }
        read => read,
    }
}

/// Reads the cursor's next pair, as much of it as a buffer of `buffer_bytes` bytes takes; `false` after the last one.
fn next_pair<E: Engine>(
    drive: &KvNamespace<E>,
    iterator: &mut OpenIterator<E::Cursor>,
    buffer_bytes: u32,
) -> Result<bool, Status> {
    let OpenIterator { cursor, unsent } = iterator;
    let Some((key, found)) = drive.engine.next(cursor)? else { return Ok(false) };
    let header = IterHeader::new(key, drive.engine.value_bytes(&found));
    unsent.append(header, buffer_bytes, |bytes, append| {
        drive.engine.load(&found, 0, bytes, bytes, append).map_err(|status| match status {
            Status::COMMAND_INTERRUPTED => Status::ITERATOR_LOST,
            status => status,
        })
    })?;
    Ok(true)
}
