//! [`Node`]: the transport to a character device of Linux (`/dev/ngXnY`), by the passthrough ioctls of the NVMe
//! driver: any drive that a kernel drives, or `kvdrive ng` in a kernel's place.
//!
//! An ioctl returns when its command has completed, so each slot has a thread that carries out commands, and a
//! caller never waits in one. A value travels with its command, as one Store; commands that carry bytes of a
//! value where a kernel writes the data pointer cannot be sent here.
//!
//! [`open`] and [`Device`] are for programs that send commands of their own, one after the other.

#![expect(
    unsafe_code,
    reason = "an ioctl takes a pointer to a command that names memory; see the SAFETY comment"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use kvdrive_content::Piece;
use kvdrive_link::{BadAddress, HostMemory};
use kvdrive_nvme::fabrics::nqn;
use kvdrive_nvme::identify::{self, CSI_KV, CSI_NVM, IDENTIFY_BYTES, KvNamespace, cns, nidt};
use kvdrive_nvme::opcode::{self, Direction, admin, direction};
use kvdrive_nvme::{Cqe, Sqe, Status};
use kvdrive_sim::wall::lock;
use zerocopy::native_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::access::{Access, AccessLimits, BlockSize, Found, ReachError, Remote, Wanted};
use crate::answers::AnswerData;
use crate::conversation::{SlotOffer, Submission};
use crate::driver::{BlockDriver, Board, Driver, Limits, Port, Remainder};
use crate::error::Error;
use crate::transport::Transport;

/// `NVME_IOCTL_ID`: the namespace's identifier is the return value.
const ID: u64 = 0x4E40;
/// `NVME_IOCTL_ADMIN64_CMD` and `NVME_IOCTL_IO64_CMD`: a [`Passthrough`].
const ADMIN: u64 = 0xC050_4E47;
const IO: u64 = 0xC050_4E48;
/// FUSE: bits 1:0 of a command's second byte. A kernel refuses a command that has one.
const FUSED: u8 = 0b11;
/// Commands at once on one device: each has a thread.
const QUEUES: u16 = 64;
const ENTRIES: u16 = 1024;
/// Bytes that a Retrieve asks for first. A kernel pins as many for every command.
const AT_ONCE_BYTES: u32 = 64 << 10;

/// `struct nvme_passthru_cmd64`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    reserved: [u8; 2],
    nsid: U32,
    cdw2: U32,
    cdw3: U32,
    metadata: U64,
    address: U64,
    metadata_bytes: U32,
    data_bytes: U32,
    cdw10_15: [U32; 6],
    /// 0: as long as the kernel's default.
    timeout_ms: U32,
    reserved_68: U32,
    result: U64,
}

const _: () = assert!(size_of::<Passthrough>() == 80);

/// Which data a command has.
#[derive(Debug)]
pub enum Data<'a> {
    /// None.
    None,
    /// The data go to the controller.
    Out(&'a [u8]),
    /// The controller's data come here; bytes that do not come stay, or are zeros.
    In(&'a mut [u8]),
}

/// Has the device carry out a command; returns its status and result.
///
/// # Errors
/// The command has no status: the kernel refused it, or ended it before it completed.
fn carry_out(device: &File, request: u64, sqe: &Sqe, data: Data<'_>) -> io::Result<Cqe> {
    // A kernel looks at bit 0 alone, and for a command of Fabrics at its type.
    let writes_memory = sqe.opcode & 1 == 0;
    let (address, bytes) = match data {
        Data::None => (0, 0),
        Data::Out(bytes) if !writes_memory && sqe.opcode != opcode::FABRICS => {
            (bytes.as_ptr() as u64, bytes.len())
        }
        Data::In(bytes) if writes_memory => (bytes.as_mut_ptr() as u64, bytes.len()),
        Data::Out(_) | Data::In(_) => {
            let wrong = format!("the data of command {:02X}h go the other way by its opcode", sqe.opcode);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
        }
    };
    let native = |field: zerocopy::little_endian::U32| U32::new(field.get());
    let mut command = Passthrough {
        opcode: sqe.opcode,
        flags: sqe.flags & FUSED,
        reserved: [0; 2],
        nsid: native(sqe.nsid),
        cdw2: native(sqe.cdw2),
        cdw3: native(sqe.cdw3),
        metadata: U64::new(0),
        address: U64::new(address),
        metadata_bytes: U32::new(0),
        data_bytes: U32::new(bytes as u32),
        cdw10_15: [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15].map(native),
        timeout_ms: U32::new(0),
        reserved_68: U32::new(0),
        result: U64::new(0),
    };
    // SAFETY: both requests take a pointer to these 80 bytes, which outlive the call. The device reads or writes at
    // most the `data_bytes` bytes at `address`, and which of both was compared with the borrow above.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), request as _, &raw mut command) };
    if status < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let line = format!("the kernel sends command {:02X}h for root only ({error})", sqe.opcode);
                io::Error::new(error.kind(), line)
            }
            _ => error,
        });
    }
    // Status field without the phase bit, of which bits 10:0 are type and code.
    let (status, result) = (Status::new((status >> 8) as u8, status as u8), command.result.get());
    Ok(Cqe::new(sqe.cid.get(), status).with_result(result as u32, (result >> 32) as u32))
}

