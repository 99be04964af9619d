//! Parts into which a door divides a command: the network moves a large value part by part, and the drive sees *store
//! part* and *retrieve part* where the host has sent a Store or Retrieve. Streams of their own tell such parts from those
//! that a host sends itself.

use crate::{Sqe, opcode};

/// Streams from this one on are for doors. A host of a door that names one, or all, is refused.
pub const DOOR_STREAMS: u16 = (1 << 15) - 1;

/// Does the entry name a stream that only doors use?
#[inline]
#[must_use]
pub fn names_door_stream(sqe: &Sqe) -> bool {
    let stream = match sqe.opcode {
        opcode::STORE_PART | opcode::RETRIEVE_PART => (sqe.cdw11.get() >> 16) as u16,
        opcode::DISCARD => sqe.cdw12.get() as u16,
        _ => return false,
    };
    stream >= DOOR_STREAMS
}

/// The opcode that a host has sent for this entry. `None`: the entry continues, or gives up, a command of which an earlier
/// part was that.
#[inline]
#[must_use]
pub fn sent_opcode(sqe: &Sqe) -> Option<u8> {
    if !names_door_stream(sqe) {
        return Some(sqe.opcode);
    }
    match sqe.opcode {
        opcode::STORE_PART if sqe.cdw13.get() == 0 => Some(opcode::STORE),
        opcode::RETRIEVE_PART if sqe.cdw13.get() == 0 => Some(opcode::RETRIEVE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Key, RetrieveOptions, RetrievePart, Store, StoreOptions, StorePart};

    #[test]
    fn the_first_part_of_a_door_is_the_command_of_the_host() {
        let key = Key::from_u32_be(7);
        let store = Store { key, value_bytes: 100, options: StoreOptions::default() };
        let sent = |command: Command| sent_opcode(&command.encode(0, 1));
        for stream in [1, DOOR_STREAMS - 1, DOOR_STREAMS, u16::MAX - 1] {
            let is_door = stream >= DOOR_STREAMS;
            let of_host = |opcode| (!is_door).then_some(opcode);
            for at in [0, 40] {
                let part = Command::StorePart(StorePart { store, at, bytes: 40, stream });
                let begun = (is_door && at == 0).then_some(opcode::STORE);
                assert_eq!(sent(part), begun.or(of_host(opcode::STORE_PART)), "{stream} at {at}");
                let options = RetrieveOptions::default();
                let part =
                    Command::RetrievePart(RetrievePart { key, at, bytes: 40, stream, room: 100, options });
                let begun = (is_door && at == 0).then_some(opcode::RETRIEVE);
                assert_eq!(sent(part), begun.or(of_host(opcode::RETRIEVE_PART)), "{stream} at {at}");
            }
            assert_eq!(sent(Command::Discard { stream }), of_host(opcode::DISCARD), "{stream}");
        }
        assert_eq!(sent(Command::Store(store)), Some(opcode::STORE));
    }
}
