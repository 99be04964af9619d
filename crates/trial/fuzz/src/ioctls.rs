//! Arguments that a program passes to a device node: structures of ioctls, with correct, wrong and arbitrary
//! pointers and lengths.
//!
//! ```text
//!   84 bytes a step:  request, node, where the structure is, where its data are, 80 bytes of structure
//!
//!   arena, 64 KiB   | structure ... | data ...                        |   what lies beyond is not a program's to give
//! ```
//!
//! The system itself copies, as for a program: pointers that are invalid in every program are tried on it.
//! Pointers to other memory of this process are not tried, since a command may write to where it points.

use std::sync::{LazyLock, Mutex, PoisonError};

use kvdrive_ng::abi::{Passthrough, REQUESTS};
use kvdrive_ng::ioctl::{Caller, ioctl};
use kvdrive_ng::memory::{Memory, Own};
use kvdrive_ng::nodes::Nodes;
use kvdrive_nvme::DRIVE_NSID;
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

const ARENA_BYTES: usize = 64 << 10;
const STRUCTURE_BYTES: usize = 80;
const STEP_BYTES: usize = 4 + STRUCTURE_BYTES;
/// Position of data in the arena.
const DATA_AT: u64 = 4096;
const CANARY: u8 = 0xA5;
/// No program has memory below the first address, or from the second on.
const LOWEST: u64 = 1 << 12;
const HIGHEST: u64 = 1 << 47;
/// Time limit of a command, ms: an Asynchronous Event Request takes all of it.
const TIMEOUT_MS: u32 = 20;
/// Errors that an ioctl may return instead of a status.
const ERRORS: [Errno; 6] = [Errno::FAULT, Errno::INVAL, Errno::NOTTY, Errno::ACCESS, Errno::INTR, Errno::IO];

/// A drive in this process and its nodes, the same for every input; the lock admits one input at a time.
static NODES: LazyLock<Mutex<Nodes>> = LazyLock::new(|| {
    Mutex::new(Nodes::of("/dev/ng0n1=kvdrive:cosmos-plus").expect("a profile that there is"))
});

/// Memory of this process that belongs to the arena, or that does not exist.
struct Arena {
    at: u64,
}

impl Arena {
    fn check(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        let end = address.checked_add(bytes).ok_or(Errno::FAULT)?;
        let is_inside = address >= self.at && end <= self.at + ARENA_BYTES as u64;
        let is_nobodys = end <= LOWEST || address >= HIGHEST;
        if is_inside || is_nobodys { Ok(()) } else { Err(Errno::FAULT) }
    }
}

impl Memory for Arena {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.check(address, into.len() as u64)?;
        Own.read(address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        self.check(address, from.len() as u64)?;
        Own.write(address, from)
    }

    fn expect(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        self.check(address, bytes)?;
        Own.expect(address, bytes)
    }
}

/// A step with `request` on the first node, with data in the arena.
fn step(request: u8, set: impl FnOnce(&mut Passthrough)) -> Vec<u8> {
    let mut command = Passthrough::new_zeroed();
    command.nsid = DRIVE_NSID.into();
    command.cdw2_3[0] = 0x6B65_7931.into();
    command.cdw10_15[0] = 500.into();
    command.cdw10_15[1] = 4.into();
    command.data_len = 500.into();
    set(&mut command);
    let mut bytes = vec![request, 0, 0, 1];
    bytes.extend_from_slice(command.as_bytes());
    bytes.resize(STEP_BYTES, 0);
    bytes
}

