//! Pages of a `file` medium whose values leave much of them empty: only the bytes that a value uses are written.
//!
//! A value that arrives by DMA takes whole sectors of 4 KiB, and the rest of its last one is zeros. A page with such gaps is
//! written *packed*:
//!
//! ```text
//!   used bytes of each sector, u16 | the used bytes of sector 0 | of sector 1 | ... | zeros up to a multiple of 4096
//! ```
//!
//! The used bytes of a sector end with its last byte that is not zero. The check in the page's header covers everything before
//! the last zeros, and the header is of the version of packed pages ([`crate::spare`]). Those zeros are written so that no
//! page of the file system is written in part, which the machine would have to read first.

/// Unit in which pages are packed: what a DMA moves at least.
const SECTOR_BYTES: usize = 4096;
/// Bytes of the number before the sectors, each.
const NUMBER_BYTES: usize = 2;
/// Written sizes are multiples of this: the unit of the file system.
const UNIT_BYTES: usize = 4096;

/// Bytes of `sector` up to its last byte that is not zero.
fn used_bytes(sector: &[u8]) -> usize {
    let mut used = sector.len();
    // Piece by piece, since most of a gap is whole pieces.
    while let Some(piece) = sector[..used].last_chunk::<64>()
        && piece.iter().fold(0, |all, byte| all | byte) == 0
    {
        used -= piece.len();
    }
    sector[..used].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Packs `page` into `out`, if that takes at most half of its size. Returns the number of bytes that the check covers.
pub(super) fn pack(page: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    if !page.len().is_multiple_of(SECTOR_BYTES) || most_bytes(page.len()) == page.len() {
        return None;
    }
    let sectors = page.len() / SECTOR_BYTES;
    let (mut room, mut at) = (page.len() / 2, sectors * NUMBER_BYTES);
    room = room.checked_sub(at)?;
    out.clear();
    out.resize(at, 0);
    for (index, sector) in page.chunks_exact(SECTOR_BYTES).enumerate() {
        let used = used_bytes(sector);
        room = room.checked_sub(used)?;
        out[index * NUMBER_BYTES..][..NUMBER_BYTES].copy_from_slice(&(used as u16).to_le_bytes());
        out.extend_from_slice(&sector[..used]);
        at += used;
    }
    out.resize(at.next_multiple_of(UNIT_BYTES), 0);
    Some(at)
}

/// Most bytes that a packed page of `page_bytes` bytes takes.
pub(super) fn most_bytes(page_bytes: usize) -> usize {
    (page_bytes / 2).next_multiple_of(UNIT_BYTES)
}

/// The sizes of the sectors at the front of a packed page of `page_bytes` bytes. `None`: it is no packed page.
fn sizes(packed: &[u8], page_bytes: usize) -> Option<impl Iterator<Item = usize> + '_> {
    let numbers = packed.get(..page_bytes / SECTOR_BYTES * NUMBER_BYTES)?;
    let sizes = || {
        numbers
            .chunks_exact(NUMBER_BYTES)
            .map(|number| usize::from(u16::from_le_bytes([number[0], number[1]])))
    };
    sizes().all(|size| size <= SECTOR_BYTES).then(sizes)
}

/// The number of bytes at the front of `packed` that the check of a packed page of `page_bytes` bytes covers. `None`: it is
/// none.
pub(super) fn packed_bytes(packed: &[u8], page_bytes: usize) -> Option<usize> {
    let bytes = page_bytes / SECTOR_BYTES * NUMBER_BYTES + sizes(packed, page_bytes)?.sum::<usize>();
    (bytes <= packed.len()).then_some(bytes)
}

/// Unpacks a page whose check was right into `page`. `false`: it is no packed page.
pub(super) fn unpack(packed: &[u8], page: &mut [u8]) -> bool {
    let Some(mut at) = packed_bytes(packed, page.len()).map(|_| page.len() / SECTOR_BYTES * NUMBER_BYTES)
    else {
        return false;
    };
    let sizes = sizes(packed, page.len()).expect("it has a number of bytes");
    for (sector, used) in page.chunks_exact_mut(SECTOR_BYTES).zip(sizes) {
        sector[..used].copy_from_slice(&packed[at..at + used]);
        sector[used..].fill(0);
        at += used;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES: usize = 4 * SECTOR_BYTES;

    /// A page whose sectors have so many bytes.
    fn page(sizes: [usize; 4]) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        for (index, size) in sizes.into_iter().enumerate() {
            page[index * SECTOR_BYTES..][..size].fill(index as u8 + 1);
        }
        page
    }

    #[test]
    fn a_page_with_gaps_is_packed_up_to_the_last_byte_of_each_value() {
        for (sizes, written) in [
            ([0; 4], 4096),
            ([100; 4], 4096),
            ([1000, 1022, 1022, 1044], 4096),
            ([1000, 1022, 1023, 1044], 8192),
            ([4096, 0, 1, 63], 8192),
            ([64, 65, 4000, 4055], 8192),
        ] {
            let (page, mut packed) = (page(sizes), vec![7; 3]);
            let bytes = pack(&page, &mut packed).unwrap_or_else(|| panic!("{sizes:?}"));
            assert_eq!((bytes, packed.len()), (8 + sizes.iter().sum::<usize>(), written), "{sizes:?}");
            packed.resize(PAGE_BYTES, 9);
            assert_eq!(packed_bytes(&packed, PAGE_BYTES), Some(bytes));
            let mut again = vec![5; PAGE_BYTES];
            assert!(unpack(&packed, &mut again) && again == page, "{sizes:?}");
        }
        for full in [[4096; 4], [2047; 4], [4096, 4096, 0, 0], [0, 4000, 4000, 300]] {
            assert_eq!(pack(&page(full), &mut Vec::new()), None, "{full:?}");
        }
        for small in [1024, 4096] {
            assert_eq!(pack(&vec![0; small], &mut Vec::new()), None, "{small}: nothing would be gained");
        }
    }

    #[test]
    fn bytes_that_are_no_packed_page_are_refused() {
        let mut page = [3; PAGE_BYTES];
        let numbers = |numbers: [u16; 4]| numbers.map(u16::to_le_bytes).concat();
        for wrong in
            [numbers([4097, 0, 0, 0]), numbers([u16::MAX; 4]), numbers([4096; 4]), vec![0; 7], vec![]]
        {
            let mut bytes = wrong.clone();
            if wrong.len() == 8 {
                bytes.resize(PAGE_BYTES, 1);
            }
            assert!(packed_bytes(&bytes, PAGE_BYTES).is_none() && !unpack(&bytes, &mut page), "{wrong:?}");
        }
        assert_eq!(page, [3; PAGE_BYTES]);
    }
}
