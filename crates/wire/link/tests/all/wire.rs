//! Bytes on the wire and their time, worked out by hand.

use std::rc::Rc;

use kvdrive_content::{Piece, expanding};
use kvdrive_link::pcie::PcieRequest;
use kvdrive_link::{Class, HostMemory, Link, LinkConfig, Meter, PciePort, Port, Request};
use kvdrive_nvme::{Cqe, Sqe, Status, opcode};
use kvdrive_sim::Sim;

use super::scattered::{Scattered, config, link};

/// Packet overheads: link layer 8 + 4 (Ack and UpdateFC), header 16 of a request, 12 of a completion.
#[test]
fn each_crossing_has_the_wire_bytes_of_its_packets() {
    let config = config();
    // Doorbell: one memory write. 4 + 16 + 12.
    assert_eq!(config.write_wire_bytes(4), 32);
    // Completion entry: one memory write. 16 + 16 + 12.
    assert_eq!(config.write_wire_bytes(16), 44);
    // Submission entry: a read request (28), a completion with 64 bytes (64 + 24).
    assert_eq!(config.read_wire_bytes(64), 116);
    // Page to the drive: 8 requests of 512 (224), 16 completions of 256 (4096 + 16 x 24).
    assert_eq!(config.read_wire_bytes(4096), 4704);
    // Page to the host: 16 writes of 256.
    assert_eq!(config.write_wire_bytes(4096), 4096 + 16 * 28);
    // Two list entries: a request (28), a completion of 16 (16 + 24).
    assert_eq!(config.read_wire_bytes(16), 68);
    // 0 bytes take nothing.
    assert_eq!((config.read_wire_bytes(0), config.write_wire_bytes(0)), (0, 0));
    // Smaller packets, so more of them.
    let small = LinkConfig { max_payload_bytes: 128, ..config };
    assert_eq!(small.read_wire_bytes(4096), 4096 + 8 * 28 + 32 * 24);
}

#[test]
fn a_line_takes_the_time_of_its_generation_and_lanes() {
    let line_ns = |generation, lanes, bytes| LinkConfig { generation, lanes, ..config() }.line_ns(bytes);
    // Generation 2: 5 GT/s, 8b/10b: 500 MB/s a lane.
    assert_eq!(line_ns(2, 8, 4_000), 1_000);
    assert_eq!(line_ns(2, 8, 4_001), 1_001, "rounded up");
    assert_eq!(line_ns(1, 1, 1_000), 4_000);
    // Generation 3: 8 GT/s, 128b/130b: 984.615 MB/s a lane.
    assert_eq!(line_ns(3, 4, 3_938_460), 1_000_000);
    assert_eq!(line_ns(4, 16, 0), 0);
    assert!(line_ns(5, 16, 1 << 30) < line_ns(4, 16, 1 << 30));
}

/// Every crossing of a command with three pages, their list and an answer of one page: bytes by class and
/// time.
#[test]
fn every_crossing_is_counted_and_takes_its_time() {
    let sim = Sim::new();
    let memory = Rc::new(Scattered::default());
    [0x1000, 0x3000, 0x5000].iter().for_each(|page| memory.map(*page));
    memory.put_list(0x8000, &[0x3000, 0x5000]);
    let link = link(&sim, &memory);
    let queue = link.create_queue(4);
    let mut sqe = Sqe::new(opcode::STORE, 7, 1);
    sqe.set_prps(0x1000, 0x8000);
    let mut times = Vec::new();
    let mut last = 0;
    let mut lap = || times.push(sim.now() - std::mem::replace(&mut last, sim.now()));
    sim.block_on(|| {
        assert!(queue.try_submit(sqe));
        link.ring_submission(&queue);
        lap();
        let request = PciePort::new(&link).next();
        lap();
        assert_eq!((request.sqe(), request.turn()), (&sqe, None));
        request.locate(8_193, 8_193).expect("mapped");
        lap();
        let mut pieces = Vec::new();
        request.pull(8_193, &mut |piece| pieces.push(piece.bytes())).expect("mapped");
        assert_eq!(pieces, [4096, 4096, 1]);
        lap();
        let answer = |_, bytes, sink: &mut dyn FnMut(Piece<'_>)| {
            sink(Piece::Bytes(&vec![7; bytes as usize]));
            Ok(())
        };
        request.push(4096, 35, &mut { answer }).expect("mapped");
        lap();
        request.complete(Cqe::new(7, Status::SUCCESS));
        lap();
        let cqe = queue.completion(7);
        assert_eq!((cqe.status(), cqe.sqhd.get(), cqe.sqid.get()), (Status::SUCCESS, 1, queue.id()));
        link.ring_completion(&queue);
        lap();
    });
    // 4000 bytes a microsecond on the line, rounded up, plus the constant of each crossing.
    assert_eq!(times, [8 + 100, 29 + 300, 17 + 300, 3 * (1176 + 1000), 1136 + 1000, 11 + 200, 0]);
    let expected = [
        (Class::Mmio, 8, 64),
        (Class::Sqe, 64, 116),
        (Class::Cqe, 16, 44),
        (Class::List, 16, 68),
        (Class::ToDrive, 3 * 4096, 3 * 4704),
        (Class::ToHost, 4096, 4544),
        (Class::Interrupt, 0, 32),
        (Class::Cxl, 0, 0),
    ];
    let (payload, wire) = (link.meter().payload(), link.meter().wire());
    for (class, payload_bytes, wire_bytes) in expected {
        assert_eq!((payload.of(class), wire.of(class)), (payload_bytes, wire_bytes), "{}", class.name());
    }
    assert_eq!(payload.total(), 8 + 64 + 16 + 16 + 4 * 4096);
    let [down, up, dma] = link.resources().map(|resource| resource.statistics());
    // A request of 28 bytes for an entry or a list and eight for a page go up, 7 ns each; the data come down.
    assert_eq!((down.busy_ns, down.uses), (8 + (29 - 7) + (17 - 7) + 3 * (1176 - 8 * 7), 6));
    assert_eq!((up.busy_ns, up.uses), (7 + 7 + 3 * 8 * 7 + 1136 + 11, 7));
    assert_eq!((dma.busy_ns, dma.uses), (3 * 2176 + 2136, 4));
}

