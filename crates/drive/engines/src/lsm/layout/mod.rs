//! The layout of a table on flash. One file for each layout.
//!
//! A table has up to three parts, each a row of NAND pages: **data** (entries in key order), **index** (where to find a
//! key in the data part) and **Bloom** (is the key here at all). A layout turns entries into pages and pages into
//! entries. It does no I/O: [`Scan`] and [`Layout::probe`] return the page that they need next, and their callers read
//! it (`table.rs`, `lookup.rs`).
//!
//! To add a layout: one file here and one row in [`LAYOUTS`]; the oracle tests run over every row.

mod key_class;
mod published;
mod segments;
mod sound;

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::media::PageData;
use kvdrive_nvme::{Key, Status};

pub use key_class::KeyClass;

use super::bloom::{BloomConfig, BloomShape, FilterBuild};
use super::entry::{AddressBounds, Entry, TableId};
use super::memtable::Pair;
use crate::value_log::Vaddr;

/// A part of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Entries in key order.
    Data,
    /// Where keys are in the data part.
    Index,
    /// The filter.
    Bloom,
}

/// The facts that DRAM keeps of a table (the published firmware keeps 44 B of it).
#[derive(Clone, Debug, PartialEq)]
pub struct TableFacts {
    /// Its name.
    pub id: TableId,
    /// Openings of value-log segments there had been when it was begun (see [`super::entry::ValueLiveness`]).
    pub age: u64,
    /// Keys in it.
    pub entries: u32,
    /// Lowest key.
    pub min: Key,
    /// Highest key.
    pub max: Key,
    /// What its entries refer to.
    pub addresses: AddressBounds,
    /// Pages of the data part.
    pub data_pages: u32,
    /// Pages of the index part.
    pub index_pages: u32,
    /// Pages of the Bloom part.
    pub bloom_pages: u32,
    /// First key of every page but the first one of the part that the layout's [`Lists`] are of.
    pub fences: Rc<[Key]>,
    /// Bytes of its longest key.
    pub longest: KeyClass,
}

impl TableFacts {
    /// Pages of a part.
    pub fn pages(&self, part: Part) -> u32 {
        match part {
            Part::Data => self.data_pages,
            Part::Index => self.index_pages,
            Part::Bloom => self.bloom_pages,
        }
    }

    /// Pages of all parts.
    pub fn total_pages(&self) -> u32 {
        self.data_pages + self.index_pages + self.bloom_pages
    }

    /// Position of a page in the table's page list: data, index, Bloom.
    pub fn position(&self, part: Part, number: u32) -> usize {
        let before = match part {
            Part::Data => 0,
            Part::Index => self.data_pages,
            Part::Bloom => self.data_pages + self.index_pages,
        };
        (before + number) as usize
    }

    /// Is `key` between the lowest and the highest key?
    #[inline]
    pub fn covers(&self, key: &Key) -> bool {
        self.min <= *key && *key <= self.max
    }
}

/// The content of a page does not match its checksum, or could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

impl From<Damaged> for Status {
    fn from(_: Damaged) -> Status {
        Status::UNRECOVERED_ERROR
    }
}

/// A page read from flash. Media leave out zeros at its end, and an index page is mostly such zeros: they are not
/// written into memory to be read once ([`View`]).
#[derive(Clone)]
pub struct PageBytes {
    region: Rc<Region>,
    page_bytes: u32,
}

impl PageBytes {
    /// The page of `page_bytes` bytes that `region` holds.
    pub fn new(region: Rc<Region>, page_bytes: u32) -> PageBytes {
        let is_literal = region.patterns().is_empty();
        // Tables hold no patterns. A page that does is not a table's, and its bytes will make no sense.
        let region =
            if is_literal { region } else { Rc::new(Region::from_bytes(region.to_bytes(page_bytes))) };
        PageBytes { region, page_bytes }
    }

    /// Its bytes.
    #[inline]
    pub fn view(&self) -> View<'_> {
        View { bytes: self.region.literal(), page_bytes: self.page_bytes as usize }
    }
}

/// The bytes of a page: those that are there, then zeros up to the page's end.
#[derive(Clone, Copy)]
pub struct View<'a> {
    bytes: &'a [u8],
    page_bytes: usize,
}

