//! A recorded run in wall time and its replay in model time: the same counters, the same times. Damage is
//! detected.

use std::io::Cursor;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, mpsc};

use kvdrive_content::{Piece, Region};
use kvdrive_host::Calls;
use kvdrive_host::threaded::{Connector, Pipelined, serve_thread};
use kvdrive_link::recording::{Recorder, Recording, ReplayError, replay};
use kvdrive_link::shared::ServerConfig;
use kvdrive_link::transfer::METHODS;
use kvdrive_sim::wall::Pace;

use crate::firmware::{self, Counters};
use crate::threaded::{by, key, value};

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Three threads of mixed commands; returns the recording and the drive's counters.
fn record(pace: Pace, cut_power: bool) -> (Vec<u8>, Counters) {
    let tape = Tape::default();
    let recorder = Recorder::new(Box::new(tape.clone()), "seed = 7").unwrap();
    let config = ServerConfig { pace, recorder: Some(recorder) };
    let (connector, serving) = serve_thread(config, firmware::build).unwrap();
    let (progress, stored) = mpsc::channel();
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (connector, progress) = (connector.clone(), progress.clone());
            scope.spawn(move || {
                let mut driver = connector.connect(by(METHODS[2 + thread as usize].name), 32, 16).unwrap();
                let mut pipeline = driver.pipeline().unwrap();
                for number in (0..120).map(|step| step * 3 + thread) {
                    while !pipeline.has_room() {
                        // The power may have been cut.
                        if pipeline.next_completion().is_err() {
                            return;
                        }
                        progress.send(()).unwrap();
                    }
                    pipeline.store(key(number % 200), value(number, number * 53 % 9000)).unwrap();
                }
                while let Ok(Some(_)) = pipeline.next_completion() {}
                drop(pipeline);
                let mut region = Region::new();
                for number in 0..30 {
                    let _ = driver.blocking().retrieve(key(number), &mut region);
                    let _ = driver.blocking().store(key(number), Piece::Bytes(&value(number, 60)));
                }
            });
        }
        if cut_power {
            // All three threads are connected and at work.
            stored.iter().take(250).for_each(drop);
            serving.cut_power();
        }
    });
    drop(connector);
    let counters = serving.join();
    let bytes = std::mem::take(&mut *tape.0.lock().unwrap());
    (bytes, counters)
}

/// The recording of an unpaced drive that did `work`, and the drive's counters.
fn recorded(work: impl FnOnce(Connector)) -> (Vec<u8>, Counters) {
    let tape = Tape::default();
    let recorder = Recorder::new(Box::new(tape.clone()), "seed = 7").unwrap();
    let config = ServerConfig { pace: Pace::Off, recorder: Some(recorder) };
    let (connector, serving) = serve_thread(config, firmware::build).unwrap();
    work(connector);
    let counters = serving.join();
    let bytes = tape.0.lock().unwrap().clone();
    (bytes, counters)
}

fn play(bytes: &[u8]) -> Result<Counters, ReplayError> {
    let recording = Recording::open(Box::new(Cursor::new(bytes.to_vec())))?;
    assert_eq!(recording.configuration(), "seed = 7");
    replay(recording, firmware::build)
}

#[test]
fn a_replay_repeats_every_counter_and_every_time() {
    for pace in [Pace::Off, Pace::Model] {
        let (bytes, counters) = record(pace, false);
        assert!(counters.commands > 500 && counters.recorded, "{counters:?}");
        assert_eq!(play(&bytes).unwrap(), counters);
    }
}

