//! Hostile or confused hosts: any bytes in pieces of any size. The answer is a status, a termination that
//! names the field, or a close; nothing else changes, and memory is freed.

use kvdrive_nvme::{Key, Sqe};
use kvdrive_sim::Rng;
use kvdrive_subsystem::namespace::Tag;
use kvdrive_subsystem::subsystem::{Event, Options};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::wire::{
    Pair, Wire, address, connect, data, hex, ic_req, response, retrieve, set_cc, settle, store, units, zeros,
};

/// Memory of the connections of these tests.
const MEMORY_BYTES: usize = 1 << 20;

/// Feeds bytes in pieces of random sizes, as a socket does: bytes that were not taken are fed again when the
/// connection continues.
fn bring(rng: &mut Rng, pair: &mut Pair, bytes: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    let mut at = 0;
    let mut refused = 0;
    while at < bytes.len() && refused < 100 {
        let piece = (1 + rng.below(200) as usize).min(bytes.len() - at);
        let taken = pair.io.receive(&mut pair.core, &bytes[at..at + piece]);
        at += taken;
        refused = if taken == 0 { refused + 1 } else { 0 };
        settle(&mut pair.core, &mut pair.io);
        sent.extend(pair.io.output().take_all());
        assert!(pair.core.used_bytes() <= pair.core.limit_bytes());
    }
    sent
}

/// Commands that a host could have sent, several of each kind.
fn script(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut units = Vec::new();
    for step in 0..6 {
        let cid = rng.below(8) as u8;
        let value: Vec<u8> = (0..rng.below(3000)).map(|at| at as u8).collect();
        let key = [b'k', rng.below(4) as u8];
        units.push(match step {
            0 | 1 => store(cid, &key, &value, true),
            2 => store(cid, &key, &value, false),
            3 => retrieve(cid, &key, rng.below(9000) as u32),
            4 => data(cid, rng.below(3) as u16, 0, &value, rng.one_in(2)),
            _ => {
                let mut any = store(cid, &key, &[], false);
                any[8] = rng.next_u32() as u8;
                any
            }
        });
    }
    units
}

#[test]
fn random_bytes_in_every_state_are_answered_or_end_the_connection() {
    for seed in 0..400 {
        let mut rng = Rng::stream(seed, "random-bytes");
        let mut bytes = vec![0; 4 + rng.below(600) as usize];
        rng.fill(&mut bytes);
        if rng.one_in(2) {
            // A header that is taken for a valid one.
            bytes[..1].copy_from_slice(&[[0u8, 2, 4, 6][rng.below(4) as usize]]);
            bytes[1..4].copy_from_slice(&[0, [128, 24, 72, 24][rng.below(4) as usize], 0]);
        }
        let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
        if rng.one_in(3) {
            pair.io = Connection::new(1, Limits::default(), address(), &pair.core);
            if rng.one_in(2) {
                let mut request = ic_req();
                request[11] = rng.below(4) as u8;
                pair.send(&request);
            }
        }
        let sent = bring(&mut rng, &mut pair, &bytes);
        units(&sent);
        pair.io.end(&mut pair.core);
        assert!(pair.memory.state.borrow().pairs.len() <= 1, "seed {seed}");
        pair.admin.end(&mut pair.core);
        assert_eq!((pair.core.used_bytes(), pair.core.subsystem.controllers()), (0, 0), "seed {seed}");
        assert_eq!(pair.memory.state.borrow().sessions, 0, "seed {seed}");
    }
}

