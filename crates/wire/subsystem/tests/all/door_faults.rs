//! Every kind of fault on the network side: the struck command is carried out, its host sees the effect of
//! that kind, no other host sees any effect, and the effect ends with the rule.

use std::time::Duration;

use kvdrive_flash::faults::{Effect, FAULTS, FaultKind, Settings};
use kvdrive_host::tcp::{Data, Error, Initiator, Options as HostOptions, Queue};
use kvdrive_nvme::property::{self, Configuration};
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Command, Key, RetrieveOptions, Status};
use kvdrive_run::wall::Change;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};

const VALUE: &[u8] = b"a value of some bytes";
const STALL: Duration = Duration::from_millis(300);

fn key() -> Key {
    Key::from_u32_be(1)
}

fn connect(server: &Running, digests: bool) -> (Initiator, Queue) {
    let options = HostOptions {
        header_digest: digests,
        data_digest: digests,
        silence: Some(Duration::from_millis(1500)),
        ..HostOptions::default()
    };
    let mut host = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    let queue = host.io_queue(1, 32).unwrap();
    (host, queue)
}

/// kvdrive's own hosts have room for the longest value, so the drive sees *retrieve part*.
const ROOM: u32 = 256 << 20;

fn retrieve(queue: &mut Queue) -> Result<Vec<u8>, Error> {
    queue.retrieve(key(), ROOM).map(|(_, value)| value)
}

/// The rule strikes the first retrieve, and no other.
fn inject(server: &Running, kind: &FaultKind) {
    let own = if kind.keys.contains(&"delay_ns") { "delay_ns = \"300ms\"" } else { kind.example };
    let rule = format!("[[rule]]\nfault = \"{}\"\nopcode = \"retrieve\"\nnth = 1\n{own}\n", kind.name);
    let control = server.control.as_ref().unwrap();
    control.change(Change::AddFaults(rule)).unwrap().unwrap();
}

fn struck_by(server: &Running) -> u64 {
    let control = server.control.as_ref().unwrap();
    control.look(|_, running| running.faults()[0].struck).unwrap()
}

fn strikes(server: &Running, kind: &FaultKind, fault: TransportFault) {
    let (mut host, mut struck) = connect(server, true);
    let (_other_host, mut other) = connect(server, false);
    struck.store(key(), VALUE).unwrap();
    inject(server, kind);
    let clock = Stopwatch::start();
    let answer = retrieve(&mut struck);
    let took = clock.seconds();
    assert_eq!(struck_by(server), 1, "{}", kind.name);
    assert_eq!(retrieve(&mut other).unwrap(), VALUE, "{}: no other connection notices", kind.name);
    let next = || retrieve(&mut struck);
    match fault {
        TransportFault::Disconnect => assert!(matches!(answer, Err(Error::Io { .. })), "{answer:?}"),
        TransportFault::BadDigest => {
            assert!(matches!(answer, Err(Error::Protocol("a data digest is wrong"))), "{answer:?}");
        }
        TransportFault::Stall { .. } => {
            assert_eq!(answer.unwrap(), VALUE);
            assert!((STALL.as_secs_f64()..1.2).contains(&took), "{took} s");
            assert_eq!({ next }().unwrap(), VALUE, "it goes on");
        }
        TransportFault::Late { .. } => {
            assert_eq!(answer.unwrap(), VALUE);
            assert!((STALL.as_secs_f64()..1.2).contains(&took), "{took} s");
            assert_eq!({ next }().unwrap(), VALUE, "it goes on");
        }
        TransportFault::Fatal => {
            assert_eq!(answer.unwrap(), VALUE);
            let error = { next }().unwrap_err();
            assert!(error.to_string().contains("no answer for"), "{error}");
            assert!(host.status().unwrap().fatal());
        }
        TransportFault::NotReady => {
            assert_eq!(answer.unwrap(), VALUE);
            let error = { next }().unwrap_err();
            assert_eq!(error.status(), Ok(Status::COMMAND_SEQUENCE_ERROR));
            assert!(!host.status().unwrap().ready());
        }
    }
    if matches!(fault, TransportFault::Fatal | TransportFault::NotReady) {
        // Then hosts reset the controller and connect their queues again.
        let enabled =
            Configuration::new().with_sqe_log2(6).with_cqe_log2(4).with_command_set(0b110).with_enable(true);
        host.set_property(property::CC, 0).unwrap();
        host.set_property(property::CC, u64::from(enabled.into_bits())).unwrap();
        let status = host.status().unwrap();
        assert!(status.ready() && !status.fatal());
        assert_eq!(retrieve(&mut host.io_queue(1, 32).unwrap()).unwrap(), VALUE);
    }
    let (_host, mut queue) = connect(server, true);
    assert_eq!(retrieve(&mut queue).unwrap(), VALUE, "{}: it was once", kind.name);
    assert_eq!(struck_by(server), 1, "{}", kind.name);
}

#[test]
fn what_is_struck_at_the_door_is_carried_out_noticed_by_its_host_and_over() {
    let mut kinds = 0;
    for kind in FAULTS {
        let settings = Settings { delay_ns: Some(300_000_000), ..Settings::default() };
        let Ok(Effect::AtDoor(fault)) = (kind.effect)(&settings) else { continue };
        kinds += 1;
        for behind in [Backend::Drive(Vec::new()), Backend::Beside(Vec::new())] {
            let options = Options { transfer_max_bytes: ROOM, ..Options::default() };
            let server = serve(behind, options, 1 << 20);
            strikes(&server, kind, fault);
            assert_eq!(server.end().leaked_bytes, 0, "{}", kind.name);
        }
    }
    assert!(kinds >= 6, "{kinds}");
}

