//! Rings, doorbells, phases, turns.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_link::{Link, PciePort, Port, QueuePair, Request};
use kvdrive_nvme::{Cqe, Sqe, Status, opcode};
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;

use super::scattered::link;

fn command(opcode: u8, cid: u16) -> Sqe {
    Sqe::new(opcode, cid, 1)
}

/// Takes the next command and completes it; returns the number of its session, which is that of its queue,
/// and its identifier.
fn take(link: &Rc<Link>) -> (u32, u16) {
    let request = PciePort::new(link).next();
    let (session, cid) = (request.session().number(), request.sqe().cid.get());
    request.complete(Cqe::new(cid, Status::SUCCESS));
    (session, cid)
}

/// Takes every command and completes it at once, for ever.
fn complete_all(link: Rc<Link>) {
    loop {
        take(&link);
    }
}

#[test]
fn a_ring_of_n_slots_holds_one_less() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queue = link.create_queue(4);
    assert_eq!((queue.id(), queue.is_admin(), queue.entries()), (1, false, 4));
    assert!(link.admin_queue().is_admin());
    for cid in 0..3 {
        assert!(queue.try_submit(command(opcode::EXIST, cid)));
    }
    assert!(!queue.try_submit(command(opcode::EXIST, 3)), "full");
    sim.block_on(|| link.ring_submission(&queue));
    assert!(!queue.try_submit(command(opcode::EXIST, 3)), "full until the drive has taken one");
    sim.block_on(|| take(&link));
    assert!(queue.try_submit(command(opcode::EXIST, 3)));
}

#[test]
fn the_drive_sees_what_was_there_when_the_doorbell_was_rung() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queue = link.create_queue(8);
    assert!(queue.try_submit(command(opcode::EXIST, 0)));
    let (link2, queue2) = (link.clone(), queue.clone());
    sim.spawn(move || link2.ring_submission(&queue2));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (link2, seen2) = (link.clone(), seen.clone());
    sim.spawn(move || {
        loop {
            let (_, cid) = take(&link2);
            seen2.borrow_mut().push(cid);
        }
    });
    sim.block_on(|| {
        sim.sleep(50); // the doorbell is under way
        assert!(queue.try_submit(command(opcode::EXIST, 1)));
        sim.sleep(10_000);
        assert_eq!(*seen.borrow(), [0]);
        link.ring_submission(&queue);
        sim.sleep(10_000);
        assert_eq!(*seen.borrow(), [0, 1]);
    });
}

#[test]
fn queues_are_served_in_turn() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queues: Vec<Rc<QueuePair>> = (0..3).map(|_| link.create_queue(8)).collect();
    for queue in &queues {
        for cid in 0..3 {
            assert!(queue.try_submit(command(opcode::EXIST, cid)));
        }
    }
    let order = sim.block_on(|| {
        for queue in &queues {
            link.ring_submission(queue);
        }
        let mut order = Vec::new();
        for _ in 0..9 {
            order.push(take(&link));
        }
        order
    });
    let expected: Vec<(u32, u16)> = (0..3).flat_map(|cid| (1..4).map(move |queue| (queue, cid))).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_phase_toggles_with_every_pass_over_the_ring_and_the_head_goes_round() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queue = link.create_queue(3);
    let served = link.clone();
    sim.spawn(move || complete_all(served));
    sim.block_on(|| {
        for number in 0..20u16 {
            assert!(queue.try_submit(command(opcode::EXIST, 0)));
            link.ring_submission(&queue);
            let cqe = queue.completion(0);
            link.ring_completion(&queue);
            assert_eq!(cqe.phase(), (number / 3).is_multiple_of(2), "entry {number}");
            assert_eq!((cqe.sqhd.get(), cqe.sqid.get()), ((number + 1) % 3, 1));
        }
    });
}

