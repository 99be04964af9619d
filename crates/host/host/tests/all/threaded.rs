//! Drivers on threads of their own: every command, values by every method, futures that are dropped.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use kvdrive_content::{Piece, Region};
use kvdrive_host::spread::{self, Spread};
use kvdrive_host::threaded::{
    Completion, Connector, Driver, Error, Pair, Pipelined, Serving, block_on, serve_thread,
};
use kvdrive_host::{Answer, Call, Calls};
use kvdrive_link::Class;
use kvdrive_link::shared::ServerConfig;
use kvdrive_link::transfer::{Choice, METHODS, TransferConfig, method};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::wall::Pace;

use crate::firmware::{self, Counters, MAX_VALUE_BYTES, Steered};

pub fn by(name: &str) -> Box<dyn Choice> {
    let config = TransferConfig {
        method: name.to_owned(),
        threshold1_bytes: 128,
        threshold2_bytes: 100,
        alpha: 1.0,
        beta: 1.0,
        own: None,
    };
    method(&config).expect("a row of METHODS")
}

pub fn serve() -> (Connector, Serving<Steered, Counters>) {
    serve_at(Pace::Off)
}

/// A paced drive has hardly ever answered when a future is first polled.
fn serve_at(pace: Pace) -> (Connector, Serving<Steered, Counters>) {
    serve_thread(ServerConfig { pace, recorder: None }, firmware::build).expect("the test drive can be built")
}

pub fn key(number: u32) -> Key {
    Key::new(&number.to_be_bytes()).unwrap()
}

/// Bytes that depend on the key and on every position.
pub fn value(number: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ (at >> 8) ^ number.wrapping_mul(31)) as u8).collect()
}

/// A store as a future.
async fn store(driver: &Driver, key: Key, value: Piece<'_>) -> Result<(), Error> {
    let store = Call::Store { key, value, options: StoreOptions::default() };
    driver.call(store, &mut Region::new()).await.map(drop)
}

/// Any other call as a future.
async fn call(driver: &Driver, call: Call<[u8; 0]>, into: &mut Region) -> Result<Answer, Error> {
    driver.call(call, into).await
}

fn read(driver: &Driver, number: u32) -> Option<Vec<u8>> {
    let mut region = Region::new();
    match driver.blocking().retrieve(key(number), &mut region) {
        Ok(bytes) => Some(region.to_bytes(bytes)),
        Err(Error::Status(Status::KEY_NOT_FOUND)) => None,
        Err(error) => panic!("retrieve: {error}"),
    }
}

/// Polls once, like an executor that then drops the future.
fn poll_once<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn values_of_all_sizes_come_back_by_every_method() {
    const SIZES: [u32; 14] =
        [0, 1, 35, 36, 91, 92, 500, 4095, 4096, 4097, 4200, 8192, 12300, MAX_VALUE_BYTES];
    let (connector, serving) = serve();
    for (index, row) in METHODS.iter().enumerate() {
        let driver = connector.connect(by(row.name), 16, 4).unwrap();
        for (step, bytes) in SIZES.into_iter().enumerate() {
            let number = (index * 100 + step) as u32;
            driver.blocking().store(key(number), Piece::Bytes(&value(number, bytes))).unwrap();
            assert!(read(&driver, number) == Some(value(number, bytes)), "{} {bytes}", row.name);
        }
        let too_long = vec![0; MAX_VALUE_BYTES as usize + 1];
        let refused = driver.blocking().store(key(0), Piece::Bytes(&too_long));
        assert_eq!(refused, Err(Error::Status(Status::INVALID_VALUE_SIZE)));
    }
    drop(connector);
    assert!(!serving.join().power_cut);
}

