//! The effect of a power cut on the operations in flight.

use kvdrive_sim::Rng;

use super::{FlashPort, InFlight};
use crate::geometry::BlockId;
use crate::media::Media;

/// The state in which a power cut leaves an operation.
#[derive(Clone, Copy)]
enum CutState {
    Before,
    Halfway,
    Done,
}

impl CutState {
    const OF_A_CUT: [CutState; 3] = [CutState::Before, CutState::Halfway, CutState::Done];
}

impl FlashPort {
    /// The content of the medium if the power were cut at this instant. A program in flight is not there,
    /// torn or done; an erase in flight is not begun, done, or has left any page untouched, torn or looking
    /// erased; `rng` decides. If a unit has several programs in flight, none has begun before the previous one is done.
    /// For a read-only drive: the content of its flash when it became read-only.
    pub fn media_image(&self, rng: &mut Rng) -> Vec<u8> {
        self.image_after(&mut |rng| CutState::OF_A_CUT[rng.below(3) as usize], rng)
    }

    /// As [`FlashPort::media_image`], without torn pages: an operation in flight has not begun or is done.
    pub fn untorn_media_image(&self, rng: &mut Rng) -> Vec<u8> {
        self.image_after(&mut |rng| if rng.one_in(2) { CutState::Before } else { CutState::Done }, rng)
    }

    /// The content of the medium if every operation in flight were left as `left` decides.
    fn image_after(&self, left: &mut dyn FnMut(&mut Rng) -> CutState, rng: &mut Rng) -> Vec<u8> {
        let core = &*self.0;
        if self.is_frozen() {
            return core.media.borrow().image();
        }
        let mut media = core.media.borrow().fork();
        for unit in &core.units {
            for operation in &*unit.in_flight.borrow() {
                let left = left(rng);
                self.cut(operation, left, &mut *media, rng);
                if !matches!(left, CutState::Done) || operation.fails() {
                    break;
                }
            }
        }
        media.image()
    }

    /// Applies to `media` the part of an operation that a power cut leaves.
    fn cut(&self, operation: &InFlight, left: CutState, media: &mut dyn Media, rng: &mut Rng) {
        match (operation, left) {
            (_, CutState::Before) => {}
            (InFlight::Program { ppa, fails: true, .. }, _) => media.tear(self.on_medium(*ppa)),
            (InFlight::Program { ppa, .. }, CutState::Halfway) => media.tear(self.on_medium(*ppa)),
            (InFlight::Program { ppa, data, spare, .. }, CutState::Done) => {
                media.program(self.on_medium(*ppa), data, spare);
            }
            (InFlight::Erase { fails: true, .. }, CutState::Done) => {}
            (InFlight::Erase { block, .. }, CutState::Halfway) => {
                self.half_erase(media, self.block_on_medium(*block), rng);
            }
            (InFlight::Erase { block, .. }, CutState::Done) => media.erase(self.block_on_medium(*block)),
        }
    }

    fn half_erase(&self, media: &mut dyn Media, block: BlockId, rng: &mut Rng) {
        for page in 0..media.programmed_pages(block) {
            let ppa = self.0.geometry.ppa(block, page);
            match rng.below(3) {
                0 => {}
                1 => media.tear(ppa),
                _ => media.blank(ppa),
            }
        }
    }
}
