//! What clauses are written with: commands whose exchange is kept for the report, keys that belong to this check, and
//! comparisons that say what was expected.

use kvdrive_nvme::identify::{self, CSI_KV, IDENTIFY_BYTES, KvNamespace, cns};
use kvdrive_nvme::list::entry_bytes;
use kvdrive_nvme::log::LogRequest;
use kvdrive_nvme::opcode::{self, admin};
use kvdrive_nvme::{Key, Sqe, Status, feature};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::target::{Answer, Data, Lost, NoAnswer, Target};

/// Most bytes of data that the report of an exchange shows.
pub const SHOWN_BYTES: usize = 64;
/// How many candidates for a key are tried before the namespace counts as full of such keys.
const CANDIDATES: u32 = 256;
/// MDTS counts pages of this size, bytes (CAP.MPSMIN 0).
const TRANSFER_UNIT_BYTES: u64 = 4096;

/// Why a clause did not pass.
#[derive(Clone, Debug)]
pub enum Why {
    /// The answer is not what the clause asks for.
    Fail(String),
    /// The target does not offer this, and need not; or it cannot be tried here.
    NotOffered(String),
    /// There is no completion.
    Lost(Lost),
}

impl From<Lost> for Why {
    fn from(lost: Lost) -> Why {
        Why::Lost(lost)
    }
}

impl From<NoAnswer> for Why {
    fn from(why: NoAnswer) -> Why {
        match why {
            NoAnswer::Lost(lost) => Why::Lost(lost),
            NoAnswer::NotSent(reason) => Why::NotOffered(reason),
        }
    }
}

/// What comes of a clause: a remark for the report, often empty.
pub type Outcome = Result<String, Why>;

/// A command, its completion and the front of its data.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Of the admin queue?
    pub is_admin: bool,
    /// The entry without identifier and data pointer.
    pub sqe: [u8; 64],
    /// The front of the bytes that were sent.
    pub sent: Vec<u8>,
    /// The status, if there is a completion.
    pub status: Option<Status>,
    /// Dword 0.
    pub dw0: u32,
    /// The front of the bytes that came back.
    pub received: Vec<u8>,
}

/// Identify data that clauses start from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What the target is.
    pub name: String,
    /// Identify, controller.
    pub controller: identify::Controller,
    /// Identify, KV namespace.
    pub namespace: KvNamespace,
    /// Most bytes that a command moves.
    pub transfer_max_bytes: u64,
}

impl Facts {
    /// # Errors
    /// There is no way to the namespace, or it is none of pairs.
    pub fn of(target: &mut dyn Target) -> Result<Facts, Lost> {
        let mut page = |structure, csi, nsid| {
            let (sqe, room) = identify_entry(structure, csi, nsid);
            let answer = target.admin(sqe, Data::In(room))?;
            let is_whole = answer.status.is_success() && answer.data.len() == IDENTIFY_BYTES;
            let refused =
                || Lost(format!("Identify {structure:02X}h: {}, {} B", answer.status, answer.data.len()));
            if is_whole { Ok(answer.data) } else { Err(refused()) }
        };
        let controller = page(cns::CONTROLLER, 0, 0)?;
        let controller = identify::Controller::read_from_bytes(&controller).expect("it has its size");
        let nsid = target.nsid();
        let (sqe, room) = identify_entry(cns::CSI_NAMESPACE, CSI_KV, nsid);
        let answer = target.admin(sqe, Data::In(room))?;
        let namespace = KvNamespace::read_from_bytes(&answer.data[..]);
        let namespace = namespace.ok().filter(|_| answer.status.is_success()).ok_or_else(|| {
            Lost(format!(
                "namespace {nsid} is none of pairs: Identify 05h of command set 1: {}",
                answer.status
            ))
        })?;
        let transfer_max_bytes = match controller.transfer_max_log2 {
            0 => u64::MAX,
            log2 => TRANSFER_UNIT_BYTES.checked_shl(log2.into()).unwrap_or(u64::MAX),
        };
        let transfer_max_bytes = target.transfer_max_bytes().min(transfer_max_bytes);
        Ok(Facts { name: target.name(), controller, namespace, transfer_max_bytes })
    }

    /// The target in a line.
    pub fn describe(&self) -> String {
        let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned();
        let Facts { name, controller, .. } = self;
        format!("{name} ({}, {})", text(&controller.model), text(&controller.firmware))
    }

