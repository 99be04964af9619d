//! A value log after a power cut: out of its protected image, over the flash that survived.

use std::collections::BTreeMap;

use kvdrive_sim::Sim;

use super::chain::{Chains, linked};
use super::head::{LogHead, OpenSegment};
use super::protected::{DamagedLog, ProtectedValueLog};
use super::segments::{Life, Segment, Segments};
use super::{Head, LogShape, SegmentId, SegmentPool, ValueLog, ValueLogState, ValueLogStatistics, page_kind};
use crate::page_buffer::PageBuffer;

impl ValueLog {
    /// The log of this image. Takes its segments from the pool and its unstored pages into the buffer, both otherwise
    /// unused. Values that were arriving are lost; segments without live bytes are given back.
    ///
    /// The state of the log may differ from the image: a caller that attaches a journal must [`ValueLog::save`] it
    /// first.
    ///
    /// # Errors
    /// When the image contradicts itself or the drive. Nothing is usable then.
    pub fn restore(
        sim: &Sim,
        shape: &LogShape,
        pool: &SegmentPool,
        buffer: &PageBuffer,
        image: ProtectedValueLog,
    ) -> Result<ValueLog, DamagedLog> {
        let mut segments = Segments::recovered(shape.segments, image.next_opening());
        for (id, segment) in image.segments() {
            if !pool.claim(id) {
                return Err(DamagedLog("a segment that is in use already"));
            }
            segments.restore(id, segment);
        }
        segments.chains = restore_chains(&mut segments)?;
        let lost = Head::PACKED.map(|head| last_lost_page(&image, shape, head));
        let (packings, pages) = image.into_parts();
        let mut heads = packings.map(LogHead::new);
        for head in Head::PACKED {
            restore_window(&mut heads[head as usize], head, &segments, shape)?;
        }
        let state = ValueLogState { heads, segments, statistics: ValueLogStatistics::default() };
        let log = ValueLog::with_state(sim, shape, pool, buffer, state);
        log.skip_lost_pages(lost);
        for (lpa, content) in pages {
            log.restore_page(lpa, content)?;
        }
        log.retire_spent();
        Ok(log)
    }

    /// A page that was left half full and is on flash only gets no more bytes, as if it had left the buffer
    /// now.
    fn skip_lost_pages(&self, lost: [Option<u64>; 2]) {
        for (head, page_end) in Head::PACKED.into_iter().zip(lost) {
            let mut state = self.0.state.borrow_mut();
            let ValueLogState { heads, segments, .. } = &mut *state;
            let head = &mut heads[head as usize];
            if let Some(page_end) = page_end {
                head.packing.skip_to(page_end);
            }
            // Spent segments are retired with all others at the end.
            let _ = self.0.close_passed(head, segments);
        }
    }

    fn restore_page(&self, lpa: u32, content: kvdrive_content::Region) -> Result<(), DamagedLog> {
        let log = &self.0;
        let id = log.pool.segment_of(lpa);
        let state = log.state.borrow();
        let Segment { life, head, base, opening, .. } = *state.segments.get(id);
        let page = u64::from(lpa - log.pool.lpas(id).start);
        let start = base + page * u64::from(log.view.page_bytes);
        let filling = life == Life::Open && start >= state.heads[head as usize].open_from;
        drop(state);
        let room = log.buffer.restore(lpa, page_kind(head, opening, 1), content, filling);
        if room { Ok(()) } else { Err(DamagedLog("it has more pages than the buffer")) }
    }

    fn retire_spent(&self) {
        let state = self.0.state.borrow();
        let spent =
            state.segments.known().map(|(id, _)| id).filter(|id| state.segments.is_spent(*id)).collect();
        drop(state);
        self.0.retire_all(spent);
    }
}

/// The chains of an image. A segment that belongs to no whole chain had an uncommitted value at the power cut, or
/// was being given back with its chain: its live bytes are set to 0.
///
/// # Errors
/// Two segments have the same place.
fn restore_chains(segments: &mut Segments) -> Result<Chains, DamagedLog> {
    let mut found: BTreeMap<SegmentId, BTreeMap<usize, SegmentId>> = BTreeMap::new();
    for (id, segment) in segments.known().filter(|(_, segment)| segment.head == Head::Large) {
        let (first, index) = linked(segment.base);
        let before = found.entry(first).or_default().insert(index, id);
        if before.is_some() {
            return Err(DamagedLog("two segments are the same part of a value"));
        }
    }
    let mut chains = Chains::default();
    for (first, parts) in found {
        let is_whole = parts.get(&0) == Some(&first) && parts.keys().copied().eq(0..parts.len());
        let all_live = parts.values().all(|id| {
            let segment = segments.get(*id);
            segment.live_bytes > 0 && segment.life == Life::Sealed
        });
        if is_whole && all_live {
            chains.insert(parts.into_values().collect());
            continue;
        }
        for id in parts.into_values() {
            segments.forget_live(id);
            if segments.get(id).life == Life::Open {
                segments.seal(id);
            }
        }
    }
    Ok(chains)
}

/// The head's open segments, oldest first, which must be one stretch that the policy's pointers are in.
fn restore_window(
    head: &mut LogHead,
    name: Head,
    segments: &Segments,
    shape: &LogShape,
) -> Result<(), DamagedLog> {
    let open = segments.known().filter(|(_, segment)| segment.life == Life::Open && segment.head == name);
    let mut window: Vec<OpenSegment> =
        open.map(|(id, segment)| OpenSegment { base: segment.base, id }).collect();
    window.sort_by_key(|segment| segment.base);
    let bytes = shape.segment_bytes();
    let (from, to) = (head.packing.oldest_open(), head.packing.frontier());
    let one_stretch = window.windows(2).all(|pair| pair[0].base + bytes == pair[1].base);
    let pointers_inside = match (window.first(), window.last()) {
        (Some(first), Some(last)) => first.base % bytes == 0 && first.base <= from && to <= last.base + bytes,
        _ => from == to,
    };
    if !one_stretch || !pointers_inside {
        return Err(DamagedLog("a head does not fit its segments"));
    }
    head.open_from = shape.view().page_start(from);
    head.window = window.into();
    Ok(())
}

/// End of the last page that the head has begun and may go on filling, but which is not in the image: its
/// first part is on flash only.
fn last_lost_page(image: &ProtectedValueLog, shape: &LogShape, head: Head) -> Option<u64> {
    let (from, to) = image.pointers(head);
    let from = shape.view().page_start(from);
    let mut last = None;
    for (id, segment) in image.segments() {
        if segment.life != Life::Open || segment.head != head {
            continue;
        }
        for (lpa, page) in shape.lpas(id).zip(0u64..) {
            let start = segment.base + page * u64::from(shape.page_bytes);
            if start >= from && start < to && !image.has_page(lpa) {
                last = last.max(Some(start + u64::from(shape.page_bytes)));
            }
        }
    }
    last
}
