//! How serving tasks spend their time: sums that agree with the clock, and that change nothing.

use kvdrive_sim::{Cause, OccupationStatistics, Resource, Sim, join_all};

fn spent(of: &OccupationStatistics) -> Vec<(&'static str, u64)> {
    of.spent().collect()
}

#[test]
fn time_counts_once_for_the_first_cause_over_calls_and_branches() {
    let sim = Sim::new();
    let server = sim.clone();
    sim.spawn(move || {
        server.occupy("contexts");
        server.sleep(1000); // idle
        let _request = server.spend(Cause::Other);
        server.sleep(5);
        {
            let _read = server.spend(Cause::Read);
            server.sleep(20);
            let _core = server.spend(Cause::Core);
            server.sleep(3);
        }
        // Two branches read while one of them computes for a part of the time.
        let read = |core_ns: u64| {
            let server = &server;
            move || {
                let _read = server.spend(Cause::Read);
                server.sleep(10);
                let _core = server.spend(Cause::Core);
                server.sleep(core_ns);
            }
        };
        join_all(&server, [read(7), read(0)]);
        // Time of another task is not the server's.
        let other = server.clone();
        server.spawn(move || {
            let _program = other.spend(Cause::Program);
            other.sleep(100);
        });
    });
    sim.run();
    let all = sim.occupations();
    assert_eq!(spent(&all[0]), [("core", 10), ("read", 30), ("other", 5)]);
    assert_eq!((all[0].tasks, all[0].occupied_ns()), (1, 45));
}

#[test]
fn a_core_counts_with_its_queue_and_tasks_of_one_name_are_summed() {
    let sim = Sim::new();
    let core = std::rc::Rc::new(Resource::new(&sim, "core", 1).spending(Cause::Core));
    for _ in 0..3 {
        let (sim, core) = (sim.clone(), core.clone());
        sim.clone().spawn(move || {
            sim.occupy("contexts");
            core.run(10);
        });
    }
    let looked = sim.clone();
    sim.spawn(move || {
        looked.sleep(4);
        let all = looked.occupations();
        assert_eq!((all[0].tasks, spent(&all[0])), (3, vec![("core", 12)]), "up to now");
        looked.sleep(8);
        let since = looked.occupations()[0].since(&all);
        assert_eq!(spent(&since), [("core", 6 + 8 + 8)]);
    });
    sim.run();
    assert_eq!(spent(&sim.occupations()[0]), [("core", 10 + 20 + 30)]);
}

#[test]
fn a_task_that_is_dropped_ends_what_it_spent_its_time_on() {
    let sim = Sim::new();
    let server = sim.clone();
    let task = sim.spawn(move || {
        server.occupy("contexts");
        let _read = server.spend(Cause::Read);
        server.sleep(1000);
    });
    let caller = sim.clone();
    sim.block_on(|| {
        caller.sleep(10);
        task.cancel();
        caller.sleep(10);
    });
    assert_eq!(spent(&sim.occupations()[0]), [("read", 10)]);
}
