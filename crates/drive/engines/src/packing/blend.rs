//! `blend`: decides by cost for each DMA'd value whether to copy it down (`all`) or to leave it where DMA put
//! it (`backfill`). BandSlim mentions such a policy as future work (section 4.3); this one is ours.
//!
//! Copying costs firmware time. Leaving costs flash: the value takes whole slots, and the slack after it is lost,
//! except for the part that smaller values fill. How much they fill depends on the other values, copied ones included,
//! so no rule that looks at a single value is good everywhere. This policy looks at the recent past:
//!
//! ```text
//!   worth of a value      flash time that copying it saves / firmware time that copying it takes
//!   class                 the worth's power of two; values whose copying saves nothing are never copied
//!   space if the classes from c on are copied, the others left:
//!                         slots of those left + max(0, small bytes + copied bytes - fill * slack of those left)
//!   cost(c)               copying of the classes from c on + time of that space's pages
//! ```
//!
//! The two extremes are `backfill` and `all`. Their costs are not estimated: both are simulated alongside,
//! and the policy follows the one that was better in the recent past. A cut between them is tried if its
//! estimate is clearly better. If its real cost is not, the trial ends, and the next one has to wait, longer
//! each time. (`fill`, how well pieces of one size fill gaps of another, is a guess, and the estimate ignores
//! slots that do not fill pages.)
//!
//! [`Backfill`] places the values, a copied one like a small one.

use kvdrive_link::Arrival;

use super::backfill::Backfill;
use super::{All, LogView, Packing, PackingCosts, Placement, SLOT_BYTES};

/// Worths from 2^-7 to 2^8.
const CLASSES: usize = 16;
/// Class of a worth of 1.
const EVEN: usize = 7;
/// DMA'd values between two choices of the cut; at each, sums of the past lose an eighth.
const EPOCH: u32 = 64;
/// How much better the estimate of a cut between the extremes must be: 1/32.
const MARGIN_SHIFT: u32 = 5;
/// Length of a trial in epochs.
const TRIAL_EPOCHS: u32 = 4;
/// Epochs without a trial after a failed one: 8 at first, doubled each time.
const REST_EPOCHS: [u32; 2] = [8, 128];
/// Words of a saved state for its own numbers.
const WORDS: usize = 4 * (CLASSES + 1) + 13;
/// Limit of sums if no epoch ends for long; a larger number in a saved state is damage. Products of three
/// counts fit into 128 bits.
const LARGEST_COUNT: u64 = 1 << 40;
const LARGEST_NS: u64 = 1 << 58;

/// Sums over the recent values of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class {
    values: u64,
    bytes: u64,
    /// Bytes they take if copied, with their share of unfilled page ends.
    packed_bytes: u64,
    /// Bytes they take if left.
    slot_bytes: u64,
}

/// A simulated policy: its frontier, and the cost that it would have had recently.
#[derive(Debug, Default)]
struct Shadow<P> {
    policy: P,
    cost_ns: u64,
}

impl<P: Packing> Shadow<P> {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView, costs: &PackingCosts) -> u64 {
        let before = self.policy.frontier();
        let choice = self.policy.place(bytes, arrival, log);
        let cost_ns = cost_of(choice, self.policy.frontier() - before, log, costs);
        self.cost_ns = (self.cost_ns + cost_ns).min(LARGEST_NS);
        cost_ns
    }
}

/// Time of a placement that moved the frontier by `grown` bytes.
fn cost_of(choice: Placement, grown: u64, log: &LogView, costs: &PackingCosts) -> u64 {
    let pages_ns = u128::from(grown) * u128::from(costs.page_ns) / u128::from(log.page_bytes);
    let copy_ns = match choice.copied_bytes {
        0 => 0,
        bytes => costs.copy.copy_ns(bytes),
    };
    (pages_ns as u64).saturating_add(copy_ns).min(LARGEST_NS)
}

/// A trial of a cut between the extremes: costs of the cut and of the extremes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Trial {
    /// 0: no trial is running.
    epochs: u32,
    own_ns: u64,
    all_ns: u64,
    backfill_ns: u64,
    /// Epochs until the next trial may begin, and the length of the last rest.
    rest: u32,
    last_rest: u32,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Blend {
    costs: PackingCosts,
    placing: Backfill,
    all: Shadow<All>,
    backfill: Shadow<Backfill>,
    /// By class; the last entry is for values that are never copied.
    classes: [Class; CLASSES + 1],
    small_bytes: u64,
    /// DMA'd values since the last choice of the cut.
    age: u32,
    /// Classes from here on are copied.
    cut: usize,
    trial: Trial,
}

