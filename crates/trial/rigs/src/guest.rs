//! A guest: a driver with rings and data in a memory file, which uses the drive through the client of crate
//! `vfio_user`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use kvdrive_nvme::property::{self, Configuration, ControllerStatus};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Cqe, Sqe, Status, opcode};
use kvdrive_sim::wall::Stopwatch;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use vfio_user::Client;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Address at which the guest's memory begins.
pub const BASE: u64 = 0x10_0000;
/// Its size in bytes.
pub const MEMORY_BYTES: u64 = 4 << 20;
/// Offset of data in the memory file: after the rings.
pub const DATA_AT: u64 = 0x4_0000;
pub const PAGE: u64 = 4096;

/// A memory file.
pub fn memory_file(bytes: u64, is_sealed: bool) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    if is_sealed {
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
    file
}

/// Both rings of a queue pair, by offset in the guest's memory.
pub struct Rings {
    pub id: u16,
    pub submission_at: u64,
    pub completion_at: u64,
    pub entries: u32,
    pub tail: u32,
    pub head: u32,
    pub phase: bool,
}

impl Rings {
    pub fn new(id: u16, entries: u32) -> Rings {
        let submission_at = u64::from(id) * 0x8000;
        Rings {
            id,
            submission_at,
            completion_at: submission_at + 0x4000,
            entries,
            tail: 0,
            head: 0,
            phase: true,
        }
    }
}

/// How a guest rings doorbells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// By stores to the page that the guest has mapped.
    InMemory,
    /// By messages.
    ByMessage,
}

pub struct Guest {
    pub client: Client,
    pub file: OwnedFd,
    pub memory: MmapRegion,
    doorbells: MmapRegion,
    pub doorbell: Doorbell,
    pub admin: Rings,
}

impl Guest {
    /// A guest that has mapped its memory and has an enabled controller.
    pub fn boot(path: &Path, doorbell: Doorbell, is_sealed: bool) -> Guest {
        let mut guest = Guest::connect(path, doorbell, is_sealed);
        guest.map();
        guest.enable();
        guest
    }

    /// A guest that has connected.
    pub fn connect(path: &Path, doorbell: Doorbell, is_sealed: bool) -> Guest {
        Guest::over(path, doorbell, memory_file(MEMORY_BYTES, is_sealed))
    }

    /// A guest that has connected, and whose memory is this file of [`MEMORY_BYTES`]. The server may not have noticed yet that
    /// the client before it has gone.
    pub fn over(path: &Path, doorbell: Doorbell, file: OwnedFd) -> Guest {
        let begin = Stopwatch::start();
        let client = loop {
            match Client::new(path) {
                Ok(client) => break client,
                Err(error) => assert!(begin.seconds() < 10.0, "{error:?}"),
            }
        };
        let whole = FileOffset::new(file.try_clone().unwrap().into(), 0);
        let memory = MmapRegion::from_file(whole, MEMORY_BYTES as usize).unwrap();
        let registers = client.region(0).unwrap();
        let [area] = &registers.sparse_areas[..] else { panic!("one area can be mapped") };
        let from = registers.file_offset.as_ref().unwrap();
        let page = FileOffset::from_arc(from.arc().clone(), from.start() + area.offset);
        let doorbells = MmapRegion::from_file(page, area.size as usize).unwrap();
        Guest { client, file, memory, doorbells, doorbell, admin: Rings::new(0, 32) }
    }

    pub fn map(&mut self) {
        self.client.dma_map(0, BASE, MEMORY_BYTES, self.file.as_fd().as_raw_fd()).unwrap();
    }

    pub fn register(&mut self, offset: u32) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(0, offset.into(), &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    pub fn set_register(&mut self, offset: u32, value: u32) {
        self.client.region_write(0, offset.into(), &value.to_le_bytes()).unwrap();
    }

    pub fn status(&mut self) -> ControllerStatus {
        ControllerStatus::from_bits(self.register(property::CSTS))
    }

    /// Describes the admin queues and enables the controller.
    pub fn enable(&mut self) {
        self.admin = Rings::new(0, 32);
        self.clear(&Rings::new(0, 32));
        self.set_register(0x24, 31 << 16 | 31);
        let (submission, completion) = (BASE + self.admin.submission_at, BASE + self.admin.completion_at);
        self.client.region_write(0, 0x28, &submission.to_le_bytes()).unwrap();
        self.client.region_write(0, 0x30, &completion.to_le_bytes()).unwrap();
        let enabled = Configuration::new().with_enable(true).with_command_set(0b110);
        self.set_register(property::CC, enabled.with_sqe_log2(6).with_cqe_log2(4).into_bits());
        assert!(self.status().ready());
    }

    fn clear(&self, rings: &Rings) {
        self.put(rings.completion_at, &vec![0; rings.entries as usize * Cqe::BYTES]);
    }

    /// Writes its own memory.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.get_slice(at as usize, bytes.len()).unwrap().copy_from(bytes);
    }

