//! Drives of blocks, and RocksDB on one.

use kvdrive::BlockDrive;
use kvdrive_content::Region;
use kvdrive_host::blocks::{Block, BlockCall};
use kvdrive_nvme::nvm::Blocks;

fn block(byte: u8) -> Block {
    Block::new(Region::from_bytes(vec![byte; 4096]))
}

#[test]
fn threads_share_its_blocks_and_a_cut_loses_none() {
    let drive = kvdrive::build().open_blocks().unwrap();
    let blocks = drive.blocks().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let blocks = &blocks;
            scope.spawn(move || {
                for round in 0..50 {
                    let first = thread * 1000 + round * 3;
                    let run = [block(thread as u8 + 1), block(round as u8)];
                    blocks.call(BlockCall::Write { first, blocks: &run }).unwrap();
                }
            });
        }
    });
    drop(blocks);
    let drive = drive.cut_power(true).unwrap().power_on().unwrap();
    let blocks = drive.blocks().unwrap();
    for (thread, round) in (0..4_u64).flat_map(|thread| (0..50).map(move |round| (thread, round))) {
        let range = Blocks { first: thread * 1000 + round * 3, count: 3 };
        let read = blocks.call(BlockCall::Read(range)).unwrap();
        let read: Vec<Vec<u8>> = read.iter().map(|block| block.to_bytes(4096)).collect();
        assert_eq!(read, [[thread as u8 + 1; 4096], [round as u8; 4096], [0; 4096]], "{range:?}");
    }
}

#[test]
fn a_command_of_too_many_blocks_or_none_is_refused() {
    let drive = kvdrive::build().open_blocks().unwrap();
    let blocks = drive.blocks().unwrap();
    let most = blocks.most_blocks();
    for count in [0, most + 1, 256, u32::MAX] {
        let refused = blocks.call(BlockCall::Read(Blocks { first: 0, count })).unwrap_err().to_string();
        assert_eq!(refused, format!("a command has 1 to {most} blocks, not {count}"));
        let zeroes = blocks.call(BlockCall::WriteZeroes(Blocks { first: 0, count }));
        assert_eq!(zeroes.is_ok(), (1..=65536).contains(&count), "{zeroes:?}");
    }
    let run = vec![block(1); most as usize + 1];
    assert!(blocks.call(BlockCall::Write { first: 0, blocks: &run }).is_err());
    assert!(blocks.call(BlockCall::Write { first: 0, blocks: &run[..most as usize] }).is_ok());
    let range = Blocks { first: 0, count: 1 };
    assert!(blocks.call(BlockCall::Deallocate(&[])).is_err());
    assert!(blocks.call(BlockCall::Deallocate(&[range; 257])).is_err());
    assert!(blocks.call(BlockCall::Deallocate(&[range; 256])).is_ok());
    assert_eq!(blocks.call(BlockCall::Read(range)).unwrap()[0].to_bytes(4096), [0; 4096]);
}

#[test]
fn keys_of_pairs_are_refused() {
    let refused = kvdrive::build().transfer("piggyback").open_blocks().map(|_: BlockDrive| ()).unwrap_err();
    assert!(refused.to_string().contains("host.transfer"), "{refused}");
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use kvdrive::rocksdb::RocksDb;
    use kvdrive::{BlockDrive, LsmtreeOptions};

    fn options() -> LsmtreeOptions {
        LsmtreeOptions {
            write_buffer_size: 1 << 20,
            max_bytes_for_level_base: 4 << 20,
            target_file_size_base: 1 << 20,
            ..LsmtreeOptions::default()
        }
    }

    fn open(drive: &BlockDrive) -> RocksDb {
        RocksDb::open(Arc::new(drive.blocks().unwrap()), &options().into()).unwrap()
    }

    fn key(thread: u64, number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&thread.to_be_bytes());
        key[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        key
    }

    fn value(number: u64) -> Vec<u8> {
        vec![number as u8; 100 + number as usize % 400]
    }

    #[test]
    fn is_there_when_it_is_closed_and_opened() {
        let drive = kvdrive::build().open_blocks().unwrap();
        let db = open(&drive);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for number in 0..8000 {
                        db.put(&key(thread, number), &value(number), false).unwrap();
                    }
                });
            }
        });
        db.wait_until_idle().unwrap();
        let merged = db.property("rocksdb.num-files-at-level1");
        assert_ne!(merged.as_deref(), Some("0"), "nothing was merged");
        db.close().unwrap();
        let db = open(&drive);
        for (thread, number) in (0..4).flat_map(|thread| (0..8000).map(move |number| (thread, number))) {
            assert_eq!(db.get(&key(thread, number)).unwrap(), Some(value(number)), "{thread} {number}");
        }
        assert_eq!(db.get(b"nothing").unwrap(), None);
    }

    #[test]
    fn has_what_was_synchronised_when_the_power_goes_in_the_middle() {
        let mut drive = kvdrive::build().open_blocks().unwrap();
        let synced = [const { AtomicU64::new(0) }; 3];
        for round in 1..=4 {
            let db = open(&drive);
            let stop = 1500 * round;
            let off = std::thread::scope(|scope| {
                for (thread, synced) in (0..).zip(&synced) {
                    let db = &db;
                    scope.spawn(move || {
                        for number in synced.load(Ordering::Acquire).. {
                            let sync = number % 5 == 4;
                            if db.put(&key(thread, number), &value(number), sync).is_err() {
                                break;
                            }
                            if sync {
                                synced.store(number + 1, Ordering::Release);
                            }
                        }
                    });
                }
                while synced.iter().map(|synced| synced.load(Ordering::Acquire)).sum::<u64>() < stop {
                    std::thread::yield_now();
                }
                drive.cut_power(true).unwrap()
            });
            drop(db);
            drive = off.power_on().unwrap();
            let db = open(&drive);
            for (thread, synced) in (0..).zip(&synced) {
                for number in 0..synced.load(Ordering::Acquire) {
                    let found = db.get(&key(thread, number)).unwrap();
                    assert_eq!(found, Some(value(number)), "round {round}, thread {thread}, {number}");
                }
            }
        }
    }
}
