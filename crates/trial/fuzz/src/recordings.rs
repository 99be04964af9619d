//! Bytes as a file brings them to `kvdrive replay`.

use std::io::Cursor;

use kvdrive_link::recording::{Recording, replay};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Command, Key, RetrieveOptions, Sqe, Store, StoreOptions};
use kvdrive_run::wall::served;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use kvdrive_rigs::drive::document;

/// Kinds of frames.
const QUEUE: u8 = 1;
const COMMANDS: u8 = 2;
const READ: u8 = 3;
const END: u8 = 5;
const RESET: u8 = 6;
const CHANGE: u8 = 7;
/// Bytes of a frame before its payload: length and kind. The checksum follows the payload.
const FRAME_HEADER_BYTES: usize = 5;
const CHECKSUM_BYTES: usize = 8;
/// Bytes of the head before the configuration: magic, version, length.
const HEAD_BYTES: usize = 16;

fn head() -> Vec<u8> {
    [&b"KVRECORD"[..], &1u32.to_le_bytes(), &4u32.to_le_bytes(), b"text", &[0; CHECKSUM_BYTES]].concat()
}

fn frame(kind: u8, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    [&(payload.len() as u32).to_le_bytes()[..], &[kind], &payload, &[0; CHECKSUM_BYTES]].concat()
}

fn commands(at: u64, queue: u16, sqes: &[Sqe]) -> Vec<u8> {
    let sqes: Vec<u8> = sqes.iter().flat_map(|sqe| *sqe.as_bytes()).collect();
    let doorbells = [1, 0, 0, 0, 1, 0, 0, 0];
    frame(COMMANDS, &[&at.to_le_bytes(), &queue.to_le_bytes(), &doorbells, &sqes])
}

/// Recordings of a run that stored and retrieved a pair, and of one that was changed and lost its power;
/// checksums are computed when they are read.
pub fn recording_seeds() -> Vec<Vec<u8>> {
    let key = Key::from_u32_be(7);
    let queue = |at: u64, entries: u32| frame(QUEUE, &[&at.to_le_bytes(), &entries.to_le_bytes()]);
    let mut store =
        Command::Store(Store { key, value_bytes: 5, options: StoreOptions::default() }).encode(0, 1);
    store.set_prps(0x1000, 0);
    let retrieve = Command::Retrieve { key, buffer_bytes: 64, options: RetrieveOptions::default() };
    let mut retrieve = retrieve.encode(1, 1);
    retrieve.set_prps(0x2000, 0);
    let read = frame(READ, &[&[0, 0], &5u32.to_le_bytes(), b"value"]);
    let end = frame(END, &[&[0; 21]]);
    let stored = [
        head(),
        queue(0, 32),
        queue(1, 16),
        commands(1_000, 1, &[store]),
        read.clone(),
        commands(2_000_000, 1, &[retrieve, Command::Exist { key }.encode(2, 1)]),
        end.clone(),
    ];
    let created = [
        QueueCommand::CreateCompletion { id: 1, entries: 8 },
        QueueCommand::CreateSubmission { id: 1, entries: 8, completion: 1 },
    ];
    let created = created.map(|command| command.encode(0, 0x3000));
    let change = |at: u64, text: &str| frame(CHANGE, &[&at.to_le_bytes(), text.as_bytes()]);
    let changed = [
        head(),
        queue(0, 32),
        commands(10, 0, &created[..1]),
        commands(100_000, 0, &created[1..]),
        change(200_000, "faults add\n[[rule]]\nfault = \"lose\"\nopcode = \"store\"\ntimeout_ns = \"1ms\"\n"),
        commands(300_000, 1, &[store]),
        read,
        frame(RESET, &[&400_000u64.to_le_bytes(), &1u16.to_le_bytes()]),
        change(500_000, "power cut torn"),
        end,
    ];
    vec![stored.concat(), changed.concat()]
}

/// Corrects every checksum, as far as there are frames.
fn mend(bytes: &mut [u8]) {
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let (mut at, mut seed) = (0, 0);
    let mut payload_bytes = bytes.get(12..).and_then(number).map(|bytes| HEAD_BYTES.saturating_add(bytes));
    while let Some(before) = payload_bytes {
        let Some(frame) = bytes[at..].get_mut(..before.saturating_add(CHECKSUM_BYTES)) else { return };
        let (content, sum) = frame.split_at_mut(before);
        sum.copy_from_slice(&xxh3_64_with_seed(content, seed).to_le_bytes());
        at += before + CHECKSUM_BYTES;
        seed = at as u64;
        payload_bytes = number(&bytes[at..]).map(|bytes| FRAME_HEADER_BYTES.saturating_add(bytes));
    }
}

/// Replays the bytes with a small drive as they are, and with correct checksums, as an attacker would make
/// them: the replay either reports how it ended, or gives one line that names the byte.
pub fn recording(bytes: &[u8]) {
    let mut mended = bytes.to_vec();
    mend(&mut mended);
    for bytes in [bytes.to_vec(), mended] {
        let recording = match Recording::open(Box::new(Cursor::new(bytes))) {
            Ok(recording) => recording,
            Err(error) => {
                assert_eq!(error.to_string().lines().count(), 1, "{error}");
                continue;
            }
        };
        let config = document::<&str>(&[]).config().expect("a test's configuration is valid");
        if let Err(error) = replay(recording, served(config, None)) {
            let text = error.to_string();
            assert!(text.starts_with("recording, byte ") && text.lines().count() == 1, "{text}");
        }
    }
}
