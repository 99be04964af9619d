//! The drive as a PCI function: a driver's operations, through the client of crate `vfio_user`.

use std::path::PathBuf;

use kvdrive_admin::ControllerKind;
use kvdrive_admin::identify::STRUCTURES;
use kvdrive_admin::log::LOG_PAGES;
use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_nvme::identify::CSI_KV;
use kvdrive_nvme::log::LogRequest;
use kvdrive_nvme::property::{self, ControllerStatus};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{
    Command, Key, RetrieveOptions, RetrievePart, SglDescriptor, Sqe, Status, Store, StoreOptions, StorePart,
    opcode,
};
use kvdrive_subsystem::subsystem::Options;
use tempfile::TempDir;

use kvdrive_rigs::guest::{BASE, DATA_AT, Doorbell, Guest, PAGE, identify, keyed};
use kvdrive_rigs::served::{Backend, Running, serve_at};

/// A server with this many functions.
pub fn serve(behind: Backend, functions: usize) -> (Running, Vec<PathBuf>, TempDir) {
    serve_with(behind, functions, Options::default())
}

fn serve_with(behind: Backend, functions: usize, options: Options) -> (Running, Vec<PathBuf>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..functions).map(|index| folder.path().join(format!("cntrl{index}"))).collect();
    (serve_at(behind, options, 16 << 20, None, paths.clone()), paths, folder)
}

pub fn beside() -> Backend {
    Backend::Beside(Vec::new())
}

#[test]
fn a_driver_identifies_creates_queues_stores_retrieves_and_deletes_them() {
    for (doorbell, is_sealed, behind) in [
        (Doorbell::InMemory, true, beside()),
        (Doorbell::ByMessage, true, beside()),
        (Doorbell::InMemory, false, beside()),
        (Doorbell::InMemory, true, Backend::Memory),
        (Doorbell::InMemory, true, Backend::Drive(Vec::new())),
    ] {
        let (server, paths, _folder) = serve(behind, 1);
        let mut guest = Guest::boot(&paths[0], doorbell, is_sealed);
        let mut class = [0; 3];
        guest.client.region_read(7, 9, &mut class).unwrap();
        assert_eq!(class, [0x02, 0x08, 0x01]);

        assert_eq!(guest.admin(&identify(1, 0, 0, DATA_AT)).status(), Status::SUCCESS);
        let page = guest.get(DATA_AT, PAGE as usize);
        assert_eq!(&page[24..45], b"kvdrive key-value SSD");
        assert_eq!(guest.admin(&identify(5, 1, 1, DATA_AT)).status(), Status::SUCCESS);
        assert_ne!(guest.get(DATA_AT, 8), [0; 8], "the namespace has a size");

        let mut rings = guest.create(1, 8, None);
        let value: Vec<u8> = (0..6000_u32).map(|at| (at * 7) as u8).collect();
        guest.put(DATA_AT, &value);
        // More commands than the ring has entries, so that it wraps.
        for round in 0..20_u16 {
            let key = [b'k', round as u8];
            let stored = guest.run(&mut rings, &keyed(opcode::STORE, round, &key, DATA_AT, 6000));
            assert_eq!(stored.status(), Status::SUCCESS);
            let back_at = DATA_AT + 4 * PAGE;
            guest.put(back_at, &[0xEE; 3 * 4096]);
            let retrieved = guest.run(&mut rings, &keyed(opcode::RETRIEVE, round, &key, back_at, 8192));
            assert_eq!((retrieved.status(), retrieved.dw0.get()), (Status::SUCCESS, 6000));
            assert_eq!(guest.get(back_at, 6000), value);
            assert_eq!(guest.get(back_at + 6000, 8192 - 6000), [0xEE; 2192], "no byte beyond the value");
        }
        let missing = guest.run(&mut rings, &keyed(opcode::EXIST, 1, b"none", 0, 0));
        assert_eq!(missing.status(), Status::KEY_NOT_FOUND);
        let mut elsewhere = keyed(opcode::EXIST, 2, b"none", 0, 0);
        elsewhere.nsid = 9.into();
        assert_eq!(guest.run(&mut rings, &elsewhere).status(), Status::INVALID_NAMESPACE);

        let delete = |command: QueueCommand| command.encode(3, 0);
        let early = guest.admin(&delete(QueueCommand::DeleteCompletion { id: 1 }));
        assert_eq!(early.status(), Status::INVALID_QUEUE_DELETION);
        for command in [QueueCommand::DeleteSubmission { id: 1 }, QueueCommand::DeleteCompletion { id: 1 }] {
            assert_eq!(guest.admin(&delete(command)).status(), Status::SUCCESS);
            assert_eq!(guest.admin(&delete(command)).status(), Status::INVALID_QUEUE_ID);
        }
        drop(guest);
        let end = server.end();
        assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
        assert_eq!(end.served.io_commands[usize::from(opcode::STORE)], 20);
        assert_eq!((end.served.io_misses, end.served.io_errors), (1, 1), "a miss is no error");
    }
}

