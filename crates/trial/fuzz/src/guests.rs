//! Actions of a vfio-user client and its guest: messages with descriptors, registers, doorbells, and rings and lists in
//! memory.
//!
//! ```text
//!   a step:  kind (1)  argument (1)  bytes of data, low byte first (2)  data
//!     0 MESSAGE   argument: command; data after the header; bit 6 of the kind: with an eventfd, bit 7: with the memory
//!     1 BYTES     as they are
//!     2 MEMORY    data: where (4), bytes for there
//!     3 DOORBELL  argument: its index; data: the value (4)
//! ```
//!
//! After each step the function and the subsystem do all pending work. A second guest exists beside the first, and its
//! memory must not change.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Sqe, opcode};
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Event, Options};
use kvdrive_subsystem::vfio::function::Function;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use kvdrive_rigs::wire::core;

const MESSAGE: u8 = 0;
const BYTES: u8 = 1;
const MEMORY: u8 = 2;
const DOORBELL: u8 = 3;
const WITH_EVENTFD: u8 = 1 << 6;
const WITH_MEMORY: u8 = 1 << 7;
/// Memory of a guest, and where the seeds map it.
const GUEST_BYTES: u64 = 256 << 10;
const BASE: u64 = 0x10_0000;
const CANARY: u8 = 0xA5;
/// Memory of the server for data.
const SERVER_BYTES: usize = 4 << 20;
/// Turns of the server after a step; a guest that rings on its own needs no more.
const TURNS: u32 = 100;

/// A function, its client, and the memory file of its guest.
struct Guest {
    function: Function,
    client: UnixStream,
    file: File,
}

fn memory_file() -> File {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&file, GUEST_BYTES).expect("memory");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("a new file takes seals");
    File::from(file)
}

impl Guest {
    fn new(core: &mut Core, path: &str) -> Guest {
        let (client, stream) = UnixStream::pair().expect("sockets");
        client.set_nonblocking(true).expect("a socket");
        stream.set_nonblocking(true).expect("a socket");
        let mut function = Function::new(Path::new(path)).expect("memory");
        function.connect(core, mio::net::UnixStream::from_std(stream));
        Guest { function, client, file: memory_file() }
    }

    /// Lets function and subsystem do all pending work, and drops replies.
    fn settle(&mut self, core: &mut Core) {
        for _ in 0..TURNS {
            self.function.note_socket();
            let any = self.function.look(core);
            core.subsystem.poll();
            while let Some(event) = core.subsystem.next_event() {
                match event {
                    Event::Completed(completion) => self.function.complete(core, completion),
                    Event::Abort { by, queue, cid } => {
                        let reach = self.function.abort(core, queue, cid);
                        if let Some(by) = core.subsystem.go_on_aborting(by, reach) {
                            self.function.complete(core, by);
                        }
                    }
                    Event::Close(queue) => self.function.close(queue),
                    Event::Complaint(..) => {}
                }
            }
            self.function.interrupt();
            assert!(core.used_bytes() <= core.limit_bytes(), "more memory than there is");
            let mut replies = [0; 4096];
            while self.client.read(&mut replies).is_ok_and(|bytes| bytes > 0) {}
            if !any {
                return;
            }
        }
    }

    fn send(&mut self, core: &mut Core, bytes: &[u8], descriptor: Option<OwnedFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptor = descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
        if let Some(descriptor) = &descriptor {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptor)), "there is space for one");
        }
        let slices = &[std::io::IoSlice::new(bytes)];
        // A function that has ended its client takes nothing more.
        let sent = sendmsg(&self.client, slices, &mut control, SendFlags::NOSIGNAL);
        assert!(sent.is_ok() || sent.is_err_and(|errno| errno.kind() != ErrorKind::WouldBlock));
        self.settle(core);
    }

    fn step(&mut self, core: &mut Core, kind: u8, argument: u8, data: &[u8]) {
        let message = |command: u8, payload: &[u8]| {
            let bytes = (16 + payload.len() as u32).to_ne_bytes();
            [&[1, 0, command, 0][..], &bytes, &[0; 8], payload].concat()
        };
        match kind & 3 {
            MESSAGE => {
                let descriptor = if kind & WITH_MEMORY != 0 {
                    Some(self.file.try_clone().expect("a descriptor").into())
                } else if kind & WITH_EVENTFD != 0 {
                    Some(eventfd(0, EventfdFlags::empty()).expect("an eventfd"))
                } else {
                    None
                };
                self.send(core, &message(argument, data), descriptor);
            }
            BYTES => self.send(core, data, None),
            MEMORY => {
                let Some((at, bytes)) = data.split_first_chunk() else { return };
                let at = u64::from(u32::from_le_bytes(*at)) % GUEST_BYTES;
                let room = (GUEST_BYTES - at).min(bytes.len() as u64) as usize;
                self.file.write_all_at(&bytes[..room], at).expect("its memory");
            }
            _ => {
                let access =
                    [&(0x1000 + 4 * u64::from(argument)).to_ne_bytes()[..], &[0; 4], &4_u32.to_ne_bytes()];
                let value = data.first_chunk::<4>().copied().unwrap_or_default();
                self.send(core, &message(10, &[&access.concat()[..], &value].concat()), None);
            }
        }
    }
}

fn step(kind: u8, argument: u8, data: &[u8]) -> Vec<u8> {
    [&[kind, argument][..], &(data.len() as u16).to_le_bytes(), data].concat()
}

