//! The rule by which hosts share memory, as a computation on numbers: which requests are granted, and which hosts may
//! connect. [`crate::buffer`] and [`crate::shared`] act on it.
//!
//! Memory has two parts. One half is cut into *reserves* of equal size. A connected host has one of them, and nobody else
//! can take it, so a host can always move something. The other half is *common*: it goes to hosts that want more than
//! their reserve, and is shared max-min among them. That is: a host that wants less than an equal part gets what it
//! wants, and the others share the rest equally. What a host holds is not taken away; a host with more than its part
//! gets no more until it has returned so much that it has less.
//!
//! Names of hosts are free, so reserves are not: hosts of one network address that did not prove who they are get at most
//! one half of them.
//!
//! The reason for reserves of fixed size is in `docs/decisions/shares-of-hosts.md`.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that a network assigns to one customer or site; its hosts choose the others.
const IPV6_SITE_BITS: u32 = 64;

/// Why a request is not granted at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBuffer {
    /// The host has its part of the common memory: some of its own buffers have to be returned first.
    OverShare,
    /// All hosts together have taken too much of the common memory.
    NoRoom,
}

/// What a host has, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// Its reserve; 0: it has none.
    pub reserve_bytes: usize,
    /// Memory that it holds.
    pub used_bytes: usize,
    /// Does it wait for more?
    pub wants: bool,
}

impl Holding {
    /// Bytes of the common memory that it holds.
    pub fn common_bytes(&self) -> usize {
        self.used_bytes.saturating_sub(self.reserve_bytes)
    }
}

/// The common memory, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// All of it.
    pub bytes: usize,
    /// Held by hosts.
    pub used_bytes: usize,
    /// A host that holds none waits for more than is free: what comes back is for that host.
    pub is_short: bool,
}

/// Does `host` get `asked_bytes` more? Returns how many of them are common. `others` are the other hosts if any of them
/// waits, and otherwise nothing.
///
/// # Errors
/// The reason why not.
pub fn grant(
    common: Common,
    host: Holding,
    asked_bytes: usize,
    others: impl Iterator<Item = Holding> + Clone,
) -> Result<usize, NoBuffer> {
    let before = host.common_bytes();
    let after = Holding { used_bytes: host.used_bytes + asked_bytes, ..host }.common_bytes();
    if after == before {
        return Ok(0);
    }
    // The first request beyond the reserve may be larger than an equal part; otherwise nobody could make it.
    if before > 0 && after > level(common.bytes, others) {
        return Err(NoBuffer::OverShare);
    }
    if common.is_short || common.used_bytes + (after - before) > common.bytes {
        return Err(if before > 0 { NoBuffer::OverShare } else { NoBuffer::NoRoom });
    }
    Ok(after - before)
}

/// Most common memory of a host that wants more, beside these others, bytes: the level to which the memory fills all
/// hosts that want more, while the others keep what they hold.
fn level(bytes: usize, others: impl Iterator<Item = Holding> + Clone) -> usize {
    let all = 1 + others.clone().count();
    let mut level = bytes / all;
    loop {
        let content = others.clone().filter(|other| !other.wants && other.common_bytes() <= level);
        let (count, held) =
            content.fold((0, 0), |(count, held), host| (count + 1, held + host.common_bytes()));
        let next = (bytes - held) / (all - count);
        if next == level {
            return level;
        }
        level = next;
    }
}

/// The reserves of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserves {
    /// Size of each, bytes.
    pub bytes: usize,
    /// How many there are.
    pub count: usize,
}

/// Reserves that a budget should have at least, as far as each of them stays useful.
const WANTED: usize = 128;

impl Reserves {
    /// No reserves: all memory is common.
    pub const NONE: Reserves = Reserves { bytes: 0, count: 0 };

    /// The reserves of a budget of `limit_bytes`: one half of it, in powers of two from `least_bytes` to `most_bytes`,
    /// which are powers of two.
    pub fn of(limit_bytes: usize, least_bytes: usize, most_bytes: usize) -> Reserves {
        let half = limit_bytes / 2;
        let even = (half / WANTED).max(1);
        let bytes = (1 << even.ilog2()).clamp(least_bytes, most_bytes.max(least_bytes));
        Reserves { bytes, count: half / bytes }
    }
}

/// May one more host have a reserve, if `taken` of `all` are taken? `of_address` are those of its address; `None`: the
/// host proves who it is.
pub fn has_reserve(all: usize, taken: usize, of_address: Option<usize>) -> bool {
    taken < all && of_address.is_none_or(|own| own < all / 2)
}

