//! I/O queues are created and deleted by commands of the admin queue, and events are requested there.

use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_host::Calls;
use kvdrive_link::{Link, LocalMemory, QueuePair};
use kvdrive_nvme::opcode::admin;
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Command, Cqe, Key, Sqe, Status, Write, feature};
use kvdrive_sim::Sim;
use proptest::prelude::*;

use super::commands::{Rig, rig_on};
use super::mock_engine::{Jitter, MockEngine};
use super::rig;
use kvdrive_device::config::Dispatch;
use kvdrive_sim::Rng;

use QueueCommand::{CreateCompletion, CreateSubmission, DeleteCompletion, DeleteSubmission};

fn submit(link: &Link, queue: &QueuePair, sqe: Sqe) {
    assert!(queue.try_submit(sqe), "the queue has room");
    link.ring_submission(queue);
}

/// Submits and waits.
fn ask(link: &Link, queue: &QueuePair, sqe: Sqe) -> Cqe {
    submit(link, queue, sqe);
    let cqe = queue.completion(sqe.cid.get());
    link.ring_completion(queue);
    cqe
}

/// The status of `command`.
fn change(link: &Link, command: QueueCommand) -> Status {
    ask(link, &link.admin_queue(), command.encode(0, 0)).status()
}

fn queue(link: &Link, id: u16) -> Option<Rc<QueuePair>> {
    link.first_function().queue(id)
}

/// The first part of a value of 100 bytes.
fn begin_value(cid: u16) -> Sqe {
    let mut sqe = Command::Write(Write { key: Key::from_u32_be(1), value_bytes: 100 }).encode(cid, 1);
    kvdrive_nvme::inline::put_write(&mut sqe, &[7; 35]);
    sqe
}

#[test]
fn a_queue_that_was_deleted_leaves_its_identifier_and_nothing_else() {
    let rig = rig_on(Sim::new(), 4096, rig::on_contexts(2), MockEngine::new(1 << 20));
    rig.sim.block_on(|| {
        let link = &*rig.link;
        for life in 0..3 {
            assert_eq!(change(link, CreateCompletion { id: 5, entries: 8 }), Status::SUCCESS, "{life}");
            let create = CreateSubmission { id: 9, entries: 4, completion: 5 };
            assert_eq!(change(link, create), Status::SUCCESS);
            let made = queue(link, 9).expect("it was made");
            assert_eq!((made.entries(), made.completion_id()), (4, 5));
            let begun = ask(link, &made, begin_value(3));
            assert_eq!((begun.status(), begun.sqid.get()), (Status::SUCCESS, 9), "nothing was unfinished");
            assert_eq!(rig.namespace.engine().open_places.get(), 1);
            assert_eq!(change(link, DeleteCompletion { id: 5 }), Status::INVALID_QUEUE_DELETION);
            assert_eq!(change(link, DeleteSubmission { id: 9 }), Status::SUCCESS);
            assert_eq!(rig.namespace.engine().open_places.get(), 0, "its value is given up");
            assert!(queue(link, 9).is_none() && !made.try_submit(begin_value(4)));
            assert_eq!(change(link, DeleteSubmission { id: 9 }), Status::INVALID_QUEUE_ID);
            assert_eq!(change(link, DeleteCompletion { id: 5 }), Status::SUCCESS);
            assert_eq!(change(link, DeleteCompletion { id: 5 }), Status::INVALID_QUEUE_ID);
        }
    });
    rig.sim.clear();
}

#[test]
fn a_driver_that_disconnects_leaves_no_queue() {
    let rig = rig_on(Sim::new(), 4096, rig::on_contexts(2), MockEngine::new(1 << 20));
    for _ in 0..3 {
        let driver = rig.driver("piggyback", 4);
        rig.sim.block_on(|| {
            let function = rig.link.first_function();
            assert_eq!(function.free_id(), Some(2));
            let mut value = kvdrive_content::Region::new();
            driver.store(Key::from_u32_be(1), kvdrive_content::Piece::Bytes(&[1; 200])).expect("stored");
            assert_eq!(driver.retrieve(Key::from_u32_be(1), &mut value), Ok(200));
            driver.disconnect().expect("nothing is under way");
            assert_eq!(function.free_id(), Some(1));
        });
    }
    rig.sim.clear();
}