#[test]
fn a_direction_is_shared_and_its_latency_is_not() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let queues = [link.create_queue(4), link.create_queue(4)];
    for queue in &queues {
        let (link, queue) = (link.clone(), queue.clone());
        sim.spawn(move || link.ring_submission(&queue));
    }
    sim.run();
    assert_eq!(sim.now(), 8 + 8 + 100, "one after the other on the line, then side by side");
    assert_eq!(link.resources()[0].statistics().queue_ns, 8);
}

/// A command of `sqe`, fetched.
fn fetched(link: &Rc<Link>, sqe: Sqe) -> PcieRequest {
    let queue = link.create_queue(4);
    assert!(queue.try_submit(sqe));
    link.ring_submission(&queue);
    PciePort::new(link).next()
}

#[test]
fn memory_that_is_not_there_is_a_status_and_moves_nothing() {
    let sim = Sim::new();
    let memory = Rc::new(Scattered::default());
    let refused = memory.read(0x1000, 1, &mut |_| panic!("handed out"));
    assert_eq!(refused.expect_err("not mapped").to_string(), "host memory 0x1000+1 is not mapped");
    let link = link(&sim, &memory);
    sim.block_on(|| {
        let mut sqe = Sqe::new(opcode::STORE, 0, 1);
        sqe.set_prps(0x1000, 0x1000);
        let request = fetched(&link, sqe);
        let failed = Err(Status::DATA_TRANSFER_ERROR);
        assert_eq!(request.locate(8_193, 8_193), failed, "no list");
        assert_eq!(request.pull(1, &mut |_| panic!("handed out")), failed);
        let mut asked = Vec::new();
        let mut source = |at, bytes, sink: &mut dyn FnMut(Piece<'_>)| {
            asked.push((at, bytes));
            sink(Piece::Bytes(&vec![7; bytes as usize]));
            Ok(())
        };
        assert_eq!(request.push(4_100, 4_100, &mut source), failed);
        assert_eq!(asked, [(0, 4_096), (4_096, 4)], "the rest crosses all the same");
        request.complete(Cqe::new(0, Status::DATA_TRANSFER_ERROR));
    });
}

/// Bytes for the host are not in its memory before their time has passed, even if their source changes meanwhile.
#[test]
fn bytes_are_with_the_host_when_their_time_has_passed() {
    let sim = Sim::new();
    let memory = Rc::new(Scattered::default());
    memory.map(0x1000);
    let link = link(&sim, &memory);
    let first_byte = |memory: &Scattered| {
        let mut byte = [0];
        memory.read(0x1000, 1, &mut expanding(&mut byte)).expect("mapped");
        byte[0]
    };
    sim.block_on(|| {
        let mut sqe = Sqe::new(opcode::RETRIEVE, 0, 1);
        sqe.set_prps(0x1000, 0);
        let request = fetched(&link, sqe);
        let (clock, memory, began) = (sim.clone(), memory.clone(), sim.now());
        let look = move || {
            clock.sleep_until(began + 500 + 2_135);
            first_byte(&memory)
        };
        let before = sim.spawn(look);
        let mut source = |_, _, sink: &mut dyn FnMut(Piece<'_>)| {
            sink(Piece::Bytes(&[7]));
            sim.sleep(500); // flash
            sink(Piece::Bytes(&[8]));
            Ok(())
        };
        request.push(4096, 2, &mut source).expect("mapped");
        assert_eq!(sim.now(), began + 500 + 2_136);
        assert_eq!(before.join(), 0, "a nanosecond before");
        request.complete(Cqe::new(0, Status::SUCCESS));
    });
    assert_eq!(first_byte(&memory), 7);
}

#[test]
#[should_panic(expected = "a command of queue 1 was dropped without an answer")]
fn an_unanswered_command_is_found() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    sim.block_on(|| drop(fetched(&link, Sqe::new(opcode::EXIST, 0, 1))));
}

#[test]
fn after_a_power_cut_no_command_is_answered() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let request = sim.block_on(|| fetched(&link, Sqe::new(opcode::EXIST, 0, 1)));
    sim.halt();
    drop(request);
}

#[test]
fn sums_of_traffic_can_be_taken_apart() {
    let meter = Meter::default();
    meter.count(Class::Sqe, 64, 116);
    let before = meter.payload();
    meter.count(Class::Sqe, 64, 116);
    meter.count(Class::Cxl, 68, 68);
    let since = meter.payload().since(&before);
    assert_eq!((since.of(Class::Sqe), since.of(Class::Cxl), since.total()), (64, 68, 132));
    for (index, (class, name)) in Class::TABLE.iter().enumerate() {
        assert_eq!((*class as usize, class.name()), (index, *name));
    }
}
