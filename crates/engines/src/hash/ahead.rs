//! Units that a lookup takes ahead, as the published emulator does: it computes every hop of a command when the
//! command arrives, and a die is taken from then on for a hop that is still to come. Hops are the section of the
//! key, if it is not in the cache, and every pair on the way, those of other keys too.
//!
//! Where they lie is looked up in the machine's memory, for nothing, as the emulator does. Left out: a section
//! behind the first, which one lookup in some hundred meets; what lies behind a section that another command is
//! reading; the page that a store's pair fills.

use kvdrive_spec::Key;

use super::core::Core;
use super::layout::Grain;
use super::pair::PairHeader;
use super::space::Ahead;

impl Core {
    /// Takes the units of every hop of a lookup of `key`, in their order and in no time.
    pub fn reserve_ahead(&self, key: &Key) -> Ahead {
        let ahead = Ahead::default();
        let take = |grain: Grain| {
            let page = self.layout.page(grain);
            self.space.reserve(page).into_iter().for_each(|unit| ahead.note(page, unit));
        };
        for number in 0..self.config.max_probes {
            let probe = self.probe(key, number as u8);
            if number == 0 {
                self.cache.place_on_flash(probe.section).into_iter().for_each(|it| take(it.grain));
            }
            // None: a slot that nobody has taken, or a section that is on its way to the cache.
            let Some(pair) = self.cache.peek_pair(probe) else { break };
            take(pair);
            if self.peek(pair).is_none_or(|header| header.key == *key) {
                break;
            }
        }
        ahead
    }

    /// Header of the pair at `grain`, out of the machine's memory.
    fn peek(&self, grain: Grain) -> Option<PairHeader> {
        let at = self.layout.byte_in_page(grain);
        let left_bytes = self.layout.unit_begin(at) + self.layout.unit_bytes - at;
        let part = self.space.peek(self.layout.page(grain), at, left_bytes)?;
        PairHeader::read(left_bytes, |bytes, sink| part.read(at, bytes, sink))
    }
}
