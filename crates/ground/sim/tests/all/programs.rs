//! Random programs of tasks: the executor's shortcuts must not be observable.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_sim::{KeyedLock, Mutex, Ns, Resource, ResourceStatistics, Sim, WaitQueue, join_all};
use proptest::prelude::*;

/// A task's steps, one after the other.
#[derive(Clone, Debug)]
enum Step {
    Sleep(Ns),
    External(Ns),
    Yield,
    Use(usize, Ns),
    UseThen(usize, Ns, Ns),
    Lock(Ns),
    LockKey(u8, Ns),
    Signal,
    SideBySide(Vec<Vec<Step>>),
    Child(Vec<Step>),
}

fn step() -> impl Strategy<Value = Step> {
    let span = 0u64..6;
    let leaf = prop_oneof![
        3 => span.clone().prop_map(Step::Sleep),
        1 => span.clone().prop_map(Step::External),
        1 => Just(Step::Yield),
        3 => (0usize..2, span.clone()).prop_map(|(which, span)| Step::Use(which, span)),
        2 => (0usize..2, span.clone(), span.clone()).prop_map(|(which, span, rest)| Step::UseThen(which, span, rest)),
        1 => span.clone().prop_map(Step::Lock),
        2 => (0u8..2, span).prop_map(|(key, span)| Step::LockKey(key, span)),
        1 => Just(Step::Signal),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let steps = proptest::collection::vec(inner, 0..4);
        prop_oneof![
            proptest::collection::vec(steps.clone(), 0..4).prop_map(Step::SideBySide),
            steps.prop_map(Step::Child),
        ]
    })
}

/// The time, the task (path of its ancestors), and the step that it has done.
type Entry = (Ns, Vec<usize>, usize);

struct World {
    sim: Sim,
    resources: [Resource; 2],
    mutex: Mutex,
    keys: KeyedLock<u8>,
    signal: WaitQueue,
    log: RefCell<Vec<Entry>>,
}

/// One task, or one branch of it.
fn run(world: &Rc<World>, path: Vec<usize>, steps: Vec<Step>) {
    let sim = &world.sim;
    for (index, step) in steps.into_iter().enumerate() {
        let path = &path;
        let inner = move |branch: usize| [&path[..], &[index, branch]].concat();
        match step {
            Step::Sleep(span) => sim.sleep(span),
            Step::External(span) => sim.sleep_until_external(sim.now() + span),
            Step::Yield => sim.yield_now(),
            Step::Use(which, span) => world.resources[which].run(span),
            Step::UseThen(which, span, rest) => world.resources[which].run_then(span, rest),
            Step::Lock(span) => {
                let _lock = world.mutex.lock();
                sim.sleep(span);
            }
            Step::LockKey(key, span) => {
                let _lock = world.keys.lock(key);
                sim.sleep(span);
            }
            Step::Signal => {
                // Either a waiter is woken or all are released: no task waits for ever.
                if !world.signal.wake_one() {
                    let (sim2, world2) = (sim.clone(), world.clone());
                    sim.spawn(move || {
                        sim2.sleep(9);
                        world2.signal.wake_all();
                    });
                    world.signal.wait();
                }
            }
            Step::SideBySide(branches) => {
                let branches = branches
                    .into_iter()
                    .enumerate()
                    .map(|(branch, steps)| move || run(world, inner(branch), steps));
                join_all(sim, branches);
            }
            Step::Child(steps) => {
                let (world2, path) = (world.clone(), inner(0));
                sim.spawn(move || run(&world2, path, steps)).join();
            }
        }
        let entry = (sim.now(), path.clone(), index);
        world.log.borrow_mut().push(entry);
    }
}

type Outcome = (Vec<Entry>, [ResourceStatistics; 2], u64, Ns);

fn outcome(sim: Sim, program: &[Vec<Step>]) -> Outcome {
    let world = Rc::new(World {
        resources: [Resource::new(&sim, "one", 1), Resource::new(&sim, "two", 2)],
        mutex: Mutex::new(&sim),
        keys: KeyedLock::new(&sim),
        signal: WaitQueue::new(&sim),
        log: RefCell::default(),
        sim: sim.clone(),
    });
    let tasks: Vec<_> = program
        .iter()
        .enumerate()
        .map(|(task, steps)| {
            let (world, steps) = (world.clone(), steps.clone());
            sim.spawn(move || run(&world, vec![task], steps))
        })
        .collect();
    sim.block_on(|| {
        for task in tasks {
            task.join();
        }
    });
    sim.run();
    assert!(world.resources.iter().all(Resource::is_idle));
    assert!(world.mutex.try_lock().is_some());
    let statistics = [0, 1].map(|which: usize| world.resources[which].statistics());
    (world.log.take(), statistics, sim.events(), sim.now())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A run in which the clock advances in place is the same, to the last event, as one with events through
    /// the heap.
    #[test]
    fn travelling_in_place_is_not_seen(
        program in proptest::collection::vec(proptest::collection::vec(step(), 0..6), 1..5),
    ) {
        let in_place = outcome(Sim::new(), &program);
        let stepped = Sim::new();
        stepped.step_every_event();
        prop_assert_eq!(in_place, outcome(stepped, &program));
    }

    /// With every order of events of one time, each program ends, and each task's steps keep their order.
    #[test]
    fn every_order_within_one_time_comes_to_an_end(
        program in proptest::collection::vec(proptest::collection::vec(step(), 0..6), 1..5),
        seed in any::<u64>(),
    ) {
        let (usual, ..) = outcome(Sim::new(), &program);
        let (permuted, ..) = outcome(Sim::permuted(seed), &program);
        prop_assert!(permuted.is_sorted_by_key(|(at, _, _)| *at));
        let steps = |log: &[Entry]| {
            let mut steps: Vec<_> = log.iter().map(|(_, path, index)| (path.clone(), *index)).collect();
            steps.sort();
            steps
        };
        prop_assert_eq!(steps(&usual), steps(&permuted));
    }
}
