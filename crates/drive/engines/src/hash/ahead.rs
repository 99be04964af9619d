//! Reserves flash units for a lookup in advance, as the published emulator does: it computes all hops of a
//! command when the command arrives, and occupies the die of a hop from then on. The hops are the section of
//! the key, if it is not cached, and every pair on the way, including pairs of other keys.
//!
//! Their addresses are read from the machine's memory at no cost, as in the emulator. Not reserved: sections
//! after the first, which about one lookup in some hundred needs; anything beyond a section that another
//! command is reading; the page that a store's pair fills.

use kvdrive_nvme::Key;

use super::core::HashState;
use super::layout::Grain;
use super::pair::PairHeader;
use super::space::Reservations;

impl HashState {
    /// Reserves the units of all hops of a lookup of `key`, in order and in no time.
    pub fn reserve_ahead(&self, key: &Key) -> Reservations {
        let ahead = Reservations::default();
        let take = |grain: Grain| {
            let page = self.layout.page(grain);
            self.space.reserve(page).into_iter().for_each(|unit| ahead.note(page, unit));
        };
        for number in 0..self.config.max_probes {
            let probe = self.probe(key, number as u8);
            if number == 0 {
                self.cache.place_on_flash(probe.section).into_iter().for_each(|it| take(it.grain));
            }
            // `None`: an empty slot, or a section that is being read.
            let Some(pair) = self.cache.peek_pair(probe) else { break };
            take(pair);
            if self.peek(pair).is_none_or(|header| header.key == *key) {
                break;
            }
        }
        ahead
    }

    /// Header of the pair at `grain`, from the machine's memory.
    fn peek(&self, grain: Grain) -> Option<PairHeader> {
        let at = self.layout.byte_in_page(grain);
        let left_bytes = self.layout.unit_begin(at) + self.layout.unit_bytes - at;
        let part = self.space.peek(self.layout.page(grain), at, left_bytes)?;
        PairHeader::read(left_bytes, |bytes, sink| part.read(at, bytes, sink))
    }
}