#[test]
fn queues_that_cannot_be_are_refused_with_the_status_of_the_specification() {
    let rig = rig_on(Sim::new(), 4096, rig::on_contexts(1), MockEngine::new(1 << 20));
    rig.sim.block_on(|| {
        let link = &*rig.link;
        let (first, last) = (2, u16::MAX);
        let refused = [
            (CreateCompletion { id: 0, entries: 4 }, Status::INVALID_QUEUE_ID),
            // The host of this rig has made 1.
            (CreateCompletion { id: 1, entries: 4 }, Status::INVALID_QUEUE_ID),
            (CreateCompletion { id: first, entries: 1 }, Status::INVALID_QUEUE_SIZE),
            (CreateSubmission { id: 0, entries: 4, completion: 1 }, Status::INVALID_QUEUE_ID),
            (CreateSubmission { id: 1, entries: 4, completion: 1 }, Status::INVALID_QUEUE_ID),
            (CreateSubmission { id: first, entries: 1, completion: 1 }, Status::INVALID_QUEUE_SIZE),
            (CreateSubmission { id: first, entries: 4, completion: 0 }, Status::INVALID_QUEUE_ID),
            (CreateSubmission { id: first, entries: 4, completion: 7 }, Status::COMPLETION_QUEUE_INVALID),
            (DeleteSubmission { id: 0 }, Status::INVALID_QUEUE_ID),
            (DeleteSubmission { id: first }, Status::INVALID_QUEUE_ID),
            (DeleteCompletion { id: 0 }, Status::INVALID_QUEUE_ID),
            (DeleteCompletion { id: 1 }, Status::INVALID_QUEUE_DELETION),
        ];
        let own = link.create_queue(4);
        for (command, status) in refused {
            assert_eq!(change(link, command), status, "{command:?}");
        }
        link.delete_queue(&own);
        let create = CreateCompletion { id: last, entries: 1 << 16 };
        assert_eq!(change(link, create), Status::SUCCESS, "the largest of both");
        let mut apart = create.encode(0, 0);
        apart.cdw11.set(0);
        assert_eq!(ask(link, &link.admin_queue(), apart).status(), Status::INVALID_FIELD);
        let at_no_page = CreateCompletion { id: first, entries: 4 }.encode(0, 0x1004);
        assert_eq!(ask(link, &link.admin_queue(), at_no_page).status(), Status::PRP_OFFSET_INVALID);
        let mut grant = Sqe::new(admin::SET_FEATURES, 0, 0);
        grant.cdw10.set(feature::QUEUES.into());
        grant.cdw11.set(2 << 16 | 2);
        assert_eq!(ask(link, &link.admin_queue(), grant).status(), Status::COMMAND_SEQUENCE_ERROR);
        assert_eq!(change(link, DeleteCompletion { id: last }), Status::SUCCESS);
        let granted = ask(link, &link.admin_queue(), grant);
        assert_eq!((granted.status(), granted.dw0.get()), (Status::SUCCESS, 2 << 16 | 2));
        let fourth = CreateCompletion { id: 4, entries: 4 };
        assert_eq!(change(link, fourth), Status::INVALID_QUEUE_ID, "three were granted");
        assert_eq!(change(link, CreateCompletion { id: 3, entries: 4 }), Status::SUCCESS);
    });
    rig.sim.clear();
}