/// A command that waits for its thread.
struct Job {
    sqe: Sqe,
    value: Vec<u8>,
    room: u32,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    is_over: bool,
}

/// What the threads of a node share.
struct Shared {
    device: Device,
    jobs: Mutex<Jobs>,
    posted: Condvar,
    /// The data of each slot's last completion.
    answers: Mutex<Vec<Vec<u8>>>,
}

/// A device whose commands have the numbers of slots.
struct Node(Arc<Shared>);

impl Shared {
    fn post(&self, job: Job) {
        lock(&self.jobs).waiting.push_back(job);
        self.posted.notify_one();
    }

    /// The next command; `None`: no more will come.
    fn next(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            match jobs.waiting.pop_front() {
                Some(job) => return Some(job),
                None if jobs.is_over => return None,
                None => jobs = self.posted.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Carries commands out, one at a time.
    fn work(&self, board: &Board) {
        while let Some(Job { mut sqe, value, room }) = self.next() {
            sqe.nsid.set(self.device.nsid);
            let slot = usize::from(sqe.cid.get());
            let mut answer = std::mem::take(&mut lock(&self.answers)[slot]);
            answer.resize(room as usize, 0);
            let data = match direction(sqe.opcode) {
                Direction::ToDrive => Data::Out(&value),
                _ if room > 0 => Data::In(&mut answer),
                _ => Data::None,
            };
            let completed = self.device.io(&sqe, data);
            lock(&self.answers)[slot] = answer;
            match completed {
                Ok(cqe) => board.complete(self, &[cqe]),
                // The kernel ended the command: it took too long, or the controller was reset.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    board.complete(self, &[Cqe::new(sqe.cid.get(), Status::ABORT_REQUESTED)]);
                }
                Err(error) => board.fail(error.into()),
            }
        }
    }
}

/// The data that came, as memory that begins at address 0.
struct Came<'a>(&'a [u8]);

impl HostMemory for Came<'_> {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let from = usize::try_from(address).ok();
        let came = from.and_then(|from| self.0.get(from..from.checked_add(bytes as usize)?));
        sink(Piece::Bytes(came.ok_or(BadAddress { address, bytes })?));
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        Err(BadAddress { address, bytes: piece.bytes() })
    }
}

impl AnswerData for Came<'_> {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        (self, 0)
    }

    fn bytes(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Remainder for Shared {
    fn put(&self, sqe: Sqe) {
        self.post(Job { sqe, value: Vec::new(), room: 0 });
    }

    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData)) {
        let data = std::mem::take(&mut lock(&self.answers)[usize::from(cid)]);
        read(&Came(&data));
        lock(&self.answers)[usize::from(cid)] = data;
    }
}

impl Remainder for Node {
    fn put(&self, sqe: Sqe) {
        self.0.put(sqe);
    }

    fn answer(&self, cid: u16, read: &mut dyn FnMut(&dyn AnswerData)) {
        self.0.answer(cid, read);
    }
}

