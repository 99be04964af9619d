//! A budget of DRAM for an engine that keeps its index on flash: what of the index is at hand without a flash read.
//!
//! ```text
//!   lists    what says where a key would be: bounds of tables, first keys of pages     first of all, newest first
//!   pinned   pages of the upper levels                                                 they replace all below
//!   filters  pages of Bloom filters that lookups have read                             they replace pages
//!   pages    other pages that lookups have read                                        they replace each other
//! ```
//!
//! A page that is offered takes the place of pages of a lower kind, or, except for pinned ones, of its own; which of
//! them goes is the choice of a row of [`EVICTIONS`]. If none can go, the page is not kept. Lists take the place of any
//! page. The bytes are those of the structures that the papers describe, not of this program.
//!
//! Not here: what a list is, which levels are pinned, and what a lookup reads for a list that is not at hand. These are
//! the engine's.

use std::cell::Cell;
use std::collections::BTreeMap;

use kvdrive_declare::{By, Counters};
use kvdrive_sim::TaskCell;

/// A kind of content; an earlier one has priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Where a key would be.
    Lists,
    /// Pages of levels that are to be in DRAM.
    Pinned,
    /// Pages of filters.
    Filters,
    /// Other pages.
    Pages,
}

impl Kind {
    /// Every kind with its name in reports.
    pub const TABLE: [(Kind, &'static str); 4] = [
        (Kind::Lists, "lists"),
        (Kind::Pinned, "pinned"),
        (Kind::Filters, "filters"),
        (Kind::Pages, "pages"),
    ];

    /// Labels of counters that count by kind.
    pub const LABELS: By = By {
        label: "kind",
        places: Kind::TABLE.len(),
        name_of: |index| Kind::TABLE[index].1,
        is_sparse: false,
    };
}

/// Which of the pages of a kind goes first.
pub struct EvictionRow {
    /// Name in configurations.
    pub name: &'static str,
    /// What it is.
    pub origin: &'static str,
    /// Does a use make a page the last one to go?
    pub renews: bool,
}

/// Every policy.
pub static EVICTIONS: &[EvictionRow] = &[
    EvictionRow { name: "lru", origin: "the least recently used page goes first (PinK)", renews: true },
    EvictionRow { name: "fifo", origin: "the page that came first goes first", renews: false },
];

/// The row with this name.
pub fn eviction_row(name: &str) -> Option<&'static EvictionRow> {
    EVICTIONS.iter().find(|row| row.name == name)
}

/// Use of a budget since power-on, and the bytes of it that are taken now.
#[derive(Default, Counters)]
#[counters(prefix = "index_dram_")]
pub struct DramCounters {
    /// Pages that were found in DRAM, and lists, each of which saves at least one flash read.
    #[counter(by = &Kind::LABELS)]
    hits: [Cell<u64>; 4],
    /// Pages that a lookup read from flash, and lists that it had to read there.
    #[counter(by = &Kind::LABELS)]
    misses: [Cell<u64>; 4],
    /// Pages that made room for others.
    #[counter(by = &Kind::LABELS)]
    evictions: [Cell<u64>; 4],
    /// Lookups in tables, by the number of pages of the index that they read from flash.
    #[counter(by = &READS)]
    lookups: [Cell<u64>; 9],
}

/// Labels of lookups by their reads; the last one is for all higher numbers.
pub const READS: By = By { label: "reads", places: 9, name_of: |index| READ_NAMES[index], is_sparse: false };
const READ_NAMES: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "7", "more"];

/// Bytes of a budget by kind.
#[derive(Default, Counters)]
#[counters(state, unit = Bytes)]
pub struct DramBytes {
    /// Bytes of DRAM that the index takes.
    #[counter(by = &Kind::LABELS)]
    held: [Cell<u64>; 4],
}

struct Frame<P> {
    kind: Kind,
    turn: u64,
    bytes: u64,
    page: P,
}

struct State<I, P> {
    frames: BTreeMap<I, Frame<P>>,
    /// By kind, the pages in the order in which they go.
    order: [BTreeMap<u64, I>; 4],
    last_turn: u64,
}

/// A budget; pages `P` have names `I`.
pub struct Dram<I, P> {
    budget_bytes: u64,
    renews: bool,
    state: TaskCell<State<I, P>>,
    used: DramBytes,
    counters: DramCounters,
}

impl<I: Ord + Copy, P: Clone> Dram<I, P> {
    /// Nothing in `budget_bytes` of DRAM.
    pub fn new(budget_bytes: u64, eviction: &EvictionRow) -> Dram<I, P> {
        let state = State { frames: BTreeMap::new(), order: Default::default(), last_turn: 0 };
        Dram {
            budget_bytes,
            renews: eviction.renews,
            state: TaskCell::new(state),
            used: DramBytes::default(),
            counters: DramCounters::default(),
        }
    }