impl<'a> View<'a> {
    /// Bytes of the page.
    pub fn page_bytes(self) -> usize {
        self.page_bytes
    }

    /// `N` bytes from `at` on. `Damaged` where they do not lie on the page.
    #[inline]
    pub fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Damaged> {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(array) => Ok(*array),
            None => self.array_at_end(at),
        }
    }

    #[cold]
    fn array_at_end<const N: usize>(self, at: usize) -> Result<[u8; N], Damaged> {
        if at.checked_add(N).is_none_or(|end| end > self.page_bytes) {
            return Err(Damaged);
        }
        let mut array = [0; N];
        let there = self.bytes.get(at..).unwrap_or_default();
        array[..there.len()].copy_from_slice(there);
        Ok(array)
    }

    /// `count` arrays of `N` bytes that follow each other from `at` on. `Damaged` where they do not lie on the page.
    pub fn arrays<const N: usize>(self, at: usize, count: usize) -> Result<Cow<'a, [[u8; N]]>, Damaged> {
        match self.bytes.get(at..at + count * N) {
            Some(bytes) => Ok(Cow::Borrowed(bytes.as_chunks().0)),
            None => (0..count).map(|index| self.array(at + index * N)).collect(),
        }
    }
}

/// A page ready to be programmed.
pub struct BuiltPage {
    /// Its part.
    pub part: Part,
    /// Its place in the part.
    pub number: u32,
    /// Its bytes; zeros at the end may be missing.
    pub data: PageData,
    /// First key on it; none on Bloom pages.
    pub first: Option<Key>,
    /// What its entries refer to.
    pub addresses: AddressBounds,
    /// It says nothing but what its tag says.
    pub is_blank: bool,
}

impl BuiltPage {
    /// A page of these bytes.
    fn new(part: Part, number: u32, bytes: Vec<u8>, first: Key, addresses: AddressBounds) -> BuiltPage {
        let is_blank = bytes.is_empty();
        let data = Rc::new(Region::from_bytes(bytes)).into();
        BuiltPage { part, number, data, first: Some(first), addresses, is_blank }
    }
}

/// Turns entries, pushed in ascending key order, into pages.
pub trait Build {
    /// Adds an entry and says how many pages are complete.
    fn push(&mut self, key: &Key, entry: &Entry) -> usize;

    /// Pages that are complete; the caller takes them out. At least one page is held back until the end.
    fn complete(&mut self) -> &mut Vec<BuiltPage>;

    /// Ends the table: the rest of its pages go to `out` (after those already complete). At least one entry
    /// must have been pushed.
    fn finish(self: Box<Self>, id: TableId, age: u64, out: &mut Vec<BuiltPage>) -> TableFacts;
}

/// Which entries a [`Scan`] returns.
#[derive(Clone, Debug)]
pub enum Start {
    /// All entries.
    First,
    /// Entries with this key or a higher one.
    Key(Key),
    /// Entries whose values touch the addresses; others may be among them.
    Addresses(Range<Vaddr>),
}

/// The next result of a scan.
pub enum ScanStep {
    /// There are more entries.
    Entries,
    /// The scan needs this page: hand it over with [`Scan::give`].
    Read(Part, u32),
    /// The table has no more entries.
    End,
}

/// Pairs that a scan decodes in one step: enough to forget the call, few enough for many scans at a time.
pub const SCAN_CHUNK: usize = 64;

/// Turns the pages of a table into entries in key order.
pub trait Scan {
    /// Appends up to [`SCAN_CHUNK`] of the next entries to `out`, at least one if it returns
    /// [`ScanStep::Entries`] and none otherwise.
    fn step(&mut self, out: &mut Vec<Pair>) -> Result<ScanStep, Damaged>;

    /// Takes the page that was requested last.
    fn give(&mut self, page: PageBytes);

    /// The page that was requested last cannot be read or decoded: continues after it. Entries below the first key of
    /// the scan may be returned after that.
    fn skip(&mut self);
}

/// The part of a table that a lookup needs next.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// Which part.
    pub part: Part,
    /// Which of its pages.
    pub pages: Range<u32>,
    /// A value that the layout gets back with the pages.
    pub carry: u32,
}

/// The next step or the result of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeStep {
    /// Show these pages to [`Layout::judge`].
    Read(Want),
    /// The key's entry in this table.
    Found(Entry),
    /// The table has no entry of the key.
    Absent,
}