impl Transport for Node {
    /// No memory that the drive could address: a kernel names it.
    fn offer(&self, cid: u16) -> SlotOffer<'static> {
        SlotOffer { cid, buffer: 0, list: 0, key: 0, entries: 1, window: None, is_together: false }
    }

    fn gather(
        &self,
        _: u16,
        outbox: &mut Vec<Sqe>,
        _: usize,
        submission: &Submission<'_>,
    ) -> Result<(), Error> {
        let sqe = outbox.pop().expect("there is an entry to submit");
        let mut value = vec![0; submission.value.bytes() as usize];
        submission.value.expand(&mut value);
        self.0.post(Job { sqe, value, room: submission.room });
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        lock(&self.0.jobs).is_over = true;
        self.0.posted.notify_all();
    }
}

/// A character device of a namespace, for commands of any kind.
#[derive(Debug)]
pub struct Device {
    file: File,
    path: String,
    nsid: u32,
}

/// A device whose namespace has pairs.
pub struct Opened {
    /// The device.
    pub device: Device,
    /// Name of its subsystem.
    pub nqn: String,
    /// Identify data of its controller.
    pub identity: identify::Controller,
    /// The namespace's Identify data.
    pub namespace: KvNamespace,
}

/// Opens the device at the path of `remote`.
///
/// # Errors
/// A line without the path: no such device, no right to use it, or no namespace of pairs.
pub fn open(remote: &Remote) -> Result<Opened, ReachError> {
    let (device, identity, page) = identified(remote, Wanted::Pairs)?;
    let namespace = KvNamespace::read_from_bytes(&page).expect("Identify data has its size");
    let nqn = nqn(&identity.subsystem_nqn).unwrap_or_default().to_owned();
    Ok(Opened { device, nqn, identity, namespace })
}

/// The device, and Identify data of its controller and namespace, which has what is wanted.
fn identified(
    remote: &Remote,
    wanted: Wanted,
) -> Result<(Device, identify::Controller, Vec<u8>), ReachError> {
    let device = Device::open(&remote.address)?;
    let nsid = device.nsid;
    let lacking = |line| match wanted {
        Wanted::Pairs => ReachError::NoPairs(line),
        Wanted::Blocks => ReachError::NoBlocks(line),
    };
    if let Some(asked) = remote.nsid.filter(|asked| *asked != nsid) {
        return Err(lacking(format!("it is namespace {nsid}, not {asked}")));
    }
    let of = |error: io::Error| unusable(&error, &remote.address);
    let (status, identity) = device.identify(cns::CONTROLLER, 0, 0).map_err(of)?;
    let failed = |status: Status| ReachError::Of("Identify".into(), status.into());
    let identity = identity.ok_or_else(|| failed(status))?;
    let identity = identify::Controller::read_from_bytes(&identity).expect("Identify data has its size");
    let (structure, csi) = wanted.structure();
    let (status, page) = device.identify(structure, csi, nsid).map_err(of)?;
    let descriptors = device.identify(cns::NAMESPACE_DESCRIPTORS, 0, nsid);
    let descriptors = descriptors.ok().and_then(|(_, data)| data).unwrap_or_default();
    let page = page.filter(|page| wanted.is_in(page, &descriptors)).ok_or_else(|| {
        lacking(match wanted {
            Wanted::Pairs => no_pairs(nsid, status, &descriptors),
            Wanted::Blocks => format!("namespace {nsid}: it has no blocks of 4096 B (command set 0)"),
        })
    })?;
    Ok((device, identity, page))
}

/// The drive behind a device; its errors are those of [`open`].
pub(crate) fn find(remote: &Remote, wanted: Wanted) -> Result<Found, ReachError> {
    let (device, identity, page) = identified(remote, wanted)?;
    let nqn = nqn(&identity.subsystem_nqn).unwrap_or_default().to_owned();
    let (nsid, transfer_max_bytes) = (device.nsid, device.transfer_max_bytes().unwrap_or(u32::MAX));
    Ok(Found { access: Box::new(device), nqn, identity, nsid, page, transfer_max_bytes })
}

