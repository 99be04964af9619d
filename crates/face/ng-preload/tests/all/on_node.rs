//! The transport of a Linux node: `kvdrive run --connect /dev/ng0n1` in a child of this test, for which the preloaded
//! library answers in a kernel's place.

use std::path::Path;
use std::process::Command;

use kvdrive_conform::node::Node;
use kvdrive_conform::report::Verdict;
use kvdrive_conform::{Wanted, check};
use kvdrive_host::reach::{ReachError, Remote, reach};
use kvdrive_host::{Call, Calls, Client};
use kvdrive_nvme::{Key, Status};

use crate::programs::{drive, library, node_of, said};
use kvdrive_rigs::run_at::run_at;

const NODE: &str = "/dev/ng0n1";

/// Carries out the test `name` of this file in a child, with the node in front of a served drive.
fn on_node(name: &str) {
    let served = drive();
    on_nodes(name, &node_of(&served));
    served.end();
}

/// The same with the nodes of this variable.
fn on_nodes(name: &str, nodes: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("on_node::{name}"), "--ignored", "--nocapture"]);
    child.env("KVDRIVE_NG", nodes).env("LD_PRELOAD", library());
    let said = said(&mut child);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn a_run_goes_to_a_device_of_linux() {
    on_node("runs_with_saker_and_without_it");
}

#[test]
#[ignore = "has no device; a_run_goes_to_a_device_of_linux runs it where there is one"]
fn runs_with_saker_and_without_it() {
    let (targets, report) =
        run_at(NODE, "cosmos-plus", &["host.depth=8", "host.queues=2", "workload.ops=2000"])
            .unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!((targets[0].name().as_str(), report.ops.total()), (NODE, 2000));
    assert!(targets[0].nqn.starts_with("nqn.") && targets[0].model.starts_with("kvdrive"), "{targets:?}");
    let saker =
        ["saker.enabled=true", "saker.batch=16", "saker.in_flight=4", "host.threads=2", "workload.ops=2000"];
    let (_, report) = run_at(NODE, "saker-mid", &saker).unwrap_or_else(|error| panic!("{error:#}"));
    let saker = report.counts.section("saker");
    assert!(saker.of("batches") > 20 && saker.of("requests") > 1000, "{report:?}");
}

#[test]
fn a_device_has_the_calls_of_every_drive() {
    on_node("calls");
}

#[test]
#[ignore = "has no device; a_device_has_the_calls_of_every_drive runs it where there is one"]
fn calls() {
    let of = |address: &str, nsid| {
        let remote = Remote { address: address.to_owned(), nsid, ..Remote::default() };
        reach(&remote).map(drop).unwrap_err()
    };
    assert!(matches!(of(NODE, Some(7)), ReachError::NoPairs(line) if line == "it is namespace 1, not 7"));
    for no_device in ["/dev/null", "/tmp", "/dev/nvme0"] {
        let line = of(no_device, None).line();
        assert_eq!(line, "it is no device of an NVMe namespace; those are /dev/ngXnY", "{no_device}");
    }
    assert!(of("/dev/ng7n1", None).line().starts_with("no such device; `ls /dev/ng*`"));
    let mut reached = reach(&Remote { address: NODE.to_owned(), ..Remote::default() }).unwrap();
    let driver = reached.driver(1, 5, 4).unwrap();
    let mut client = driver.blocking();
    let (mut into, long) = (kvdrive_content::Region::new(), vec![9; 300_000]);
    for (key, value) in [(1, &b"one"[..]), (2, &[]), (3, &long)] {
        client.store(Key::from_u32_be(key), kvdrive_content::Piece::Bytes(value)).unwrap();
    }
    // More than a Retrieve asks for first, and nothing at all.
    let bytes = client.retrieve(Key::from_u32_be(3), &mut into).unwrap();
    assert!(into.to_bytes(bytes) == long);
    assert_eq!(client.retrieve(Key::from_u32_be(2), &mut into), Ok(0));
    assert_eq!(
        client.retrieve(Key::from_u32_be(4), &mut into).unwrap_err().status(),
        Ok(Status::KEY_NOT_FOUND)
    );
    assert_eq!((client.exist(Key::from_u32_be(1)), client.exist(Key::from_u32_be(4))), (Ok(true), Ok(false)));
    // Several at once, answered in any order.
    let tickets: Vec<_> =
        (1..=3).map(|key| client.submit(Call::retrieve(Key::from_u32_be(key))).unwrap()).collect();
    let sizes: Vec<_> =
        tickets.into_iter().map(|ticket| client.wait(ticket, &mut into).unwrap().value()).collect();
    assert_eq!(sizes, [3, 0, 300_000]);
    let (iterator, pair) = client.seek(None, &mut into).unwrap();
    let mut found = vec![pair.unwrap().key];
    while let Some(pair) = client.next(iterator, &mut into).unwrap() {
        found.push(pair.key);
    }
    client.close(iterator).unwrap();
    assert_eq!(found, [1, 2, 3].map(Key::from_u32_be));
    assert_eq!(client.list(None, 4096).unwrap(), found);
    client.delete(Key::from_u32_be(1)).unwrap();
    assert_eq!(client.exist(Key::from_u32_be(1)), Ok(false));
}

