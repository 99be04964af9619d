//! Commands and answers that all drivers share: the layout of a slot's buffer, Identify, creation of a queue
//! pair, and parsing of answers that came by DMA. Nothing here waits or submits.

use kvdrive_content::Region;
use kvdrive_link::HostMemory;
use kvdrive_link::transfer::prp::LISTED_MAX_PAGES;
use kvdrive_nvme::identify::{CSI_KV, IDENTIFY_BYTES, KvNamespace, cns};
use kvdrive_nvme::iter::{IterHeader, pair_at};
use kvdrive_nvme::list::ListReader;
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{Cqe, DRIVE_NSID, Key, PAGE_BYTES, Sqe, Status, opcode, write_protection};
use zerocopy::FromBytes;

/// The address that a driver gives for a ring: rings belong to the link (`kvdrive_link::queue`), and the
/// address is never read.
pub(crate) const RING: u64 = 0;
/// Bytes of an iterator's answer that are reserved besides the largest value.
const ANSWER_HEADER_BYTES: u32 = PAGE_BYTES;

/// A pair that an iterator returned. Its value is in the region that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: Key,
    /// Size of the value.
    pub value_bytes: u32,
    /// Bytes of the value that came: of a value longer than about 2 MiB only the front, and a Retrieve reads
    /// all of it.
    pub came_bytes: u32,
}

/// An open iterator on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IteratorId(u32);

impl IteratorId {
    /// The iterator that a SEEK opened.
    pub(crate) fn of(cqe: &Cqe) -> IteratorId {
        IteratorId(cqe.dw1.get())
    }

    /// The iterator that commands name by `number`.
    pub(crate) fn numbered(number: u32) -> IteratorId {
        IteratorId(number)
    }

