//! [`StoreThread`]: a store on the host by the machine's clock. The store runs on a thread of its own, where each of
//! its threads is a task; a [`Pipeline`] of any thread of the program hands it calls. Its pages are blocks of a
//! drive, over any transport.
//!
//! ```text
//!   application ─► Pipeline ─► Inbox ─► a lane (task) ─► Store ─► BlockPages ─► Queue ─► a task ─► BlockDriver
//!               ◄───────────── Ended ◄──┘                          (a lane sleeps while its blocks move)
//! ```
//!
//! While one lane waits for its blocks, others continue. When nothing is ready, the thread sleeps until a command of
//! its drive has been answered, or a call comes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread as SystemThread};
use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_declare::Counts;
use kvdrive_link::shared::PowerOff;
use kvdrive_nvme::nvm::BLOCK_BYTES;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::wall::{Patience, Stopwatch, lock};
use kvdrive_sim::{Ns, Sim, TaskKey, WaitQueue};
use kvdrive_store::{BACKGROUND_THREADS, Cpu, Step, StoreOptions, StoreRow, Thread};

use super::client::HostKvClient;
use super::{HostKv, OpenError, Opening};
use crate::Error;
use crate::blocks::{Block, BlockCall, BlockQueue, BlockTicket};
use crate::client::{Call, Client, Content};
use crate::driver::BlockDriver;
use crate::pipelined::{Completion, FailedWrite, Pipelined};

/// How a store by the machine's clock is configured.
#[derive(Clone)]
pub struct StoreThreadConfig {
    /// Which store.
    pub row: &'static StoreRow,
    /// Its options.
    pub options: StoreOptions,
    /// How many calls it carries out at once: each has a thread of the store.
    pub threads: u32,
}

impl StoreThreadConfig {
    /// How many queues to a drive of blocks it uses: one for each of its threads, also those in the background.
    pub fn queues(&self) -> u32 {
        let background = (self.row.background)(&self.options).map_or(0, |_| BACKGROUND_THREADS);
        self.threads + background
    }
}

/// What the threads of a program want of a store.
enum Job<V> {
    /// A call, whose completion goes to this pipeline.
    Call { call: Call<()>, value: V, into: Region, ended: Arc<Ended<V>> },
    /// Make all writes durable.
    Sync(Sender<Result<(), Status>>),
    /// Read the counters and the memory of the store.
    Count(Sender<(Counts, Counts)>),
}

/// Completions of one pipeline.
struct Ended<V> {
    state: Mutex<EndedState<V>>,
    news: Condvar,
}

struct EndedState<V> {
    completions: VecDeque<Completion<V>>,
    /// The store's thread has ended.
    is_lost: bool,
}

/// Wakes the store's thread.
struct Alarm {
    thread: SystemThread,
    rung: AtomicBool,
    /// Tasks whose future can continue.
    woken: Mutex<Vec<TaskKey>>,
}

impl Alarm {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }

    /// Sleeps until it rings, for `limit` at most.
    fn wait(&self, patience: &mut Patience, limit: Option<Duration>) {
        let since = Stopwatch::start();
        let left = || limit.map(|limit| limit.saturating_sub(Duration::from_nanos(since.ns())));
        let is_over = || self.rung.load(Ordering::Acquire) || left().is_some_and(|left| left.is_zero());
        while !is_over() && patience.look_again() {
            std::hint::spin_loop();
        }
        while !is_over() {
            match left() {
                None => thread::park(),
                Some(left) => thread::park_timeout(left),
            }
        }
        patience.end();
        self.rung.store(false, Ordering::Release);
    }
}

/// Wakes a task of the store's thread from any thread.
struct TaskWaker {
    task: TaskKey,
    alarm: Arc<Alarm>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.alarm.woken).push(self.task);
        self.alarm.ring();
    }
}

/// Runs a future to its end in the present task, which sleeps meanwhile.
fn in_task<F: Future>(sim: &Sim, alarm: &Arc<Alarm>, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(TaskWaker { task: sim.current(), alarm: alarm.clone() }));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        sim.suspend();
    }
}

