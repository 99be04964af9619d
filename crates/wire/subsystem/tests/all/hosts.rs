//! The command sequences of independent hosts, and the fields that those hosts check in the answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kvdrive_host::tcp::{Data, Error, Initiator, Options as HostOptions};
use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::identify::{IndependentNamespace, KvNamespaceAsBlocks, cns};
use kvdrive_nvme::log::{Effects, LogRequest, lid};
use kvdrive_nvme::property::{self, Capabilities};
use kvdrive_nvme::{Key, Sqe, Status, feature, opcode};
use kvdrive_subsystem::subsystem::Options;
use zerocopy::FromBytes;

use kvdrive_rigs::served::{Backend, Running, serve};
use kvdrive_rigs::wire::{Pair, Wire, abort, connect, event_request, hex, ic_req, response, set_cc, store};

fn server() -> Running {
    serve(Backend::Memory, Options::default(), 1 << 20)
}

fn host_of(server: &Running) -> Initiator {
    Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap()
}

fn log(page: u8, bytes: u64, offset: u64, command_set: u8) -> LogRequest {
    LogRequest { page, retain_event: false, bytes, offset, command_set }
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, status: Status) {
    match result {
        Err(Error::Status(got)) => assert_eq!(got, status),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it succeeded"),
    }
}

