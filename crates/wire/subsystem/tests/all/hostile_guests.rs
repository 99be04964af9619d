//! Guests that behave unlike any driver: lists and rings with wrong addresses, memory that is unmapped, attempts to read
//! the memory of neighbours. `hostile_messages.rs` has clients that send other messages than a driver does.

use std::time::Duration;

use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_nvme::property;
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{SglDescriptor, Sqe, Status, opcode};
use kvdrive_run::wall::Change;
use kvdrive_sim::wall::Stopwatch;
use rustix::event::{EventfdFlags, eventfd};

use super::functions::{beside, serve};
use kvdrive_rigs::guest::{
    BASE, DATA_AT, Doorbell, Guest, MEMORY_BYTES, PAGE, Rings, identify, keyed, memory_file, with_rings,
};

#[test]
fn lists_that_lead_nowhere_get_a_status_and_the_queue_goes_on() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, mut rings) = with_rings(&paths[0]);
    let list_at = DATA_AT + 16 * PAGE;
    let mut retrieve = keyed(opcode::RETRIEVE, 3, b"key", DATA_AT, 8192);
    let prps: [(u64, u64, Status); 6] = [
        (0, 0, Status::DATA_TRANSFER_ERROR),
        (BASE + MEMORY_BYTES, BASE, Status::DATA_TRANSFER_ERROR),
        (BASE + MEMORY_BYTES - PAGE, BASE + MEMORY_BYTES, Status::DATA_TRANSFER_ERROR),
        (u64::MAX - 0xFFF, BASE, Status::DATA_TRANSFER_ERROR),
        (BASE + 1, BASE, Status::PRP_OFFSET_INVALID),
        (BASE, BASE + 8, Status::PRP_OFFSET_INVALID),
    ];
    for (first, second, status) in prps {
        retrieve.set_prps(first, second);
        assert_eq!(guest.run(&mut rings, &retrieve).status(), status, "{first:#x} {second:#x}");
    }
    // A list that is its own next page, for a value as long as the drive takes; and one beyond the memory.
    let itself: Vec<u8> = std::iter::repeat_n((BASE + list_at).to_le_bytes(), 512).flatten().collect();
    guest.put(list_at, &itself);
    let mut large = keyed(opcode::STORE, 4, b"large", DATA_AT, 1 << 20);
    large.set_prps(BASE + DATA_AT, BASE + list_at);
    // Each page that it names is the list itself, which is valid data.
    let stored = guest.run(&mut rings, &large).status();
    assert!([Status::SUCCESS, Status::DATA_TRANSFER_ERROR].contains(&stored), "{stored}");
    large.set_prps(BASE + DATA_AT, BASE + MEMORY_BYTES);
    assert_eq!(guest.run(&mut rings, &large).status(), Status::DATA_TRANSFER_ERROR);
    large.cdw10.set(u32::MAX);
    assert_eq!(guest.run(&mut rings, &large).status(), Status::INVALID_FIELD, "beyond MDTS");
    // A segment whose last descriptor is the segment itself, and one of 2^24 descriptors.
    let block = SglDescriptor::data_block(BASE + list_at, 32);
    let segment = SglDescriptor { kind: SglDescriptor::SEGMENT, ..block };
    guest.put(list_at, &[0; 16]);
    guest.put(list_at + 16, &[&(BASE + list_at).to_le_bytes()[..], &[32, 0, 0, 0, 0, 0, 0, 0x20]].concat());
    retrieve.set_sgl(segment);
    assert_eq!(guest.run(&mut rings, &retrieve).status(), Status::INVALID_SGL_DESCRIPTOR);
    let mut wide = segment;
    wide.length.set(16 << 24);
    retrieve.set_sgl(wide);
    assert_eq!(guest.run(&mut rings, &retrieve).status(), Status::INVALID_SGL_DESCRIPTOR);
    retrieve.set_sgl(SglDescriptor { kind: 0x10, ..block });
    assert_eq!(guest.run(&mut rings, &retrieve).status(), Status::SGL_TYPE_INVALID);
    let mut admin = identify(1, 0, 0, DATA_AT);
    admin.set_sgl(SglDescriptor::data_block(BASE + DATA_AT, 4096));
    assert_eq!(guest.admin(&admin).status(), Status::INVALID_FIELD);
    let good = guest.run(&mut rings, &keyed(opcode::RETRIEVE, 9, b"key", DATA_AT + 32 * PAGE, 8192));
    assert_eq!(good.status(), Status::SUCCESS);
    drop(guest);
    assert_eq!(server.end().leaked_bytes, 0);
}

