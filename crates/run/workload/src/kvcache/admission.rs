//! The choice of missing blocks that a cache of a language model stores. Flash wears with every store, and
//! most blocks of a public trace are never requested again. The block that is evicted for an admitted one is
//! the policy's choice (`eviction.rs`).
//!
//! A new admission is one struct with its row in [`ADMISSIONS`].

use std::collections::HashSet;

use super::eviction::BlockId;
use super::requests::BLOCK_TOKENS;

/// A block that was requested and is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its number.
    pub block: BlockId,
    /// Tokens in it; the last block of a request may have fewer than the others.
    pub tokens: u64,
}

/// Decides about each missing block, in the order of the requests.
pub trait Admission: Send {
    /// Is it stored?
    fn admits(&mut self, missing: Missing) -> bool;
}

/// One admission of the table.
pub struct AdmissionRow {
    /// Its name in `workload.cache_admission`.
    pub name: &'static str,
    /// What it stores, and its source, in one line.
    pub origin: &'static str,
    /// Builds it.
    pub build: fn() -> Box<dyn Admission>,
}

/// Every admission.
pub static ADMISSIONS: &[AdmissionRow] = &[
    AdmissionRow {
        name: "all",
        origin: "every missing block, as Mooncake's NVMe KV backend does",
        build: || Box::new(All),
    },
    AdmissionRow {
        name: "second-use",
        origin: "a block that was requested before; the host remembers the numbers of all blocks",
        build: || Box::new(SecondUse::default()),
    },
    AdmissionRow {
        name: "full",
        origin: "a block of 512 tokens; a request's shorter last block is not stored (LMCache)",
        build: || Box::new(Full),
    },
];

struct All;

impl Admission for All {
    fn admits(&mut self, _missing: Missing) -> bool {
        true
    }
}

/// Remembers every block that was requested: 8 bytes each.
#[derive(Default)]
struct SecondUse {
    seen: HashSet<BlockId>,
}

impl Admission for SecondUse {
    fn admits(&mut self, missing: Missing) -> bool {
        !self.seen.insert(missing.block)
    }
}

struct Full;

impl Admission for Full {
    fn admits(&mut self, missing: Missing) -> bool {
        missing.tokens == BLOCK_TOKENS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the admissions that store a block of `tokens` tokens on its first and on its second
    /// request.
    fn admitting(tokens: u64) -> [Vec<&'static str>; 2] {
        let mut first_and_second = [Vec::new(), Vec::new()];
        for row in ADMISSIONS {
            let mut admission = (row.build)();
            for names in &mut first_and_second {
                if admission.admits(Missing { block: 9, tokens }) {
                    names.push(row.name);
                }
            }
        }
        first_and_second
    }

    #[test]
    fn each_admission_stores_what_its_row_says() {
        assert_eq!(admitting(512), [vec!["all", "full"], vec!["all", "second-use", "full"]]);
        assert_eq!(admitting(511), [vec!["all"], vec!["all", "second-use"]]);
    }
}
