//! SAKER on application threads: the queues that [`kvdrive_saker::threaded`] asks a drive for.
//!
//! A queue is a [`Driver`] and the futures of its commands. A future submits when it is first polled, on the
//! thread that sends. The thread that takes completions polls all of them, and one bell wakes it for any.
//! There are at most as many futures as the driver has slots.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_link::shared::PowerOff;
use kvdrive_link::transfer::{self, TransferConfig};
use kvdrive_nvme::batch::RequestKind;
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::Failure;
use kvdrive_saker::threaded::{self, Command, Completion, DriveOff};
use kvdrive_sim::wall::lock;

use super::blocking::block_on;
use super::connector::Connector;
use super::driver::Driver;
use crate::Error;
use crate::client::{Answer, Call, Calls, Content};
use crate::pipelined::{Completion as Ended, FailedWrite, Pipelined};

/// A drive from which SAKER creates its queues.
pub struct Queues {
    connector: Connector,
    transfer: TransferConfig,
    entries: u32,
    depth: u32,
}

impl Queues {
    /// Queues of `entries` slots for `depth` commands each, whose values go by the method of `transfer`.
    /// SAKER waits while `depth` commands are under way.
    ///
    /// # Panics
    /// Panics if there is no such method.
    pub fn new(connector: Connector, transfer: TransferConfig, entries: u32, depth: u32) -> Queues {
        assert!(transfer::method(&transfer).is_some(), "no transfer method {:?}", transfer.method);
        Queues { connector, transfer, entries, depth }
    }
}

impl threaded::Drive for Queues {
    type Queue = Queue;

    fn queue(&self) -> Result<Queue, DriveOff> {
        let method = transfer::method(&self.transfer).expect("its name was looked up before");
        let driver = self.connector.connect(method, self.entries, self.depth).map_err(|_| DriveOff)?;
        let bell = Arc::<Bell>::default();
        Ok(Queue { driver: Arc::new(driver), under_way: Mutex::default(), waker: bell.clone().into(), bell })
    }
}

type CommandFuture = Pin<Box<dyn Future<Output = Result<Completion, DriveOff>> + Send>>;

/// A queue pair and its commands under way.
pub struct Queue {
    driver: Arc<Driver>,
    under_way: Mutex<UnderWay>,
    bell: Arc<Bell>,
    /// Wakes the bell.
    waker: Waker,
}

/// Commands that were submitted and whose completions have not been taken.
#[derive(Default)]
struct UnderWay {
    commands: Vec<CommandFuture>,
    /// One of them has found the drive off: no other will be answered.
    is_off: bool,
}

