//! The firmware's cores, and which core takes a step of which kind.
//!
//! Work is charged where it is done, with `cores.of(role).run_noted(...)`. This file does not know the steps; of their
//! costs it knows only that of a copy.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_declare::Section;
use kvdrive_sim::{Cause, Ns, Resource, Sim, TaskCell, TaskKey, idle_or_next};

/// What copying costs a core, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Section)]
#[section("controller")]
pub struct CopyCosts {
    /// Firmware time to begin a copy, ns.
    #[setting(is = TIME, key = "memcpy_setup_ns")]
    pub setup_ns: Ns,
    /// Firmware time to copy 1 KiB, ns.
    #[setting(is = TIME, key = "memcpy_ns_per_kib")]
    pub ns_per_kib: Ns,
}

impl CopyCosts {
    /// Time of copying `bytes` bytes, ns.
    #[inline]
    pub fn copy_ns(self, bytes: u32) -> Ns {
        self.setup_ns + (u64::from(bytes) * self.ns_per_kib).div_ceil(1024)
    }
}

/// The kind of a step of firmware. The emulator of the Plus paper gives each of these a core (section V-A); its fourth
/// looks for sections to evict and leaves their eviction to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Steps that a command waits for, except copies: decoding, looking up its key, completing it.
    Dispatch,
    /// Copying between a command and the buffers.
    Copy,
    /// Garbage collection, flushes and compaction.
    Collection,
    /// Writing altered sections of a hash table, which then leave its cache.
    Eviction,
}

impl Role {
    /// Every role, in the order of the enumeration, and the name of its core in reports.
    pub const ALL: [(Role, &'static str); 4] = [
        (Role::Dispatch, "firmware.dispatch"),
        (Role::Copy, "firmware.copy"),
        (Role::Collection, "firmware.collection"),
        (Role::Eviction, "firmware.eviction"),
    ];
}

/// How steps are dealt out to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// So many cores, any of which takes any step.
    Any(u32),
    /// Each role has a core of its own.
    Own,
    /// A dispatcher and this many I/O threads have a core each, which takes all steps of its thread.
    Threads(u32),
}

/// A thread of firmware that has a core of its own under [`Roles::Threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirmwareThread {
    /// Fetches commands and deals them out.
    Dispatcher,
    /// Runs commands; the first is 0.
    Io(u32),
}

/// The cores of one drive. Clones are the same cores.
#[derive(Clone)]
pub struct Cores {
    /// By role; all the same one when any core takes any step.
    by_role: [Rc<Resource>; Role::ALL.len()],
    /// The cores of threads, if each thread has a core that takes its steps of every role.
    threads: Option<Rc<Threads>>,
    /// Further cores, for work that has a core to itself.
    further: Rc<TaskCell<Vec<Rc<Resource>>>>,
}

/// Cores of threads. Such a drive has no other cores, so work of other tasks (collection beside commands, recovery)
/// goes to the core of an idle I/O thread, or, if none is idle, to the cores of I/O threads in turn.
struct Threads {
    sim: Sim,
    /// The core of the dispatcher, then those of the I/O threads.
    cores: Vec<Rc<Resource>>,
    /// The task of each core; `None` for a thread that has not begun.
    tasks: TaskCell<Vec<Option<TaskKey>>>,
    /// The I/O thread whose core takes work of other tasks next.
    next: Cell<usize>,
}

impl Threads {
    fn new(sim: &Sim, io_threads: u32) -> Threads {
        let io = (0..io_threads).map(|thread| format!("firmware.io-{thread}"));
        let names = std::iter::once("firmware.dispatcher".to_owned()).chain(io);
        let cores: Vec<_> = names.map(|name| core(sim, name, 1)).collect();
        let tasks = TaskCell::new(vec![None; cores.len()]);
        Threads { sim: sim.clone(), cores, tasks, next: Cell::new(0) }
    }

    /// The core of the task that runs.
    fn of_current(&self) -> &Rc<Resource> {
        let current = Some(self.sim.current());
        match self.tasks.borrow().iter().position(|task| *task == current) {
            Some(index) => &self.cores[index],
            None => self.of_others(),
        }
    }

    fn of_others(&self) -> &Rc<Resource> {
        let io = &self.cores[1..];
        &io[idle_or_next(io.iter().map(Rc::as_ref), &self.next)]
    }
}

fn core(sim: &Sim, name: impl Into<String>, cores: u32) -> Rc<Resource> {
    Rc::new(Resource::new(sim, name, cores).spending(Cause::Core))
}

