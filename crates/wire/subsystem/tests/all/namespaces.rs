//! Several namespaces of one subsystem, each with pairs of its own, and several hosts.

use kvdrive_content::Region;
use kvdrive_host::tcp::{Data, Error, Initiator, Options as HostOptions, Queue};
use kvdrive_host::{Call, Calls, Client};
use kvdrive_nvme::identify::{CSI_KV, cns};
use kvdrive_nvme::{Key, Sqe, Status, feature};
use kvdrive_run::wall::Change;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};

fn listed(host: &mut Initiator, after: u32) -> Vec<u32> {
    let lists = [cns::ACTIVE_NAMESPACES, cns::CSI_ACTIVE_NAMESPACES].map(|structure| {
        let page = host.identify(structure, CSI_KV, after).unwrap();
        let ids = page.chunks(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
        ids.take_while(|id| *id != 0).collect::<Vec<_>>()
    });
    assert_eq!(lists[0], lists[1], "all of them have pairs");
    lists[0].clone()
}

/// An I/O queue whose typed commands are for `nsid`.
fn queue(host: &mut Initiator, number: u16, nsid: u32) -> Queue {
    let mut queue = host.io_queue(number, 32).unwrap();
    queue.nsid = nsid;
    queue
}

fn each_has_its_own_pairs(server: Running) {
    let options = HostOptions::default();
    let mut host = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    let mut second = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    assert_eq!(listed(&mut host, 0), [1, 2, 7]);
    assert_eq!(listed(&mut host, 2), [7]);
    let id = host.identify_controller().unwrap();
    assert_eq!((id.multipath, id.namespaces.get()), (0b11, 7), "ports, controllers, the largest NSID");
    let mut names = Vec::new();
    for nsid in [1, 2, 7] {
        let namespace = host.identify_namespace(nsid).unwrap();
        assert_eq!(namespace.sharing, 1, "any controller has it");
        assert_eq!(second.identify_namespace(nsid).unwrap().nguid, namespace.nguid);
        names.push(namespace.nguid);
        assert_eq!(host.identify(cns::INDEPENDENT_NAMESPACE, 0, nsid).unwrap()[1], 1, "NMIC");
    }
    names.dedup();
    assert_eq!(names.len(), 3);

    // One key in three namespaces, and a fourth namespace that does not exist.
    let key = Key::new(b"key").unwrap();
    let mut queues = [(1, 1), (2, 2), (3, 7)].map(|(number, nsid)| queue(&mut host, number, nsid));
    for (queue, value) in queues.iter_mut().zip([&b"one"[..], b"two", b"seven"]) {
        assert!(!queue.exist(key).unwrap());
        queue.store(key, value).unwrap();
    }
    let mut other = queue(&mut second, 1, 7);
    assert_eq!(other.retrieve(key, 100).unwrap().1, b"seven");
    // A queue is not bound to a namespace.
    other.nsid = 1;
    assert_eq!(other.retrieve(key, 100).unwrap().1, b"one");
    queues[1].delete(key).unwrap();
    assert_eq!(queues[1].delete(key), Ok(()));
    assert!(queues[0].exist(key).unwrap() && !queues[1].exist(key).unwrap() && queues[2].exist(key).unwrap());
    for nsid in [0, 3, u32::MAX] {
        other.nsid = nsid;
        assert_eq!(other.retrieve(key, 100), Err(Error::Status(Status::INVALID_NAMESPACE)), "{nsid}");
    }
    // Commands that only blocks have, on pairs: Write Uncorrectable, Compare, Write Zeroes.
    for opcode in [0x04, 0x05, 0x08] {
        let completed = other.execute(Sqe::new(opcode, 0, 7), Data::None).unwrap();
        assert_eq!(completed.cqe.status(), Status::INVALID_OPCODE, "{opcode:02X}h");
    }

    // A missing key becomes an error in one of them.
    second.set_feature(feature::KEY_VALUE, feature::ERROR_ON_MISSING_KEY, 2).unwrap();
    assert_eq!(queues[1].delete(key), Err(Error::Status(Status::KEY_NOT_FOUND)));
    queues[0].delete(key).unwrap();
    assert_eq!(queues[0].delete(key), Ok(()));
    drop((queues, other, host, second));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn namespaces_in_memory_have_their_own_pairs() {
    each_has_its_own_pairs(serve(Backend::Memories(vec![1, 2, 7]), Options::default(), 4 << 20));
}

/// The first in the server's loop, the others on threads of their own.
#[test]
fn namespaces_of_one_subsystem_have_their_own_pairs() {
    each_has_its_own_pairs(serve(Backend::Drives(vec![1, 2, 7]), Options::default(), 4 << 20));
}

/// If the iterators of dropped SEEKs were closed in another namespace, this one would have no more to give.
#[test]
fn an_iterator_that_no_caller_learns_of_is_closed_in_its_namespace() {
    let server = serve(Backend::Drives(vec![1, 2, 7]), Options::default(), 4 << 20);
    let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let driver = queue(&mut host, 1, 7).into_driver(4, 1 << 20, 1 << 20).unwrap();
    for _ in 0..300 {
        drop(driver.blocking().submit(Call::<&[u8]>::Seek { key: None }).unwrap());
    }
    let (_, pair) = driver.blocking().seek(None, &mut Region::new()).unwrap();
    assert_eq!(pair, None, "it is open, and the namespace is empty");
    drop((driver, host));
    server.end();
}

/// The power of one namespace is cut: its hosts see it vanish, and those of the others notice nothing.
#[test]
fn hosts_of_other_namespaces_stay_when_one_loses_its_power() {
    let server = serve(Backend::Drives(vec![1, 2]), Options::default(), 4 << 20);
    let options = HostOptions::default();
    let mut hosts = [1, 2].map(|nsid| {
        let mut host = Initiator::connect(server.at, &server.nqn, &options).unwrap();
        let queue = queue(&mut host, 1, nsid);
        (host, queue)
    });
    let key = Key::new(b"key").unwrap();
    hosts.iter_mut().for_each(|(_, queue)| queue.store(key, b"value").unwrap());
    let control = server.control.as_ref().unwrap();
    control.change(Change::CutPower { torn: false }).unwrap().unwrap();
    let [(_, cut), (_, other)] = &mut hosts;
    assert!(matches!(cut.retrieve(key, 100), Err(Error::Io { .. })), "its host sees it vanish");
    assert_eq!(other.retrieve(key, 100).unwrap().1, b"value");
    // New hosts may come, too, and are told which namespace is not ready.
    let mut host = Initiator::connect(server.at, &server.nqn, &options).unwrap();
    assert_eq!(queue(&mut host, 1, 2).retrieve(key, 100).unwrap().1, b"value");
    let off = queue(&mut host, 2, 1).retrieve(key, 100);
    assert_eq!(off, Err(Error::Status(Status::NAMESPACE_NOT_READY)));
    drop((hosts, host));
    server.end();
}
