//! The results of wrong recoveries and journals, as data: mutants. `crash` has to notice each of them on every engine;
//! otherwise it would not notice the mistake that the mutant represents.
//!
//! A mutant changes the survivors of a power cut (the medium and the protected image) before a correct drive
//! recovers from them. The checks that follow cannot tell whether the drive left a page out or never wrote
//! it.

use kvdrive_content::Region;
use kvdrive_flash::media::{self, Media, MediaPage, PageData};
use kvdrive_flash::power::Survivors;
use kvdrive_flash::{BlockId, Geometry, Ppa, Spare};
use kvdrive_sim::Rng;

/// A row of [`MUTANTS`].
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The mistake that it represents, in a line.
    pub stands_for: &'static str,
    /// Changes the survivors; `false` if they have nothing that it could change.
    spoil: fn(&mut Spoiled<'_>) -> bool,
}

/// Every mutant.
pub static MUTANTS: &[Mutant] = &[
    Mutant {
        name: "page-left-out",
        stands_for: "a program that was acknowledged never reached flash",
        spoil: |spoiled| spoiled.blank(1, 0),
    },
    Mutant {
        name: "root-before-nodes",
        stands_for: "the newest page is on flash, but the pages programmed before it, to which it refers, are not",
        spoil: |spoiled| spoiled.blank(8, 1),
    },
    Mutant {
        name: "sync-skipped",
        stands_for: "nothing that was programmed since the previous cut is on flash",
        spoil: |spoiled| spoiled.take_earlier_medium(),
    },
    Mutant {
        name: "records-dropped",
        stands_for: "the journal lacks the records since the previous cut; acknowledgements came too early",
        spoil: |spoiled| spoiled.take_earlier_image(),
    },
    Mutant {
        name: "older-page-kept",
        stands_for: "of two versions of a page, the older one is used",
        spoil: |spoiled| spoiled.forget_newest_versions(),
    },
    Mutant {
        name: "torn-page-accepted",
        stands_for: "a page with other bytes than those written passes its check",
        spoil: |spoiled| spoiled.alter(),
    },
    Mutant {
        name: "page-misdirected",
        stands_for: "pages hold the data of other pages, under headers of their own",
        spoil: |spoiled| spoiled.misdirect(),
    },
];

impl Mutant {
    /// Changes the survivors of a drive whose medium is `kind`, given the survivors of the cut before.
    pub fn spoil(
        &self,
        (kind, geometry): (&str, &Geometry),
        survivors: &mut Survivors,
        earlier: Option<&Survivors>,
        rng: &mut Rng,
    ) -> bool {
        let medium =
            media::from_image(kind, geometry, &survivors.media).expect("a drive has made this image");
        let mut spoiled = Spoiled {
            newest_first: newest_first(&*medium),
            medium,
            survivors,
            earlier,
            rng,
            is_replaced: false,
        };
        let is_spoilt = (self.spoil)(&mut spoiled);
        let Spoiled { medium, is_replaced, .. } = spoiled;
        if is_spoilt && !is_replaced {
            survivors.media = medium.image();
        }
        is_spoilt
    }
}

/// The survivors while a mutant changes them.
struct Spoiled<'a> {
    medium: Box<dyn Media>,
    /// Programmed pages, newest first.
    newest_first: Vec<(Ppa, Spare)>,
    survivors: &'a mut Survivors,
    earlier: Option<&'a Survivors>,
    rng: &'a mut Rng,
    /// `survivors` has another medium or image by now, so the changes in `medium` are dropped.
    is_replaced: bool,
}

fn newest_first(medium: &dyn Media) -> Vec<(Ppa, Spare)> {
    let geometry = *medium.geometry();
    let mut pages = Vec::new();
    for block in (0..geometry.blocks()).map(BlockId) {
        for page in 0..medium.programmed_pages(block) {
            let ppa = geometry.ppa(block, page);
            if let MediaPage::Programmed(spare) = medium.read_spare(ppa) {
                pages.push((ppa, spare));
            }
        }
    }
    pages.sort_by_key(|(ppa, spare)| (std::cmp::Reverse(spare.sequence), ppa.0));
    pages
}

impl Spoiled<'_> {
    /// Makes `count` pages look erased, beginning with one of the newest; the `keep` newest pages stay.
    fn blank(&mut self, count: usize, keep: usize) -> bool {
        let first = keep + if keep == 0 { self.rng.below(16) as usize } else { 0 };
        let chosen: Vec<Ppa> =
            self.newest_first.iter().skip(first).take(count).map(|(ppa, _)| *ppa).collect();
        chosen.iter().for_each(|ppa| self.medium.blank(*ppa));
        !chosen.is_empty()
    }

    fn take_earlier_medium(&mut self) -> bool {
        let earlier = self.earlier.filter(|earlier| earlier.media != self.survivors.media);
        if let Some(earlier) = earlier {
            self.survivors.media.clone_from(&earlier.media);
            self.is_replaced = true;
        }
        earlier.is_some()
    }

    fn take_earlier_image(&mut self) -> bool {
        let earlier = self.earlier.filter(|earlier| earlier.protected != self.survivors.protected);
        if let Some(earlier) = earlier {
            self.survivors.protected.clone_from(&earlier.protected);
            self.is_replaced = true;
        }
        earlier.is_some()
    }

    /// Makes the newest version look erased, for logical pages with two versions on flash.
    fn forget_newest_versions(&mut self) -> bool {
        let mut newest = std::collections::BTreeMap::new();
        let mut chosen = Vec::new();
        for (ppa, spare) in &self.newest_first {
            // Pages are visited newest first, so a second page of the same kind and address is older.
            match newest.insert((spare.kind, spare.lpa), *ppa) {
                Some(newer) if chosen.len() < 16 => chosen.push(newer),
                _ => {}
            }
        }
        chosen.iter().for_each(|ppa| self.medium.blank(*ppa));
        !chosen.is_empty()
    }

    /// Changes every byte of some pages, and their checks to match.
    fn alter(&mut self) -> bool {
        let page_bytes = self.medium.geometry().page_bytes;
        let mut altered = 0;
        for (ppa, spare) in self.chosen(16) {
            let MediaPage::Programmed(data) = self.medium.read(ppa) else { continue };
            let mut bytes = data.into_region().to_bytes(page_bytes);
            bytes.iter_mut().for_each(|byte| *byte ^= 0x40);
            self.medium.blank(ppa);
            let data = PageData::Region(std::rc::Rc::new(Region::from_bytes(bytes)));
            self.medium.program(ppa, &data, &spare);
            altered += 1;
        }
        altered > 0
    }

    /// Gives pages the data of the pages that were programmed before or after them.
    fn misdirect(&mut self) -> bool {
        let mut moved = 0;
        for pair in self.chosen(16).chunks_exact(2) {
            let (MediaPage::Programmed(first), MediaPage::Programmed(second)) =
                (self.medium.read(pair[0].0), self.medium.read(pair[1].0))
            else {
                continue;
            };
            for ((ppa, spare), data) in [(pair[0], second), (pair[1], first)] {
                self.medium.blank(ppa);
                self.medium.program(ppa, &data, &spare);
            }
            moved += 1;
        }
        moved > 0
    }

    /// Some pages of the newer half.
    fn chosen(&mut self, count: usize) -> Vec<(Ppa, Spare)> {
        let newer = self.newest_first.len().div_ceil(2).max(count).min(self.newest_first.len());
        let from = self.rng.below((newer.saturating_sub(count) + 1) as u64) as usize;
        self.newest_first.iter().skip(from).take(count).copied().collect()
    }
}