impl Cores {
    /// Cores that are not used yet.
    pub fn new(sim: &Sim, roles: Roles) -> Cores {
        let by_role = match roles {
            Roles::Any(cores) => {
                let pool = core(sim, "firmware.cores", cores);
                std::array::from_fn(|_| pool.clone())
            }
            Roles::Own => Role::ALL.map(|(_, name)| core(sim, name, 1)),
            Roles::Threads(io_threads) => {
                assert!(io_threads > 0, "a thread must run commands");
                let threads = Threads::new(sim, io_threads);
                let by_role = std::array::from_fn(|_| threads.cores[0].clone());
                return Cores { by_role, threads: Some(Rc::new(threads)), further: Rc::default() };
            }
        };
        Cores { by_role, threads: None, further: Rc::default() }
    }

    /// The core for steps of `role`; where cores belong to threads, that of the running task.
    #[inline]
    pub fn of(&self, role: Role) -> &Rc<Resource> {
        match &self.threads {
            None => &self.by_role[role as usize],
            Some(threads) => threads.of_current(),
        }
    }

    /// The task that runs is `thread` from now on. Only where cores are threads'.
    pub fn run_as(&self, thread: FirmwareThread) {
        let threads = self.threads.as_ref().expect("cores are threads'");
        let index = match thread {
            FirmwareThread::Dispatcher => 0,
            FirmwareThread::Io(thread) => 1 + thread as usize,
        };
        threads.tasks.borrow_mut()[index] = Some(threads.sim.current());
    }

    /// The cores for steps of `role` of tasks that belong to no thread.
    pub fn beside(&self, role: Role) -> &[Rc<Resource>] {
        match &self.threads {
            None => std::slice::from_ref(&self.by_role[role as usize]),
            Some(threads) => &threads.cores[1..],
        }
    }

    /// A core more, for work that shares none.
    pub fn add(&self, sim: &Sim, name: &str) -> Rc<Resource> {
        let core = core(sim, name, 1);
        self.further.borrow_mut().push(core.clone());
        core
    }

    /// Every core, or the pool, once.
    pub fn resources(&self) -> Vec<Rc<Resource>> {
        let [first, second, ..] = &self.by_role;
        let shared = match &self.threads {
            Some(threads) => &threads.cores[..],
            None if Rc::ptr_eq(first, second) => &self.by_role[..1],
            None => &self.by_role,
        };
        shared.iter().chain(self.further.borrow().iter()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_nanosecond_of_copying_is_one() {
        let times =
            [0, 1, 1023, 1024, 1025].map(|bytes| CopyCosts { setup_ns: 50, ns_per_kib: 250 }.copy_ns(bytes));
        assert_eq!(times, [50, 51, 300, 300, 301]);
    }

    #[test]
    fn a_thread_has_a_core_and_other_work_goes_to_an_idle_one_of_those_that_run_commands() {
        let sim = Sim::new();
        let cores = Cores::new(&sim, Roles::Threads(2));
        let taken = |thread: Option<FirmwareThread>| {
            let there = cores.clone();
            let task = sim.spawn(move || {
                thread.into_iter().for_each(|thread| there.run_as(thread));
                let names = Role::ALL.map(|(role, _)| there.of(role).name().to_owned());
                assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
                names[0].clone()
            });
            sim.block_on(|| task.join())
        };
        assert_eq!(taken(Some(FirmwareThread::Dispatcher)), "firmware.dispatcher");
        assert_eq!(taken(Some(FirmwareThread::Io(1))), "firmware.io-1");
        assert_eq!(taken(None), "firmware.io-0");
        let busy = cores.clone();
        sim.block_on(|| {
            let cores = busy.resources();
            let _held = cores[1].acquire();
            assert_eq!(busy.of(Role::Collection).name(), "firmware.io-1");
            let _held_too = cores[2].acquire();
            let turns = [0, 1, 2].map(|_| busy.of(Role::Collection).name());
            assert_eq!(turns, ["firmware.io-0", "firmware.io-1", "firmware.io-0"]);
        });
    }

    #[test]
    fn every_role_has_the_core_of_its_name_or_the_pool() {
        let sim = Sim::new();
        let (own, any) = (Cores::new(&sim, Roles::Own), Cores::new(&sim, Roles::Any(3)));
        for (role, name) in Role::ALL {
            assert_eq!((own.of(role).name(), own.of(role).statistics().servers), (name, 1));
            assert_eq!((any.of(role).name(), any.of(role).statistics().servers), ("firmware.cores", 3));
        }
        assert_eq!((own.resources().len(), any.resources().len()), (4, 1));
    }
}
