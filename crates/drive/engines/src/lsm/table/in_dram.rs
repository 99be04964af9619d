//! The part of a table that is in the budget of DRAM ([`crate::dram`]): its list, and its pages by kind.

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};

use super::Table;
use crate::dram::Kind;
use crate::lsm::layout::{PageBytes, Part, TableFacts};
use crate::lsm::space::{PageName, TableDram};

/// Bytes that firmware keeps of a table besides its keys: 44 B with two keys of 4 B, as published.
const TABLE_BYTES: usize = 36;
/// Bytes beside each first key of a list: the address of its page.
const ADDRESS_BYTES: usize = 4;

/// Bytes of the list of a table: its bounds, and the first keys that lead to a page.
pub(super) fn list_bytes(facts: &TableFacts) -> u64 {
    let of_key = |key: &Key| (key.len() + ADDRESS_BYTES) as u64;
    let bounds = (TABLE_BYTES + facts.min.len() + facts.max.len()) as u64;
    bounds + facts.fences.iter().map(of_key).sum::<u64>()
}

impl Table {
    pub(super) fn name(&self, part: Part, number: u32) -> PageName {
        (self.facts.id, part, number)
    }

    /// Bytes of its list.
    pub fn list_bytes(&self) -> u64 {
        self.list_bytes
    }

    /// Was it replaced, so that its pinned pages are in DRAM no more?
    #[inline]
    pub fn has_left_dram(&self) -> bool {
        self.pinned.get() && self.obsolete.get()
    }

    /// Whether its list is in DRAM, and whether its pages are to be.
    pub fn set_in_dram(&self, dram: &TableDram, listed: bool, pinned: bool) {
        self.listed.set(listed);
        if pinned != self.pinned.replace(pinned) {
            let kind_of = |name: &PageName| self.kind(name.1);
            dram.change_kind(self.name(Part::Data, 0), self.name(Part::Bloom, u32::MAX), kind_of);
        }
        for (part, number, data) in self.written.take() {
            if pinned {
                let page = self.space.bytes_of(data);
                dram.offer(Kind::Pinned, self.name(part, number), self.space.page_bytes(), &page);
            }
        }
    }

    /// Offers a page that was read. The table may have been replaced meanwhile: nothing would drop the page then.
    pub(super) fn keep(&self, dram: &TableDram, part: Part, number: u32, page: &PageBytes) {
        dram.note_miss(self.kind(part));
        if !self.obsolete.get() {
            dram.offer(self.kind(part), self.name(part, number), self.space.page_bytes(), page);
        }
    }

    fn kind(&self, part: Part) -> Kind {
        match part {
            _ if self.pinned.get() => Kind::Pinned,
            Part::Bloom => Kind::Filters,
            Part::Data | Part::Index => Kind::Pages,
        }
    }

    /// Finds the page that the list leads to for `key`. Where the list is not in DRAM, it is found by bisection of the
    /// pages themselves; a table without first keys has its bounds in its footer, which is on the last index page.
    pub fn search_list(&self, key: &Key, purpose: Purpose, reads: &mut u32) -> Result<(), Status> {
        let Some(dram) = self.space.dram() else { return Ok(()) };
        dram.note_list(self.listed.get());
        if self.listed.get() {
            return Ok(());
        }
        let (mut low, mut high) = (0, self.facts.fences.len() as u32 + 1);
        let part = if high == self.facts.data_pages { Part::Data } else { Part::Index };
        if high == 1 && !self.is_lost() {
            self.read_page(Part::Index, self.facts.index_pages - 1, purpose, reads)?;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            self.read_page(part, middle, purpose, reads)?;
            if self.facts.fences[middle as usize - 1] <= *key { low = middle } else { high = middle }
        }
        Ok(())
    }
}
