//! Hosts with secrets, over sockets: every hash and group, both directions, again, and with errors.

use kvdrive_auth::{Response, Role, Secret};
use kvdrive_host::tcp::{Authentication, Error, Initiator, Options};
use kvdrive_nvme::auth::{Content, Group, Hash, Message, Offer, Reason};
use kvdrive_nvme::fabrics::Fabrics;
use kvdrive_nvme::{Key, SglDescriptor, Status};
use kvdrive_subsystem::subsystem::{self, Host};

use kvdrive_rigs::served::{Backend, serve};
use kvdrive_rigs::wire::{Wire, connect, hex, ic_req, set_cc};

const HOST: &str = "nqn.2014-08.org.example:host";
const OPEN: &str = "nqn.2014-08.org.example:open";

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

/// A subsystem of two hosts, one of which has to authenticate.
fn guarded() -> subsystem::Options {
    let host = Host {
        nqn: HOST.into(),
        secret: Some(secret(1)),
        controller_secret: Some(Secret::new(None, &[2; 48]).unwrap()),
        psk: None,
    };
    subsystem::Options { hosts: Some(vec![host, OPEN.into()]), ..subsystem::Options::default() }
}

fn options(own: Option<Authentication>) -> Options {
    Options { host_nqn: HOST.into(), authentication: own, ..Options::default() }
}

fn both() -> Authentication {
    Authentication {
        controller_secret: Some(Secret::new(None, &[2; 48]).unwrap()),
        ..Authentication::from(secret(1))
    }
}

#[test]
fn every_hash_and_every_group_in_both_directions_and_again() {
    let server = serve(Backend::Memory, guarded(), 4 << 20);
    let pairs = Hash::ALL.map(|hash| (hash, Group::Null)).into_iter();
    for (hash, group) in pairs.chain(Group::ALL.map(|group| (Hash::Sha384, group))) {
        for controller_too in [false, true] {
            let mut own = Authentication { hashes: vec![hash], groups: vec![group], ..both() };
            if !controller_too {
                own.controller_secret = None;
            }
            let mut host = Initiator::connect(server.at, &server.nqn, &options(Some(own))).unwrap();
            let mut queue = host.io_queue(1, 32).unwrap();
            let key = Key::new(b"key").unwrap();
            queue.store(key, b"value").unwrap();
            if group <= Group::Ffdhe2048 {
                host.authenticate_again().unwrap();
                host.authenticate_queue_again(&mut queue).unwrap();
            }
            assert_eq!(queue.retrieve(key, 100).unwrap().1, b"value", "{hash:?} {group:?}");
            host.keep_alive().unwrap();
        }
    }
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers, end.served.authentication_failures), (0, 0, 0));
}

#[test]
fn a_host_with_a_wrong_secret_is_told_so_and_disconnected() {
    let server = serve(Backend::Memory, guarded(), 4 << 20);
    let connect = |own| Initiator::connect(server.at, &server.nqn, &options(own)).map(drop).unwrap_err();
    let told = |reason| Error::Authentication { reason, by_controller: true };
    assert_eq!(connect(Some(Authentication::from(secret(3)))), told(Reason::Failed));
    // The right bytes, and another transformation of them into a key.
    let other_way = Secret::new(None, &[1; 32]).unwrap();
    assert_eq!(connect(Some(Authentication::from(other_way))), told(Reason::Failed));
    let no_hash = Authentication { hashes: Vec::new(), ..both() };
    assert_eq!(connect(Some(no_hash)), told(Reason::Hash));
    let no_group = Authentication { groups: Vec::new(), ..both() };
    assert_eq!(connect(Some(no_group)), told(Reason::Group));
    // Here the host does not believe the controller.
    let other_drive = Authentication { controller_secret: Some(secret(2)), ..both() };
    let here = Error::Authentication { reason: Reason::Failed, by_controller: false };
    assert_eq!(connect(Some(other_drive)), here);
    assert_eq!(connect(None), Error::Status(Status::AUTHENTICATION_REQUIRED));

    // The other host has no secret on the server, so it need not and cannot authenticate.
    let open = Options { host_nqn: OPEN.into(), ..Options::default() };
    Initiator::connect(server.at, &server.nqn, &open).unwrap();
    let open = Options { authentication: Some(both()), ..open };
    let error = Initiator::connect(server.at, &server.nqn, &open).map(drop).unwrap_err();
    assert_eq!(error, Error::Status(Status::INVALID_OPCODE));
    let stranger = Options { host_nqn: "nqn.2014-08.org.example:other".into(), ..open };
    let error = Initiator::connect(server.at, &server.nqn, &stranger).map(drop).unwrap_err();
    assert_eq!(error, Error::Refused(Status::CONNECT_INVALID_HOST, 0));
    let lines = server.log.lock().unwrap().clone();
    let told = lines.iter().filter(|line| line.contains("did not authenticate: ")).count();
    assert_eq!(told, 5, "{lines:#?}");
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers, end.served.authentication_failures), (0, 0, 5));
}

