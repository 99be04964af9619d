//! The index on drives that lose power, pages and space.

use std::ops::Range;

use super::*;

/// The states that may survive: before and after the change that was under way.
type States = [BTreeMap<u32, Vaddr>; 2];

/// Runs insertions and removals on a stand whose events can be stepped; `cut` is called between any two
/// events.
fn live_through(stand: &Stand, seed: u64, changes: u32, mut cut: impl FnMut(&Stand, &States)) {
    let mut rng = Rng::stream(seed, "changes");
    stand.sim.step_every_event();
    let mut state: BTreeMap<u32, Vaddr> = BTreeMap::new();
    for number in 0..KEYS {
        if let Ok(Some(address)) = stand.get(number) {
            state.insert(number, address);
        }
    }
    for _ in 0..changes {
        let number = rng.below(KEYS.into()) as u32;
        let mut after = state.clone();
        let index = stand.index.clone();
        let task = if rng.one_in(4) {
            after.remove(&number);
            stand.sim.spawn(move || index.remove(key(number)))
        } else {
            let address = stand.values.place(8);
            after.insert(number, address);
            stand.sim.spawn(move || index.insert(key(number), address, 8))
        };
        let states = [state, after];
        while stand.sim.step() {
            cut(stand, &states);
        }
        task.try_take().expect("the change is done when nothing is left to do").unwrap();
        state = states.into_iter().nth(1).unwrap();
    }
}

fn is_one_of(stand: &Stand, states: &States) {
    let found: BTreeMap<u32, Vaddr> =
        (0..KEYS).filter_map(|number| Some((number, stand.get(number).unwrap()?))).collect();
    assert!(states.contains(&found), "{found:?} is neither of {states:?}");
    let walked = stand.walk(&stand.index.snapshot(), 0, usize::MAX);
    assert_eq!(walked, found.iter().map(|(number, address)| (key(*number), *address)).collect::<Vec<_>>());
}

#[test]
fn any_cut_is_survived_and_so_is_the_next_one() {
    for (seed, config) in (1..).zip(configs()) {
        let stand = Stand::new(config.clone());
        let mut rng = Rng::stream(seed, "cuts");
        let mut events = 0u32;
        live_through(&stand, seed, 200, |stand, states| {
            assert_eq!(*stand.records.image.borrow(), stand.index.image());
            events += 1;
            let second = stand.next_life(&config, &mut rng);
            is_one_of(&second, states);
            let pages = second.index.pages_in_use();
            assert_eq!(second.ftl.statistics().live_pages, u64::from(pages), "pages of no table are kept");
            let taken = second.pool.segments() - second.pool.free_count();
            assert!(pages >= taken && pages <= taken * 4, "{pages} pages in {taken} segments");
            if events.is_multiple_of(100) {
                third_life(&second, seed, &config, &mut rng);
            }
        });
        assert!(stand.index.counters().merges > 3 && events > 500, "{:?}", stand.index.counters());
    }
}

fn third_life(second: &Stand, seed: u64, config: &IndexConfig, rng: &mut Rng) {
    let mut event = 0u32;
    live_through(second, seed, 30, |second, states| {
        event += 1;
        if event.is_multiple_of(17) {
            let third = second.next_life(config, rng);
            is_one_of(&third, states);
        }
    });
}

fn may_miss(gap: &Gap, key: &Key) -> bool {
    gap.first.is_none_or(|first| first <= *key) && gap.last.is_none_or(|last| *key <= last)
}

/// Whichever page is damaged: an answer is right or 88h, a list reports a gap where it lacks a key,
/// insertions continue, and all of that still holds after the next power-on.
#[test]
fn a_damaged_page_costs_its_keys_and_nothing_else() {
    for config in configs() {
        let mut damaged_lookups = 0;
        for page in (0..flash_config().geometry().pages() as u32).map(Ppa) {
            let stand = Stand::new(config.clone());
            let mut oracle = BTreeMap::new();
            for number in (0..KEYS).chain(0..KEYS / 2) {
                oracle.insert(number, stand.put(number, 8));
            }
            if let Err(ReadError::Erased) = stand.sim.block_on(|| stand.port.read(page, Purpose::Recovery)) {
                continue;
            }
            stand.port.damage(page);
            let check = |stand: &Stand, oracle: &BTreeMap<u32, Vaddr>| -> u32 {
                let wrong = |number: &u32| match stand.get(*number) {
                    Ok(found) => {
                        assert_eq!(found, oracle.get(number).copied(), "key {number}, {page:?}");
                        false
                    }
                    Err(status) => {
                        assert_eq!(status, Status::UNRECOVERED_ERROR);
                        true
                    }
                };
                (0..KEYS).filter(wrong).count() as u32
            };
            damaged_lookups += check(&stand, &oracle);
            let listed = |stand: &Stand, oracle: &BTreeMap<u32, Vaddr>| {
                let (keys, gaps) = stand.walk_past_gaps(&stand.index.snapshot());
                let missing = oracle.keys().map(|number| key(*number)).filter(|key| !keys.contains(key));
                let hidden = |missing: &Key| !gaps.iter().any(|gap| may_miss(gap, missing));
                let hidden: Vec<Key> = missing.filter(hidden).collect();
                assert!(hidden.is_empty(), "{page:?}: {hidden:?} are in no gap of {gaps:?}");
            };
            listed(&stand, &oracle);
            listed(&stand.next_life(&config, &mut Rng::stream(1, "cut")), &oracle);
            for number in 0..KEYS {
                oracle.insert(number, stand.put(number, 8));
            }
            check(&stand, &oracle);
            let second = stand.next_life(&config, &mut Rng::stream(1, "cut"));
            check(&second, &oracle);
            listed(&second, &oracle);
            for number in 0..KEYS / 2 {
                oracle.insert(number, second.put(number, 8));
            }
            check(&second, &oracle);
        }
        assert!(damaged_lookups > 0, "no page of a table was hit");
    }
}