/// Wakes the thread that waits for a completion of the queue.
#[derive(Default)]
struct Bell(Mutex<Option<Waker>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waiter = lock(&self.0).take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

impl Queue {
    /// Takes the first command that has been answered. Once the drive is off, every call fails.
    fn poll(&self) -> Poll<Result<Completion, DriveOff>> {
        let mut under_way = lock(&self.under_way);
        if under_way.is_off {
            return Poll::Ready(Err(DriveOff));
        }
        let mut context = Context::from_waker(&self.waker);
        for index in 0..under_way.commands.len() {
            if let Poll::Ready(answer) = under_way.commands[index].as_mut().poll(&mut context) {
                drop(under_way.commands.remove(index));
                under_way.is_off = answer.is_err();
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    }
}

impl threaded::Queue for Queue {
    fn submit(&self, ticket: u32, command: Command<'_>) -> Result<bool, DriveOff> {
        let mut under_way = lock(&self.under_way);
        if under_way.is_off {
            return Err(DriveOff);
        }
        if under_way.commands.len() as u32 >= self.driver.depth() {
            return Ok(false);
        }
        let mut answered: CommandFuture = Box::pin(carry_out(self.driver.clone(), ticket, call(command)));
        if let Poll::Ready(answer) = answered.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            under_way.is_off = answer.is_err();
            self.waker.wake_by_ref();
            answered = Box::pin(ready(Ok(answer?)));
        }
        under_way.commands.push(answered);
        Ok(true)
    }

    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff> {
        if !wait {
            return match self.poll() {
                Poll::Ready(answer) => answer.map(Some),
                Poll::Pending => Ok(None),
            };
        }
        let answer = poll_fn(|context| {
            // The waker is set before the poll: an answer that comes in between wakes this thread.
            *lock(&self.bell.0) = Some(context.waker().clone());
            self.poll()
        });
        block_on(answer).map(Some)
    }
}

/// The command with a copy of its value: SAKER reuses the memory that it was in.
fn call(command: Command<'_>) -> Call<Vec<u8>> {
    match command {
        Command::Batch { content, bytes } => Call::Batch { value: content.to_bytes(bytes) },
        Command::Store { key, content, at, bytes, options } => {
            let mut value = vec![0; bytes as usize];
            content.copy_to(at, &mut value);
            Call::Store { key, value, options }
        }
        Command::Delete { key } => Call::Delete { key },
        Command::Retrieve { key } => Call::Retrieve { key },
        Command::Exist { key } => Call::Exist { key },
    }
}

async fn carry_out(driver: Arc<Driver>, ticket: u32, call: Call<Vec<u8>>) -> Result<Completion, DriveOff> {
    let mut value = Region::new();
    let answer = match driver.submit(call).await {
        Ok(submitted) => driver.wait(submitted, &mut value).await,
        Err(error) => Err(error),
    };
    let (status, dw0) = match answer {
        Ok(Answer::Applied(requests, status)) => (status, requests),
        Ok(Answer::Value(bytes)) => (Status::SUCCESS, bytes),
        Ok(Answer::Exists(false)) => (Status::KEY_NOT_FOUND, 0),
        Ok(_) => (Status::SUCCESS, 0),
        Err(Error::Status(status)) => (status, 0),
        Err(_) => return Err(DriveOff),
    };
    Ok(Completion { ticket, status, dw0, value })
}

/// A handle as a pipeline: each call is carried out when it is begun, a write until it is pending, and its
/// completion is available at once.
pub struct Pipeline<'d, V> {
    handle: threaded::Handle<Queues>,
    /// For iterators and lists.
    single: &'d Driver,
    /// Failures of a sync, until the next [`Pipelined::settle`] reports them.
    failures: Vec<Failure>,
    ended: VecDeque<Ended<V>>,
    is_off: bool,
}

impl<'d, V: Content> Pipeline<'d, V> {
    /// A pipeline of one handle. SAKER knows pairs only by their keys: lists and seeks sync it first, and go
    /// by `single`, as do the steps of iterators.
    pub fn new(handle: threaded::Handle<Queues>, single: &'d Driver) -> Pipeline<'d, V> {
        Pipeline { handle, single, failures: Vec::new(), ended: VecDeque::new(), is_off: false }
    }

    fn ask_drive(&mut self, call: Call<()>, into: &mut Region) -> Result<Answer, threaded::Error> {
        if matches!(call, Call::List { .. } | Call::Seek { .. }) {
            match self.handle.sync() {
                Err(threaded::Error::Failed(failures)) => self.failures.extend(failures),
                synced => synced?,
            }
        }
        self.single.blocking().ask(call, into).map_err(|error| match error {
            Error::Status(status) => threaded::Error::Status(status),
            _ => threaded::Error::Off(DriveOff),
        })
    }

    fn end(&mut self, call: Call<()>, value: V, result: Result<Answer, threaded::Error>, content: Region) {
        let result = match result {
            Ok(answer) => Ok(answer),
            Err(threaded::Error::Status(status)) => Err(status),
            Err(threaded::Error::Failed(_)) => unreachable!("only a sync tells of others"),
            // The next call that takes a completion finds the drive off.
            Err(threaded::Error::Off(DriveOff)) => return self.is_off = true,
        };
        self.ended.push_back(Ended { call, value, result, content });
    }
}

impl<V: Content> Pipelined<V> for Pipeline<'_, V> {
    fn has_room(&self) -> bool {
        self.ended.is_empty() && !self.is_off
    }

    fn under_way(&self) -> u32 {
        self.ended.len() as u32
    }

    fn begin(&mut self, call: Call<()>, value: V, mut into: Region) -> Result<(), V> {
        let handle = &mut self.handle;
        let result = match call {
            Call::Store { key, options, .. } => {
                handle.store_with(key, value.piece(), options).map(|()| Answer::Done)
            }
            Call::Delete { key } => handle.delete(key).map(|()| Answer::Done),
            Call::Retrieve { key } => handle.retrieve(key, &mut into).map(Answer::Value),
            Call::Exist { key } => handle.exist(key).map(Answer::Exists),
            // SAKER makes the batches itself; a pending pair is retrieved as a whole, and deleted whether or
            // not the drive has it.
            Call::Batch { .. } | Call::Remove { .. } | Call::RetrievePart { .. } => {
                Err(threaded::Error::Status(Status::INVALID_OPCODE))
            }
            Call::List { .. } | Call::Seek { .. } | Call::Next { .. } | Call::Close { .. } => {
                self.ask_drive(call, &mut into)
            }
        };
        self.end(call, value, result, into);
        Ok(())
    }

    fn next_completion_within(&mut self, _: Option<Duration>) -> Result<Option<Ended<V>>, Error> {
        match self.ended.pop_front() {
            None if self.is_off => Err(PowerOff.into()),
            ended => Ok(ended),
        }
    }

    fn settle(&mut self, on_failed: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        let mut failures = std::mem::take(&mut self.failures);
        match self.handle.sync() {
            Ok(()) => {}
            Err(threaded::Error::Failed(more)) => failures.extend(more),
            Err(threaded::Error::Status(status)) => return Err(Error::Status(status)),
            Err(threaded::Error::Off(DriveOff)) => return Err(PowerOff.into()),
        }
        for failure in failures {
            let what = match failure.kind {
                RequestKind::Store => FailedWrite::Store,
                RequestKind::Delete => FailedWrite::Delete,
            };
            on_failed(what, failure.key, failure.status);
        }
        Ok(())
    }
}