/// Words of a mapping of a guest's memory that another thread writes, until it is stopped.
struct Scribbler {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Scribbler {
    /// Writes `values` and arbitrary ones anywhere between `at` and `at + bytes`.
    fn start(guest: &Guest, at: u64, bytes: u64, values: [u64; 3]) -> Scribbler {
        use vm_memory::VolatileMemory;
        let shared = vm_memory::FileOffset::new(guest.file.try_clone().unwrap().into(), 0);
        let other = vm_memory::MmapRegion::<()>::from_file(shared, MEMORY_BYTES as usize).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut random = 0_u64;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = [values[0], values[1], values[2], random][(random >> 60) as usize % 4];
                let place = at + (random >> 40) % (bytes - 8);
                other.get_slice(place as usize, 8).unwrap().copy_from(&value.to_le_bytes());
            }
        });
        Scribbler { stop, thread }
    }

    fn end(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

#[test]
fn lists_that_change_while_they_are_read_never_harm_the_server() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, mut rings) = with_rings(&paths[0]);
    let list_at = DATA_AT + 16 * PAGE;
    let entries = [BASE + DATA_AT + PAGE, u64::MAX - 7, BASE + list_at];
    let scribbler = Scribbler::start(&guest, list_at, 512, entries);
    for round in 0..300_u16 {
        let mut sqe = keyed(
            [opcode::STORE, opcode::RETRIEVE][usize::from(round) % 2],
            round,
            b"moving",
            DATA_AT,
            40_000,
        );
        sqe.set_prps(BASE + DATA_AT, BASE + list_at);
        if round % 3 == 0 {
            let block = SglDescriptor::data_block(BASE + list_at, 320);
            sqe.set_sgl(SglDescriptor { kind: SglDescriptor::SEGMENT, ..block });
        }
        guest.run(&mut rings, &sqe);
    }
    scribbler.end();
    assert_eq!(guest.admin(&identify(1, 0, 0, DATA_AT)).status(), Status::SUCCESS);
    drop(guest);
    assert_eq!(server.end().leaked_bytes, 0);
}

