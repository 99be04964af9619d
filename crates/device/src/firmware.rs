//! The firmware's cores, and which of them takes a step of what kind.
//!
//! Work is charged where it is done, with `cores.of(role).run_noted(...)`; this file knows no steps, and of
//! costs only how a copy's come about.

use std::rc::Rc;

use kvdrive_sim::{Ns, Resource, Sim};

/// What copying `bytes` bytes takes: `setup_ns`, and so much a KiB.
#[inline]
pub fn copy_ns(bytes: u32, setup_ns: Ns, ns_per_kib: Ns) -> Ns {
    setup_ns + (u64::from(bytes) * ns_per_kib).div_ceil(1024)
}

/// What a step of firmware is for. The emulator of the Plus paper gives each of these a core (section V-A);
/// its fourth looks for sections to evict and leaves their eviction to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What a command waits for but copies: decoding, looking its key up, completing it.
    Dispatch,
    /// Copying between a command and the buffers.
    Copy,
    /// Garbage collection, flushes and compaction.
    Collection,
    /// Writing altered sections of a hash table, which then leave its cache.
    Eviction,
}

impl Role {
    /// Every role, in the order of the enumeration, and the name of its core in reports.
    pub const ALL: [(Role, &'static str); 4] = [
        (Role::Dispatch, "firmware.dispatch"),
        (Role::Copy, "firmware.copy"),
        (Role::Collection, "firmware.collection"),
        (Role::Eviction, "firmware.eviction"),
    ];
}

/// How steps are dealt out to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    /// So many cores, any of which takes any step.
    Any(u32),
    /// Each role has a core of its own.
    Own,
}

/// The cores of one drive. Clones are the same cores.
#[derive(Clone)]
pub struct Cores {
    /// By role; all the same one when any core takes any step.
    by_role: [Rc<Resource>; Role::ALL.len()],
}

impl Cores {
    /// Cores that nobody uses yet.
    pub fn new(sim: &Sim, roles: Roles) -> Cores {
        let by_role = match roles {
            Roles::Any(cores) => {
                let pool = Rc::new(Resource::new(sim, "firmware.cores", cores));
                std::array::from_fn(|_| pool.clone())
            }
            Roles::Own => Role::ALL.map(|(_, name)| Rc::new(Resource::new(sim, name, 1))),
        };
        Cores { by_role }
    }

    /// Who takes steps of `role`.
    #[inline]
    pub fn of(&self, role: Role) -> &Rc<Resource> {
        &self.by_role[role as usize]
    }

    /// Every core, or the pool, once.
    pub fn resources(&self) -> &[Rc<Resource>] {
        let [first, second, ..] = &self.by_role;
        if Rc::ptr_eq(first, second) { &self.by_role[..1] } else { &self.by_role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_nanosecond_of_copying_is_one() {
        let times = [0, 1, 1023, 1024, 1025].map(|bytes| copy_ns(bytes, 50, 250));
        assert_eq!(times, [50, 51, 300, 300, 301]);
    }

    #[test]
    fn every_role_has_the_core_of_its_name_or_the_pool() {
        let sim = Sim::new();
        let (own, any) = (Cores::new(&sim, Roles::Own), Cores::new(&sim, Roles::Any(3)));
        for (role, name) in Role::ALL {
            assert_eq!((own.of(role).name(), own.of(role).statistics().servers), (name, 1));
            assert_eq!((any.of(role).name(), any.of(role).statistics().servers), ("firmware.cores", 3));
        }
        assert_eq!((own.resources().len(), any.resources().len()), (4, 1));
    }
}
