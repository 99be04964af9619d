//! Logical pages that were trimmed and not written since. After a power cut the translation layer does not know which
//! pages were trimmed (the old page may be found again), so owners that need to know keep one bit per page in
//! power-protected memory. An owner that starts with all pages marked as away can tell whether an unmapped page was
//! lost.

use borsh::{BorshDeserialize, BorshSerialize};

use crate::power::ImageError;

/// The logical pages that are away: deallocated and not written since, or never written.
#[derive(Clone, BorshSerialize, BorshDeserialize)]
pub struct AwayPages(Vec<u8>);

/// A record: pages that are away now, or there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct AwayChange {
    /// The first page.
    pub first: u32,
    /// Number of pages.
    pub pages: u32,
    /// Are they away?
    pub is_away: bool,
}

impl AwayPages {
    /// No page is away.
    pub fn none(pages: u32) -> AwayPages {
        AwayPages(vec![0; AwayPages::bytes(pages)])
    }

    /// All pages are away.
    pub fn all(pages: u32) -> AwayPages {
        let mut away = AwayPages(vec![u8::MAX; AwayPages::bytes(pages)]);
        (pages..away.0.len() as u32 * 8).for_each(|beyond| away.set(beyond, false));
        away
    }

    /// Bytes for this many pages.
    pub fn bytes(pages: u32) -> usize {
        pages.div_ceil(8) as usize
    }

    /// Is this page away?
    pub fn has(&self, page: u32) -> bool {
        self.0[page as usize / 8] >> (page % 8) & 1 == 1
    }

    /// Marks a page as away or present.
    pub fn set(&mut self, page: u32, is_away: bool) {
        let (byte, bit) = (&mut self.0[page as usize / 8], 1 << (page % 8));
        *byte = if is_away { *byte | bit } else { *byte & !bit };
    }

    /// The pages that are away.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.0.len() as u32 * 8).filter(|page| self.has(*page))
    }

    /// Checks that an image is of a drive with as many pages.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self, pages: u32) -> Result<(), ImageError> {
        let beyond = self.0.last().is_some_and(|last| !pages.is_multiple_of(8) && last >> (pages % 8) > 0);
        if self.0.len() != AwayPages::bytes(pages) || beyond {
            return Err(ImageError::new(0, format!("it is of a drive with other than {pages} pages")));
        }
        Ok(())
    }

    /// Applies a record of a drive with this many pages.
    ///
    /// # Errors
    /// It names others.
    pub fn apply(&mut self, change: AwayChange, pages: u32) -> Result<(), &'static str> {
        let AwayChange { first, pages: count, is_away } = change;
        let end =
            first.checked_add(count).filter(|end| *end <= pages).ok_or("it names pages beyond the drive")?;
        (first..end).for_each(|page| self.set(page, is_away));
        Ok(())
    }
}