/// Bytes of a page for each value if the page holds as many as fit.
fn share_of_page(bytes: u32, page_bytes: u32) -> u32 {
    if bytes == 0 || bytes > page_bytes { bytes } else { page_bytes / (page_bytes / bytes) }
}

impl Blend {
    /// With these costs, and room for `dlt_entries` values in the DMA log table.
    pub fn new(costs: PackingCosts, dlt_entries: u32) -> Blend {
        Blend {
            costs,
            placing: Backfill::new(dlt_entries),
            all: Shadow::default(),
            backfill: Shadow { policy: Backfill::new(dlt_entries), cost_ns: 0 },
            classes: Default::default(),
            small_bytes: 0,
            age: 0,
            cut: EVEN,
            trial: Trial::default(),
        }
    }

    /// Bytes of a saved state: its own words, and the states of two `backfill`s.
    pub fn state_bytes(dlt_entries: u32) -> u64 {
        (WORDS * 8) as u64 + 2 * Backfill::state_bytes(dlt_entries)
    }

    fn copy_ns(&self, bytes: u64, values: u64) -> u128 {
        let per_kib = u128::from(bytes) * u128::from(self.costs.copy.ns_per_kib);
        per_kib / 1024 + u128::from(values) * u128::from(self.costs.copy.setup_ns)
    }

    /// The class of a value, with the bytes it takes either way.
    fn classify(&self, bytes: u32, log: &LogView) -> (usize, Class) {
        let slots = bytes.next_multiple_of(SLOT_BYTES);
        let packed_bytes = u64::from(share_of_page(bytes, log.page_bytes));
        let slot_bytes = u64::from(share_of_page(slots, log.page_bytes));
        let one = Class { values: 1, bytes: u64::from(bytes), packed_bytes, slot_bytes };
        let saved = u128::from(slot_bytes.saturating_sub(packed_bytes)) * u128::from(self.costs.page_ns);
        let taken = (self.copy_ns(one.bytes, 1) * u128::from(log.page_bytes)).max(1);
        // floor(log2(saved / taken)), also for ratios below 1.
        let worth = (saved << EVEN) / taken;
        let class = worth.checked_ilog2().map_or(CLASSES, |power| (power as usize).min(CLASSES - 1));
        (class, one)
    }

    fn note(&mut self, class: usize, one: Class) {
        let sums = &mut self.classes[class];
        sums.values += one.values;
        sums.bytes += one.bytes;
        sums.packed_bytes += one.packed_bytes;
        sums.slot_bytes += one.slot_bytes;
    }

    /// Simulates the extremes and adds the real cost of a placement.
    fn weigh(&mut self, bytes: u32, arrival: Arrival, log: &LogView, own_ns: u64) {
        let all_ns = self.all.place(bytes, arrival, log, &self.costs);
        let backfill_ns = self.backfill.place(bytes, arrival, log, &self.costs);
        if self.trial.epochs > 0 {
            let Trial { own_ns: own, all_ns: all, backfill_ns: backfill, .. } = &mut self.trial;
            for (sum, more) in [(own, own_ns), (all, all_ns), (backfill, backfill_ns)] {
                *sum = (*sum + more).min(LARGEST_NS);
            }
        }
        if arrival != Arrival::Inline {
            self.age += 1;
        }
        if self.age == EPOCH {
            self.age = 0;
            self.end_epoch(log.page_bytes);
        }
    }

