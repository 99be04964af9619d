//! TLS hosts over sockets: our initiator and OpenSSL's client, with both cipher suites, and the errors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::tls::Session;
use kvdrive_auth::{Psk, Secret, TlsPsk};
use kvdrive_host::tcp::{Authentication, Error, Initiator, Options, Queue, Tls, discover};
use kvdrive_nvme::auth::Hash;
use kvdrive_nvme::fabrics::DISCOVERY_NQN;
use kvdrive_nvme::log::{LogRequest, lid};
use kvdrive_nvme::{Cqe, Key, Status};
use kvdrive_subsystem::subsystem::{self, Host};
use zerocopy::FromBytes;

use kvdrive_rigs::served::{Backend, Running, serve, serve_with};
use kvdrive_rigs::wire::ic_req;

const SHORT: &str = "nqn.2014-08.org.example:short";
const LONG: &str = "nqn.2014-08.org.example:long";
const BOTH: &str = "nqn.2014-08.org.example:both";

fn psk(byte: u8) -> Psk {
    Psk::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

fn long_psk() -> Psk {
    Psk::new(Some(Hash::Sha384), &[9; 48]).unwrap()
}

fn secret() -> Secret {
    Secret::new(None, &[4; 32]).unwrap()
}

/// Three hosts: one with a PSK of each suite, and one that has to authenticate inside of TLS, too.
fn guarded() -> subsystem::Options {
    let host = |nqn, psk| Host { psk: Some(psk), ..Host::from(nqn) };
    let both = Host { secret: Some(secret()), ..host(BOTH, psk(2)) };
    let hosts = Some(vec![host(SHORT, psk(1)), host(LONG, long_psk()), both]);
    subsystem::Options { hosts, ..subsystem::Options::default() }
}

fn serve_tls(derivation: Derivation) -> Running {
    let options = guarded();
    let psks = options.psks(derivation).into();
    serve_with(Backend::Memory, options, 4 << 20, Some(psks))
}

fn options(nqn: &str, tls: impl Into<Tls>) -> Options {
    Options {
        host_nqn: nqn.into(),
        tls: Some(tls.into()),
        silence: Some(Duration::from_secs(10)),
        ..Options::default()
    }
}

fn tries(queue: &mut Queue) {
    let key = Key::new(b"key").unwrap();
    for bytes in [1, 100, 4096, 100_000] {
        let value: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
        queue.store(key, &value).unwrap();
        assert_eq!(queue.retrieve(key, 1 << 20).unwrap(), (bytes as u32, value));
    }
}

/// Asserts that no host is connected any more, nothing is left, and this many lines say why.
fn assert_clean(server: Running, lines: &[&str]) {
    let log = server.log.clone();
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
    let log = log.lock().unwrap();
    assert_eq!(log.len(), lines.len(), "{log:#?}");
    for (line, expected) in log.iter().zip(lines) {
        assert!(line.starts_with("127.0.0.1:") && line.contains(expected), "{line:?} has no {expected:?}");
    }
}

#[test]
fn both_suites_both_identities_and_both_derivations_carry_pairs() {
    for derivation in [Derivation::Rfc8446, Derivation::Libnvme] {
        let server = serve_tls(derivation);
        for (nqn, psk) in [(SHORT, psk(1)), (LONG, long_psk())] {
            for version in [Version::Zero, Version::One] {
                let options = options(nqn, Tls { psk: psk.clone(), version, derivation });
                let options = Options { data_digest: true, ..options };
                let mut host = Initiator::connect(server.at, &server.nqn, &options).unwrap();
                let (mut first, mut second) = (host.io_queue(1, 32).unwrap(), host.io_queue(2, 32).unwrap());
                tries(&mut first);
                tries(&mut second);
            }
        }
        assert_clean(server, &[]);
    }
}

#[test]
fn a_host_authenticates_inside_of_tls_as_outside() {
    let server = serve_tls(Derivation::Rfc8446);
    let with_secret = |byte| {
        let own = Secret::new(None, &[byte; 32]).unwrap();
        Options { authentication: Some(Authentication::from(own)), ..options(BOTH, psk(2)) }
    };
    let mut host = Initiator::connect(server.at, &server.nqn, &with_secret(4)).unwrap();
    tries(&mut host.io_queue(1, 32).unwrap());
    drop(host);
    let error = Initiator::connect(server.at, &server.nqn, &with_secret(5)).map(drop).unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
    assert_clean(server, &["did not authenticate"]);
}

/// TREQ requires a secure channel, and SECTYPE says that it is TLS 1.3; without TLS, TREQ is unspecified.
#[test]
fn discovery_says_what_is_required() {
    let server = serve_tls(Derivation::Rfc8446);
    let plain = serve(Backend::Memory, subsystem::Options::default(), 4 << 20);
    let without = Options { host_nqn: SHORT.into(), ..Options::default() };
    for (server, options, required, sectype) in
        [(&server, options(SHORT, psk(1)), 1, 2), (&plain, without, 0, 0)]
    {
        assert_eq!(discover(server.at, &options).unwrap()[0].nqn, server.nqn);
        let mut controller = Initiator::connect(server.at, DISCOVERY_NQN, &options).unwrap();
        let request = LogRequest {
            page: lid::DISCOVERY,
            retain_event: true,
            bytes: 1024,
            offset: 1024,
            command_set: 0,
        };
        let entry = controller.log_page(request).unwrap();
        assert_eq!((entry[3] & 3, entry[768]), (required, sectype));
    }
    plain.end();
    assert_clean(server, &[]);
}

#[test]
fn a_host_with_another_psk_or_name_is_disconnected_and_others_continue() {
    let server = serve_tls(Derivation::Rfc8446);
    let mut host = Initiator::connect(server.at, &server.nqn, &options(SHORT, psk(1))).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    let connect = |nqn: &str, tls: Tls| {
        Initiator::connect(server.at, &server.nqn, &options(nqn, tls)).map(drop).unwrap_err().to_string()
    };
    let zero = |psk| Tls { version: Version::Zero, ..Tls::from(psk) };
    // First the digest of another PSK in the name; then a right name with a wrong key; then an unknown name.
    for (nqn, tls) in [(SHORT, psk(7).into()), (SHORT, zero(psk(7))), ("nqn.nobody", psk(1).into())] {
        let error = connect(nqn, tls);
        assert!(error.contains("TLS") || error.contains("closed"), "{error}");
        tries(&mut queue);
    }
    assert_clean(server, &["no PSK that is known here", "TLS: ", "no PSK that is known here"]);
}

/// A host's end of TLS by hand, which sends arbitrary bytes inside.
struct ByHand {
    session: Session,
    socket: TcpStream,
}

impl ByHand {
    fn connect(at: SocketAddr, psk: &TlsPsk) -> ByHand {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut host = ByHand { session: Session::client(psk).unwrap(), socket };
        while host.session.shake_hands().unwrap().is_none() {
            host.send(&[]);
            host.await_bytes();
        }
        host
    }

    fn send(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.session.write_all(bytes).unwrap();
        }
        let mut output = Vec::new();
        self.session.take_output(&mut output);
        self.socket.write_all(&output).unwrap();
    }

    fn await_bytes(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.socket.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "the server went");
        self.session.receive(&bytes[..count]);
    }

    /// All bytes that come until the server ends the connection.
    fn read_to_end(&mut self) -> Vec<u8> {
        let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            match self.session.read(&mut bytes) {
                Ok(0) => return heard,
                Ok(count) => heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.await_bytes(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A PSK of one host is used to connect as the other one, and a PSK of discovery to connect to the subsystem.
#[test]
fn a_psk_is_of_one_host_and_one_subsystem() {
    let server = serve_tls(Derivation::Rfc8446);
    let made = |host, subsystem| psk(1).for_tls(host, subsystem, Version::One, Derivation::Rfc8446).unwrap();
    for (psk, subsystem, at) in [
        (made(SHORT, &server.nqn), &server.nqn[..], 512u16),
        (made(SHORT, DISCOVERY_NQN), &server.nqn[..], 256),
    ] {
        let mut host = ByHand::connect(server.at, &psk);
        let host_nqn = if at == 512 { LONG } else { SHORT };
        host.send(&[ic_req(), capsule_of(host_nqn, subsystem)].concat());
        let heard = host.read_to_end();
        assert_eq!((heard.len(), heard[0], heard[128]), (128 + 24, 1, 5), "ICResp, CapsuleResp");
        let cqe = Cqe::read_from_bytes(&heard[128 + 8..]).unwrap();
        let field = u32::from(at) | 1 << 16;
        assert_eq!((cqe.status(), cqe.dw0.get()), (Status::CONNECT_INVALID_PARAMETERS, field));
    }
    let lines = [
        format!("its PSK is of host {SHORT:?}, and it connects as host {LONG:?}"),
        format!("its PSK is of subsystem {DISCOVERY_NQN:?}, and it connects as subsystem {:?}", server.nqn),
    ];
    assert_clean(server, &[&lines[0], &lines[1]]);
}

/// A Connect of the admin queue.
fn capsule_of(host_nqn: &str, subsystem_nqn: &str) -> Vec<u8> {
    let mut capsule = kvdrive_rigs::wire::connect(1, 0, 31, [0xFF, 0xFF]);
    for (at, name) in [(256, subsystem_nqn), (512, host_nqn)] {
        let field = &mut capsule[72 + at..72 + at + 256];
        field.fill(0);
        field[..name.len()].copy_from_slice(name.as_bytes());
    }
    capsule
}

#[test]
fn who_speaks_no_tls_where_it_is_required_is_sent_away_and_the_other_way_round() {
    let server = serve_tls(Derivation::Rfc8446);
    let mut plain = TcpStream::connect(server.at).unwrap();
    plain.write_all(&ic_req()).unwrap();
    let mut heard = Vec::new();
    plain.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty(), "{heard:x?}");
    // A record whose content is no TLS message, and a host that sends no more.
    let mut garbled = TcpStream::connect(server.at).unwrap();
    garbled.write_all(&[0x16, 3, 1, 0, 8, 0xFF, 0, 0, 4, 1, 2, 3, 4]).unwrap();
    garbled.read_to_end(&mut heard).unwrap();
    let silent = TcpStream::connect(server.at).unwrap();
    let mut host = Initiator::connect(server.at, &server.nqn, &options(SHORT, psk(1))).unwrap();
    tries(&mut host.io_queue(1, 32).unwrap());
    drop((host, silent));
    assert_clean(server, &["TLS is required here, and the connection begins with 00h", "TLS: "]);

    let server = serve(Backend::Memory, subsystem::Options::default(), 4 << 20);
    let error = Initiator::connect(server.at, &server.nqn, &options(SHORT, psk(1))).map(drop).unwrap_err();
    assert!(error.to_string().contains("TLS") || error.to_string().contains("closed"), "{error}");
    assert_clean(server, &["it uses TLS, and this server is without TLS"]);
}

/// On a port without TLS, a host that has a PSK is refused.
#[test]
fn a_host_with_a_psk_does_not_come_without_tls() {
    let server = serve(Backend::Memory, guarded(), 4 << 20);
    let plain = Options { host_nqn: SHORT.into(), ..Options::default() };
    let error = Initiator::connect(server.at, &server.nqn, &plain).map(drop).unwrap_err();
    assert_eq!(error, Error::Refused(Status::CONNECT_INVALID_HOST, 0));
    assert_clean(server, &[]);
}

/// The client of OpenSSL as an independent peer: it prints the negotiated parameters, and receives an ICResp.
#[test]
fn openssl_agrees_by_both_suites() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: there is no openssl here");
        return;
    }
    let server = serve_tls(Derivation::Rfc8446);
    for (nqn, psk, suite) in
        [(SHORT, psk(1), "TLS_AES_128_GCM_SHA256"), (LONG, long_psk(), "TLS_AES_256_GCM_SHA384")]
    {
        for version in [Version::Zero, Version::One] {
            let made = psk.for_tls(nqn, &server.nqn, version, Derivation::Rfc8446).unwrap();
            let output = s_client(server.at, &made, suite);
            let text = String::from_utf8_lossy(&output);
            assert!(text.contains(&format!("Cipher is {suite}")), "{text}");
            let ic_resp = [1, 0, 128, 0, 128, 0, 0, 0];
            assert!(output.windows(8).any(|window| window == ic_resp), "{text}");
        }
    }
    // The same with a key that differs in one bit.
    let mut made = psk(1).for_tls(SHORT, &server.nqn, Version::One, Derivation::Rfc8446).unwrap();
    made.secret[0] ^= 1;
    let output = s_client(server.at, &made, "TLS_AES_128_GCM_SHA256");
    assert!(String::from_utf8_lossy(&output).contains("Cipher is (NONE)"));
    assert_clean(server, &["TLS: "]);
}

