//! Measures the executor: ns of this machine per event, for commands of three events each.
//!
//! `cargo run --release -p kvdrive-sim --example events`
//!
//! * alone: one client task and one server task exchange commands; most sleeps continue in place
//! * stepped: the same, but every sleep goes through the heap
//! * crowd: 64 clients queue for 8 dies; no sleep continues in place

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_sim::wall::Stopwatch;
use kvdrive_sim::{Resource, Sim, WaitQueue};

const COMMANDS: u64 = 3_000_000;

/// Two tasks and a queue in each direction: submit, serve, complete.
fn ping_pong(sim: &Sim) {
    let (requests, answers) = (Rc::new(WaitQueue::new(sim)), Rc::new(WaitQueue::new(sim)));
    let (sim2, requests2, answers2) = (sim.clone(), requests.clone(), answers.clone());
    sim.spawn(move || {
        loop {
            requests2.wait();
            sim2.sleep(100);
            answers2.wake_one();
        }
    });
    let sim2 = sim.clone();
    sim.block_on(move || {
        sim2.sleep(1);
        for _ in 0..COMMANDS {
            requests.wake_one();
            answers.wait();
        }
    });
    sim.clear();
}

/// Sleep, queue for a die, use it.
fn crowd(sim: &Sim) {
    let dies: Rc<Vec<Resource>> =
        Rc::new((0..8).map(|die| Resource::new(sim, format!("die {die}"), 1)).collect());
    let left = Rc::new(Cell::new(COMMANDS));
    for client in 0..64u64 {
        let (sim2, dies, left) = (sim.clone(), dies.clone(), left.clone());
        sim.spawn(move || {
            let mut die = client;
            while left.get() > 0 {
                left.set(left.get() - 1);
                sim2.sleep(50 + client);
                die = die.wrapping_mul(5).wrapping_add(client) % 8;
                dies[die as usize].run(20);
            }
        });
    }
    sim.run();
}

fn measure(name: &str, sim: &Sim, run: fn(&Sim)) {
    let watch = Stopwatch::start();
    run(sim);
    let ns = watch.seconds() * 1e9;
    let events = sim.events();
    println!(
        "{name:8} {:6.1} ns/event  {:5.2} events/command  {:6.2} M commands/s",
        ns / events as f64,
        events as f64 / COMMANDS as f64,
        COMMANDS as f64 * 1e3 / ns
    );
}

fn main() {
    measure("alone", &Sim::new(), ping_pong);
    let stepped = Sim::new();
    stepped.step_every_event();
    measure("stepped", &stepped, ping_pong);
    measure("crowd", &Sim::new(), crowd);
}