/// A capsule with an authentication message, or a request for the next one.
pub fn capsule(command: Fabrics, cid: u8, message: &[u8]) -> Vec<u8> {
    let mut sqe = command.encode(u16::from(cid));
    let bytes = 72 + message.len() as u32;
    let in_capsule = SglDescriptor::in_capsule(message.len() as u32);
    sqe.set_sgl(if message.is_empty() { SglDescriptor::transport(4096) } else { in_capsule });
    let data_at = if message.is_empty() { 0 } else { 72 };
    [&[4, 0, 72, data_at][..], &bytes.to_le_bytes(), &sqe.as_bytes()[..], message].concat()
}

/// In the largest group a key agreement takes milliseconds; a command that arrives after it is answered
/// first.
#[test]
fn a_command_does_not_wait_for_a_key_agreement() {
    let host = Host {
        secret: Some(secret(1)),
        ..Host::from("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a")
    };
    let name = host.nqn.clone();
    let mut wire = Wire::new(subsystem::Options { hosts: Some(vec![host]), ..subsystem::Options::default() });
    let subsystem = wire.core.subsystem.options().nqn.clone();
    wire.send(&ic_req());
    let connected = wire.send(&connect(1, 0, 31, [0xFF, 0xFF]));
    assert_eq!((&connected[8..12], &connected[22..24]), (&[1, 0, 2, 0][..], &[0, 0][..]), "ATR");
    let refused = wire.send(&set_cc(2, "61004600"));
    assert_eq!(refused[22..24], hex("22 83"), "191h, do not retry");

    let receive = Fabrics::AuthenticationReceive { bytes: 4096 };
    let send = |wire: &mut Wire, content| {
        let message = Message { transaction: 9, content }.encode();
        let answer =
            wire.send(&capsule(Fabrics::AuthenticationSend { bytes: message.len() as u32 }, 3, &message));
        assert_eq!((answer[0], &answer[22..24]), (5, &[0, 0][..]), "{answer:x?}");
    };
    let negotiate = |group: Group| {
        let groups: &'static [u8] = if group == Group::Null { &[0] } else { &[5] };
        Content::Negotiate { concatenation: 0, offer: Some(Offer { hashes: &[1], groups }) }
    };
    // The answer to a Receive, when the other thread is done: a C2HData and a CapsuleResp.
    let await_message = |wire: &mut Wire, mut came: Vec<u8>| {
        while came.is_empty() {
            std::thread::yield_now();
            came = wire.send(&[]);
        }
        assert_eq!(came[0], 7);
        came[24..came.len() - 24].to_vec()
    };
    send(&mut wire, negotiate(Group::Null));
    let came = wire.send(&capsule(receive, 4, &[]));
    let challenged = await_message(&mut wire, came);
    let (message, _) = Message::decode(&challenged).unwrap();
    let Content::Challenge { hash, sequence, challenge, .. } = message.content else { panic!("{message:?}") };
    let secret = secret(1);
    let response = Response {
        role: Role::Host,
        secret: &secret,
        own_nqn: &name,
        other_nqn: &subsystem,
        hash,
        shared: &[],
        sequence,
        transaction: 9,
    };
    let response = response.to(challenge);
    send(&mut wire, Content::Reply { response: &response, challenge: None, sequence: 0, public: &[] });
    let came = wire.send(&capsule(receive, 5, &[]));
    let succeeded = await_message(&mut wire, came);
    let content = Content::Success1 { hash_bytes: 32, response: None };
    assert_eq!(Message::decode(&succeeded), Ok((Message { transaction: 9, content }, &[][..])));
    assert_eq!(wire.send(&set_cc(6, "61004600"))[22..24], [0, 0]);

    send(&mut wire, negotiate(Group::Ffdhe8192));
    assert!(wire.send(&capsule(receive, 7, &[])).is_empty(), "it waits");
    assert_eq!(wire.send(&set_cc(8, "61004600"))[20..24], [8, 0, 0, 0], "and this does not");
    let challenged = await_message(&mut wire, Vec::new());
    assert_eq!(challenged.len(), 16 + 32 + 1024);
    // A malformed message now ends the exchange, with a reason.
    send(&mut wire, negotiate(Group::Null));
    let came = wire.send(&capsule(receive, 9, &[]));
    let failed = await_message(&mut wire, came);
    assert_eq!(failed, hex("00 f1 0000 0900 01 07"));
    assert!(wire.connection.is_ending() && wire.core.subsystem.controllers() == 0);
}

/// A host that has to authenticate, and whose controller has to, too; by hand.
struct ByHand {
    wire: Wire,
    name: String,
}

impl ByHand {
    fn new() -> ByHand {
        let name = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a".to_owned();
        let host = Host {
            nqn: name.clone(),
            secret: Some(secret(1)),
            controller_secret: Some(secret(2)),
            psk: None,
        };
        let hosts = Some(vec![host]);
        let mut wire = Wire::new(subsystem::Options { hosts, ..subsystem::Options::default() });
        wire.send(&ic_req());
        wire.send(&connect(1, 0, 31, [0xFF, 0xFF]));
        ByHand { wire, name }
    }