/// Rules of the door and of the drive strike the same command.
#[test]
fn a_stalled_store_is_refused_by_a_later_rule_as_the_others_are() {
    let server = serve(Backend::Beside(Vec::new()), Options::default(), 1 << 20);
    let rules =
        "[[rule]]\nfault = \"stall\"\nnth = 3\ndelay_ns = \"20ms\"\n[[rule]]\nfault = \"write-protect\"\n";
    server.control.as_ref().unwrap().change(Change::AddFaults(rules.to_owned())).unwrap().unwrap();
    let (_host, mut queue) = connect(&server, false);
    for number in 1..=5 {
        let error = queue.store(key(), VALUE).expect_err("it is write-protected");
        assert_eq!(error.status(), Ok(Status::NAMESPACE_WRITE_PROTECTED), "store {number}");
    }
    assert_eq!(struck_by(&server), 1);
    server.end();
}

/// For an answer without data, and for connections without data digests, the bad digest is that of a header.
#[test]
fn a_bad_digest_is_that_of_a_header_where_there_is_none_of_data() {
    let server = serve(Backend::Beside(Vec::new()), Options::default(), 1 << 20);
    let control = server.control.as_ref().unwrap();
    let rule = "[[rule]]\nfault = \"bad-digest\"\nopcode = \"store\"\n";
    control.change(Change::AddFaults(rule.to_owned())).unwrap().unwrap();
    let (_host, mut queue) = connect(&server, true);
    let error = queue.store(key(), VALUE).unwrap_err();
    assert_eq!(error, Error::Protocol("a header digest is wrong"));
    let (_host, mut queue) = connect(&server, false);
    queue.store(key(), VALUE).expect("who asked for none notices nothing");
    server.end();
}

/// A large value crosses part by part, and is one command to rules: whatever its size, rules match what the host sent.
#[test]
fn a_large_value_is_one_command_of_its_host_to_rules() {
    let server = serve(
        Backend::Beside(Vec::new()),
        Options { transfer_max_bytes: 256 << 20, ..Options::default() },
        6 << 20,
    );
    let control = server.control.as_ref().unwrap();
    let large = vec![7; 5 << 20];
    let (_host, mut queue) = connect(&server, false);
    for opcode in ["store", "retrieve"] {
        let rule =
            format!("[[rule]]\nfault = \"status\"\nstatus = \"81h\"\nopcode = \"{opcode}\"\nnth = 2\n");
        control.change(Change::AddFaults(rule)).unwrap().unwrap();
        for number in 1..=3 {
            let stored = queue.store(key(), &large);
            assert_eq!(stored.is_ok(), opcode == "retrieve" || number != 2, "store {number}");
            let retrieved = queue.retrieve(key(), ROOM).map(|(_, value)| value == large);
            let expected = if opcode == "retrieve" && number == 2 {
                Err(Error::Status(Status::CAPACITY_EXCEEDED))
            } else {
                Ok(true)
            };
            assert_eq!(retrieved, expected, "retrieve {number}");
        }
        let counts = control.look(|_, running| running.faults()[0].clone()).unwrap();
        // After it has struck it cannot strike again, and does not match.
        assert_eq!((counts.matched, counts.struck), (2, 1), "{opcode}");
        control.change(Change::ClearFaults(None)).unwrap().unwrap();
    }
    // The connection ends instead of the answer, and not before the last part is stored.
    let rule = "[[rule]]\nfault = \"drop-connection\"\nopcode = \"store\"\nnth = 1\n";
    control.change(Change::AddFaults(rule.to_owned())).unwrap().unwrap();
    let other = vec![8; 5 << 20];
    assert!(matches!(queue.store(key(), &other), Err(Error::Io { .. })));
    let (_host, mut queue) = connect(&server, false);
    assert!(queue.retrieve(key(), ROOM).unwrap().1 == other, "it was carried out");
    server.end();
}

/// A late answer delays no other command of its connection, and takes its time where the model's time takes none.
#[test]
fn a_late_answer_overtakes_nothing_and_lets_others_pass() {
    let server = serve(Backend::Beside(Vec::new()), Options::default(), 1 << 20);
    let control = server.control.as_ref().unwrap();
    let (_host, mut queue) = connect(&server, false);
    queue.store(key(), VALUE).unwrap();
    let rule = "[[rule]]\nfault = \"late\"\nopcode = \"retrieve\"\ndelay_ns = \"300ms\"\n";
    control.change(Change::AddFaults(rule.to_owned())).unwrap().unwrap();
    let clock = Stopwatch::start();
    let retrieve = Command::Retrieve { key: key(), buffer_bytes: 4096, options: RetrieveOptions::default() };
    let late = queue.submit(retrieve.encode(0, 1), Data::In(4096)).unwrap();
    let prompt = queue.submit(Command::Exist { key: key() }.encode(0, 1), Data::None).unwrap();
    let mut next = || (queue.next_completion().unwrap().cqe.cid.get(), clock.seconds());
    let (first, first_s) = next();
    let (second, second_s) = next();
    assert_eq!((first, second), (prompt, late));
    assert!(first_s < 0.25 && (0.3..1.2).contains(&second_s), "{first_s} s, {second_s} s");
    server.end();
}