#[test]
fn values_come_by_lists_of_prps_and_by_segments_of_sgls() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut guest = Guest::boot(&paths[0], Doorbell::InMemory, true);
    let mut rings = guest.create(1, 8, None);
    let value: Vec<u8> = (0..50_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
    let (list_at, value_at, back_at) = (DATA_AT, DATA_AT + 16 * PAGE, DATA_AT + 64 * PAGE);
    // The value begins 100 bytes into a page; its pages are named in a list.
    guest.put(value_at + 100, &value);
    let pages: Vec<u64> = (1..20).map(|page| BASE + value_at + page * PAGE).collect();
    guest.put(list_at, &pages.iter().flat_map(|page| page.to_le_bytes()).collect::<Vec<u8>>());
    let mut store = keyed(opcode::STORE, 1, b"by PRP", value_at, 50_000);
    store.set_prps(BASE + value_at + 100, BASE + list_at);
    assert_eq!(guest.run(&mut rings, &store).status(), Status::SUCCESS);

    let block = |at: u64, bytes: u32| SglDescriptor::data_block(BASE + at, bytes);
    let segment = |kind, at, descriptors: u32| SglDescriptor { kind, ..block(at, descriptors * 16) };
    let put = |guest: &Guest, at, descriptors: &[SglDescriptor]| {
        let bytes = descriptors.iter().flat_map(|descriptor| {
            let (address, length) =
                (descriptor.address.get().to_le_bytes(), descriptor.length.get().to_le_bytes());
            [&address[..], &length, &[0; 3], &[descriptor.kind]].concat()
        });
        guest.put(at, &bytes.collect::<Vec<u8>>());
    };
    let last = segment(SglDescriptor::LAST_SEGMENT, list_at + 512, 2);
    put(&guest, list_at, &[block(back_at, 7), block(back_at + 7, 20_000), last]);
    put(&guest, list_at + 512, &[block(back_at + 20_007, 1), block(back_at + 20_008, 40_000)]);
    let mut retrieve = keyed(opcode::RETRIEVE, 2, b"by PRP", 0, 60_000);
    retrieve.set_sgl(segment(SglDescriptor::SEGMENT, list_at, 3));
    let retrieved = guest.run(&mut rings, &retrieve);
    assert_eq!((retrieved.status(), retrieved.dw0.get()), (Status::SUCCESS, 50_000));
    assert!(guest.get(back_at, 50_000) == value, "the same bytes");
    retrieve.set_sgl(SglDescriptor { kind: 0x10, ..block(back_at, 60_000) });
    assert_eq!(guest.run(&mut rings, &retrieve).status(), Status::SGL_TYPE_INVALID, "a bit bucket");
    drop(guest);
    server.end();
}