/// Calls of real programs: a pair stored, read and removed; Identify, a log, a property; vectors; the
/// controller.
pub fn ioctl_seeds() -> Vec<Vec<u8>> {
    let opcode = |opcode| move |command: &mut Passthrough| command.opcode = opcode;
    let number = |wanted: u32| REQUESTS.iter().position(|row| row.0 == wanted).expect("it is a row") as u8;
    let (io, admin) = (number(0xC048_4E43), number(0xC048_4E41));
    let (long, vectors, admin_long) = (number(0xC050_4E48), number(0xC050_4E49), number(0xC050_4E47));
    let identify = |command: &mut Passthrough| {
        command.opcode = 0x06;
        command.data_len = 4096.into();
        command.cdw10_15[0] = 1.into();
    };
    let property = |command: &mut Passthrough| {
        command.opcode = 0x7F;
        command.nsid = 4.into();
        command.data_len = 0.into();
        command.cdw10_15[0] = 1.into();
    };
    let two = |command: &mut Passthrough| {
        command.opcode = 0x02;
        command.data_len = 2.into();
    };
    let pair =
        [step(io, opcode(0x01)), step(io, opcode(0x02)), step(io, opcode(0x14)), step(io, opcode(0x10))];
    let of_admin = [step(admin, identify), step(admin_long, property), step(number(0x4E40), opcode(0))];
    let others = [step(long, opcode(0x06)), step(vectors, two), step(number(0x4E44), opcode(0))];
    vec![pair.concat(), of_admin.concat(), others.concat()]
}

/// Executes each step. It returns a status or an error of the list, and memory to which it does not point is
/// unchanged.
pub fn ioctls(bytes: &[u8]) {
    let nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut arena = vec![CANARY; ARENA_BYTES];
    for step in bytes.chunks_exact(STEP_BYTES).take(16) {
        arena.fill(CANARY);
        // Exposed before the system writes there, unknown to the compiler: no borrow exists in the meantime.
        let at = arena.as_mut_ptr().expose_provenance() as u64;
        let memory = Arena { at };
        let (head, structure) = step.split_at(4);
        let (mut structure, number) = (structure.to_vec(), number(head[0], structure));
        let address = match head[3] % 4 {
            0 => u64::from_ne_bytes(structure[24..32].try_into().expect("eight bytes")),
            1 => at + DATA_AT,
            2 => at + ARENA_BYTES as u64 - u64::from(structure[24]),
            _ => HIGHEST | u64::from(structure[24]) << 50,
        };
        structure[24..32].copy_from_slice(&address.to_ne_bytes());
        structure[64..68].copy_from_slice(&TIMEOUT_MS.to_ne_bytes());
        let argument = match head[2] % 4 {
            0 => at,
            1 => 0,
            2 => at + ARENA_BYTES as u64 - u64::from(structure[0]),
            _ => HIGHEST | u64::from(structure[0]) << 48,
        };
        // An array of buffers, for requests that take one: the first in the arena, the second anywhere.
        let second = u64::from_ne_bytes(structure[16..24].try_into().expect("eight bytes"));
        let array = [at + 2 * DATA_AT, 100, second, u64::from(structure[36])];
        let before = [(argument, &structure[..]), (at + DATA_AT, array.as_bytes())];
        for (to, bytes) in before {
            // A structure at an impossible address cannot be read.
            let _ = memory.write(to, bytes);
        }
        let node = &nodes.all()[usize::from(head[1]) % nodes.all().len()];
        let caller = Caller { privileged: head[1] & 2 == 0, writable: head[1] & 4 == 0 };
        match ioctl(node, caller, number, argument, &memory) {
            Ok(status) => assert!((0..1 << 15).contains(&status), "{status:X}h is no status"),
            Err(errno) => assert!(ERRORS.contains(&errno), "{errno:?} of {number:X}h"),
        }
        let mut beyond = vec![0; ARENA_BYTES];
        memory.read(at, &mut beyond).expect("it is the arena");
        let is_vectors = number == 0xC050_4E49;
        let length = u64::from(u32::from_ne_bytes(structure[36..40].try_into().expect("four bytes")));
        let pointed = |place: u64| {
            let is_of = |(from, bytes): (u64, u64)| place >= from && place - from < bytes;
            is_of((argument, STRUCTURE_BYTES as u64))
                || is_of((at + DATA_AT, size_of_val(&array) as u64))
                || if is_vectors { true } else { is_of((address, length)) }
        };
        let stray = (0..ARENA_BYTES).find(|index| beyond[*index] != CANARY && !pointed(at + *index as u64));
        assert_eq!(stray, None, "{number:X}h wrote where it was not told to");
    }
}

/// The number of a request: that of a row, or any number.
fn number(choice: u8, structure: &[u8]) -> u32 {
    match REQUESTS.get(usize::from(choice) % (REQUESTS.len() + 1)) {
        Some(row) => row.0,
        None => 0x4E00 | u32::from(structure[1]) | u32::from(structure[2]) << 16,
    }
}