/// Why a device cannot be used, and what helps.
fn unusable(error: &io::Error, path: &str) -> ReachError {
    match error.kind() {
        io::ErrorKind::NotFound => ReachError::Device(
            "no such device; `ls /dev/ng*` shows those of this machine, `kvdrive ng` makes one for a program"
                .into(),
        ),
        io::ErrorKind::PermissionDenied => ReachError::Device(format!(
            "{error}; be root (sudo), or let root allow it: setfacl -m u:USER:rw {path}"
        )),
        io::ErrorKind::IsADirectory => ReachError::Device(NO_DEVICE.into()),
        kind => ReachError::Failed(Error::Io { kind, what: error.to_string() }),
    }
}

/// Why namespace `nsid` cannot be used, whose Identify as one of pairs was answered with `status`, by its identification
/// descriptors if there are any.
fn no_pairs(nsid: u32, status: Status, descriptors: &[u8]) -> String {
    const NEEDED: &str = "one of pairs (command set 1) is needed";
    match identify::namespace_descriptor(descriptors, nidt::CSI) {
        Some([CSI_NVM]) => format!("namespace {nsid} has blocks; {NEEDED}"),
        Some([csi]) if *csi != CSI_KV => format!("namespace {nsid} is of command set {csi}; {NEEDED}"),
        _ if status.is_success() => format!("namespace {nsid}: it has no format of pairs"),
        _ => format!("namespace {nsid} has no pairs (command set 1): {status}"),
    }
}

const NO_DEVICE: &str = "it is no device of an NVMe namespace; those are /dev/ngXnY";

impl Device {
    fn open(path: &str) -> Result<Device, ReachError> {
        let opened = File::options().read(true).write(true).open(path);
        let file = opened.map_err(|error| unusable(&error, path))?;
        // SAFETY: this request takes no argument.
        let nsid = unsafe { libc::ioctl(file.as_raw_fd(), ID as _) };
        let nsid = u32::try_from(nsid).map_err(|_| ReachError::Device(NO_DEVICE.into()))?;
        Ok(Device { file, path: path.to_owned(), nsid })
    }

    /// Another descriptor of the same device.
    fn again(&self) -> io::Result<Device> {
        Ok(Device { file: self.file.try_clone()?, path: self.path.clone(), nsid: self.nsid })
    }

    /// A port with `depth` threads, each with a command under way.
    fn port(&self, depth: u32) -> Result<Arc<Port>, Error> {
        let (jobs, posted) = (Mutex::default(), Condvar::new());
        let answers = Mutex::new(vec![Vec::new(); depth as usize]);
        let shared = Arc::new(Shared { device: self.again()?, jobs, posted, answers });
        let (node, board) = (Node(shared.clone()), Board::new(depth, Default::default()));
        for _ in 0..depth {
            let (shared, board) = (shared.clone(), board.clone());
            thread::Builder::new().name("kvdrive node".into()).spawn(move || shared.work(&board))?;
        }
        Ok(Port::new(Box::new(node), board))
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Identifier of its namespace.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Has the controller carry out an admin command, which this thread waits for.
    ///
    /// # Errors
    /// The command has no completion. The kernel ended it, as it took too long or the controller was reset
    /// ([`io::ErrorKind::Interrupted`]), or did not send it: to another namespace or with too many bytes
    /// ([`io::ErrorKind::InvalidInput`]), or without the right ([`io::ErrorKind::PermissionDenied`]).
    pub fn admin(&self, sqe: &Sqe, data: Data<'_>) -> io::Result<Cqe> {
        carry_out(&self.file, ADMIN, sqe, data)
    }

    /// The same for a command of an I/O queue.
    ///
    /// # Errors
    /// As [`Device::admin`].
    pub fn io(&self, sqe: &Sqe, data: Data<'_>) -> io::Result<Cqe> {
        carry_out(&self.file, IO, sqe, data)
    }

    /// Status, and data if it is success.
    fn identify(&self, structure: u8, csi: u8, nsid: u32) -> io::Result<(Status, Option<Vec<u8>>)> {
        let mut sqe = Sqe::new(admin::IDENTIFY, 0, nsid);
        sqe.cdw10.set(u32::from(structure));
        sqe.cdw11.set(u32::from(csi) << 24);
        let mut data = vec![0; IDENTIFY_BYTES];
        let status = self.admin(&sqe, Data::In(&mut data))?.status();
        Ok((status, status.is_success().then_some(data)))
    }

    /// Most bytes that the kernel moves for one command, if it says so.
    pub fn transfer_max_bytes(&self) -> Option<u32> {
        transfer_max_bytes(Path::new(&self.path))
    }
}

/// Most bytes that the kernel moves for one command to the namespace of `/dev/ngXnY`, if it says so.
fn transfer_max_bytes(device: &Path) -> Option<u32> {
    let name = device.file_name()?.to_str()?.strip_prefix("ng")?;
    let path = format!("/sys/block/nvme{name}/queue/max_hw_sectors_kb");
    let kib: u32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024)).filter(|bytes| *bytes > 0)
}

