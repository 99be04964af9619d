//! The tasks of one application thread by the machine's clock: each is a client, and all of them share the
//! thread's pipeline.
//!
//! ```text
//!   task: LaneClient ─► Mailbox ─► the thread's loop ─► pipeline ─► drive
//!     ▲                            │
//!     └────── woken with its answer ◄┘
//! ```
//!
//! A NEXT brings several pairs, and its task gets all of them with the answer: it takes the later ones
//! without another call.
//!
//! A task suspends while its call is under way. When no task is ready, the loop waits for a completion, or
//! until the next task is due: so commands of all ready tasks are submitted together.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_host::{
    Answer, Call, Client, Completion, Content, Error, FailedWrite, IteratorId, Pair, Pairs, Pipelined,
};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::wall::SPIN;
use kvdrive_sim::{Sim, TaskKey};

use crate::kinds::{DELETE, STORE};
use crate::places::{OnRefused, TaskClient};
use crate::stream::Stream;

/// The value of a call under way, and the lane of the call.
pub(super) struct Sent {
    lane: usize,
    value: Owned,
}

enum Owned {
    Pattern(Pattern),
    Bytes(Vec<u8>),
}

impl Content for Sent {
    fn piece(&self) -> Piece<'_> {
        match &self.value {
            Owned::Pattern(pattern) => Piece::Pattern(*pattern),
            Owned::Bytes(bytes) => Piece::Bytes(bytes),
        }
    }
}

/// A lane's request to the loop.
enum Request {
    Call(Call<()>, Sent, Region),
    /// Make the writes of this thread durable.
    Settle {
        lane: usize,
    },
}

/// The reply to a lane.
enum Reply {
    Answer(Result<Answer, Status>, Region, Pairs),
    /// Acknowledged writes that have failed.
    Settled(Vec<(FailedWrite, Key, Status)>),
    /// The connection to the drive failed.
    Lost(Error),
}

/// Requests and replies between the tasks of a thread and its loop.
#[derive(Default)]
pub(super) struct Mailbox {
    requests: RefCell<VecDeque<Request>>,
    /// By lane: the task that waits, and its reply.
    waiting: RefCell<Vec<(Option<TaskKey>, Option<Reply>)>>,
    /// The error by which the connection to the drive failed.
    lost: RefCell<Option<Error>>,
}

impl Mailbox {
    /// The client of one more task of `sim`.
    pub(super) fn lane(self: &Rc<Self>, sim: &Sim) -> LaneClient {
        self.waiting.borrow_mut().push((None, None));
        let number = self.waiting.borrow().len() - 1;
        LaneClient { mailbox: self.clone(), sim: sim.clone(), number, brought: BTreeMap::new() }
    }

    fn reply(&self, sim: &Sim, lane: usize, reply: Reply) {
        let (task, slot) = &mut self.waiting.borrow_mut()[lane];
        *slot = Some(reply);
        if let Some(task) = task.take() {
            sim.wake(task);
        }
    }

    /// Notes that the connection failed: every call under way and every later one returns the error.
    fn lose(&self, sim: &Sim, error: &Error) {
        *self.lost.borrow_mut() = Some(error.clone());
        let lanes = self.waiting.borrow().len();
        (0..lanes).for_each(|lane| self.reply(sim, lane, Reply::Lost(error.clone())));
    }
}

/// The client of a task.
pub(super) struct LaneClient {
    mailbox: Rc<Mailbox>,
    sim: Sim,
    number: usize,
    /// By iterator: pairs that its last NEXT brought and that were not returned.
    brought: BTreeMap<IteratorId, Pairs>,
}

impl LaneClient {
    fn ask(&self, request: Request) -> Reply {
        if let Some(error) = &*self.mailbox.lost.borrow() {
            return Reply::Lost(error.clone());
        }
        self.mailbox.requests.borrow_mut().push_back(request);
        loop {
            self.mailbox.waiting.borrow_mut()[self.number].0 = Some(self.sim.current());
            self.sim.suspend();
            if let Some(reply) = self.mailbox.waiting.borrow_mut()[self.number].1.take() {
                return reply;
            }
        }
    }
}

/// A call that was carried out.
#[must_use = "the answer is lost with it"]
pub(super) struct AnsweredCall<V> {
    result: Result<Answer, Status>,
    content: Region,
    call: PhantomData<V>,
}

/// A call is carried out when it is submitted: a task does one thing at a time.
impl Client for LaneClient {
    type Ticket<V: Content> = AnsweredCall<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<AnsweredCall<V>, Error> {
        let mut content = Region::new();
        let result = match self.call(call, &mut content) {
            Ok(answer) => Ok(answer),
            Err(error) => Err(error.status()?),
        };
        Ok(AnsweredCall { result, content, call: PhantomData })
    }

    fn wait<V: Content>(&mut self, ticket: AnsweredCall<V>, into: &mut Region) -> Result<Answer, Error> {
        *into = ticket.content;
        Ok(ticket.result?)
    }