/// The bytes may become any command, and with the flag of a quiet one there is no completion; the other guest
/// is unaffected.
#[test]
fn entries_that_change_while_they_are_fetched_harm_no_other_guest() {
    let (server, paths, _folder) = serve(beside(), 2);
    let (mut neighbour, mut other) = with_rings(&paths[0]);
    let stored = neighbour.run(&mut other, &keyed(opcode::STORE, 1, b"the neighbour's", DATA_AT, 8192));
    assert_eq!(stored.status(), Status::SUCCESS);
    let (mut guest, mut rings) = with_rings(&paths[1]);
    let ring_bytes = u64::from(rings.entries) * Sqe::BYTES as u64;
    let values = [BASE + DATA_AT, u64::MAX - 7, u64::from(opcode::STORE) | 1 << 32];
    let scribbler = Scribbler::start(&guest, rings.submission_at, ring_bytes, values);
    let mut completions = 0;
    for round in 0..200_u16 {
        let opcode = [opcode::STORE, opcode::RETRIEVE, opcode::LIST][usize::from(round) % 3];
        guest.submit(&mut rings, &keyed(opcode, round, b"moving", DATA_AT, 8192));
        for _ in 0..4 {
            completions += u32::from(guest.poll(&mut rings).is_some());
            std::thread::yield_now();
        }
    }
    scribbler.end();
    assert!(completions > 0, "no command was answered");
    let found = neighbour.run(&mut other, &keyed(opcode::RETRIEVE, 2, b"the neighbour's", DATA_AT, 8192));
    assert_eq!((found.status(), found.dw0.get()), (Status::SUCCESS, 8192));
    drop((guest, neighbour));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn memory_that_is_unmapped_under_commands_is_touched_no_more() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, mut rings) = with_rings(&paths[0]);
    // Data in a region of their own, which is unmapped while commands are under way and mapped again
    // elsewhere.
    let (apart, bytes) = (BASE + (1 << 30), 16 * PAGE);
    let file = memory_file(bytes, true);
    use std::os::fd::AsRawFd;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..60_u16 {
        guest.client.dma_map(0, apart, bytes, file.as_raw_fd()).unwrap();
        for cid in 0..6 {
            let mut sqe = keyed(opcode::RETRIEVE, cid, b"key", 0, 8192);
            sqe.set_prps(apart + u64::from(cid) * 2 * PAGE, apart + (u64::from(cid) * 2 + 1) * PAGE);
            guest.submit(&mut rings, &sqe);
        }
        if round % 2 == 0 {
            seen.insert(guest.wait(&mut rings).status().raw());
        }
        guest.client.dma_unmap(apart, bytes).unwrap();
        // The drive does not write there any more.
        rustix::io::pwrite(&file, &vec![0xC3; bytes as usize], 0).unwrap();
        for _ in 0..6 - u16::from(round % 2 == 0) {
            seen.insert(guest.wait(&mut rings).status().raw());
        }
        let mut now = vec![0; bytes as usize];
        rustix::io::pread(&file, &mut now, 0).unwrap();
        assert!(now.iter().all(|byte| *byte == 0xC3), "written after it was unmapped");
    }
    let allowed = [Status::SUCCESS.raw(), Status::DATA_TRANSFER_ERROR.raw()];
    assert!(seen.iter().all(|status| allowed.contains(status)), "{seen:?}");
    // The rings themselves are unmapped: the controller fails, and works again after a reset.
    guest.client.dma_unmap(BASE, MEMORY_BYTES).unwrap();
    guest.submit(&mut rings, &keyed(opcode::EXIST, 1, b"key", 0, 0));
    let begin = Stopwatch::start();
    while !guest.status().fatal() {
        assert!(begin.seconds() < 20.0, "no fatal status");
    }
    guest.map();
    guest.set_register(property::CC, 0);
    guest.enable();
    assert!(server.log.lock().unwrap().iter().any(|line| line.contains("submission queue 1: host memory")));
    drop(guest);
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn doorbells_and_queues_that_cannot_be_are_told_of_and_not_followed() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, mut rings) = with_rings(&paths[0]);
    let mut admin = std::mem::replace(&mut guest.admin, Rings::new(0, 2));
    guest.submit(&mut admin, &Sqe::new(opcode::admin::ASYNC_EVENT_REQUEST, 77, 0));
    guest.ring(2, 8);
    let event = guest.wait(&mut admin);
    assert_eq!((event.cid.get(), event.dw0.get()), (77, 0x01_0100), "error log, doorbell value, error");
    guest.admin = admin;
    guest.ring(2, rings.tail);
    guest.ring(3, u32::MAX);
    guest.ring(3, rings.head);
    let exists = guest.run(&mut rings, &keyed(opcode::EXIST, 1, b"key", 0, 0));
    assert_eq!(exists.status(), Status::SUCCESS);
    let create = |id, entries, completion, ring| {
        QueueCommand::CreateSubmission { id, entries, completion }.encode(1, ring)
    };
    let mut vector = QueueCommand::CreateCompletion { id: 5, entries: 8 }.encode(1, BASE);
    vector.cdw11.set(1 | 1 << 1 | 65 << 16);
    for (sqe, status) in [
        (create(1, 8, 1, BASE), Status::INVALID_QUEUE_ID),
        (create(2, 8, 2, BASE), Status::COMPLETION_QUEUE_INVALID),
        (create(2, 1, 1, BASE), Status::INVALID_QUEUE_SIZE),
        (create(2, 65_536, 1, BASE), Status::INVALID_QUEUE_SIZE),
        (create(65, 8, 1, BASE), Status::INVALID_QUEUE_ID),
        (create(2, 8, 1, BASE + 8), Status::PRP_OFFSET_INVALID),
        (vector, Status::INVALID_INTERRUPT_VECTOR),
    ] {
        assert_eq!(guest.admin(&sqe).status(), status);
    }
    // A queue whose ring has an invalid address can be created; a doorbell there fails the controller, and no
    // other.
    assert_eq!(guest.admin(&create(2, 8, 1, 1 << 50)).status(), Status::SUCCESS);
    guest.ring(4, 1);
    let begin = Stopwatch::start();
    while !guest.status().fatal() {
        assert!(begin.seconds() < 20.0, "no fatal status");
    }
    drop(guest);
    server.end();
}

#[test]
fn a_host_that_takes_no_completions_waits_for_itself() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, mut rings) = with_rings(&paths[0]);
    // All entries of the completion ring but one stay unread, and more commands come than it has room for.
    let before = rings.head;
    for cid in 0..7 {
        guest.submit(&mut rings, &keyed(opcode::EXIST, cid, b"key", 0, 0));
    }
    std::thread::sleep(Duration::from_millis(50));
    for cid in 7..14 {
        guest.submit(&mut rings, &keyed(opcode::EXIST, cid, b"key", 0, 0));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rings.head, before);
    let mut cids: Vec<u16> = (0..14).map(|_| guest.wait(&mut rings).cid.get()).collect();
    cids.sort_unstable();
    assert_eq!(cids, (0..14).collect::<Vec<u16>>(), "each is answered once");
    drop(guest);
    server.end();
}

