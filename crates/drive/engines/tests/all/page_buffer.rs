//! The page buffer against an oracle, and in the corners: evictions, drains, races for one page, dropped
//! segments.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kvdrive_content::{Piece, Region};
use kvdrive_engines::page_buffer::{Eviction, Hold, PageBuffer, PageKind, PageWatch, Pin};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Ftl, Placement};
use kvdrive_nvme::Status;
use kvdrive_sim::{Rng, Sim, join_all};
use proptest::prelude::*;

use super::support::{self, BelowBuffer};

const PAGE_BYTES: u32 = support::PAGE_BYTES;

const KIND: PageKind =
    PageKind { purpose: Purpose::Value, kind: 1, tag: [0; 48], placement: Placement::Alone };

struct Rig {
    sim: Sim,
    ftl: Ftl,
    buffer: PageBuffer,
}

fn rig_on(sim: Sim, entries: u32, eviction: Eviction) -> Rig {
    let ftl = support::ftl(&sim);
    let buffer = PageBuffer::new(&sim, Some(ftl.clone()), entries, eviction, PAGE_BYTES);
    Rig { sim, ftl, buffer }
}

fn rig(entries: u32, eviction: Eviction) -> Rig {
    rig_on(Sim::new(), entries, eviction)
}

fn open(buffer: &PageBuffer, lpa: u32) -> Pin {
    buffer.open(lpa, KIND, Hold::Drive).unwrap()
}

/// Opens a page, writes one byte and closes it.
fn fill(buffer: &PageBuffer, lpa: u32) {
    let pin = open(buffer, lpa);
    pin.write(0, Piece::Bytes(&[lpa as u8 + 1]));
    pin.close();
}

fn first_byte(buffer: &PageBuffer, lpa: u32) -> Result<u8, Status> {
    let pin = buffer.fetch(lpa, Purpose::Lookup)?;
    let mut byte = [0];
    pin.read(0, 1, &mut |piece| piece.expand(&mut byte));
    Ok(byte[0])
}

/// The calls that a watch received.
#[derive(Default)]
struct Diary {
    lines: RefCell<Vec<String>>,
    closes: RefCell<Option<PageBuffer>>,
}

impl Diary {
    fn of(buffer: &PageBuffer) -> Rc<Diary> {
        let diary = Rc::new(Diary::default());
        *diary.closes.borrow_mut() = Some(buffer.clone());
        let weak: Weak<dyn PageWatch> = Rc::downgrade(&(diary.clone() as Rc<dyn PageWatch>));
        buffer.set_watch(weak);
        diary
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.borrow_mut())
    }

    fn add(&self, line: String) {
        self.lines.borrow_mut().push(line);
    }
}

impl PageWatch for Diary {
    fn opened(&self, _: u32) {}
    fn leaving(&self, lpa: u32) {
        self.add(format!("leaving {lpa}"));
        self.closes.borrow().as_ref().unwrap().close(lpa);
    }
    fn dirtied(&self, lpa: u32, content: &Region) {
        self.add(format!("dirtied {lpa} with {}", content.written_end()));
    }
    fn programmed(&self, lpa: u32) {
        self.add(format!("programmed {lpa}"));
    }
    fn discarded(&self, lpa: u32) {
        self.add(format!("discarded {lpa}"));
    }
}

#[test]
fn the_least_recently_used_page_is_programmed_and_waited_for() {
    let Rig { sim, ftl, buffer } = rig(8, Eviction::Wait);
    sim.block_on(|| {
        for lpa in 0..8 {
            fill(&buffer, lpa);
        }
        assert_eq!((sim.now(), ftl.is_mapped_page(0)), (0, false), "a full page is not programmed");
        assert_eq!(first_byte(&buffer, 0), Ok(1)); // 0 was used: 1 is now the oldest
        fill(&buffer, 8);
        assert!(sim.now() >= support::PROGRAM_NS, "the new page waited for a program");
        assert!(ftl.is_mapped_page(1) && !ftl.is_mapped_page(0));
        let before = sim.now();
        assert_eq!(first_byte(&buffer, 1), Ok(2), "back from flash");
        assert!(sim.now() >= before + support::PROGRAM_NS, "its entry had to be won by a program");
    });
    let statistics = buffer.statistics();
    assert_eq!((statistics.opened, statistics.fetched, statistics.evicted_dirty), (9, 1, 2));
}

#[test]
fn overlapped_programs_are_not_waited_for() {
    let Rig { sim, ftl, buffer } = rig(16, Eviction::Overlap);
    sim.block_on(|| {
        for lpa in 0..100 {
            let before = sim.now();
            fill(&buffer, lpa);
            assert_eq!(sim.now(), before, "page {lpa} waited");
            sim.sleep(2 * support::PROGRAM_NS);
        }
        assert_eq!(buffer.statistics().waits, 0);
        for lpa in 100..200 {
            fill(&buffer, lpa); // faster than flash: it must wait now, and still loses no page
        }
        assert!(buffer.statistics().waits > 0);
        for lpa in 0..200 {
            assert_eq!(first_byte(&buffer, lpa), Ok(lpa as u8 + 1));
        }
    });
    assert!((0..150).all(|lpa| ftl.is_mapped_page(lpa)));
}