#[test]
fn altered_streams_change_nothing_but_what_whole_commands_say() {
    for seed in 0..600 {
        let mut rng = Rng::stream(seed, "altered-streams");
        let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
        let allowed = rng.one_in(2).then(|| rng.below(3) as usize);
        pair.memory.state.borrow_mut().allowed = allowed;
        let mut bytes = script(&mut rng).concat();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => drop(bytes.drain(at..(at + 7).min(bytes.len()))),
                _ => bytes.insert(at, rng.next_u32() as u8),
            }
        }
        let sent = bring(&mut rng, &mut pair, &bytes);
        units(&sent);
        // Submitted commands complete even if their host has disconnected.
        if rng.one_in(2) {
            pair.io.end(&mut pair.core);
        }
        pair.memory.state.borrow_mut().allowed = None;
        settle(&mut pair.core, &mut pair.io);
        units(&pair.io.output().take_all());
        let stored = pair.memory.state.borrow().pairs.clone();
        assert!(stored.keys().all(|key| key.len() <= Key::IDENTITY_BYTES));
        pair.io.abandon(&mut pair.core);
        pair.admin.abandon(&mut pair.core);
        assert_eq!(pair.core.used_bytes(), 0, "seed {seed}");
        assert_eq!(pair.memory.state.borrow().under_way, 0, "seed {seed}");
    }
}

#[test]
fn any_entry_on_any_queue_is_answered_once() {
    for seed in 0..3000 {
        let mut rng = Rng::stream(seed, "any-entry");
        let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
        let mut bytes = [0; Sqe::BYTES];
        rng.fill(&mut bytes);
        if rng.one_in(2) {
            // Mostly zero, so that they pass the first check.
            bytes.iter_mut().for_each(|byte| *byte &= 0u8.wrapping_sub(u8::from(rng.one_in(6))));
        }
        let queue = if rng.one_in(2) { &pair.io } else { &pair.admin }.queue().unwrap();
        const ADMIN: [u8; 9] = [0x7F, 0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F];
        bytes[0] = ADMIN[rng.below(9) as usize];
        bytes[4] &= 0x0F;
        let sqe = Sqe::from_bytes(bytes);
        let data = pair.core.memory(kvdrive_subsystem::shared::Use::Transfer).budget.share(true);
        let data = data.take([0, 64, 4096, 8192][rng.below(4) as usize]).unwrap();
        pair.core.subsystem.execute(Tag { queue, slot: 5 }, &sqe, data, 0);
        pair.core.subsystem.poll();
        let mut answers = 0;
        while let Some(event) = pair.core.subsystem.next_event() {
            if let Event::Completed(completion) | Event::Abort { by: completion, .. } = event {
                assert_eq!(completion.tag, Tag { queue, slot: 5 });
                assert!(completion.data_bytes <= completion.data.len());
                answers += 1;
            }
        }
        let waits_for_event = bytes[0] == 0x0C && Some(queue) == pair.admin.queue();
        assert_eq!(answers, u32::from(!waits_for_event), "seed {seed}: {sqe:?}");
    }
}

