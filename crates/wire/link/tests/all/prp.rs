//! Walking physical region pages.

use std::rc::Rc;

use kvdrive_content::expanding;
use kvdrive_link::HostMemory;
use kvdrive_link::prp::{Segment, walk};
use kvdrive_nvme::{Sqe, Status, opcode};
use proptest::prelude::*;

use super::scattered::Scattered;

const PAGE: u64 = 4096;
const ENTRIES_PER_PAGE: usize = 512;

/// The segments that `prp1` and `prp2` name for `named` bytes, up to the first `bytes`, and the list bytes
/// that were fetched.
fn walked_first(
    memory: &Scattered,
    (prp1, prp2): (u64, u64),
    named: u32,
    bytes: u32,
) -> Result<(Vec<Segment>, u64), Status> {
    let mut sqe = Sqe::new(opcode::STORE, 0, 1);
    sqe.set_prps(prp1, prp2);
    let mut list_bytes = 0;
    let segments = walk(&sqe, named, bytes, &mut |address, out| {
        list_bytes += out.len() as u64;
        memory.read(address, out.len() as u32, &mut expanding(out))
    })?;
    assert_eq!(segments.iter().count(), segments.len());
    assert_eq!(segments.is_empty(), bytes == 0);
    Ok((segments.iter().collect(), list_bytes))
}

/// As [`walked_first`], for all `bytes` bytes that are named.
fn walked(memory: &Rc<Scattered>, prp1: u64, prp2: u64, bytes: u32) -> Result<(Vec<Segment>, u64), Status> {
    walked_first(memory, (prp1, prp2), bytes, bytes)
}

fn segment(address: u64, bytes: u32) -> Segment {
    Segment { address, bytes }
}

#[test]
fn nothing_names_nothing() {
    assert_eq!(walked(&Rc::default(), 3, 5, 0), Ok((vec![], 0)), "not even looked at");
}

#[test]
fn one_or_two_pages_need_no_list() {
    let memory = Rc::default();
    for bytes in [1, 35, 4096] {
        assert_eq!(walked(&memory, 0x7000, 1, bytes), Ok((vec![segment(0x7000, bytes)], 0)));
    }
    let two = |prp1, bytes, first, second| {
        let expected = vec![segment(prp1, first), segment(0x3000, second)];
        assert_eq!(walked(&memory, prp1, 0x3000, bytes), Ok((expected, 0)));
    };
    two(0x7000, 4097, 4096, 1);
    two(0x7000, 8192, 4096, 4096);
    // A first page entered in its middle.
    two(0x7ffc, 5, 4, 1);
    two(0x7ffc, 4100, 4, 4096);
    assert_eq!(walked(&memory, 0x7ffc, 1, 4), Ok((vec![segment(0x7ffc, 4)], 0)));
}

#[test]
fn three_pages_need_a_list_of_two_entries() {
    let memory = Rc::new(Scattered::default());
    memory.put_list(0x9000, &[0x3000, 0x1000, 0xdead]);
    let expected = vec![segment(0x7000, 4096), segment(0x3000, 4096), segment(0x1000, 1)];
    assert_eq!(walked(&memory, 0x7000, 0x9000, 8193), Ok((expected, 16)));
}

#[test]
fn entries_that_are_not_aligned_are_refused() {
    let memory = Rc::new(Scattered::default());
    let refused = Err(Status::PRP_OFFSET_INVALID);
    for prp1 in [0x7001, 0x7002, 0x7ffe] {
        assert_eq!(walked(&memory, prp1, 0, 1), refused);
    }
    assert_eq!(walked(&memory, 0x7000, 0x3004, 8192), refused, "a second page begins at its first byte");
    memory.put_list(0x9000, &[0x3000, 0x1004]);
    assert_eq!(walked(&memory, 0x7000, 0x9000, 8193), refused, "so does every later one");
    for list in [0x9001, 0x9004] {
        assert_eq!(walked(&memory, 0x7000, list, 8193), refused, "a list begins at an entry");
    }
}

#[test]
fn a_list_that_is_not_mapped_is_refused() {
    let memory = Rc::new(Scattered::default());
    let refused = Err(Status::DATA_TRANSFER_ERROR);
    assert_eq!(walked(&memory, 0x7000, 0x9000, 8193), refused);
    assert_eq!(walked(&memory, 0x7000, u64::MAX - 7, 8193), refused);
    // The second list page of a chain.
    let mut entries = vec![0x3000; ENTRIES_PER_PAGE];
    entries[ENTRIES_PER_PAGE - 1] = 0xa000;
    memory.put_list(0x9000, &entries);
    assert_eq!(walked(&memory, 0x7000, 0x9000, 4096 * 514), refused);
}

