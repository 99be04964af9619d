//! Digests of NVMe/TCP: values of every remainder by 4 over connections with each of them.

use super::{Clause, Group};
use crate::ask::{Ask, Outcome, Why, value};
use crate::target::Digests;

const NONE: Digests = Digests { header: false, data: false, padded: false };
const HEADER: Digests = Digests { header: true, ..NONE };
const DATA: Digests = Digests { data: true, ..NONE };
const PADDED: Digests = Digests { padded: true, ..DATA };
const BOTH: Digests = Digests { header: true, ..DATA };

pub(super) static CLAUSES: &[Clause] = &[
    Clause::of(Group::Digests, "T 3.3.2", "digest-header", "values cross with header digests", |ask| {
        cross(ask, HEADER)
    }),
    Clause::of(
        Group::Digests,
        "T 3.3.2",
        "digest-data",
        "values cross with data digests over the exact bytes",
        |ask| cross(ask, DATA),
    )
    .who("Linux computes them so"),
    Clause::of(
        Group::Digests,
        "T 3.3.2",
        "digest-data-padded",
        "values cross with data digests over padded bytes",
        |ask| cross(ask, PADDED),
    )
    .who("SPDK and xNVMe pad with zeros to 4 bytes; a target that knows the exact form only fails them"),
    Clause::of(Group::Digests, "T 3.3.2", "digest-both", "values cross with both digests", |ask| {
        cross(ask, BOTH)
    }),
];

/// Stores and retrieves over a connection with these digests.
fn cross(ask: &mut Ask<'_>, wanted: Digests) -> Outcome {
    let none = || Why::NotOffered("there is no fabric between this host and the controller".to_owned());
    let (mut target, granted) = ask.target().fabric().ok_or_else(none)?.with_digests(wanted)?;
    if granted != wanted {
        return Err(Why::NotOffered("the target declines them, as it may".to_owned()));
    }
    let key = ask.usual_key()?;
    let most = ask.facts.value_max_bytes() as usize;
    ask.by(&mut *target, |by| {
        let sizes = [1, 2, 3, 4, 5, 1001, 4096, 9001, 20_003, 70_001];
        for bytes in sizes.into_iter().filter(|bytes| *bytes <= most) {
            let stored = value(bytes as u8, bytes);
            by.stored(&key, &stored)?;
            by.has(&key, &stored, &format!("the value of {bytes} B"))?;
        }
        Ok(String::new())
    })
}