impl Access for Device {
    fn identify_namespace(&mut self) -> Result<KvNamespace, Error> {
        let (status, data) = self.identify(cns::CSI_NAMESPACE, CSI_KV, self.nsid)?;
        Ok(KvNamespace::read_from_bytes(&data.ok_or(status)?).expect("Identify data has its size"))
    }

    /// Queues are the kernel's: as many drivers may be made as threads seem sensible.
    fn ask_for_queues(&mut self, count: u16) -> Result<u16, Error> {
        Ok(count.min(QUEUES))
    }

    fn entries_max(&mut self) -> Result<u16, Error> {
        Ok(ENTRIES)
    }

    fn driver(&mut self, _: u16, _: u16, depth: u32, limits: &AccessLimits) -> Result<Driver, Error> {
        // A longer value than the kernel moves would be refused as an invalid argument.
        let max_value_bytes = limits.max_value_bytes.min(limits.transfer_max_bytes);
        let limits = Limits {
            choice: None,
            max_value_bytes,
            max_answer_bytes: limits.transfer_max_bytes,
            at_once_bytes: AT_ONCE_BYTES,
        };
        Ok(Driver::new(self.port(depth)?, limits, None))
    }

    fn blocks(&mut self, _: u16, _: u16, depth: u32, size: &BlockSize) -> Result<BlockDriver, Error> {
        Ok(BlockDriver::new(self.port(depth)?, size.blocks, size.most_blocks, None))
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_nvme::identify::namespace_descriptors;

    use super::*;

    #[test]
    fn a_namespace_without_pairs_is_told_by_its_command_set() {
        let of = |csi| no_pairs(2, Status::INVALID_NAMESPACE, &namespace_descriptors(csi, [0; 16], [0; 16]));
        assert_eq!(of(CSI_NVM), "namespace 2 has blocks; one of pairs (command set 1) is needed");
        assert_eq!(of(2), "namespace 2 is of command set 2; one of pairs (command set 1) is needed");
        assert!(of(CSI_KV).starts_with("namespace 2 has no pairs (command set 1): "));
        assert_eq!(no_pairs(2, Status::SUCCESS, &[]), "namespace 2: it has no format of pairs");
    }

    #[test]
    fn what_cannot_be_used_says_what_helps() {
        let of = |kind| unusable(&io::Error::from(kind), "/dev/ng0n1").line();
        assert!(of(io::ErrorKind::NotFound).contains("`ls /dev/ng*`"));
        let right = of(io::ErrorKind::PermissionDenied);
        assert!(right.contains("be root (sudo)") && right.ends_with("/dev/ng0n1"), "{right}");
    }

    /// A borrow that the device must not write to never reaches it, whatever the opcode says.
    #[test]
    fn data_go_the_way_of_the_opcode_or_not_at_all() {
        let file = File::open("/dev/null").unwrap();
        let of = |opcode, data: Data<'_>| carry_out(&file, IO, &Sqe::new(opcode, 0, 1), data).unwrap_err();
        for (opcode, data) in [
            (opcode::RETRIEVE, Data::Out(b"value")),
            (opcode::STORE, Data::In(&mut [0; 8])),
            (opcode::FABRICS, Data::Out(b"value")),
        ] {
            let error = of(opcode, data);
            assert!(error.to_string().contains("go the other way"), "{error}");
        }
        // The others get as far as the device, which is none.
        for (opcode, data) in [(opcode::STORE, Data::Out(b"value")), (opcode::EXIST, Data::None)] {
            assert_eq!(of(opcode, data).raw_os_error(), Some(libc::ENOTTY));
        }
    }
}