/// Errors that end a connection of an I/O queue, with reason and information.
#[test]
fn a_broken_protocol_is_a_termination_that_names_the_field() {
    let altered = |mut unit: Vec<u8>, changes: &[(usize, u8)]| {
        changes.iter().for_each(|(at, byte)| unit[*at] = *byte);
        unit
    };
    let store_10 = || store(3, b"key", b"0123456789", true);
    let asked = || store(4, b"key", &[7; 100], false);
    let then = |first: Vec<u8>, second: Vec<u8>| vec![first, second];
    let cases: Vec<(&str, Vec<Vec<u8>>, u16, u32)> = vec![
        ("a second ICReq", vec![ic_req()], 0x02, 0),
        ("a unit that only controllers send", vec![response("00000000", 0, 1, "0000")], 0x01, 0),
        ("an unknown type", vec![altered(store_10(), &[(0, 0x0C)])], 0x01, 0),
        ("another header length", vec![altered(store_10(), &[(2, 71)])], 0x01, 2),
        ("no header length", vec![altered(store_10(), &[(2, 0)])], 0x01, 2),
        ("the longest header length", vec![altered(store_10(), &[(2, 255)])], 0x01, 2),
        ("a header digest without agreement", vec![altered(store_10(), &[(1, 1)])], 0x01, 1),
        ("a data digest without agreement", vec![altered(store_10(), &[(1, 2)])], 0x01, 1),
        ("shorter than its header", vec![altered(store_10(), &[(4, 71)])], 0x01, 4),
        ("longer than a capsule may be", vec![altered(store_10(), &[(6, 1)])], 0x05, 4),
        ("4 GiB", vec![altered(store_10(), &[(4, 255), (5, 255), (6, 255), (7, 255)])], 0x05, 4),
        ("data inside the header", vec![altered(store_10(), &[(3, 68)])], 0x01, 3),
        ("data at an odd place", vec![altered(store_10(), &[(3, 74)])], 0x01, 3),
        ("data after the end", vec![altered(store_10(), &[(3, 252)])], 0x01, 4),
        ("data for nothing", vec![data(4, 0, 0, &[1; 4], true)], 0x01, 10),
        ("another tag", then(asked(), data(4, 9, 0, &[7; 100], true)), 0x01, 10),
        ("another command", then(asked(), data(5, 0, 0, &[7; 100], true)), 0x01, 8),
        ("an offset out of order", then(asked(), data(4, 0, 4, &[7; 96], true)), 0x04, 12),
        ("more than was asked for", then(asked(), data(4, 0, 0, &[7; 104], true)), 0x04, 16),
        ("the last too early", then(asked(), data(4, 0, 0, &[7; 50], true)), 0x01, 1),
        (
            "a length unlike the unit's",
            then(asked(), altered(data(4, 0, 0, &[7; 100], true), &[(16, 99)])),
            0x01,
            16,
        ),
    ];
    for (what, sent, reason, information) in cases {
        let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
        let mut answer = Vec::new();
        for unit in &sent {
            answer = pair.send(unit);
        }
        let all = units(&answer);
        let ending = all.last().unwrap_or_else(|| panic!("{what}: no termination"));
        assert_eq!(ending[0], 0x03, "{what}");
        assert_eq!(u16::from_le_bytes([ending[8], ending[9]]), reason, "{what}: reason");
        assert_eq!(
            u32::from_le_bytes(ending[10..14].try_into().unwrap()),
            information,
            "{what}: information"
        );
        let about = &ending[24..];
        assert_eq!(about, &sent.last().unwrap()[..about.len()], "{what}: the header it is about");
        assert!(pair.io.is_ending() && !pair.admin.is_ending(), "{what}");
        assert!(pair.memory.state.borrow().pairs.is_empty(), "{what}");
        assert_eq!(pair.core.used_bytes(), 0, "{what}");
    }
}

#[test]
fn more_commands_than_the_queue_holds_end_the_connection_and_a_second_identifier_is_refused() {
    let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
    pair.memory.state.borrow_mut().allowed = Some(0);
    for cid in 0..8 {
        assert!(pair.send(&retrieve(cid, b"key", 64)).is_empty());
    }
    let conflict = pair.send(&retrieve(3, b"key", 64));
    assert_eq!(conflict[20..24], hex("03 00 06 80"), "identifier 3, status 03h, do not retry");
    let ending = pair.send(&retrieve(8, b"key", 64));
    assert_eq!((ending[0], ending[8]), (0x03, 0x02));
    // The commands in progress complete after their host has disconnected.
    pair.memory.state.borrow_mut().allowed = None;
    settle(&mut pair.core, &mut pair.io);
    assert_eq!(pair.core.used_bytes(), 0);
}

