//! A served drive of blocks: what Identify says of it, its commands, and a store of a host on it, whose pairs are there
//! after a power cut.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_host::blocks::{Block, BlockCall};
use kvdrive_host::hostkv::{StoreThread, StoreThreadConfig};
use kvdrive_host::reach::{Reached, Remote, reach, reach_blocks};
use kvdrive_host::tcp::{Data, Initiator, Options as HostOptions};
use kvdrive_host::{Call, Error, Pipelined};
use kvdrive_nvme::identify::{CSI_NVM, cns, namespace_descriptor, nidt};
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmNamespace, OPTIONAL_COMMANDS};
use kvdrive_nvme::{Command, Key, Status, StoreOptions};
use kvdrive_rigs::served::{Backend, Running, serve};
use kvdrive_run::wall::Change;
use kvdrive_store::{STORES, StoreRow};
use kvdrive_subsystem::subsystem::Options;

fn remote(server: &Running) -> Remote {
    Remote { address: server.at.to_string(), ..Remote::default() }
}

fn block(seed: u8) -> Block {
    Rc::new(Region::from_bytes(vec![seed; BLOCK_BYTES as usize]))
}

fn bytes_of(blocks: &[Block]) -> Vec<u8> {
    blocks.iter().map(|block| block.to_bytes(BLOCK_BYTES)[17]).collect()
}

#[test]
fn a_drive_of_blocks_is_read_and_written_over_a_network_and_has_no_pairs() {
    let server = serve(Backend::Blocks(None), Options::default(), 16 << 20);
    let refused = reach(&remote(&server)).map(drop).unwrap_err().line();
    let instead =
        "it has blocks, in which a store on the host keeps pairs (kvdrive run --side host --store hashlog)";
    assert_eq!(refused, format!("none of its 1 namespaces has pairs (command set 1); {instead}"));
    let mut reached = reach_blocks(&remote(&server)).unwrap();
    let all = reached.blocks();
    assert!(reached.is_blank() && all > 10_000, "{all} blocks");
    assert_eq!(reached.ask_for_queues(1).unwrap(), 1);
    let driver = reached.driver(1, 9, 8).unwrap();
    let written = [block(1), block(2), block(3)];
    driver.call(BlockCall::Write { first: 7, blocks: &written }).unwrap();
    let read = |first, count| bytes_of(&driver.call(BlockCall::Read(Blocks { first, count })).unwrap());
    assert_eq!(read(6, 5), [0, 1, 2, 3, 0]);
    driver.call(BlockCall::Deallocate(&[Blocks { first: 8, count: 1 }])).unwrap();
    driver.call(BlockCall::WriteZeroes(Blocks { first: 9, count: 1 })).unwrap();
    driver.call(BlockCall::Flush).unwrap();
    assert_eq!(read(7, 3), [1, 0, 0]);
    // As many as a command moves, at the end; and one beyond.
    let most = driver.most_blocks();
    let many: Vec<Block> = (0..most).map(|seed| block(seed as u8 + 1)).collect();
    driver.call(BlockCall::Write { first: all - u64::from(most), blocks: &many }).unwrap();
    assert_eq!(read(all - 2, 2), [most as u8 - 1, most as u8]);
    let beyond = driver.call(BlockCall::Read(Blocks { first: all, count: 1 })).map(drop).unwrap_err();
    assert!(matches!(beyond, Error::Status(Status::LBA_OUT_OF_RANGE)), "{beyond}");
    drop(driver);
    assert!(!reach_blocks(&remote(&server)).unwrap().is_blank());
    assert_eq!(server.end().leaked_bytes, 0);
}

/// Commands of pairs are not mistaken for those of blocks, whose opcodes they share; and Identify has what a kernel asks.
#[test]
fn identify_of_a_drive_of_blocks_is_that_of_the_nvm_command_set() {
    let server = serve(Backend::Blocks(None), Options::default(), 16 << 20);
    let mut controller = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
    let identity = controller.identify_controller().unwrap();
    assert_eq!(identity.optional_commands.get(), OPTIONAL_COMMANDS);
    assert!((1..=9).contains(&identity.transfer_max_log2), "{}", identity.transfer_max_log2);
    let descriptors = controller.identify(cns::NAMESPACE_DESCRIPTORS, 0, 1).unwrap();
    assert_eq!(namespace_descriptor(&descriptors, nidt::CSI), Some(&[CSI_NVM][..]));
    let page = controller.identify(cns::NAMESPACE, 0, 1).unwrap();
    let namespace = zerocopy::FromBytes::read_from_bytes(&page[..]).unwrap();
    let NvmNamespace { deallocated, formats, nguid, reserved_27, .. } = namespace;
    assert_eq!((deallocated, formats[0].block_bytes_log2), (NvmNamespace::DEALLOCATED_READ_ZEROS, 12));
    assert_eq!(namespace_descriptor(&descriptors, nidt::NGUID), Some(&nguid[..]));
    assert_eq!(reserved_27[3], 1, "NMIC: several controllers may attach it");
    assert!(controller.identify(cns::CSI_NAMESPACE, CSI_NVM, 1).unwrap().iter().all(|byte| *byte == 0));
    assert!(controller.identify_namespace(1).is_err(), "it has no pairs");
    let mut queue = controller.io_queue(1, 8).unwrap();
    let seek = Command::Seek { key: None, buffer_bytes: 4096 }.encode(0, 1);
    let status = queue.execute(seek, Data::In(4096)).unwrap().cqe.status();
    assert_eq!(status, Status::INVALID_OPCODE);
    // A block far up the drive, whose number looks like the length of a long key in a command of pairs.
    let blocks = Blocks { first: u64::from(40u32) << 32, count: 1 };
    let read = kvdrive_nvme::nvm::NvmCommand::Read(blocks).encode(0, 1);
    assert_eq!(queue.execute(read, Data::In(4096)).unwrap().cqe.status(), Status::LBA_OUT_OF_RANGE);
    drop((queue, controller));
    assert_eq!(server.end().leaked_bytes, 0);
}

