//! A page as descriptors: the form that medium `tags` keeps, and how bytes are read out of it in place.
//!
//! One string of bytes, numbers of variable length (`v`), zeros left out:
//!
//! ```text
//!   head length u8 | kind u8 | flags u8 | v erases | v lpa | v sequence | tag length u8 | tag | group | group | ...
//!   group:  v (repetitions << 1 | two shapes) | shape | shape? | contents of every repetition
//!   shape:  v gap of zeros before it | v (length << 1 | is pattern) | pattern: v offset
//!   content of a shape:  pattern: seed u64;  literal: the bytes
//! ```
//!
//! Pairs of one size are one group, so that the first byte of any of them is found by a division.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Placed, Region, zeros};
use kvdrive_sim::TaskCell;

use crate::spare::{Spare, TAG_BYTES};

/// Bytes that the processor loads at a time.
pub(super) const CACHE_LINE_BYTES: usize = 64;

/// A page without patterns and with at least this many literal bytes is shared instead of copied.
const SHARE_BYTES: usize = 1024;
/// Literal bytes are examined in stretches of this size: a stretch of zeros becomes a gap. Shorter gaps would
/// save little and would split a page of sections, which is read often, into many runs.
const STRETCH_BYTES: usize = 256;
/// Fewer zeros than this at the end of a run stay in the run. A key that ends with a few zeros must have the
/// same shape as its neighbours, so that they make one group.
const TRAILING_ZEROS: usize = 16;
const FLAG_LOST: u8 = 1;
const FLAG_DISCARDED: u8 = 2;

/// A page's header and data. Clones share the bytes.
#[derive(Clone)]
pub struct Packed {
    bytes: Rc<[u8]>,
    /// Where a continued read starts to search: a group, and the byte of the page at which it begins.
    mark: Cell<(u32, u32)>,
}

impl Packed {
    /// Is it the very memory that `other` is?
    pub(super) fn is_same(&self, other: &Packed) -> bool {
        Rc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// Packs a page; `scratch` is a reusable buffer.
    pub fn pack(data: &Region, spare: &Spare, scratch: &mut Vec<u8>) -> Packed {
        // Packed in `scratch` and copied: shrinking an allocation in place would leave a hole of its former
        // size.
        scratch.clear();
        pack_spare(scratch, spare, 0);
        pack_region(scratch, data);
        Packed::of(scratch)
    }

    fn of(bytes: &[u8]) -> Packed {
        Packed { bytes: bytes.into(), mark: Cell::new((bytes[0].into(), 0)) }
    }

    /// The header of a page whose data was freed.
    pub fn discarded(spare: &Spare) -> Packed {
        let mut out = Vec::with_capacity(96);
        pack_spare(&mut out, spare, FLAG_DISCARDED);
        Packed::of(&out)
    }

    /// Was the data freed?
    pub fn is_discarded(&self) -> bool {
        self.bytes[2] & FLAG_DISCARDED != 0
    }

    /// Size of the packed form in bytes.
    pub fn packed_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The page's header.
    pub fn spare(&self) -> Spare {
        unpack_spare(&self.bytes)
    }

    /// [`Spare::lost`] of its header.
    pub fn is_lost(&self) -> bool {
        self.bytes[2] & FLAG_LOST != 0
    }

    /// Passes `bytes` bytes of the page from `at` on to `sink`.
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let mark = self.mark.get();
        let mut place = if mark.1 <= at { RunPlace::at_mark(mark) } else { self.front() };
        place.read(&self.bytes, at, bytes, sink);
        self.mark.set(place.mark);
    }

    /// A reader from front to back.
    pub fn forward(&self) -> Forward<'_> {
        Forward { packed: self, place: TaskCell::new(self.front()) }
    }

    /// The position before its first run.
    fn front(&self) -> RunPlace {
        RunPlace::at_mark((self.bytes[0].into(), 0))
    }

    /// Touches all of it: a few cache lines.
    pub fn meet(&self) {
        self.bytes.iter().step_by(CACHE_LINE_BYTES).for_each(|byte| _ = black_box(*byte));
    }

    /// The data as a region.
    pub fn unpack(&self) -> Region {
        let mut literal = Vec::new();
        let mut patterns = Vec::new();
        let mut place = self.front();
        while let Some(run) = place.next_run(&self.bytes) {
            match run.slice(run.at, run.end()) {
                Piece::Bytes(bytes) => {
                    literal.resize(run.at as usize, 0);
                    literal.extend_from_slice(bytes);
                }
                Piece::Pattern(pattern) => patterns.push(Placed { at: run.at, pattern }),
            }
        }
        Region::from_parts(literal, patterns).expect("patterns were packed in order")
    }
}

/// A page with the position after the last read.
pub struct Forward<'a> {
    packed: &'a Packed,
    place: TaskCell<RunPlace>,
}