/// The queue of one of the store's threads. Each command has a task, as on a modelled core, so a thread may have several
/// under way.
struct Queue {
    sim: Sim,
    alarm: Arc<Alarm>,
    driver: Rc<BlockDriver>,
}

impl BlockQueue for Queue {
    fn submit(&self, call: BlockCall<'_>) -> BlockTicket {
        let (sim, alarm, driver) = (self.sim.clone(), self.alarm.clone(), self.driver.clone());
        let call = call.into_owned();
        BlockTicket::of(self.sim.spawn(move || {
            let carried_out = in_task(&sim, &alarm, driver.carry_out(call.borrowed()));
            carried_out.map_err(|error| error.status().unwrap_or(Status::ABORTED_POWER_LOSS))
        }))
    }

    fn wait(&self, ticket: BlockTicket) -> Result<Vec<Block>, Status> {
        ticket.joined()
    }
}

/// The machine's own time: a step takes what it takes.
struct MachineCpu {
    sim: Sim,
    clock: Stopwatch,
    waiting: WaitQueue,
}

impl Cpu for MachineCpu {
    fn work(&self, _: Thread, _: &[(Step, u64)]) {}

    /// The executor's clock stands still while its thread has nothing to wait for, so the end is counted from the
    /// machine's.
    fn pause(&self, _: Thread, span_ns: Ns) {
        self.sim.sleep_until(self.clock.ns().saturating_add(span_ns));
    }

    fn wait(&self, _: Thread) {
        self.waiting.wait();
    }

    fn wake(&self) {
        self.waiting.wake_all();
    }
}

/// Calls on their way to the store.
struct Inbox<V> {
    state: Mutex<InboxState<V>>,
    alarm: Mutex<Option<Arc<Alarm>>>,
}

struct InboxState<V> {
    jobs: VecDeque<Job<V>>,
    /// No more jobs come.
    is_over: bool,
    /// Pipelines that wait for completions.
    pipelines: Vec<Arc<Ended<V>>>,
    /// The thread has ended.
    is_lost: bool,
}

impl<V> Inbox<V> {
    /// Hands a job over; gives it back if there is nobody any more.
    fn post(&self, job: Job<V>) -> Result<(), Job<V>> {
        let mut state = lock(&self.state);
        if state.is_lost {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.ring();
        Ok(())
    }

    fn ring(&self) {
        if let Some(alarm) = &*lock(&self.alarm) {
            alarm.ring();
        }
    }
}

/// Tells all pipelines that no completion will come any more, when the thread ends in any way.
struct End<V>(Arc<Inbox<V>>);

impl<V> Drop for End<V> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_lost = true;
        // Whoever waits for the answer to one of these finds that its sender is gone.
        state.jobs.clear();
        for ended in state.pipelines.drain(..) {
            lock(&ended.state).is_lost = true;
            ended.news.notify_all();
        }
    }
}

/// A store on a thread of its own. It ends when this is dropped.
pub struct StoreThread<V> {
    inbox: Arc<Inbox<V>>,
    threads: u32,
    thread: Option<JoinHandle<()>>,
}