#[test]
fn who_does_not_go_on_is_left() {
    // (the bytes sent, whether the connection is left after the handshake's time, and after the time for
    // unfinished transfers)
    let whole = [ic_req(), connect(1, 0, 31, [0xFF, 0xFF])].concat();
    let cases =
        [(Vec::new(), true), (ic_req(), true), (ic_req()[..60].to_vec(), true), (whole.clone(), false)];
    for (bytes, left) in cases {
        let mut wire = Wire::new(Options::default());
        wire.send(&bytes);
        wire.connection.tick(&mut wire.core);
        wire.core.now_ms = 10_001;
        wire.connection.tick(&mut wire.core);
        assert_eq!(wire.connection.is_ending(), left, "{} bytes", bytes.len());
    }
    for (bytes, left) in [(Vec::new(), false), (retrieve(1, b"key", 64)[..30].to_vec(), true)] {
        let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
        pair.send(&bytes);
        pair.io.tick(&mut pair.core);
        pair.core.now_ms = 30_001;
        pair.io.tick(&mut pair.core);
        assert_eq!(pair.io.is_ending(), left);
    }
    // The controller sends an R2T, and the host stays silent.
    let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
    pair.send(&store(1, b"key", &[1; 100], false));
    assert!(pair.core.used_bytes() > 0);
    pair.io.tick(&mut pair.core);
    pair.core.now_ms = 30_001;
    pair.io.tick(&mut pair.core);
    assert!(pair.io.is_ending());
    assert_eq!(pair.core.used_bytes(), 0);
}

#[test]
fn refused_commands_skip_their_data_and_the_next_one_is_found() {
    let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
    let mut wrong_length = store(1, b"key", &[9; 40], true);
    wrong_length[8 + 32] = 41;
    let mut wrong_offset = store(2, b"key", &[9; 40], true);
    wrong_offset[8 + 24] = 41;
    let mut by_prp = store(3, b"key", &[9; 40], true);
    by_prp[9] = 0;
    let mut no_namespace = store(4, b"key", &[9; 40], true);
    no_namespace[12] = 2;
    let too_much = retrieve(5, b"key", 4 << 20);
    let good = store(6, b"key", &[9; 40], true);
    let answers = pair.send(&[wrong_length, wrong_offset, by_prp, no_namespace, too_much, good].concat());
    let mut statuses: Vec<(u8, u8)> = units(&answers).iter().map(|unit| (unit[20], unit[22] >> 1)).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [(1, 0x0F), (2, 0x16), (3, 0x02), (4, 0x0B), (5, 0x02), (6, 0)]);
}

#[test]
fn short_memory_delays_and_loses_nothing() {
    // 64 KiB for capsules, of which one host may use its reserve and the half that is common: five stores of 8 KiB that
    // do not complete, then a sixth.
    let mut pair = Pair::new(
        Options { transfer_max_bytes: 16 << 10, queue_entries_max: 64, ..Options::default() },
        80 << 10,
    );
    pair.memory.state.borrow_mut().allowed = Some(0);
    let mut second = Connection::new(2, Limits::default(), address(), &pair.core);
    second.receive(&mut pair.core, &[ic_req(), connect(1, 2, 31, [1, 0])].concat());
    settle(&mut pair.core, &mut second);
    second.output().take_all();
    for cid in 0..5 {
        assert!(pair.send(&store(cid, &[b'k', cid], &[cid; 8192], true)).is_empty());
    }
    let late = store(9, b"late", &[9; 8192], true);
    let taken = second.receive(&mut pair.core, &late);
    assert!(taken < late.len() && !second.wants_input());
    pair.memory.state.borrow_mut().allowed = None;
    settle(&mut pair.core, &mut pair.io);
    assert_eq!(pair.core.memory(kvdrive_subsystem::shared::Use::Capsule).line.pop_front(), Some(2));
    assert_eq!(second.retry(&mut pair.core, kvdrive_subsystem::shared::Use::Capsule), Ok(false));
    assert!(second.wants_input());
    second.receive(&mut pair.core, &late[taken..]);
    settle(&mut pair.core, &mut second);
    assert_eq!(second.output().take_all(), response("00000000", 2, 9, "0000"));
    assert_eq!(pair.memory.state.borrow().pairs.len(), 6);
}

