//! SAKER on application threads, over any transport: the queues that [`kvdrive_saker::threaded`] asks a drive for.
//!
//! A queue is a [`Driver`] and the futures of its commands. A future submits when it is first polled, on the
//! thread that sends. The thread that takes completions polls all of them, and one bell wakes it for any.
//! There are at most as many futures as the driver has slots.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_link::shared::PowerOff;
use kvdrive_nvme::batch::RequestKind;
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::Failure;
use kvdrive_saker::threaded::{self, Command, Completion, DriveOff};
use kvdrive_sim::wall::lock;

use crate::Error;
use crate::client::{Answer, Call, Calls, Content};
use crate::driver::{Driver, block_on, block_on_within};
use crate::pipelined::{Completion as Ended, FailedWrite, Pipelined};

/// Makes another driver of a drive.
type Connect = Box<dyn Fn() -> Result<Driver, Error> + Send + Sync>;

/// A drive from which SAKER creates its queues.
pub struct Queues {
    connect: Connect,
    /// Why the first of them failed.
    failure: Arc<OnceLock<Error>>,
}

impl Queues {
    /// Queues that `connect` makes. SAKER waits while as many commands are under way as a driver has slots.
    pub fn new(connect: impl Fn() -> Result<Driver, Error> + Send + Sync + 'static) -> Queues {
        Queues { connect: Box::new(connect), failure: Arc::default() }
    }

    /// Where the first failure is kept: the connection to the drive failed, or the drive is off.
    pub fn failure(&self) -> Arc<OnceLock<Error>> {
        self.failure.clone()
    }
}

/// Keeps the first failure.
fn noted<T>(failure: &OnceLock<Error>, result: Result<T, Error>) -> Result<T, DriveOff> {
    result.map_err(|error| {
        _ = failure.set(error);
        DriveOff
    })
}

impl threaded::Drive for Queues {
    type Queue = Queue;

    fn queue(&self) -> Result<Queue, DriveOff> {
        let driver = Arc::new(noted(&self.failure, (self.connect)())?);
        let (bell, failure) = (Arc::<Bell>::default(), self.failure.clone());
        Ok(Queue { driver, under_way: Mutex::default(), waker: bell.clone().into(), bell, failure })
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
    failure: Arc<OnceLock<Error>>,
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
        let carried_out = carry_out(self.driver.clone(), self.failure.clone(), ticket, call(command));
        let mut answered: CommandFuture = Box::pin(carried_out);
        let mut context = Context::from_waker(&self.waker);
        // The thread that takes completions brings them, too.
        let polled = block_on(poll_fn(|_| Poll::Ready(answered.as_mut().poll(&mut context))));
        if let Poll::Ready(answer) = polled {
            under_way.is_off = answer.is_err();
            self.waker.wake_by_ref();
            answered = Box::pin(ready(Ok(answer?)));
        }
        under_way.commands.push(answered);
        Ok(true)
    }

    fn completion(&self, wait: bool) -> Result<Option<Completion>, DriveOff> {
        let answer = poll_fn(|context| {
            // The waker is set before the poll: an answer that comes in between wakes this thread.
            *lock(&self.bell.0) = Some(context.waker().clone());
            self.poll()
        });
        block_on_within(answer, (!wait).then_some(Duration::ZERO)).transpose()
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

async fn carry_out(
    driver: Arc<Driver>,
    failure: Arc<OnceLock<Error>>,
    ticket: u32,
    call: Call<Vec<u8>>,
) -> Result<Completion, DriveOff> {
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
        Err(error) => return noted(&failure, Err(error)),
    };
    Ok(Completion { ticket, status, dw0, value })
}

/// A handle's calls that name a key: each is carried out when it is begun, a write until it is pending.
pub struct Front {
    handle: threaded::Handle<Queues>,
    /// Failures of a sync, until the next [`Front::settle`] reports them.
    failures: Vec<Failure>,
    failure: Arc<OnceLock<Error>>,
}

impl Front {
    /// Those of `handle`; `failure`: [`Queues::failure`].
    pub fn new(handle: threaded::Handle<Queues>, failure: Arc<OnceLock<Error>>) -> Front {
        Front { handle, failures: Vec::new(), failure }
    }

    /// Why the drive cannot be reached any more.
    pub(crate) fn off(&self) -> Error {
        self.failure.get().cloned().unwrap_or(PowerOff.into())
    }

