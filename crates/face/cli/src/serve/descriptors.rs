//! How many connections hosts may have: the process has a limited number of file descriptors, and some of them are for
//! the drive's files, the page and the control socket, which must be reachable with any number of hosts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not for hosts.
const RESERVED: u64 = 128;

/// Raises the limit of descriptors as far as this process may, and returns how many of them hosts may have.
pub fn for_connections() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, it stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(of(descriptors)).unwrap_or(usize::MAX)
}

/// All but the reserved ones; half of them where there are few.
fn of(descriptors: u64) -> u64 {
    descriptors.saturating_sub(RESERVED).max(descriptors / 2)
}

#[cfg(test)]
mod tests {
    #[test]
    fn some_descriptors_are_kept_for_the_drive_and_its_observers() {
        assert_eq!([64, 1024, u64::MAX].map(super::of), [32, 896, u64::MAX - 128]);
    }
}