#[test]
fn every_command_does_what_it_says() {
    let (connector, serving) = serve();
    let queue = connector.connect(by("adaptive"), 16, 4).unwrap();
    let mut driver = queue.blocking();
    for number in 0..20 {
        driver.store(key(number), Piece::Bytes(&value(number, number * 10))).unwrap();
    }
    let add_only = StoreOptions { add_only: true, ..StoreOptions::default() };
    let again = driver.store_with(key(3), Piece::Bytes(b"again"), add_only);
    assert_eq!(again, Err(Error::Status(Status::KEY_EXISTS)));
    driver.delete(key(7)).unwrap();
    assert_eq!((driver.exist(key(7)), driver.exist(key(8))), (Ok(false), Ok(true)));
    let listed = driver.list(Some(key(5)), 4096).unwrap();
    assert_eq!(listed, (5..20).filter(|number| *number != 7).map(key).collect::<Vec<_>>());
    assert_eq!(driver.list(None, u32::MAX).unwrap().len(), 19, "as much as a slot holds");
    let mut region = Region::new();
    let (iterator, mut pair) = driver.seek(Some(key(17)), &mut region).unwrap();
    for number in 17..20 {
        let found = pair.expect("a pair is left");
        assert_eq!(
            (found.key, region.to_bytes(found.value_bytes)),
            (key(number), value(number, number * 10))
        );
        pair = driver.next(iterator, &mut region).unwrap();
    }
    assert_eq!(pair, None);
    driver.close(iterator).unwrap();
    drop((queue, connector));
    serving.join();
}

#[test]
fn threads_with_queues_of_their_own_do_not_disturb_each_other() {
    const THREADS: u32 = 4;
    const EACH: u32 = 150;
    let (connector, serving) = serve();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let connector = connector.clone();
            scope.spawn(move || {
                let driver = connector.connect(by(METHODS[thread as usize].name), 8, 3).unwrap();
                for number in (0..EACH).map(|step| step * THREADS + thread) {
                    driver.blocking().store(key(number), Piece::Bytes(&value(number, number % 300))).unwrap();
                }
                for number in (0..EACH).map(|step| step * THREADS + thread) {
                    assert_eq!(read(&driver, number), Some(value(number, number % 300)));
                }
            });
        }
    });
    drop(connector);
    assert!(serving.join().commands > u64::from(2 * THREADS * EACH));
}

#[test]
fn futures_of_one_driver_share_its_slots_in_turn() {
    let (connector, serving) = serve();
    let driver = connector.connect(by("piggyback"), 8, 3).unwrap();
    let values: Vec<Vec<u8>> = (0..40).map(|number| value(number, number * 7)).collect();
    let mut stores: Vec<_> = values
        .iter()
        .enumerate()
        .map(|(number, value)| Some(Box::pin(store(&driver, key(number as u32), Piece::Bytes(value)))))
        .collect();
    block_on(std::future::poll_fn(|context| {
        for slot in &mut stores {
            if let Some(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(context)
            {
                result.unwrap();
                *slot = None;
            }
        }
        if stores.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }));
    for number in 0..40 {
        assert_eq!(read(&driver, number), Some(value(number, number * 7)));
    }
    drop(stores);
    drop((driver, connector));
    serving.join();
}

#[test]
fn a_driver_and_its_futures_may_move_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn is_sync<T: Sync>(_: &T) {}
    let (connector, serving) = serve();
    let driver = connector.connect(by("adaptive"), 8, 3).unwrap();
    is_send(&driver);
    is_sync(&driver);
    let mut region = Region::new();
    is_send(&store(&driver, key(1), Piece::Bytes(b"x")));
    is_send(&call(&driver, Call::Retrieve { key: key(1) }, &mut region));
    is_send(&call(&driver, Call::Seek { key: None }, &mut region));
    drop((driver, connector));
    serving.join();
}

