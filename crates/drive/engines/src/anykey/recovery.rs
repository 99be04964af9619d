//! Groups after a power cut: out of the pages that the FTL found, and the levels that the protected image names.
//!
//! A group with a page that was not found becomes a scar: what its other pages have is found, and the answer for keys of
//! the lost page is 88h. A group of which nothing was found may have any key.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_flash::ftl::Lpa;
use kvdrive_nvme::Key;

use super::group::{Facts, Group, GroupId, Member, References, Tag};
use super::journal::IndexImage;
use super::levels::{Level, Version};
use crate::lsm::entry::AddressBounds;
use crate::lsm::space::{TABLE_PAGE_KIND, TableSpace};

const LOWEST_KEY: Key = Key::from_padded([0; 16], 1).expect("one byte is a key");

/// The pages of groups that the FTL came across while it rebuilt its map.
#[derive(Default)]
pub struct FoundGroups {
    pages: BTreeMap<GroupId, Vec<(Tag, Lpa)>>,
    /// Pages with the right kind and a tag that makes no sense.
    unknown: Vec<Lpa>,
}

impl FoundGroups {
    /// Takes note of a live page; `false` if it is not a page of a group.
    pub fn found(&mut self, lpa: Lpa, kind: u8, tag: &[u8; 48]) -> bool {
        if kind != TABLE_PAGE_KIND {
            return false;
        }
        match Tag::decode(tag) {
            Some(tag) => self.pages.entry(tag.id).or_default().push((tag, lpa)),
            None => self.unknown.push(lpa),
        }
        true
    }

    /// The highest id on flash, live or not.
    pub fn highest_id(&self) -> Option<GroupId> {
        self.pages.last_key_value().map(|(id, _)| *id)
    }

    /// Builds the groups of the image, claims their pages, and has the FTL forget the pages of all others.
    ///
    /// # Errors
    /// Pages of groups lie where the value log has its data, or two groups of a level have the same keys.
    pub fn rebuild(
        mut self,
        image: &IndexImage,
        space: &Rc<TableSpace>,
        levels: u32,
    ) -> Result<Version, &'static str> {
        let mut lists: Vec<Level> = (0..levels).map(|_| Level::default()).collect();
        for (&id, seat) in &image.groups {
            let pages = self.pages.remove(&id).unwrap_or_default();
            if !space.claim(pages.iter().map(|(_, lpa)| *lpa)) {
                return Err("pages of a group lie in a segment of the value log");
            }
            let group = group_of(id, &pages, space);
            let (is_scar, after) = (seat.is_scar || group.has_lost_pages(), seat.after);
            let member = Member { group: Rc::new(group), after };
            let level = &mut lists[usize::from(seat.level)];
            if is_scar { level.scars.push(member) } else { level.groups.push(member) }
        }
        for level in &mut lists {
            level.groups.sort_by_key(|member| member.group.facts.lowest);
            level.scars.sort_by_key(|member| std::cmp::Reverse(member.id()));
            if level.groups.windows(2).any(|two| two[0].overlaps(&two[1])) {
                return Err("two groups of a level have the same keys");
            }
        }
        let dead = self.pages.into_values().flatten().map(|(_, lpa)| lpa).chain(self.unknown);
        dead.for_each(|lpa| space.ftl().trim(lpa));
        Ok(Version { levels: lists.into_iter().map(Rc::new).collect() })
    }
}

/// The group of these pages.
fn group_of(id: GroupId, pages: &[(Tag, Lpa)], space: &Rc<TableSpace>) -> Group {
    let Some((any, _)) = pages.first() else {
        return Group::new(
            lost_facts(id),
            Box::default(),
            References::Within(AddressBounds::ALL),
            space.clone(),
        );
    };
    let parity =
        |odd: u16| pages.iter().map(|(tag, _)| tag).find(|tag| tag.number % 2 == odd).map(|tag| tag.key);
    let index_pages = u32::from(any.index_pages);
    let total = index_pages as usize + usize::from(any.data_pages);
    let mut places = vec![None; total].into_boxed_slice();
    let mut first_hashes = vec![None; any.data_pages.into()].into_boxed_slice();
    for (tag, lpa) in pages {
        let number = usize::from(tag.number);
        if let Some(place) = places.get_mut(number) {
            *place = Some(*lpa);
        }
        if let Some(first) =
            number.checked_sub(index_pages as usize).and_then(|page| first_hashes.get_mut(page))
        {
            *first = Some(tag.first_hash);
        }
    }
    let facts = Facts {
        id,
        lowest: parity(0).unwrap_or(LOWEST_KEY),
        highest: parity(1).unwrap_or(Key::HIGHEST),
        records: any.records,
        gone: any.gone,
        addresses: any.addresses,
        index_pages,
        first_hashes,
    };
    Group::new(facts, places, References::Within(any.addresses), space.clone())
}

/// Stands for a group of which nothing was found.
fn lost_facts(id: GroupId) -> Facts {
    Facts {
        id,
        lowest: LOWEST_KEY,
        highest: Key::HIGHEST,
        records: 0,
        gone: 0,
        addresses: AddressBounds::ALL,
        index_pages: 0,
        first_hashes: Box::default(),
    }
}