impl<V: Content + Send + 'static> StoreThread<V> {
    /// Starts a store with as many drivers as it has queues: it recovers the pairs in the blocks. `is_blank`: they are
    /// known to be zero, and none is read for that.
    ///
    /// # Errors
    /// The options do not fit the drive; the blocks hold data that no store of this kind wrote; the system has no thread
    /// left.
    pub fn open(
        config: StoreThreadConfig,
        drivers: Vec<BlockDriver>,
        is_blank: bool,
    ) -> Result<StoreThread<V>, OpenError> {
        let state =
            InboxState { jobs: VecDeque::new(), is_over: false, pipelines: Vec::new(), is_lost: false };
        let inbox = Arc::new(Inbox { state: Mutex::new(state), alarm: Mutex::default() });
        assert_eq!(drivers.len() as u32, config.queues(), "a driver for each queue");
        (config.row.check)(&config.options, BLOCK_BYTES, drivers[0].blocks(), config.threads)
            .map_err(OpenError::Options)?;
        let (opened, outcome) = channel();
        let (of_thread, threads) = (inbox.clone(), config.threads);
        let run = move || {
            let _end = End(of_thread.clone());
            serve(&of_thread, &config, drivers, is_blank, &opened);
        };
        let thread = thread::Builder::new().name("kvdrive store".into()).spawn(run)?;
        let store = StoreThread { inbox, threads, thread: Some(thread) };
        outcome.recv().map_err(|_| OpenError::Thread("it panicked".into()))??;
        Ok(store)
    }

    /// A pipeline for one thread of the program, with up to `depth` calls under way.
    pub fn pipeline(&self, depth: u32) -> Pipeline<V> {
        let mut inbox = lock(&self.inbox.state);
        let state = EndedState { completions: VecDeque::new(), is_lost: inbox.is_lost };
        let ended = Arc::new(Ended { state: Mutex::new(state), news: Condvar::new() });
        inbox.pipelines.push(ended.clone());
        drop(inbox);
        Pipeline { inbox: self.inbox.clone(), ended, depth: depth.min(self.threads), under_way: 0 }
    }

    /// Counters of the store, and the memory that it takes; zeros after its end.
    pub fn counts(&self) -> (Counts, Counts) {
        let (answer, answered) = channel();
        _ = self.inbox.post(Job::Count(answer));
        answered.recv().unwrap_or_default()
    }
}

impl<V> Drop for StoreThread<V> {
    fn drop(&mut self) {
        lock(&self.inbox.state).is_over = true;
        self.inbox.ring();
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The store's thread, from its first task to its last.
fn serve<V: Content + Send + 'static>(
    inbox: &Arc<Inbox<V>>,
    config: &StoreThreadConfig,
    drivers: Vec<BlockDriver>,
    is_blank: bool,
    opened: &Sender<Result<(), OpenError>>,
) {
    let sim = Sim::new();
    // A task that sleeps waits for the machine's clock, and does not advance the executor's own.
    sim.step_every_event();
    let alarm =
        Arc::new(Alarm { thread: thread::current(), rung: AtomicBool::new(false), woken: Mutex::default() });
    *lock(&inbox.alarm) = Some(alarm.clone());
    let cpu =
        Rc::new(MachineCpu { sim: sim.clone(), clock: Stopwatch::start(), waiting: WaitQueue::new(&sim) });
    let (blocks, most_blocks) = (drivers[0].blocks(), drivers[0].most_blocks());
    let queue = |driver| Queue { sim: sim.clone(), alarm: alarm.clone(), driver: Rc::new(driver) };
    let queues = drivers.into_iter().map(|driver| Box::new(queue(driver)) as Box<dyn BlockQueue>).collect();
    let lanes = Rc::new(Lanes { inbox: inbox.clone(), idle: RefCell::default(), running: Cell::new(1) });
    let (of_task, in_lanes, cpu_of_store, opened) = (sim.clone(), lanes.clone(), cpu.clone(), opened.clone());
    let StoreThreadConfig { row, options, threads } = config.clone();
    sim.spawn(move || {
        let (served, own, cpu) = (threads, None, cpu_of_store);
        let opening = Opening { row, options: &options, served, blocks, most_blocks, queues, own, cpu };
        let outcome = opening.open(&of_task, is_blank).map(|(kv, _)| in_lanes.begin(&of_task, &kv, threads));
        _ = opened.send(outcome);
        in_lanes.running.set(in_lanes.running.get() - 1);
    });
    run(&sim, &alarm, &cpu.clock, &lanes);
    sim.clear();
}

/// Runs tasks that are ready; sleeps when none is.
fn run<V: Content + 'static>(sim: &Sim, alarm: &Alarm, clock: &Stopwatch, lanes: &Lanes<V>) {
    let mut patience = Patience::default();
    loop {
        while sim.next_due() == Some(sim.now()) {
            sim.step();
        }
        if lanes.running.get() == 0 {
            return;
        }
        let woken = std::mem::take(&mut *lock(&alarm.woken));
        let has_news = !woken.is_empty() | lanes.wake(sim);
        woken.into_iter().for_each(|task| sim.wake(task));
        if has_news {
            continue;
        }
        let limit = sim.next_due().map(|due| Duration::from_nanos(due.saturating_sub(clock.ns())));
        match limit {
            Some(Duration::ZERO) => _ = sim.step(),
            limit => alarm.wait(&mut patience, limit),
        }
    }
}