#[test]
fn with_every_entry_pinned_a_page_is_refused_not_waited_for() {
    let Rig { sim, buffer, .. } = rig(8, Eviction::Wait);
    sim.block_on(|| {
        let mut pins = Vec::new();
        for lpa in 0..8 {
            pins.push(buffer.open(lpa, KIND, Hold::Host).unwrap());
        }
        assert_eq!(buffer.occupancy(), (8, 8, 8));
        let refused = buffer.open(9, KIND, Hold::Drive).err();
        assert_eq!(refused, Some(Status::COMMAND_INTERRUPTED));
        assert_eq!(buffer.fetch(10, Purpose::Lookup).err(), Some(Status::COMMAND_INTERRUPTED));
        pins.pop();
        fill(&buffer, 9);
        drop(pins);
        assert_eq!(buffer.occupancy(), (8, 0, 0));
    });
}

#[test]
fn pages_being_filled_leave_last_and_not_unannounced() {
    let Rig { sim, buffer, .. } = rig(8, Eviction::Wait);
    let diary = Diary::of(&buffer);
    sim.block_on(|| {
        let half = open(&buffer, 0);
        half.write(0, Piece::Bytes(&[1; 100]));
        drop(half);
        for lpa in 1..30 {
            fill(&buffer, lpa);
        }
        assert!(buffer.try_pin(0, Hold::Drive).is_some(), "still there, though used long ago");
        assert!(!diary.take().iter().any(|line| line.starts_with("leaving")));
        let pins: Vec<Pin> = join_all(
            &sim,
            (1..8).map(|n| {
                let buffer = &buffer;
                move || open(buffer, 100 + n)
            }),
        );
        let _one_more = open(&buffer, 200);
        assert_eq!(diary.take().last().unwrap(), "programmed 0");
        assert_eq!(buffer.statistics().forced_out, 1);
        drop(pins);
    });
}

#[test]
fn without_flash_what_leaves_is_lost() {
    let sim = Sim::new();
    let buffer = PageBuffer::new(&sim, None, 8, Eviction::Wait, PAGE_BYTES);
    let diary = Diary::of(&buffer);
    sim.block_on(|| {
        for lpa in 0..9 {
            fill(&buffer, lpa);
        }
        assert!(diary.take().contains(&"programmed 0".to_string()), "it is no longer protected");
        assert_eq!(first_byte(&buffer, 1), Ok(2));
        assert_eq!(first_byte(&buffer, 0), Err(Status::VALUE_NOT_RESIDENT));
        buffer.drain();
    });
    assert_eq!(sim.now(), 0, "nothing took time");
}

#[test]
fn a_drained_page_can_be_filled_further() {
    let Rig { sim, ftl, buffer } = rig(8, Eviction::Wait);
    let diary = Diary::of(&buffer);
    sim.block_on(|| {
        let pin = open(&buffer, 3);
        pin.write(0, Piece::Bytes(b"first"));
        buffer.drain();
        buffer.drain();
        assert_eq!(diary.take(), ["dirtied 3 with 0", "programmed 3"], "the second drain found nothing");
        pin.write(5, Piece::Bytes(b", second"));
        assert_eq!(diary.take(), ["dirtied 3 with 5"], "all of it is protected again");
        pin.close();
        drop(pin);
        for lpa in 10..18 {
            fill(&buffer, lpa);
        }
        let page = ftl.read_page(3).unwrap();
        assert_eq!(page.to_bytes(13), b"first, second");
    });
}

#[test]
fn bytes_that_come_during_a_program_are_not_taken_for_stored() {
    let Rig { sim, buffer, .. } = rig(8, Eviction::Wait);
    let diary = Diary::of(&buffer);
    let unstored = |buffer: &PageBuffer| {
        let mut found = Vec::new();
        buffer.for_each_unstored(&mut |lpa, region| found.push((lpa, region.written_end())));
        found
    };
    sim.block_on(|| {
        let pin = open(&buffer, 3);
        pin.write(0, Piece::Bytes(b"first"));
        let draining = buffer.clone();
        let drain = sim.spawn(move || draining.drain());
        sim.sleep(1);
        assert_eq!(unstored(&buffer), [(3, 5)], "protected until the program has completed");
        pin.write(5, Piece::Bytes(b", second"));
        drain.join();
        assert_eq!(unstored(&buffer), [(3, 13)]);
        assert_eq!(diary.take(), ["dirtied 3 with 0"]);
        buffer.drain();
        assert_eq!(unstored(&buffer), []);
        assert_eq!(diary.take(), ["programmed 3"]);
    });
}

