//! The processor a store runs on: steps of work, each with a name, and waiting for other callers.

use std::cell::Cell;
use std::rc::Rc;

/// Who calls: an application's thread, an I/O thread of a drive, a thread for background work. Numbers run
/// from 0 to below [`crate::Ground::threads`]. Each makes one call at a time, and a call that was begun runs
/// to its end or the store is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

/// What steps of a store cost on a core, in picoseconds each, by [`Step`].
pub type StepCosts = [u64; Step::ALL.len()];

/// Time of these steps in whole ns, rounded up.
pub fn steps_ns(costs_ps: &StepCosts, steps: &[(Step, u64)]) -> u64 {
    let all_ps: u64 = steps.iter().map(|(step, times)| costs_ps[*step as usize] * times).sum();
    all_ps.div_ceil(1000)
}

/// A kind of work. What one costs is a number of a profile, measured on a machine; how often it is done is
/// counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Step {
    /// A look into the hash table in memory that finds every pair.
    Probe,
    /// An entry is put into that hash table.
    Insert,
    /// A key is searched in the memtables.
    MemtableSearch,
    /// A pair is put into a memtable.
    MemtableInsert,
    /// The row cache is asked about a key of a table, and the table found.
    RowProbe,
    /// A pair is put into the row cache, and others leave it.
    RowInsert,
    /// Two keys are compared.
    Compare,
    /// One byte is copied.
    CopyByte,
    /// One byte is run through a checksum.
    ChecksumByte,
    /// A filter is asked about a key.
    BloomCheck,
    /// The place of a key in a table's index is searched.
    IndexSearch,
    /// A key is searched in a block of a table or a page of records.
    BlockSearch,
    /// An entry passes through a merge, or is found by a scan.
    MergeEntry,
    /// A key is searched in a node of a tree.
    NodeSearch,
    /// A pair is put into a node, or leaves it.
    NodeInsert,
    /// A node is copied, because somebody else still needs it as it is.
    Shadow,
    /// A node becomes two.
    Split,
}

impl Step {
    /// Every step with its name in profiles and reports, in the order of the enum.
    pub const ALL: [(Step, &'static str); 17] = [
        (Step::Probe, "probe"),
        (Step::Insert, "insert"),
        (Step::MemtableSearch, "memtable_search"),
        (Step::MemtableInsert, "memtable_insert"),
        (Step::RowProbe, "row_probe"),
        (Step::RowInsert, "row_insert"),
        (Step::Compare, "compare"),
        (Step::CopyByte, "copy_byte"),
        (Step::ChecksumByte, "checksum_byte"),
        (Step::BloomCheck, "bloom_check"),
        (Step::IndexSearch, "index_search"),
        (Step::BlockSearch, "block_search"),
        (Step::MergeEntry, "merge_entry"),
        (Step::NodeSearch, "node_search"),
        (Step::NodeInsert, "node_insert"),
        (Step::Shadow, "shadow"),
        (Step::Split, "split"),
    ];

    /// Its name in profiles and reports.
    pub fn name(self) -> &'static str {
        Step::ALL[self as usize].1
    }
}

/// The processor.
///
/// **[`Cpu::work`], [`Cpu::pause`] and [`Cpu::wait`] may suspend their caller**, and others call the store
/// meanwhile. No `RefCell` may be borrowed across such a call.
pub trait Cpu {
    /// `thread` does these steps, each so many times.
    fn work(&self, thread: Thread, steps: &[(Step, u64)]);

    /// `thread` does nothing for so long.
    fn pause(&self, thread: Thread, span_ns: u64);

    /// Suspends `thread` until [`Cpu::wake`] is called. It may return earlier: whoever waits looks again.
    fn wait(&self, thread: Thread);

    /// Everybody who waits looks again. Suspends nobody.
    fn wake(&self);
}

/// A lock that callers hold one after the other, in the order in which they came.
#[derive(Default)]
pub(crate) struct Turns {
    next: Cell<u64>,
    serving: Cell<u64>,
}

impl Turns {
    /// Waits for the caller's turn, which ends when the guard is dropped.
    pub fn take<'a>(&'a self, cpu: &'a Rc<dyn Cpu>, thread: Thread) -> Turn<'a> {
        let mine = self.next.replace(self.next.get() + 1);
        while self.serving.get() != mine {
            cpu.wait(thread);
        }
        Turn { turns: self, cpu }
    }
}

/// Somebody's turn.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    cpu: &'a Rc<dyn Cpu>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.serving.set(self.turns.serving.get() + 1);
        self.cpu.wake();
    }
}