fn register(at: u64, value: &[u8]) -> Vec<u8> {
    let count = value.len() as u32;
    step(MESSAGE, 10, &[&at.to_ne_bytes()[..], &[0; 4], &count.to_ne_bytes(), value].concat())
}

fn entry(ring: u32, index: u32, sqe: &Sqe) -> Vec<u8> {
    step(MEMORY, 0, &[&(ring + index * 64).to_le_bytes()[..], sqe.as_bytes()].concat())
}

/// The steps of a driver: versions, memory, registers, queues, a pair by PRPs and by an SGL, a reset; and queries.
pub fn guest_seeds() -> Vec<Vec<u8>> {
    let map =
        [&[32, 0, 0, 0, 3, 0, 0, 0][..], &[0; 8], &BASE.to_ne_bytes(), &GUEST_BYTES.to_ne_bytes()].concat();
    let boot = [
        step(MESSAGE, 1, b"\0\0\0\0{}\0"),
        step(MESSAGE | WITH_MEMORY, 2, &map),
        register(0x24, &[15, 0, 15, 0]),
        register(0x28, &BASE.to_le_bytes()),
        register(0x30, &(BASE + 0x1000).to_le_bytes()),
        register(0x14, &[0x61, 0, 0x46, 0]),
    ]
    .concat();
    let completion = QueueCommand::CreateCompletion { id: 1, entries: 8 }.encode(1, BASE + 0x3000);
    let submission =
        QueueCommand::CreateSubmission { id: 1, entries: 8, completion: 1 }.encode(2, BASE + 0x2000);
    let keyed = |opcode| {
        let mut sqe = Sqe::new(opcode, 4, 1);
        sqe.set_key_bytes(*b"a key, 16 bytes.");
        (sqe.cdw10, sqe.cdw11) = (9000.into(), 16.into());
        sqe.set_prps(BASE + 0x10000, BASE + 0x4000);
        sqe
    };
    let mut by_list = keyed(opcode::RETRIEVE);
    let segment = kvdrive_nvme::SglDescriptor::data_block(BASE + 0x5000, 32);
    by_list.set_sgl(kvdrive_nvme::SglDescriptor { kind: 0x30, ..segment });
    let blocks = [(BASE + 0x20000, 5000_u32), (BASE + 0x30000, 8000)];
    let blocks =
        blocks.map(|(at, bytes)| [&at.to_le_bytes()[..], &bytes.to_le_bytes(), &[0; 4]].concat()).concat();
    let list = [BASE + 0x11000, BASE + 0x12000].map(u64::to_le_bytes).concat();
    let io = [
        entry(0, 0, &completion),
        entry(0, 1, &submission),
        step(DOORBELL, 0, &[2, 0, 0, 0]),
        step(MEMORY, 0, &[&0x4000_u32.to_le_bytes()[..], &list].concat()),
        step(MEMORY, 0, &[&0x5000_u32.to_le_bytes()[..], &blocks].concat()),
        entry(0x2000, 0, &keyed(opcode::STORE)),
        entry(0x2000, 1, &by_list),
        step(DOORBELL, 2, &[2, 0, 0, 0]),
        step(DOORBELL, 3, &[2, 0, 0, 0]),
        entry(0, 2, &QueueCommand::DeleteSubmission { id: 1 }.encode(3, 0)),
        step(DOORBELL, 0, &[3, 0, 0, 0]),
    ]
    .concat();
    let questions = [
        step(MESSAGE, 1, b"\0\0\0\0{}\0"),
        step(MESSAGE, 4, &[0; 16]),
        step(
            MESSAGE,
            5,
            &[
                64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0,
            ],
        ),
        step(MESSAGE, 7, &[16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        step(MESSAGE | WITH_EVENTFD, 8, &[20, 0, 0, 0, 0x24, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
        step(BYTES, 0, &[1, 0, 13, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ]
    .concat();
    let reset = [boot.clone(), register(0x14, &[0; 4]), step(MESSAGE, 13, &[])].concat();
    vec![[&boot[..], &io].concat(), questions, reset]
}

/// Carries the steps out, and ends the client.
pub fn guests(bytes: &[u8]) {
    play(bytes);
}

/// The same; returns the pairs that are there then.
fn play(bytes: &[u8]) -> usize {
    let (mut core, memory) = core(Options::default(), SERVER_BYTES);
    let mut neighbour = Guest::new(&mut core, "neighbour");
    neighbour.file.write_all_at(&vec![CANARY; GUEST_BYTES as usize], 0).expect("its memory");
    let mut guest = Guest::new(&mut core, "guest");
    let mut rest = bytes;
    while let [kind, argument, low, high, data @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(data.len());
        guest.step(&mut core, *kind, *argument, &data[..length]);
        rest = &data[length..];
    }
    neighbour.settle(&mut core);
    let mut there = vec![0; GUEST_BYTES as usize];
    neighbour.file.read_exact_at(&mut there, 0).expect("its memory");
    assert!(there.iter().all(|byte| *byte == CANARY), "a neighbour's memory was written");
    guest.function.disconnect(&mut core);
    neighbour.function.disconnect(&mut core);
    // Commands under way complete.
    core.subsystem.poll();
    while core.subsystem.next_event().is_some() {}
    assert_eq!((core.used_bytes(), core.subsystem.controllers()), (0, 0), "something is left");
    assert_eq!((memory.state.borrow().sessions, memory.state.borrow().under_way), (0, 0));
    memory.state.borrow().pairs.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_seed_is_a_driver_that_gets_as_far_as_a_pair() {
        assert_eq!(super::play(&super::guest_seeds()[0]), 1);
    }
}