    /// The longest value that can be tried, bytes: as Identify and MDTS have it.
    pub fn value_max_bytes(&self) -> u64 {
        u64::from(self.namespace.format().value_max_bytes.get()).min(self.transfer_max_bytes)
    }
}

/// Keys that this check has stored or may have stored.
#[derive(Default)]
pub struct Keys {
    salt: u32,
    own: Vec<Vec<u8>>,
    left: Vec<Vec<u8>>,
}

impl Keys {
    /// Removes what a clause has stored.
    ///
    /// # Errors
    /// There is no way to the namespace.
    pub fn remove_all(&mut self, target: &mut dyn Target) -> Result<(), Lost> {
        for key in std::mem::take(&mut self.own) {
            let sqe = entry(opcode::DELETE, target.nsid(), &key, 0, 0);
            let is_gone = match target.io(sqe, Data::None) {
                Ok(answer) => answer.status.is_success() || answer.status == Status::KEY_NOT_FOUND,
                Err(NoAnswer::NotSent(_)) => false,
                Err(NoAnswer::Lost(lost)) => return Err(lost),
            };
            if !is_gone {
                self.left.push(key);
            }
        }
        Ok(())
    }

    /// Keys that could not be removed.
    pub fn left(self) -> Vec<Vec<u8>> {
        self.left
    }
}

/// An entry with a key. A key of more than 16 bytes is cut; the length is told as it is.
pub fn entry(opcode: u8, nsid: u32, key: &[u8], size_bytes: u32, option: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode, 0, nsid);
    let mut padded = [0; 16];
    let bytes = key.len().min(16);
    padded[..bytes].copy_from_slice(&key[..bytes]);
    sqe.set_key_bytes(padded);
    sqe.cdw10 = U32::new(size_bytes);
    sqe.cdw11 = U32::new(key.len() as u32 & 0xFF | u32::from(option) << 8);
    sqe
}

fn identify_entry(structure: u8, csi: u8, nsid: u32) -> (Sqe, u32) {
    let mut sqe = Sqe::new(admin::IDENTIFY, 0, nsid);
    sqe.cdw10 = U32::new(structure.into());
    sqe.cdw11 = U32::new(u32::from(csi) << 24);
    (sqe, IDENTIFY_BYTES as u32)
}