#[test]
fn a_store_dropped_in_the_middle_leaves_queue_and_slots_usable() {
    let (connector, serving) = serve();
    let mut driver = connector.connect(by("piggyback"), 8, 2).unwrap();
    for round in 0..50 {
        let long = value(round, 400);
        // A hundred commands; a look of the drive takes as many as the queue holds, and its thread is not
        // fast enough for one look to find all of them answered.
        let longest = value(round, 6_000);
        {
            // Its first command is submitted, and holds its slot and the sequence.
            let mut storing = pin!(store(&driver, key(900), Piece::Bytes(&longest)));
            assert!(poll_once(&mut storing).is_pending());
            // These wait: one for the sequence, one for a slot.
            let mut second = pin!(store(&driver, key(901), Piece::Bytes(&long)));
            let mut into = Region::new();
            let mut third = pin!(call(&driver, Call::Exist { key: key(1) }, &mut into));
            assert!(poll_once(&mut second).is_pending());
            assert!(poll_once(&mut third).is_pending());
        }
        driver.blocking().store(key(round), Piece::Bytes(&long)).unwrap();
        assert_eq!(read(&driver, round), Some(long.clone()));
        if round % 2 == 0 {
            let mut storing = pin!(store(&driver, key(900), Piece::Bytes(&longest)));
            assert!(poll_once(&mut storing).is_pending());
        }
        // A pipeline finds the drive in the same state, and is dropped in the middle itself.
        let mut pipeline = driver.pipeline().unwrap();
        pipeline.store(key(1000 + round), value(round, 300)).unwrap();
        let stored = pipeline.next_completion().unwrap().expect("a store is under way");
        assert_eq!(stored.result, Ok(Answer::Done));
        pipeline.store(key(2000 + round), value(round, 300)).unwrap();
        pipeline.ring();
        drop(pipeline);
        assert_eq!(read(&driver, 1000 + round), Some(value(round, 300)));
    }
    assert_eq!(read(&driver, 900), None, "no value was ever submitted whole");
    drop((driver, connector));
    serving.join();
}

/// Many queues, each of which began a value and dropped it, alone or with its driver: none of these values
/// stays in the drive.
#[test]
fn values_that_were_dropped_leave_the_drive() {
    for piped in [false, true] {
        let (connector, serving) = serve();
        let long = value(1, 8_000);
        let mut drivers = Vec::new();
        for number in 0..40 {
            let mut driver = connector.connect(by("piggyback"), 8, 2).unwrap();
            if piped {
                let mut pipeline = driver.pipeline().unwrap();
                pipeline.store(key(number), long.clone()).unwrap();
                pipeline.ring();
            } else {
                let mut storing = pin!(store(&driver, key(number), Piece::Bytes(&long)));
                assert!(poll_once(&mut storing).is_pending());
            }
            if number % 2 == 0 {
                drivers.push(driver);
            }
        }
        let driver = connector.connect(by("piggyback"), 16, 2).unwrap();
        driver.blocking().store(key(99), Piece::Bytes(&long)).unwrap();
        drop((drivers, driver, connector));
        assert_eq!(serving.join().unfinished, 0, "by pipelines: {piped}");
    }
}

/// A select or a time-out drops the future before or after its completion.
#[test]
fn a_next_that_is_dropped_loses_no_pair() {
    const PAIRS: u32 = 4000;
    let (connector, serving) = serve_at(Pace::Model);
    let driver = connector.connect(by("prp"), 4, 1).unwrap();
    let other = connector.connect(by("prp"), 8, 2).unwrap();
    for number in 0..PAIRS {
        driver.blocking().store(key(number), Piece::Bytes(&value(number, 200))).unwrap();
    }
    let mut region = Region::new();
    let (iterator, first) = driver.blocking().seek(None, &mut region).unwrap();
    let (mut seen, mut dropped) = (0, 0);
    let mut learn = |pair: Option<Pair>, region: &Region| {
        let Some(pair) = pair else { return false };
        assert_eq!((pair.key, region.to_bytes(pair.value_bytes)), (key(seen), value(seen, 200)));
        seen += 1;
        true
    };
    let mut goes_on = learn(first, &region);
    let mut turn = 0;
    while goes_on {
        turn += 1;
        let driver = [&driver, &other][turn / 2 % 2];
        if turn % 5 == 0 {
            goes_on = learn(driver.blocking().next(iterator, &mut region).unwrap(), &region);
            continue;
        }
        let polled = {
            let mut next = pin!(call(driver, Call::Next { iterator }, &mut region));
            poll_once(&mut next)
        };
        match polled {
            Poll::Pending => dropped += 1,
            Poll::Ready(kept) => goes_on = learn(kept.unwrap().pair(), &region),
        }
        if turn % 3 == 0 {
            // Long enough for the completion to come.
            other.blocking().exist(key(0)).unwrap();
        }
    }
    // Most pairs come with an earlier one; some that are asked for are answered at the first look.
    assert!(seen == PAIRS && dropped > 3, "{seen} pairs, {dropped} futures dropped");
    driver.blocking().close(iterator).unwrap();
    drop((driver, other, connector));
    serving.join();
}