/// A PSK in the form that OpenSSL needs for another hash than SHA-256: a session of TLS 1.3 (its ASN.1 in
/// `SSL_SESSION`), with this cipher suite and no identifier.
fn session_parameters(psk: &TlsPsk) -> String {
    let secret_bytes = psk.secret.len() as u8;
    let head = [2, 1, 1, 2, 2, 3, 4, 4, 2, 0x13, 2, 4, 0, 4, secret_bytes];
    let sequence = [&[0x30, head.len() as u8 + secret_bytes], &head[..], &psk.secret].concat();
    let base64 = Base64::encode_string(&sequence);
    let lines: Vec<&str> = base64.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    let name = "SSL SESSION PARAMETERS-----";
    format!("-----BEGIN {name}\n{}\n-----END {name}\n", lines.join("\n"))
}

/// Sends an ICReq by OpenSSL; returns its output and the bytes that it received.
fn s_client(at: SocketAddr, psk: &TlsPsk, suite: &str) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key: String = psk.secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let psk_as = if psk.hash == Hash::Sha384 {
        std::fs::write(file.path(), session_parameters(psk)).unwrap();
        ["-psk_session".to_owned(), file.path().display().to_string()]
    } else {
        ["-psk".to_owned(), key]
    };
    let mut program = Command::new("openssl")
        .args(["s_client", "-tls1_3", "-connect", &at.to_string(), "-ciphersuites", suite])
        .args(psk_as)
        .args(["-psk_identity", &psk.identity])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let mut output = program.stdout.take().unwrap();
    // A client that was refused has ended, and reads nothing.
    let _ = input.write_all(&ic_req());
    let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
    let ic_resp = [1, 0, 128, 0, 128, 0, 0, 0];
    while !heard.windows(8).any(|window| window == ic_resp) {
        match output.read(&mut bytes).unwrap() {
            0 => break,
            count => heard.extend_from_slice(&bytes[..count]),
        }
    }
    drop((input, output));
    program.wait().unwrap();
    heard
}
