//! Values that a host has begun to store or retrieve by commands for parts (*store part*, *retrieve part*). A namespace
//! keeps room for such a value until its last part, so a host that never sends the next part would hold it for ever.
//! Between parts no data are requested, so [`super::progress`] does not judge the host; instead, each value must have a
//! part within each window.

use std::collections::BTreeMap;

use kvdrive_nvme::{Command, Sqe, opcode};

use crate::namespace::Completion;

/// The time of the last part by stream, ms.
#[derive(Default)]
pub(super) struct Begun(BTreeMap<u16, u64>);

impl Begun {
    /// A command of the host has completed.
    #[inline]
    pub(super) fn note(&mut self, sqe: &Sqe, completion: &Completion, now_ms: u64) {
        if matches!(sqe.opcode, opcode::STORE_PART | opcode::RETRIEVE_PART | opcode::DISCARD) {
            self.note_part(sqe, completion, now_ms);
        }
    }

    fn note_part(&mut self, sqe: &Sqe, completion: &Completion, now_ms: u64) {
        let (stream, goes_on) = match Command::decode(sqe) {
            Ok(Command::StorePart(part)) => (part.stream, part.at + part.bytes < part.store.value_bytes),
            Ok(Command::RetrievePart(part)) => {
                let end = part.at.saturating_add(completion.data_bytes as u32);
                (part.stream, part.stream != 0 && end < completion.dw0.min(part.room))
            }
            Ok(Command::Discard { stream }) => (stream, false),
            _ => return,
        };
        if goes_on && completion.status.is_success() {
            self.0.insert(stream, now_ms);
        } else {
            self.0.remove(&stream);
        }
    }

    /// A value of which no part came for `window_ms`.
    pub(super) fn late(&self, now_ms: u64, window_ms: u64) -> Option<u16> {
        let is_late = |last_ms: &u64| now_ms.saturating_sub(*last_ms) > window_ms;
        self.0.iter().find(|(_, last_ms)| is_late(last_ms)).map(|(stream, _)| *stream)
    }
}
