//! Bytes on the wire and their time, worked out by hand.

use std::rc::Rc;

use kvdrive_link::{Class, LinkConfig, Meter};
use kvdrive_sim::Sim;
use kvdrive_spec::{Cqe, Sqe, Status, opcode};

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
    // Nothing is nothing.
    assert_eq!((config.read_wire_bytes(0), config.write_wire_bytes(0)), (0, 0));
    // Smaller packets, more of them.
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

/// Every crossing of a command with one page, a list and an answer of one page: bytes by class and time.
#[test]
fn every_crossing_is_counted_and_takes_its_time() {
    let sim = Sim::new();
    let memory = Rc::new(Scattered::default());
    memory.map(0x1000);
    let link = link(&sim, &memory);
    let queue = link.create_queue(4);
    let mut times = Vec::new();
    let mut last = 0;
    let mut lap = || times.push(sim.now() - std::mem::replace(&mut last, sim.now()));
    sim.block_on(|| {
        assert!(queue.try_submit(Sqe::new(opcode::STORE, 7, 1)));
        link.ring_submission(&queue);
        lap();
        let fetched = link.next_command();
        lap();
        assert_eq!((fetched.sqe.cid.get(), fetched.head, fetched.turn), (7, 1, None));
        let mut list = [0; 16];
        link.fetch_list(0x1000, &mut list).expect("mapped");
        lap();
        link.dma_to_drive(0x1000, 35, 4096, &mut |piece| assert_eq!(piece.bytes(), 35)).expect("mapped");
        lap();
        link.dma_to_host(8192);
        lap();
        link.complete(&queue, Cqe::new(7, Status::SUCCESS));
        lap();
        let cqe = queue.completion(7);
        assert!(cqe.status().is_success());
        link.ring_completion(&queue);
        lap();
    });
    // 4000 bytes a microsecond on the line, rounded up, and the constant of each.
    assert_eq!(times, [8 + 100, 29 + 300, 17 + 300, 1176 + 1000, 2272 + 2000, 11 + 200, 0]);
    let expected = [
        (Class::Mmio, 8, 64),
        (Class::Sqe, 64, 116),
        (Class::Cqe, 16, 44),
        (Class::List, 16, 68),
        (Class::ToDrive, 4096, 4704),
        (Class::ToHost, 8192, 2 * 4544),
        (Class::Interrupt, 0, 32),
        (Class::Cxl, 0, 0),
    ];
    let (payload, wire) = (link.meter().payload(), link.meter().wire());
    for (class, payload_bytes, wire_bytes) in expected {
        assert_eq!((payload.of(class), wire.of(class)), (payload_bytes, wire_bytes), "{}", class.name());
    }
    assert_eq!(payload.total(), 8 + 64 + 16 + 16 + 4096 + 8192);
    let [down, up, dma] = link.resources().map(|resource| resource.statistics());
    // A request of 28 bytes for an entry or a list and eight for a page go up, 7 ns each; the data come down.
    assert_eq!((down.busy_ns, down.uses), (8 + (29 - 7) + (17 - 7) + (1176 - 8 * 7), 4));
    assert_eq!((up.busy_ns, up.uses), (7 + 7 + 8 * 7 + 2272 + 11, 5));
    assert_eq!((dma.busy_ns, dma.uses), (2176 + 4272, 2));
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
    assert_eq!(sim.now(), 8 + 8 + 100, "one behind the other on the line, then side by side");
    assert_eq!(link.resources()[0].statistics().queue_ns, 8);
}

#[test]
fn a_dma_of_what_is_not_mapped_says_so() {
    let sim = Sim::new();
    let link = link(&sim, &Rc::default());
    let mut out = [0; 8];
    sim.block_on(|| {
        assert!(link.fetch_list(0x1000, &mut out).is_err());
        let refused = link.dma_to_drive(0x1000, 1, 4096, &mut |_| panic!("handed out"));
        assert_eq!(refused.expect_err("not mapped").to_string(), "host memory 0x1000+1 is not mapped");
    });
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
