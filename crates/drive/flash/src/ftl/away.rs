//! Logical pages that were trimmed and not written since. After a power cut the translation layer does not
//! know what was trimmed (the old page may be found again), so owners that need to know keep one bit per page
//! in power-protected memory. An owner that starts with all pages marked as away can tell whether an unmapped
//! page was lost.
//!
//! ```text
//!   part of an image   bit n of the bitmap, lowest first, is set while logical page n is away
//!   record             kind (u8: 1 away, 2 there) | first page (u32) | pages (u32)
//! ```

use crate::power::ImageError;

const AWAY: u8 = 1;
const THERE: u8 = 2;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 9;

/// The logical pages that are away: deallocated and not written since, or never written.
#[derive(Clone)]
pub struct AwayPages(Vec<u8>);

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

    /// Decodes the part of an image. The image must be of a drive with as many pages.
    pub fn from_part(part: &[u8], pages: u32) -> Result<AwayPages, ImageError> {
        let beyond = part.last().is_some_and(|last| !pages.is_multiple_of(8) && last >> (pages % 8) > 0);
        if part.len() != AwayPages::bytes(pages) || beyond {
            return Err(ImageError::new(0, format!("it is of a drive with other than {pages} pages")));
        }
        Ok(AwayPages(part.to_vec()))
    }

    /// Encodes the part of an image.
    pub fn to_part(&self) -> Vec<u8> {
        self.0.clone()
    }

    /// The record of a change: `pages` pages from `first` on are now away, or present.
    pub fn record(first: u32, pages: u32, is_away: bool) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[0] = if is_away { AWAY } else { THERE };
        record[1..5].copy_from_slice(&first.to_le_bytes());
        record[5..].copy_from_slice(&pages.to_le_bytes());
        record
    }

    /// Applies a record.
    pub fn apply(&mut self, record: &[u8], pages: u32) -> Result<(), ImageError> {
        let wrong = || ImageError::new(0, "a record of its pages says nothing that this program knows");
        let record: &[u8; RECORD_BYTES] = record.try_into().map_err(|_| wrong())?;
        let word =
            |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (first, count) = (word(1), word(5));
        let end = first.checked_add(count).filter(|end| *end <= pages).ok_or_else(wrong)?;
        let is_away = match record[0] {
            AWAY => true,
            THERE => false,
            _ => return Err(wrong()),
        };
        (first..end).for_each(|page| self.set(page, is_away));
        Ok(())
    }
}
