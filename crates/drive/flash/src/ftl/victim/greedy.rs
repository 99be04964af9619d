//! Victim policy `greedy`: the block with the fewest valid pages. Cheapest now; best when all data is equally
//! hot.

use super::{Candidate, VictimKind, VictimPolicy};

/// The row of `greedy` in [`super::VICTIMS`].
pub const KIND: VictimKind = VictimKind {
    name: "greedy",
    origin: "the block with the fewest valid pages; of several, the least worn",
    build: || Box::new(Greedy),
};

struct Greedy;

impl VictimPolicy for Greedy {
    fn choose(&self, candidates: &mut dyn Iterator<Item = Candidate>) -> Option<Candidate> {
        candidates.min_by_key(|candidate| (candidate.live, candidate.erases, candidate.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockId;

    #[test]
    fn takes_the_emptiest_then_the_least_worn() {
        let candidate =
            |block, live, erases| Candidate { block: BlockId(block), live, pages: 8, age: 0, erases };
        let all = [candidate(1, 3, 0), candidate(2, 2, 9), candidate(3, 2, 4)];
        assert_eq!(Greedy.choose(&mut all.into_iter()).map(|chosen| chosen.block), Some(BlockId(3)));
        assert_eq!(Greedy.choose(&mut std::iter::empty()), None);
    }
}
