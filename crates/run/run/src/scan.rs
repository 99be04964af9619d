//! A scan through any client, in model time and in wall time, and its records.

use kvdrive_content::Region;
use kvdrive_host::{Calls, Error, Pair};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Ns, TaskCell};

use super::kinds::{NEXT, SEEK};
use super::places::TaskClient;
use super::seen::Seen;

/// The drive's answer. The outer `Err`: the connection to the drive is lost, and the run cannot continue.
pub fn answered<T>(result: Result<T, Error>) -> Result<Result<T, Status>, Error> {
    result.map(Ok).or_else(|error| error.status().map(Err))
}

/// A scan: a seek to the first key not below `from`, `nexts` nexts and a close.
pub(crate) struct Scan<'a> {
    pub(crate) from: Key,
    pub(crate) nexts: u32,
    /// When it began, in ns of `clock`.
    pub(crate) began: Ns,
    pub(crate) clock: &'a dyn Fn() -> Ns,
    pub(crate) seen: &'a TaskCell<Seen>,
}

impl Scan<'_> {
    /// Runs the scan; while `on_pair` is called, the pair is in `buffer`.
    ///
    /// # Errors
    /// The connection to the drive is lost; commands that the drive refuses are noted, not returned.
    pub(crate) fn run(
        &self,
        client: &mut impl TaskClient,
        buffer: &mut Region,
        on_pair: &mut dyn FnMut(Pair, &Region),
    ) -> Result<(), Error> {
        let Scan { from, nexts, began, clock, seen } = self;
        let opened = answered(client.seek(Some(*from), buffer))?;
        seen.borrow_mut().note(SEEK, from, clock() - began, opened.map(|_| ()));
        let Ok((iterator, mut pair)) = opened else { return Ok(()) };
        seen.borrow_mut().note_pair(SEEK, pair);
        let (mut left, mut refused) = (*nexts, false);
        while let Some(found) = pair {
            on_pair(found, buffer);
            let Some(fewer) = left.checked_sub(1) else { break };
            left = fewer;
            // A pair that has come already takes no time.
            let (next, span_ns) = match client.next_brought(iterator, buffer) {
                Ok(None) => {
                    let began = clock();
                    (answered(client.next(iterator, buffer))?, clock() - began)
                }
                brought => (brought, 0),
            };
            seen.borrow_mut().note(NEXT, from, span_ns, next.map(|_| ()));
            let Ok(next) = next else {
                refused = true;
                break;
            };
            pair = next;
            seen.borrow_mut().note_pair(NEXT, pair);
        }
        // The iterator is closed after an error, too, since the drive has few. A scan notes at most one
        // error.
        let closed = answered(client.close(iterator))?;
        if let Err(status) = closed
            && !refused
        {
            seen.borrow_mut().note_error(SEEK, from, &status);
        }
        Ok(())
    }
}