#[test]
fn a_full_drive_says_so_and_forgets_nothing() {
    for config in configs() {
        let mut flash = flash_config();
        flash.blocks_per_die = 6;
        let stand = Stand::on(Sim::new(), &flash, config);
        let mut oracle = BTreeMap::new();
        let refused = (0..20_000u32).find_map(|number| {
            let address = stand.values.place(8);
            match stand.sim.block_on(|| stand.index.insert(key(number), address, 8)) {
                Ok(()) => {
                    oracle.insert(number, address);
                    None
                }
                Err(status) => Some(status),
            }
        });
        assert_eq!(refused, Some(Status::CAPACITY_EXCEEDED));
        for (number, address) in &oracle {
            assert_eq!(stand.get(*number), Ok(Some(*address)));
        }
    }
}

/// If a table of its own has no room, the memtable joins the merge of everything: one step, at whichever
/// event the power is cut.
#[test]
fn a_memtable_merged_along_survives_any_cut() {
    let mut merged_along = 0;
    for config in configs() {
        let with_room_for = |segments: usize| -> (Stand, BTreeMap<u32, Vaddr>) {
            let stand = Stand::new(config.clone());
            let mut state = BTreeMap::new();
            for number in (0..KEYS).chain(0..KEYS / 2) {
                state.insert(number, stand.put(number, 8));
            }
            for number in (0..KEYS).step_by(3).take(4) {
                stand.sim.block_on(|| stand.index.remove(key(number))).unwrap();
                state.remove(&number);
            }
            let mut taken: Vec<_> = std::iter::from_fn(|| stand.pool.alloc(Use::Index)).collect();
            taken.drain(..segments).for_each(|id| stand.pool.free(id));
            (stand, state)
        };
        let fits = |segments: &usize| {
            let (stand, _) = with_room_for(*segments);
            stand.sim.block_on(|| stand.index.compact_all()).is_ok()
        };
        let least = (0..).find(fits).expect("it fits the empty drive");
        let (stand, state) = with_room_for(least);
        let flushes = stand.index.counters().flushes;
        let states = [state.clone(), state];
        let mut rng = Rng::stream(5, "cuts");
        stand.sim.step_every_event();
        let index = stand.index.clone();
        let task = stand.sim.spawn(move || index.compact_all());
        while stand.sim.step() {
            assert_eq!(*stand.records.image.borrow(), stand.index.image());
            is_one_of(&stand.next_life(&config, &mut rng), &states);
        }
        assert_eq!(task.try_take(), Some(Ok(())));
        merged_along += u32::from(stand.index.counters().flushes == flushes);
        is_one_of(&stand, &states);
    }
    assert!(merged_along > 0, "it always had a table of its own");
}

/// A memtable waits for space while collection empties and reuses segments that its replaced entries still
/// name.
#[test]
fn what_waited_for_space_does_not_speak_of_reused_segments() {
    for config in configs() {
        let stand = Stand::new(IndexConfig { memtable_entries: 20, ..config });
        let mut oracle = BTreeMap::new();
        let put = |oracle: &mut BTreeMap<u32, (Vaddr, u32)>, numbers: Range<u32>| {
            for number in numbers {
                oracle.insert(number, (stand.put(number, 8), 8));
            }
        };
        let taken: Vec<_> = std::iter::from_fn(|| stand.pool.alloc(Use::Index)).collect();
        put(&mut oracle, 0..21);
        assert_eq!(stand.index.counters().failures, 1, "the memtable cannot be written");
        put(&mut oracle, 0..8);
        stand.collect(0, &mut oracle);
        put(&mut oracle, 0..8);
        assert_eq!(stand.values.head.get(), Some(0), "the segment is used again");
        taken.into_iter().for_each(|id| stand.pool.free(id));
        stand.sim.block_on(|| stand.index.compact_all()).unwrap();
        stand.check_all(&oracle);
        let live = oracle.values().map(|(address, bytes)| (address.0, *bytes)).collect::<BTreeMap<_, _>>();
        assert_eq!(stand.values.live(), live);
    }
}
