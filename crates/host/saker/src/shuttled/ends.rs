//! The drive goes off while threads wait for each other's batches, in many orders: every call of every handle
//! ends.

use std::collections::VecDeque;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Status;
use shuttle::rand::Rng;
use shuttle::sync::Condvar;
use shuttle::thread;

use super::{config, in_many_orders, key};
use crate::sync::{Mutex, lock};
use crate::threaded::{Command, Completion, Drive, DriveOff, Error, Handle, Queue, Threaded};
use crate::{BatchSize, Saker};

/// A drive that answers some commands in any order and then goes off; the others are never answered.
#[derive(Clone, Default)]
struct Mortal(Arc<Inside>);

#[derive(Default)]
struct Inside {
    state: Mutex<EndsState>,
    has_work: Condvar,
    has_answer: Condvar,
}

#[derive(Default)]
struct EndsState {
    queues: usize,
    /// Queue and ticket of each command under way.
    under_way: Vec<(usize, u32)>,
    answered: VecDeque<(usize, u32)>,
    is_off: bool,
}

struct MortalQueue(Arc<Inside>, usize);

impl Mortal {
    fn live(&self, answers: u32) {
        let inside = &*self.0;
        let mut state = lock(&inside.state);
        for _ in 0..answers {
            while state.under_way.is_empty() {
                state = inside.has_work.wait(state).unwrap();
            }
            let at = shuttle::rand::thread_rng().gen_range(0..state.under_way.len());
            let command = state.under_way.swap_remove(at);
            state.answered.push_back(command);
            inside.has_answer.notify_all();
            drop(state);
            thread::yield_now();
            state = lock(&inside.state);
        }
        state.is_off = true;
        inside.has_answer.notify_all();
    }
}

impl Drive for Mortal {
    type Queue = MortalQueue;

    fn queue(&self) -> Result<MortalQueue, DriveOff> {
        let mut state = lock(&self.0.state);
        state.queues += 1;
        Ok(MortalQueue(self.0.clone(), state.queues))
    }
}

impl Queue for MortalQueue {
    fn submit(&self, ticket: u32, _: Command<'_>) -> Result<bool, DriveOff> {
        let mut state = lock(&self.0.state);
        if state.is_off {
            return Err(DriveOff);
        }
        state.under_way.push((self.1, ticket));
        self.0.has_work.notify_one();
        Ok(true)
    }

    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff> {
        let MortalQueue(inside, queue) = self;
        let mut state = lock(&inside.state);
        loop {
            if let Some(at) = state.answered.iter().position(|(other, _)| other == queue) {
                let (_, ticket) = state.answered.remove(at).unwrap();
                let value = Region::new();
                return Ok(Some(Completion { ticket, status: Status::SUCCESS, dw0: u32::MAX, value }));
            }
            match (state.is_off, wait) {
                (true, _) => return Err(DriveOff),
                (false, false) => return Ok(None),
                (false, true) => state = inside.has_answer.wait(state).unwrap(),
            }
        }
    }
}

/// Writes, reads and syncs three keys that all threads use, until a call fails.
fn call_until_off(mut handle: Handle<Mortal>, thread: u64) -> Handle<Mortal> {
    for step in thread.. {
        let shared = key(step % 3);
        let called = match step % 5 {
            0 => handle.retrieve(shared, &mut Region::new()).map(drop),
            1 => handle.store(shared, Piece::Bytes(&[0; 200])),
            2 => handle.sync(),
            3 => handle.delete(shared),
            _ => handle.store(shared, Piece::Bytes(&[1])),
        };
        let is_missing = called == Err(Error::Status(Status::KEY_NOT_FOUND));
        if let Err(error) = called
            && !is_missing
        {
            assert_eq!(error, Error::Off(DriveOff));
            return handle;
        }
    }
    unreachable!("the drive goes off")
}

fn end_in_the_midst(batch: BatchSize) {
    let drive = Mortal::default();
    let threaded = Threaded::new(Saker::new(config(batch)).unwrap(), drive.clone(), Arc::new(|| 0));
    let run = |who| {
        let handle = threaded.connect().unwrap();
        thread::spawn(move || call_until_off(handle, who))
    };
    let threads: Vec<_> = (0..3).map(run).collect();
    drive.live(shuttle::rand::thread_rng().gen_range(0..12));
    // No handle is dropped before the last thread has returned: a dropped handle leaves its batches to the
    // others.
    let handles: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for mut handle in handles {
        assert!(handle.sync() == Err(Error::Off(DriveOff)) || handle.unsynced() == 0);
    }
}

#[test]
fn every_call_ends_when_the_drive_does() {
    for batch in [BatchSize::Fixed(1), BatchSize::Fixed(3), BatchSize::Adaptive] {
        in_many_orders(move || end_in_the_midst(batch), 1000);
    }
}
