//! Admin commands that a host sends before it uses a drive, over the link's admin queue. Features belong to
//! the queue that set them.

use std::rc::Rc;

use kvdrive_admin::ControllerKind;
use kvdrive_admin::identify::STRUCTURES;
use kvdrive_admin::log::LOG_PAGES;
use kvdrive_content::{Piece, Region};
use kvdrive_link::{HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::identify::{CSI_KV, CSI_NVM, Controller, IndependentNamespace, KvNamespaceAsBlocks, cns};
use kvdrive_nvme::log::{Effects, ErrorEntry, Health, LogRequest, lid};
use kvdrive_nvme::opcode::{self, admin};
use kvdrive_nvme::{Cqe, Sqe, Status, feature};
use kvdrive_sim::Sim;
use zerocopy::{FromBytes, IntoBytes};

use super::mock_engine::MockEngine;
use super::rig;

/// A host's function with its admin queue and a page for answers.
struct Asker {
    link: Rc<Link>,
    memory: Rc<LocalMemory>,
    queue: Rc<QueuePair>,
    page: u64,
}

impl Asker {
    fn execute(&self, mut sqe: Sqe) -> Cqe {
        sqe.set_prps(self.page, 0);
        assert!(self.queue.try_submit(sqe), "the queue has room");
        self.link.ring_submission(&self.queue);
        let cqe = self.queue.completion(sqe.cid.get());
        self.link.ring_completion(&self.queue);
        cqe
    }

    fn read(&self, sqe: Sqe, bytes: u32) -> Result<Vec<u8>, Status> {
        let status = self.execute(sqe).status();
        if !status.is_success() {
            return Err(status);
        }
        let (mut answer, mut at) = (Region::new(), 0);
        let mut take = |piece: Piece<'_>| {
            answer.write(at, piece);
            at += piece.bytes();
        };
        self.memory.read(self.page, bytes, &mut take).expect("it is mapped");
        Ok(answer.to_bytes(bytes))
    }

    fn identify(&self, structure: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let mut sqe = Sqe::new(admin::IDENTIFY, 7, nsid);
        sqe.cdw10.set(structure.into());
        sqe.cdw11.set(u32::from(csi) << 24);
        self.read(sqe, 4096)
    }

    fn log(&self, page: u8, bytes: u32, offset: u64) -> Result<Vec<u8>, Status> {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 8, 0);
        let (bytes, command_set) = (u64::from(bytes), CSI_KV);
        LogRequest { page, retain_event: true, bytes, offset, command_set }.put(&mut sqe);
        self.read(sqe, bytes as u32)
    }

    fn set(&self, id: u8, value: u32) -> Status {
        let mut sqe = Sqe::new(admin::SET_FEATURES, 9, 1);
        sqe.cdw10.set(id.into());
        sqe.cdw11.set(value);
        self.execute(sqe).status()
    }

    fn get(&self, id: u8) -> u32 {
        let mut sqe = Sqe::new(admin::GET_FEATURES, 9, 0);
        sqe.cdw10.set(id.into());
        let cqe = self.execute(sqe);
        assert!(cqe.status().is_success());
        cqe.dw0.get()
    }
}

/// Runs `ask` against a drive of pairs, as the host of its first function and as a host that comes and goes.
fn with_drive(ask: impl Fn(&Asker, &dyn Fn() -> Asker)) {
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let engine = MockEngine::new(1 << 20);
    let (link, _drive) = rig::start(&sim, memory.clone(), rig::link_config(4096), 2, engine);
    let asker = |queue: Rc<QueuePair>| Asker {
        link: link.clone(),
        memory: memory.clone(),
        queue,
        page: memory.map(4096),
    };
    let another = || {
        let function = link.create_function(memory.clone());
        asker(function.admin_queue())
    };
    sim.block_on(|| ask(&asker(link.admin_queue()), &another));
    sim.clear();
}

