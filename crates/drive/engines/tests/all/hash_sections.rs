//! Sections of every hash FTL against a map: pairs that are put, replaced, removed, passed and written come
//! back, in each format; and the properties of buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_engines::hash::layout::{Grain, Layout};
use kvdrive_engines::hash::section::bucket::BucketFormat;
use kvdrive_engines::hash::section::{Entry, Format, Probe, Section, SectionHeader};
use kvdrive_engines::hash::{SCHEMES, SchemeRow};
use kvdrive_flash::Geometry;
use proptest::prelude::*;

fn layout(grain_bytes: u32, blocks_per_die: u32) -> Layout {
    let geometry = Geometry {
        channels: 8,
        dies_per_channel: 8,
        planes: 1,
        blocks_per_die,
        pages_per_block: 4,
        page_bytes: 32_768,
        spare_bytes: 3328,
        spare_blocks: 0,
    };
    Layout::new(geometry, grain_bytes, 4096)
}

/// A step of a section.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A new pair; without a vacancy the section is passed.
    Put {
        tag: u32,
        grain: u64,
    },
    /// A pair moves or is overwritten.
    Replace {
        which: usize,
        grain: u64,
    },
    Remove {
        which: usize,
    },
    /// It leaves the cache and comes back.
    Reload,
}

impl Step {
    /// The same with all grains `base` further.
    fn beyond(self, base: u64) -> Step {
        match self {
            Step::Put { tag, grain } => Step::Put { tag, grain: grain + base },
            Step::Replace { which, grain } => Step::Replace { which, grain: grain + base },
            step => step,
        }
    }
}

fn step(grains: u64) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u32>(), 0..grains).prop_map(|(tag, grain)| Step::Put { tag, grain }),
        2 => (any::<usize>(), 0..grains).prop_map(|(which, grain)| Step::Replace { which, grain }),
        3 => any::<usize>().prop_map(|which| Step::Remove { which }),
        1 => Just(Step::Reload),
    ]
}

/// A section, and the pairs that must be in it.
struct Checked {
    format: Box<dyn Format>,
    section: Box<dyn Section>,
    /// Tags are below this number, so that they are slots, or fingerprints that collide.
    tags: u32,
    pairs: BTreeMap<u32, (u32, Grain)>,
    passed: BTreeSet<u32>,
    /// The bytes that it was loaded from, which it may share, and a copy of them.
    written: Option<(Rc<[u8]>, Vec<u8>)>,
}

impl Checked {
    fn new(scheme: &SchemeRow, layout: &Layout, tags: u32) -> Checked {
        let format = (scheme.format)(layout);
        let section = format.create();
        let tags = tags.min(format.slots());
        Checked { format, section, tags, pairs: BTreeMap::new(), passed: BTreeSet::new(), written: None }
    }

