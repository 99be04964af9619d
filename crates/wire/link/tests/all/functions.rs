//! Functions and queues are created and deleted, and no part of them is left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_content::{Piece, expanding};
use kvdrive_link::pcie::PcieRequest;
use kvdrive_link::{HostMemory, Link, PciePort, Port, QueuePair, Request};
use kvdrive_nvme::{Cqe, Sqe, Status, opcode};
use kvdrive_sim::Sim;

use super::scattered::{Scattered, link};

fn submit(link: &Link, queue: &QueuePair, cid: u16) {
    assert!(queue.try_submit(Sqe::new(opcode::WRITE, cid, 1)));
    link.ring_submission(queue);
}

fn answer(request: PcieRequest) {
    let cid = request.sqe().cid.get();
    request.complete(Cqe::new(cid, Status::SUCCESS));
}

/// The numbers of the sessions of `port` that end.
fn ended(port: &PciePort) -> Rc<RefCell<Vec<u32>>> {
    let ended: Rc<RefCell<Vec<u32>>> = Rc::default();
    let told = ended.clone();
    port.on_end(Rc::new(move |session| told.borrow_mut().push(session.number())));
    ended
}

#[test]
fn an_identifier_is_used_again_and_nothing_is_left_under_it() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let port = PciePort::new(&link);
    let ended = ended(&port);
    let queues = [link.create_queue(4), link.create_queue(4)];
    sim.block_on(|| {
        (0..2).for_each(|cid| submit(&link, &queues[0], cid));
        submit(&link, &queues[1], 9);
        answer(port.next());
        link.delete_queue(&queues[0]);
        assert_eq!(*ended.borrow(), [1], "told once");
        link.delete_queue(&queues[0]);
        assert_eq!(*ended.borrow(), [1], "it is deleted already");
        assert!(!queues[0].try_submit(Sqe::new(opcode::EXIST, 0, 1)), "it has no room for anything");
        let next = link.create_queue(8);
        assert_eq!((next.id(), next.entries()), (1, 8));
        let request = port.next();
        assert_eq!((request.session().number(), request.sqe().cid.get()), (2, 9), "its second entry is gone");
        answer(request);
        submit(&link, &next, 5);
        let request = port.next();
        assert_eq!((request.session().number(), request.turn()), (1, Some(0)), "turns begin anew");
        answer(request);
        assert!(next.completion(5).status().is_success());
        assert!(next.any_completion().is_none());
    });
}

/// Deleting a queue waits for commands that the drive carries out; their completions are dropped, also those
/// that wait for room.
#[test]
fn a_queue_ends_when_its_last_command_is_answered() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let (port, queue) = (PciePort::new(&link), link.create_queue(2));
    let ended = ended(&port);
    sim.block_on(|| {
        submit(&link, &queue, 0);
        answer(port.next());
        submit(&link, &queue, 1);
        let request = port.next();
        let (link2, queue2) = (link.clone(), queue.clone());
        let deleting = sim.spawn(move || link2.delete_queue(&queue2));
        sim.sleep(10_000);
        assert_eq!(*ended.borrow(), [0; 0], "a command is under way");
        answer(request);
        deleting.join();
        assert_eq!(*ended.borrow(), [1]);
        assert!(queue.try_completion(1).is_none());
    });
    // The one slot for completions is taken: a completing task waits until the queue is deleted.
    let queue = link.create_queue(2);
    let is_answered = Rc::new(Cell::new(false));
    sim.block_on(|| {
        for cid in 0..2 {
            submit(&link, &queue, cid);
            let (request, told) = (port.next(), is_answered.clone());
            sim.spawn(move || {
                answer(request);
                told.set(cid == 1);
            });
        }
        sim.sleep(10_000);
        assert!(!is_answered.get(), "there is no room");
        link.delete_queue(&queue);
        assert!(is_answered.get());
    });
}

#[test]
fn a_doorbell_that_comes_too_late_rings_for_nothing() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let (port, queue) = (PciePort::new(&link), link.create_queue(4));
    assert!(queue.try_submit(Sqe::new(opcode::EXIST, 0, 1)));
    let (link2, queue2) = (link.clone(), queue.clone());
    sim.spawn(move || link2.ring_submission(&queue2));
    sim.block_on(|| {
        sim.sleep(50); // the doorbell is under way
        link.delete_queue(&queue);
        sim.sleep(1_000);
        let other = link.create_queue(4);
        submit(&link, &other, 3);
        let request = port.next();
        assert_eq!(request.sqe().cid.get(), 3);
        answer(request);
    });
}

#[test]
fn a_function_has_its_own_memory_and_identifiers() {
    let sim = Sim::new();
    let memories = [7, 8].map(|byte| {
        let memory = Rc::new(Scattered::default());
        memory.map(0x1000);
        memory.write(0x1000, Piece::Bytes(&[byte])).expect("mapped");
        memory
    });
    let link = link(&sim, &memories[0]);
    let port = PciePort::new(&link);
    let ended = ended(&port);
    sim.block_on(|| {
        for _ in 0..2 {
            let functions = [link.first_function(), link.create_function(memories[1].clone())];
            assert_eq!(functions[1].id(), 1);
            assert!(functions[1].admin_queue().is_admin());
            let queues = [0, 1].map(|index| link.create_queue_of(&functions[index], 4));
            assert_eq!([1, 1], [queues[0].id(), queues[1].id()]);
            for (queue, byte) in queues.iter().zip([7, 8]) {
                let mut sqe = Sqe::new(opcode::STORE, 0, 1);
                sqe.set_prps(0x1000, 0);
                assert!(queue.try_submit(sqe));
                link.ring_submission(queue);
                let (request, mut pulled) = (port.next(), [0]);
                request.pull(1, &mut expanding(&mut pulled)).expect("mapped");
                assert_eq!(pulled, [byte]);
                answer(request);
                assert_eq!(queue.completion(0).sqid.get(), 1);
                link.ring_completion(queue);
            }
            link.delete_function(&functions[1]);
            link.delete_queue(&queues[0]);
            assert_eq!(ended.take(), [3, 1, 2], "its I/O queue, its admin queue; the other's queue");
        }
    });
}