    /// The number by which commands name the iterator.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Bytes that a driver asks for if it does not know a value's size, and the most bytes of a value that an iterator
/// returns: those that one list page names. The completion tells the size.
pub(crate) const AT_ONCE_BYTES: u32 = 2 << 20;

/// Size of an iterator's largest answer in memory; over a network at most [`AT_ONCE_BYTES`] come.
pub(crate) fn pair_bytes(max_value_bytes: u32) -> u32 {
    max_value_bytes.min(AT_ONCE_BYTES) + ANSWER_HEADER_BYTES
}

/// Size of a slot's buffer: whole pages that hold the largest pair, and so a list of many keys however short
/// values are.
pub(crate) fn buffer_bytes(max_value_bytes: u32) -> u32 {
    (max_value_bytes + ANSWER_HEADER_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Size of the memory of a slot's lists and key, bytes: the list page, behind it the chain of list pages that
/// names the whole buffer, and the page of the key.
pub(crate) fn list_bytes(buffer_bytes: u32) -> u32 {
    let pages = buffer_bytes / PAGE_BYTES;
    let chained = if pages > LISTED_MAX_PAGES { pages.div_ceil(CHAINED_PAGES) } else { 0 };
    (1 + chained + 1) * PAGE_BYTES
}

/// Where a slot's key lies if it is longer than 16 bytes: on a page of its own behind the lists.
pub(crate) fn key_at(list: u64, buffer_bytes: u32) -> u64 {
    list + u64::from(list_bytes(buffer_bytes) - PAGE_BYTES)
}

/// A list page that names the pages of the buffer at `buffer` but the first, as many as fit it.
pub(crate) fn list_page(buffer: u64, bytes: u32) -> Vec<u8> {
    (1..(bytes / PAGE_BYTES).min(LISTED_MAX_PAGES)).flat_map(|page| page_address(buffer, page)).collect()
}

/// Pages that a list page names if its last slot names the next list page.
const CHAINED_PAGES: u32 = PAGE_BYTES / 8 - 1;

/// The list pages at `chain`, which name the first `bytes` bytes of the buffer at `buffer` but its first
/// page.
pub(crate) fn chain(chain: u64, buffer: u64, bytes: u32) -> Vec<u8> {
    let pages = bytes.div_ceil(PAGE_BYTES);
    let mut entries = Vec::with_capacity(8 * pages as usize);
    let (mut page, mut list) = (1, 0);
    // The last list page of the chain names a page in its last slot, too.
    while pages - page > CHAINED_PAGES + 1 {
        list += 1;
        entries.extend((page..page + CHAINED_PAGES).flat_map(|page| page_address(buffer, page)));
        entries.extend(page_address(chain, list));
        page += CHAINED_PAGES;
    }
    entries.extend((page..pages).flat_map(|page| page_address(buffer, page)));
    entries
}

fn page_address(memory: u64, page: u32) -> [u8; 8] {
    (memory + u64::from(page) * u64::from(PAGE_BYTES)).to_le_bytes()
}

/// The commands that create a queue pair of `entries` slots, in this order: the completion queue exists
/// first.
pub(crate) fn create_pair(id: u16, entries: u32) -> [QueueCommand; 2] {
    let completion = id;
    [
        QueueCommand::CreateCompletion { id, entries },
        QueueCommand::CreateSubmission { id, entries, completion },
    ]
}

/// The commands that delete the queue pair again, in this order.
pub(crate) fn delete_pair(id: u16) -> [QueueCommand; 2] {
    [QueueCommand::DeleteSubmission { id }, QueueCommand::DeleteCompletion { id }]
}

/// Identify for the KV namespace, answered to the page at `buffer`.
pub(crate) fn identify_namespace(cid: u16, buffer: u64) -> Sqe {
    let mut sqe = Sqe::new(opcode::admin::IDENTIFY, cid, DRIVE_NSID);
    sqe.cdw10.set(u32::from(cns::CSI_NAMESPACE));
    sqe.cdw11.set(u32::from(CSI_KV) << 24);
    sqe.set_prps(buffer, 0);
    sqe
}

/// The answer to [`identify_namespace`].
pub(crate) fn take_namespace(memory: &dyn HostMemory, buffer: u64) -> KvNamespace {
    let mut data = Region::new();
    copy_in(memory, buffer, IDENTIFY_BYTES as u32, &mut data);
    let bytes = data.to_bytes(IDENTIFY_BYTES as u32);
    KvNamespace::read_from_bytes(&bytes).expect("Identify data has its size")
}

/// Asks for the log page of write protection, to the page at `buffer`.
pub(crate) fn write_protection_log(cid: u16, buffer: u64) -> Sqe {
    let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, cid, 0);
    let dwords_z = write_protection::BYTES as u32 / 4 - 1;
    sqe.cdw10.set(u32::from(write_protection::LOG_PAGE) | dwords_z << 16);
    sqe.set_prps(buffer, 0);
    sqe
}

/// The answer to [`write_protection_log`].
pub(crate) fn take_write_protection(memory: &dyn HostMemory, buffer: u64) -> Option<String> {
    let mut data = Region::new();
    copy_in(memory, buffer, write_protection::BYTES as u32, &mut data);
    let mut page = [0; write_protection::BYTES];
    data.copy_to(0, &mut page);
    write_protection::decode(&page)
}

/// The data of an answer.
pub(crate) trait AnswerData {
    /// The memory that holds them, and the address of their first byte.
    fn memory(&self) -> (&dyn HostMemory, u64);

    /// How many bytes came. Memory that the drive writes has no end of its own.
    fn bytes(&self) -> u32 {
        u32::MAX
    }

    /// Moves the first `bytes` bytes to byte 0 of `into`.
    fn take_value(&self, bytes: u32, into: &mut Region) {
        let (memory, at) = self.memory();
        into.clear();
        copy_in(memory, at, bytes, into);
    }
}

/// Memory that begins at an address.
impl AnswerData for (&dyn HostMemory, u64) {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        *self
    }
}

/// Appends `bytes` bytes of a driver's own buffer to the front of an empty region.
pub(crate) fn copy_in(memory: &dyn HostMemory, address: u64, bytes: u32, into: &mut Region) {
    let mut at = 0;
    memory
        .read(address, bytes, &mut |piece| {
            into.write(at, piece);
            at += piece.bytes();
        })
        .expect("a driver reads its own buffers");
}

/// The keys in a List's answer, in its order.
pub(crate) fn take_keys(memory: &dyn HostMemory, buffer: u64, bytes: u32) -> Result<Vec<Key>, Status> {
    let mut data = Region::new();
    copy_in(memory, buffer, bytes, &mut data);
    let bytes = data.to_bytes(bytes);
    let reader = ListReader::new(&bytes).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
    reader.map(|key| key.map_err(|_| Status::DATA_TRANSFER_ERROR)).collect()
}

/// The pairs that SEEK or NEXT has answered, in order: each is taken once.
#[derive(Debug, Default)]
pub struct Pairs {
    answer: Region,
    /// Where the next pair begins and where the last one ends, bytes from the front of `answer`.
    at: u32,
    end: u32,
}

impl Pairs {
    /// The pairs that `arrived` in the answer to `cqe`; at most `room` bytes of it came.
    pub(crate) fn of(cqe: &Cqe, arrived: &(impl AnswerData + ?Sized), room: u32) -> Pairs {
        let mut pairs = Pairs { end: cqe.dw0.get().min(room), ..Pairs::default() };
        if pairs.end > 0 {
            arrived.take_value(pairs.end, &mut pairs.answer);
        }
        pairs
    }

    /// Have all pairs been taken?
    pub fn is_empty(&self) -> bool {
        self.at >= self.end
    }

    /// Takes the next pair, and moves the received part of its value to `into`. `None`: all pairs have been taken.
    ///
    /// # Errors
    /// The answer contradicts itself; no pair is left then.
    pub fn next(&mut self, into: &mut Region) -> Result<Option<Pair>, Status> {
        into.clear();
        let (at, end) = (self.at, std::mem::take(&mut self.end));
        if at >= end {
            return Ok(None);
        }
        if end - at < IterHeader::BYTES as u32 {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        let mut header = [0; IterHeader::BYTES];
        self.answer.copy_to(at, &mut header);
        let header = IterHeader::from_bytes(header);
        let key = header.key().ok_or(Status::DATA_TRANSFER_ERROR)?;
        let value_at = at + header.value_at();
        let room_bytes = end.checked_sub(value_at).ok_or(Status::DATA_TRANSFER_ERROR)?;
        let value_bytes = header.value_bytes();
        let came_bytes = value_bytes.min(room_bytes);
        let mut value_end = 0;
        self.answer.read(value_at, came_bytes, &mut |piece| {
            into.write(value_end, piece);
            value_end += piece.bytes();
        });
        (self.at, self.end) = (pair_at(value_at.saturating_add(value_bytes).min(end)), end);
        Ok(Some(Pair { key, value_bytes, came_bytes }))
    }
}