    fn call<V: Content>(&mut self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        let mut stepped = None;
        match call {
            Call::Next { iterator } => {
                if let Some(pair) = self.next_brought(iterator, into)? {
                    return Ok(Answer::Pair(Some(pair)));
                }
                stepped = Some(iterator);
            }
            Call::Close { iterator } => _ = self.brought.remove(&iterator),
            _ => {}
        }
        let (call, value) = call.split();
        let value = match value.as_ref().map(Content::piece) {
            Some(Piece::Pattern(pattern)) => Owned::Pattern(pattern),
            Some(Piece::Bytes(bytes)) => Owned::Bytes(bytes.to_vec()),
            None => Owned::Bytes(Vec::new()),
        };
        let sent = Sent { lane: self.number, value };
        match self.ask(Request::Call(call, sent, std::mem::take(into))) {
            Reply::Answer(result, content, brought) => {
                *into = content;
                if let Some(iterator) = stepped {
                    self.brought.insert(iterator, brought);
                }
                Ok(result?)
            }
            Reply::Lost(error) => Err(error),
            Reply::Settled(_) => unreachable!("a call was asked for"),
        }
    }
}

impl TaskClient for LaneClient {
    fn next_brought(&mut self, iterator: IteratorId, into: &mut Region) -> Result<Option<Pair>, Status> {
        self.brought.get_mut(&iterator).map_or(Ok(None), |pairs| pairs.next(into))
    }

    fn sync(&mut self, on_refused: OnRefused<'_>) -> Result<(), Error> {
        match self.ask(Request::Settle { lane: self.number }) {
            Reply::Settled(failures) => {
                for (what, key, status) in failures {
                    let kind = match what {
                        FailedWrite::Store => STORE,
                        FailedWrite::Delete => DELETE,
                    };
                    on_refused(kind, &key, status);
                }
                Ok(())
            }
            Reply::Lost(error) => Err(error),
            Reply::Answer(..) => unreachable!("a sync was asked for"),
        }
    }
}

/// Runs the tasks of `stream`, which call through `mailbox`, until all have ended; `tell` gets their
/// progress.
pub(super) fn run(stream: &Stream, mailbox: &Mailbox, pipeline: &mut dyn Pipelined<Sent>, tell: &dyn Fn()) {
    let sim = &stream.sim;
    // A task that sleeps waits for the machine's clock, and does not advance the executor's own.
    sim.step_every_event();
    let mut is_lost = false;
    while stream.running.get() > 0 {
        // After the connection failed no task waits for its time: the executor's clock may run ahead of the
        // machine's, and ends no interval.
        if is_lost || sim.next_due() == Some(sim.now()) {
            sim.step();
            continue;
        }
        tell();
        if let Err(error) = exchange(stream, mailbox, pipeline) {
            is_lost = true;
            stream.is_over.set(true);
            mailbox.lose(sim, &error);
        }
    }
}

/// Begins the calls that tasks have requested and takes completions, waiting for one or until a task is due.
fn exchange(stream: &Stream, mailbox: &Mailbox, pipeline: &mut dyn Pipelined<Sent>) -> Result<(), Error> {
    let sim = &stream.sim;
    let answer = |pipeline: &mut dyn Pipelined<Sent>, completion: Completion<Sent>| {
        let Completion { call, value, result, content } = completion;
        let brought = match call {
            Call::Next { iterator } => pipeline.take_brought(iterator),
            _ => Pairs::default(),
        };
        mailbox.reply(sim, value.lane, Reply::Answer(result, content, brought));
    };
    loop {
        let Some(request) = mailbox.requests.borrow_mut().pop_front() else { break };
        match request {
            Request::Call(call, sent, into) => {
                while !pipeline.has_room() {
                    let completion = pipeline.next_completion()?.expect("what takes the room is under way");
                    answer(pipeline, completion);
                }
                let begun = pipeline.begin(call, sent, into);
                assert!(begun.is_ok(), "the pipeline had room");
            }
            Request::Settle { lane } => {
                let mut failures = Vec::new();
                pipeline.settle(&mut |what, key, status| failures.push((what, key, status)))?;
                mailbox.reply(sim, lane, Reply::Settled(failures));
            }
        }
    }
    if sim.next_due() == Some(sim.now()) {
        return Ok(());
    }
    // The end of a wait for the clock is polled, because threads that sleep wake up late.
    let wait = sim.next_due().map(|due| Duration::from_nanos(due.saturating_sub(stream.clock.now())));
    let timeout = wait.map(|wait| wait.saturating_sub(SPIN));
    if wait == Some(Duration::ZERO) {
        sim.step();
    } else if pipeline.under_way() > 0 {
        if let Some(completion) = pipeline.next_completion_within(timeout)? {
            answer(pipeline, completion);
        }
    } else {
        std::thread::sleep(timeout.expect("a task that has not ended waits for an answer or for the clock"));
    }
    Ok(())
}
