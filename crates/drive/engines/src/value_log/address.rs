//! Where a value lies, and how its pages are marked on flash.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::Placement;

use super::record::Head;
use crate::page_buffer::PageKind;

/// Byte address of a value in the log: logical page x page size + offset within the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct Vaddr(pub u64);

/// Kind of value pages in the spare area.
pub const VALUE_PAGE_KIND: u8 = b'V';

/// Pages of a value that leave the buffer one by one. Those of a longer one leave it side by side, and go to all dies.
const FEW_PAGES: u32 = 2;

/// The use of a head's pages, in the segment of this opening, which is freed as a whole, for a value on `pages` pages.
pub(super) fn page_kind(head: Head, opening: u64, pages: u32) -> PageKind {
    let purpose = match head {
        Head::Host | Head::Large => Purpose::Value,
        Head::Gc => Purpose::ValueGc,
    };
    let mut tag = [0; 48];
    tag[..8].copy_from_slice(&opening.to_le_bytes());
    let placement = match pages <= FEW_PAGES {
        true => Placement::Together(opening),
        false => Placement::TogetherWide(opening),
    };
    PageKind { purpose, kind: VALUE_PAGE_KIND, tag, placement }
}