    /// Carries out a call that names a key. SAKER makes batches itself; a pending pair is retrieved as a whole, and
    /// deleted whether or not the drive has it.
    pub(crate) fn call(
        &mut self,
        call: &Call<()>,
        value: Piece<'_>,
        into: &mut Region,
    ) -> Result<Answer, threaded::Error> {
        let handle = &mut self.handle;
        match *call {
            Call::Store { key, options, .. } => handle.store_with(key, value, options).map(|()| Answer::Done),
            Call::Delete { key } => handle.delete(key).map(|()| Answer::Done),
            Call::Retrieve { key } => handle.retrieve(key, into).map(Answer::Value),
            Call::Exist { key } => handle.exist(key).map(Answer::Exists),
            _ => Err(threaded::Error::Status(Status::INVALID_OPCODE)),
        }
    }

    /// Makes all writes durable, so that lists and iterators of the drive find them.
    pub(crate) fn sync(&mut self) -> Result<(), threaded::Error> {
        match self.handle.sync() {
            Err(threaded::Error::Failed(failures)) => self.failures.extend(failures),
            synced => synced?,
        }
        Ok(())
    }

    /// [`Pipelined::settle`] of its writes.
    pub(crate) fn settle(
        &mut self,
        on_failed: &mut dyn FnMut(FailedWrite, Key, Status),
    ) -> Result<(), Error> {
        match self.sync() {
            Ok(()) => {}
            Err(threaded::Error::Failed(_)) => unreachable!("a sync keeps them"),
            Err(threaded::Error::Status(status)) => return Err(Error::Status(status)),
            Err(threaded::Error::Off(DriveOff)) => return Err(self.off()),
        }
        for failure in self.failures.drain(..) {
            let what = match failure.kind {
                RequestKind::Store => FailedWrite::Store,
                RequestKind::Delete => FailedWrite::Delete,
            };
            on_failed(what, failure.key, failure.status);
        }
        Ok(())
    }
}

/// A handle as a pipeline: the completion of a call is available at once.
pub struct Pipeline<'d, V> {
    front: Front,
    /// For iterators and lists.
    single: &'d Driver,
    ended: VecDeque<Ended<V>>,
    is_off: bool,
}

impl<'d, V: Content> Pipeline<'d, V> {
    /// A pipeline of one handle. SAKER knows pairs only by their keys: lists and seeks sync it first, and go
    /// by `single`, as do the steps of iterators.
    pub fn new(front: Front, single: &'d Driver) -> Pipeline<'d, V> {
        Pipeline { front, single, ended: VecDeque::new(), is_off: false }
    }

    fn ask_drive(&mut self, call: Call<()>, into: &mut Region) -> Result<Answer, threaded::Error> {
        if matches!(call, Call::List { .. } | Call::Seek { .. }) {
            self.front.sync()?;
        }
        self.single.blocking().ask(call, into).map_err(|error| match error {
            Error::Status(status) => threaded::Error::Status(status),
            error => threaded::Error::Off(noted(&self.front.failure, Err::<(), _>(error)).unwrap_err()),
        })
    }
}

impl<V: Content> Pipelined<V> for Pipeline<'_, V> {
    fn has_room(&self) -> bool {
        self.ended.is_empty() && !self.is_off
    }

    fn under_way(&self) -> u32 {
        // The call that found the drive off is never answered.
        self.ended.len() as u32 + u32::from(self.is_off)
    }

    fn begin(&mut self, call: Call<()>, value: V, mut into: Region) -> Result<(), V> {
        let result = match call {
            Call::List { .. } | Call::Seek { .. } | Call::Next { .. } | Call::Close { .. } => {
                self.ask_drive(call, &mut into)
            }
            _ => self.front.call(&call, value.piece(), &mut into),
        };
        let result = match result {
            Ok(answer) => Ok(answer),
            Err(threaded::Error::Status(status)) => Err(status),
            Err(threaded::Error::Failed(_)) => unreachable!("only a sync tells of others"),
            // The next call that takes a completion finds the drive off.
            Err(threaded::Error::Off(DriveOff)) => {
                self.is_off = true;
                return Ok(());
            }
        };
        self.ended.push_back(Ended { call, value, result, content: into });
        Ok(())
    }

    fn next_completion_within(&mut self, _: Option<Duration>) -> Result<Option<Ended<V>>, Error> {
        match self.ended.pop_front() {
            None if self.is_off => Err(self.front.off()),
            ended => Ok(ended),
        }
    }

    fn settle(&mut self, on_failed: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        self.front.settle(on_failed)
    }
}