    /// Charges lists of these sizes, the most important first, instead of those before. Returns how many of them are at
    /// hand.
    pub fn hold_lists(&self, sizes: impl Iterator<Item = u64>) -> usize {
        let (mut held, mut bytes) = (0, 0);
        for size in sizes {
            if bytes + size > self.budget_bytes {
                break;
            }
            (held, bytes) = (held + 1, bytes + size);
        }
        self.used.held[Kind::Lists as usize].set(bytes);
        let mut state = self.state.borrow_mut();
        while self.used_bytes() > self.budget_bytes {
            self.evict(&mut state).expect("what is no list is a page");
        }
        held
    }

    /// Charges filters of these sizes, which the engine holds whole, in the room that lists leave; without pages in the
    /// budget. They are let go ([`Dram::let_filters_go`]) before lists change. Returns how many of them are at hand.
    pub fn hold_filters(&self, sizes: impl Iterator<Item = u64>) -> usize {
        let room = self.budget_bytes - self.used_bytes();
        let (mut held, mut bytes) = (0, 0);
        for size in sizes {
            if bytes + size > room {
                break;
            }
            (held, bytes) = (held + 1, bytes + size);
        }
        self.used.held[Kind::Filters as usize].set(bytes);
        held
    }

    /// See [`Dram::hold_filters`].
    pub fn let_filters_go(&self) {
        self.used.held[Kind::Filters as usize].set(0);
    }

    /// Notes that a filter that the engine holds whole was at hand, or was not.
    pub fn note_filter(&self, is_held: bool) {
        raise(if is_held { &self.counters.hits } else { &self.counters.misses }, Kind::Filters);
    }

    /// The page of this name, if it is in DRAM.
    #[inline]
    pub fn find(&self, name: &I) -> Option<P> {
        let mut state = self.state.borrow_mut();
        let State { frames, order, last_turn } = &mut *state;
        let frame = frames.get_mut(name)?;
        raise(&self.counters.hits, frame.kind);
        if self.renews {
            *last_turn += 1;
            order[frame.kind as usize].remove(&std::mem::replace(&mut frame.turn, *last_turn));
            order[frame.kind as usize].insert(*last_turn, *name);
        }
        Some(frame.page.clone())
    }

    /// Counts a lookup that read this many pages from flash.
    pub fn note_lookup(&self, reads: u32) {
        let count = &self.counters.lookups[(reads as usize).min(READ_NAMES.len() - 1)];
        count.set(count.get() + 1);
    }

    /// Notes that a list was at hand, or was not.
    pub fn note_list(&self, is_held: bool) {
        raise(if is_held { &self.counters.hits } else { &self.counters.misses }, Kind::Lists);
    }

    /// Counts a page that a lookup has read from flash.
    pub fn note_miss(&self, kind: Kind) {
        raise(&self.counters.misses, kind);
    }

    /// Offers a page: it is kept if there is room for it, or can be made.
    pub fn offer(&self, kind: Kind, name: I, bytes: u32, page: &P) {
        let bytes = u64::from(bytes);
        let mut state = self.state.borrow_mut();
        self.take(&mut state, &name);
        // Pinned pages do not replace each other.
        let stays = kind as usize + usize::from(kind == Kind::Pinned);
        let stays: u64 = self.used.held[..stays].iter().map(Cell::get).sum();
        if stays + bytes > self.budget_bytes {
            return;
        }
        while self.used_bytes() + bytes > self.budget_bytes {
            self.evict(&mut state).expect("what need not stay makes room");
        }
        state.last_turn += 1;
        let turn = state.last_turn;
        state.order[kind as usize].insert(turn, name);
        state.frames.insert(name, Frame { kind, turn, bytes, page: page.clone() });
        let used = &self.used.held[kind as usize];
        used.set(used.get() + bytes);
    }

    /// The pages with names from `first` to `last` are of this kind from now on.
    pub fn change_kind(&self, first: I, last: I, kind_of: impl Fn(&I) -> Kind) {
        let mut state = self.state.borrow_mut();
        let State { frames, order, .. } = &mut *state;
        for (name, frame) in frames.range_mut(first..=last) {
            let kind = kind_of(name);
            if kind != frame.kind {
                let [from, to] = [frame.kind, kind].map(|kind| kind as usize);
                order[from].remove(&frame.turn);
                order[to].insert(frame.turn, *name);
                self.used.held[from].set(self.used.held[from].get() - frame.bytes);
                self.used.held[to].set(self.used.held[to].get() + frame.bytes);
                frame.kind = kind;
            }
        }
    }

    /// Drops the pages with names from `first` to `last`.
    pub fn forget(&self, first: I, last: I) {
        let mut state = self.state.borrow_mut();
        let names: Vec<I> = state.frames.range(first..=last).map(|(name, _)| *name).collect();
        for name in names {
            self.take(&mut state, &name);
        }
    }