#[test]
fn a_connect_that_asks_for_what_cannot_be_says_where() {
    let altered = |at: usize, byte: u8| {
        let mut unit = connect(1, 0, 31, [0xFF, 0xFF]);
        unit[at] = byte;
        unit
    };
    let cases = [
        (altered(8 + 40, 1), 0x180, 0),
        (altered(8 + 44, 0), 0x182, 44),
        (altered(8 + 42, 9), 0x182, 1 << 16 | 16),
        (altered(72 + 16, 1), 0x182, 1 << 16 | 16),
        (altered(72 + 256, b'x'), 0x182, 1 << 16 | 256),
        (altered(72 + 300, b'x'), 0x182, 1 << 16 | 256),
        (altered(72 + 512, 0), 0x182, 1 << 16 | 512),
    ];
    for (unit, status, dw0) in cases {
        let mut wire = Wire::new(Options::default());
        wire.send(&ic_req());
        let answer = wire.send(&unit);
        let field = u16::from_le_bytes([answer[22], answer[23]]);
        assert_eq!(
            (field >> 1 & 0x7FF, u32::from_le_bytes(answer[8..12].try_into().unwrap())),
            (status, dw0)
        );
        assert_eq!(wire.core.subsystem.controllers(), 0);
        // The host may try again on the same connection.
        assert_eq!(wire.send(&connect(2, 0, 31, [0xFF, 0xFF]))[22..24], [0, 0]);
    }
    let stranger =
        Options { hosts: Some(vec!["nqn.2014-08.org.example:friend".into()]), ..Options::default() };
    let mut wire = Wire::new(stranger);
    wire.send(&ic_req());
    assert_eq!(wire.send(&connect(1, 0, 31, [0xFF, 0xFF]))[22..24], hex("08 83"), "184h, do not retry");
}

#[test]
fn a_reset_ends_io_queues_and_the_controller_can_be_enabled_again() {
    let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
    pair.memory.state.borrow_mut().allowed = Some(0);
    pair.send(&store(1, b"key", &[1; 100], true));
    pair.admin.receive(&mut pair.core, &set_cc(3, "60004600"));
    settle(&mut pair.core, &mut pair.admin);
    let answer = pair.admin.output().take_all();
    assert_eq!(answer[22..24], [0, 0]);
    // The close was noted while the admin queue was served; an ended I/O queue takes no more bytes.
    pair.memory.state.borrow_mut().allowed = None;
    pair.send(&retrieve(2, b"key", 64));
    pair.io.end(&mut pair.core);
    assert_eq!(pair.core.used_bytes(), 0);
    // Not before the controller is enabled.
    let mut again = Connection::new(2, Limits::default(), address(), &pair.core);
    again.receive(&mut pair.core, &[ic_req(), connect(1, 1, 7, [1, 0])].concat());
    let all = again.output().take_all();
    assert_eq!(units(&all)[1][22..24], hex("18 00"), "0Ch, command sequence error");
    pair.admin.receive(&mut pair.core, &set_cc(4, "61004600"));
    again.receive(&mut pair.core, &connect(2, 1, 7, [1, 0]));
    assert_eq!(again.output().take_all()[22..24], [0, 0]);
    // An invalid page size: fatal, not ready, until a reset.
    for (unit, status) in [(set_cc(5, "60004600"), 0), (set_cc(6, "e1004600"), 2), (set_cc(7, "60004600"), 0)]
    {
        pair.admin.receive(&mut pair.core, &unit);
        let get = [
            hex("04 00 48 00 48 00 00 00  7f 40 0a 00 04 000000"),
            zeros(32),
            hex("00000000 1c000000"),
            zeros(16),
        ];
        pair.admin.receive(&mut pair.core, &get.concat());
        settle(&mut pair.core, &mut pair.admin);
        let all = pair.admin.output().take_all();
        assert_eq!(units(&all).last().unwrap()[8], status);
    }
}
