//! The end of a drive on a thread of its own: power cuts, panics, drives that cannot be built.

use kvdrive_content::Piece;
use kvdrive_host::Calls;
use kvdrive_host::threaded::{Error, serve_thread};
use kvdrive_link::shared::{PowerOff, ServerConfig};
use kvdrive_sim::wall::Pace;

use crate::firmware;
use crate::threaded::{by, key, serve};

#[test]
fn commands_fail_when_the_power_is_cut() {
    let (connector, serving) = serve();
    let mut driver = connector.connect(by("prp"), 8, 2).unwrap();
    let waiting = connector.connect(by("prp"), 8, 1).unwrap();
    driver.blocking().store(key(1), Piece::Bytes(b"before")).unwrap();
    std::thread::scope(|scope| {
        let stores = scope.spawn(|| {
            let mut stored = 0;
            loop {
                match waiting.blocking().store(key(stored), Piece::Bytes(b"under load")) {
                    Ok(()) => stored += 1,
                    Err(error) => return (stored, error),
                }
            }
        });
        serving.cut_power();
        assert_eq!(stores.join().unwrap().1, Error::PowerOff(PowerOff));
    });
    assert!(serving.join().power_cut);
    assert_eq!(driver.blocking().exist(key(1)), Err(Error::PowerOff(PowerOff)));
    assert_eq!(driver.pipeline::<Vec<u8>>().err(), Some(Error::PowerOff(PowerOff)));
    assert_eq!(connector.connect(by("prp"), 16, 4).err(), Some(Error::PowerOff(PowerOff)));
}

/// A queue pair whose driver was dropped is given to the next driver of its shape, without a command.
#[test]
fn an_unused_queue_pair_of_a_drive_without_power_is_refused() {
    let (connector, serving) = serve();
    drop(connector.connect(by("prp"), 8, 2).unwrap());
    serving.cut_power();
    assert!(serving.join().power_cut);
    assert_eq!(connector.connect(by("prp"), 8, 2).err(), Some(Error::PowerOff(PowerOff)));
}

#[test]
fn looks_and_changes_are_answered_while_the_drive_serves_and_refused_after_its_end() {
    let (connector, serving) = serve();
    let control = serving.control().clone();
    let driver = connector.connect(by("prp"), 16, 4).unwrap();
    driver.blocking().store(key(1), Piece::Bytes(b"x")).unwrap();
    // Identify, a completion and a submission queue, and a store.
    assert_eq!(control.look(|_, drive| drive.commands()), Ok(4));
    assert_eq!(control.change("800"), Ok(Ok("300 ns before".to_owned())));
    let refused = control.change("fast").unwrap().unwrap_err();
    assert!(refused.starts_with("\"fast\": "), "{refused}");
    assert_eq!(control.change("300"), Ok(Ok("800 ns before".to_owned())));
    // Several threads at once, on a drive at work.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let before = control.look(|_, drive| drive.commands()).unwrap();
                    assert_eq!(control.change("300").unwrap().unwrap(), "300 ns before");
                    assert!(control.look(|_, drive| drive.commands()).unwrap() >= before);
                }
            });
        }
        for number in 0..500 {
            driver.blocking().store(key(number), Piece::Bytes(b"y")).unwrap();
        }
    });
    assert_eq!(control.look(|_, drive| drive.commands()), Ok(504));
    serving.cut_power();
    serving.join();
    assert_eq!(control.look(|_, drive| drive.commands()), Err(PowerOff));
    assert_eq!(control.change("300"), Err(PowerOff));
}

#[test]
fn a_look_at_a_drive_that_breaks_does_not_wait_for_ever() {
    let config = ServerConfig { pace: Pace::Off, recorder: None };
    let (connector, serving) = serve_thread(config, firmware::build).unwrap();
    let control = serving.control().clone();
    let (looking, asked) = (control.clone(), control.clone());
    let broken = std::thread::spawn(move || looking.look(|_, _| -> u64 { panic!("a look that breaks") }));
    assert_eq!(broken.join().unwrap(), Err(PowerOff));
    assert_eq!(asked.change("300"), Err(PowerOff));
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serving.join()));
    assert!(joined.is_err());
    drop(connector);
}

#[test]
fn a_panic_of_the_drive_ends_its_commands_and_reaches_the_thread_that_joins_it() {
    let config = ServerConfig { pace: Pace::Off, recorder: None };
    let (connector, serving) = serve_thread(config, |sim, memory| {
        let clock = sim.clone();
        sim.spawn(move || {
            clock.sleep(1_000_000);
            panic!("a drive that breaks");
        });
        firmware::build(sim, memory)
    })
    .unwrap();
    let driver = connector.connect(by("prp"), 8, 1);
    let error = driver.and_then(|driver| {
        loop {
            driver.blocking().store(key(1), Piece::Bytes(b"x"))?;
        }
    });
    let error: Result<std::convert::Infallible, Error> = error;
    assert_eq!(error.err(), Some(Error::PowerOff(PowerOff)));
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| serving.join()));
    assert!(joined.is_err());
}

#[test]
fn a_drive_that_cannot_be_built_is_no_connection() {
    let config = ServerConfig { pace: Pace::Off, recorder: None };
    let refused = serve_thread(config, |sim, memory| match firmware::build(sim, memory) {
        Ok(_) if true => Err("no such profile".into()),
        built => built,
    });
    assert_eq!(refused.err().map(|error| error.to_string()), Some("no such profile".to_owned()));
}