/// A target while one clause is checked.
pub struct Ask<'a> {
    target: &'a mut dyn Target,
    /// Identify data.
    pub facts: &'a Facts,
    keys: &'a mut Keys,
    exchanges: Vec<Exchange>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(target: &'a mut dyn Target, facts: &'a Facts, keys: &'a mut Keys) -> Ask<'a> {
        Ask { target, facts, keys, exchanges: Vec::new() }
    }

    pub(crate) fn into_exchanges(self) -> Vec<Exchange> {
        self.exchanges
    }

    /// The target itself.
    pub fn target(&mut self) -> &mut dyn Target {
        self.target
    }

    /// The namespace.
    pub fn nsid(&self) -> u32 {
        self.target.nsid()
    }

    /// The same clause's commands by another way to the namespace.
    pub fn by<T>(
        &mut self,
        other: &mut dyn Target,
        ask: impl FnOnce(&mut Ask<'_>) -> Result<T, Why>,
    ) -> Result<T, Why> {
        let mut by = Ask { target: other, facts: self.facts, keys: self.keys, exchanges: Vec::new() };
        let result = ask(&mut by);
        let exchanges = by.into_exchanges();
        self.exchanges.extend(exchanges);
        result
    }

    fn keep(&mut self, is_admin: bool, sqe: &Sqe, data: Data<'_>, answer: &Result<Answer, NoAnswer>) {
        let front = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN_BYTES)].to_vec();
        let sent = if let Data::Out(bytes) = data { front(bytes) } else { Vec::new() };
        let (status, dw0, received) = match answer {
            Ok(answer) => (Some(answer.status), answer.dw0, front(&answer.data)),
            Err(_) => (None, 0, Vec::new()),
        };
        self.exchanges.push(Exchange { is_admin, sqe: *sqe.as_bytes(), sent, status, dw0, received });
    }

    /// A command of the admin queue.
    pub fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, Why> {
        let answer = self.target.admin(sqe, data);
        self.keep(true, &sqe, data, &answer);
        Ok(answer?)
    }

    /// A command of the I/O queue.
    pub fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, Why> {
        let answer = self.target.io(sqe, data);
        self.keep(false, &sqe, data, &answer);
        Ok(answer?)
    }

    /// A key of `len` bytes that the namespace does not have; it is removed when the clause ends. Keys of one or two bytes
    /// may all exist.
    pub fn key(&mut self, len: usize) -> Result<Vec<u8>, Why> {
        for _ in 0..CANDIDATES {
            self.keys.salt = self.keys.salt.wrapping_add(1);
            let mut key: Vec<u8> =
                b"conform\0".iter().chain(&self.keys.salt.to_be_bytes()).copied().collect();
            // The number comes first in short keys, which have no room for the name.
            key.resize(len.max(key.len()), b'.');
            let key = if len < 12 { key[12 - len..12].to_vec() } else { key[..len].to_vec() };
            let probe = entry(opcode::EXIST, self.target.nsid(), &key, 0, 0);
            // Drives with 87h in another type of status are to be judged, too; a clause looks at the type.
            if self.target.io(probe, Data::None)?.status.sc() == Status::KEY_NOT_FOUND.sc() {
                self.keys.own.push(key.clone());
                return Ok(key);
            }
        }
        Err(Why::NotOffered(format!(
            "no key of {len} B was found absent (Exist 87h) among {CANDIDATES}, and pairs of others are not touched"
        )))
    }

    /// A key of 16 bytes, or of as many as the namespace allows.
    pub fn usual_key(&mut self) -> Result<Vec<u8>, Why> {
        let most = usize::from(self.facts.namespace.format().key_max_bytes.get());
        self.key(most.clamp(1, Key::IDENTITY_BYTES))
    }

    /// Notes a key that the clause made itself, for its removal.
    pub fn own(&mut self, key: &[u8]) {
        self.keys.own.push(key.to_vec());
    }

    /// Store.
    pub fn store(&mut self, key: &[u8], value: &[u8], option: u8) -> Result<Answer, Why> {
        let data = if value.is_empty() { Data::None } else { Data::Out(value) };
        self.io(entry(opcode::STORE, self.nsid(), key, value.len() as u32, option), data)
    }

    /// Store that has to succeed.
    pub fn stored(&mut self, key: &[u8], value: &[u8]) -> Result<(), Why> {
        let answer = self.store(key, value, 0)?;
        is(&answer, Status::SUCCESS, "Store")
    }

    /// Retrieve into a buffer of `room` bytes.
    pub fn retrieve(&mut self, key: &[u8], room: u32, option: u8) -> Result<Answer, Why> {
        let data = if room == 0 { Data::None } else { Data::In(room) };
        self.io(entry(opcode::RETRIEVE, self.nsid(), key, room, option), data)
    }

    /// Retrieve that has to return exactly this value.
    pub fn has(&mut self, key: &[u8], value: &[u8], when: &str) -> Result<(), Why> {
        let answer = self.retrieve(key, value.len() as u32 + 8, 0)?;
        is(&answer, Status::SUCCESS, when)?;
        let bytes = answer.dw0 as usize;
        ensure(bytes == value.len(), || {
            format!("{when}: DW0 of Retrieve is {bytes}; the value has {} B", value.len())
        })?;
        same(answer.data.get(..bytes).unwrap_or(&answer.data), value, when)
    }

    /// Exist.
    pub fn exist(&mut self, key: &[u8]) -> Result<Answer, Why> {
        self.io(entry(opcode::EXIST, self.nsid(), key, 0, 0), Data::None)
    }

    /// Delete.
    pub fn delete(&mut self, key: &[u8]) -> Result<Answer, Why> {
        self.io(entry(opcode::DELETE, self.nsid(), key, 0, 0), Data::None)
    }

    /// List from `start` on; an empty one is from the first key on.
    pub fn list(&mut self, start: &[u8], room: u32) -> Result<Answer, Why> {
        self.io(entry(opcode::LIST, self.nsid(), start, room, 0), Data::In(room))
    }

    /// Identify.
    pub fn identify(&mut self, structure: u8, csi: u8, nsid: u32) -> Result<Answer, Why> {
        let (sqe, room) = identify_entry(structure, csi, nsid);
        self.admin(sqe, Data::In(room))
    }

    /// Identify that has to succeed.
    pub fn identified(&mut self, structure: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Why> {
        let answer = self.identify(structure, csi, nsid)?;
        is(&answer, Status::SUCCESS, &format!("Identify {structure:02X}h"))?;
        let bytes = answer.data.len();
        ensure(bytes == IDENTIFY_BYTES, || format!("Identify has {IDENTIFY_BYTES} B; {bytes} came"))?;
        Ok(answer.data)
    }

    /// The namespace as it is now.
    pub fn namespace(&mut self) -> Result<KvNamespace, Why> {
        let data = self.identified(cns::CSI_NAMESPACE, CSI_KV, self.nsid())?;
        Ok(KvNamespace::read_from_bytes(&data).expect("it has its size"))
    }

    /// Get Log Page.
    pub fn log(&mut self, page: u8, bytes: u32, csi: u8) -> Result<Answer, Why> {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0, u32::MAX);
        let (retain_event, offset) = (true, 0);
        LogRequest { page, retain_event, bytes: bytes.into(), offset, command_set: csi }.put(&mut sqe);
        self.admin(sqe, Data::In(bytes))
    }

    /// Get Features of feature 20h.
    pub fn key_value_feature(&mut self, select: u32) -> Result<Answer, Why> {
        let mut sqe = Sqe::new(admin::GET_FEATURES, 0, self.nsid());
        sqe.cdw10 = U32::new(u32::from(feature::KEY_VALUE) | select << 8);
        self.admin(sqe, Data::None)
    }

    /// Set Features of feature 20h.
    pub fn set_key_value_feature(&mut self, value: u32) -> Result<Answer, Why> {
        let mut sqe = Sqe::new(admin::SET_FEATURES, 0, self.nsid());
        sqe.cdw10 = U32::new(feature::KEY_VALUE.into());
        sqe.cdw11 = U32::new(value);
        self.admin(sqe, Data::None)
    }
}

