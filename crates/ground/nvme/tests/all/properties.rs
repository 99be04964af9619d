//! Properties that hold for any command, any key, any value, any bytes.

use kvdrive_nvme::inline::*;
use kvdrive_nvme::list::{ListReader, ListWriter, entry_bytes};
use kvdrive_nvme::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn key_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Few letters, zero among them, so that many keys are prefixes of each other.
    prop_oneof![vec(any::<u8>(), 1..=16), vec(prop_oneof![Just(0), Just(1), Just(255)], 1..=16)]
}

/// With keys of more than 16 bytes, which are zeros from there on.
fn any_key_bytes() -> impl Strategy<Value = Vec<u8>> {
    let long =
        (vec(prop_oneof![Just(0), any::<u8>()], 16), 17..=Key::MAX_LEN).prop_map(|(mut bytes, len)| {
            bytes.resize(len, 0);
            bytes
        });
    prop_oneof![3 => key_bytes(), 1 => long]
}

fn key() -> impl Strategy<Value = Key> {
    any_key_bytes().prop_map(|bytes| Key::new(&bytes).unwrap())
}

/// The entry of a command, with an address for a key of more than 16 bytes.
fn entry_of(command: &Command, cid: u16, nsid: u32) -> Sqe {
    let mut sqe = command.encode(cid, nsid);
    if command.key().is_some_and(Key::is_long) {
        sqe.set_key_address(0x12_3456_7000);
    }
    sqe
}

fn store_options() -> impl Strategy<Value = StoreOptions> {
    (0..3u8, any::<bool>()).prop_map(|(condition, no_compress)| StoreOptions {
        update_only: condition == 1,
        add_only: condition == 2,
        no_compress,
    })
}