#[test]
fn a_chain_that_names_no_pages_ends() {
    let memory = Rc::new(Scattered::default());
    // The only slot of this list page is the last one, so it names the next list page: the same page.
    memory.put_list(0x9ff8, &[0x9ff8]);
    assert_eq!(walked(&memory, 0x7000, 0x9ff8, 2 << 20), Err(Status::DATA_TRANSFER_ERROR));
}

/// Lays out lists for `pages` further pages, with the first list `skipped` entries into its page. Returns the
/// address of the first list, the pages it names, and the number of entries, chain pointers included.
fn lay_out(memory: &Scattered, pages: usize, skipped: usize) -> (u64, Vec<u64>, u64) {
    let named: Vec<u64> = (0..pages as u64).map(|page| (1 << 40) + (page * 7_919 % 9_973) * PAGE).collect();
    let list_page = |number: u64| (2 << 40) + number * 3 * PAGE;
    let (mut number, mut skip, mut rest, mut entries_total) = (0, skipped, &named[..], 0);
    loop {
        let room = ENTRIES_PER_PAGE - skip;
        let address = list_page(number) + skip as u64 * 8;
        if rest.len() <= room {
            memory.put_list(address, rest);
            return (list_page(0) + skipped as u64 * 8, named.clone(), entries_total + rest.len() as u64);
        }
        let (here, later) = rest.split_at(room - 1);
        let mut entries = here.to_vec();
        entries.push(list_page(number + 1));
        memory.put_list(address, &entries);
        entries_total += room as u64;
        (number, skip, rest) = (number + 1, 0, later);
    }
}

proptest! {
    #[test]
    fn lists_of_any_length_and_offset_name_what_they_name(
        bytes in 8_193u32..3 << 20,
        offset in 0u64..1_024,
        skipped in prop_oneof![Just(0usize), 500usize..512, 0usize..512],
        share in 0u64..=1_000,
    ) {
        let memory = Rc::new(Scattered::default());
        let prp1 = 0x7000 + offset * 4;
        let in_first = (PAGE - offset * 4) as u32;
        let left = bytes - in_first;
        prop_assume!(left > 4_096);
        let (list, named, entries) = lay_out(&memory, left.div_ceil(4096) as usize, skipped);
        let (segments, list_bytes) = walked(&memory, prp1, list, bytes).expect("a sound list");
        prop_assert_eq!(segments[0], segment(prp1, in_first));
        let addresses: Vec<u64> = segments[1..].iter().map(|segment| segment.address).collect();
        prop_assert_eq!(&addresses, &named);
        prop_assert_eq!(segments.iter().map(|segment| u64::from(segment.bytes)).sum::<u64>(), u64::from(bytes));
        prop_assert!(segments[1..segments.len() - 1].iter().all(|segment| segment.bytes == 4096));
        prop_assert_eq!(list_bytes, entries * 8, "lists are fetched only as far as needed");

        // The beginning of the same memory is the same memory, and only the needed part of its lists is
        // fetched.
        let first_bytes = (u64::from(bytes) * share / 1_000) as u32;
        let (first, fetched_bytes) = walked_first(&memory, (prp1, list), bytes, first_bytes).expect("sound");
        prop_assert_eq!(first.iter().map(|segment| segment.bytes).sum::<u32>(), first_bytes);
        for (first, whole) in first.iter().zip(&segments) {
            prop_assert_eq!(first.address, whole.address);
        }
        let pointers = entries - named.len() as u64;
        let fetched = fetched_bytes / 8;
        prop_assert!(fetched <= (first.len() as u64).saturating_sub(1) + pointers, "{fetched} entries");
    }

    #[test]
    fn any_entries_and_any_lists_end_in_segments_or_a_status(
        prp1 in any::<u64>(), prp2 in prop_oneof![any::<u64>(), 0x9000u64..0xa000],
        bytes in 0u32..4 << 20,
        list in proptest::collection::vec(prop_oneof![any::<u64>(), 0x9000u64..0xa000, Just(0x9ff8), Just(0x9000)], 512),
    ) {
        let memory = Rc::new(Scattered::default());
        memory.put_list(0x9000, &list);
        if let Ok((segments, _)) = walked(&memory, prp1, prp2, bytes) {
            prop_assert_eq!(segments.iter().map(|segment| u64::from(segment.bytes)).sum::<u64>(), u64::from(bytes));
            prop_assert!(segments.iter().all(|segment| segment.bytes > 0 && segment.bytes <= 4096));
        }
    }
}