/// The address as which a host counts: all addresses of one IPv6 site are one.
pub fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = u128::BITS - IPV6_SITE_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: usize = 4;

    fn holds(used_bytes: usize) -> Holding {
        Holding { reserve_bytes: RESERVE, used_bytes, wants: false }
    }

    fn wants(used_bytes: usize) -> Holding {
        Holding { wants: true, ..holds(used_bytes) }
    }

    /// Grants units one by one, round robin, until nobody gets any; `want` is what each wants in all.
    fn fill(common_bytes: usize, want: &[usize]) -> Vec<usize> {
        let mut hosts: Vec<Holding> = want.iter().map(|_| wants(0)).collect();
        let mut used_bytes = 0;
        loop {
            let mut any = false;
            for at in 0..hosts.len() {
                let common = Common { bytes: common_bytes, used_bytes, is_short: false };
                hosts[at].wants = hosts[at].used_bytes < want[at];
                let others =
                    hosts.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, host)| *host);
                if hosts[at].wants
                    && let Ok(taken) = grant(common, hosts[at], 1, others)
                {
                    used_bytes += taken;
                    hosts[at].used_bytes += 1;
                    any = true;
                }
            }
            if !any {
                return hosts.iter().map(|host| host.used_bytes).collect();
            }
        }
    }

    #[test]
    fn the_reserve_is_there_whatever_others_hold() {
        let full = Common { bytes: 20, used_bytes: 20, is_short: true };
        let others = [wants(100), holds(7)];
        assert_eq!(grant(full, wants(0), RESERVE, others.into_iter()), Ok(0));
        assert_eq!(grant(full, wants(0), RESERVE + 1, others.into_iter()), Err(NoBuffer::NoRoom));
        assert_eq!(grant(full, wants(RESERVE), 1, others.into_iter()), Err(NoBuffer::NoRoom));
    }

    #[test]
    fn what_is_common_is_shared_max_min() {
        assert_eq!(fill(60, &[100]), [64], "a host alone gets all");
        assert_eq!(fill(60, &[100, 100]), [34, 34]);
        assert_eq!(fill(60, &[100, 100, 100, 3]), [24, 24, 24, 3]);
        assert_eq!(
            fill(60, &[100, 100, 14, 3]),
            [29, 29, 14, 3],
            "10 of 60 are left to the one that wants less"
        );
        assert_eq!(fill(60, &[100; 7]), [12; 7]);
    }

    #[test]
    fn who_holds_more_than_its_part_gets_nothing_until_it_has_less() {
        let common = Common { bytes: 60, used_bytes: 40, is_short: false };
        let ask = |own: usize, other| grant(common, wants(own), 1, [other].into_iter());
        assert_eq!(ask(RESERVE + 40, wants(0)), Err(NoBuffer::OverShare));
        assert_eq!(ask(RESERVE + 40, holds(0)), Ok(1), "nobody else wants any");
        assert_eq!(ask(RESERVE + 29, wants(RESERVE + 11)), Ok(1));
        assert_eq!(ask(RESERVE + 30, wants(RESERVE + 10)), Err(NoBuffer::OverShare));
    }

    #[test]
    fn a_first_request_may_be_larger_than_an_equal_part() {
        let common = Common { bytes: 60, used_bytes: 0, is_short: false };
        let others = vec![wants(0); 59];
        assert_eq!(grant(common, wants(0), 30, others.iter().copied()), Ok(26));
        assert_eq!(grant(common, wants(RESERVE + 1), 1, others.into_iter()), Err(NoBuffer::OverShare));
    }

    #[test]
    fn reserves_are_half_of_the_memory_and_many_where_it_is_enough() {
        let of = |limit| Reserves::of(limit, 8 << 10, 1 << 20);
        assert_eq!(of(48 << 20), Reserves { bytes: 128 << 10, count: 192 });
        assert_eq!(of(1 << 30), Reserves { bytes: 1 << 20, count: 512 });
        assert_eq!(of(64 << 10), Reserves { bytes: 8 << 10, count: 4 });
        for limit in [64 << 10, 100_000, 6 << 20, 48 << 20, 1 << 32] {
            let reserves = of(limit);
            assert!(
                reserves.bytes * reserves.count <= limit / 2 && reserves.count >= 2,
                "{limit}: {reserves:?}"
            );
        }
    }

    #[test]
    fn one_address_gets_at_most_half_of_the_reserves() {
        let all = 96;
        let taken_by = |of_address: usize, others: usize| {
            (0..).take_while(|own| has_reserve(all, others + own, Some(of_address + own))).count()
        };
        assert_eq!((taken_by(0, 0), taken_by(47, 47), taken_by(0, 48), taken_by(0, 90)), (48, 1, 48, 6));
        assert!(has_reserve(all, 95, None) && !has_reserve(all, 96, None));
    }

    #[test]
    fn addresses_of_one_site_are_one() {
        let site = |text: &str| super::site(text.parse().unwrap()).to_string();
        assert_eq!(site("10.0.0.1"), "10.0.0.1");
        assert_eq!(site("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(site("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