/// The first keys that DRAM keeps of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// None.
    Nothing,
    /// Those of index pages, each of which is about this number of data pages.
    IndexPages(u32),
    /// Those of data pages.
    DataPages,
}

/// How tables look; see the module's head.
pub trait Layout {
    /// May this pair be indexed? `INVALID_KEY_SIZE`, `INVALID_VALUE_SIZE` or `CAPACITY_EXCEEDED` (an address
    /// beyond what an entry can hold) if not.
    fn accept(&self, key: &Key, address: Vaddr, bytes: u32) -> Result<(), Status>;

    /// Begins a table of at most `most_entries` entries; the filter is sized for that many.
    fn build(&self, most_entries: u32) -> Box<dyn Build>;

    /// The most pages that a table of `entries` entries with keys up to `longest` takes.
    fn pages_at_most(&self, entries: u32, longest: KeyClass) -> u32;

    /// The pages among which a lookup chooses by [`TableFacts::fences`].
    fn lists(&self) -> Lists;

    /// Begins to read a table's entries.
    fn scan(&self, table: &TableFacts, start: Start) -> Box<dyn Scan>;

    /// First step of a lookup; without `bloom`, the filter is passed over (it could not be read).
    fn probe(&self, table: &TableFacts, key: &Key, bloom: bool) -> ProbeStep;

    /// Next step of a lookup, after `pages` were read because of `want`.
    fn judge(
        &self,
        table: &TableFacts,
        key: &Key,
        want: &Want,
        pages: &[PageBytes],
    ) -> Result<ProbeStep, Damaged>;
}

/// Parameters of every layout.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    /// Bytes of a NAND page.
    pub page_bytes: u32,
    /// The filters.
    pub bloom: BloomConfig,
}

impl TableShape {
    /// The filter of a table of at most `most_entries` entries is begun, with `pages` pages in `regions` equal
    /// regions.
    fn begin_filter(&self, most_entries: u32, pages: u32, regions: u32) -> FilterBuild {
        FilterBuild::new(self.filter(pages, regions), pages, self.page_bytes, most_entries)
    }

    /// The filter of a Bloom part in `regions` equal regions.
    fn filter(&self, bloom_pages: u32, regions: u32) -> BloomShape {
        BloomShape {
            regions,
            region_bytes: bloom_pages / regions * self.page_bytes,
            hashes: self.bloom.hashes,
        }
    }
}

/// A row of [`LAYOUTS`].
pub struct LayoutRow {
    /// Name in configurations.
    pub name: &'static str,
    /// What it is and where it comes from, in a line.
    pub origin: &'static str,
    /// Bytes of value log that its entries can address.
    pub reach_bytes: u64,
    /// Largest value that an entry can have the length of, in bytes.
    pub max_value_bytes: u32,
    /// Makes one.
    pub build: fn(TableShape) -> Box<dyn Layout>,
}

/// Every layout there is.
pub static LAYOUTS: &[LayoutRow] = &[
    LayoutRow {
        name: "published",
        origin: "4 B keys, 8 B data entries (40-bit address, 24-bit length), separate index block; after the public \
                 firmware of IterKVSSD/BandSlim",
        reach_bytes: published::REACH_BYTES,
        max_value_bytes: published::LENGTH_MAX_BYTES,
        build: |shape| Box::new(published::Published::new(shape)),
    },
    LayoutRow {
        name: "sound",
        origin: "keys of 1 to 255 B, sequence numbers, 64-bit addresses, sparse index, a filter for each page (ours)",
        reach_bytes: u64::MAX,
        max_value_bytes: u32::MAX,
        build: |shape| Box::new(sound::Sound::new(shape)),
    },
    LayoutRow {
        name: "segments",
        origin: "keys of 1 to 255 B, 8 B beside a key (40-bit address, 23-bit length), one page to read for each table; \
                 meta segments of PinK (USENIX ATC'20)",
        reach_bytes: segments::REACH_BYTES,
        max_value_bytes: segments::LENGTH_MAX_BYTES,
        build: |shape| Box::new(segments::Segments::new(shape)),
    },
];

