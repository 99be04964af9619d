//! The table of clauses. A clause is a row in the file of its group: section, identifier, what it asks, and the function
//! that tries it.

mod delete;
mod digests;
mod fabrics;
mod features;
mod hosts;
mod identify;
mod list;
mod sizes;
mod statuses;
mod store;

use crate::ask::{Ask, Outcome};

/// A group of clauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Identify data.
    Identify,
    /// Store and its options.
    Store,
    /// Keys, values and buffers at their limits.
    Sizes,
    /// List: order, start, padding.
    List,
    /// Exist.
    Exist,
    /// Delete.
    Delete,
    /// Features and log pages.
    Features,
    /// Statuses of commands that are wrong.
    Statuses,
    /// What hosts on a network need.
    Fabrics,
    /// Digests of NVMe/TCP.
    Digests,
    /// Several hosts of one namespace.
    Hosts,
}

impl Group {
    /// All groups, in the order of the report.
    pub const ALL: [Group; 11] = [
        Group::Identify,
        Group::Store,
        Group::Sizes,
        Group::List,
        Group::Exist,
        Group::Delete,
        Group::Features,
        Group::Statuses,
        Group::Fabrics,
        Group::Digests,
        Group::Hosts,
    ];

    /// Its name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Identify => "identify",
            Group::Store => "store",
            Group::Sizes => "sizes",
            Group::List => "list",
            Group::Exist => "exist",
            Group::Delete => "delete",
            Group::Features => "features",
            Group::Statuses => "statuses",
            Group::Fabrics => "fabrics",
            Group::Digests => "digests",
            Group::Hosts => "hosts",
        }
    }
}

/// One clause.
#[derive(Debug)]
pub struct Clause {
    /// Section of the KV command set 1.0d; B: of the base specification 2.0; T: of NVMe/TCP 1.0; -: not said anywhere, and
    /// hosts rely on it.
    pub section: &'static str,
    /// Its name.
    pub id: &'static str,
    /// Its group.
    pub group: Group,
    /// What it asks, in a few words.
    pub asks: &'static str,
    /// Where public implementations disagree: who does what. Empty: no disagreement is known.
    pub who: &'static str,
    /// Does it erase the namespace or fill it?
    pub destructive: bool,
    pub(crate) check: fn(&mut Ask<'_>) -> Outcome,
}

impl Clause {
    const fn of(
        group: Group,
        section: &'static str,
        id: &'static str,
        asks: &'static str,
        check: fn(&mut Ask<'_>) -> Outcome,
    ) -> Clause {
        Clause { section, id, group, asks, who: "", destructive: false, check }
    }

    const fn who(self, who: &'static str) -> Clause {
        Clause { who, ..self }
    }

    const fn destructive(self) -> Clause {
        Clause { destructive: true, ..self }
    }
}

/// The tables of the groups, in the order of the report.
static TABLES: &[&[Clause]] = &[
    identify::CLAUSES,
    store::CLAUSES,
    sizes::CLAUSES,
    list::CLAUSES,
    delete::CLAUSES,
    features::CLAUSES,
    statuses::CLAUSES,
    fabrics::CLAUSES,
    digests::CLAUSES,
    hosts::CLAUSES,
];

/// All clauses, in the order of the report.
pub fn clauses() -> impl Iterator<Item = &'static Clause> {
    TABLES.iter().copied().flatten()
}

/// A clause that passed and has nothing to add.
fn pass() -> Outcome {
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clauses_have_names_of_their_own_and_groups_in_their_order() {
        let names: BTreeSet<_> = clauses().map(|clause| clause.id).collect();
        assert_eq!(names.len(), clauses().count());
        let groups: Vec<usize> = clauses()
            .map(|clause| Group::ALL.iter().position(|group| *group == clause.group).unwrap())
            .collect();
        assert!(groups.is_sorted() && groups.iter().collect::<BTreeSet<_>>().len() == Group::ALL.len());
        for clause in clauses() {
            assert!(
                clause.id.len() <= 26 && clause.section.len() <= 9,
                "{}: the columns of a line",
                clause.id
            );
            assert!(!Group::ALL.iter().any(|group| group.name() == clause.id), "{}", clause.id);
        }
    }
}