/// Several submission queues may complete to one ring, which outlives them.
#[test]
fn completions_of_two_queues_share_a_ring() {
    let rig = rig_on(Sim::new(), 4096, rig::on_contexts(2), MockEngine::new(1 << 20));
    rig.sim.block_on(|| {
        let link = &*rig.link;
        assert_eq!(change(link, CreateCompletion { id: 1, entries: 3 }), Status::SUCCESS);
        for id in [1, 2] {
            let create = CreateSubmission { id, entries: 8, completion: 1 };
            assert_eq!(change(link, create), Status::SUCCESS);
        }
        let queues = [1, 2].map(|id| queue(link, id).expect("it was made"));
        let exist = Command::Exist { key: Key::from_u32_be(9) }.encode(4, 1);
        for round in 0..3 {
            for queue in &queues {
                submit(link, queue, exist);
            }
            // Both have the same identifier: each queue's task gets its own.
            for queue in queues.iter().rev() {
                let cqe = queue.completion(4);
                assert_eq!((cqe.sqid.get(), cqe.status()), (queue.id(), Status::KEY_NOT_FOUND), "{round}");
                link.ring_completion(queue);
            }
        }
        assert_eq!(change(link, DeleteSubmission { id: 1 }), Status::SUCCESS);
        assert_eq!(change(link, DeleteCompletion { id: 1 }), Status::INVALID_QUEUE_DELETION);
        assert_eq!(ask(link, &queues[1], exist).status(), Status::KEY_NOT_FOUND);
        assert_eq!(change(link, DeleteSubmission { id: 2 }), Status::SUCCESS);
        assert_eq!(change(link, DeleteCompletion { id: 1 }), Status::SUCCESS);
    });
    rig.sim.clear();
}

/// Creates queue 1 and rings for 20 commands on it; returns `wait_ns` later.
fn make_busy_queue(rig: &Rig, wait_ns: u64) {
    let link = &*rig.link;
    assert_eq!(change(link, CreateCompletion { id: 1, entries: 64 }), Status::SUCCESS);
    let create = CreateSubmission { id: 1, entries: 64, completion: 1 };
    assert_eq!(change(link, create), Status::SUCCESS);
    let made = queue(link, 1).expect("it was made");
    for cid in 0..20 {
        assert!(made.try_submit(Command::Exist { key: Key::from_u32_be(9) }.encode(cid, 1)));
    }
    let (ringing, rung) = (rig.link.clone(), made.clone());
    rig.sim.spawn(move || ringing.ring_submission(&rung));
    rig.sim.sleep(wait_ns);
}

/// On the only I/O thread, commands of a queue may come before or after the deletion of the queue.
#[test]
fn a_queue_is_deleted_while_its_commands_are_under_way() {
    for dispatch in [Dispatch::RoundRobin { io_threads: 1, deal_ns: 70 }, rig::on_contexts(1)] {
        let rig = rig_on(Sim::new(), 4096, dispatch, MockEngine::new(1 << 20));
        rig.sim.block_on(|| {
            let link = &*rig.link;
            for life in 0..20 {
                make_busy_queue(&rig, life * 170);
                assert_eq!(change(link, DeleteSubmission { id: 1 }), Status::SUCCESS, "{dispatch:?}");
                assert_eq!(change(link, DeleteCompletion { id: 1 }), Status::SUCCESS);
            }
        });
        rig.sim.clear();
    }
}

/// Two commands delete one queue with commands under way: one of them succeeds.
#[test]
fn a_queue_that_another_task_deletes_is_not_deleted_twice() {
    for dispatch in [Dispatch::RoundRobin { io_threads: 2, deal_ns: 70 }, rig::on_contexts(2)] {
        let rig = rig_on(Sim::new(), 4096, dispatch, MockEngine::new(1 << 20));
        rig.sim.block_on(|| {
            let link = &*rig.link;
            let admin = link.admin_queue();
            for life in 0..20 {
                make_busy_queue(&rig, life * 170);
                submit(link, &admin, DeleteSubmission { id: 1 }.encode(1, 0));
                submit(link, &admin, DeleteSubmission { id: 1 }.encode(2, 0));
                let mut answers = [1, 2].map(|cid| admin.completion(cid).status());
                answers.iter().for_each(|_| link.ring_completion(&admin));
                answers.sort_by_key(|status| !status.is_success());
                assert_eq!(answers, [Status::SUCCESS, Status::INVALID_QUEUE_ID], "{dispatch:?}");
                assert!(queue(link, 1).is_none());
                assert_eq!(change(link, DeleteCompletion { id: 1 }), Status::SUCCESS);
            }
        });
        rig.sim.clear();
    }
}

fn event_request(cid: u16) -> Sqe {
    Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0)
}