    /// Chooses the cut for the next values, and reduces the sums of the past.
    fn end_epoch(&mut self, page_bytes: u32) {
        let end = if self.all.cost_ns <= self.backfill.cost_ns { 0 } else { CLASSES };
        let estimate = self.best_between(end, page_bytes);
        let trial = &mut self.trial;
        if trial.epochs > 0 {
            let ends_ns = trial.all_ns.min(trial.backfill_ns);
            if trial.epochs >= TRIAL_EPOCHS && trial.own_ns > ends_ns {
                let rest = (trial.last_rest * 2).clamp(REST_EPOCHS[0], REST_EPOCHS[1]);
                *trial = Trial { rest, last_rest: rest, ..Trial::default() };
                self.cut = end;
            } else {
                trial.epochs = (trial.epochs + 1).min(TRIAL_EPOCHS);
                for sum in [&mut trial.own_ns, &mut trial.all_ns, &mut trial.backfill_ns] {
                    *sum -= *sum / 8;
                }
            }
        } else if let Some(cut) = estimate.filter(|_| trial.rest == 0) {
            *trial = Trial { epochs: 1, last_rest: trial.last_rest, ..Trial::default() };
            self.cut = cut;
        } else {
            trial.rest = trial.rest.saturating_sub(1);
            self.cut = end;
        }
        for sums in &mut self.classes {
            let Class { values, bytes, packed_bytes, slot_bytes } = sums;
            for sum in [values, bytes, packed_bytes, slot_bytes] {
                *sum -= *sum / 8;
            }
        }
        for sum in [&mut self.small_bytes, &mut self.all.cost_ns, &mut self.backfill.cost_ns] {
            *sum -= *sum / 8;
        }
    }

    /// The cut between the extremes with the least estimated cost, if that is clearly less than that of the
    /// better extreme.
    fn best_between(&self, end: usize, page_bytes: u32) -> Option<usize> {
        let mut least = self.cost_ns(end, page_bytes);
        least -= least >> MARGIN_SHIFT;
        let mut best = None;
        for cut in 1..CLASSES {
            let cost = self.cost_ns(cut, page_bytes);
            if cost < least {
                (best, least) = (Some(cut), cost);
            }
        }
        best
    }

    /// Time that the recent past would have taken with this cut.
    fn cost_ns(&self, cut: usize, page_bytes: u32) -> u128 {
        let sum = |classes: &[Class]| {
            classes.iter().fold(Class::default(), |sum, class| Class {
                values: sum.values + class.values,
                bytes: sum.bytes + class.bytes,
                packed_bytes: sum.packed_bytes + class.packed_bytes,
                slot_bytes: sum.slot_bytes + class.slot_bytes,
            })
        };
        let copied = sum(&self.classes[cut..CLASSES]);
        let mut left = sum(&self.classes[..cut]);
        let never = self.classes[CLASSES];
        left.values += never.values;
        left.bytes += never.bytes;
        left.slot_bytes += never.slot_bytes;
        let slack = left.slot_bytes - left.bytes;
        let fillers = self.small_bytes + copied.packed_bytes;
        let filled = fillers.min(slack - lost_to_fit(&copied, &left, fillers, slack));
        let space = left.slot_bytes + fillers - filled;
        let pages_ns = u128::from(space) * u128::from(self.costs.page_ns) / u128::from(page_bytes);
        self.copy_ns(copied.bytes, copied.values) + pages_ns
    }
}

/// Slack that is lost because the next value is longer than the rest of a gap: half a copied value for each
/// gap, in proportion to the share of copied values in the filling.
fn lost_to_fit(copied: &Class, left: &Class, fillers: u64, slack: u64) -> u64 {
    if copied.values == 0 || left.values == 0 || fillers == 0 {
        return 0;
    }
    let half_a_value = copied.bytes / copied.values / 2;
    let share = u128::from(half_a_value) * u128::from(left.values) * u128::from(copied.packed_bytes);
    ((share / u128::from(fillers)) as u64).min(slack)
}

impl Blend {
    /// A policy restored from its own saved numbers, and the length of the saved state of the simulated `backfill`.
    fn restore_own(&self, saved: &[u8; WORDS * 8]) -> Option<(Blend, usize)> {
        let mut words = saved.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut next = |most: u64| words.next().filter(|word| *word <= most);
        let mut blend = Blend::new(self.costs, 1);
        blend.cut = next(CLASSES as u64)? as usize;
        blend.age = next(u64::from(EPOCH - 1))? as u32;
        blend.small_bytes = next(LARGEST_COUNT)?;
        blend.all.cost_ns = next(LARGEST_NS)?;
        blend.backfill.cost_ns = next(LARGEST_NS)?;
        blend.trial = Trial {
            epochs: next(u64::from(TRIAL_EPOCHS))? as u32,
            own_ns: next(LARGEST_NS)?,
            all_ns: next(LARGEST_NS)?,
            backfill_ns: next(LARGEST_NS)?,
            rest: next(u64::from(REST_EPOCHS[1]))? as u32,
            last_rest: next(u64::from(REST_EPOCHS[1]))? as u32,
        };
        for class in &mut blend.classes {
            *class = Class {
                values: next(LARGEST_COUNT)?,
                bytes: next(LARGEST_COUNT)?,
                packed_bytes: next(LARGEST_COUNT)?,
                slot_bytes: next(LARGEST_COUNT)?,
            };
            if class.bytes > class.slot_bytes {
                return None;
            }
        }
        let pointer = next(u64::MAX)?;
        let shadow_bytes = usize::try_from(next(u64::MAX)?).ok()?;
        blend.all.policy.restore(&pointer.to_le_bytes()).then_some((blend, shadow_bytes))
    }

