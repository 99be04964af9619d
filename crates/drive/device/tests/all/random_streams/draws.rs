//! Entries as streams draw them: mostly commands as hosts send them, some with changed bytes, some of any
//! bytes.

use kvdrive_nvme::inline::WRITE_INLINE_BYTES;
use kvdrive_nvme::window::ASK;
use kvdrive_nvme::{
    Batch, Command, Key, RetrievePart, SglDescriptor, Store, StoreOptions, StorePart, ValueSource, Write,
    opcode,
};
use proptest::prelude::*;

use super::{BASE, BATCHES, LARGEST, LIST, PAGE, PAGES};

fn any_key() -> impl Strategy<Value = Key> + Clone {
    (0u8..3, 1usize..5).prop_map(|(byte, len)| Key::new(&[byte; 16][..len]).expect("1 to 4 bytes"))
}

fn any_size() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        4 => 0u32..200,
        2 => 4_000u32..4_300,
        2 => 8_000u32..LARGEST + 100,
        1 => any::<u32>(),
    ]
}

fn any_command() -> impl Strategy<Value = Command> + Clone {
    let options = (any::<bool>(), any::<bool>()).prop_map(|(first, condition)| StoreOptions {
        update_only: first && condition,
        add_only: !first && condition,
        no_compress: false,
    });
    let iterator = prop_oneof![0u32..5, 4_096u32..4_101, any::<u32>()];
    let start = proptest::option::of(any_key());
    prop_oneof![
        4 => (any_key(), any_size(), options)
            .prop_map(|(key, value_bytes, options)| Command::Store(Store { key, value_bytes, options })),
        4 => (any_key(), any_size())
            .prop_map(|(key, value_bytes)| Command::Write(Write { key, value_bytes })),
        3 => (any_key(), any_size(), 0u32..3)
            .prop_map(|(key, value_bytes, pages_z)| Command::Hybrid { key, value_bytes, pages_z }),
        8 => Just(Command::Transfer),
        1 => (0u16..3).prop_map(|stream| Command::Discard { stream }),
        6 => any_store_part(),
        2 => (any_key(), 0u32..5_000, any_size(), 0u16..3, any_size())
            .prop_map(|(key, at, bytes, stream, room)| Command::RetrievePart(RetrievePart {
                key, at, bytes, stream, room, options: Default::default(),
            })),
        4 => (any_key(), any_size()).prop_map(|(key, buffer_bytes)| Command::Retrieve {
            key, buffer_bytes, options: Default::default(),
        }),
        1 => (any_key(), 0u32..200).prop_map(|(key, value_bytes)| {
            Command::Express(Store { key, value_bytes, options: StoreOptions::default() })
        }),
        3 => (any_key(), 24u32..3_000, 0u32..6, any::<u16>(), 0u8..25).prop_map(
            |(key, value_bytes, generation, window_offset, tail_bytes)| {
                let window_offset = if window_offset % 8 == 0 { ASK } else { u32::from(window_offset % 4_500) };
                Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes }
            },
        ),
        3 => (any_source(), prop_oneof![3 => Just(BATCHES[0].1), 3 => Just(BATCHES[1].1), 1 => any_size()])
            .prop_map(|(source, value_bytes)| Command::Batch(Batch { value_bytes, source })),
        1 => (any_key(), any::<bool>()).prop_map(|(key, must_exist)| Command::Delete { key, must_exist }),
        1 => any_key().prop_map(|key| Command::Exist { key }),
        1 => (start.clone(), any_size()).prop_map(|(start, buffer_bytes)| Command::List { start, buffer_bytes }),
        2 => (start, any_size()).prop_map(|(key, buffer_bytes)| Command::Seek { key, buffer_bytes }),
        2 => (iterator.clone(), any_size(), prop_oneof![Just(0), 0u16..5, any::<u16>()])
            .prop_map(|(iterator, buffer_bytes, pairs_z)| Command::Next { iterator, buffer_bytes, pairs_z }),
        1 => iterator.prop_map(|iterator| Command::IterClose { iterator }),
    ]
}

