//! Two sessions that get each other's bytes.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::tls::{Failure, Known, Session};
use kvdrive_auth::{Psk, TlsPsk};
use kvdrive_nvme::auth::Hash;

fn psk(byte: u8, hash: Hash, version: Version) -> TlsPsk {
    let psk = Psk::new(Some(hash), &vec![byte; hash.bytes()]).unwrap();
    psk.for_tls("nqn.host", "nqn.drive", version, Derivation::Rfc8446).unwrap()
}

/// Carries bytes between the two ends, `bytes` at a time, until none are left.
fn carry(from: &mut Session, to: &mut Session, bytes: usize) -> bool {
    let mut output = Vec::new();
    from.take_output(&mut output);
    output.chunks(bytes).for_each(|chunk| to.receive(chunk));
    !output.is_empty()
}

/// The handshake of both ends, with this many bytes at a time.
fn shake(host: TlsPsk, known: Vec<TlsPsk>) -> Result<(Session, Session, TlsPsk), (Failure, Failure)> {
    let known: Known = Arc::from(known);
    let mut server = Session::server(&known).unwrap();
    let mut client = Session::client(&host).unwrap();
    assert_eq!(client.shake_hands(), Ok(None));
    carry(&mut client, &mut server, usize::MAX);
    let served = server.shake_hands();
    carry(&mut server, &mut client, usize::MAX);
    let connected = client.shake_hands();
    carry(&mut client, &mut server, usize::MAX);
    match (served, connected) {
        (Err(server), Err(client)) => return Err((server, client)),
        (Ok(None), Ok(Some(_))) => {}
        other => panic!("{other:?}"),
    }
    let psk = server.shake_hands().unwrap().expect("it has ended");
    // No ticket after the server's Finished: Linux then hands the socket to its kernel, which would take a
    // record for data.
    assert!(!carry(&mut server, &mut client, usize::MAX), "the server says more than the handshake");
    Ok((client, server, psk))
}

#[test]
fn both_ends_agree_by_either_suite_and_either_identity_and_understand_each_other() {
    for (hash, version) in
        [Hash::Sha256, Hash::Sha384].into_iter().flat_map(|h| [Version::Zero, Version::One].map(|v| (h, v)))
    {
        let own = psk(1, hash, version);
        let known = vec![psk(2, Hash::Sha256, Version::One), own.clone(), psk(3, Hash::Sha384, Version::One)];
        let (mut client, mut server, agreed) = shake(own.clone(), known).unwrap();
        assert_eq!(agreed, own);
        let said: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        client.write_all(&said).unwrap();
        let mut heard = vec![0; said.len() + 1];
        let mut filled = 0;
        // Pieces of any size.
        while carry(&mut client, &mut server, 7) {
            loop {
                match server.read(&mut heard[filled..]) {
                    Ok(bytes) => filled += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert!(filled == said.len() && heard[..filled] == said, "{hash:?} {version:?}: {filled} bytes");
        client.close();
        carry(&mut client, &mut server, 1);
        assert_eq!(server.read(&mut heard).unwrap(), 0, "it was told that this was all");
    }
}

#[test]
fn other_psks_and_altered_bytes_come_to_nothing() {
    let own = psk(1, Hash::Sha256, Version::One);
    let (server, _) = shake(own.clone(), vec![psk(2, Hash::Sha256, Version::One)]).map(drop).unwrap_err();
    assert!(server.to_string().contains("no PSK that is known here"), "{server}");
    // The same names with another key: version 0 has no digest.
    let (server, _) = shake(psk(1, Hash::Sha256, Version::Zero), vec![psk(2, Hash::Sha256, Version::Zero)])
        .map(drop)
        .unwrap_err();
    assert!(server.to_string().starts_with("TLS: "), "{server}");

    let (mut client, mut server, _) = shake(own.clone(), vec![own.clone()]).unwrap();
    client.write_all(b"hello").unwrap();
    let mut output = Vec::new();
    client.take_output(&mut output);
    *output.last_mut().unwrap() ^= 1;
    server.receive(&output);
    let mut heard = [0; 16];
    let error = server.read(&mut heard).unwrap_err();
    assert!(error.kind() != ErrorKind::WouldBlock && heard == [0; 16], "{error}");

    for garbage in [&[0u8, 0, 128, 0, 128, 0, 0, 0][..], &[0x16, 3, 1, 0xFF, 0xFF], &[0x16; 4096]] {
        let mut server = Session::server(&Arc::from([own.clone()])).unwrap();
        server.receive(garbage);
        assert_ne!(server.shake_hands().map(|psk| psk.is_some()), Ok(true));
    }
}