impl Forward<'_> {
    /// [`Packed::read`].
    pub fn read(&self, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let mut place = self.place.borrow_mut();
        if place.here > at {
            *place = self.packed.front();
        }
        place.read(&self.packed.bytes, at, bytes, sink);
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let (byte, rest) = bytes.split_first().expect("a packed page is whole");
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn pack_spare(out: &mut Vec<u8>, spare: &Spare, flags: u8) {
    let begin = out.len();
    out.push(0);
    out.push(spare.kind);
    out.push(flags | if spare.lost { FLAG_LOST } else { 0 });
    put(out, spare.block_erases.into());
    put(out, spare.lpa);
    put(out, spare.sequence);
    let used = spare.tag.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    out.push(used as u8);
    out.extend_from_slice(&spare.tag[..used]);
    out[begin] = (out.len() - begin) as u8;
}

fn unpack_spare(bytes: &[u8]) -> Spare {
    let (kind, flags) = (bytes[1], bytes[2]);
    let mut rest = &bytes[3..];
    let block_erases = take(&mut rest) as u32;
    let lpa = take(&mut rest);
    let sequence = take(&mut rest);
    let used = usize::from(take_bytes(&mut rest, 1)[0]);
    let mut tag = [0; TAG_BYTES];
    tag[..used].copy_from_slice(take_bytes(&mut rest, used));
    Spare { kind, lost: flags & FLAG_LOST != 0, block_erases, lpa, sequence, tag }
}

/// The shape of a run: everything except its content.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct RunShape {
    /// Zeros between the run before and this one.
    gap: u32,
    bytes: u32,
    /// `Some`: the pattern's offset in its stream.
    pattern: Option<u32>,
}

impl RunShape {
    fn content_bytes(&self) -> usize {
        if self.pattern.is_some() { 8 } else { self.bytes as usize }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        put(out, self.gap.into());
        put(out, u64::from(self.bytes) << 1 | u64::from(self.pattern.is_some()));
        if let Some(offset) = self.pattern {
            put(out, offset.into());
        }
    }

    fn unpack(bytes: &mut &[u8]) -> RunShape {
        let gap = take(bytes) as u32;
        let length = take(bytes);
        let pattern = (length & 1 == 1).then(|| take(bytes) as u32);
        RunShape { gap, bytes: (length >> 1) as u32, pattern }
    }
}

/// A run in its page, its content still packed.
struct Run<'a> {
    at: u32,
    shape: RunShape,
    content: &'a [u8],
}

impl<'a> Run<'a> {
    fn end(&self) -> u32 {
        self.at + self.shape.bytes
    }

    /// Bytes `from .. to` of the page, which lie inside the run.
    fn slice(&self, from: u32, to: u32) -> Piece<'a> {
        let skip = from - self.at;
        match self.shape.pattern {
            None => Piece::Bytes(&self.content[skip as usize..(to - self.at) as usize]),
            Some(offset) => {
                let seed = u64::from_le_bytes(self.content.try_into().expect("8 bytes"));
                Piece::Pattern(Pattern { seed, offset: offset + skip, bytes: to - from })
            }
        }
    }
}

/// A position before a run of a packed page.
struct RunPlace {
    /// Where its content begins in the packed bytes, or the next group if none is left of this one.
    at: usize,
    /// First byte of the page after the previous run.
    here: u32,
    /// Where the present group begins, and the byte of the page there.
    mark: (u32, u32),
    shapes: [RunShape; 2],
    period: usize,
    /// Shape of the run, and repetitions that are left with it.
    next: usize,
    left: u32,
}

impl RunPlace {
    fn at_mark(mark: (u32, u32)) -> RunPlace {
        let (at, here) = (mark.0 as usize, mark.1);
        RunPlace { at, here, mark, shapes: Default::default(), period: 0, next: 0, left: 0 }
    }

    /// `false`: there is no further group.
    fn open_group(&mut self, packed: &[u8]) -> bool {
        let mut rest = &packed[self.at..];
        if rest.is_empty() {
            return false;
        }
        self.mark = (self.at as u32, self.here);
        let head = take(&mut rest);
        self.period = 1 + (head & 1) as usize;
        self.left = (head >> 1) as u32;
        self.next = 0;
        for shape in &mut self.shapes[..self.period] {
            *shape = RunShape::unpack(&mut rest);
        }
        self.at = packed.len() - rest.len();
        true
    }

    /// Passes `bytes` bytes of the page from `at` on to `sink`; `at` is not before the next run.
    fn read(&mut self, packed: &[u8], at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        let (mut here, end) = (at, at + bytes);
        self.skip_to(packed, at);
        while here < end {
            let Some(run) = self.next_run(packed) else { break };
            if run.end() <= here {
                self.skip_to(packed, here);
                continue;
            }
            let (from, to) = (run.at.clamp(here, end), run.end().min(end));
            zeros(from - here, sink);
            here = from;
            if from < to {
                sink(run.slice(from, to));
                here = to;
            }
        }
        zeros(end - here, sink);
    }