fn value_source() -> impl Strategy<Value = ValueSource> {
    prop_oneof![
        Just(ValueSource::Data),
        Just(ValueSource::Inline),
        Just(ValueSource::Chunks),
        (0..100u32).prop_map(|pages_z| ValueSource::Hybrid { pages_z }),
        (any::<u32>(), any::<u32>(), 0..=24u8).prop_map(|(window_offset, generation, tail_bytes)| {
            ValueSource::Window { window_offset, generation, tail_bytes }
        }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let size = any::<u32>;
    prop_oneof![
        (key(), size(), store_options()).prop_map(|(key, value_bytes, options)| Command::Store(Store {
            key,
            value_bytes,
            options
        })),
        (key(), size(), any::<bool>()).prop_map(|(key, buffer_bytes, raw)| Command::Retrieve {
            key,
            buffer_bytes,
            options: RetrieveOptions { raw }
        }),
        (proptest::option::of(key()), size())
            .prop_map(|(start, buffer_bytes)| Command::List { start, buffer_bytes }),
        (key(), any::<bool>()).prop_map(|(key, must_exist)| Command::Delete { key, must_exist }),
        key().prop_map(|key| Command::Exist { key }),
        (key(), size()).prop_map(|(key, value_bytes)| Command::Write(Write { key, value_bytes })),
        (key(), 0..1000u32, 1..100_000u32).prop_map(|(key, pages_z, tail_bytes)| {
            Command::Hybrid { key, value_bytes: (pages_z + 1) * 4096 + tail_bytes, pages_z }
        }),
        Just(Command::Transfer),
        (proptest::option::of(key()), size())
            .prop_map(|(key, buffer_bytes)| Command::Seek { key, buffer_bytes }),
        (size(), size(), any::<u16>()).prop_map(|(iterator, buffer_bytes, pairs_z)| Command::Next {
            iterator,
            buffer_bytes,
            pairs_z
        }),
        size().prop_map(|iterator| Command::IterClose { iterator }),
        (any::<u16>()).prop_map(|stream| Command::Discard { stream }),
        (key(), size(), size(), size(), 0..=24u8).prop_map(
            |(key, value_bytes, window_offset, generation, tail_bytes)| Command::CxlStore {
                key,
                value_bytes: value_bytes.max(24),
                window_offset,
                generation,
                tail_bytes,
            }
        ),
        (key(), size()).prop_map(|(key, value_bytes)| {
            let options = StoreOptions { add_only: true, ..StoreOptions::default() };
            Command::Express(Store { key, value_bytes, options })
        }),
        (value_source(), 1_000_000..u32::MAX)
            .prop_map(|(source, value_bytes)| Command::Batch(Batch { value_bytes, source })),
    ]
}

/// A value through a *write* and its *transfer* commands, into entries full of old bytes.
fn through_commands(key: Key, value: &[u8]) -> (Vec<u8>, u32) {
    let write = Write { key, value_bytes: value.len() as u32 };
    let mut sqe = entry_of(&Command::Write(write), 1, 1);
    let address = sqe.key_address();
    // The second put must leave no byte of the first.
    put_write(&mut sqe, &[0xEE; 64]);
    let mut sent = put_write(&mut sqe, value);
    assert_eq!(Command::decode(&sqe), Ok(Command::Write(write)));
    assert!(!key.is_long() || sqe.key_address() == address, "value bytes lie behind the key's address");
    let mut first = [0xDD; WRITE_INLINE_BYTES];
    get_write(&sqe, &mut first);
    assert_eq!(sent, value.len().min(write_room(&sqe)));
    assert!(first[sent..write_room(&sqe)].iter().all(|&byte| byte == 0));
    let mut received = first[..sent].to_vec();
    let mut commands = 1;
    while sent < value.len() {
        let mut sqe = Command::Transfer.encode(1, 1);
        put_transfer(&mut sqe, &[0xEE; 64]);
        let taken = put_transfer(&mut sqe, &value[sent..]);
        assert_eq!(Command::decode(&sqe), Ok(Command::Transfer));
        let mut next = [0xDD; TRANSFER_INLINE_BYTES];
        get_transfer(&sqe, &mut next);
        assert!(next[taken..].iter().all(|&byte| byte == 0));
        received.extend_from_slice(&next[..taken]);
        sent += taken;
        commands += 1;
    }
    (received, commands)
}

proptest! {
    #[test]
    fn encode_decode_round_trip(command in command(), cid: u16, nsid: u32, prp1: u64, prp2: u64) {
        let mut sqe = entry_of(&command, cid, nsid);
        prop_assert_eq!(sqe.opcode, command.opcode());
        prop_assert_eq!((sqe.cid.get(), sqe.nsid.get()), (cid, nsid));
        prop_assert_eq!(Command::decode(&sqe), Ok(command));
        sqe.set_prps(prp1, prp2);
        prop_assert_eq!((sqe.prp1.get(), sqe.prp2.get()), (prp1, prp2));
        prop_assert_eq!(Command::decode(&sqe), Ok(command));
    }

    #[test]
    fn any_entry_is_decoded_or_refused(low: [u8; 32], high: [u8; 32], known in 0..opcode::IO_TABLE.len()) {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&low);
        bytes[32..].copy_from_slice(&high);
        for opcode in [bytes[0], opcode::IO_TABLE[known].0] {
            bytes[0] = opcode;
            let sqe = Sqe::from_bytes(bytes);
            prop_assert_eq!(sqe.as_bytes(), &bytes);
            match Command::decode(&sqe) {
                // A decoded command encodes to the same bytes.
                Ok(command) => {
                    prop_assert_eq!(Command::decode(&entry_of(&command, 0, 0)), Ok(command));
                }
                Err(status) => prop_assert!(matches!(
                    status,
                    Status::INVALID_OPCODE | Status::INVALID_KEY_SIZE | Status::INVALID_FIELD
                )),
            }
        }
    }

    #[test]
    fn any_completion_is_read(bytes: [u8; 16], phase: bool, sct in 0..8u8, sc: u8) {
        let cqe = Cqe::from_bytes(bytes);
        prop_assert_eq!(cqe.with_phase(phase).phase(), phase);
        prop_assert_eq!(cqe.with_phase(phase).status(), cqe.status());
        prop_assert_eq!(cqe.with_phase(cqe.phase()), cqe);
        let status = Status::new(sct, sc);
        let made = Cqe::new(cqe.cid.get(), status).with_phase(phase);
        prop_assert_eq!(made.status(), status);
        prop_assert_eq!(made.do_not_retry(), status.do_not_retry());
    }

    #[test]
    fn values_travel_inside_commands(key in key(), value in vec(any::<u8>(), 0..=4096)) {
        let (received, commands) = through_commands(key, &value);
        // A *write* has 8 bytes less room beside the address of a long key.
        let beside = if key.is_long() { 8 } else { 0 };
        prop_assert_eq!(commands, commands_for(value.len() as u32 + beside));
        prop_assert_eq!(received, value);
    }

    #[test]
    fn small_values_travel_inside_commands(value in vec(any::<u8>(), 0..=200)) {
        let (received, commands) = through_commands(Key::from_u32_be(7), &value);
        prop_assert_eq!(commands, commands_for(value.len() as u32));
        prop_assert_eq!(received, value);
    }

    #[test]
    fn keys_compare_as_their_bytes(a in any_key_bytes(), b in any_key_bytes()) {
        let (left, right) = (Key::new(&a).unwrap(), Key::new(&b).unwrap());
        prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        prop_assert_eq!(left == right, a == b);
    }

    #[test]
    fn keys_keep_their_bytes(bytes in vec(any::<u8>(), 0..40)) {
        let Some(key) = Key::new(&bytes) else {
            prop_assert!(bytes.is_empty() || bytes[16..].iter().any(|byte| *byte != 0));
            return Ok(());
        };
        prop_assert_eq!(key.to_vec(), &bytes[..]);
        let bytes = &bytes[..bytes.len().min(16)];
        if key.is_long() {
            return Ok(());
        }
        let mut array = [0xEE; 16];
        key.copy_to(&mut array);
        prop_assert_eq!(&array[..key.len()], bytes);
        prop_assert!(array[key.len()..].iter().all(|&byte| byte == 0));
        let (hi, lo) = key.halves();
        prop_assert_eq!([hi.to_be_bytes(), lo.to_be_bytes()].concat(), array);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        prop_assert_eq!(format!("{key:?}"), format!("Key({hex})"));
    }

    #[test]
    fn keys_survive_in_records(key in key()) {
        let record = borsh::to_vec(&key).unwrap();
        prop_assert_eq!(record.len(), 1 + key.len().min(16));
        prop_assert_eq!(borsh::from_slice::<Key>(&record).unwrap(), key);
    }

    #[test]
    fn nothing_lies_between_a_key_and_its_predecessor(key in key()) {
        match key.predecessor() {
            None => prop_assert_eq!(key, Key::new(&[0]).unwrap()),
            Some(before) => {
                prop_assert!(before < key);
                // The lowest key above it is one byte longer, or the next of the same length.
                let above = Key::from_padded(before.to_array(), before.len() + 1);
                prop_assert!(above.is_none_or(|above| above >= key));
            }
        }
    }

    #[test]
    fn keys_of_numbers_are_their_bytes(small: u32, large: u64) {
        prop_assert_eq!(Key::from_u32_be(small), Key::new(&small.to_be_bytes()).unwrap());
        prop_assert_eq!(Key::from_u64_be(large), Key::new(&large.to_be_bytes()).unwrap());
    }

    #[test]
    fn lists_keep_their_keys(keys in vec(key(), 0..50), size in 4..600usize) {
        let mut buffer = vec![0xEE; size];
        let mut list = ListWriter::new(&mut buffer);
        let fitting = keys.iter().take_while(|key| list.push(**key)).count();
        prop_assert_eq!(list.keys() as usize, fitting);
        let used_bytes = list.finish();
        let expected: usize = keys[..fitting].iter().map(|key| entry_bytes(key.len())).sum();
        prop_assert_eq!(used_bytes, 4 + expected);
        prop_assert!(buffer[used_bytes..].iter().all(|&byte| byte == 0xEE));
        let read: Result<Vec<Key>, _> = ListReader::new(&buffer[..used_bytes]).unwrap().collect();
        prop_assert_eq!(read.unwrap(), &keys[..fitting]);
    }

    #[test]
    fn any_list_is_read_or_refused(data in vec(0..20u8, 0..200)) {
        if let Ok(list) = ListReader::new(&data) {
            // Every key takes at least three bytes, so the data bounds the loop.
            prop_assert!(list.count() <= data.len() / 3 + 1);
        }
    }
}
