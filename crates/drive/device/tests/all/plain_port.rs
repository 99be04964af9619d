//! A port with fewer abilities than the link: no entries after a command, no access to the drive's memory,
//! and an answer to every command. The drive never uses the missing abilities.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_link::pcie::PcieRequest;
use kvdrive_link::port::{Queues, Source};
use kvdrive_link::{Link, LocalMemory, PciePort, Port, Request, Session};
use kvdrive_nvme::log::{Effects, LogRequest, lid};
use kvdrive_nvme::{Cqe, Sqe, Status, opcode};
use kvdrive_sim::Sim;
use proptest::prelude::*;

use super::mock_engine::MockEngine;
use super::random_streams::any_sqe;
use super::rig;

const REFUSED: [u8; 2] = [opcode::EXPRESS, opcode::CXL_STORE];

struct PlainPort {
    link: PciePort,
    answered: Rc<Cell<u32>>,
}

struct PlainRequest {
    request: PcieRequest,
    answered: Rc<Cell<u32>>,
}

impl Port for PlainPort {
    type Request = PlainRequest;

    fn next(&self) -> PlainRequest {
        PlainRequest { request: self.link.next(), answered: self.answered.clone() }
    }

    fn sim(&self) -> &Sim {
        self.link.sim()
    }

    fn on_end(&self, ended: Rc<dyn Fn(&Session)>) {
        self.link.on_end(ended);
    }

    fn refused(&self) -> &'static [u8] {
        &REFUSED
    }

    fn carries_quiet(&self) -> bool {
        false
    }
}

impl Request for PlainRequest {
    fn sqe(&self) -> &Sqe {
        self.request.sqe()
    }

    fn queue_id(&self) -> u16 {
        self.request.queue_id()
    }

    fn is_quiet(&self) -> bool {
        false
    }

    fn session(&self) -> &Session {
        self.request.session()
    }

    fn turn(&self) -> Option<u64> {
        self.request.turn()
    }

    fn chunks(&self) -> Option<&[Sqe]> {
        panic!("this port has no entries after a command")
    }

    fn locate(&self, named_bytes: u32, bytes: u32) -> Result<(), Status> {
        self.request.locate(named_bytes, bytes)
    }

    fn pull_part(
        &self,
        named_bytes: u32,
        at: u32,
        bytes: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        self.request.pull_part(named_bytes, at, bytes, sink)
    }

    fn push(&self, named_bytes: u32, bytes: u32, source: &mut Source<'_>) -> Result<(), Status> {
        self.request.push(named_bytes, bytes, source)
    }

    fn complete(self, cqe: Cqe) {
        self.answered.set(self.answered.get() + 1);
        self.request.complete(cqe);
    }

    fn omit(self) {
        panic!("this port brings an answer to every command")
    }

    fn hold(&mut self) {
        self.request.hold();
    }

    fn queues(&self) -> Option<&dyn Queues> {
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_entry_is_answered_and_those_that_it_cannot_carry_with_a_status(
        stream in proptest::collection::vec((any_sqe(), any::<bool>(), 0usize..4), 1..60),
        dispatch in rig::any_dispatch(),
    ) {
        let sim = Sim::new();
        let link = Link::new(&sim, rig::link_config(4096), Rc::new(LocalMemory::new()));
        let answered = Rc::new(Cell::new(0));
        let port = PlainPort { link: PciePort::new(&link), answered: answered.clone() };
        let _namespace = rig::start_behind(port, dispatch, MockEngine::new(1 << 20));
        let queues = [link.admin_queue(), link.create_queue(16), link.create_queue(16)];
        for (number, (mut bytes, is_quiet, queue)) in (1..).zip(stream) {
            let queue = &queues[queue.min(2)];
            if is_quiet {
                bytes[1] |= 4;
            }
            let mut sqe = Sqe::from_bytes(bytes);
            if queue.is_admin() && sqe.opcode == opcode::admin::ASYNC_EVENT_REQUEST {
                sqe.opcode = opcode::admin::KEEP_ALIVE;
            }
            if sqe.opcode == opcode::EXPRESS && !queue.is_admin() {
                // Otherwise the link would take later entries for its chunks.
                sqe.cdw10.set(0);
            }
            prop_assert!(queue.try_submit(sqe));
            sim.block_on(|| link.ring_submission(queue));
            sim.run();
            let cqe = queue.any_completion().expect("it is answered");
            link.ring_completion(queue);
            prop_assert_eq!(answered.get(), number);
            if !queue.is_admin() && sqe.nsid.get() == 1 {
                if REFUSED.contains(&sqe.opcode) {
                    prop_assert_eq!(cqe.status(), Status::INVALID_OPCODE);
                } else if sqe.is_quiet() {
                    prop_assert_eq!(cqe.status(), Status::INVALID_FIELD);
                }
            }
        }
        sim.clear();
    }
}

#[test]
fn a_host_is_told_which_commands_a_port_refuses() {
    let (sim, memory) = (Sim::new(), Rc::new(LocalMemory::new()));
    let link = Link::new(&sim, rig::link_config(4096), memory.clone());
    let port = PlainPort { link: PciePort::new(&link), answered: Rc::default() };
    let _namespace = rig::start_behind(port, rig::on_contexts(1), MockEngine::new(1 << 20));
    sim.block_on(|| {
        let (queue, page) = (link.admin_queue(), memory.map(4096));
        let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 0, 0);
        let asked =
            LogRequest { page: lid::EFFECTS, retain_event: true, bytes: 4096, offset: 0, command_set: 1 };
        asked.put(&mut sqe);
        sqe.set_prps(page, 0);
        assert!(queue.try_submit(sqe));
        link.ring_submission(&queue);
        assert!(queue.completion(0).status().is_success());
        let mut bytes = Vec::new();
        let read = kvdrive_link::HostMemory::read(&*memory, page, 4096, &mut |piece| {
            let mut part = vec![0; piece.bytes() as usize];
            piece.expand(&mut part);
            bytes.extend_from_slice(&part);
        });
        assert!(read.is_ok());
        let effects = <Effects as zerocopy::FromBytes>::read_from_bytes(&bytes).expect("4096 bytes");
        let of = |opcode: u8| effects.io[usize::from(opcode)].get() & 1;
        assert_eq!([opcode::STORE, opcode::WRITE, opcode::EXPRESS, opcode::CXL_STORE].map(of), [1, 1, 0, 0]);
    });
    sim.clear();
}