    fn choose(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        if arrival == Arrival::Inline {
            self.small_bytes = (self.small_bytes + u64::from(bytes)).min(LARGEST_COUNT);
            return self.placing.place(bytes, arrival, log);
        }
        let (class, one) = self.classify(bytes, log);
        self.note(class, one);
        if class == CLASSES || class < self.cut {
            return self.placing.place(bytes, arrival, log);
        }
        let at = self.placing.place(bytes, Arrival::Inline, log).at;
        let by_dma = if arrival == Arrival::Hybrid { bytes - bytes % SLOT_BYTES } else { bytes };
        let on_slot = at.is_multiple_of(u64::from(SLOT_BYTES));
        Placement { at, copied_bytes: if on_slot { 0 } else { by_dma } }
    }
}

impl Packing for Blend {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        // A whole page reserved for a window says nothing about other values.
        if bytes == 0 || arrival == Arrival::Inline && bytes >= SLOT_BYTES {
            return self.placing.place(bytes, arrival, log);
        }
        let before = self.placing.frontier();
        let choice = self.choose(bytes, arrival, log);
        let own_ns = cost_of(choice, self.placing.frontier() - before, log, &self.costs);
        self.weigh(bytes, arrival, log, own_ns);
        choice
    }

    fn skip_to(&mut self, at: u64) {
        self.placing.skip_to(at);
    }

    fn oldest_open(&self) -> u64 {
        self.placing.oldest_open()
    }

    fn frontier(&self) -> u64 {
        self.placing.frontier()
    }

    fn table_full_jumps(&self) -> u64 {
        self.placing.table_full_jumps()
    }

    /// Its own numbers, `all`'s write pointer, then both `backfill`s' states, the first one's length before
    /// it.
    fn save(&self) -> Vec<u8> {
        let Trial { epochs, own_ns, all_ns, backfill_ns, rest, last_rest } = self.trial;
        let shadow = self.backfill.policy.save();
        let mut words = vec![self.cut as u64, u64::from(self.age), self.small_bytes];
        words.extend([self.all.cost_ns, self.backfill.cost_ns]);
        words.extend([u64::from(epochs), own_ns, all_ns, backfill_ns, u64::from(rest), u64::from(last_rest)]);
        for Class { values, bytes, packed_bytes, slot_bytes } in self.classes {
            words.extend([values, bytes, packed_bytes, slot_bytes]);
        }
        words.extend([self.all.policy.frontier(), shadow.len() as u64]);
        assert_eq!(words.len(), WORDS);
        let mut saved: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        saved.extend(shadow);
        saved.extend(self.placing.save());
        saved
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let Some((own, rest)) = saved.split_first_chunk::<{ WORDS * 8 }>() else { return false };
        let Some((mut blend, shadow_bytes)) = self.restore_own(own) else { return false };
        let Some((shadow, placing)) = rest.split_at_checked(shadow_bytes) else { return false };
        // Both keep the capacity of their tables; neither is changed unless both states are valid.
        let before = self.backfill.policy.save();
        if !self.backfill.policy.restore(shadow) {
            return false;
        }
        if !self.placing.restore(placing) {
            let undone = self.backfill.policy.restore(&before);
            assert!(undone, "a packing policy does not understand itself");
            return false;
        }
        std::mem::swap(&mut blend.placing, &mut self.placing);
        std::mem::swap(&mut blend.backfill.policy, &mut self.backfill.policy);
        *self = blend;
        true
    }
}
