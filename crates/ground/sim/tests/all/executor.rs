//! Order of events, tasks and their ends, power cuts.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_sim::{Mutex, Resource, Sim, TaskKey, WaitQueue, join_all};

type Log = Rc<RefCell<Vec<(u64, u32)>>>;

fn note(log: &Log, sim: &Sim, who: u32) {
    log.borrow_mut().push((sim.now(), who));
}

#[test]
fn events_run_by_time_and_then_in_the_order_they_were_scheduled() {
    let sim = Sim::new();
    let log = Log::default();
    for (who, at) in [(0, 30), (1, 10), (2, 30), (3, 10), (4, 20)] {
        let (sim2, log) = (sim.clone(), log.clone());
        sim.spawn(move || {
            sim2.sleep_until(at);
            note(&log, &sim2, who);
        });
    }
    sim.run();
    assert_eq!(*log.borrow(), [(10, 1), (10, 3), (20, 4), (30, 0), (30, 2)]);
}

#[test]
fn an_arrival_from_outside_precedes_everything_else_of_its_time() {
    for sim in [Sim::new(), Sim::permuted(1), Sim::permuted(2)] {
        let log = Log::default();
        for who in 0..8 {
            let (sim2, log) = (sim.clone(), log.clone());
            sim.spawn(move || {
                sim2.sleep_until(10);
                note(&log, &sim2, who);
            });
        }
        let (sim2, log2) = (sim.clone(), log.clone());
        sim.spawn(move || {
            sim2.sleep_until_external(10);
            note(&log2, &sim2, 99);
        });
        sim.run();
        assert_eq!(log.borrow()[0], (10, 99));
        assert_eq!(log.borrow().len(), 9);
    }
}

/// Sleepers that never meet: returns which one woke when.
fn sleepers(sim: &Sim) -> Vec<(u64, u32)> {
    let log = Log::default();
    for who in 0..20 {
        let (sim2, log) = (sim.clone(), log.clone());
        sim.spawn(move || {
            for step in 0..10 {
                sim2.sleep(u64::from((who * 7 + step * 3) % 5) + 1);
                note(&log, &sim2, who);
            }
        });
    }
    sim.run();
    log.take()
}

#[test]
fn a_permuted_executor_changes_only_the_order_within_one_time() {
    let usual = sleepers(&Sim::new());
    let mut sorted = usual.clone();
    sorted.sort_unstable();
    let mut orders = vec![usual];
    for seed in 0..5 {
        let permuted = sleepers(&Sim::permuted(seed));
        assert_eq!(permuted, sleepers(&Sim::permuted(seed)), "a seed is an order");
        assert!(permuted.is_sorted_by_key(|(at, _)| *at));
        let mut same = permuted.clone();
        same.sort_unstable();
        assert_eq!(same, sorted);
        assert!(!orders.contains(&permuted), "seed {seed} repeats an order");
        orders.push(permuted);
    }
}

#[test]
fn a_task_ends_with_a_value_and_goes_on_without_its_handle() {
    let sim = Sim::new();
    let ended = Rc::new(Cell::new(false));
    let (sim2, ended2) = (sim.clone(), ended.clone());
    drop(sim.spawn(move || {
        sim2.sleep(50);
        ended2.set(true);
    }));
    let sim2 = sim.clone();
    let handle = sim.spawn(move || {
        sim2.sleep(5);
        "value"
    });
    assert_eq!(handle.try_take(), None);
    assert_eq!(sim.block_on(|| handle.join()), "value");
    assert_eq!(sim.now(), 5);
    sim.run();
    assert!(ended.get());
    assert_eq!(sim.now(), 50);
}

