//! Is this a key-value namespace? Clauses of the NVMe Key Value Command Set (and of what it takes from the base
//! specification and from Fabrics) as commands whose answers are judged.
//!
//! ```text
//!   Target ◄── Ask ◄── a clause ◄── clauses()        check() runs every row, in order
//!   tcp | node | in_process         its function     ─► Report: a verdict each, with the bytes that were exchanged
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`target`] | the boundary: send this entry with these data, get the completion and the bytes |
//! | [`tcp`], [`node`], [`in_process`] | targets: a controller on a network; a device of Linux; a drive of this program |
//! | [`ask`] | what clauses are written with: commands, keys of its own, comparisons |
//! | [`mod@clauses`] | the table, and a file of clauses for each group |
//! | [`report`] | verdicts as lines and as JSON |
//!
//! A clause stores pairs only under keys that it has found absent, and removes them. Numbers of sections are those of the
//! KV command set 1.0d; those of the base specification 2.0 begin with B, those of NVMe/TCP 1.0 with T.

pub mod ask;
pub mod clauses;
pub mod in_process;
pub mod node;
pub mod report;
pub mod target;
pub mod tcp;

use std::collections::BTreeSet;

use ask::{Ask, Facts, Keys, Why};
use clauses::{Clause, Group, clauses};
use report::{Judged, Report, Verdict};
use target::{Lost, Target};

/// What is checked.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Also clauses that erase the namespace or fill it.
    pub destructive: bool,
    /// Groups and identifiers of clauses; empty: all.
    pub only: Vec<String>,
}

impl Wanted {
    /// Clauses that are meant.
    fn clauses(&self) -> impl Iterator<Item = &'static Clause> {
        let is_named = |clause: &Clause, name: &String| *name == clause.id || *name == clause.group.name();
        clauses()
            .filter(move |clause| self.only.is_empty() || self.only.iter().any(|name| is_named(clause, name)))
    }

    /// # Errors
    /// A name that is neither a group's nor a clause's: a line that lists the groups.
    pub fn check(&self) -> Result<(), String> {
        let known: BTreeSet<&str> =
            clauses().map(|clause| clause.id).chain(Group::ALL.map(Group::name)).collect();
        match self.only.iter().find(|name| !known.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let groups = Group::ALL.map(Group::name).join(", ");
                Err(format!("{name:?} is no clause and no group; groups: {groups}; `--list` has the clauses"))
            }
        }
    }
}

/// Checks a target; `each` gets every judged clause as soon as there is its verdict.
///
/// # Errors
/// The target cannot be used at all: it has no Identify data of a KV namespace, or the way to it was lost.
pub fn check(
    target: &mut dyn Target,
    wanted: &Wanted,
    each: &mut dyn FnMut(&Judged),
) -> Result<Report, Lost> {
    let facts = Facts::of(target)?;
    let mut keys = Keys::default();
    let mut judged = Vec::new();
    for clause in wanted.clauses() {
        let mut ask = Ask::new(target, &facts, &mut keys);
        let outcome = match clause.destructive && !wanted.destructive {
            true => Err(Why::NotOffered("erases or fills the namespace; --destructive tries it".to_owned())),
            false => (clause.check)(&mut ask),
        };
        let exchanges = ask.into_exchanges();
        let (verdict, told) = match outcome {
            Ok(told) => (Verdict::Pass, told),
            Err(Why::Fail(told)) => (Verdict::Fail, told),
            Err(Why::NotOffered(told)) => (Verdict::NotOffered, told),
            // A target that drops the connection fails the clause, if it can be reached again.
            Err(Why::Lost(lost)) => {
                target.reconnect()?;
                (Verdict::Fail, format!("no completion: {lost}"))
            }
        };
        let one = Judged { clause, verdict, told, exchanges };
        each(&one);
        judged.push(one);
        keys.remove_all(target)?;
    }
    let left = keys.left();
    Ok(Report { target: facts.describe(), judged, left })
}
