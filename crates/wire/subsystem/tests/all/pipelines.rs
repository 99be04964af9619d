//! Many commands at once from one thread over a socket, with answers in any order.

use std::collections::BTreeMap;

use kvdrive_content::{Piece, Region};
use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_host::{Answer, Calls, Completion, Driver, Error, Pipelined};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Rng;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};

const DEPTH: u32 = 48;

fn client(server: &Running, options: &HostOptions, value_max_bytes: u32) -> (Initiator, Driver) {
    let mut host = Initiator::connect(server.at, &server.nqn, options).unwrap();
    let queue = host.io_queue(1, DEPTH as u16 + 1).unwrap();
    (host, queue.into_driver(DEPTH, value_max_bytes, 1 << 20).unwrap())
}

/// A drive on a thread of its own, and one in the server's loop.
fn drives() -> [Running; 2] {
    [Backend::Drive(Vec::new()), Backend::Beside(Vec::new())]
        .map(|behind| serve(behind, Options::default(), 1 << 20))
}

/// A key with a command under way is not used again, so each answer has one right content.
#[test]
fn every_answer_is_its_commands_own_for_values_of_any_size() {
    for server in drives() {
        every_answer_is_its_commands_own(&server);
        assert_eq!(server.end().leaked_bytes, 0);
    }
}

fn every_answer_is_its_commands_own(server: &Running) {
    for (header_digest, data_digest, in_capsule) in
        [(false, false, true), (true, true, true), (false, true, false)]
    {
        let options = HostOptions { header_digest, data_digest, in_capsule, ..HostOptions::default() };
        let (_host, mut client) = client(server, &options, 1 << 20);
        let mut pipeline = client.pipeline::<Vec<u8>>().unwrap();
        let mut rng = Rng::stream(7, "pipelines");
        let mut pairs: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let mut busy: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
        let take = |pipeline: &mut dyn Pipelined<Vec<u8>>, busy: &mut BTreeMap<Key, Option<Vec<u8>>>| {
            let Completion { call, result, content, .. } = pipeline.next_completion().unwrap().unwrap();
            let key = call.key().unwrap();
            let expected = busy.remove(&key).unwrap();
            match (result, expected) {
                (Ok(Answer::Value(bytes)), Some(value)) => {
                    assert!(bytes as usize == value.len() && content.to_bytes(bytes) == value, "{key}");
                }
                (Ok(Answer::Exists(exists)), value) => assert_eq!(exists, value.is_some(), "{key}"),
                (Err(Status::KEY_NOT_FOUND), None) | (Ok(Answer::Done), _) => {}
                (result, expected) => panic!("{key}: {result:?}, {expected:?}"),
            }
        };
        for round in 0..1500u32 {
            let key = Key::from_u32_be(rng.below(200) as u32);
            if !pipeline.has_room() || busy.contains_key(&key) {
                take(&mut pipeline, &mut busy);
                continue;
            }
            let known = pairs.get(&key).cloned();
            match rng.below(5) {
                0 | 1 => {
                    // Some values go in a capsule, some after an R2T, some in many units.
                    let bytes = [0, 17, 4096, 8192, 8193, 90_001][rng.below(6) as usize];
                    let value = vec![round as u8; bytes];
                    pairs.insert(key, value.clone());
                    busy.insert(key, None);
                    pipeline.store(key, value).unwrap();
                }
                2 => {
                    pairs.remove(&key);
                    busy.insert(key, None);
                    pipeline.delete(key, Vec::new()).unwrap();
                }
                3 => {
                    busy.insert(key, known);
                    pipeline.exist(key, Vec::new()).unwrap();
                }
                _ => {
                    busy.insert(key, known);
                    pipeline.retrieve(key, Vec::new(), Region::new()).unwrap();
                }
            }
        }
        while pipeline.under_way() > 0 {
            take(&mut pipeline, &mut busy);
        }
        drop(pipeline);
        // When nothing is under way, the client works as before the pipeline, on the same connection.
        let mut region = Region::new();
        for (key, value) in &pairs {
            let bytes = client.blocking().retrieve(*key, &mut region).unwrap();
            assert!(region.to_bytes(bytes) == *value, "{key}");
            client.blocking().delete(*key).unwrap();
        }
    }
}

/// The server stops reading from a host that does not read, so a client that only sent would wait for ever.
#[test]
fn who_sends_much_reads_meanwhile() {
    for server in drives() {
        sends_much_and_reads_meanwhile(&server);
        server.end();
    }
}

fn sends_much_and_reads_meanwhile(server: &Running) {
    let (_host, mut client) = client(server, &HostOptions::default(), 1 << 20);
    let (large, small) = (Key::from_u32_be(1), Key::from_u32_be(2));
    client.blocking().store(large, Piece::Bytes(&vec![1; 1 << 20])).unwrap();
    let mut pipeline = client.pipeline::<Vec<u8>>().unwrap();
    for round in 0..200u32 {
        while !pipeline.has_room() {
            pipeline.next_completion().unwrap().unwrap().result.unwrap();
        }
        match round % 2 {
            0 => pipeline.retrieve(large, Vec::new(), Region::new()).unwrap(),
            _ => pipeline.store(small, vec![2; 8192]).unwrap(),
        }
    }
    while let Some(completion) = pipeline.next_completion().unwrap() {
        completion.result.unwrap();
    }
}

#[test]
fn a_value_that_is_too_long_is_refused_and_a_server_that_goes_ends_the_pipeline() {
    for server in drives() {
        refuses_what_is_too_long_and_goes(server);
    }
}

fn refuses_what_is_too_long_and_goes(server: Running) {
    let (_host, mut client) = client(&server, &HostOptions::default(), 100);
    let mut pipeline = client.pipeline::<Vec<u8>>().unwrap();
    let key = Key::from_u32_be(1);
    pipeline.store(key, vec![1; 101]).unwrap();
    let refused = pipeline.next_completion().unwrap().unwrap();
    assert_eq!(refused.result, Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(pipeline.next_completion().unwrap().map(|_| ()), None);
    server.end();
    let ended = loop {
        if pipeline.store(key, vec![1; 99]).is_err() {
            break pipeline.next_completion();
        }
        match pipeline.next_completion() {
            Ok(completion) => _ = completion.unwrap().result.unwrap(),
            Err(error) => break Err(error),
        }
    };
    assert!(matches!(ended, Err(Error::Io { .. })), "{ended:?}");
}

#[test]
fn a_controller_that_says_nothing_is_not_waited_for_for_ever() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let silence = Some(std::time::Duration::from_millis(50));
    let options = HostOptions { silence, ..HostOptions::default() };
    let error = Initiator::connect(at, "nqn.x", &options).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "no answer for 0.05 s");
}