/// The row with this name.
pub fn layout_row(name: &str) -> Option<&'static LayoutRow> {
    LAYOUTS.iter().find(|row| row.name == name)
}

/// The pages of a finished filter.
fn push_filter(filter: FilterBuild, out: &mut Vec<BuiltPage>) {
    for (number, data) in (0..).zip(filter.finish()) {
        let addresses = AddressBounds::NONE;
        out.push(BuiltPage { part: Part::Bloom, number, data, first: None, addresses, is_blank: false });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A table kept in memory.
    pub struct Held {
        pub facts: TableFacts,
        pub pages: BTreeMap<(Part, u32), PageBytes>,
    }

    pub fn build(layout: &dyn Layout, page_bytes: u32, pairs: &BTreeMap<Key, Entry>) -> Held {
        let mut builder = layout.build(pairs.len() as u32);
        let mut built = Vec::new();
        for (key, entry) in pairs {
            builder.push(key, entry);
            built.append(builder.complete());
        }
        let facts = builder.finish(TableId(7), 0, &mut built);
        let total = built.len() as u32;
        assert!(total <= layout.pages_at_most(pairs.len() as u32, facts.longest));
        let pages: BTreeMap<_, _> = built
            .into_iter()
            .map(|page| {
                assert!(page.data.written_end() <= page_bytes);
                // As medium `tags` does, which keeps no zeros at the end of a page.
                let mut bytes = page.data.to_bytes(page_bytes);
                bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
                ((page.part, page.number), PageBytes::new(Rc::new(Region::from_bytes(bytes)), page_bytes))
            })
            .collect();
        assert_eq!((pages.len() as u32, total), (facts.total_pages(), facts.total_pages()));
        Held { facts, pages }
    }

    impl Held {
        pub fn scan(&self, layout: &dyn Layout, start: Start) -> Vec<(Key, Entry)> {
            let mut scan = layout.scan(&self.facts, start);
            let mut found = Vec::new();
            loop {
                match scan.step(&mut found).unwrap() {
                    ScanStep::Entries => {}
                    ScanStep::Read(part, number) => scan.give(self.pages[&(part, number)].clone()),
                    ScanStep::End => return found,
                }
            }
        }

        pub fn get(&self, layout: &dyn Layout, key: &Key, bloom: bool) -> Option<Entry> {
            let mut step = layout.probe(&self.facts, key, bloom);
            loop {
                match step {
                    ProbeStep::Found(entry) => return Some(entry),
                    ProbeStep::Absent => return None,
                    ProbeStep::Read(want) => {
                        let pages: Vec<_> = want
                            .pages
                            .clone()
                            .map(|number| self.pages[&(want.part, number)].clone())
                            .collect();
                        step = layout.judge(&self.facts, key, &want, &pages).unwrap();
                    }
                }
            }
        }
    }

    fn entry() -> impl Strategy<Value = Entry> {
        (0u64..1 << 40, 0u32..1 << 21, any::<bool>()).prop_map(
            |(address, bytes, tombstone)| match tombstone {
                true => Entry::removal(0),
                false => Entry { address: Vaddr(address), bytes, sequence: 0, tombstone },
            },
        )
    }

    fn pairs(published: bool) -> BoxedStrategy<BTreeMap<Key, Entry>> {
        let key = if published {
            any::<u32>().prop_map(|number| Key::from_u32_be(number >> 16)).boxed()
        } else {
            let short = proptest::collection::vec(0u8..4, 1..=16).prop_map(|bytes| Key::new(&bytes).unwrap());
            let long =
                (proptest::array::uniform16(0u8..4), prop_oneof![Just(127usize), Just(128), 17..=255usize])
                    .prop_map(|(padded, len)| Key::from_padded(padded, len).unwrap());
            prop_oneof![short, long].boxed()
        };
        proptest::collection::btree_map(key, entry(), 1..600).boxed()
    }

    fn check(
        layout: &dyn Layout,
        page_bytes: u32,
        pairs: &BTreeMap<Key, Entry>,
        probe: &BTreeMap<Key, Entry>,
    ) {
        let held = build(layout, page_bytes, pairs);
        let all: Vec<_> = pairs.iter().map(|(key, entry)| (*key, *entry)).collect();
        assert_eq!(held.scan(layout, Start::First), all);
        assert_eq!((held.facts.min, held.facts.max), (all[0].0, all[all.len() - 1].0));
        for key in pairs.keys().chain(probe.keys()) {
            for bloom in [true, false] {
                assert_eq!(held.get(layout, key, bloom), pairs.get(key).copied());
            }
        }
        for key in probe.keys().take(40) {
            let rest: Vec<_> = pairs.range(key..).map(|(key, entry)| (*key, *entry)).collect();
            assert_eq!(held.scan(layout, Start::Key(*key)), rest);
        }
        for entry in probe.values().take(40) {
            let range = entry.address..Vaddr(entry.address.0 + (1 << 30));
            let found = held.scan(layout, Start::Addresses(range.clone()));
            let touching = all.iter().filter(|(_, entry)| entry.touches(&range));
            assert!(touching.clone().all(|pair| found.contains(pair)));
            assert!(held.facts.addresses.touches(&range) || touching.count() == 0);
        }
    }

    #[test]
    fn entries_that_are_all_zeros_are_read_at_the_end_of_a_page() {
        let zero = Entry { address: Vaddr(0), bytes: 0, sequence: 0, tombstone: false };
        let pairs: BTreeMap<Key, Entry> =
            (0..100u32).map(|number| (Key::from_u32_be(number << 24), zero)).collect();
        for row in LAYOUTS {
            let shape = TableShape { page_bytes: 4096, bloom: BloomConfig { bits_per_key: 10, hashes: 7 } };
            check(&*(row.build)(shape), 4096, &pairs, &pairs);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn published_tables_give_back_what_was_put_in(
            pairs in pairs(true), probe in pairs(true), page_bytes in prop_oneof![Just(512u32), Just(4096)],
        ) {
            let bloom = BloomConfig { bits_per_key: 32, hashes: 30 };
            check(&*(layout_row("published").unwrap().build)(TableShape { page_bytes, bloom }), page_bytes, &pairs, &probe);
        }

        #[test]
        fn sound_tables_give_back_what_was_put_in(
            pairs in pairs(false), probe in pairs(false), page_bytes in prop_oneof![Just(512u32), Just(4096)],
            bits_per_key in prop_oneof![Just(0u32), Just(10)],
        ) {
            let bloom = BloomConfig { bits_per_key, hashes: 7 };
            check(&*(layout_row("sound").unwrap().build)(TableShape { page_bytes, bloom }), page_bytes, &pairs, &probe);
        }

        #[test]
        fn segments_give_back_what_was_put_in(
            pairs in pairs(false), probe in pairs(false), page_bytes in prop_oneof![Just(1024u32), Just(8192)],
        ) {
            let bloom = BloomConfig { bits_per_key: 0, hashes: 1 };
            check(&*(layout_row("segments").unwrap().build)(TableShape { page_bytes, bloom }), page_bytes, &pairs, &probe);
        }

        /// Damaged bytes with a valid checksum must not break anything: any bytes give an answer or
        /// `Damaged`.
        #[test]
        fn pages_of_nonsense_do_no_harm(
            pairs in pairs(true), noise in proptest::collection::vec(any::<u8>(), 512), key in any::<u32>(),
        ) {
            for row in LAYOUTS {
                let shape = TableShape { page_bytes: 512, bloom: BloomConfig { bits_per_key: 10, hashes: 7 } };
                let layout = (row.build)(shape);
                let facts = build(&*layout, 512, &pairs).facts;
                let page = PageBytes::new(Rc::new(Region::from_bytes(noise.clone())), 512);
                let key = Key::from_u32_be(key);
                for start in [Start::First, Start::Key(key), Start::Addresses(Vaddr(0)..Vaddr(u64::MAX))] {
                    let mut scan = layout.scan(&facts, start);
                    let mut out = Vec::new();
                    while let Ok(step) = scan.step(&mut out) {
                        match step {
                            ScanStep::Read(..) => scan.give(page.clone()),
                            ScanStep::Entries => {}
                            ScanStep::End => break,
                        }
                    }
                }
                let mut step = layout.probe(&facts, &key, true);
                while let ProbeStep::Read(want) = step {
                    let pages = vec![page.clone(); want.pages.len()];
                    let Ok(next) = layout.judge(&facts, &key, &want, &pages) else { break };
                    step = next;
                }
            }
        }
    }
}