#[test]
fn four_requests_wait_for_events_and_end_with_their_queue() {
    let rig = rig_on(Sim::new(), 4096, rig::on_contexts(1), MockEngine::new(1 << 20));
    let memory = Rc::new(LocalMemory::new());
    rig.sim.block_on(|| {
        let link = &*rig.link;
        let function = link.create_function(memory);
        let admin = function.admin_queue();
        (0..4).for_each(|cid| submit(link, &admin, event_request(cid)));
        assert_eq!(ask(link, &admin, event_request(4)).status(), Status::ASYNC_EVENT_LIMIT);
        let mut abort = Sqe::new(admin::ABORT, 5, 0);
        // This queue has no command 2; another queue has.
        abort.cdw10.set(2 << 16 | 1);
        assert_eq!(ask(link, &admin, abort).dw0.get(), 1, "the admin queue's is another one");
        assert!(admin.any_completion().is_none(), "all four wait on");
        abort.cdw10.set(2 << 16);
        assert_eq!(ask(link, &admin, abort).dw0.get(), 0, "it was aborted");
        assert_eq!(admin.completion(2).status(), Status::ABORT_REQUESTED);
        link.ring_completion(&admin);
        assert_eq!(ask(link, &admin, abort).dw0.get(), 1, "there is none any more");
        submit(link, &admin, event_request(2));
        assert_eq!(
            ask(link, &link.admin_queue(), Sqe::new(admin::KEEP_ALIVE, 0, 0)).status(),
            Status::SUCCESS
        );
        rig.sim.sleep(1_000_000);
        assert!(admin.any_completion().is_none(), "nothing has happened");
        link.delete_function(&function);
        assert!(admin.any_completion().is_none(), "a request that waits for ever delays no deletion");
    });
    rig.sim.clear();
}

/// The drive has one context: while it carries out a command, later ones stay in the queue, from which an
/// Abort takes them.
#[test]
fn a_command_that_the_drive_has_not_fetched_is_aborted_and_its_queue_goes_on() {
    let sim = Sim::new();
    let jitter = Some(Jitter { sim: sim.clone(), rng: Rng::stream(1, "jitter").into(), below_ns: 1_000_000 });
    let engine = MockEngine { jitter, ..MockEngine::new(1 << 20) };
    let rig = rig_on(sim, 4096, rig::on_contexts(1), engine);
    rig.sim.block_on(|| {
        let link = &*rig.link;
        let (admin, queue) = (link.admin_queue(), link.create_queue(8));
        let abort = |cid: u16, of: u16| {
            let mut abort = Sqe::new(admin::ABORT, 100, 0);
            abort.cdw10.set(u32::from(cid) << 16 | u32::from(of));
            ask(link, &admin, abort).dw0.get()
        };
        let key = Key::from_u32_be(1);
        let exist = |cid| Command::Exist { key }.encode(cid, 1);
        // More rounds than the ring has slots: no slot is lost.
        for round in 0..5 {
            (0..7).for_each(|cid| submit(link, &queue, exist(cid)));
            assert_eq!(abort(6, queue.id()), 0, "round {round}");
            assert_eq!(queue.completion(6).status(), Status::ABORT_REQUESTED);
            link.ring_completion(&queue);
            assert_eq!(abort(6, queue.id()), 1, "there is none any more");
            assert_eq!(abort(5, queue.id() + 1), 1, "there is no such queue");
            submit(link, &queue, exist(6));
            for cid in 0..7 {
                assert_eq!(queue.completion(cid).status(), Status::KEY_NOT_FOUND, "round {round}, {cid}");
                link.ring_completion(&queue);
            }
        }
        assert!(queue.any_completion().is_none());
    });
    rig.sim.clear();
}

/// The queues that exist, as a host counts them.
#[derive(Default)]
struct Known {
    completion: BTreeMap<u16, u32>,
    /// Each submission queue with its completion queue.
    submission: BTreeMap<u16, u16>,
}