#[test]
fn a_device_keeps_every_clause_that_a_kernel_sends() {
    on_node("clauses");
}

#[test]
#[ignore = "has no device; a_device_keeps_every_clause_that_a_kernel_sends runs it where there is one"]
fn clauses() {
    let mut node = Node::open(Remote { address: NODE.to_owned(), ..Remote::default() }).unwrap();
    let report = check(&mut node, &Wanted::default(), &mut |judged| println!("{}", judged.text())).unwrap();
    assert_eq!((report.failed(), &report.left), (vec![], &vec![]));
    let is = |id: &str| report.judged.iter().find(|judged| judged.clause.id == id).unwrap();
    for id in ["value-max", "list-count", "ednek-set", "log-effects", "key-17-store"] {
        assert_eq!(is(id).verdict, Verdict::Pass, "{id}");
    }
    // What a kernel does not send is no fault of the drive.
    for (id, why) in [
        ("namespace-missing", "the kernel does not send such a command: Invalid argument"),
        ("fused", "the kernel does not send such a command: Invalid argument"),
        ("ednek-reset", "others may use the controller"),
        ("hosts-share", "one host"),
        ("discovery", "no fabric"),
    ] {
        let judged = is(id);
        assert!(judged.verdict == Verdict::NotOffered && judged.told.contains(why), "{id}: {}", judged.told);
    }
    assert!(report.count(Verdict::Pass) > 70, "{}", report.summary());
}

/// Who is not root may send commands of the specification, and is told which one only root may.
#[test]
fn who_is_not_root_is_told_what_only_root_may_send() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("on-node-{}.toml", std::process::id()));
    let nodes = format!("[[node]]\npath = \"{NODE}\"\ndrive = \"kvdrive:cosmos-plus\"\nprivileged = false\n");
    std::fs::write(&file, nodes).unwrap();
    on_nodes("without_rights", file.to_str().unwrap());
}

#[test]
#[ignore = "has no device; who_is_not_root_is_told_what_only_root_may_send runs it where there is one"]
fn without_rights() {
    run_at(NODE, "cosmos-plus", &["host.depth=4", "workload.ops=500"])
        .unwrap_or_else(|error| panic!("{error:#}"));
    let saker = ["saker.enabled=true", "saker.batch=16", "workload.ops=500"];
    let error = run_at(NODE, "saker-mid", &saker).map(drop).unwrap_err();
    let line = format!("{error:#}");
    let says = |what: &str| line.contains(what);
    assert!(says("/dev/ng0n1: ") && says("the kernel sends command B1h for root only"), "{line}");
}
