//! Floods of logins without a secret, and a host that logs in meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kvdrive_auth::{KeyPair, Secret};
use kvdrive_host::tcp::{Authentication, Error, Initiator, Options};
use kvdrive_nvme::auth::{Content, Group, Hash, Message, Offer, Reason};
use kvdrive_nvme::fabrics::Fabrics;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{self, Host};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use super::authentication::capsule;
use kvdrive_rigs::served::{Backend, serve};
use kvdrive_rigs::wire::{address, connect, core, ic_req, settle};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-00000000000a";

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

fn guarded() -> subsystem::Options {
    let host = Host { secret: Some(secret(1)), ..Host::from(HOST) };
    subsystem::Options { hosts: Some(vec![host]), ..subsystem::Options::default() }
}

/// A Negotiate that offers only this group.
fn offer(group: Group) -> Vec<u8> {
    let offer = Some(Offer { hashes: &[1], groups: &[group as u8] });
    message(Content::Negotiate { concatenation: 0, offer })
}

/// A capsule with a message.
fn message(content: Content<'_>) -> Vec<u8> {
    let message = Message { transaction: 9, content }.encode();
    capsule(Fabrics::AuthenticationSend { bytes: message.len() as u32 }, 3, &message)
}

#[test]
fn a_host_logs_in_while_others_offer_the_largest_group_and_leave() {
    const AHEAD: usize = 100;
    let server = serve(Backend::Memory, guarded(), 4 << 20);
    let (is_over, floods) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(server.at).unwrap();
                stream.write_all(&[ic_req(), connect(1, 0, 31, [0xFF, 0xFF])].concat()).unwrap();
                stream.read_exact(&mut [0; 128 + 24]).unwrap();
                stream.write_all(&offer(Group::Ffdhe8192)).unwrap();
                stream.read_exact(&mut [0; 24]).unwrap();
                floods.fetch_add(1, Ordering::Relaxed);
            }
        });
        while floods.load(Ordering::Relaxed) < AHEAD {
            std::thread::yield_now();
        }
        let mut logins = Vec::new();
        for _ in 0..5 {
            let own = Authentication { groups: vec![Group::Ffdhe2048], ..Authentication::from(secret(1)) };
            let options = Options { host_nqn: HOST.into(), authentication: Some(own), ..Options::default() };
            logins.push(Initiator::connect(server.at, &server.nqn, &options).map(drop));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(logins, vec![Ok(()); 5]);
    });
    server.end();
}

/// A host by hand at one address.
struct Caller {
    connection: Connection,
}

impl Caller {
    fn new(core: &mut Core, key: usize, at: [u8; 4]) -> Caller {
        let mut connection = Connection::new(key, Limits::default(), address(), core);
        connection.come_from(at.into());
        let mut caller = Caller { connection };
        caller.send(core, &ic_req());
        caller.send(core, &connect(1, 0, 31, [0xFF, 0xFF]));
        caller
    }

    fn send(&mut self, core: &mut Core, bytes: &[u8]) -> Vec<u8> {
        assert_eq!(self.connection.receive(core, bytes), bytes.len());
        settle(core, &mut self.connection);
        self.connection.output().take_all()
    }

    /// The next message of the authentication that the host receives.
    fn ask(&mut self, core: &mut Core) -> Vec<u8> {
        let mut told = self.send(core, &receive());
        while told.is_empty() {
            std::thread::yield_now();
            told = self.send(core, &[]);
        }
        told
    }
}

/// A capsule that asks for the next message.
fn receive() -> Vec<u8> {
    capsule(Fabrics::AuthenticationReceive { bytes: 4096 }, 4, &[])
}

/// Replies that only an exponentiation can check are checked in turns of their senders.
#[test]
fn a_reply_waits_for_one_check_of_each_other_sender() {
    let (mut core, _memory) = core(guarded(), 4 << 20);
    let pair = KeyPair::new(Group::Ffdhe2048);
    let flood = (0..20).map(|key| (key, [10, 0, 0, 1]));
    let mut callers: Vec<Caller> =
        flood.chain([(20, [10, 0, 0, 2])]).map(|(key, at)| Caller::new(&mut core, key, at)).collect();
    for caller in &mut callers {
        caller.send(&mut core, &offer(Group::Ffdhe2048));
        caller.ask(&mut core);
    }
    // Only the response is wrong.
    let public = pair.public();
    let reply = message(Content::Reply { response: &[7; 32], challenge: None, sequence: 0, public });
    for caller in &mut callers {
        caller.connection.receive(&mut core, &reply);
        caller.connection.receive(&mut core, &receive());
    }
    let mut answered = Vec::new();
    while !answered.contains(&20) {
        std::thread::yield_now();
        core.subsystem.poll();
        while let Some(event) = core.subsystem.next_event() {
            let subsystem::Event::Completed(completion) = event else { continue };
            let queue = completion.tag.queue;
            if completion.data_bytes == 0 {
                // The answer to the Send.
                continue;
            }
            answered.push(callers.iter().position(|of| of.connection.queue() == Some(queue)).unwrap());
        }
    }
    let ahead = answered.iter().position(|caller| *caller == 20).unwrap();
    assert!(ahead <= 2, "of 20 senders' replies {answered:?} were checked first");
}

#[test]
fn a_weaker_hash_or_group_than_the_least_is_refused() {
    let options = subsystem::Options { hash_min: Hash::Sha384, group_min: Group::Ffdhe3072, ..guarded() };
    let server = serve(Backend::Memory, options, 4 << 20);
    let login = |hashes: &[Hash], groups: &[Group]| {
        let secret = Authentication::from(secret(1));
        let own = Authentication { hashes: hashes.to_vec(), groups: groups.to_vec(), ..secret };
        let options = Options { host_nqn: HOST.into(), authentication: Some(own), ..Options::default() };
        Initiator::connect(server.at, &server.nqn, &options).map(drop)
    };
    let told = |reason| Err(Error::Authentication { reason, by_controller: true });
    assert_eq!(login(&[Hash::Sha256], &Group::ALL), told(Reason::Hash));
    assert_eq!(login(&Hash::ALL, &[Group::Null, Group::Ffdhe2048]), told(Reason::Group));
    assert_eq!(login(&[Hash::Sha256, Hash::Sha384], &[Group::Ffdhe2048, Group::Ffdhe3072]), Ok(()));
    server.end();
}