/// The store's threads that carry out calls, each a task.
struct Lanes<V> {
    inbox: Arc<Inbox<V>>,
    /// Those without work.
    idle: RefCell<Vec<TaskKey>>,
    running: Cell<u32>,
}

impl<V: Content + 'static> Lanes<V> {
    /// Starts `count` lanes.
    fn begin(self: &Rc<Self>, sim: &Sim, kv: &Rc<HostKv>, count: u32) {
        for number in 0..count {
            let (lanes, client) = (self.clone(), kv.client(number));
            let (of_lane, kv) = (sim.clone(), kv.clone());
            self.running.set(self.running.get() + 1);
            sim.spawn(move || {
                lanes.work(&of_lane, &kv, &client);
                lanes.running.set(lanes.running.get() - 1);
            });
        }
    }

    /// Wakes as many idle lanes as there are jobs, or all at the end; `false`: there is nothing for them.
    fn wake(&self, sim: &Sim) -> bool {
        let state = lock(&self.inbox.state);
        let mut idle = self.idle.borrow_mut();
        let wanted = if state.is_over { idle.len() } else { state.jobs.len().min(idle.len()) };
        let from = idle.len() - wanted;
        idle.drain(from..).for_each(|task| sim.wake(task));
        wanted > 0
    }

    /// Carries out jobs until no more come.
    fn work(&self, sim: &Sim, kv: &HostKv, client: &HostKvClient) {
        loop {
            let (job, is_over) = {
                let mut state = lock(&self.inbox.state);
                (state.jobs.pop_front(), state.is_over)
            };
            match job {
                Some(job) => carry_out(job, kv, client),
                None if is_over => return,
                None => {
                    self.idle.borrow_mut().push(sim.current());
                    sim.suspend();
                    self.idle.borrow_mut().retain(|task| *task != sim.current());
                }
            }
        }
    }
}

fn carry_out<V: Content>(job: Job<V>, kv: &HostKv, mut client: &HostKvClient) {
    match job {
        Job::Call { call, value, mut into, ended } => {
            let result = client.call(call.with(value.piece()), &mut into).map_err(|error| {
                error
                    .status()
                    .unwrap_or_else(|error| unreachable!("a store answers with a status, not {error}"))
            });
            let completion = Completion { call, value, result, content: into };
            lock(&ended.state).completions.push_back(completion);
            ended.news.notify_one();
        }
        // Whoever asked may be gone.
        Job::Sync(answer) => _ = answer.send(client.sync()),
        Job::Count(answer) => _ = answer.send((kv.counts(), kv.memory())),
    }
}

/// Calls of one thread of the program to a store; they end in any order.
pub struct Pipeline<V> {
    inbox: Arc<Inbox<V>>,
    ended: Arc<Ended<V>>,
    depth: u32,
    under_way: u32,
}

impl<V: Content + Send> Pipelined<V> for Pipeline<V> {
    fn has_room(&self) -> bool {
        self.under_way < self.depth
    }

    fn under_way(&self) -> u32 {
        self.under_way
    }

    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        self.under_way += 1;
        // A job that finds nobody is under way for ever, and the next completion says why.
        _ = self.inbox.post(Job::Call { call, value, into, ended: self.ended.clone() });
        Ok(())
    }

    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error> {
        if self.under_way == 0 {
            return Ok(None);
        }
        let since = Stopwatch::start();
        let mut state = lock(&self.ended.state);
        loop {
            if let Some(completion) = state.completions.pop_front() {
                self.under_way -= 1;
                return Ok(Some(completion));
            }
            if state.is_lost {
                return Err(PowerOff.into());
            }
            state = match timeout.map(|span| span.saturating_sub(Duration::from_nanos(since.ns()))) {
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    let waited = self.ended.news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.ended.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn settle(&mut self, _: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        let (answer, answered) = channel();
        _ = self.inbox.post(Job::Sync(answer));
        Ok(answered.recv().map_err(|_| Error::from(PowerOff))??)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Thread(error.to_string())
    }
}
