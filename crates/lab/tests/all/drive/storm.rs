//! Hosts at the limit: unfinished values on many queues, and the largest values there are. Nobody waits for ever.

use std::rc::Rc;

use kvdrive_link::{Piece, QueuePair};
use kvdrive_sim::Sim;
use kvdrive_spec::{Command, Key, Sqe, Status, Write, inline, opcode};

use super::bench::{Bench, Oracle, Stored, check_all, document, value};

const NSID: u32 = 1;

/// Submits one command and waits for its completion.
async fn submit(bench: &Bench, queue: &QueuePair, sqe: Sqe) -> Status {
    assert!(queue.try_submit(sqe), "one command at a time fits");
    bench.link.ring_submission(queue).await;
    loop {
        if let Some(cqe) = queue.any_completion() {
            bench.link.ring_completion(queue);
            assert_eq!(cqe.cid, sqe.cid, "a completion of another command");
            return cqe.status();
        }
        bench.sim.sleep(1000).await;
    }
}

fn oracle_key(number: u64) -> Key {
    let mut bytes = [9; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Key::new(&bytes).expect("16 bytes are a key")
}

/// Many more unfinished values than the buffer has pages: the host is told to try again, and other commands go on.
#[test]
fn unfinished_values_on_many_queues_block_nobody() {
    let bench = Bench::new(&document(&["controller.contexts=2"]), Sim::new());
    bench.sim.block_on(async {
        let _drive = bench.power_on(None).await.expect("an empty drive comes up");
        let driver = bench.connect().await;
        let begin = |number: u32| {
            let write = Write { key: Key::from_u32_be(number), value_bytes: 16_000 };
            let mut sqe = Command::Write(write).encode(0, NSID);
            inline::put_write(&mut sqe, &[7; inline::WRITE_INLINE_BYTES]);
            sqe
        };
        let queues: Vec<Rc<QueuePair>> = (0..40).map(|_| bench.link.create_queue(4)).collect();
        let mut taken = 0;
        for (number, queue) in (0..).zip(&queues) {
            match submit(&bench, queue, begin(number)).await {
                Status::SUCCESS => taken += 1,
                Status::COMMAND_INTERRUPTED => {}
                status => panic!("write on queue {number}: {status}"),
            }
        }
        assert!((1..40).contains(&taken), "{taken} unfinished values were taken");
        let mut oracle = Oracle::default();
        for number in 0..60 {
            let key = oracle_key(number);
            let stored = Stored { version: number, bytes: 9000 };
            driver.store(key, Piece::Pattern(value(&key, stored))).await.expect("other commands go on");
            oracle.pairs.insert(key, stored);
        }
        check_all(&driver, &oracle).await;
        // A write inside an unfinished value is refused and discards it; the next one works.
        assert_eq!(submit(&bench, &queues[0], begin(0)).await, Status::COMMAND_SEQUENCE_ERROR);
        assert_eq!(submit(&bench, &queues[0], begin(0)).await, Status::SUCCESS);
        // A stray transfer is refused.
        let stray = bench.link.create_queue(4);
        let sqe = Sqe::new(opcode::TRANSFER, 0, NSID);
        assert_eq!(submit(&bench, &stray, sqe).await, Status::COMMAND_SEQUENCE_ERROR);
        check_all(&driver, &oracle).await;
    });
    bench.sim.clear();
}

/// The largest value there is, by every method, and one byte more.
#[test]
fn two_mebibytes() {
    use kvdrive_lab::config::Document;
    for row in kvdrive_link::transfer::METHODS {
        let mut document = Document::profile("cosmos-plus").expect("the profile exists");
        document.set(&format!("host.transfer={}", row.name)).expect("a method of the table");
        document.set("flash.blocks_per_die=64").expect("a number");
        let bench = Bench::new(&document, Sim::new());
        bench.sim.block_on(async {
            let _drive = bench.power_on(None).await.expect("an empty drive comes up");
            let driver = bench.connect().await;
            let mut oracle = Oracle::default();
            for (number, bytes) in [(1, 2 << 20), (2, (1 << 20) + 77), (3, 0)] {
                let key = Key::from_u32_be(number);
                let stored = Stored { version: 0, bytes };
                let result = driver.store(key, Piece::Pattern(value(&key, stored))).await;
                assert_eq!(result, Ok(()), "{}: {bytes} B", row.name);
                oracle.pairs.insert(key, stored);
            }
            let key = Key::from_u32_be(4);
            let stored = Stored { version: 0, bytes: (2 << 20) + 1 };
            let result = driver.store(key, Piece::Pattern(value(&key, stored))).await;
            assert_eq!(result, Err(Status::INVALID_VALUE_SIZE), "{}", row.name);
            check_all(&driver, &oracle).await;
        });
        bench.sim.clear();
    }
}
