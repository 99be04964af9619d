//! The order of service: resources, locks, queues, and waiters that leave.

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::rc::Rc;

use kvdrive_sim::{KeyedLock, Mutex, Ns, Resource, Sim, WaitQueue};
use proptest::prelude::*;

/// A task that waits from now on. If there is a `deadline` and the task has not been served by then, which
/// `body` notes by setting its argument, it is dropped while it waits.
fn impatient(sim: &Sim, deadline: impl Into<Option<Ns>>, body: impl FnOnce(&Cell<bool>) + 'static) {
    let served = Rc::new(Cell::new(false));
    let (sim2, served2) = (sim.clone(), served.clone());
    let waiting = sim.spawn(move || body(&served));
    let Some(deadline) = deadline.into() else { return };
    sim.spawn(move || {
        sim2.sleep_until(deadline);
        if !served2.get() {
            waiting.cancel();
        }
    });
}

#[test]
fn a_resource_serves_in_order_of_arrival_and_counts() {
    let sim = Sim::new();
    let die = Rc::new(Resource::new(&sim, "die", 2));
    let log = Rc::new(RefCell::new(Vec::new()));
    for who in 0..6u64 {
        let (sim2, die, log) = (sim.clone(), die.clone(), log.clone());
        sim.spawn(move || {
            sim2.sleep(who);
            let server = die.acquire();
            log.borrow_mut().push((sim2.now(), who));
            sim2.sleep(10);
            drop(server);
            // A task that asks again at once queues after those that wait.
            die.run(1);
            log.borrow_mut().push((sim2.now(), who + 100));
        });
    }
    sim.run();
    assert_eq!(
        *log.borrow(),
        [
            (0, 0),
            (1, 1),
            (10, 2),
            (11, 3),
            (20, 4),
            (21, 5),
            (31, 100),
            (32, 101),
            (32, 102),
            (33, 103),
            (33, 104),
            (34, 105),
        ]
    );
    let statistics = die.statistics();
    assert_eq!(statistics.uses, 12);
    assert_eq!(statistics.busy_ns, 66);
    let waited = [0, 0, 8, 8, 16, 16, 20, 20, 11, 11, 2, 2];
    assert_eq!(statistics.queue_ns, waited.iter().sum::<u64>());
    assert_eq!(die.name(), "die");
}

#[test]
fn using_a_resource_for_no_time_does_not_even_queue() {
    let sim = Sim::new();
    let die = Resource::new(&sim, "die", 1);
    let _held = sim.block_on(|| die.acquire());
    sim.block_on(|| die.run(0));
    assert_eq!(die.statistics().uses, 1);
}

