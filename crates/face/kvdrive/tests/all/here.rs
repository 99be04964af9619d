//! Drives that the calls of one thread carry out, and clocks that stand still.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use kvdrive::{Done, Drive, Error, Pace};

fn number(index: u32) -> [u8; 4] {
    index.to_be_bytes()
}

fn here() -> Drive {
    kvdrive::build().set("host.depth", 4).in_this_thread().open().unwrap()
}

#[test]
fn every_kind_of_call_is_answered_without_another_thread() {
    for method in ["prp", "piggyback", "byte-express"] {
        let drive = kvdrive::build().set("host.depth", 4).transfer(method).in_this_thread().open().unwrap();
        for index in 0..3_000 {
            drive.store(&number(index), &[index as u8; 300]).unwrap();
        }
        assert_eq!(drive.get(&number(7)).unwrap(), Some(vec![7; 300]));
        assert_eq!(drive.get(b"none").unwrap(), None);
        drive.delete(&number(7)).unwrap();
        assert!(!drive.exist(&number(7)).unwrap());
        assert_eq!(drive.pairs_from(&number(2_990)).unwrap().map(Result::unwrap).count(), 10);
        // An iterator that is dropped early is closed; otherwise the drive would run out of them.
        for _ in 0..100 {
            assert!(drive.pairs().unwrap().next().is_some());
        }
        let mut client = drive.client().unwrap();
        let mut pipeline = client.pipeline().unwrap();
        let mut ended = 0;
        for index in 0..50 {
            ended += u32::from(pipeline.store(&number(index), vec![1; 300]).unwrap().is_some());
        }
        while let Some(end) = pipeline.next_ended().unwrap() {
            assert_eq!(end.result, Ok(Done::Stored));
            ended += 1;
        }
        assert_eq!(ended, 50);
        assert!(drive.numbers().unwrap().of("drive.commands") > 3_000);
    }
}

/// No other thread runs the drive, so a call is answered where it is made.
#[test]
fn a_future_is_ready_when_it_is_polled_first() {
    let drive = here();
    let client = drive.async_client().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for index in 0..20 {
        let key = number(index);
        let mut store = pin!(client.store(&key, &[3; 5_000]));
        assert_eq!(store.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        drop(client.get(&key));
        let mut get = pin!(client.get(&key));
        assert_eq!(get.as_mut().poll(&mut context), Poll::Ready(Ok(Some(vec![3; 5_000]))));
    }
}

#[test]
fn other_threads_are_refused_and_change_nothing() {
    let drive = here();
    drive.store(b"here", b"1").unwrap();
    let other = drive.client().unwrap();
    let moved = drive.client().unwrap();
    thread::scope(|scope| {
        let drive = &drive;
        let refused = |call| Err(Error::OtherThread { call });
        scope.spawn(move || {
            assert_eq!(drive.store(b"there", b"2"), Err(Error::OtherThread { call: "store" }));
            assert_eq!(drive.get(b"here"), Err(Error::OtherThread { call: "get" }));
            assert_eq!(drive.numbers().map(drop), refused("numbers"));
            assert_eq!(drive.clear_faults(None), refused("change"));
            assert_eq!(drive.write_failure(), Err(Error::OtherThread { call: "log page" }));
            assert_eq!(drive.client().map(drop), refused("connect"));
            let mut other = other;
            assert_eq!(other.pipeline().map(drop), refused("pipeline"));
            drop(moved);
        });
    });
    assert_eq!(drive.get(b"there").unwrap(), None);
    assert_eq!(drive.get(b"here").unwrap(), Some(b"1".to_vec()));
    let (drive, error) = thread::spawn(move || {
        let error = drive.exist(b"here");
        (drive, error)
    })
    .join()
    .unwrap();
    assert_eq!(error, Err(Error::OtherThread { call: "exist" }));
    assert_eq!(drive.exist(b"here"), Ok(true), "it has come back");
}

#[test]
fn power_is_cut_and_comes_back_in_the_same_thread_or_another() {
    let drive = here();
    (0..500).for_each(|index| drive.store(&number(index), &[index as u8; 700]).unwrap());
    let off = drive.cut_power(true).unwrap();
    let check = |drive: Drive| {
        (0..500).for_each(|index| {
            assert_eq!(drive.get(&number(index)).unwrap(), Some(vec![index as u8; 700]), "{index}");
        });
    };
    check(off.clone().power_on().unwrap());
    thread::spawn(move || check(off.power_on().unwrap())).join().unwrap();
}

#[test]
fn a_drive_that_is_dropped_elsewhere_is_off_when_its_thread_ends() {
    let folder = tempfile::tempdir().unwrap();
    let build = kvdrive::build().file(folder.path().join("drive")).in_this_thread();
    let opened = build.clone();
    let drive = thread::spawn(move || {
        let drive = opened.open().unwrap();
        drive.store(b"key", b"value").unwrap();
        let drive = thread::spawn(move || drop(drive)).join();
        assert!(opened.open().is_err(), "its file is still in use");
        drive
    });
    drive.join().unwrap().unwrap();
    let drive = build.open().unwrap();
    assert_eq!(drive.get(b"key").unwrap(), Some(b"value".to_vec()));
    let report = drive.close().unwrap().report();
    assert_eq!(report["clock"], "wall");
}

#[test]
fn several_drives_of_a_thread_are_carried_out_each_by_its_own_calls() {
    let drives = [here(), here(), here()];
    for round in 0..100 {
        for (which, drive) in drives.iter().enumerate() {
            drive.store(&number(round), &[which as u8; 40]).unwrap();
        }
    }
    for (which, drive) in drives.iter().enumerate() {
        assert_eq!(drive.get(&number(50)).unwrap(), Some(vec![which as u8; 40]));
    }
}

/// A rule that delays a command lets others overtake it, so it needs time to pass; no other rule does.
#[test]
fn unpaced_the_clock_stands_unless_a_fault_rule_needs_it() {
    for (pace, passes) in [(Pace::Off, false), (Pace::Jump, true)] {
        for build in [kvdrive::build(), kvdrive::build().in_this_thread()].map(|build| build.transfer("prp"))
        {
            let drive = build.pace(pace).open().unwrap();
            let took = |count: u32| {
                let before = drive.numbers().unwrap();
                (0..count).for_each(|index| drive.store(&number(index), &[0; 32]).unwrap());
                let after = drive.numbers().unwrap();
                assert_eq!(after.passes, passes);
                after.of("drive.model_ns") - before.of("drive.model_ns")
            };
            // A doorbell takes 1 ns, and a query between two commands may, too.
            assert_eq!(took(100) > 1_000, passes);
            drive.inject("[[rule]]\nfault = \"delay\"\nopcode = \"store\"\ndelay_ns = \"1ms\"\n").unwrap();
            assert!(took(100) >= 100_000_000, "each waits for its delay");
            drive.clear_faults(None).unwrap();
            assert_eq!(took(100) > 1_000, passes);
        }
    }
}

#[test]
fn a_drive_at_the_speed_of_its_model_has_a_thread() {
    let refused = kvdrive::build().in_this_thread().pace(Pace::Model).open().err();
    assert!(matches!(refused, Some(error) if error.setting() == Some("pace")));
}