    /// Sends a message of transaction `transaction`; returns the message of the next Receive.
    fn step(&mut self, transaction: u16, content: Content<'_>) -> Vec<u8> {
        let message = Message { transaction, content }.encode();
        let send = Fabrics::AuthenticationSend { bytes: message.len() as u32 };
        let answer = self.wire.send(&capsule(send, 3, &message));
        assert_eq!((answer[0], &answer[22..24]), (5, &[0, 0][..]), "{answer:x?}");
        assert!(self.is_locked(), "{content:?} opened it");
        let mut came = self.wire.send(&capsule(Fabrics::AuthenticationReceive { bytes: 4096 }, 4, &[]));
        while came.is_empty() {
            std::thread::yield_now();
            came = self.wire.send(&[]);
        }
        came[24..came.len() - 24].to_vec()
    }

    fn is_locked(&mut self) -> bool {
        self.wire.send(&set_cc(2, "61004600"))[22..24] == hex("22 83")
    }

    /// The response to the challenge in `challenged`.
    fn response(&self, challenged: &[u8]) -> Vec<u8> {
        let Content::Challenge { hash, sequence, challenge, .. } =
            Message::decode(challenged).unwrap().0.content
        else {
            panic!("{challenged:x?}");
        };
        let response = Response {
            role: Role::Host,
            secret: &secret(1),
            own_nqn: &self.name,
            other_nqn: &self.wire.core.subsystem.options().nqn,
            hash,
            shared: &[],
            sequence,
            transaction: 9,
        };
        response.to(challenge)
    }

    /// Asserts that the host was told this, and disconnected.
    fn assert_ended(&self, told: &[u8], reason: Reason) {
        let (message, _) = Message::decode(told).unwrap();
        assert_eq!(message.content, Content::Failure1(reason));
        assert!(self.wire.connection.is_ending() && self.wire.core.subsystem.controllers() == 0);
    }
}

fn negotiate(concatenation: u8) -> Content<'static> {
    Content::Negotiate { concatenation, offer: Some(Offer { hashes: &[1], groups: &[0] }) }
}

#[test]
fn who_leaves_a_step_out_is_told_so_and_sent_away() {
    let any = [7; 32];
    let reply = Content::Reply { response: &any, challenge: None, sequence: 0, public: &[] };
    for (steps, reason) in [
        (vec![(9, Content::Success2)], Reason::Message),
        (vec![(9, reply)], Reason::Message),
        (vec![(9, negotiate(1))], Reason::Concatenation),
        (vec![(9, negotiate(0)), (9, Content::Success2)], Reason::Message),
        (vec![(9, negotiate(0)), (9, negotiate(0))], Reason::Message),
        (vec![(9, negotiate(0)), (9, reply)], Reason::Failed),
    ] {
        let mut host = ByHand::new();
        let mut told = Vec::new();
        for (transaction, content) in steps {
            assert!(host.is_locked());
            told = host.step(transaction, content);
        }
        host.assert_ended(&told, reason);
    }
}

/// Right in everything but a number: the transaction's, in the reply and at the end. A host that demands its
/// controller's response is let in after it has confirmed that response, not before.
#[test]
fn a_queue_is_open_after_the_last_message_of_its_transaction() {
    let mut host = ByHand::new();
    let challenged = host.step(9, negotiate(0));
    let response = host.response(&challenged);
    let reply = Content::Reply { response: &response, challenge: Some(&[5; 32]), sequence: 1, public: &[] };
    let told = host.step(8, reply);
    host.assert_ended(&told, Reason::Payload);

    for last in [8, 9] {
        let mut host = ByHand::new();
        let challenged = host.step(9, negotiate(0));
        let response = host.response(&challenged);
        let reply =
            Content::Reply { response: &response, challenge: Some(&[5; 32]), sequence: 1, public: &[] };
        let told = host.step(9, reply);
        let Content::Success1 { response: Some(_), .. } = Message::decode(&told).unwrap().0.content else {
            panic!("{told:x?}");
        };
        assert!(host.is_locked(), "before the host believes its controller");
        if last == 8 {
            let told = host.step(last, Content::Success2);
            host.assert_ended(&told, Reason::Payload);
            continue;
        }
        let message = Message { transaction: last, content: Content::Success2 }.encode();
        let send = Fabrics::AuthenticationSend { bytes: message.len() as u32 };
        assert_eq!(host.wire.send(&capsule(send, 3, &message))[22..24], [0, 0]);
        assert!(!host.is_locked());
    }
}

#[test]
fn who_does_not_authenticate_in_time_is_sent_away() {
    let name = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a";
    let host = Host { secret: Some(secret(1)), ..Host::from(name) };
    let mut wire = Wire::new(subsystem::Options { hosts: Some(vec![host]), ..subsystem::Options::default() });
    wire.send(&ic_req());
    wire.send(&connect(1, 0, 31, [0xFF, 0xFF]));
    wire.core.subsystem.tick(30_000);
    wire.send(&[]);
    assert!(!wire.connection.is_ending());
    wire.core.subsystem.tick(30_001);
    wire.send(&[]);
    assert!(wire.connection.is_ending() && wire.core.subsystem.controllers() == 0);
}