#[test]
fn a_full_completion_queue_makes_the_drive_wait() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queue = link.create_queue(3);
    let served = link.clone();
    sim.spawn(move || complete_all(served));
    sim.block_on(|| {
        for cid in 0..2 {
            assert!(queue.try_submit(command(opcode::EXIST, cid)));
        }
        link.ring_submission(&queue);
        sim.sleep(10_000);
        // Both completions are in the ring, and neither slot is released.
        assert!(queue.try_submit(command(opcode::EXIST, 2)));
        link.ring_submission(&queue);
        sim.sleep(10_000);
        assert!(queue.try_completion(2).is_none(), "no slot, no completion");
        assert_eq!(queue.any_completion().map(|cqe| cqe.cid.get()), Some(0));
        link.ring_completion(&queue);
        assert_eq!(queue.completion(2).cid.get(), 2);
        assert_eq!(queue.completion(1).cid.get(), 1, "taken in any order");
        link.ring_completion(&queue);
        link.ring_completion(&queue);
    });
}

#[test]
#[should_panic(expected = "a completion slot was released that was not used")]
fn a_slot_is_released_once() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    link.ring_completion(&link.create_queue(3));
}

#[test]
fn only_inline_commands_of_io_queues_have_turns() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queue = link.create_queue(16);
    let opcodes = [opcode::WRITE, opcode::STORE, opcode::TRANSFER, opcode::EXIST, opcode::HYBRID];
    for opcode in opcodes {
        assert!(queue.try_submit(command(opcode, 0)));
        assert!(link.admin_queue().try_submit(command(opcode, 0)));
    }
    sim.block_on(|| {
        link.ring_submission(&queue);
        link.ring_submission(&link.admin_queue());
        let (mut turns, mut admin) = (Vec::new(), 0);
        for _ in 0..10 {
            let request = PciePort::new(&link).next();
            if request.is_admin() {
                assert_eq!(request.turn(), None);
                admin += 1;
            } else {
                turns.push(request.turn());
            }
            request.omit();
        }
        assert_eq!(admin, 5);
        assert_eq!(turns, [Some(0), None, Some(1), None, Some(2)]);
    });
}

proptest! {
    /// Several contexts, several queues, every order of events: inline commands of a queue are handled one at a time
    /// and in the queue's order, even if they wait.
    #[test]
    fn inline_commands_keep_the_order_of_their_queue(seed in any::<u64>(), contexts in 1usize..6) {
        let sim = Sim::permuted(seed);
        let link = link(&sim, &Rc::default());
        let handled: Rc<RefCell<[Vec<u16>; 3]>> = Rc::default();
        let inside = Rc::new([Cell::new(false), Cell::new(false), Cell::new(false)]);
        let spans = Rc::new(RefCell::new(Rng::stream(seed, "spans")));
        for _ in 0..contexts {
            let (sim2, link, handled) = (sim.clone(), link.clone(), handled.clone());
            let (inside, spans) = (inside.clone(), spans.clone());
            sim.spawn(move || {
                loop {
                    let request = PciePort::new(&link).next();
                    let (queue, cid) = (request.session().number() as usize, request.sqe().cid.get());
                    let span = spans.borrow_mut().below(300);
                    match request.turn() {
                        None => sim2.sleep(span),
                        Some(turn) => {
                            request.session().wait_turn(turn);
                            assert!(!inside[queue].replace(true), "two at once");
                            sim2.sleep(span);
                            handled.borrow_mut()[queue].push(cid);
                            inside[queue].set(false);
                            request.session().end_turn();
                        }
                    }
                    request.complete(Cqe::new(cid, Status::SUCCESS));
                }
            });
        }
        let mut expected: [Vec<u16>; 3] = Default::default();
        let mut opcodes = Rng::stream(seed, "opcodes");
        let queues = [link.create_queue(32), link.create_queue(32)];
        for queue in &queues {
            for cid in 0..20 {
                let opcode = [opcode::WRITE, opcode::TRANSFER, opcode::EXIST][opcodes.below(3) as usize];
                if opcode != opcode::EXIST {
                    expected[usize::from(queue.id())].push(cid);
                }
                assert!(queue.try_submit(command(opcode, cid)));
            }
            let (link, queue) = (link.clone(), queue.clone());
            sim.spawn(move || { link.ring_submission(&queue) });
        }
        sim.block_on(|| {
            for queue in &queues {
                for cid in 0..20 {
                    queue.completion(cid);
                    link.ring_completion(queue);
                }
            }
        });
        prop_assert_eq!(&*handled.borrow(), &expected);
    }
}
