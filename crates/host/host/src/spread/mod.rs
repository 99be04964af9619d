//! Several drives that share the keys, used as one. Each pair is on one of them.
//!
//! | item | what |
//! |---|---|
//! | [`Spread`] | which drive has a key, by rendezvous hashing |
//! | [`Pipeline`] | connections to several drives as one [`crate::Pipelined`]; if a drive is lost, calls to its keys fail and the others continue |
//! | [`Fronted`] | the same with SAKER in front of each drive |
//! | [`Share`] | counters of one drive's commands |
//!
//! Nothing is stored twice: this is not redundancy. The pairs of a lost drive are readable again when the
//! drive is.

mod fronted;
mod gathered;
mod pipeline;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use fronted::Fronted;
pub use pipeline::{Pipeline, Share, Tally};

/// Which of several drives has a key. Each drive has a name, and a key is on the drive that scores highest
/// for it (rendezvous hashing): the order of the names does not matter, and one more drive takes keys from
/// all others and moves none between them.
///
/// ```
/// # use kvdrive_host::spread::Spread;
/// let three = Spread::new(&["a:4420", "b:4420", "c:4420"])?;
/// let four = Spread::new(&["a:4420", "b:4420", "c:4420", "d:4420"])?;
/// let before = three.place(b"user42");
/// assert!([before, 3].contains(&four.place(b"user42")));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spread {
    /// A hash seed for the name of each drive.
    seeds: Vec<u64>,
}

impl Spread {
    /// The spread over drives with these names.
    ///
    /// # Errors
    /// There is no name, or two are the same.
    pub fn new<N: AsRef<str>>(names: &[N]) -> Result<Spread, String> {
        if names.is_empty() {
            return Err("there is no drive".into());
        }
        for (index, name) in names.iter().enumerate() {
            if names[..index].iter().any(|other| other.as_ref() == name.as_ref()) {
                return Err(format!("{} is named twice", name.as_ref()));
            }
        }
        let seeds = names.iter().map(|name| xxh3_64_with_seed(name.as_ref().as_bytes(), 0)).collect();
        Ok(Spread { seeds })
    }

    /// How many drives there are.
    pub fn drives(&self) -> usize {
        self.seeds.len()
    }

    /// The index of the drive that has `key`.
    pub fn place(&self, key: &[u8]) -> usize {
        let score = |seed: &u64| xxh3_64_with_seed(key, *seed);
        let scores = self.seeds.iter().map(score).enumerate();
        scores.max_by_key(|(_, score)| *score).expect("there is a drive").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["a:4420", "b:4420", "c:4420", "10.0.0.1:4420"];

    fn keys() -> impl Iterator<Item = Vec<u8>> {
        (0..10_000).map(|number| format!("user{number}").into_bytes())
    }

    #[test]
    fn drives_have_equal_parts_and_their_order_does_not_matter() {
        let (spread, mut counts) = (Spread::new(&NAMES).unwrap(), [0; 4]);
        let turned = Spread::new(&[NAMES[2], NAMES[0], NAMES[3], NAMES[1]]).unwrap();
        for key in keys() {
            let place = spread.place(&key);
            counts[place] += 1;
            assert_eq!(NAMES[place], [NAMES[2], NAMES[0], NAMES[3], NAMES[1]][turned.place(&key)]);
        }
        // With 2500 keys expected on each drive the standard deviation is 43.
        assert!(counts.iter().all(|count| (2300..2700).contains(count)), "{counts:?}");
    }

    #[test]
    fn one_more_drive_moves_keys_to_itself_alone() {
        let (three, four) = (Spread::new(&NAMES[..3]).unwrap(), Spread::new(&NAMES).unwrap());
        let moved = keys().filter(|key| three.place(key) != four.place(key));
        let moved: Vec<_> = moved.map(|key| four.place(&key)).collect();
        assert!((2300..2700).contains(&moved.len()) && moved.iter().all(|place| *place == 3));
    }

    /// A key stays on the same drive in all revisions, so that stored pairs are found again.
    #[test]
    fn places_stay_what_they_are() {
        let spread = Spread::new(&NAMES).unwrap();
        let places: String =
            (0..32).map(|n| spread.place(format!("user{n}").as_bytes()).to_string()).collect();
        assert_eq!(places, "21110103130003202310020201310321");
    }

    #[test]
    fn names_are_there_and_differ() {
        assert_eq!(Spread::new(&[""; 0]).unwrap_err(), "there is no drive");
        assert_eq!(Spread::new(&["a", "b", "a"]).unwrap_err(), "a is named twice");
    }
}
