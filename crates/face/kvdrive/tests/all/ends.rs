//! The ends of drives, and the pairs of a drive that is powered on again.

use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use kvdrive::saker::{BatchSize, SakerConfig};
use kvdrive::{Drive, Error, Lasting, Status};

fn fill(drive: &Drive, keys: std::ops::Range<u32>) {
    keys.for_each(|key| drive.store(&key.to_be_bytes(), &[key as u8; 700]).unwrap());
}

fn check(drive: &Drive, keys: std::ops::Range<u32>) {
    keys.for_each(|key| {
        assert_eq!(drive.get(&key.to_be_bytes()).unwrap(), Some(vec![key as u8; 700]), "{key}")
    });
}

#[test]
fn one_moment_is_recovered_as_often_as_asked() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    fill(&drive, 0..500);
    let off = drive.cut_power(true).unwrap();
    for life in 0..3 {
        let drive = off.clone().power_on().unwrap();
        assert!(drive.numbers().unwrap().of("drive.recovery_ns") > 0);
        check(&drive, 0..500);
        assert_eq!(drive.get(b"life").unwrap(), None, "what an earlier one wrote is not in the moment");
        drive.store(b"life", &[life]).unwrap();
    }
}

#[test]
fn power_goes_while_others_store_and_they_are_told() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let client = drive.client().unwrap();
    let thread = thread::spawn(move || {
        let mut stored = 0_u32;
        loop {
            match client.store(&stored.to_be_bytes(), &[stored as u8; 700]) {
                Ok(()) => stored += 1,
                Err(error) => return (stored, error),
            }
        }
    });
    while drive.numbers().unwrap().of("drive.commands") < 300 {
        thread::yield_now();
    }
    let off = drive.cut_power(true).unwrap();
    let (stored, error) = thread.join().unwrap();
    assert_eq!(error, Error::Off);
    let drive = off.power_on().unwrap();
    check(&drive, 0..stored);
}

#[test]
fn a_file_is_the_drive_again_and_says_how_long_it_lasts() {
    let folder = tempfile::tempdir().unwrap();
    let described = kvdrive::build().file(folder.path().join("drive.img"));
    let drive = described.open().unwrap();
    fill(&drive, 0..100);
    let Err(in_use) = described.open() else { panic!("two programs cannot have one drive") };
    assert!(in_use.to_string().contains("drive.img"), "{in_use}");
    let drive = drive.cut_power(true).unwrap().power_on().unwrap();
    check(&drive, 0..100);
    assert_eq!(drive.close().unwrap().lasting, Lasting::Program);
    let drive = described.clone().sync().open().unwrap();
    check(&drive, 0..100);
    assert_eq!(drive.close().unwrap().lasting, Lasting::Machine);
    assert_eq!(kvdrive::open("cosmos-plus").unwrap().close().unwrap().lasting, Lasting::Nothing);
    let Err(other) = described.set("flash.channels", 2).open() else { panic!("it is another drive's image") };
    assert!(matches!(other, Error::PowerOn(_)), "{other:?}");
}

#[test]
fn a_close_counts_unanswered_commands() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let client = drive.async_client().unwrap();
    // If the drive's thread is faster than this look, the command has been answered.
    let is_dropped = {
        let mut store = pin!(client.store(b"dropped", b"value"));
        store.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    let mut piped = drive.client().unwrap();
    let mut pipeline = piped.pipeline().unwrap();
    pipeline.store(b"piped", b"value".to_vec()).unwrap();
    drop(pipeline);
    let closed = drive.close().unwrap();
    assert_eq!(closed.unanswered, 1 + u64::from(is_dropped));
    let text = closed.to_string();
    assert!(text.contains("never answered"), "{text}");
    // Remaining clients find it off.
    assert_eq!(piped.store(b"late", b"value"), Err(Error::Off));
}

#[test]
fn a_fault_comes_on_command_and_goes() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let rule = "[[rule]]\nfault = \"status\"\nopcode = \"retrieve\"\nstatus = \"88h\"\n";
    let names = drive.inject(rule).unwrap();
    assert_eq!(names.len(), 1);
    drive.store(b"key", b"value").unwrap();
    assert_eq!(drive.get(b"key").unwrap_err().status(), Some(Status::UNRECOVERED_ERROR));
    drive.clear_faults(Some(&names[0])).unwrap();
    assert_eq!(drive.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert!(matches!(drive.clear_faults(Some("none")), Err(Error::Refused(_))));
    assert_eq!(drive.write_failure().unwrap(), None);
}

/// Four threads write the same five keys through SAKER until a call fails, and `end` ends the drive
/// meanwhile. Batches of one key wait for each other, so most threads wait for a batch of another thread when
/// the drive ends.
fn end_under_saker(batch: BatchSize, end: impl FnOnce(Drive)) {
    const THREADS: u32 = 4;
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let config = SakerConfig { batch, in_flight: 2, ..SakerConfig::default() };
    let saker = drive.saker(config).unwrap();
    let (sender, ended) = mpsc::channel();
    for thread in 0..THREADS {
        let (mut handle, sender) = (saker.handle().unwrap(), sender.clone());
        thread::spawn(move || {
            for number in thread.. {
                let key = [number as u8 % 5];
                let called = match number % 7 {
                    0 => handle.get(&key).map(drop),
                    1 => handle.store(&key, &[0; 5000]),
                    2 => handle.sync(),
                    _ => handle.store(&key, &number.to_be_bytes()),
                };
                if let Err(error) = called {
                    let again = handle.sync().err();
                    return sender.send((error, again, handle.unsynced())).unwrap();
                }
            }
        });
    }
    while drive.numbers().unwrap().of("drive.commands") < 200 {
        thread::yield_now();
    }
    end(drive);
    for _ in 0..THREADS {
        let (error, again, unsynced) =
            ended.recv_timeout(Duration::from_secs(20)).expect("a call fails when the drive is off");
        assert_eq!(error, Error::Off);
        assert!(again == Some(Error::Off) || unsynced == 0, "{again:?} with {unsynced} requests unsynced");
    }
    assert!(matches!(saker.handle(), Err(Error::Off)));
}

const BATCHES: [BatchSize; 3] = [BatchSize::Fixed(1), BatchSize::Fixed(3), BatchSize::Adaptive];

#[test]
fn a_power_cut_ends_every_call_of_saker() {
    for batch in BATCHES {
        end_under_saker(batch, |drive| drop(drive.cut_power(true).unwrap()));
    }
}

#[test]
fn a_close_ends_every_call_of_saker() {
    for batch in BATCHES {
        end_under_saker(batch, |drive| drop(drive.close().unwrap()));
    }
}