#[test]
fn a_key_is_handed_to_its_waiters_in_order_and_others_do_not_wait() {
    for sim in [Sim::new(), Sim::permuted(3), Sim::permuted(4)] {
        let keys = Rc::new(KeyedLock::new(&sim));
        let log = Rc::new(RefCell::new(Vec::new()));
        for who in 0..10u64 {
            let (sim2, keys, log) = (sim.clone(), keys.clone(), log.clone());
            sim.spawn(move || {
                sim2.sleep(who);
                let held = keys.lock(who % 2);
                log.borrow_mut().push((who % 2, who));
                sim2.sleep(20);
                drop(held);
                let _again = keys.lock(who % 2);
                log.borrow_mut().push((who % 2, who + 100));
            });
        }
        sim.run();
        for parity in 0..2 {
            let order: Vec<u64> =
                log.borrow().iter().filter(|(key, _)| *key == parity).map(|(_, who)| *who).collect();
            let first = (0..10).filter(|who| who % 2 == parity);
            let again = first.clone().map(|who| who + 100);
            assert_eq!(order, first.chain(again).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_mutex_is_taken_by_one_and_handed_over() {
    let sim = Sim::new();
    let mutex = Rc::new(Mutex::new(&sim));
    let first = mutex.try_lock().expect("it is free");
    assert!(mutex.try_lock().is_none());
    let mutex2 = mutex.clone();
    impatient(&sim, 5, move |_| {
        mutex2.lock();
        panic!("another task holds it");
    });
    sim.run();
    drop(first);
    assert!(mutex.try_lock().is_some());
}

/// A task's request: its time, the longest wait, and how long the task holds the lock.
#[derive(Clone, Copy, Debug)]
struct Wish {
    from: Ns,
    patience: Ns,
    span: Ns,
    key: u8,
}

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let wish = (0u64..12, 0u64..12, 0u64..5, 0u8..2).prop_map(|(from, patience, span, key)| Wish {
        from,
        patience,
        span,
        key,
    });
    proptest::collection::vec(wish, 1..14)
}

/// The object that a wish is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Server,
    Lock,
    Key,
}

struct Things {
    sim: Sim,
    die: Resource,
    mutex: Mutex,
    keys: KeyedLock<u8>,
    asked: Cell<usize>,
    /// Keys that are held now.
    holders: RefCell<Vec<u8>>,
    /// Key and number of every task that was served, in order.
    served: RefCell<Vec<(u8, usize)>>,
}

impl Things {
    fn hold(&self, wish: Wish, number: usize) {
        self.served.borrow_mut().push((wish.key, number));
        self.holders.borrow_mut().push(wish.key);
        self.sim.sleep(wish.span);
        let mut holders = self.holders.borrow_mut();
        let index = holders.iter().position(|key| *key == wish.key);
        holders.swap_remove(index.expect("it holds"));
    }

    fn at_most(&self, limit: usize, what: What) {
        let holders = self.holders.borrow();
        let count = match what {
            What::Server | What::Lock => holders.len(),
            What::Key => {
                (0..2).map(|key| holders.iter().filter(|other| **other == key).count()).max().unwrap_or(0)
            }
        };
        assert!(count <= limit, "{count} hold what {limit} may");
    }
}

/// Runs every wish as a task of its own.
fn grant(seed: Option<u64>, servers: u32, what: What, wishes: &[Wish]) -> Rc<Things> {
    let sim = seed.map_or_else(Sim::new, Sim::permuted);
    let things = Rc::new(Things {
        die: Resource::new(&sim, "die", servers),
        mutex: Mutex::new(&sim),
        keys: KeyedLock::new(&sim),
        asked: Cell::new(0),
        holders: RefCell::default(),
        served: RefCell::default(),
        sim: sim.clone(),
    });
    for wish in wishes.iter().copied() {
        let things = things.clone();
        impatient(&sim, wish.from + wish.patience, move |served| {
            things.sim.sleep(wish.from);
            let number = things.asked.replace(things.asked.get() + 1);
            let hold = || {
                served.set(true);
                things.hold(wish, number);
            };
            match what {
                What::Server => {
                    let _server = things.die.acquire();
                    hold();
                }
                What::Lock => {
                    let _lock = things.mutex.lock();
                    hold();
                }
                What::Key => {
                    let _key = things.keys.lock(wish.key);
                    hold();
                }
            }
        });
    }
    let limit = if what == What::Server { servers } else { 1 };
    while sim.step() {
        things.at_most(limit as usize, what);
    }
    things
}

/// Which wishes were served and when. Each wish is for a server for some time, and some tasks leave when
/// their patience ends; a wish is one call, or the two calls that it replaces. At each time in `holds`, the
/// clock is held for an instant.
fn uses(sim: Sim, servers: u32, wishes: &[Wish], holds: &[Ns], in_one: bool) -> impl PartialEq + Debug {
    let die = Rc::new(Resource::new(&sim, "die", servers));
    let served = Rc::new(RefCell::new(Vec::new()));
    for at in holds.iter().copied() {
        let sim2 = sim.clone();
        sim.spawn(move || {
            // The sleep is in steps, so that this task runs after tasks that end at the same time.
            for _ in 0..at {
                sim2.sleep(1);
            }
            let _hold = sim2.hold_clock();
            sim2.yield_now();
        });
    }
    for (number, wish) in wishes.iter().copied().enumerate() {
        let (sim2, die, served) = (sim.clone(), die.clone(), served.clone());
        let deadline = (wish.key == 0).then_some(wish.from + wish.patience);
        impatient(&sim, deadline, move |is_served| {
            sim2.sleep(wish.from);
            if in_one {
                die.run(wish.span);
            } else if wish.span > 0 {
                let _server = die.acquire();
                sim2.sleep(wish.span);
            }
            is_served.set(true);
            served.borrow_mut().push((sim2.now(), number));
        });
    }
    sim.run();
    assert!(die.is_idle());
    let mut served = served.take();
    let patient = wishes.iter().filter(|wish| wish.key != 0).count();
    assert!(served.len() >= patient, "a task still waits");
    // If a task leaves at the very time at which another one is served, either may come first.
    served.sort_unstable();
    (served, die.statistics().busy_ns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Using a resource for some time is the same as taking it and sleeping, whichever waiters leave, and
    /// whenever.
    #[test]
    fn to_use_is_to_wait_and_to_sleep(wishes in wishes(), servers in 1u32..3) {
        let [in_one, in_two] = [true, false].map(|in_one| uses(Sim::new(), servers, &wishes, &[], in_one));
        prop_assert_eq!(in_one, in_two);
    }

    /// No waiter is left waiting when time stands still for an instant, or with events of one time in any
    /// order.
    #[test]
    fn no_task_sleeps_for_ever(
        wishes in wishes(),
        servers in 1u32..3,
        holds in proptest::collection::vec(0u64..30, 0..4),
        seed in any::<Option<u64>>(),
    ) {
        uses(seed.map_or_else(Sim::new, Sim::permuted), servers, &wishes, &holds, true);
    }

    #[test]
    fn no_server_is_lost_with_a_waiter(wishes in wishes(), seed in any::<Option<u64>>(), servers in 1u32..3) {
        let things = grant(seed, servers, What::Server, &wishes);
        prop_assert!(things.die.is_idle());
        for _ in 0..servers {
            things.sim.block_on(|| std::mem::forget(things.die.acquire()));
        }
    }

    #[test]
    fn no_lock_is_lost_with_a_waiter(wishes in wishes(), seed in any::<Option<u64>>()) {
        let things = grant(seed, 1, What::Lock, &wishes);
        prop_assert!(things.mutex.try_lock().is_some());
    }

    #[test]
    fn no_key_is_lost_with_a_waiter(wishes in wishes(), seed in any::<Option<u64>>()) {
        let things = grant(seed, 1, What::Key, &wishes);
        for key in 0..2 {
            things.sim.block_on(|| things.keys.lock(key));
        }
    }

    /// Waiters that leave do not change the order of those that stay.
    #[test]
    fn who_stays_is_served_in_order(wishes in wishes(), what in 0usize..3) {
        let what = [What::Server, What::Lock, What::Key][what];
        let things = grant(None, 1, what, &wishes);
        let served = things.served.borrow();
        for key in 0..2 {
            let mine = served.iter().filter(|(other, _)| what != What::Key || *other == key);
            prop_assert!(mine.is_sorted_by_key(|(_, number)| *number));
        }
    }

    /// A wake-up of a plain queue is passed on as well: it is lost only if no waiter is left.
    #[test]
    fn no_wake_up_is_lost_with_a_waiter(wishes in wishes(), seed in any::<Option<u64>>(), wakes in 0usize..8) {
        let sim = seed.map_or_else(Sim::new, Sim::permuted);
        let queue = Rc::new(WaitQueue::new(&sim));
        let served = Rc::new(Cell::new(0));
        for wish in wishes.iter().copied() {
            let (sim2, queue, served) = (sim.clone(), queue.clone(), served.clone());
            // All wait before time 20; the impatient ones leave at 20, exactly when the wake-ups come; the
            // others never leave.
            let deadline = if wish.key == 0 { 20 } else { 1_000 };
            impatient(&sim, deadline, move |is_served| {
                sim2.sleep(wish.from);
                queue.wait();
                is_served.set(true);
                served.set(served.get() + 1);
            });
        }
        let (sim2, queue2) = (sim.clone(), queue.clone());
        sim.spawn(move || {
            sim2.sleep_until(20);
            for _ in 0..wakes {
                queue2.wake_one();
            }
        });
        sim.run();
        let patient = wishes.iter().filter(|wish| wish.key == 1).count();
        prop_assert!(served.get() >= wakes.min(patient), "{} of {patient} after {wakes}", served.get());
        prop_assert!(queue.is_empty());
    }
}