#[test]
fn the_key_of_an_ended_task_wakes_no_task() {
    let sim = Sim::new();
    let key: Rc<Cell<Option<TaskKey>>> = Rc::default();
    let (sim2, key2) = (sim.clone(), key.clone());
    sim.spawn(move || key2.set(Some(sim2.current())));
    sim.run();
    let resumed = Rc::new(Cell::new(0));
    let (sim2, resumed2) = (sim.clone(), resumed.clone());
    sim.spawn(move || {
        loop {
            resumed2.set(resumed2.get() + 1);
            sim2.suspend();
        }
    });
    sim.run();
    sim.wake(key.get().expect("the first task ran"));
    sim.run();
    assert_eq!(resumed.get(), 1, "the slot was reused, the key was not");
}

#[test]
fn join_all_runs_side_by_side_and_answers_in_order() {
    let sim = Sim::new();
    let sleepers = [30, 10, 20].map(|span| {
        let sim = sim.clone();
        move || {
            sim.sleep(span);
            sim.now()
        }
    });
    assert_eq!(sim.block_on(|| join_all(&sim, sleepers)), [30, 10, 20]);
    assert_eq!(sim.now(), 30);
    let none: [fn(); 0] = [];
    assert!(sim.block_on(|| join_all(&sim, none)).is_empty());
}

#[test]
fn yielding_lets_others_of_the_same_time_run() {
    let sim = Sim::new();
    let log = Log::default();
    for who in 0..2 {
        let (sim2, log) = (sim.clone(), log.clone());
        sim.spawn(move || {
            note(&log, &sim2, who);
            sim2.yield_now();
            note(&log, &sim2, who + 10);
        });
    }
    sim.run();
    assert_eq!(*log.borrow(), [(0, 0), (0, 1), (0, 10), (0, 11)]);
}

#[test]
fn sleeping_into_the_past_or_for_nothing_does_not_wait() {
    let sim = Sim::new();
    sim.block_on(|| {
        sim.sleep(7);
        let events = sim.events();
        sim.sleep(0);
        sim.sleep_until(3);
        sim.sleep_until_external(7);
        assert_eq!((sim.now(), sim.events()), (7, events));
    });
}

#[test]
fn a_sleep_without_end_does_not_overflow() {
    let sim = Sim::new();
    sim.block_on(|| sim.sleep(1));
    let sim2 = sim.clone();
    sim.spawn(move || sim2.sleep(u64::MAX));
    sim.block_on(|| sim.sleep(1));
    assert_eq!(sim.now(), 2);
}

#[test]
#[should_panic(expected = "nothing is due at 12 ns and what is waited for is not done")]
fn waiting_for_an_event_that_cannot_come_is_reported() {
    let sim = Sim::new();
    let queue = WaitQueue::new(&sim);
    sim.block_on(|| {
        sim.sleep(12);
        queue.wait();
    });
}

#[test]
#[should_panic(expected = "the power was cut at 3 ns")]
fn waiting_through_a_power_cut_says_so() {
    let sim = Sim::new();
    let sim2 = sim.clone();
    sim.spawn(move || {
        sim2.sleep(3);
        sim2.halt();
    });
    sim.block_on(|| sim.sleep(10));
}

#[test]
fn after_a_power_cut_no_task_runs_and_no_guard_acts() {
    let sim = Sim::new();
    let resource = Rc::new(Resource::new(&sim, "die", 1));
    let mutex = Rc::new(Mutex::new(&sim));
    let ran_on = Rc::new(Cell::new(false));
    for _ in 0..2 {
        let (sim2, resource, mutex) = (sim.clone(), resource.clone(), mutex.clone());
        let ran_on = ran_on.clone();
        sim.spawn(move || {
            let _lock = mutex.lock();
            let _server = resource.acquire();
            sim2.sleep(100);
            ran_on.set(true);
        });
    }
    while sim.now() < 100 && sim.events() < 2 {
        assert!(sim.step());
    }
    let before = resource.statistics();
    sim.halt();
    assert!(!sim.step());
    sim.clear();
    assert!(!ran_on.get());
    assert_eq!(resource.statistics(), before, "a dropped guard counted");
    assert!(!resource.is_idle(), "a dropped guard gave its server back");
    assert!(mutex.try_lock().is_none(), "a dropped guard gave its lock back");
}

