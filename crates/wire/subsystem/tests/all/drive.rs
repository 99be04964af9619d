//! A real drive on a socket: our own initiator retrieves the pairs that it stored, with every combination of options
//! and after either end disconnects.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::mpsc;

use kvdrive_config::Document;
use kvdrive_flash::power::Survivors;
use kvdrive_host::Calls;
use kvdrive_host::tcp::{Data, Error, Initiator, Options as HostOptions, discover};
use kvdrive_link::shared::{ServerConfig, Serving};
use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::{Command, Key, Sqe, Status, Store, StoreOptions, Write, feature, opcode};
use kvdrive_run::wall::{Change, Running, ServedDrive, served};
use kvdrive_sim::wall::Pace;
use kvdrive_subsystem::buffer::{Budget, Buffer};
use kvdrive_subsystem::drive::{DriveNamespace, power_on};
use kvdrive_subsystem::namespace::{Completion, ServedNamespace, Session, Tag};
use kvdrive_subsystem::sharing::Reserves;
use kvdrive_subsystem::subsystem::Options;
use kvdrive_subsystem::tcp::listener::Sockets;

use zerocopy::FromBytes;

use kvdrive_rigs::served::{Backend, serve};

/// A value from which its key and size can be told.
fn value(seed: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
}

fn drive() -> Backend {
    Backend::Drive(Vec::new())
}

