//! Which queues have published entries: a bit for each queue, so that the next one is found quickly among thousands.

/// A bit for each queue, by the number of its session.
#[derive(Default)]
pub(super) struct Ready {
    words: Vec<u64>,
}

impl Ready {
    #[inline]
    pub(super) fn set(&mut self, number: usize, is_ready: bool) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if is_ready {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
    }

    /// The first ready queue from number `first` on; after the last number comes 0.
    #[inline]
    pub(super) fn next_from(&self, first: usize) -> Option<usize> {
        let of_word = |word: usize, wanted: u64| {
            let bits = self.words.get(word)? & wanted;
            (bits != 0).then(|| 64 * word + bits.trailing_zeros() as usize)
        };
        let word = first / 64;
        of_word(word, u64::MAX << (first % 64))
            .or_else(|| (word + 1..self.words.len()).find_map(|word| of_word(word, u64::MAX)))
            .or_else(|| (0..=word).find_map(|word| of_word(word, u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_ready_queue_is_that_of_a_search_of_all() {
        let mut rng = kvdrive_sim::Rng::stream(7, "queues");
        let (mut ready, mut expected) = (Ready::default(), [false; 300]);
        for _ in 0..20_000 {
            let number = rng.below(300) as usize;
            expected[number] = rng.below(4) == 0;
            ready.set(number, expected[number]);
            let first = rng.below(400) as usize;
            let in_order = (first..300).chain(0..first.min(300)).find(|at| expected[*at]);
            assert_eq!(ready.next_from(first), in_order);
        }
    }
}