/// The status has to be this one.
pub fn is(answer: &Answer, expected: Status, what: &str) -> Result<(), Why> {
    is_one(answer, &[expected], what)
}

/// The status has to be one of these.
pub fn is_one(answer: &Answer, expected: &[Status], what: &str) -> Result<(), Why> {
    let names = || expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    ensure(expected.contains(&answer.status), || format!("{what}: {}; expected {}", answer.status, names()))
}

/// The condition has to hold.
pub fn ensure(holds: bool, told: impl FnOnce() -> String) -> Result<(), Why> {
    if holds { Ok(()) } else { Err(Why::Fail(told())) }
}

/// The bytes have to be the same.
pub fn same(found: &[u8], expected: &[u8], what: &str) -> Result<(), Why> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
    Err(Why::Fail(match at {
        Some(at) => {
            format!("{what}: byte {at} is {:02X}h; expected {:02X}h", found[at], expected[at])
        }
        None => format!("{what}: {} B; expected {}", found.len(), expected.len()),
    }))
}

/// The value that clauses store under a name: `bytes` bytes that differ from those of other names.
pub fn value(name: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32).wrapping_mul(2_654_435_761).rotate_right(13) as u8 ^ name).collect()
}

/// How the entries of a List are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// As specified: length field and key together to a multiple of 4.
    Entry,
    /// The key alone to a multiple of 4.
    Key,
    /// n + n mod 4 for n = length field and key.
    Sum,
    /// None.
    Without,
}

impl Padding {
    /// All, that of the specification first.
    pub const ALL: [Padding; 4] = [Padding::Entry, Padding::Key, Padding::Sum, Padding::Without];

    /// Bytes of an entry.
    pub fn entry_bytes(self, key_bytes: usize) -> usize {
        let bare = 2 + key_bytes;
        match self {
            Padding::Entry => entry_bytes(key_bytes),
            Padding::Key => 2 + key_bytes.next_multiple_of(4),
            Padding::Sum => bare + bare % 4,
            Padding::Without => bare,
        }
    }

    /// Who does it.
    pub fn who(self) -> &'static str {
        match self {
            Padding::Entry => "as specified",
            Padding::Key => "as AirMettle's drive pads: the key alone",
            Padding::Sum => "as QEMU's KV device pads: n + n mod 4",
            Padding::Without => "not padded at all",
        }
    }

    /// The keys of List data; `None`: they do not follow this padding.
    pub fn keys(self, data: &[u8]) -> Option<Vec<Vec<u8>>> {
        let count = u32::from_le_bytes(data.get(..4)?.try_into().ok()?);
        let (mut keys, mut at) = (Vec::new(), 4);
        for _ in 0..count {
            let len = usize::from(u16::from_le_bytes([*data.get(at)?, *data.get(at + 1)?]));
            if len == 0 || len > Key::IDENTITY_BYTES {
                return None;
            }
            keys.push(data.get(at + 2..at + 2 + len)?.to_vec());
            at += self.entry_bytes(len);
        }
        Some(keys)
    }
}