    /// Bytes that are taken.
    pub fn used_bytes(&self) -> u64 {
        self.used.held.iter().map(Cell::get).sum()
    }

    /// Its counters.
    pub fn counters(&self) -> &DramCounters {
        &self.counters
    }

    /// What takes it.
    pub fn bytes(&self) -> &DramBytes {
        &self.used
    }

    /// Makes room: the page that goes first among those of the lowest kind. `None`: there is no page.
    fn evict(&self, state: &mut State<I, P>) -> Option<()> {
        let lowest = state.order.iter().rposition(|order| !order.is_empty())?;
        let (_, name) = state.order[lowest].first_key_value()?;
        let name = *name;
        self.take(state, &name);
        let evictions = &self.counters.evictions[lowest];
        evictions.set(evictions.get() + 1);
        Some(())
    }

    fn take(&self, state: &mut State<I, P>, name: &I) {
        let Some(frame) = state.frames.remove(name) else { return };
        state.order[frame.kind as usize].remove(&frame.turn);
        let used = &self.used.held[frame.kind as usize];
        used.set(used.get() - frame.bytes);
    }
}

#[inline]
fn raise(counts: &[Cell<u64>; 4], kind: Kind) {
    let count = &counts[kind as usize];
    count.set(count.get() + 1);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dram(bytes: u64, eviction: &str) -> Dram<u32, u32> {
        Dram::new(bytes, eviction_row(eviction).unwrap())
    }

    fn kept(dram: &Dram<u32, u32>) -> Vec<u32> {
        dram.state.borrow().frames.keys().copied().collect()
    }

    #[test]
    fn a_page_takes_the_place_of_lower_kinds_and_a_pinned_one_not_of_its_own() {
        let dram = dram(30, "lru");
        for (kind, name) in [(Kind::Pages, 1), (Kind::Filters, 2), (Kind::Pages, 3)] {
            dram.offer(kind, name, 10, &name);
        }
        dram.offer(Kind::Pinned, 4, 10, &4);
        assert_eq!(kept(&dram), [2, 3, 4], "the oldest page went");
        dram.offer(Kind::Pinned, 5, 10, &5);
        dram.offer(Kind::Pinned, 6, 10, &6);
        assert_eq!(kept(&dram), [4, 5, 6]);
        dram.offer(Kind::Pinned, 7, 10, &7);
        dram.offer(Kind::Pages, 8, 10, &8);
        assert_eq!(kept(&dram), [4, 5, 6]);
        assert_eq!(dram.hold_lists([5, 10, 20].into_iter()), 2);
        assert_eq!((kept(&dram), dram.used_bytes()), (vec![6], 25));
        dram.change_kind(0, 9, |_| Kind::Pages);
        dram.offer(Kind::Filters, 9, 15, &9);
        assert_eq!((kept(&dram), dram.used_bytes()), (vec![9], 30));
        dram.offer(Kind::Filters, 10, 16, &10);
        assert_eq!(kept(&dram), [9], "a page for which there can be no room makes none go");
        dram.forget(9, 9);
        assert_eq!((kept(&dram), dram.used_bytes()), (vec![], 15));
    }

    #[test]
    fn a_use_saves_a_page_with_lru_and_not_with_fifo() {
        for (eviction, left) in [("lru", [1, 3]), ("fifo", [2, 3])] {
            let dram = dram(20, eviction);
            for name in [1, 2, 3] {
                dram.offer(Kind::Pages, name, 10, &name);
                dram.find(&1);
            }
            assert_eq!(kept(&dram), left, "{eviction}");
        }
    }

    proptest! {
        /// Whatever comes, the budget holds, the sums are those of the frames, and pinned pages stay before others.
        #[test]
        fn no_more_is_kept_than_fits(
            budget in 0u64..200,
            steps in proptest::collection::vec((0usize..6, 0u32..12, 1u32..40), 0..200),
        ) {
            let dram = dram(budget, "lru");
            for (what, name, bytes) in steps {
                match what {
                    0 => _ = dram.find(&name),
                    1 => dram.forget(name, name + 2),
                    2 => _ = dram.hold_lists((0..name).map(|_| u64::from(bytes))),
                    kind => dram.offer(Kind::TABLE[kind - 2].0, name, bytes, &name),
                }
                prop_assert!(dram.used_bytes() <= budget);
                let state = dram.state.borrow();
                for (kind, _) in &Kind::TABLE[1..] {
                    let of_kind = state.frames.values().filter(|frame| frame.kind == *kind);
                    let bytes: u64 = of_kind.clone().map(|frame| frame.bytes).sum();
                    prop_assert_eq!(bytes, dram.used.held[*kind as usize].get());
                    prop_assert_eq!(of_kind.count(), state.order[*kind as usize].len());
                }
            }
        }
    }
}
