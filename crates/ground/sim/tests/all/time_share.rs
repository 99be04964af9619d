//! Background work on cores that also do other work.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_sim::{Core, Ns, Resource, Sim, TimeShare, join_all};

const SLICE_NS: Ns = 50;

fn cores(sim: &Sim, count: u32) -> Vec<Rc<Resource>> {
    (0..count).map(|core| Rc::new(Resource::new(sim, format!("core-{core}"), 1))).collect()
}

/// A task that uses `core` without a pause until `until` is set; returns the longest time that it waited for
/// the core.
fn serve(sim: &Sim, core: &Resource, step_ns: Ns, until: &Cell<bool>) -> Ns {
    let mut longest = 0;
    while !until.get() {
        let began = sim.now();
        core.run(step_ns);
        longest = longest.max(sim.now() - began - step_ns);
    }
    longest
}

#[test]
fn a_serving_task_waits_for_a_slice_and_then_has_the_core_for_as_long() {
    for (workers, span_ns) in [(1, 2_000), (2, 4_000)] {
        let sim = Sim::new();
        let cores = cores(&sim, 1);
        let share = Rc::new(TimeShare::new(&sim, &cores, SLICE_NS));
        let is_done = Rc::new(Cell::new(false));
        let (serving, core, until) = (sim.clone(), cores[0].clone(), is_done.clone());
        let server = sim.spawn(move || serve(&serving, &core, 3, &until));
        let took_ns = sim.block_on(|| {
            let work = (0..workers).map(|_| || share.run_noted(1_000, "test", "work"));
            join_all(&sim, work);
            is_done.set(true);
            sim.now()
        });
        let longest = sim.block_on(|| server.join());
        assert!((1..=SLICE_NS).contains(&longest), "{workers} beside: waited {longest} ns");
        // The task gets half of the time, however many background tasks there are.
        let difference = took_ns.abs_diff(span_ns);
        assert!(difference < span_ns / 8, "{workers} x 1000 ns of work took {took_ns} ns");
    }
}

#[test]
fn work_goes_to_cores_that_are_idle_and_is_not_put_off_for_its_like() {
    let sim = Sim::new();
    let cores = cores(&sim, 3);
    let share = Rc::new(TimeShare::new(&sim, &cores, SLICE_NS));
    let is_done = Rc::new(Cell::new(false));
    let (serving, core, until) = (sim.clone(), cores[0].clone(), is_done.clone());
    let server = sim.spawn(move || serve(&serving, &core, 3, &until));
    let took_ns = sim.block_on(|| {
        join_all(&sim, (0..2).map(|_| || share.run_noted(1_010, "test", "work")));
        is_done.set(true);
        sim.now()
    });
    assert_eq!(took_ns, 1_010, "two cores were idle");
    assert!(sim.block_on(|| server.join()) <= SLICE_NS);

    // On a core without other work, slices follow each other without a gap.
    let own = TimeShare::new(&sim, &[Rc::new(Resource::new(&sim, "own", 1))], SLICE_NS);
    let began = sim.now();
    sim.block_on(|| drop(join_all(&sim, (0..2).map(|_| || own.run_noted(1_010, "test", "work")))));
    assert_eq!(sim.now() - began, 2_020);
}
