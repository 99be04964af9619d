//! Any 64 bytes, from any queue, to whole drives: each command completes once, the drive continues, and its
//! survivors can be powered on.

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_device::engines::ENGINES;
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_flash::power::Survivors;
use kvdrive_link::{Link, QueuePair};
use kvdrive_nvme::inline::{WRITE_INLINE_BYTES, put_write};
use kvdrive_nvme::{Command, Cqe, Key, RetrieveOptions, Sqe, Status, Write, opcode};
use kvdrive_sim::{Rng, Sim};
use proptest::prelude::*;
use proptest::sample::Index;

use super::random_streams::{BASE, Flat, SharedFlat, any_stream};
use super::rig;
use super::small_drives::{in_memory, variants};

struct World {
    sim: Sim,
    link: Rc<Link>,
    memory: Rc<SharedFlat>,
    drive: Drive,
    queues: [Rc<QueuePair>; 3],
}

fn world(sim: Sim, config: &DriveConfig, survivors: Option<&Survivors>) -> World {
    let memory = Rc::new(SharedFlat(RefCell::new(Flat::new())));
    let link = Link::new(&sim, rig::link_config(1), memory.clone());
    let drive = sim.block_on(|| Drive::power_on(&sim, &link, config, survivors)).expect("it comes up");
    let queues = [link.admin_queue(), link.create_queue(16), link.create_queue(16)];
    World { sim, link, memory, drive, queues }
}

impl World {
    /// Submits commands side by side; each is completed once. Meanwhile bytes come to the CXL port, and an
    /// unfinished value is discarded.
    fn burst(&self, burst: &[(usize, [u8; 64])], cxl_address: u64, discard_at: u64) {
        let (sim, link, queue) = (self.sim.clone(), self.link.clone(), self.queues[1].clone());
        self.sim.spawn(move || {
            sim.sleep(discard_at);
            let mut discard = Command::Discard { stream: 0 }.encode(0, 1);
            discard.set_quiet();
            // A burst is shorter than the ring.
            assert!(queue.try_submit(discard));
            link.ring_submission(&queue);
        });
        let mut submitted: [Vec<u16>; 3] = Default::default();
        for (queue, bytes) in burst {
            let mut sqe = Sqe::from_bytes(*bytes);
            if sqe.opcode == opcode::EXPRESS && *queue > 0 {
                // Otherwise later entries would be chunks of this one, depending on when they come.
                sqe.cdw10.set(0);
            }
            assert!(self.queues[*queue].try_submit(sqe));
            submitted[*queue].push(sqe.cid.get());
            let (link, queue) = (self.link.clone(), self.queues[*queue].clone());
            self.sim.spawn(move || {
                link.cxl_store(cxl_address, Piece::Bytes(&[7; 100]));
                link.ring_submission(&queue);
            });
        }
        self.sim.run();
        for (queue, mut submitted) in self.queues.iter().zip(submitted) {
            let mut completed = Vec::new();
            while let Some(cqe) = queue.any_completion() {
                completed.push(cqe.cid.get());
                self.link.ring_completion(queue);
            }
            submitted.sort_unstable();
            completed.sort_unstable();
            assert_eq!(submitted, completed);
        }
    }

    fn one(&self, queue: &QueuePair, sqe: Sqe) -> Cqe {
        assert!(queue.try_submit(sqe));
        self.sim.block_on(|| self.link.ring_submission(queue));
        self.sim.run();
        let cqe = queue.any_completion().expect("it is completed");
        self.link.ring_completion(queue);
        cqe
    }

    /// A value that is stored can be retrieved.
    fn goes_on(&self) {
        let key = Key::from_u32_be(7);
        let mut write = Command::Write(Write { key, value_bytes: 30 }).encode(5, 1);
        put_write(&mut write, &[9; WRITE_INLINE_BYTES]);
        // An unfinished value of one queue may leave the other one no room.
        let [_, first, second] = &self.queues;
        self.sim.block_on(|| [first, second].map(|queue| self.link.delete_queue(queue)));
        for queue in [first.id(), second.id()].map(|_| self.link.create_queue(16)) {
            let queue = &queue;
            assert_eq!(self.one(queue, write).status(), Status::SUCCESS);
            let options = RetrieveOptions::default();
            let mut retrieve = Command::Retrieve { key, buffer_bytes: 4096, options }.encode(6, 1);
            retrieve.set_prps(BASE, 0);
            let cqe = self.one(queue, retrieve);
            assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, 30));
            assert_eq!(self.memory.0.borrow().bytes(BASE, 30), Some(&[9; 30][..]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whole_drives_complete_each_command_once_go_on_and_come_up(
        engine in any::<Index>(), stream in any_stream(250), seed in any::<u64>(), dispatch in rig::any_dispatch(),
        cxl_address in 0u64..40_000, discard_at in 0u64..100_000,
    ) {
        let configs: Vec<DriveConfig> = ENGINES.iter().flat_map(variants).collect();
        let mut config = DriveConfig { media: in_memory(), ..engine.get(&configs).clone() };
        config.controller.dispatch = dispatch;
        let world_before = world(Sim::permuted(seed), &config, None);
        for burst in stream.chunks(14) {
            world_before.burst(burst, cxl_address, discard_at);
        }
        world_before.goes_on();
        let survivors = world_before.drive.survivors(&mut Rng::stream(seed, "cut"));
        world_before.sim.clear();
        let world_after = world(Sim::new(), &config, Some(&survivors));
        world_after.goes_on();
        world_after.sim.clear();
    }
}