#[test]
fn a_drive_of_pairs_is_no_drive_of_blocks() {
    let server = serve(Backend::Memory, Options::default(), 16 << 20);
    let refused = |nsid| reach_blocks(&Remote { nsid, ..remote(&server) }).map(drop).unwrap_err().line();
    let line =
        "namespaces has blocks of 4096 B (command set 0); it has pairs, which need no store on the host";
    assert!(refused(None).ends_with(line), "{}", refused(None));
    assert_eq!(refused(Some(1)), "namespace 1: it has no blocks of 4096 B");
    server.end();
}

/// The store of a host on a served drive.
fn open_store(row: &'static StoreRow, server: &Running) -> (StoreThread<Vec<u8>>, Reached<NvmNamespace>) {
    let mut reached = reach_blocks(&remote(server)).unwrap();
    let (mut options, threads) = (kvdrive_store::StoreOptions::default(), 2);
    // These follow from the size of the drive.
    let lsmtree = &mut options.lsmtree;
    (lsmtree.write_buffer_size, lsmtree.max_bytes_for_level_base) = (0, 0);
    lsmtree.target_file_size_base = 0;
    (row.fit)(&mut options, BLOCK_BYTES, reached.blocks(), threads);
    let config = StoreThreadConfig { row, options, threads };
    let queues = config.queues() as u16;
    assert_eq!(reached.ask_for_queues(queues).unwrap(), queues);
    let drivers = (1..=queues).map(|number| reached.driver(number, 9, 8).unwrap()).collect();
    let store = StoreThread::open(config, drivers, reached.is_blank()).unwrap();
    (store, reached)
}

fn value(number: u32, tag: u8) -> Vec<u8> {
    vec![tag; 20 + number as usize % 300]
}

fn put(pipeline: &mut dyn Pipelined<Vec<u8>>, number: u32, tag: u8) {
    let call = Call::Store { key: Key::from_u32_be(number), value: (), options: StoreOptions::default() };
    pipeline.begin(call, value(number, tag), Region::new()).expect("it has room");
}

/// What was synced is there after each cut; a pair that was stored later has its old or its new value.
#[test]
fn a_store_of_a_host_keeps_what_it_synced_when_the_drive_loses_its_power() {
    const PAIRS: u32 = 120;
    // Of stores that nothing synced before the cut.
    const LATER: u8 = 100;
    for row in STORES {
        let mut survivors = None;
        for life in 1..=3 {
            let server = serve(Backend::Blocks(survivors.take()), Options::default(), 16 << 20);
            let (store, reached) = open_store(row, &server);
            let mut pipeline = store.pipeline(1);
            for number in (0..PAIRS).filter(|_| life > 1) {
                let call = Call::Retrieve { key: Key::from_u32_be(number) };
                pipeline.begin(call, Vec::new(), Region::new()).expect("it has room");
                let found = pipeline.next_completion().unwrap().expect("it is under way").content;
                let found = found.to_bytes(found.written_end());
                let tags = [life - 1, life - 1 + LATER];
                let is_whole = tags.iter().any(|tag| found == value(number, *tag));
                assert!(is_whole, "{}, life {life}, pair {number}: {found:?}", row.name);
            }
            for number in 0..PAIRS {
                put(&mut pipeline, number, life);
                let stored = pipeline.next_completion().unwrap().expect("it is under way");
                assert!(stored.result.is_ok(), "{}: {:?}", row.name, stored.result);
            }
            pipeline.settle(&mut |_, _, _| {}).unwrap();
            let control = server.control.clone().expect("it is a drive");
            for number in 0..PAIRS / 2 {
                put(&mut pipeline, number, life + LATER);
                if number == PAIRS / 4 {
                    assert!(control.change(Change::CutPower { torn: true }).is_ok());
                }
                // It is answered in memory, or ends with the drive.
                if pipeline.next_completion().is_err() {
                    break;
                }
            }
            drop((pipeline, store, reached));
            survivors = server.end().survivors;
            assert!(survivors.is_some(), "{}", row.name);
        }
    }
}