#[test]
fn a_replay_makes_the_same_changes_at_the_same_events_and_takes_no_notice_of_looks() {
    for pace in [Pace::Off, Pace::Model] {
        let tape = Tape::default();
        let recorder = Recorder::new(Box::new(tape.clone()), "seed = 7").unwrap();
        let config = ServerConfig { pace, recorder: Some(recorder) };
        let (connector, serving) = serve_thread(config, firmware::build).unwrap();
        let mut driver = connector.connect(by("prp"), 32, 16).unwrap();
        let mut pipeline = driver.pipeline().unwrap();
        for number in 0..400 {
            while !pipeline.has_room() {
                pipeline.next_completion().unwrap();
            }
            pipeline.store(key(number % 50), value(number, 100)).unwrap();
            if number % 37 == 0 {
                serving.control().change(["900", "150", "no time"][number as usize % 3]).unwrap().ok();
                serving.control().look(|_, drive| drive.commands()).unwrap();
            }
        }
        while let Ok(Some(_)) = pipeline.next_completion() {}
        drop(pipeline);
        drop((driver, connector));
        let counters = serving.join();
        let bytes = std::mem::take(&mut *tape.0.lock().unwrap());
        assert_eq!(play(&bytes).unwrap(), counters);
    }
}

#[test]
fn a_replay_stops_where_the_power_was_cut() {
    for pace in [Pace::Off, Pace::Model] {
        let (bytes, counters) = record(pace, true);
        assert!(counters.power_cut);
        assert_eq!(play(&bytes).unwrap(), counters);
    }
}

#[test]
fn values_that_were_given_up_are_given_up_in_the_replay() {
    let (bytes, counters) = recorded(|connector| {
        let mut driver = connector.connect(by("piggyback"), 8, 2).unwrap();
        for number in 0..20 {
            let mut pipeline = driver.pipeline().unwrap();
            pipeline.store(key(number), value(number, 500)).unwrap();
            pipeline.ring();
            drop(pipeline);
            driver.blocking().store(key(number + 50), Piece::Bytes(&value(number, 200))).unwrap();
        }
    });
    assert_eq!(play(&bytes).unwrap(), counters);
}

#[test]
fn a_replay_on_another_drive_says_so() {
    let (bytes, _) = record(Pace::Off, false);
    let recording = Recording::open(Box::new(Cursor::new(bytes))).unwrap();
    let other = replay(recording, |sim, memory| {
        let clock = sim.clone();
        sim.spawn(move || clock.sleep(5));
        firmware::build(sim, memory)
    });
    let error = other.expect_err("it has one task more").to_string();
    assert!(error.contains("another configuration") && !error.contains('\n'), "{error}");
}

#[test]
fn an_interrupted_recording_is_played_to_its_last_arrival_and_an_altered_one_is_refused_with_its_offset() {
    let (bytes, _) = recorded(|connector| {
        let driver = connector.connect(by("adaptive"), 8, 2).unwrap();
        for number in 0..6 {
            driver.blocking().store(key(number), Piece::Bytes(&value(number, number * 60))).unwrap();
        }
    });
    let whole = play(&bytes).unwrap();
    let refused = |error: ReplayError, what: &str| {
        let error = error.to_string();
        assert!(error.starts_with("recording, byte ") && !error.contains('\n'), "{what}: {error}");
    };
    // magic, version, length, configuration, checksum
    let head_bytes = 8 + 4 + 4 + "seed = 7".len() + 8;
    let mut reached = (0, 0, 0);
    for length in 0..bytes.len() {
        if length < head_bytes {
            refused(play(&bytes[..length]).expect_err("its head is cut"), "cut");
            continue;
        }
        let counters = play(&bytes[..length]).expect("what is there of it is played");
        assert!(counters.power_cut && !counters.recorded, "cut at {length}: {counters:?}");
        let now = (counters.now, counters.events, counters.commands);
        assert!(now >= reached && now < (whole.now, whole.events, whole.commands + 1), "cut at {length}");
        reached = now;
    }
    assert!(reached.2 + 2 >= whole.commands, "{reached:?} of {whole:?}");
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        match play(&altered) {
            Err(error) => refused(error, "altered"),
            // The length of a frame: the frame seems to extend beyond the end.
            Ok(counters) => assert!(counters.power_cut && !counters.recorded, "byte {at} is altered"),
        }
    }
}
