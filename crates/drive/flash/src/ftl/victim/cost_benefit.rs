//! Victim policy `cost-benefit`: space gained per page copied, weighted by the age of the data:
//! `(1 - u) / 2u * age` with `u` the valid fraction (Kawaguchi, Nishioka, Motoda: A Flash-Memory Based File System,
//! USENIX 1995, after the log-structured file system of Rosenblum and Ousterhout, 1991). It does not choose hot blocks
//! until overwrites have made more of their pages invalid.

use super::{Candidate, VictimKind, VictimPolicy};

/// The row of `cost-benefit` in [`super::VICTIMS`].
pub const KIND: VictimKind = VictimKind {
    name: "cost-benefit",
    origin: "(1 - u) / 2u * age (Kawaguchi et al., USENIX 1995)",
    build: || Box::new(CostBenefit),
};

struct CostBenefit;

/// Infinite for a block without valid pages, which costs nothing.
fn benefit(candidate: &Candidate) -> f64 {
    let valid = f64::from(candidate.live) / f64::from(candidate.pages);
    (1.0 - valid) / (2.0 * valid) * (candidate.age + 1) as f64
}

impl VictimPolicy for CostBenefit {
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate> {
        let better = |new: &Candidate, best: &Candidate| {
            let order = benefit(new).total_cmp(&benefit(best));
            order.then(best.erases.cmp(&new.erases)).then(best.block.cmp(&new.block)).is_gt()
        };
        candidates.reduce(|best, new| if better(&new, &best) { new } else { best })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockId;

    fn chosen(all: &[Candidate]) -> u32 {
        CostBenefit.choose(&mut all.iter().copied()).expect("there is a candidate").block.0
    }

    #[test]
    fn weighs_age_against_valid_pages() {
        let candidate =
            |block, live, age| Candidate { block: BlockId(block), live, pages: 8, age, erases: 0 };
        // Hot and emptier loses against cold and fuller: (5/8) / (6/8) * 11 < (4/8) / (8/8) * 101.
        assert_eq!(chosen(&[candidate(1, 3, 10), candidate(2, 4, 100)]), 2);
        assert_eq!(chosen(&[candidate(1, 3, 100), candidate(2, 4, 100)]), 1);
        assert_eq!(
            chosen(&[candidate(1, 3, u64::MAX - 1), candidate(2, 0, 0)]),
            2,
            "an empty block costs nothing"
        );
    }
}