/// All of a value, or one of its three parts.
fn any_store_part() -> impl Strategy<Value = Command> + Clone {
    let part = prop_oneof![
        any_size().prop_map(|bytes| (bytes, 0, bytes)),
        (0u32..3).prop_map(|part| (11_000, part * 4096, 4096.min(11_000 - part * 4096))),
    ];
    (any_key(), part, 1u16..3).prop_map(|(key, (value_bytes, at, bytes), stream)| {
        let store = Store { key, value_bytes, options: StoreOptions::default() };
        Command::StorePart(StorePart { store, at, bytes, stream })
    })
}

fn any_source() -> impl Strategy<Value = ValueSource> + Clone {
    prop_oneof![
        6 => Just(ValueSource::Data),
        1 => Just(ValueSource::Inline),
        1 => (0u32..2).prop_map(|pages_z| ValueSource::Hybrid { pages_z }),
        1 => Just(ValueSource::Chunks),
        1 => (0u32..6, 0u32..200, 0u8..25).prop_map(|(generation, window_offset, tail_bytes)| {
            ValueSource::Window { window_offset, generation, tail_bytes }
        }),
    ]
}

/// Mostly inside the memory and aligned, sometimes anything.
fn any_address() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        8 => (0..PAGES).prop_map(|page| BASE + page * PAGE),
        2 => prop_oneof![Just(BATCHES[0].0), Just(BATCHES[1].0)].prop_map(|page| BASE + page * PAGE),
        4 => Just(LIST),
        2 => (0..PAGES * PAGE / 4).prop_map(|dword| BASE + dword * 4),
        1 => (0..PAGES * PAGE).prop_map(|byte| BASE + byte),
        1 => (0u64..8_300).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

pub fn any_sqe() -> impl Strategy<Value = [u8; 64]> {
    let data = (any_address(), any_address(), proptest::option::weighted(0.25, any_size()));
    let valid = (any_command(), any::<u16>(), data).prop_map(|(command, cid, (first, second, sgl))| {
        let mut sqe = command.encode(cid, 1);
        // Inline commands have value bytes where others have the data pointer; a *hybrid* has pages as well.
        match (command.opcode(), sgl) {
            (opcode::WRITE | opcode::TRANSFER, _) => {
                kvdrive_nvme::inline::put_write(&mut sqe, &[cid as u8; WRITE_INLINE_BYTES]);
            }
            (_, Some(length)) => sqe.set_sgl(SglDescriptor::data_block(first, length)),
            (_, None) => sqe.set_prps(first, second),
        }
        *sqe.as_bytes()
    });
    let mutated = (valid.clone(), proptest::collection::vec((0usize..64, any::<u8>()), 1..4));
    prop_oneof![
        6 => valid,
        2 => mutated.prop_map(|(mut sqe, changes)| {
            changes.iter().for_each(|(at, byte)| sqe[*at] = *byte);
            sqe
        }),
        1 => proptest::collection::vec(any::<u8>(), 64).prop_map(|bytes| bytes.try_into().expect("64")),
    ]
}

/// The queue of each entry (0: the admin queue), and the entry. No entry is quiet: each must be completed.
pub fn any_stream(longest: usize) -> impl Strategy<Value = Vec<(usize, [u8; 64])>> {
    let queue = prop_oneof![1 => Just(0usize), 12 => 1usize..3];
    let loud = (queue, any_sqe()).prop_map(|(queue, mut bytes)| {
        bytes[1] &= !4;
        // Not deletion of a queue that the stream uses, and not commands that wait for an event: see
        // `queues.rs`.
        let waits = [opcode::admin::DELETE_IO_SQ, opcode::admin::ASYNC_EVENT_REQUEST];
        if queue == 0 && waits.contains(&bytes[0]) {
            bytes[0] = opcode::admin::KEEP_ALIVE;
        }
        (queue, bytes)
    });
    proptest::collection::vec(loud, 1..longest)
}
