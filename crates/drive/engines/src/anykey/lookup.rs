//! Finding a key: memtables, then level by level the one group that may have it.
//!
//! A group costs no read if its list of hashes is in DRAM and has not the key's hash; otherwise one page, the last one
//! whose first hash is not above. Only where equal hashes meet at the front of a page is the page before it read, too.

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};

use super::group::Member;
use super::index::{Held, Index};
use super::levels::Level;
use super::page::{Record, hash_of};
use crate::firmware::Role;

impl Index {
    /// The newest state of `key`; `None` if it is in no memtable and no group.
    ///
    /// # Errors
    /// `UNRECOVERED_ERROR`: a page that might have it cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Record>, Status> {
        let (core, probe_ns) = (self.parts.cores.of(Role::Dispatch), self.parts.probe_ns);
        core.run_noted(probe_ns + self.config.hash_ns, "index", "look into the memtable");
        if let Some(entry) = self.find_in_memory(key) {
            return Ok(Some(Record::of_entry(&(*key, entry))));
        }
        let (version, held) = (self.version.borrow().clone(), self.held.borrow().clone());
        let mut reads = 0;
        let mut found = Ok(None);
        for (level, held) in version.levels.iter().zip(held) {
            if level.is_empty() {
                continue;
            }
            core.run_noted(probe_ns, "index", "look into a level");
            found = self.find_in_level(level, held, key, &mut reads);
            if !matches!(found, Ok(None)) {
                break;
            }
        }
        self.dram.note_lookup(reads);
        found
    }

    fn find_in_level(
        &self,
        level: &Level,
        held: Held,
        key: &Key,
        reads: &mut u32,
    ) -> Result<Option<Record>, Status> {
        if let Some(at) = level.at(key) {
            self.search_list(level, at, held.lists, reads)?;
            if let Some(found) = self.find_in_group(&level.groups[at], at < held.hashes, key, reads)? {
                return Ok(Some(found));
            }
        }
        for scar in level.scars.iter().filter(|scar| scar.covers(key)) {
            if let Some(found) = self.find_in_group(scar, false, key, reads)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Entries of a list that are not in DRAM are found by bisection of the groups on flash.
    fn search_list(&self, level: &Level, at: usize, held: usize, reads: &mut u32) -> Result<(), Status> {
        self.dram.note_list(at < held);
        let (mut low, mut high) = (held, level.groups.len());
        while at >= held && low < high {
            let middle = low + (high - low) / 2;
            *reads += 1;
            level.groups[middle].group.touch(Purpose::Lookup)?;
            if middle == at {
                break;
            }
            if middle < at { low = middle + 1 } else { high = middle }
        }
        Ok(())
    }

    fn find_in_group(
        &self,
        member: &Member,
        has_hashes: bool,
        key: &Key,
        reads: &mut u32,
    ) -> Result<Option<Record>, Status> {
        let (group, hash) = (&*member.group, hash_of(key));
        let hashes = group.hashes.borrow().clone().filter(|_| has_hashes);
        self.dram.note_filter(hashes.is_some());
        if hashes.is_some_and(|hashes| hashes.binary_search(&hash).is_err()) {
            self.count(|counters| counters.skipped_groups += 1);
            return Ok(None);
        }
        if group.facts.first_hashes.is_empty() {
            return Err(Status::UNRECOVERED_ERROR);
        }
        let upper = (hash >> 16) as u16;
        let firsts = &group.facts.first_hashes;
        // Pages from the last one that may have the hash down to the first one that must have it if there is one.
        let last = firsts.iter().rposition(|first| first.is_none_or(|first| first <= upper));
        let Some(mut page) = last else { return Ok(None) };
        let mut is_lost = false;
        loop {
            *reads += 1;
            let searched =
                group.data_page(page as u16, Purpose::Lookup).and_then(|page| page.find(key, hash));
            let goes_on = match searched {
                Ok((Some(record), _)) => return Ok(Some(record)),
                Ok((None, may_be_before)) => may_be_before,
                Err(_) => {
                    is_lost = true;
                    // What its first hash is decides whether the page before may have the key.
                    firsts[page].is_none_or(|first| first >= upper)
                }
            };
            if !goes_on || page == 0 {
                break;
            }
            page -= 1;
        }
        if is_lost { Err(Status::UNRECOVERED_ERROR) } else { Ok(None) }
    }
}