/// MDTS of a function is 2 MiB for every namespace: a larger value comes in parts that the guest sends itself.
#[test]
fn a_value_larger_than_what_a_command_moves_comes_and_goes_in_parts() {
    const PART_BYTES: u32 = 1 << 20;
    let options = Options { transfer_max_bytes: 256 << 20, ..Options::default() };
    let (server, paths, _folder) = serve_with(beside(), 1, options);
    let mut guest = Guest::boot(&paths[0], Doorbell::InMemory, true);
    let mut rings = guest.create(1, 8, None);
    assert_eq!(guest.admin(&identify(1, 0, 0, DATA_AT)).status(), Status::SUCCESS);
    assert_eq!(guest.get(DATA_AT + 77, 1)[0], 9, "2 MiB are 4 KiB times 2 to the power of 9");

    let value: Vec<u8> = (0..5_000_000_u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let (key, block) = (Key::new(b"large").unwrap(), SglDescriptor::data_block(BASE + DATA_AT, PART_BYTES));
    let mut whole = keyed(opcode::STORE, 1, b"large", DATA_AT, 3 << 20);
    whole.set_sgl(SglDescriptor::data_block(BASE + DATA_AT, 3 << 20));
    assert_eq!(guest.run(&mut rings, &whole).status(), Status::INVALID_FIELD);
    let store = Store { key, value_bytes: value.len() as u32, options: StoreOptions::default() };
    for (at, part) in (0..).step_by(PART_BYTES as usize).zip(value.chunks(PART_BYTES as usize)) {
        guest.put(DATA_AT, part);
        let part = StorePart { store, at, bytes: part.len() as u32, stream: 1 };
        let mut sqe = Command::StorePart(part).encode(2, 1);
        sqe.set_sgl(block);
        assert_eq!(guest.run(&mut rings, &sqe).status(), Status::SUCCESS, "at {at}");
    }
    for (at, part) in (0..).step_by(PART_BYTES as usize).zip(value.chunks(PART_BYTES as usize)) {
        let (room, options) = (value.len() as u32, RetrieveOptions::default());
        let part_of = RetrievePart { key, at, bytes: PART_BYTES, stream: 2, room, options };
        let mut sqe = Command::RetrievePart(part_of).encode(3, 1);
        sqe.set_sgl(block);
        let retrieved = guest.run(&mut rings, &sqe);
        assert_eq!((retrieved.status(), retrieved.dw0.get()), (Status::SUCCESS, room), "at {at}");
        assert!(guest.get(DATA_AT, part.len()) == part, "at {at}");
    }
    drop(guest);
    server.end();
}

#[test]
fn a_reset_of_either_kind_and_a_shutdown_leave_a_controller_that_can_be_enabled() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut guest = Guest::boot(&paths[0], Doorbell::InMemory, true);
    for kind in 0..3 {
        let mut rings = guest.create(1, 8, None);
        let wait = Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 40, 0);
        let mut admin = std::mem::replace(&mut guest.admin, kvdrive_rigs::guest::Rings::new(0, 2));
        guest.submit(&mut admin, &wait);
        // Commands are under way when it comes.
        for cid in 0..6 {
            guest.submit(&mut rings, &keyed(opcode::STORE, cid, b"key", DATA_AT, 2000));
        }
        match kind {
            0 => guest.set_register(property::CC, 0),
            1 => guest.client.reset().unwrap(),
            _ => guest.client.region_write(7, 0x68, &0x8000_u16.to_le_bytes()).unwrap(),
        }
        assert!(!guest.status().ready());
        if kind > 0 {
            assert_eq!(guest.register(0x24), 0, "a reset of the function is one of all registers");
        }
        guest.enable();
        assert_eq!(guest.admin(&identify(1, 0, 0, DATA_AT)).status(), Status::SUCCESS);
    }
    let configuration = guest.register(property::CC);
    guest.set_register(property::CC, configuration | 1 << 14);
    assert_eq!(guest.status().shutdown(), ControllerStatus::SHUTDOWN_DONE);
    guest.set_register(property::CC, 0);
    guest.enable();
    guest.create(1, 8, None);
    drop(guest);
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

/// A structure or log page is a row of crate `admin`, and no port forgets one: neither a network nor a function. (The link
/// of a drive is asked by crate `device`.)
#[test]
fn every_port_answers_every_identify_structure_and_log_page() {
    let (server, paths, _folder) = serve(Backend::Drive(Vec::new()), 1);
    let mut guest = Guest::boot(&paths[0], Doorbell::InMemory, true);
    let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    for row in STRUCTURES {
        let nsid = u32::from(row.is_of_namespace);
        let page = host.identify(row.cns, CSI_KV, nsid);
        assert!(page.is_ok(), "CNS {:02X}h over a network: {page:?}", row.cns);
        let status = guest.admin(&identify(row.cns, nsid, CSI_KV, DATA_AT)).status();
        assert!(status.is_success(), "CNS {:02X}h of a function: {status}", row.cns);
    }
    for row in LOG_PAGES.iter().filter(|row| row.is_of(ControllerKind::Io)) {
        let (page, bytes, command_set) = (row.id, 64, CSI_KV);
        let request = LogRequest { page, retain_event: true, bytes, offset: 0, command_set };
        let page = host.log_page(request);
        assert!(page.is_ok(), "log page {:02X}h over a network: {page:?}", row.id);
        let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 3, u32::MAX);
        request.put(&mut sqe);
        sqe.set_prps(BASE + DATA_AT, 0);
        let status = guest.admin(&sqe).status();
        assert!(status.is_success(), "log page {:02X}h of a function: {status}", row.id);
    }
    drop((guest, host));
    server.end();
}
