//! How values reach a served drive: in capsules or requested, and how they lie on its pages.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_host::tcp::{Initiator, Options};
use kvdrive_nvme::Key;

use super::serve::{ctl, run_against, serve};

/// Passes connections on to `address` and counts the requests for data (R2T, type 09h) that come back; returns the
/// address by which it is reached.
fn counting_requests(address: &str) -> (String, Arc<AtomicU64>) {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, counted) = (door.local_addr().unwrap().to_string(), Arc::new(AtomicU64::new(0)));
    let (address, count) = (address.to_owned(), counted.clone());
    std::thread::spawn(move || {
        for host in door.incoming() {
            let (mut host, count) = (host.unwrap(), count.clone());
            let mut server = TcpStream::connect(&address).unwrap();
            let (mut from_host, mut to_server) = (host.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_host, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let mut head = [0; 8];
                while server.read_exact(&mut head).is_ok() {
                    count.fetch_add(u64::from(head[0] == 0x09), Ordering::Relaxed);
                    let bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
                    let mut unit = head.to_vec();
                    unit.resize(bytes, 0);
                    if server.read_exact(&mut unit[8..]).is_err() || host.write_all(&unit).is_err() {
                        return;
                    }
                }
                let _ = host.shutdown(Shutdown::Both);
            });
        }
    });
    (at, counted)
}

/// With `--in-capsule 0` the drive requests the bytes of every value, also those of one byte.
#[test]
fn without_room_in_capsules_every_value_is_requested() {
    for (in_capsule, requested) in [("0", 40), ("8KiB", 0)] {
        let served = serve(&["--in-capsule", in_capsule, "--least-rate", "0"]);
        let (address, requests) = counting_requests(&served.address);
        let mut host = Initiator::connect(&address[..], &served.nqn, &Options::default()).unwrap();
        let mut queue = host.io_queue(1, 32).unwrap();
        let value = |number: u32| vec![number as u8; 1 + 100 * number as usize];
        for number in 0..40 {
            queue.store(Key::from_u32_be(number), &value(number)).unwrap();
        }
        assert_eq!(requests.load(Ordering::Relaxed), requested, "--in-capsule {in_capsule}");
        for number in 0..40 {
            let (bytes, read) = queue.retrieve(Key::from_u32_be(number), 8192).unwrap();
            assert!((bytes as usize, read) == (value(number).len(), value(number)), "{number}");
        }
        drop((queue, host));
        let work = ["--workload", "ycsb-a", "--ops", "500", "--num", "100", "--depth", "8", "--verify"];
        let report = run_against(&served, &[&work[..], &["--json", "-"]].concat()).unwrap();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            (&report["ops"]["errors"], &report["verified"]["wrong"]),
            (&0.into(), &0.into()),
            "{report}"
        );
        assert!(report["verified"]["checked"].as_u64().unwrap() > 0, "{report}");
    }
}

/// Values of up to 512 B that arrive in capsules lie side by side in pages of 16 KiB; longer ones begin at multiples of
/// 4 KiB.
#[test]
fn short_values_from_a_network_are_packed_densely() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--control", socket.to_str().unwrap()]);
    let mut before = 0;
    for (size, values_in_a_page) in [("32", 500), ("512", 32), ("513", 4)] {
        let work = ["--workload", "fillseq", "--ops", "20000", "--depth", "8", "--value-size", size];
        run_against(&served, &work).unwrap();
        let status = ctl(&socket, &["--json", "status"]).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let opened = &status["drive"]["counts"]["engine"]["value_pages_opened"];
        let opened = opened.get("total").unwrap_or(opened).as_u64().unwrap();
        assert_eq!((opened - before) * values_in_a_page, 20_000, "{size} B");
        before = opened;
    }
}