#[test]
fn iterators_that_nobody_learned_of_are_closed() {
    let (connector, serving) = serve_at(Pace::Model);
    let driver = connector.connect(by("prp"), 8, 2).unwrap();
    driver.blocking().store(key(1), Piece::Bytes(b"value")).unwrap();
    let mut region = Region::new();
    let (mut dropped, mut rounds) = (0, 0);
    // On a busy machine the answer often comes before the first look.
    while dropped < 10 {
        rounds += 1;
        assert!(rounds < 5_000, "{dropped} futures were dropped before their answer");
        let polled = {
            let mut seek = pin!(call(&driver, Call::Seek { key: None }, &mut region));
            let polled = poll_once(&mut seek);
            if rounds % 2 == 0 && polled.is_pending() {
                // The answer is there, and the caller has not looked.
                driver.blocking().exist(key(1)).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            polled
        };
        match polled {
            Poll::Pending => dropped += 1,
            // The drive's thread was faster than this look: the iterator belongs to the caller.
            Poll::Ready(found) => driver.blocking().close(found.unwrap().opened().0).unwrap(),
        }
        driver.blocking().exist(key(1)).unwrap();
    }
    let (iterator, pair) = driver.blocking().seek(None, &mut region).unwrap();
    assert_eq!(pair.map(|pair| pair.value_bytes), Some(5));
    driver.blocking().close(iterator).unwrap();
    drop((driver, connector));
    assert_eq!(serving.join().open_iterators, 0);
}

#[test]
fn a_pipeline_that_never_rang_leaves_a_clean_queue() {
    let (connector, serving) = serve_at(Pace::Model);
    let mut driver = connector.connect(by("piggyback"), 8, 2).unwrap();
    let long = value(1, 400);
    for number in 0..20 {
        let is_dropped = {
            let mut storing = pin!(store(&driver, key(900), Piece::Bytes(&long)));
            poll_once(&mut storing).is_pending()
        };
        if !is_dropped {
            // The drive's thread was faster than this look.
            driver.blocking().delete(key(900)).unwrap();
        }
        let mut pipeline = driver.pipeline().unwrap();
        // Alternately a value of one command and a value of several.
        pipeline.store(key(901), value(1, if number % 2 == 0 { 20 } else { 400 })).unwrap();
        drop(pipeline);
        driver.blocking().store(key(number), Piece::Bytes(&long)).unwrap();
        assert_eq!(read(&driver, number), Some(long.clone()));
    }
    assert_eq!((read(&driver, 900), read(&driver, 901)), (None, None));
    drop((driver, connector));
    serving.join();
}

#[test]
fn a_pipelined_value_that_goes_by_prp_instead_ends_with_the_answer_to_that() {
    for status in [Status::COMMAND_INTERRUPTED, Status::INVALID_OPCODE, Status::STALE_WINDOW] {
        let config = ServerConfig { pace: Pace::Off, recorder: None };
        let build = move |sim: &_, memory| firmware::build_refusing(sim, memory, Some(status));
        let (connector, serving) = serve_thread(config, build).unwrap();
        let mut driver = connector.connect(by("cxl"), 8, 2).unwrap();
        let mut pipeline = driver.pipeline().unwrap();
        pipeline.store(key(1), value(1, 100)).unwrap();
        let completion = pipeline.next_completion().unwrap().expect("a store is under way");
        assert_eq!(completion.result, Err(status));
        drop(pipeline);
        drop((driver, connector));
        serving.join();
    }
}

#[test]
fn a_real_sequence_error_is_not_hidden() {
    let config = ServerConfig { pace: Pace::Off, recorder: None };
    let (connector, serving) = serve_thread(config, |sim, memory| {
        firmware::build_refusing(sim, memory, Some(Status::COMMAND_SEQUENCE_ERROR))
    })
    .unwrap();
    let mut driver = connector.connect(by("piggyback"), 8, 2).unwrap();
    let refused = Err(Error::Status(Status::COMMAND_SEQUENCE_ERROR));
    let long = value(1, 200);
    assert_eq!(driver.blocking().store(key(1), Piece::Bytes(&long)), refused);
    assert_eq!(driver.blocking().store(key(1), Piece::Bytes(&long)), refused);
    let mut pipeline = driver.pipeline().unwrap();
    for number in 0..2 {
        pipeline.store(key(number), value(number, 100)).unwrap();
    }
    while let Some(completion) = pipeline.next_completion().unwrap() {
        assert_eq!(completion.result, Err(Status::COMMAND_SEQUENCE_ERROR));
    }
    drop(pipeline);
    drop((driver, connector));
    serving.join();
}

#[test]
fn a_pipeline_carries_out_mixed_commands_of_every_size() {
    let (connector, serving) = serve();
    for row in METHODS {
        let mut driver = connector.connect(by(row.name), 64, 32).unwrap();
        let mut pipeline = driver.pipeline().unwrap();
        let check = |done: Completion<Vec<u8>>| {
            let stored = done.value.clone();
            match done.result {
                Ok(Answer::Done | Answer::Exists(true)) => {}
                Ok(Answer::Value(bytes)) => {
                    assert!(
                        done.content.to_bytes(bytes) == stored,
                        "{}: {:?} of {bytes} bytes",
                        row.name,
                        done.call
                    );
                }
                other => panic!("{}: {:?} {other:?}", row.name, done.call),
            }
        };
        for number in 0..300 {
            while !pipeline.has_room() {
                check(pipeline.next_completion().unwrap().unwrap());
            }
            pipeline.store(key(number), value(number, number * 37 % 9000)).unwrap();
        }
        while let Some(done) = pipeline.next_completion().unwrap() {
            check(done);
        }
        for number in 0..300 {
            while !pipeline.has_room() {
                check(pipeline.next_completion().unwrap().unwrap());
            }
            match number % 3 {
                0 => pipeline.exist(key(number), Vec::new()).unwrap(),
                1 => pipeline.delete(key(number), Vec::new()).unwrap(),
                _ => {
                    let expected = value(number, number * 37 % 9000);
                    pipeline.retrieve(key(number), expected, Region::new()).unwrap();
                }
            }
        }
        while let Some(done) = pipeline.next_completion().unwrap() {
            check(done);
        }
        assert_eq!(pipeline.under_way(), 0);
    }
    drop(connector);
    serving.join();
}

#[test]
fn a_store_crosses_with_88_bytes_at_depth_1_and_shares_doorbells_at_depth_32() {
    let count = |piped: bool| {
        let (connector, serving) = serve();
        let mut driver = connector.connect(by("piggyback"), 64, 32).unwrap();
        if piped {
            let mut pipeline = driver.pipeline().unwrap();
            for number in 0..32 {
                pipeline.store(key(number), [7; 32]).unwrap();
            }
            while pipeline.next_completion().unwrap().is_some() {}
        } else {
            for number in 0..32 {
                driver.blocking().store(key(number), Piece::Bytes(&[7; 32])).unwrap();
            }
        }
        drop((driver, connector));
        serving.join().payload
    };
    let (single, piped) = (count(false), count(true));
    // One Identify and two commands for the queue pair; the others are stores.
    assert_eq!(
        (single.of(Class::Sqe), single.of(Class::Cqe), single.of(Class::Mmio)),
        (35 * 64, 35 * 16, 35 * 8)
    );
    assert_eq!((piped.of(Class::Sqe), piped.of(Class::Cqe)), (35 * 64, 35 * 16));
    // Two submission doorbells, and no more completion doorbells than completions.
    assert!((3 * 8 + 3 * 4..=3 * 8 + 34 * 4).contains(&piped.of(Class::Mmio)), "{}", piped.of(Class::Mmio));
}

/// Queues of dropped drivers are reused, or deleted when a queue of another shape is requested, also if a
/// dropped command's answer is on its way.
#[test]
fn a_drive_has_no_more_queues_than_drivers_were_there_at_once() {
    let (connector, serving) = serve();
    let control = serving.control().clone();
    for round in 0..60u32 {
        let entries = 8 + round % 3 * 8;
        let drivers =
            [entries, entries + 1].map(|entries| connector.connect(by("piggyback"), entries, 2).unwrap());
        for driver in &drivers {
            driver.blocking().store(key(round), Piece::Bytes(&value(round, 300))).unwrap();
            assert_eq!(read(driver, round), Some(value(round, 300)));
            drop(Box::pin(store(driver, key(round), Piece::Bytes(&value(round, 500)))));
            let longest = value(round, 4_000);
            let mut dropped = pin!(store(driver, key(1000), Piece::Bytes(&longest)));
            _ = poll_once(&mut dropped);
        }
        let free = control.look(|_, drive| drive.free_queue_id()).unwrap();
        assert!((2..=4).contains(&free.unwrap()), "round {round}: {free:?}");
    }
    // Commands that the last drivers left under way end by themselves, as long as a link exists.
    let is_over = || control.look(|_, drive| drive.unfinished()).unwrap() == 0;
    assert!((0..1_000_000).any(|_| is_over()), "a value that will not be finished stays");
    drop(connector);
    assert_eq!(serving.join().unfinished, 0);
}

#[test]
fn the_paced_clock_serves_the_same_commands() {
    let config = ServerConfig { pace: Pace::Model, recorder: None };
    let (connector, serving) = serve_thread(config, firmware::build).unwrap();
    let driver = connector.connect(by("adaptive"), 8, 2).unwrap();
    for number in 0..50 {
        driver.blocking().store(key(number), Piece::Bytes(&value(number, 100 + number))).unwrap();
        assert_eq!(read(&driver, number), Some(value(number, 100 + number)));
    }
    drop((driver, connector));
    let counters = serving.join();
    // 50 retrieves of 5 us each cannot have taken less than that.
    assert!(counters.now >= 250_000);
}

/// Two drives of this program as one pipeline: each pair is on one of them, and completions of either wake the thread.
#[test]
fn drives_of_this_program_share_the_keys() {
    let drives = [serve(), serve_at(Pace::Model)];
    let mut drivers = drives.each_ref().map(|(connector, _)| connector.connect(by("prp"), 16, 8).unwrap());
    let spread = Spread::new(&["a", "b"]).unwrap();
    let mut pipeline =
        spread::Pipeline::<Vec<u8>>::new(spread, drivers.iter_mut().map(Some), 8, false, None).unwrap();
    let stores = (0..40).map(|number| (number, true));
    let mut answered = 0;
    for (number, is_store) in stores.chain((0..40).map(|number| (number, false))) {
        while !pipeline.has_room() {
            answered += u32::from(checked(pipeline.next_completion().unwrap().unwrap()));
        }
        match is_store {
            true => pipeline.store(key(number), value(number, 500)).unwrap(),
            false => pipeline.retrieve(key(number), Vec::new(), Region::new()).unwrap(),
        }
        if number == 39 {
            while let Some(completion) = pipeline.next_completion().unwrap() {
                answered += u32::from(checked(completion));
            }
        }
    }
    assert_eq!(answered, 80);
    let shares = pipeline.tally().take();
    assert!(shares.iter().all(|share| share.stores > 5 && share.failed == 0), "{shares:?}");
    assert_eq!(shares.iter().map(|share| share.retrieves).sum::<u64>(), 40);
    drop(pipeline);
    drop(drivers);
    for (connector, serving) in drives {
        drop(connector);
        serving.join();
    }
}

/// Is this the right answer to a command of the test above?
fn checked(completion: Completion<Vec<u8>>) -> bool {
    let Completion { call, result, content, .. } = completion;
    match (call, result.unwrap()) {
        (Call::Store { .. }, Answer::Done) => true,
        (Call::Retrieve { key: of }, Answer::Value(bytes)) => {
            let number = (0..40).find(|number| key(*number) == of).unwrap();
            content.to_bytes(bytes) == value(number, 500)
        }
        _ => false,
    }
}