#[test]
fn a_drive_of_pairs_answers_what_linux_and_spdk_ask_first() {
    with_drive(|host, _| {
        let controller = Controller::read_from_bytes(&host.identify(cns::CONTROLLER, 0, 0).unwrap()).unwrap();
        assert_eq!((controller.controller_type, controller.namespaces.get()), (1, 1));
        for (structure, csi) in [(cns::ACTIVE_NAMESPACES, 0), (cns::CSI_ACTIVE_NAMESPACES, CSI_KV)] {
            assert_eq!(host.identify(structure, csi, 0).unwrap()[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(host.identify(structure, csi, 1).unwrap()[..4], [0; 4], "none after the last");
        }
        let as_blocks = host.identify(cns::NAMESPACE, 0, 1).unwrap();
        let as_blocks = KvNamespaceAsBlocks::read_from_bytes(&as_blocks).unwrap();
        assert!(as_blocks.capacity_blocks.get() > 0, "SPDK takes it for inactive otherwise");
        assert_eq!(host.identify(cns::NAMESPACE_DESCRIPTORS, 0, 1).unwrap()[..5], [4, 1, 0, 0, CSI_KV]);
        assert!(host.identify(cns::CSI_NAMESPACE, CSI_KV, 1).is_ok());
        assert!(host.identify(cns::CSI_CONTROLLER, CSI_KV, 0).unwrap().iter().any(|byte| *byte != 0));
        assert!(host.identify(cns::CSI_CONTROLLER, CSI_NVM, 0).unwrap().iter().all(|byte| *byte == 0));
        let independent = host.identify(cns::INDEPENDENT_NAMESPACE, 0, 1).unwrap();
        assert_eq!(IndependentNamespace::read_from_bytes(&independent).unwrap().status & 1, 1, "NRDY");
        assert_eq!(host.identify(cns::COMMAND_SETS, 0, 0).unwrap()[0], 1 << CSI_KV);
        let unknown =
            [(0x7F, 0, 1, Status::INVALID_FIELD), (cns::CSI_NAMESPACE, CSI_NVM, 1, Status::INVALID_FIELD)];
        let no_namespace = [(cns::NAMESPACE, 0, 2), (cns::CSI_NAMESPACE, CSI_KV, u32::MAX)];
        let no_namespace = no_namespace.map(|(cns, csi, nsid)| (cns, csi, nsid, Status::INVALID_NAMESPACE));
        for (structure, csi, nsid, status) in unknown.into_iter().chain(no_namespace) {
            assert_eq!(host.identify(structure, csi, nsid), Err(status), "{structure:02X}h");
        }
    });
}

/// A structure or log page is a row of crate `admin`. (Networks and functions are asked by crate `subsystem`.)
#[test]
fn a_link_answers_every_identify_structure_and_log_page() {
    with_drive(|host, _| {
        for row in STRUCTURES {
            let page = host.identify(row.cns, CSI_KV, row.is_of_namespace.into());
            assert!(page.is_ok(), "CNS {:02X}h: {page:?}", row.cns);
        }
        for row in LOG_PAGES.iter().filter(|row| row.is_of(ControllerKind::Io)) {
            let page = host.log(row.id, 64, 0);
            assert!(page.is_ok(), "log page {:02X}h: {page:?}", row.id);
        }
    });
}

#[test]
fn log_pages_are_there_in_parts_too_and_the_errors_are_the_hosts() {
    with_drive(|host, _| {
        let health = Health::read_from_bytes(&host.log(lid::HEALTH, 512, 0).unwrap()).unwrap();
        assert_eq!((health.spare_percent, health.warnings), (100, 0));
        assert_eq!(host.log(lid::FIRMWARE, 64, 0).unwrap()[0], 1);
        let effects = Effects::read_from_bytes(&host.log(lid::EFFECTS, 4096, 0).unwrap()).unwrap();
        let of = |opcode: u8| effects.io[usize::from(opcode)].get();
        assert_eq!([opcode::STORE, opcode::RETRIEVE, opcode::CXL_STORE].map(of), [3, 1, 1]);
        assert_eq!(effects.admin[usize::from(admin::ASYNC_EVENT_REQUEST)].get(), 1);
        let second_half = host.log(lid::EFFECTS, 2048, 1024).unwrap();
        assert_eq!(second_half[4 * usize::from(opcode::STORE)], 3, "I/O opcodes begin at byte 1024");
        // The bytes after the end of a page are zeros, for any earlier content of the host's memory.
        host.memory.write(host.page, Piece::Bytes(&[0xA5; 4096])).expect("it is mapped");
        assert_eq!(
            host.log(lid::EFFECTS, 4096, 2048).unwrap(),
            [&effects.as_bytes()[2048..], &[0; 2048]].concat()
        );
        assert_eq!(host.log(lid::EFFECTS, 1 << 30, 0), Err(Status::INVALID_FIELD));
        assert_eq!(host.log(lid::HEALTH, 4, 514), Err(Status::INVALID_FIELD));
        assert_eq!(host.log(0x0E, 4, 0), Err(Status::INVALID_LOG_PAGE));
        let errors = host.log(lid::ERRORS, 128, 0).unwrap();
        let (newest, _) = ErrorEntry::read_from_prefix(&errors).unwrap();
        assert_eq!((newest.count.get(), newest.queue_id.get(), newest.cid.get()), (3, 0, 8));
        assert_eq!(newest.status.get() >> 1 & 0x7FF, 0x109, "invalid log page, of command specific ones");
    });
}

/// Every page of the list is there, and no page that is not in it.
#[test]
fn the_list_of_log_pages_is_true() {
    with_drive(|host, _| {
        let listed = host.log(lid::SUPPORTED, 1024, 0).unwrap();
        for page in 0..=u8::MAX {
            let is_listed = listed[4 * usize::from(page)] & 1 == 1;
            let expected = if is_listed { Ok(()) } else { Err(Status::INVALID_LOG_PAGE) };
            assert_eq!(host.log(page, 512, 0).map(drop), expected, "{page:02X}h");
        }
        for page in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0xC0] {
            assert_eq!(listed[4 * page] & 1, 1, "{page:02X}h");
        }
    });
}

/// Scope of feature 20h is the namespace: what one host sets, all read, and it outlives the host.
#[test]
fn the_feature_of_a_namespace_is_the_same_for_all_hosts() {
    with_drive(|first, another| {
        let second = another();
        let get = |host: &Asker, nsid: u32, select: u32| {
            let mut sqe = Sqe::new(admin::GET_FEATURES, 9, nsid);
            sqe.cdw10.set(u32::from(feature::KEY_VALUE) | select << 8);
            let cqe = host.execute(sqe);
            if cqe.status().is_success() { Ok(cqe.dw0.get()) } else { Err(cqe.status()) }
        };
        assert_eq!(get(first, 1, 0), Ok(0), "the default");
        assert_eq!(second.set(feature::KEY_VALUE, 1), Status::SUCCESS);
        assert_eq!([first, &second].map(|host| get(host, 1, 0)), [Ok(1); 2]);
        assert_eq!((get(first, 1, 1), get(first, 1, 3)), (Ok(0), Ok(0b110)), "default, capabilities");
        assert_eq!(first.set(feature::KEY_VALUE, 3), Status::INVALID_FIELD);
        assert_eq!(
            (get(first, 2, 0), get(first, u32::MAX, 0)),
            (Err(Status::INVALID_NAMESPACE), Err(Status::INVALID_FIELD))
        );
        second.link.delete_function(&second.link.function_of(&second.queue));
        assert_eq!(get(first, 1, 0), Ok(1));
        assert_eq!(first.set(feature::KEY_VALUE, 0), Status::SUCCESS);
        assert_eq!(get(first, 1, 0), Ok(0));
    });
}

#[test]
fn features_belong_to_the_queue_that_set_them_and_end_with_it() {
    with_drive(|first, another| {
        let second = another();
        assert_eq!(first.set(feature::ERROR_RECOVERY, 5), Status::SUCCESS);
        assert_eq!(second.set(feature::KEEP_ALIVE, 1_000), Status::SUCCESS);
        assert_eq!([first, &second].map(|host| host.get(feature::ERROR_RECOVERY)), [5, 0]);
        assert_eq!([first, &second].map(|host| host.get(feature::KEEP_ALIVE)), [0, 1_000]);
        assert_eq!(first.set(feature::KEY_VALUE, 2), Status::INVALID_FIELD);
        assert_eq!(first.set(feature::POWER, 1), Status::INVALID_FIELD);
        second.link.delete_function(&second.link.function_of(&second.queue));
        let third = another();
        assert_eq!(third.get(feature::KEEP_ALIVE), 0, "nothing is left of the second host");
        assert_eq!(first.get(feature::ERROR_RECOVERY), 5);
    });
}
