//! Medium `ram`: real bytes in memory. Patterns are expanded when a page is programmed, so that the layers
//! above see bytes as with a real drive; a page takes memory up to the last byte written.

use std::rc::Rc;

use kvdrive_content::Region;

use super::data::PageData;
use super::memory::{Format, Keep, Memory};
use super::{MediaKind, image};
use crate::spare::{BoxedSpare, Spare};

/// The row of `ram` in [`super::MEDIA`].
pub const KIND: MediaKind = MediaKind {
    name: "ram",
    origin: "real bytes in memory, which is allocated page by page",
    has_file: false,
    open: |geometry, options| Ok(Box::new(Memory::<RamPage>::new(geometry, options.identity))),
    from_image: |geometry, bytes| Ok(Box::new(image::read::<RamPage>(geometry, bytes)?)),
};

/// A page as real bytes.
#[derive(Clone)]
pub struct RamPage {
    data: Rc<Region>,
    spare: BoxedSpare,
}

impl Keep for RamPage {
    const FORMAT: Format = Format::Bytes;

    fn keep(data: &PageData, spare: &Spare, _scratch: &mut Vec<u8>) -> RamPage {
        let data = match data {
            PageData::Region(region) if region.patterns().is_empty() => region.clone(),
            data => Rc::new(Region::from_bytes(data.to_bytes(data.written_end()))),
        };
        RamPage { data, spare: BoxedSpare::new(spare) }
    }

    fn data(&self) -> PageData {
        PageData::Region(self.data.clone())
    }

    fn spare(&self) -> Spare {
        self.spare.spare()
    }

    fn is_lost(&self) -> bool {
        self.spare.is_lost()
    }

    /// Keeps the data: a real drive has the bytes of invalid pages, too.
    fn let_go(&mut self) {}

    fn has_data(&self) -> bool {
        true
    }
}