#[test]
fn clearing_drops_every_task() {
    let sim = Sim::new();
    sim.step_every_event();
    let held = Rc::new(());
    let (sim2, held2) = (sim.clone(), held.clone());
    sim.spawn(move || {
        let _held = held2;
        sim2.sleep(1_000);
    });
    sim.step();
    assert_eq!(Rc::strong_count(&held), 2);
    sim.clear();
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_task_alone_travels_in_place_and_every_sleep_is_an_event() {
    let sim = Sim::new();
    let sim2 = sim.clone();
    sim.spawn(move || {
        for _ in 0..10 {
            sim2.sleep(1);
        }
    });
    assert!(sim.step());
    assert_eq!((sim.now(), sim.events()), (10, 11));
    assert!(!sim.step());
}

#[test]
fn while_the_clock_is_held_everything_happens_and_no_time_passes() {
    for sim in [Sim::new(), Sim::permuted(3)] {
        let die = Rc::new(Resource::new(&sim, "die", 1));
        let (queue, done) = (Rc::new(WaitQueue::new(&sim)), Rc::new(Cell::new(0)));
        // A sleep that has begun already is not shortened.
        let (sim2, done2) = (sim.clone(), done.clone());
        sim.spawn(move || {
            sim2.sleep(50);
            done2.set(done2.get() + 100);
        });
        sim.block_on(|| {
            sim.sleep(10);
            let hold = sim.hold_clock();
            for _ in 0..5 {
                let (sim2, die, queue, done) = (sim.clone(), die.clone(), queue.clone(), done.clone());
                sim.spawn(move || {
                    die.run_then(30, 5);
                    let _held = die.acquire();
                    sim2.sleep(1000);
                    join_all(
                        &sim2,
                        [20, 40].map(|span| {
                            let sim2 = &sim2;
                            move || sim2.sleep(span)
                        }),
                    );
                    done.set(done.get() + 1);
                    queue.wake_all();
                });
            }
            while done.get() < 5 {
                queue.wait();
            }
            sim.let_others_run();
            assert_eq!((sim.now(), done.get(), die.statistics().busy_ns), (10, 5, 0));
            drop(hold);
            die.run(30);
            assert_eq!((sim.now(), die.statistics().busy_ns), (40, 30));
            sim.sleep(20);
            assert_eq!((sim.now(), done.get()), (60, 105));
        });
    }
}

/// Notes its name when it is dropped.
struct Dropped(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn a_cancelled_task_is_dropped_from_the_innermost_call_outwards() {
    fn waits_for_ever(sim: &Sim, log: &Rc<RefCell<Vec<&'static str>>>) {
        let _inner = Dropped(log.clone(), "inner");
        WaitQueue::new(sim).wait();
        unreachable!("no task wakes it");
    }
    let sim = Sim::new();
    let log: Rc<RefCell<Vec<&str>>> = Rc::default();
    let (sim2, log2) = (sim.clone(), Rc::clone(&log));
    let task = sim.spawn(move || {
        let _outer = Dropped(log2.clone(), "outer");
        waits_for_ever(&sim2, &log2);
    });
    sim.run();
    assert!(log.borrow().is_empty());
    task.cancel();
    assert_eq!(*log.borrow(), ["inner", "outer"]);
    let again = sim.spawn(|| 7);
    sim.run();
    assert_eq!(again.try_take(), Some(7), "its slot and stack are used again");
}

/// Branches borrow from the stack of the call that waits for them, so they must be dropped first: when the
/// task is cancelled, and when all tasks are dropped.
#[test]
fn branches_are_dropped_before_what_they_borrow() {
    for cut in [false, true] {
        let sim = Sim::new();
        let log: Rc<RefCell<Vec<&'static str>>> = Rc::default();
        let (sim2, log2) = (sim.clone(), log.clone());
        let task = sim.spawn(move || {
            let lent = (Dropped(log2.clone(), "lent"), Cell::new(0));
            let branch = |span| {
                let (lent, log, sim) = (&lent, &log2, &sim2);
                move || {
                    let _branch = Dropped(log.clone(), "branch");
                    sim.sleep(span);
                    lent.1.set(lent.1.get() + span);
                }
            };
            join_all(&sim2, [branch(30), branch(10), branch(20)]);
        });
        while sim.now() < 10 {
            assert!(sim.step());
        }
        if cut {
            sim.clear();
        } else {
            task.cancel();
            sim.run();
        }
        assert_eq!(*log.borrow(), ["branch", "branch", "branch", "lent"]);
    }
}

#[test]
fn a_panic_in_a_task_or_a_branch_comes_out_of_the_loop() {
    let sim = Sim::new();
    let sim2 = sim.clone();
    sim.spawn(move || {
        let fails = |span: u64| {
            let sim = &sim2;
            move || {
                sim.sleep(span);
                assert!(span != 5, "branch of {span}");
            }
        };
        join_all(&sim2, [fails(9), fails(5), fails(7)]);
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.run())).unwrap_err();
    assert_eq!(caught.downcast_ref::<String>().map(String::as_str), Some("branch of 5"));
    assert_eq!(sim.now(), 5);
    sim.clear();
}

#[test]
#[should_panic(expected = "a task gives way and holds 1 borrows of what others use")]
fn suspending_with_a_borrow_panics() {
    let sim = Sim::new();
    let shared = kvdrive_sim::TaskCell::new(1);
    sim.block_on(|| {
        sim.sleep(1);
        let _looks = shared.borrow();
        sim.yield_now();
    });
}

#[test]
#[should_panic(expected = "model time is waited for by a task of the executor")]
fn only_tasks_wait() {
    WaitQueue::new(&Sim::new()).wait();
}

#[test]
fn how_deep_stacks_were_used_is_known() {
    fn descend(sim: &Sim, steps: u32) -> u64 {
        let here = std::hint::black_box([u64::from(steps); 128]);
        if steps == 0 {
            sim.yield_now();
            return here[0];
        }
        descend(sim, steps - 1) + here[steps as usize]
    }
    let sim = Sim::new();
    let sim2 = sim.clone();
    sim.spawn(move || descend(&sim2, 32));
    sim.run();
    let deepest = kvdrive_sim::deepest_stack_bytes();
    assert!((32 << 10..kvdrive_sim::STACK_BYTES).contains(&deepest), "{deepest} bytes");
}

#[test]
fn time_goes_where_it_is_told_and_no_further() {
    for sim in [Sim::new(), Sim::permuted(5)] {
        let log = Log::default();
        for who in 0..3 {
            let (sim2, log) = (sim.clone(), log.clone());
            sim.spawn(move || {
                for _ in 0..4 {
                    // Alone, such a task would travel in place to its end.
                    sim2.sleep(10);
                    note(&log, &sim2, who);
                }
            });
        }
        sim.run_until(19, || false);
        assert_eq!((sim.now(), log.borrow().len()), (19, 3));
        sim.run_until(20, || false);
        assert_eq!((sim.now(), log.borrow().len()), (20, 6), "events of that time are included");
        sim.run_until(1_000, || log.borrow().len() > 6);
        assert_eq!((sim.now(), log.borrow().len()), (30, 9), "all events of the time that is enough");
        sim.run_until(1_000, || false);
        assert_eq!((sim.now(), log.borrow().len()), (1_000, 12));
        assert_eq!(sim.next_due(), None);
        // Afterwards sleeps continue in place again.
        sim.block_on(|| sim.sleep(5));
        assert_eq!(sim.now(), 1_005);
    }
}