    fn some_slot(&self, which: usize) -> Option<u32> {
        self.pairs.keys().nth(which % self.pairs.len().max(1)).copied()
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Put { tag, grain } => {
                let tag = tag % self.tags;
                match self.section.outlook(tag).vacancy {
                    Some(slot) => {
                        self.section.set(slot, tag, Grain(grain));
                        assert_eq!(self.pairs.insert(slot, (tag, Grain(grain))), None, "vacant slot {slot}");
                    }
                    None => {
                        self.section.mark_passed(tag);
                        self.passed.insert(tag);
                    }
                }
            }
            Step::Replace { which, grain } => {
                let Some(slot) = self.some_slot(which) else { return };
                let pair = self.pairs.get_mut(&slot).expect("it was chosen among them");
                pair.1 = Grain(grain);
                self.section.set(slot, pair.0, pair.1);
            }
            Step::Remove { which } => {
                let Some(slot) = self.some_slot(which) else { return };
                self.pairs.remove(&slot);
                self.section.remove(slot);
            }
            Step::Reload => self.reload(),
        }
    }

    fn reload(&mut self) {
        let bytes = self.section.encode(7, 9);
        let header = SectionHeader::decode(&bytes).expect("a section begins with its header");
        assert_eq!((header.id, header.version), (7, 9));
        assert_eq!(bytes.len() as u32, self.section.bytes());
        assert_eq!(self.format.encoded_bytes(&header), self.section.bytes());
        assert!(self.section.cached_bytes() <= self.section.bytes() && bytes.len() <= 4096);
        // A truncated section is refused, without a panic.
        for cut in [0, 15, bytes.len() / 2] {
            let _ = self.format.decode(bytes[..cut].into());
        }
        self.section = self.format.decode(bytes.clone()).expect("its own bytes");
        self.written = Some((bytes.clone(), bytes.to_vec()));
    }

    fn check(&self) {
        if let Some((shared, written)) = &self.written {
            assert_eq!(shared[..], written[..], "a section alters what it shares");
        }
        let mut listed = Vec::new();
        self.section.pairs(&mut |slot, grain| listed.push((slot, grain)));
        let expected: Vec<_> = self.pairs.iter().map(|(slot, (_, grain))| (*slot, *grain)).collect();
        assert_eq!(listed, expected);
        for (slot, (_, grain)) in &self.pairs {
            assert_eq!(self.section.get(*slot, &mut 0), Entry::At(*grain));
        }
        for tag in 0..self.tags.min(64) {
            let mut candidates = Vec::new();
            let mut from = 0;
            while let Some((slot, grain)) = self.section.candidate(tag, from, &mut 0) {
                candidates.push((slot, grain));
                from = slot + 1;
            }
            let expected: Vec<_> = self.pairs.iter().filter(|(_, (of, _))| *of == tag).collect();
            let expected: Vec<_> = expected.into_iter().map(|(slot, (_, grain))| (*slot, *grain)).collect();
            assert_eq!(candidates, expected, "tag {tag}");
            assert!(!self.passed.contains(&tag) || self.section.outlook(tag).goes_on, "tag {tag} was passed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_format_holds_what_a_map_holds(
        steps in prop::collection::vec(step(1 << 25), 1..900),
        tags in prop_oneof![Just(1u32), 2..40u32, Just(u32::MAX)],
        // The last grains of 64 TiB as well.
        blocks_per_die in prop_oneof![Just(256u32), Just(1 << 23)],
    ) {
        for scheme in SCHEMES {
            let layout = layout(scheme.grain_bytes, blocks_per_die);
            let base = layout.grains().saturating_sub(1 << 25);
            let mut checked = Checked::new(scheme, &layout, tags);
            for (number, step) in steps.iter().enumerate() {
                checked.apply(step.beyond(base));
                if number % 37 == 0 {
                    checked.check();
                }
            }
            checked.apply(Step::Reload);
            checked.check();
        }
    }
}

#[test]
fn a_full_bucket_is_passed_for_good_and_its_first_free_cell_is_taken_again() {
    let format = BucketFormat::new(&layout(64, 16_384));
    let mut bucket = format.create();
    for number in 0..format.slots() {
        assert_eq!(bucket.outlook(5).vacancy, Some(number));
        assert!(!bucket.outlook(5).goes_on);
        bucket.set(number, number % 3, Grain((1 << 31) - 1 - u64::from(number)));
    }
    assert_eq!((bucket.outlook(5).vacancy, format.slots()), (None, 680));
    assert!((4090..=4096).contains(&bucket.cached_bytes()));
    bucket.mark_passed(5);
    bucket.remove(100);
    bucket.remove(99);
    assert_eq!(bucket.outlook(5).vacancy, Some(99));
    assert!(bucket.outlook(0).goes_on, "whatever the fingerprint: the next pair may have any");
    for slot in (0..format.slots()).filter(|slot| ![99, 100].contains(slot)) {
        bucket.remove(slot);
    }
    assert_eq!(bucket.cached_bytes(), 16, "free cells at the end are dropped");
    assert!(bucket.outlook(0).goes_on);
}

#[test]
fn probes_of_a_bucket_table_go_from_section_to_section_with_one_fingerprint() {
    let format = BucketFormat::new(&layout(64, 16_384));
    let last = format.sections() - 1;
    for hash in [0, 1, last, u64::MAX, 0x1234_5678_9abc_def0] {
        let Probe { section, tag } = format.probe(hash, 0);
        assert!(section <= last && tag < 1 << 16);
        for number in 1..=255 {
            let next = format.probe(hash, number);
            assert_eq!(next.tag, tag);
            assert_eq!(next.section, (section + u64::from(number)) % format.sections());
        }
    }
    // Hashes of one section differ in their fingerprint.
    let tags: BTreeSet<u32> =
        (0..1000u64).map(|number| format.probe(number * format.sections() + 3, 0).tag).collect();
    assert_eq!(tags.len(), 1000);
}

/// 8 bits of the hash stand beside the address: a probe of another key passes its pair by without reading it, but for
/// one key in 256.
#[test]
fn a_signature_hides_the_pair_of_another_key() {
    let row = SCHEMES.iter().find(|row| row.name == "hash8").expect("it is in the table");
    let format = (row.format)(&layout(512, 512));
    assert_eq!(
        (format.slots(), format.sections()),
        (816, layout(512, 512).grains().div_ceil(2).div_ceil(816))
    );
    let mut section = format.create();
    let tag = |signature: u32| signature << 16 | 7;
    section.set(7, tag(3), Grain(90));
    assert_eq!(section.candidate(tag(3), 0, &mut 0), Some((7, Grain(90))));
    assert_eq!(section.candidate(tag(2), 0, &mut 0), None);
    let outlook = section.outlook(tag(2));
    assert!(outlook.vacancy.is_none() && outlook.goes_on, "another key takes the next place");
    section.mark_passed(tag(2));
    section = format.decode(section.encode(1, 1)).expect("its own bytes");
    assert!(section.is_passed(tag(3)) && section.candidate(tag(3), 0, &mut 0).is_some());
    assert!(format.is_tag(tag(255)) && !format.is_tag(tag(256)) && !format.is_tag(816));

    let mut found = BTreeSet::new();
    for hash in (0..4000u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
        let tags = [0, 1, 9].map(|number| format.probe(hash, number).tag >> 16);
        assert!(tags[0] < 256 && tags == [tags[0]; 3], "the signature is the key's, wherever it lies");
        found.insert(tags[0]);
    }
    assert_eq!(found.len(), 256);
}

/// The start of a section, its length if it varies, and a bit: 26 + 1 bits of a read unit, 32 + 7 + 1 of a
/// grain; 31 + 1 and 37 + 7 + 1 on 4 TiB.
#[test]
fn directories_are_counted_alike() {
    for (blocks_per_die, expected) in [(16_384, [4, 5, 5]), (16_384 * 32, [4, 6, 6])] {
        for (name, bytes) in ["original", "plus", "plus2"].into_iter().zip(expected) {
            let scheme = SCHEMES.iter().find(|row| row.name == name).expect("it is in the table");
            let format = (scheme.format)(&layout(scheme.grain_bytes, blocks_per_die));
            assert_eq!(format.directory_bytes(), bytes, "{name}");
        }
    }
}

#[test]
fn a_bucket_on_128_gib_takes_what_the_documentation_says() {
    let format = BucketFormat::new(&layout(64, 16_384));
    // 2^31 grains, 680 cells a section.
    assert_eq!((format.sections(), format.directory_bytes()), ((1u64 << 31).div_ceil(680), 5));
    let small = BucketFormat::new(&layout(64, 256));
    assert_eq!(small.slots(), format.slots(), "a small drive stands for the large one");
}