    /// Skips repetitions that end at or before `at`, unless the position is inside one.
    fn skip_to(&mut self, packed: &[u8], at: u32) {
        while self.next == 0 && (self.left > 0 || self.open_group(packed)) {
            let shapes = &self.shapes[..self.period];
            let span: u32 = shapes.iter().map(|shape| shape.gap + shape.bytes).sum();
            if at - self.here < span {
                return;
            }
            let content_bytes: usize = shapes.iter().map(RunShape::content_bytes).sum();
            let passed = ((at - self.here) / span).min(self.left);
            self.here += passed * span;
            self.at += passed as usize * content_bytes;
            self.left -= passed;
            if self.left > 0 {
                return;
            }
        }
    }

    fn next_run<'a>(&mut self, packed: &'a [u8]) -> Option<Run<'a>> {
        if self.left == 0 && !self.open_group(packed) {
            return None;
        }
        let shape = self.shapes[self.next];
        let at = self.here + shape.gap;
        self.here = at + shape.bytes;
        self.next += 1;
        if self.next == self.period {
            self.next = 0;
            self.left -= 1;
        }
        let content = &packed[self.at..][..shape.content_bytes()];
        self.at += content.len();
        Some(Run { at, shape, content })
    }
}

/// Is so much of `literal` not zero that packing it would save less than half?
pub fn is_large_and_filled(literal: &[u8]) -> bool {
    let filled = || literal.chunks(STRETCH_BYTES).filter(|stretch| !is_zero(stretch)).count();
    literal.len() >= SHARE_BYTES && 2 * filled() * STRETCH_BYTES >= literal.len()
}

/// Every page is scanned when it is programmed: a cache line at a time, of which a processor compares all bytes at once.
#[inline]
fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<CACHE_LINE_BYTES>();
    lines.iter().all(|line| line.iter().fold(0, |any, byte| any | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// A run of a region: its shape and its content.
enum Content<'a> {
    Seed(u64),
    Literal(&'a [u8]),
}

fn runs(data: &Region) -> Vec<(RunShape, Content<'_>)> {
    let mut runs = Vec::with_capacity(2 * data.patterns().len() + 1);
    // End of the previous run: gaps count from here.
    let mut packed = 0;
    for placed in data.patterns() {
        let at = placed.at as usize;
        packed = push_literal(&mut runs, data.literal(), packed, at);
        let shape = RunShape {
            gap: (at - packed) as u32,
            bytes: placed.pattern.bytes,
            pattern: Some(placed.pattern.offset),
        };
        runs.push((shape, Content::Seed(placed.pattern.seed)));
        packed = at + placed.pattern.bytes as usize;
    }
    push_literal(&mut runs, data.literal(), packed, data.literal().len());
    runs
}

/// Adds the runs of `literal` from the end of the previous run, byte `packed`, to byte `to`. Returns the end
/// of the last run.
fn push_literal<'a>(
    runs: &mut Vec<(RunShape, Content<'a>)>,
    literal: &'a [u8],
    mut packed: usize,
    to: usize,
) -> usize {
    let mut at = packed;
    let mut rest = literal.get(at..to.min(literal.len())).unwrap_or_default();
    while !rest.is_empty() {
        let zero = is_zero(&rest[..rest.len().min(STRETCH_BYTES)]);
        let alike = rest.chunks(STRETCH_BYTES).take_while(|stretch| is_zero(stretch) == zero);
        let bytes = alike.map(<[u8]>::len).sum();
        let (stretches, after) = rest.split_at(bytes);
        if !zero {
            let first = zeros_in_front(stretches);
            let end = 1 + stretches.iter().rposition(|byte| *byte != 0).expect("the first stretch has one");
            let end = if bytes - end < TRAILING_ZEROS { bytes } else { end };
            let shape =
                RunShape { gap: (at + first - packed) as u32, bytes: (end - first) as u32, pattern: None };
            runs.push((shape, Content::Literal(&stretches[first..end])));
            packed = at + end;
        }
        at += bytes;
        rest = after;
    }
    packed
}

/// Number of zeros at the start.
fn zeros_in_front(bytes: &[u8]) -> usize {
    let words = bytes.as_chunks::<8>().0.iter().take_while(|word| u64::from_ne_bytes(**word) == 0).count();
    8 * words + bytes[8 * words..].iter().take_while(|byte| **byte == 0).count()
}

fn pack_region(out: &mut Vec<u8>, data: &Region) {
    let runs = runs(data);
    let mut at = 0;
    while at < runs.len() {
        let repeats = |period: usize| {
            let shape = |index: usize| runs.get(index).map(|(shape, _)| *shape);
            let more = (at + period..runs.len()).take_while(|index| shape(*index) == shape(index - period));
            1 + more.count() / period
        };
        let pairs = if at + 1 < runs.len() { repeats(2) } else { 0 };
        let (period, count) = if pairs > 1 { (2, pairs) } else { (1, repeats(1)) };
        put(out, (count as u64) << 1 | (period as u64 - 1));
        runs[at..at + period].iter().for_each(|(shape, _)| shape.pack(out));
        for (_, content) in &runs[at..at + period * count] {
            match content {
                Content::Seed(seed) => out.extend_from_slice(&seed.to_le_bytes()),
                Content::Literal(bytes) => out.extend_from_slice(bytes),
            }
        }
        at += period * count;
    }
}