    /// Reads its own memory.
    pub fn get(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.memory.get_slice(at as usize, bytes).unwrap().copy_to(&mut copy);
        copy
    }

    /// Rings the doorbell of this index.
    pub fn ring(&mut self, index: usize, value: u32) {
        match self.doorbell {
            Doorbell::InMemory => {
                let word = self.doorbells.get_atomic_ref::<AtomicU32>(index * 4).unwrap();
                word.store(value, Ordering::Release);
            }
            Doorbell::ByMessage => self.set_register(0x1000 + index as u32 * 4, value),
        }
    }

    /// Puts an entry into a ring and rings its doorbell.
    pub fn submit(&mut self, rings: &mut Rings, sqe: &Sqe) {
        self.put(rings.submission_at + u64::from(rings.tail) * Sqe::BYTES as u64, sqe.as_bytes());
        rings.tail = (rings.tail + 1) % rings.entries;
        self.ring(2 * usize::from(rings.id), rings.tail);
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self, rings: &mut Rings) -> Option<Cqe> {
        let at = rings.completion_at + u64::from(rings.head) * Cqe::BYTES as u64;
        let last = self.memory.get_atomic_ref::<AtomicU32>(at as usize + 12).unwrap().load(Ordering::Acquire);
        if (last >> 16 & 1 != 0) != rings.phase {
            return None;
        }
        let cqe = Cqe::from_bytes(self.get(at, Cqe::BYTES).try_into().unwrap());
        rings.head = (rings.head + 1) % rings.entries;
        rings.phase ^= rings.head == 0;
        self.ring(2 * usize::from(rings.id) + 1, rings.head);
        Some(cqe)
    }

    /// Waits for the next completion.
    pub fn wait(&mut self, rings: &mut Rings) -> Cqe {
        let begin = Stopwatch::start();
        loop {
            if let Some(cqe) = self.poll(rings) {
                return cqe;
            }
            assert!(begin.seconds() < 20.0, "no completion at queue {}", rings.id);
            std::thread::yield_now();
        }
    }

    pub fn run(&mut self, rings: &mut Rings, sqe: &Sqe) -> Cqe {
        self.submit(rings, sqe);
        let cqe = self.wait(rings);
        assert_eq!((cqe.cid.get(), cqe.sqid.get()), (sqe.cid.get(), rings.id));
        cqe
    }

    /// Runs an admin command.
    pub fn admin(&mut self, sqe: &Sqe) -> Cqe {
        let mut rings = std::mem::replace(&mut self.admin, Rings::new(0, 2));
        let cqe = self.run(&mut rings, sqe);
        self.admin = rings;
        cqe
    }

    /// Creates a queue pair, which interrupts if there is a vector.
    pub fn create(&mut self, id: u16, entries: u32, vector: Option<u16>) -> Rings {
        let rings = Rings::new(id, entries);
        self.clear(&rings);
        let completion = QueueCommand::CreateCompletion { id, entries };
        let mut sqe = completion.encode(1, BASE + rings.completion_at);
        sqe.cdw11.set(1 | vector.map_or(0, |vector| 1 << 1 | u32::from(vector) << 16));
        assert_eq!(self.admin(&sqe).status(), Status::SUCCESS);
        let submission = QueueCommand::CreateSubmission { id, entries, completion: id };
        let sqe = submission.encode(2, BASE + rings.submission_at);
        assert_eq!(self.admin(&sqe).status(), Status::SUCCESS);
        rings
    }
}

/// An entry for a key, by PRPs of the guest's memory from `at` on. A PRP list is in the page after the data.
pub fn keyed(opcode: u8, cid: u16, key: &[u8], at: u64, bytes: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, cid, 1);
    let mut padded = [0; 16];
    padded[..key.len()].copy_from_slice(key);
    sqe.set_key_bytes(padded);
    sqe.cdw10.set(bytes);
    sqe.cdw11.set(key.len() as u32);
    let second = if u64::from(bytes) > PAGE { BASE + at + PAGE } else { 0 };
    sqe.set_prps(BASE + at, second);
    sqe
}

/// Identify.
pub fn identify(structure: u8, nsid: u32, csi: u8, at: u64) -> Sqe {
    let mut sqe = Sqe::new(opcode::admin::IDENTIFY, 9, nsid);
    sqe.cdw10.set(structure.into());
    sqe.cdw11.set(u32::from(csi) << 24);
    sqe.set_prps(BASE + at, 0);
    sqe
}

/// A guest and its rings, with a key that it has stored.
pub fn with_rings(path: &Path) -> (Guest, Rings) {
    let mut guest = Guest::boot(path, Doorbell::InMemory, true);
    let mut rings = guest.create(1, 8, None);
    guest.put(DATA_AT, &[0x51; 9000]);
    guest.put(DATA_AT + PAGE * 16, &(BASE + DATA_AT + PAGE).to_le_bytes());
    assert_eq!(
        guest.run(&mut rings, &keyed(opcode::STORE, 1, b"key", DATA_AT, 8192)).status(),
        Status::SUCCESS
    );
    (guest, rings)
}