/// Linux 6.1 and later: it creates no character device if one of these is missing.
#[test]
fn linux_finds_what_it_insists_on() {
    let server = server();
    let mut host = host_of(&server);
    let cap = Capabilities::from_bits(host.property(property::CAP).unwrap());
    assert_ne!(cap.command_sets() & 1 << 6, 0, "CAP bit 43");
    assert_eq!((cap.page_min_log2(), cap.doorbell_stride()), (0, 0));
    assert!(host.property(property::VS).unwrap() >= 0x2_0000);
    let id = host.identify_controller().unwrap();
    assert_eq!(id.controller_id.get(), host.controller_id());
    assert_eq!((id.controller_type, id.multipath), (1, 0b11), "ports and controllers");
    assert!(id.keep_alive_100ms.get() != 0 && id.sgl.get() & 0b11 != 0 && id.sgl.get() & 1 << 20 != 0);
    assert!(id.command_capsule_16b.get() >= 4 && id.response_capsule_16b.get() >= 1);
    assert_eq!((id.in_capsule_offset_16b.get(), id.sqe_log2, id.cqe_log2), (0, 0x66, 0x44));
    assert_eq!(&id.subsystem_nqn[..server.nqn.len()], server.nqn.as_bytes());
    assert_ne!(id.log_attributes & 1 << 1, 0);
    assert_eq!(host.log_page(log(lid::EFFECTS, 4096, 0, 0)).unwrap().len(), 4096);
    assert_eq!(host.log_page(log(lid::HEALTH, 512, 0, 0)).unwrap().len(), 512);
    assert_eq!(host.ask_for_queues(1000).unwrap(), 64);
    let _queue = host.io_queue(1, 128).unwrap();
    host.set_feature(feature::ASYNC_EVENTS, 0x100, 0).unwrap();
    host.await_event().unwrap();
    assert!(host.identify(cns::CSI_CONTROLLER, 0, 0).unwrap().iter().all(|byte| *byte == 0));
    let active = host.identify(cns::ACTIVE_NAMESPACES, 0, 0).unwrap();
    assert_eq!(active[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let descriptors = host.identify(cns::NAMESPACE_DESCRIPTORS, 0, 1).unwrap();
    assert_eq!(descriptors[..5], [4, 1, 0, 0, 1], "the command set, mandatory");
    let independent = host.identify(cns::INDEPENDENT_NAMESPACE, 0, 1).unwrap();
    assert_eq!(IndependentNamespace::read_from_bytes(&independent).unwrap().status & 1, 1, "NRDY");
    let effects = host.log_page(log(lid::EFFECTS, 4096, 0, 1)).unwrap();
    let effects = Effects::read_from_bytes(&effects).unwrap();
    let of = |opcode: u8| effects.io[usize::from(opcode)].get();
    assert_eq!([opcode::STORE, opcode::DELETE].map(of), [3, 3]);
    assert_eq!([opcode::RETRIEVE, opcode::LIST, opcode::EXIST].map(of), [1, 1, 1]);
    assert_eq!(of(0x03), 0);
    host.shut_down().unwrap();
    server.end();
}

/// SPDK, and xNVMe on it: a namespace without one of these is inactive.
#[test]
fn spdk_and_xnvme_find_what_they_insist_on() {
    let server = server();
    let mut host = host_of(&server);
    host.set_feature(feature::ASYNC_EVENTS, 0x11F, 0).unwrap();
    for _ in 0..4 {
        host.await_event().unwrap();
    }
    host.admin().submit(Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 0, 0), Data::None).unwrap();
    let fifth = host.next_event().unwrap();
    assert_eq!(fifth.cqe.status(), Status::ASYNC_EVENT_LIMIT);
    assert_eq!(host.feature(feature::KEEP_ALIVE).unwrap(), 0);
    refused(host.identify(cns::CSI_CONTROLLER, 2, 0), Status::INVALID_FIELD);
    let kv = host.identify(cns::CSI_CONTROLLER, 1, 0).unwrap();
    assert_eq!(kv[..4], [0x00, 0x03, 0x01, 0x00], "1.3");
    assert_eq!(host.set_feature(feature::QUEUES, 0x03FF_03FF, 0).unwrap(), 63 << 16 | 63);
    let block = host.identify(cns::NAMESPACE, 0, 1).unwrap();
    let block = KvNamespaceAsBlocks::read_from_bytes(&block).unwrap();
    assert!(block.capacity_blocks.get() > 0 && block.size_blocks == block.capacity_blocks);
    assert_eq!(block.block_log2, 9);
    let namespace = host.identify_namespace(1).unwrap();
    assert_eq!(namespace.size_bytes.get(), 1 << 30);
    assert!(namespace.format().value_max_bytes.get() <= 1 << 20);
    assert_eq!(host.identify(cns::COMMAND_SETS, 0, 0xFFFF).unwrap()[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    for (structure, csi, nsid, status) in [
        (cns::CSI_NAMESPACE, 0, 1, Status::INVALID_FIELD),
        (cns::CSI_NAMESPACE, 1, 2, Status::INVALID_NAMESPACE),
        (cns::NAMESPACE, 0, 2, Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, 0, u32::MAX, Status::INVALID_NAMESPACE),
        (0x1F, 0, 0, Status::INVALID_FIELD),
    ] {
        refused(host.identify(structure, csi, nsid), status);
    }
    server.end();
}

#[test]
fn features_are_kept_bounded_and_not_saved() {
    let server = server();
    let mut host = host_of(&server);
    host.set_feature(feature::KEEP_ALIVE, 15_000, 0).unwrap();
    assert_eq!(host.feature(feature::KEEP_ALIVE).unwrap(), 15_000);
    refused(host.set_feature(feature::POWER, 1, 0), Status::INVALID_FIELD);
    refused(host.feature(0x7F), Status::INVALID_FIELD);
    refused(host.set_feature(feature::QUEUES, 0xFFFF, 0), Status::INVALID_FIELD);
    let mut save = Sqe::new(opcode::admin::SET_FEATURES, 0, 0);
    save.cdw10.set(feature::SAVE | u32::from(feature::KEEP_ALIVE));
    let status = host.admin().execute(save, Data::None).unwrap().cqe.status();
    assert_eq!(status, Status::FEATURE_NOT_SAVEABLE);
    // Deleting a missing key, before and after feature 20h is set.
    let mut queue = host.io_queue(1, 16).unwrap();
    let absent = Key::new(b"absent").unwrap();
    queue.delete(absent).unwrap();
    host.set_feature(feature::KEY_VALUE, feature::ERROR_ON_MISSING_KEY, 1).unwrap();
    refused(queue.delete(absent), Status::KEY_NOT_FOUND);
    let mut get = Sqe::new(opcode::admin::GET_FEATURES, 0, 1);
    get.cdw10.set(feature::KEY_VALUE.into());
    assert_eq!(host.admin().execute(get, Data::None).unwrap().cqe.dw0.get(), 1);
    refused(host.set_feature(feature::KEY_VALUE, 1, 7), Status::INVALID_NAMESPACE);
    refused(host.set_feature(feature::QUEUES, 0, 0), Status::COMMAND_SEQUENCE_ERROR);
    server.end();
}

#[test]
fn an_abort_ends_a_request_that_waits_and_logs_say_what_failed() {
    let server = server();
    let mut host = host_of(&server);
    let waiting = host.await_event().unwrap();
    let mut abort = Sqe::new(opcode::admin::ABORT, 0, 0);
    // A command of this identifier on another queue is another command.
    abort.cdw10.set(u32::from(waiting) << 16 | 1);
    let answer = host.admin().execute(abort, Data::None).unwrap();
    assert_eq!((answer.cqe.status(), answer.cqe.dw0.get()), (Status::SUCCESS, 1), "not aborted");
    abort.cdw10.set(u32::from(waiting) << 16);
    host.admin().submit(abort, Data::None).unwrap();
    let first = host.next_event().unwrap();
    let second = host.next_event().unwrap();
    assert_eq!(first.cqe.status(), Status::ABORT_REQUESTED);
    assert_eq!((second.cqe.status(), second.cqe.dw0.get()), (Status::SUCCESS, 0));
    let again = host.admin().execute(abort, Data::None).unwrap();
    assert_eq!(again.cqe.dw0.get(), 1, "not aborted");

    refused(host.log_page(log(0x0D, 512, 0, 0)), Status::INVALID_LOG_PAGE);
    refused(host.log_page(log(lid::HEALTH, 512, 516, 0)), Status::INVALID_FIELD);
    let errors = host.log_page(log(lid::ERRORS, 128, 0, 0)).unwrap();
    assert_eq!(errors[..8], [2, 0, 0, 0, 0, 0, 0, 0], "the newest first");
    assert_eq!(errors[64..72], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(errors[12..14], [0x04, 0x80], "02h, do not retry");
    assert_eq!(host.log_page(log(lid::FIRMWARE, 512, 0, 0)).unwrap()[0], 1);
    assert_eq!(host.log_page(log(lid::CHANGED_NAMESPACES, 4096, 0, 0)).unwrap().len(), 4096);
    server.end();
}

/// nvme-cli 2.13 reads 20 bytes, then entries at 1024; 2.3 reads 1024, then 2048; SPDK 4096.
#[test]
fn the_discovery_log_is_the_same_however_it_is_read() {
    let server = server();
    let mut host = Initiator::connect(server.at, DISCOVERY_NQN, &HostOptions::default()).unwrap();
    assert_eq!(host.identify_controller().unwrap().controller_type, 2);
    host.set_feature(feature::ASYNC_EVENTS, 0x8000_0000, 0).unwrap();
    let head = host.log_page(log(lid::DISCOVERY, 20, 0, 0)).unwrap();
    let entry = host.log_page(log(lid::DISCOVERY, 1024, 1024, 0)).unwrap();
    let both = host.log_page(log(lid::DISCOVERY, 2048, 0, 0)).unwrap();
    let more = host.log_page(log(lid::DISCOVERY, 4096, 0, 0)).unwrap();
    assert_eq!(head[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((&both[..20], &both[1024..]), (&head[..], &entry[..]));
    assert_eq!(more[..2048], both);
    assert_eq!(entry[..3], [3, 1, 2], "TCP, IPv4, an NVM subsystem");
    assert_eq!(entry[6..8], [0xFF, 0xFF]);
    assert!(u16::from_le_bytes([entry[8], entry[9]]) >= 32);
    assert_eq!(&entry[512..522], b"127.0.0.1 ");
    refused(host.identify(cns::ACTIVE_NAMESPACES, 0, 0), Status::INVALID_FIELD);
    refused(host.log_page(log(lid::HEALTH, 512, 0, 0)), Status::INVALID_LOG_PAGE);
    assert!(matches!(host.io_queue(1, 16), Err(Error::Refused(Status::CONNECT_INVALID_PARAMETERS, _))));
    server.end();
}

#[test]
fn a_host_that_falls_silent_is_let_go_and_one_that_works_is_not() {
    let server = server();
    let options = HostOptions { keep_alive_ms: 200, ..HostOptions::default() };
    let mut silent = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    let mut working = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    let mut queue = working.io_queue(1, 16).unwrap();
    // Keep-alive, and the second by which a host may be late.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(80));
        queue.exist(Key::new(b"key").unwrap()).unwrap();
    }
    assert!(silent.keep_alive().is_err());
    working.keep_alive().unwrap();
    assert_eq!(server.end().served.expired, 1);
}

/// A host that begins with TLS on a port without it: it gets the answer to any other violation of the
/// protocol, and the log says why.
#[test]
fn who_speaks_tls_where_there_is_none_is_sent_away() {
    let server = server();
    let mut socket = TcpStream::connect(server.at).unwrap();
    socket.write_all(&hex("16 03 01 00 c8 01 00 00 c4 03 03")).unwrap();
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    assert_eq!(heard[0], 3, "C2HTermReq");
    let log = server.log.clone();
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
    let log = log.lock().unwrap();
    let from = format!("{}: it uses TLS, and this server is without TLS", socket.local_addr().unwrap());
    assert_eq!(log[..], [from]);
}

/// SPDK's detach drops its Asynchronous Event Requests, and reuses one of their identifiers to shut the
/// controller down.
#[test]
fn an_identifier_that_a_request_for_events_holds_may_be_used_again() {
    let mut wire = Wire::new(Options::default());
    wire.send(&[ic_req(), connect(1, 0, 31, [0xFF, 0xFF]), set_cc(2, "61004600")].concat());
    for cid in [7, 8] {
        assert!(wire.send(&event_request(cid)).is_empty(), "it waits");
    }
    // Shutdown, by the first one's identifier.
    assert_eq!(wire.send(&set_cc(7, "61404600")), response("00000000", 5, 7, "0000"));
    // The first request does not wait any more, and the other one does, as Abort shows.
    assert_eq!(wire.send(&abort(9, 0, 7)), response("01000000", 6, 9, "0000"));
    let aborted = [response("00000000", 7, 8, "0e00"), response("00000000", 7, 10, "0000")];
    assert_eq!(wire.send(&abort(10, 0, 8)), aborted.concat());
}

/// By SGLS, a descriptor may have an offset into the data of its capsule.
#[test]
fn data_may_lie_at_an_offset_in_their_capsule() {
    for offset in [4, 39] {
        let mut pair = Pair::new(Options::default(), 1 << 20);
        let data: Vec<u8> = (0..40).collect();
        let mut unit = store(1, b"key", &data, true);
        let bytes = 40 - offset;
        (unit[8 + 24], unit[8 + 32], unit[8 + 40]) = (offset, bytes, bytes);
        assert_eq!(pair.send(&unit)[22..24], [0, 0]);
        assert_eq!(pair.memory.state.borrow().pairs.values().next().unwrap(), &data[usize::from(offset)..]);
    }
}
