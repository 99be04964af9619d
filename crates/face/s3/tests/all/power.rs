//! Full drives, drives that are away, and power cuts in the middle of a store.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::support::{PART, Served, Told, bytes, small};

/// Cuts the power of the drive and powers it on again.
fn cut(served: &Served) {
    let mut place = served.drive.lock().unwrap();
    let off = place.take().unwrap().cut_power(true).unwrap();
    *place = Some(off.power_on().unwrap());
}

/// Before, between and behind the parts of a new object: there is the old one, whole, and nothing else is listed.
#[test]
fn a_power_cut_in_the_middle_of_a_store_leaves_the_old_object_or_the_new_one() {
    for stored in 0..=4u64 {
        let served = Served::new();
        let (old, new) = (bytes(2 * PART, 1), bytes(4 * PART + 9, 2));
        assert_eq!(served.put("/kvdrive/o", &old).status, 200);
        let before = served.pairs();
        let mut socket = served.connect();
        let head = format!(
            "PUT /kvdrive/o HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            new.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&new[..stored as usize * PART]).unwrap();
        while served.pairs() < before + stored {
            thread::sleep(Duration::from_millis(1));
        }
        cut(&served);
        assert!(served.get_again("/kvdrive/o").body == old, "after {stored} parts");
        assert_eq!(served.listed(), ["o"], "parts are no objects");
        // The rest comes to a drive that was away.
        socket.write_all(&new[stored as usize * PART..]).unwrap();
        let told = Told::from(socket);
        let got = served.get_again("/kvdrive/o").body;
        match told.status {
            200 => assert!(got == new && stored == 0, "{stored}"),
            _ => assert!(told.failure() == (503, "SlowDown".into()) && got == old, "{stored}: {told:?}"),
        }
        assert_eq!(served.put("/kvdrive/o", &new).status, 200);
        assert!(served.get("/kvdrive/o").body == new);
    }
}

/// Each command of a store fails once, and the power goes after its answer.
#[test]
fn a_store_that_fails_at_any_command_leaves_one_whole_object_after_a_power_cut() {
    let mut ends = [0; 2];
    for nth in 1..=7 {
        let served = Served::new();
        let (old, new) = (bytes(PART + 1, 1), bytes(2 * PART + 9, 2));
        assert_eq!(served.put("/kvdrive/o", &old).status, 200);
        // Three parts, description, manifest; then the old parts are removed.
        let rule =
            format!("[[rule]]\nfault = \"status\"\nopcode = \"store\"\nstatus = \"06h\"\nnth = {nth}\n");
        served.on_drive(|drive| drive.inject(&rule).unwrap());
        let told = served.put("/kvdrive/o", &new);
        cut(&served);
        let got = served.get_again("/kvdrive/o").body;
        assert!(got == if told.status == 200 { &new[..] } else { &old[..] }, "{nth}: {told:?}");
        assert_eq!(served.listed(), ["o"]);
        ends[usize::from(told.status == 200)] += 1;
    }
    assert_eq!(ends, [5, 2], "each of the five stores failed once");
}

#[test]
fn a_full_drive_a_drive_that_is_away_and_one_that_fails_are_told() {
    let served = Served::of(small(), None);
    served.put("/kvdrive/there", b"there");
    served.on_drive(|drive| {
        drive.inject("[[rule]]\nfault = \"status\"\nopcode = \"store\"\nstatus = \"81h\"\n").unwrap()
    });
    let pairs = served.pairs();
    assert_eq!(served.put("/kvdrive/o", &bytes(3 * PART, 1)).failure(), (507, "InsufficientStorage".into()));
    assert_eq!((served.pairs(), served.listed()), (pairs, vec!["there".to_owned()]));
    served.on_drive(|drive| {
        drive.clear_faults(None).unwrap();
        drive.inject("[[rule]]\nfault = \"status\"\nopcode = \"retrieve\"\nstatus = \"88h\"\n").unwrap()
    });
    assert_eq!(served.get("/kvdrive/there").failure(), (500, "InternalError".into()));

    let off = served.drive.lock().unwrap().take().unwrap().cut_power(false).unwrap();
    for _ in 0..2 {
        assert_eq!(served.get("/kvdrive/there").failure(), (503, "SlowDown".into()));
    }
    *served.drive.lock().unwrap() = Some(off.power_on().unwrap());
    assert_eq!(served.get("/kvdrive/there").body, b"there", "the door connects again");
}