#[test]
fn interrupts_come_by_vector_and_by_pin() {
    let (server, paths, _folder) = serve(beside(), 1);
    let mut guest = Guest::boot(&paths[0], Doorbell::InMemory, true);
    let vectors = guest.client.get_irq_info(2).unwrap();
    assert_eq!(vectors.count, 65);
    let wait = |event: &std::os::fd::OwnedFd| {
        let mut count = [0; 8];
        let ready = &mut [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(ready, Some(&limit)).unwrap(), 1, "no interrupt");
        rustix::io::read(event, &mut count).unwrap();
    };
    use std::os::fd::AsRawFd;
    let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    guest.client.set_irqs(2, 0x24, 7, 1, &[event.as_raw_fd()]).unwrap();
    let mut rings = guest.create(1, 8, Some(7));
    guest.submit(&mut rings, &keyed(opcode::EXIST, 1, b"key", 0, 0));
    wait(&event);
    assert_eq!(guest.poll(&mut rings).unwrap().status(), Status::KEY_NOT_FOUND);
    guest.client.set_irqs(2, 0x21, 0, 0, &[]).unwrap();
    // The pin: raised until the completion is taken, and raised again after it was unmasked.
    guest.client.set_irqs(0, 0x24, 0, 1, &[event.as_raw_fd()]).unwrap();
    guest.submit(&mut rings, &keyed(opcode::EXIST, 2, b"key", 0, 0));
    wait(&event);
    let mut status = [0; 2];
    guest.client.region_read(7, 6, &mut status).unwrap();
    assert_eq!(status[0] & 8, 8, "interrupt status");
    guest.client.set_irqs(0, 0x11, 0, 1, &[]).unwrap();
    wait(&event);
    assert!(guest.poll(&mut rings).is_some());
    guest.client.set_irqs(0, 0x11, 0, 1, &[]).unwrap();
    guest.client.region_read(7, 6, &mut status).unwrap();
    assert_eq!(status[0] & 8, 0);
    drop(guest);
    server.end();
}

/// Each guest writes its mark everywhere in its memory and stores pairs of its own; its memory then holds only its mark
/// or its own answers, for any addresses that it tries. A network host does the same meanwhile.
#[test]
fn two_guests_and_a_network_host_never_reach_each_others_memory() {
    let (server, paths, _folder) = serve(beside(), 2);
    let mut guests: Vec<(Guest, Rings)> = paths.iter().map(|path| with_rings(path)).collect();
    let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    host.ask_for_queues(1).unwrap();
    let mut last = 1_u64;
    for (mark, (guest, _)) in guests.iter().enumerate() {
        guest.put(DATA_AT, &vec![0xA0 | mark as u8; (MEMORY_BYTES - DATA_AT) as usize]);
    }
    let (answers_at, answers_bytes) = (DATA_AT + 64 * PAGE, 2 * PAGE);
    for round in 0..400_u16 {
        for (mark, (guest, rings)) in guests.iter_mut().enumerate() {
            last = last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Addresses of the other guest's data, unmapped ones, and those of its own answers.
            let wild = [BASE + answers_at, BASE + answers_at, last, BASE + MEMORY_BYTES + (last >> 50)];
            let first = wild[(last >> 33) as usize % 4] & !0xFFF;
            let key = [b'k', mark as u8];
            let (code, at) =
                if round % 2 == 0 { (opcode::STORE, BASE + DATA_AT) } else { (opcode::RETRIEVE, first) };
            let mut sqe = keyed(code, round, &key, 0, 8192);
            sqe.set_prps(at, at.wrapping_add(PAGE));
            guest.submit(rings, &sqe);
        }
        for (guest, rings) in &mut guests {
            guest.wait(rings);
        }
        assert!(host.identify_controller().is_ok());
    }
    for (mark, (guest, _)) in guests.iter().enumerate() {
        let mark = 0xA0 | mark as u8;
        assert!(guest.get(DATA_AT, (MEMORY_BYTES - DATA_AT) as usize).iter().all(|byte| *byte == mark));
        assert_eq!(guest.get(answers_at, answers_bytes as usize).len(), answers_bytes as usize);
    }
    drop((guests, host));
    let end = server.end();
    assert_eq!((end.leaked_bytes, end.controllers), (0, 0));
}

#[test]
fn a_function_without_power_reads_as_ones_until_there_is_power() {
    let (server, paths, _folder) = serve(beside(), 1);
    let (mut guest, _) = with_rings(&paths[0]);
    let control = server.control.clone().unwrap();
    // The drive may end before it has answered.
    let _ = control.change(Change::CutPower { torn: false });
    let begin = Stopwatch::start();
    while guest.register(property::CSTS) != u32::MAX {
        assert!(begin.seconds() < 20.0, "it still has power");
    }
    let mut vendor = [0; 2];
    guest.client.region_read(7, 0, &mut vendor).unwrap();
    assert_eq!(vendor, [0xFF; 2]);
    guest.set_register(property::CC, 1);
    guest.client.dma_unmap(BASE, MEMORY_BYTES).unwrap();
    drop(guest);
    server.end();
}
