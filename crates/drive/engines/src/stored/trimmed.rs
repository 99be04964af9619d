//! Which pages of a store are trimmed, and the number of the next write: state that image, records and pages share.

use std::collections::BTreeSet;

use kvdrive_flash::ftl::Lpa;
use kvdrive_flash::ftl::away::AwayPages;
use kvdrive_flash::spare::TAG_BYTES;

/// The state of pages in a protected image.
pub struct Trimmed {
    /// Pages that are trimmed.
    pub away: AwayPages,
    /// Number of the next write.
    pub next_write: u64,
    /// The number of the next write when pages were last trimmed. Pages written with this number or a higher one were
    /// written after that trim, whatever the image says of them.
    pub next_write_at_trim: u64,
    /// Pages that the present recovery has trimmed, which flash keeps until it ends; `None`: no recovery is under way.
    pub held: Option<BTreeSet<u32>>,
}

/// Higher than the number of any write: no drive writes so many pages. A page with such a number is refused.
pub const MOST_WRITES: u64 = 1 << 60;

impl Trimmed {
    /// The state in an image.
    pub fn new(away: AwayPages, next_write: u64) -> Trimmed {
        Trimmed { away, next_write, next_write_at_trim: next_write, held: None }
    }

    /// Marks a page as trimmed; `true` if flash has to keep it for now.
    pub fn trim(&mut self, Lpa(page): Lpa) -> bool {
        self.away.set(page, true);
        self.held.as_mut().map(|held| held.insert(page)).is_some()
    }

    /// The page was written again, so flash need not keep its old content.
    pub fn release(&mut self, Lpa(page): Lpa) {
        self.held.as_mut().map(|held| held.remove(&page));
    }

    /// Is the page trimmed while flash keeps its old content?
    pub fn holds(&self, Lpa(page): Lpa) -> bool {
        self.held.as_ref().is_some_and(|held| held.contains(&page))
    }

    /// Recovery has found the page on flash with this tag. It counts as written if its number is not below `of_image`.
    pub fn found(&mut self, Lpa(page): Lpa, tag: &[u8; TAG_BYTES], of_image: u64) {
        let number = u64::from_le_bytes(tag[..8].try_into().expect("8 bytes"));
        if (of_image..MOST_WRITES).contains(&number) {
            self.away.set(page, false);
            self.next_write = self.next_write.max(number + 1);
        }
    }

    /// The tag of the next write.
    pub fn tag(&mut self) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&self.next_write.to_le_bytes());
        self.next_write += 1;
        tag
    }
}
