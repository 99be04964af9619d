//! The processor that a store runs on: named steps of work, and waiting for other callers.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_declare::{Entry, GivenValues, Problem, Rule, Section, Setting, Unit, Values};

/// Identifies a caller: an application's thread, an I/O thread of a drive, a thread for background work.
/// Numbers run from 0 to below [`crate::Ground::threads`]. Each thread makes one call at a time. A call must
/// run to its end; otherwise the store is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

/// Cost of each step on a core, in picoseconds, indexed by [`Step`].
pub type StepCosts = [u64; Step::ALL.len()];

/// Time of these steps in ns, rounded up to whole ns.
pub fn steps_ns(costs_ps: &StepCosts, steps: &[(Step, u64)]) -> u64 {
    let all_ps: u64 = steps.iter().map(|(step, times)| costs_ps[*step as usize] * times).sum();
    all_ps.div_ceil(1000)
}

/// The kinds of work, one row each: description, and name in profiles and reports. A row makes a variant of
/// [`Step`] and the setting `store.NAME_ps`, its cost in picoseconds.
macro_rules! steps {
    ($($(#[doc = $help:literal])+ $step:ident = $name:literal,)+) => {
        /// A kind of work. Its cost is a setting, measured on a machine; the number of times it is done is
        /// counted here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Step {
            $($(#[doc = $help])+ $step,)+
        }

        impl Step {
            /// Every step with its name in profiles and reports, in the order of the enum.
            pub const ALL: [(Step, &'static str); [$($name),+].len()] = [$((Step::$step, $name)),+];
            /// The settings of the costs, in the order of the enum.
            const ENTRIES: &'static [Entry] = &[$(Entry::Setting(Setting {
                key: concat!("store.", $name, "_ps"),
                rule: Rule::Integer(0, LONGEST_PS),
                unit: Unit::Ps,
                help: concat!($($help),+).trim_ascii(),
                least: None,
                option: None,
                in_image: false,
                shrinks: false,
                when: &[],
            })),+];
        }
    };
}

steps! {
    /// The in-memory hash table of all pairs is searched for a key.
    Probe = "probe",
    /// An entry is inserted into the in-memory hash table of all pairs.
    Insert = "insert",
    /// A key is searched for in a memtable on one of its levels. A search counts as the square of the bits of the number of
    /// pairs: it visits as many nodes as that has bits, each of which takes longer the more memory they all lie in.
    MemtableLevel = "memtable_level",
    /// A pair is inserted into a memtable.
    MemtableInsert = "memtable_insert",
    /// The row cache is searched for a key of a table, after the table was found.
    RowProbe = "row_probe",
    /// A pair is inserted into the row cache, and others are evicted.
    RowInsert = "row_insert",
    /// Two keys are compared.
    Compare = "compare",
    /// One byte is copied.
    CopyByte = "copy_byte",
    /// One byte is included in a checksum.
    ChecksumByte = "checksum_byte",
    /// A filter is checked for a key.
    BloomCheck = "bloom_check",
    /// The index of a table is searched for the position of a key.
    IndexSearch = "index_search",
    /// A key is searched for in a block of a table or a page of records.
    BlockSearch = "block_search",
    /// A block that was read enters the block cache, and others are evicted.
    BlockInsert = "block_insert",
    /// An entry passes through a merge, or is found by a scan.
    MergeEntry = "merge_entry",
    /// A key is searched for in a node of a tree.
    NodeSearch = "node_search",
    /// A pair is inserted into a node or removed from it.
    NodeInsert = "node_insert",
    /// A node is copied, because an older tree still needs it unchanged.
    Shadow = "shadow",
    /// A node is split into two.
    Split = "split",
}

/// Longest step, ps: 1 ms. Some steps are taken for every byte of a value.
const LONGEST_PS: i64 = 1_000_000_000;
impl Step {
    /// Its name in profiles and reports.
    pub fn name(self) -> &'static str {
        Step::ALL[self as usize].1
    }

    /// The key of the setting of its cost.
    pub fn key(self) -> &'static str {
        match &Step::ENTRIES[self as usize] {
            Entry::Setting(setting) => setting.key,
            Entry::Part(..) => unreachable!("each row is a setting"),
        }
    }
}

/// The costs of steps on a core, ps, as settings.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSettings(pub StepCosts);

impl Section for StepSettings {
    const ENTRIES: &'static [Entry] = Step::ENTRIES;

    fn take(values: &Values<'_>) -> Result<StepSettings, Problem> {
        let mut costs = [0; Step::ALL.len()];
        for (step, _) in Step::ALL {
            costs[step as usize] = values.field(step.key())?;
        }
        Ok(StepSettings(costs))
    }

    fn give(&self, values: &mut GivenValues) {
        for (step, _) in Step::ALL {
            values.put(step.key(), self.0[step as usize].into());
        }
    }
}

/// The processor.
///
/// **[`Cpu::work`], [`Cpu::pause`] and [`Cpu::wait`] may suspend their caller**, and other threads may call
/// the store in the meantime. No `RefCell` may be borrowed across such a call.
pub trait Cpu {
    /// `thread` does these steps, each this many times.
    fn work(&self, thread: Thread, steps: &[(Step, u64)]);

    /// `thread` does nothing for `span_ns` ns.
    fn pause(&self, thread: Thread, span_ns: u64);

    /// Suspends `thread` until [`Cpu::wake`] is called. It may return earlier: a waiting caller checks its
    /// condition again.
    fn wait(&self, thread: Thread);

    /// Wakes all waiting threads. Does not suspend.
    fn wake(&self);
}

/// A lock with FIFO order.
#[derive(Default)]
pub(crate) struct FifoLock {
    next: Cell<u64>,
    serving: Cell<u64>,
}

impl FifoLock {
    /// Waits for the caller's turn, which ends when the guard is dropped.
    pub fn take<'a>(&'a self, cpu: &'a Rc<dyn Cpu>, thread: Thread) -> FifoGuard<'a> {
        let mine = self.next.replace(self.next.get() + 1);
        while self.serving.get() != mine {
            cpu.wait(thread);
        }
        FifoGuard { lock: self, cpu }
    }
}

/// The lock is held until this is dropped.
pub(crate) struct FifoGuard<'a> {
    lock: &'a FifoLock,
    cpu: &'a Rc<dyn Cpu>,
}

impl Drop for FifoGuard<'_> {
    fn drop(&mut self) {
        self.lock.serving.set(self.lock.serving.get() + 1);
        self.cpu.wake();
    }
}
