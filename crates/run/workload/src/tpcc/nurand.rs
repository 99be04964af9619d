//! NURand (clause 2.1.6): draws of rows, some of which are more popular than others.
//!
//! A shrunk table (`shrink`) is drawn from like the whole one: NURand draws a row of the whole table, and
//! each row that is kept stands for several rows of neighbouring popularity. So the same share of the rows
//! gets the same share of the draws, and a cache that is shrunk with the table has the same hit rate. (A
//! smaller A would not do: it has fewer bits, and so fewer degrees of popularity.)

use kvdrive_sim::Rng;

/// Draws of one table.
#[derive(Clone, Debug)]
pub(super) struct NuRand {
    a: u64,
    c: u64,
    /// The first number of the whole table, and how many there are.
    first: u64,
    rows: u64,
    /// For each row of the whole table, the kept row that replaces it; empty for a whole table.
    stands_for: Vec<u32>,
}

impl NuRand {
    /// NURand(A, `first`, `first + rows - 1`) with the constant C, over a table of which one in `shrink` rows
    /// is kept.
    pub fn new(a: u64, c: u64, (first, rows): (u64, u64), shrink: u64, seed: u64) -> NuRand {
        let mut draws = NuRand { a, c, first, rows, stands_for: Vec::new() };
        if shrink > 1 {
            draws.stands_for = draws.shrunk_to((rows / shrink) as u32, shrink, seed);
        }
        draws
    }

    /// The index of a row, from 0.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        let (or, plain) = (rng.below(self.a + 1), self.first + rng.below(self.rows));
        let row = ((or | plain) + self.c) % self.rows;
        self.stands_for.get(row as usize).copied().unwrap_or(row as u32)
    }

    /// For each row of the whole table, the index of the kept row that replaces it.
    fn shrunk_to(&self, kept: u32, shrink: u64, seed: u64) -> Vec<u32> {
        let weights = self.weights();
        let mut by_popularity: Vec<u32> = (0..self.rows as u32).collect();
        by_popularity.sort_by_key(|row| std::cmp::Reverse(weights[*row as usize]));
        // Popular rows are not neighbours in the whole table either.
        let mut places: Vec<u32> = (0..kept).collect();
        let mut rng = Rng::stream(seed, "tpcc.rows");
        for last in (1..places.len()).rev() {
            places.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let mut stands_for = vec![0; self.rows as usize];
        for (rank, row) in by_popularity.into_iter().enumerate() {
            let place = (rank as u64 / shrink).min(u64::from(kept) - 1);
            stands_for[row as usize] = places[place as usize];
        }
        stands_for
    }

    /// For each row, the number of pairs of equally likely draws that give it.
    fn weights(&self) -> Vec<u64> {
        let low = self.a + 1;
        assert!(low.is_power_of_two(), "A is a number of ones");
        let mut weights = vec![0; self.rows as usize];
        let last = self.first + self.rows - 1;
        for high in (self.first / low)..=(last / low) {
            // v = p | q, with p the low bits of the plain draw and q the draw from 0 to A. All bits of p are in v,
            // and q has those bits of v that p lacks; the bits of q that p has are free.
            let free = |p: u64| match (self.first..=last).contains(&(high * low + p)) {
                true => 1_u64 << p.count_ones(),
                false => 0,
            };
            let mut ways: Vec<u64> = (0..low).map(free).collect();
            for bit in (0..low.ilog2()).map(|bit| 1_usize << bit) {
                for v in (0..ways.len()).filter(|v| v & bit != 0) {
                    ways[v] += ways[v ^ bit];
                }
            }
            for (v, ways) in (0..).zip(ways) {
                weights[((high * low + v + self.c) % self.rows) as usize] += ways;
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_all_pairs_of_draws() {
        let draws = NuRand::new(15, 9, (1, 100), 1, 1);
        let mut counted = vec![0; 100];
        for or in 0..16 {
            for plain in 1..=100 {
                counted[(((or | plain) + 9) % 100) as usize] += 1;
            }
        }
        assert_eq!(draws.weights(), counted);
    }

    /// The same share of the rows has the same share of the draws, however many rows there are.
    #[test]
    fn a_table_with_a_part_of_its_rows_has_the_same_popularity() {
        let share = |shrink: u64, of: usize| {
            let draws = NuRand::new(8191, 77, (1, 100_000), shrink, 1);
            let mut counts = vec![0_u32; (100_000 / shrink) as usize];
            let mut rng = Rng::stream(3, "test");
            (0..400_000).for_each(|_| counts[draws.draw(&mut rng) as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let popular: u32 = counts[..counts.len() / of].iter().sum();
            f64::from(popular) / 400_000.0
        };
        for of in [2, 10, 30] {
            let (whole, part, least) = (share(1, of), share(16, of), share(256, of));
            assert!((part / whole - 1.0).abs() < 0.06, "1/{of}: {part} for {whole}");
            assert!((least / whole - 1.0).abs() < 0.08, "1/{of}: {least} for {whole}");
        }
    }
}