#[test]
fn a_dropped_segment_waits_for_its_running_programs() {
    let Rig { sim, buffer, .. } = rig(8, Eviction::Wait);
    let diary = Diary::of(&buffer);
    sim.block_on(|| {
        fill(&buffer, 4);
        let draining = buffer.clone();
        let drain = sim.spawn(move || draining.drain());
        sim.sleep(1);
        fill(&buffer, 5);
        let reader = open(&buffer, 6);
        diary.take();
        assert_eq!(buffer.drop_pages(4..8), 2, "4 is being programmed and 6 pinned");
        assert!(buffer.try_pin(5, Hold::Drive).is_none());
        drop(reader);
        assert_eq!(diary.take(), ["discarded 6"]);
        drain.join();
        assert_eq!(diary.take(), ["discarded 4"]);
        for lpa in 10..18 {
            fill(&buffer, lpa);
        }
        assert_eq!(buffer.statistics().evicted_dirty, 0, "all eight entries were free");
    });
}

/// Tasks that want the same page at the same time load it once, and none of them finds it evicted again.
#[test]
fn a_page_is_brought_once() {
    for seed in 0..20 {
        let Rig { sim, buffer, .. } = rig_on(Sim::permuted(seed), 8, Eviction::Wait);
        sim.block_on(|| {
            for lpa in 0..8 {
                fill(&buffer, lpa);
            }
            join_all(
                &sim,
                (0..5).map(|at| {
                    let buffer = &buffer;
                    move || open(buffer, 20).write(at, Piece::Bytes(&[at as u8]))
                }),
            );
            assert_eq!(buffer.statistics().opened, 9);
            assert_eq!(buffer.statistics().evicted_dirty, 1);
            join_all(&sim, (0..5).map(|_| || first_byte(&buffer, 0)));
            assert_eq!(buffer.statistics().fetched, 1);
        });
        assert_eq!(buffer.occupancy(), (8, 0, 0));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Append to the page being filled, or to a new one.
    Append {
        bytes: u32,
        close: bool,
    },
    Read(usize),
    Drain,
    Rest(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..PAGE_BYTES / 3, any::<bool>()).prop_map(|(bytes, close)| Step::Append { bytes, close }),
        8 => any::<usize>().prop_map(Step::Read),
        1 => Just(Step::Drain),
        2 => (0..3 * support::PROGRAM_NS).prop_map(Step::Rest),
    ]
}

/// One task that fills pages of its own and reads them.
fn live(sim: Sim, buffer: PageBuffer, first_lpa: u32, steps: Vec<Step>) {
    let mut content: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut filling: Option<u32> = None;
    let mut rng = Rng::stream(u64::from(first_lpa), "bytes");
    for step in steps {
        match step {
            Step::Append { bytes, close } => {
                let new = vec![rng.next_u32() as u8; bytes as usize];
                // A page that was evicted gets no more bytes.
                let resident = filling.and_then(|lpa| buffer.try_pin(lpa, Hold::Drive));
                let fits = |lpa: &u32| content[lpa].len() as u32 + bytes <= PAGE_BYTES;
                let pin = match resident.filter(|pin| fits(&pin.lpa())) {
                    Some(pin) => pin,
                    None => {
                        filling.inspect(|lpa| buffer.close(*lpa));
                        open(&buffer, first_lpa + content.len() as u32)
                    }
                };
                let page = content.entry(pin.lpa()).or_default();
                pin.write(page.len() as u32, Piece::Bytes(&new));
                page.extend_from_slice(&new);
                filling = (!close).then(|| pin.lpa());
                if close {
                    pin.close();
                }
            }
            Step::Read(_) if content.is_empty() => {}
            Step::Read(which) => {
                let (lpa, bytes) = content.iter().nth(which % content.len()).unwrap();
                let pin = buffer.fetch(*lpa, Purpose::Lookup).unwrap();
                let mut found = Vec::new();
                pin.read(0, bytes.len() as u32, &mut |piece| {
                    let from = found.len();
                    found.resize(from + piece.bytes() as usize, 0);
                    piece.expand(&mut found[from..]);
                });
                assert_eq!(found, *bytes, "page {lpa}");
            }
            Step::Drain => buffer.drain(),
            Step::Rest(span) => sim.sleep(span),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn several_tasks_find_what_they_wrote(
        scripts in proptest::collection::vec(proptest::collection::vec(step(), 1..40), 1..5),
        seed in any::<u64>(),
        overlap in any::<bool>(),
    ) {
        let eviction = if overlap { Eviction::Overlap } else { Eviction::Wait };
        let Rig { sim, buffer, ftl: _ftl } = rig_on(Sim::permuted(seed), 8, eviction);
        let tasks: Vec<_> = scripts.into_iter().enumerate()
            .map(|(task, steps)| {
                let (sim2, buffer) = (sim.clone(), buffer.clone());
                sim.spawn(move || live(sim2, buffer, 60 * task as u32, steps))
            })
            .collect();
        sim.block_on(|| { for task in tasks { task.join() } });
        prop_assert_eq!(buffer.occupancy(), (8, 0, 0));
    }
}