#[test]
fn a_pair_goes_to_the_drive_and_comes_back() {
    let server = serve(drive(), Options::default(), 16 << 20);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    let key = Key::new(b"first").unwrap();
    queue.store(key, b"a value").unwrap();
    assert_eq!(queue.retrieve(key, 4096).unwrap(), (7, b"a value".to_vec()));
    drop((controller, queue));
    let end = server.end();
    assert_eq!(end.served.io_commands[1], 1);
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

#[test]
fn a_client_over_a_network_does_what_others_do() {
    let server = serve(drive(), Options::default(), 16 << 20);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let queue = controller.io_queue(1, 32).unwrap();
    let largest = controller.identify_namespace(1).unwrap().format().value_max_bytes.get();
    let most = 4096 << controller.identify_controller().unwrap().transfer_max_log2;
    let mut driver = queue.into_driver(4, largest, most).unwrap();
    kvdrive_rigs::clients::check_pipeline(&mut driver.pipeline().unwrap(), largest);
    let mut client = driver.blocking();
    for key in client.list(None, u32::MAX).unwrap() {
        client.delete(key).unwrap();
    }
    kvdrive_rigs::clients::check(&mut client, largest);
    drop((driver, controller));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn every_agreement_and_size_gives_the_same_pairs_and_statuses() {
    let server = serve(drive(), Options::default(), 16 << 20);
    let agreements = [(false, false, false), (true, false, false), (true, true, false), (true, true, true)];
    for (seed, (header_digest, data_digest, padded_digest)) in (0u32..).zip(agreements) {
        for in_capsule in [true, false] {
            let options = HostOptions {
                header_digest,
                data_digest,
                padded_digest,
                in_capsule,
                flow_control: in_capsule,
                ..HostOptions::default()
            };
            let mut controller = Initiator::connect(server.at, &server.nqn, &options).unwrap();
            let mut queue = controller.io_queue(1, 32).unwrap();
            // Values around every limit: the capsule, MAXH2CDATA, a page, no multiple of 4.
            let sizes = [1, 7, 4096, 8191, 8192, 8193, 16 << 10, (16 << 10) + 1, 100_003, 1 << 20];
            let largest = controller.identify_namespace(1).unwrap().format().value_max_bytes.get() as usize;
            for bytes in sizes.into_iter().filter(|bytes| *bytes <= largest) {
                let key = Key::new(format!("k{bytes}").as_bytes()).unwrap();
                let value = value(seed, bytes);
                queue.store(key, &value).unwrap();
                let room = (bytes as u32).next_multiple_of(4096);
                assert_eq!(queue.retrieve(key, room).unwrap(), (bytes as u32, value.clone()));
                // With less room than the value has bytes, the size is still reported.
                let part = queue.retrieve(key, (bytes as u32).div_ceil(2)).unwrap();
                assert_eq!(part, (bytes as u32, value[..bytes.div_ceil(2)].to_vec()));
            }
            let absent = Key::new(b"absent").unwrap();
            assert!(matches!(queue.retrieve(absent, 64), Err(Error::Status(Status::KEY_NOT_FOUND))));
            let key = Key::new(b"k7").unwrap();
            let add_only = StoreOptions { add_only: true, ..StoreOptions::default() };
            let refused = queue.store_with(key, b"x", add_only);
            assert!(matches!(refused, Err(Error::Status(Status::KEY_EXISTS))), "{refused:?}");
            assert!(queue.exist(key).unwrap() && !queue.exist(absent).unwrap());
            queue.delete(key).unwrap();
            queue.delete(absent).unwrap();
            assert!(!queue.exist(key).unwrap());
            let keys = queue.list(None, 4096).unwrap();
            assert!(keys.contains(&Key::new(b"k1").unwrap()) && !keys.contains(&key));
            controller.shut_down().unwrap();
        }
    }
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn many_commands_of_several_queues_and_hosts_are_under_way_at_once() {
    let server = serve(drive(), Options::default(), 1 << 20);
    let mut expected = BTreeMap::new();
    let mut hosts: Vec<_> = (0..2)
        .map(|_| Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap())
        .collect();
    let mut queues: Vec<_> =
        hosts.iter_mut().flat_map(|host| [1, 2].map(|number| host.io_queue(number, 64).unwrap())).collect();
    let content = |index: u32, round: u32, slot: u32| {
        // Above and below the limit of a capsule: memory is short, and R2Ts queue up.
        let value = value(round * 7 + slot, (slot as usize * 997 + 1) % 50_000);
        (Key::from_u32_be(index << 16 | slot), value)
    };
    std::thread::scope(|scope| {
        for (index, queue) in (0..).zip(&mut queues) {
            scope.spawn(move || {
                for round in 0..4u32 {
                    for slot in 0..60u32 {
                        let (key, value) = content(index, round, slot);
                        let options = StoreOptions::default();
                        let store = Store { key, value_bytes: value.len() as u32, options };
                        queue.submit(Command::Store(store).encode(0, 1), Data::Out(&value)).unwrap();
                    }
                    while queue.under_way() > 0 {
                        queue.next_completion().unwrap().ok().unwrap();
                    }
                }
            });
        }
    });
    for index in 0..queues.len() as u32 {
        expected.extend((0..60).map(|slot| content(index, 3, slot)));
    }
    for (key, value) in &expected {
        assert_eq!(&queues[3].retrieve(*key, 50_000).unwrap().1, value);
    }
    drop((hosts, queues));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn a_host_that_breaks_off_leaves_nothing_and_comes_back() {
    let server = serve(drive(), Options::default(), 1 << 20);
    let key = Key::new(b"kept").unwrap();
    let large = value(3, 300_000);
    for round in 0..20u32 {
        let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
        let mut queue = controller.io_queue(1, 32).unwrap();
        if round > 0 {
            assert_eq!(queue.retrieve(key, 4096).unwrap().1, value(round - 1, 1000));
        }
        queue.store(key, &value(round, 1000)).unwrap();
        // A value that is announced and never sent, answers that are not read, a socket that is closed.
        let store = Store { key, value_bytes: large.len() as u32, options: StoreOptions::default() };
        queue.submit(Command::Store(store).encode(0, 1), Data::Out(&large)).unwrap();
        for _ in 0..4 {
            let retrieve = Command::Retrieve { key, buffer_bytes: 100_000, options: Default::default() };
            queue.submit(retrieve.encode(0, 1), Data::In(100_000)).unwrap();
        }
        if round % 2 == 0 {
            queue.socket().shutdown(Shutdown::Both).unwrap();
            controller.keep_alive().unwrap();
        }
    }
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    assert_eq!(queue.retrieve(key, 4096).unwrap().1, value(19, 1000));
    drop((controller, queue));
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

#[test]
fn connects_and_disconnects_leave_nothing() {
    let server = serve(Backend::Memory, Options::default(), 1 << 20);
    for round in 0..300 {
        let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
        let mut queue = host.io_queue(1, 32).unwrap();
        assert!(!queue.exist(Key::new(b"key").unwrap()).unwrap());
        // The controller of the previous round may still be ending.
        assert!(host.controller_id() <= 8, "round {round}: controller {}", host.controller_id());
        if round % 2 == 0 {
            host.shut_down().unwrap();
        }
    }
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers, end.served.queues), (0, 0, 600));
}

#[test]
fn discovery_tells_the_address_the_host_used() {
    let server = serve(Backend::Memory, Options::default(), 1 << 20);
    let found = discover(server.at, &HostOptions::default()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].nqn, server.nqn);
    assert_eq!(
        (found[0].address.as_str(), found[0].service.clone()),
        ("127.0.0.1", server.at.port().to_string())
    );
    // TREQ, not specified, and SECTYPE, none: nvme-cli 2.3 takes "not required" for TLS.
    let mut discovery = Initiator::connect(server.at, DISCOVERY_NQN, &HostOptions::default()).unwrap();
    let page = lid::DISCOVERY;
    let request = LogRequest { page, retain_event: true, bytes: 1024, offset: 1024, command_set: 0 };
    let entry = discovery.log_page(request).unwrap();
    assert_eq!((entry[3] & 3, entry[768]), (0, 0));
    server.end();
}

/// A drive as a namespace, without sockets in front of it.
fn namespace() -> (DriveNamespace, Serving<Running, ServedDrive>) {
    powered_on(None)
}

/// The same, from the survivors of a power cut.
fn powered_on(survivors: Option<Survivors>) -> (DriveNamespace, Serving<Running, ServedDrive>) {
    let config = Document::profile("cosmos-plus").unwrap().config().unwrap();
    let sockets = Sockets::new().unwrap();
    let server = ServerConfig { pace: Pace::Off, recorder: None };
    power_on(server, sockets.bell().clone(), 1 << 20, served(config, survivors)).unwrap()
}

/// Has a command carried out, and returns its completion.
fn carry_out(namespace: &mut DriveNamespace, session: Session, sqe: &Sqe, room: usize) -> Completion {
    let budget = Budget::new(64 << 10, Reserves::NONE);
    namespace.submit(session, Tag::default(), sqe, budget.share(false).take(room).unwrap());
    let mut done = Vec::new();
    while done.is_empty() {
        namespace.poll(&mut done);
        std::thread::yield_now();
    }
    done.pop().unwrap()
}

#[test]
fn a_session_that_ends_leaves_no_iterator_and_no_half_value() {
    let (mut drive, serving) = namespace();
    let key = Key::new(b"key").unwrap();
    for round in 0..200 {
        let session = drive.open(8).unwrap();
        let transfer = Command::Transfer.encode(0, 1);
        let stray = carry_out(&mut drive, session, &transfer, 0).status;
        assert_eq!(stray, Status::COMMAND_SEQUENCE_ERROR, "round {round}: it finds another's value");
        let seek = Command::Seek { key: None, buffer_bytes: 4096 }.encode(0, 1);
        assert_eq!(carry_out(&mut drive, session, &seek, 4096).status, Status::SUCCESS, "round {round}");
        let write = Command::Write(Write { key, value_bytes: 100 }).encode(0, 1);
        assert_eq!(carry_out(&mut drive, session, &write, 0).status, Status::SUCCESS);
        drive.close(session);
    }
    // A command that needs more than a network has is refused and has no effect.
    let session = drive.open(8).unwrap();
    for opcode in [opcode::CXL_STORE, opcode::EXPRESS, opcode::HYBRID] {
        let sqe = Sqe::new(opcode, 0, 1);
        assert_eq!(carry_out(&mut drive, session, &sqe, 0).status, Status::INVALID_OPCODE);
    }
    drop(drive);
    serving.join();
}

#[test]
fn a_drive_without_power_answers_that_it_has_none() {
    let (mut drive, serving) = namespace();
    let session = drive.open(8).unwrap();
    let exist = Command::Exist { key: Key::new(b"key").unwrap() }.encode(0, 1);
    assert_eq!(carry_out(&mut drive, session, &exist, 0).status, Status::KEY_NOT_FOUND);
    serving.cut_power();
    serving.join();
    let status = carry_out(&mut drive, session, &exist, 0).status;
    assert!([Status::NAMESPACE_NOT_READY, Status::INTERNAL].contains(&status), "{status}");
    assert_eq!(drive.open(8), Err(Status::NAMESPACE_NOT_READY));
    assert!(!drive.poll(&mut Vec::new()), "nothing is under way");
    drive.close(session);
}

fn store(key: Key, bytes: usize) -> Sqe {
    Command::Store(Store { key, value_bytes: bytes as u32, options: StoreOptions::default() }).encode(0, 1)
}

/// Stores a value from which its number can be told.
fn put(drive: &mut DriveNamespace, session: Session, number: u32) -> Status {
    let budget = Budget::new(64 << 10, Reserves::NONE);
    let value = value(number, 100 + number as usize);
    let mut data = budget.share(false).take(value.len()).unwrap();
    data.copy_from_slice(&value);
    drive.submit(session, Tag::default(), &store(Key::from_u32_be(number), value.len()), data);
    let mut done = Vec::new();
    while done.is_empty() {
        drive.poll(&mut done);
        std::thread::yield_now();
    }
    done.pop().unwrap().status
}

/// Is the value there?
fn has(drive: &mut DriveNamespace, session: Session, number: u32) -> Result<(), Status> {
    let sqe =
        Command::Retrieve { key: Key::from_u32_be(number), buffer_bytes: 4096, options: Default::default() }
            .encode(0, 1);
    let got = carry_out(drive, session, &sqe, 4096);
    if !got.status.is_success() {
        return Err(got.status);
    }
    assert_eq!(got.data[..got.data_bytes], value(number, 100 + number as usize));
    Ok(())
}

/// The drive's thread is held while commands arrive: its one context can have fetched only the first one.
#[test]
fn a_command_in_a_queue_of_the_drive_is_aborted() {
    let (mut drive, serving) = namespace();
    let control = serving.control().clone();
    let session = drive.open(8).unwrap();
    let budget = Budget::new(64 << 10, Reserves::NONE);
    let tag = |slot| Tag { slot, ..Tag::default() };
    let abort = || Completion { dw0: 1, ..Completion::failed(tag(9), Status::SUCCESS, Buffer::empty()) };
    for round in 0..50 {
        let ((held, is_held), (release, is_released)) = (mpsc::channel(), mpsc::channel());
        let control = control.clone();
        let holder = std::thread::spawn(move || {
            let hold = move |_: &_, _: &_| (held.send(()).unwrap(), is_released.recv().unwrap());
            control.look(hold).unwrap();
        });
        is_held.recv().unwrap();
        let exist = Command::Exist { key: Key::from_u32_be(1) }.encode(0, 1);
        for slot in 1..=4 {
            drive.submit(session, tag(slot), &exist, budget.share(false).take(0).unwrap());
        }
        assert!(drive.abort(session, tag(4), abort()).is_none(), "the drive is asked");
        release.send(()).unwrap();
        holder.join().unwrap();
        let mut done = Vec::new();
        while done.len() < 5 {
            drive.poll(&mut done);
            std::thread::yield_now();
        }
        let mut answers: Vec<_> = done.iter().map(|done| (done.tag.slot, done.status, done.dw0)).collect();
        answers.sort_by_key(|(slot, ..)| *slot);
        let absent = |slot| (slot, Status::KEY_NOT_FOUND, 0);
        let expected =
            [absent(1), absent(2), absent(3), (4, Status::ABORT_REQUESTED, 0), (9, Status::SUCCESS, 0)];
        assert_eq!(answers, expected, "round {round}");
        let by = drive.abort(session, tag(4), abort()).expect("it has completed");
        assert_eq!(by.dw0, 1);
    }
    drop(drive);
    serving.join();
}

#[test]
fn rules_are_set_counted_and_cleared_while_it_serves() {
    let (mut drive, serving) = namespace();
    let control = serving.control();
    let session = drive.open(8).unwrap();
    let refuse = |opcode: &str, status: &str| {
        let rule = format!("[[rule]]\nfault = \"status\"\nopcode = \"{opcode}\"\nstatus = \"{status}\"\n");
        control.change(Change::AddFaults(rule)).unwrap()
    };
    assert_eq!(put(&mut drive, session, 1), Status::SUCCESS);
    assert_eq!(refuse("store", "81h"), Ok("status 1\n".to_owned()));
    assert_eq!(refuse("retrieve", "88h"), Ok("status 2\n".to_owned()));
    assert_eq!(put(&mut drive, session, 2), Status::CAPACITY_EXCEEDED);
    assert_eq!(has(&mut drive, session, 1), Err(Status::UNRECOVERED_ERROR));
    assert_eq!(has(&mut drive, session, 2), Err(Status::UNRECOVERED_ERROR));
    let counts = control.look(|_, running| running.faults()).unwrap();
    assert_eq!(counts.iter().map(|count| count.struck).collect::<Vec<_>>(), [1, 2]);
    let clear = |name: Option<&str>| control.change(Change::ClearFaults(name.map(str::to_owned))).unwrap();
    assert_eq!(clear(Some("status 3")), Err("\"status 3\": no such rule".to_owned()));
    assert_eq!(clear(Some("status 2")), Ok("1".to_owned()));
    assert_eq!(
        (has(&mut drive, session, 1), has(&mut drive, session, 2)),
        (Ok(()), Err(Status::KEY_NOT_FOUND))
    );
    assert_eq!(put(&mut drive, session, 2), Status::CAPACITY_EXCEEDED, "the other one goes on");
    let wrong =
        control.change(Change::AddFaults("[[rule]]\nfault = \"fire\"\n".into())).unwrap().unwrap_err();
    assert!(wrong.starts_with("rules:2:"), "{wrong}");
    assert_eq!(clear(None), Ok("1".to_owned()));
    assert_eq!(put(&mut drive, session, 2), Status::SUCCESS);
    assert_eq!(control.look(|_, running| running.snapshot().faults.len()), Ok(0));
    drop(drive);
    serving.join();
}

#[test]
fn power_that_was_cut_comes_on_again_and_every_acknowledged_pair_is_there() {
    let mut survivors = None;
    let mut acknowledged = Vec::new();
    let rule = "[[rule]]\nfault = \"power-cut\"\nat = \"command\"\nopcode = \"store\"\nafter = 70\n";
    let cuts =
        [Change::CutPower { torn: true }, Change::CutPower { torn: false }, Change::AddFaults(rule.into())];
    for (round, cut) in (0u32..).zip(cuts) {
        let (mut drive, serving) = powered_on(survivors.take());
        let session = drive.open(8).unwrap();
        for number in &acknowledged {
            assert_eq!(has(&mut drive, session, *number), Ok(()), "round {round}, pair {number}");
        }
        let by_rule = matches!(cut, Change::AddFaults(_));
        if by_rule {
            serving.control().change(cut.clone()).unwrap().unwrap();
        }
        for number in round * 1000..round * 1000 + 100 {
            match put(&mut drive, session, number) {
                Status::SUCCESS => acknowledged.push(number),
                _ => break,
            }
        }
        assert_eq!(acknowledged.len() as u32, if by_rule { round * 100 + 70 } else { (round + 1) * 100 });
        if !by_rule {
            assert_eq!(serving.control().change(cut), Ok(Ok(String::new())));
        }
        survivors = Some(serving.join().take_survivors().expect("the power was cut"));
        assert_eq!(drive.open(8), Err(Status::NAMESPACE_NOT_READY));
    }
    let (mut drive, serving) = powered_on(survivors);
    let session = drive.open(8).unwrap();
    acknowledged.iter().for_each(|number| assert_eq!(has(&mut drive, session, *number), Ok(())));
    drop(drive);
    assert!(serving.join().take_survivors().is_none(), "it ended as it should");
}

/// Blocks that are bad from the factory have used up spare blocks: the drive counts them, and reports them to
/// hosts.
#[test]
fn smart_over_a_network_is_the_drives() {
    let settings = ["flash.spare_blocks=10", "flash.factory_bad_blocks=6"].map(String::from).to_vec();
    let server = serve(Backend::Drive(settings), Options::default(), 16 << 20);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    queue.store(Key::new(b"key").unwrap(), b"value").unwrap();
    let mut health = |offset: u64, bytes: u64| {
        let page = lid::HEALTH;
        controller.log_page(LogRequest { page, retain_event: true, bytes, offset, command_set: 0 }).unwrap()
    };
    let whole = Health::read_from_bytes(&health(0, 512)).unwrap();
    assert!((1..100).contains(&whole.spare_percent), "{} %", whole.spare_percent);
    assert_eq!((whole.spare_threshold_percent, whole.warnings), (10, 0));
    assert_eq!(whole.write_commands[0].get(), 1);
    assert_eq!(health(0, 8)[3], whole.spare_percent);
    assert_eq!(health(4, 4)[0], whole.spare_threshold_percent);
    drop((controller, queue));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// Blocks go bad until no spare block is left: hosts that enabled the event are notified, and read the
/// warning in SMART.
#[test]
fn a_host_is_told_that_a_drive_has_become_read_only() {
    for behind in [Backend::Drive, Backend::Beside] {
        let settings = vec!["flash.spare_blocks=2".to_owned()];
        let server = serve(behind(settings), Options::default(), 16 << 20);
        let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
        let wanted = u32::from(Health::READ_ONLY) | feature::event::NAMESPACE_ATTRIBUTES;
        controller.set_feature(feature::ASYNC_EVENTS, wanted, 0).unwrap();
        let requests = [controller.await_event().unwrap(), controller.await_event().unwrap()];
        let mut queue = controller.io_queue(1, 32).unwrap();
        let rule = "[[rule]]\nfault = \"program-error\"\n";
        server.control.as_ref().unwrap().change(Change::AddFaults(rule.into())).unwrap().unwrap();
        let refused = (0..100_000u32)
            .find_map(|number| queue.store(Key::from_u32_be(number), &[7; 8192]).err())
            .expect("it cannot go on without flash");
        assert!(refused.to_string().contains("write"), "{refused}");
        let mut told = [controller.next_event().unwrap(), controller.next_event().unwrap()];
        told.sort_unstable_by_key(|event| event.cqe.dw0.get() & 7);
        let event = |at: usize| {
            let dw0 = told[at].cqe.dw0.get();
            (requests.contains(&told[at].cqe.cid.get()), (dw0 & 7) as u8, (dw0 >> 16) as u8)
        };
        assert_eq!(event(0), (true, feature::event::HEALTH, lid::HEALTH));
        assert_eq!(event(1), (true, feature::event::NOTICE, lid::CHANGED_NAMESPACES));
        let request =
            LogRequest { page: lid::HEALTH, retain_event: false, bytes: 512, offset: 0, command_set: 0 };
        let health = Health::read_from_bytes(&controller.log_page(request).unwrap()).unwrap();
        assert_ne!(health.warnings & Health::READ_ONLY, 0);
        drop((controller, queue));
        server.end();
    }
}

/// Values that come in capsules are copied anyway, so short ones are packed on flash.
#[test]
fn short_values_that_come_in_capsules_take_no_page_each() {
    let server = serve(Backend::Beside(Vec::new()), Options::default(), 16 << 20);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let mut queue = controller.io_queue(1, 32).unwrap();
    // By DMA they would take 5000 pages, of which the buffer holds 512.
    for number in 0..20_000 {
        queue.store(Key::from_u32_be(number), &value(number, 32)).unwrap();
    }
    let programs = |running: &Running| running.snapshot().counts.of("nand.programs");
    let programs: u64 = server.control.as_ref().unwrap().look(move |_, running| programs(running)).unwrap();
    assert!(programs < 200, "{programs} pages");
    for number in (0..20_000).step_by(997) {
        assert_eq!(queue.retrieve(Key::from_u32_be(number), 4096).unwrap(), (32, value(number, 32)));
    }
    drop((controller, queue));
    server.end();
}