impl Known {
    /// The expected status of `command`; updates the queues.
    fn expect(&mut self, command: QueueCommand) -> Status {
        let is_used = |known: &Known, id| known.submission.values().any(|of| *of == id);
        match command {
            CreateCompletion { id, .. } if id == 0 || self.completion.contains_key(&id) => {
                return Status::INVALID_QUEUE_ID;
            }
            CreateSubmission { id, .. } if id == 0 || self.submission.contains_key(&id) => {
                return Status::INVALID_QUEUE_ID;
            }
            CreateCompletion { entries: 1, .. } | CreateSubmission { entries: 1, .. } => {
                return Status::INVALID_QUEUE_SIZE;
            }
            CreateSubmission { completion: 0, .. } => return Status::INVALID_QUEUE_ID,
            CreateSubmission { completion, .. } if !self.completion.contains_key(&completion) => {
                return Status::COMPLETION_QUEUE_INVALID;
            }
            DeleteCompletion { id } if is_used(self, id) => return Status::INVALID_QUEUE_DELETION,
            CreateCompletion { id, entries } => drop(self.completion.insert(id, entries)),
            CreateSubmission { id, completion, .. } => drop(self.submission.insert(id, completion)),
            DeleteCompletion { id } if self.completion.remove(&id).is_none() => {
                return Status::INVALID_QUEUE_ID;
            }
            DeleteSubmission { id } if self.submission.remove(&id).is_none() => {
                return Status::INVALID_QUEUE_ID;
            }
            _ => {}
        }
        Status::SUCCESS
    }
}

fn any_change() -> impl Strategy<Value = QueueCommand> {
    let (id, entries) = (|| 0u16..4, || prop_oneof![1 => Just(1u32), 6 => 2u32..6]);
    prop_oneof![
        (id(), entries()).prop_map(|(id, entries)| CreateCompletion { id, entries }),
        (id(), entries(), id()).prop_map(|(id, entries, completion)| CreateSubmission {
            id,
            entries,
            completion
        }),
        id().prop_map(|id| DeleteCompletion { id }),
        id().prop_map(|id| DeleteSubmission { id }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Queues are created and deleted at random while they have commands under way; unfinished values are
    /// discarded.
    #[test]
    fn whatever_is_asked_for_queues_are_there_or_not_as_answered(
        changes in proptest::collection::vec((any_change(), 0u64..4_000), 1..60),
        seed in any::<u64>(), dispatch in rig::any_dispatch(),
    ) {
        let sim = Sim::permuted(seed);
        let jitter = Some(Jitter { sim: sim.clone(), rng: Rng::stream(seed, "jitter").into(), below_ns: 3_000 });
        let (link, namespace) = rig::start_with(
            &sim,
            Rc::new(LocalMemory::new()),
            rig::link_config(4096),
            dispatch,
            MockEngine { jitter, ..MockEngine::new(1 << 20) },
        );
        let mut known = Known::default();
        // A host that reads completions; otherwise no context would be free for its admin queue.
        let (reader, reading) = (link.clone(), sim.clone());
        sim.spawn(move || loop {
            reading.sleep(500);
            for queue in (1..4).filter_map(|id| queue(&reader, id)) {
                while queue.any_completion().is_some() {
                    reader.ring_completion(&queue);
                }
            }
        });
        sim.block_on(|| {
            for (command, pause_ns) in changes {
                let expected = known.expect(command);
                assert_eq!(change(&link, command), expected, "{command:?}");
                for id in 1..4 {
                    let there = queue(&link, id);
                    let completion = there.as_ref().map(|queue| queue.completion_id());
                    assert_eq!(completion, known.submission.get(&id).copied());
                    let Some(queue) = there else { continue };
                    // As many as the queue takes.
                    _ = queue.try_submit(begin_value(0)) && queue.try_submit(begin_value(1));
                    let (link, rung) = (link.clone(), queue.clone());
                    sim.spawn(move || link.ring_submission(&rung));
                }
                sim.sleep(pause_ns);
            }
            for id in 1..4 {
                let expected = known.expect(DeleteSubmission { id });
                assert_eq!(change(&link, DeleteSubmission { id }), expected);
            }
            assert_eq!(namespace.engine().open_places.get(), 0, "values of queues that are gone");
        });
        sim.clear();
    }
}
