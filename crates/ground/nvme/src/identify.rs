//! Identify data structures: properties of a namespace or a controller, 4096 bytes each.
//!
//! | CNS | CSI | structure |
//! |---|---|---|
//! | 00h | - | [`KvNamespaceAsBlocks`] |
//! | 01h | - | [`Controller`] |
//! | 03h | - | [`namespace_descriptors`] |
//! | 05h | 01h | [`KvNamespace`] |
//! | 06h | 01h | [`KvController`] |
//! | 08h | - | [`IndependentNamespace`] |
//! | 0Ah | 01h | [`KvNamespace`], what depends on a format alone |
//!
//! ```text
//!  KV namespace (CNS 05h, CSI 01h)             KV format
//!     0  NSZE, bytes        36  ANAGRPID         0  KVKML  longest key, bytes
//!    16  NUSE, bytes        43  NSATTR           3  AFO    relative performance
//!    24  NSFEAT             44  NVMSETID         4  KVVML  longest value, bytes
//!    25  NKVF, 0's based    46  ENDGID           8  MNKS   most keys, 0: no limit
//!    26  NMIC               48  NGUID
//!    27  RESCAP             64  EUI64
//!    28  FPI                72  KVF0 .. KVF15, 16 bytes each
//!    29  KVFC              328  reserved
//!    32  NOVG, bytes      3840  vendor specific
//!
//!  Vendor specific bytes of a KV namespace
//!     0  tag "kvdrive\0"         8  features: bit 0 batch, bit 1 atomic batches, bit 2 a Delete can say whether there was
//!                                 a pair, bit 3 Lists and iterators are in order of keys
//!    10  most requests in a batch, 0's based
//!    12  most bytes of a structured value, head included
//!    16  most requests in an atomic batch, 0's based
//!    20  most bytes of the structured value of an atomic batch
//!
//!  Controller (CNS 01h): offsets are beside the fields.
//! ```
//!
//! Sizes of a KV namespace are in bytes, not blocks. Offsets are those on which SPDK, xNVMe and QEMU's KV device agree;
//! statements about a client in the documentation of a field were observed in that client. Only fields that a KV drive
//! fills have a name; the others are zero. This module sets no values: a drive starts from zeros
//! ([`zerocopy::FromZeros::new_zeroed`]).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of every Identify data structure in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

/// Command set identifier of the KV command set (CDW11 bits 31:24 of Identify).
pub const CSI_KV: u8 = 0x01;
/// Command set identifier of the NVM (block) command set.
pub const CSI_NVM: u8 = 0x00;

/// Which data structure: CDW10 bits 7:0 of Identify.
pub mod cns {
    /// NVM namespace. SPDK and xNVMe ask for it on a KV namespace too.
    pub const NAMESPACE: u8 = 0x00;
    /// Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace identifiers.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Namespace, specific to its command set.
    pub const CSI_NAMESPACE: u8 = 0x05;
    /// Controller, specific to a command set.
    pub const CSI_CONTROLLER: u8 = 0x06;
    /// Active namespace identifiers of one command set.
    pub const CSI_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Namespace, independent of its command set.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// What a namespace of a command set would be with a given format.
    pub const CSI_FORMAT: u8 = 0x0A;
    /// The combinations of command sets that can be used together.
    pub const COMMAND_SETS: u8 = 0x1C;
}

/// One KV format of a namespace: 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KvFormat {
    /// KVKML: longest key in bytes, at most 16.
    pub key_max_bytes: U16,
    /// Zero.
    pub reserved_2: u8,
    /// AFO: relative performance in bits 1:0, 00b the best.
    pub additional: u8,
    /// KVVML: longest value in bytes.
    pub value_max_bytes: U32,
    /// MNKS: most keys there can be; 0 for no limit.
    pub keys_max: U32,
    /// Zero.
    pub reserved_12: [u8; 4],
}

/// KV namespace (CNS 05h, CSI 01h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KvNamespace {
    /// NSZE: size in bytes.
    pub size_bytes: U64,
    /// Zero.
    pub reserved_8: [u8; 8],
    /// NUSE: bytes in use.
    pub used_bytes: U64,
    /// NSFEAT: features.
    pub features: u8,
    /// NKVF: number of formats, 0's based.
    pub formats_z: u8,
    /// NMIC: sharing between controllers.
    pub sharing: u8,
    /// RESCAP: reservations.
    pub reservations: u8,
    /// FPI: format progress.
    pub format_progress: u8,
    /// KVFC: index of the present format in bits 3:0.
    pub format_current: u8,
    /// Zero.
    pub reserved_30: [u8; 2],
    /// NOVG: the value size granularity that suits the drive best, in bytes.
    pub optimal_value_bytes: U32,
    /// ANAGRPID: asymmetric namespace access group.
    pub ana_group: U32,
    /// Zero.
    pub reserved_40: [u8; 3],
    /// NSATTR: bit 0, write protected.
    pub attributes: u8,
    /// NVMSETID: NVM set.
    pub nvm_set: U16,
    /// ENDGID: endurance group.
    pub endurance_group: U16,
    /// NGUID: globally unique identifier.
    pub nguid: [u8; 16],
    /// EUI64: extended unique identifier.
    pub eui64: [u8; 8],
    /// KVF0 to KVF15.
    pub formats: [KvFormat; 16],
    /// Zero.
    pub reserved_328: [u8; 3512],
    /// Vendor specific.
    pub vendor: VendorNamespace,
}

/// The vendor specific part of a KV namespace: 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VendorNamespace {
    /// [`VendorNamespace::TAG`]; without it the other fields belong to another vendor.
    pub tag: [u8; 8],
    /// Bit 0: batch ([`crate::opcode::BATCH`]); bit 1: batches may be atomic; bit 2: a Delete can be told that there has to
    /// be a pair; bit 3: Lists and iterators are in order of keys.
    pub features: U16,
    /// Most requests in a batch, 0's based.
    pub batch_requests_z: U16,
    /// Most bytes of a structured value, head included.
    pub batch_max_bytes: U32,
    /// Most requests in an atomic batch, 0's based.
    pub atomic_requests_z: U16,
    /// Zero.
    pub reserved_18: [u8; 2],
    /// Most bytes of the structured value of an atomic batch, head included.
    pub atomic_max_bytes: U32,
    /// Zero.
    pub reserved_24: [u8; 232],
}

/// Limits of the batches that a namespace accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchLimits {
    /// Most requests.
    pub requests: u32,
    /// Most bytes of the structured value, head included.
    pub bytes: u32,
    /// Limits of atomic batches. A batch within them is never refused for its size. `None`: the namespace accepts no
    /// atomic batches.
    pub atomic: Option<AtomicLimits>,
}

/// Limits of the atomic batches that a namespace accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicLimits {
    /// Most requests.
    pub requests: u32,
    /// Most bytes of the structured value, head included.
    pub bytes: u32,
}

impl VendorNamespace {
    /// The first bytes of the vendor area of a kvdrive.
    pub const TAG: [u8; 8] = *b"kvdrive\0";
    const BATCH: u16 = 1 << 0;
    const ATOMIC_BATCH: u16 = 1 << 1;
    const DELETE_SAYS: u16 = 1 << 2;
    const ORDERED: u16 = 1 << 3;

    /// The vendor area of a namespace that accepts batches within these limits, of 1 to 65536 requests;
    /// `None`: no batches.
    ///
    /// # Panics
    /// The number of requests is outside that range.
    #[must_use]
    pub fn new(batches: Option<BatchLimits>) -> VendorNamespace {
        let mut vendor = VendorNamespace {
            tag: Self::TAG,
            features: U16::ZERO,
            batch_requests_z: U16::ZERO,
            batch_max_bytes: U32::ZERO,
            atomic_requests_z: U16::ZERO,
            reserved_18: [0; 2],
            atomic_max_bytes: U32::ZERO,
            reserved_24: [0; 232],
        };
        if let Some(BatchLimits { requests, bytes, atomic }) = batches {
            let zero_based = |requests: u32| {
                let requests_z = requests.checked_sub(1).and_then(|z| u16::try_from(z).ok());
                U16::new(requests_z.expect("a batch has 1 to 65536 requests"))
            };
            vendor.features = U16::new(Self::BATCH | if atomic.is_some() { Self::ATOMIC_BATCH } else { 0 });
            vendor.batch_requests_z = zero_based(requests);
            vendor.batch_max_bytes = U32::new(bytes);
            if let Some(AtomicLimits { requests, bytes }) = atomic {
                vendor.atomic_requests_z = zero_based(requests);
                vendor.atomic_max_bytes = U32::new(bytes);
            }
        }
        vendor
    }

    /// As of a drive whose Delete can say whether there was a pair, and whose keys are in order if `is_ordered`.
    #[must_use]
    pub fn with_pairs(mut self, is_ordered: bool) -> VendorNamespace {
        let bits = Self::DELETE_SAYS | if is_ordered { Self::ORDERED } else { 0 };
        self.features = U16::new(self.features.get() | bits);
        self
    }

    /// Can a Delete say whether there was a pair?
    #[must_use]
    pub fn delete_says(&self) -> bool {
        self.has(Self::DELETE_SAYS)
    }

    /// Are Lists and iterators in order of keys?
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.has(Self::ORDERED)
    }

    fn has(&self, feature: u16) -> bool {
        self.tag == Self::TAG && self.features.get() & feature != 0
    }

    /// The limits of batches; `None`: the namespace accepts none, or it is another vendor's.
    #[must_use]
    pub fn batches(&self) -> Option<BatchLimits> {
        self.has(Self::BATCH).then(|| BatchLimits {
            requests: u32::from(self.batch_requests_z.get()) + 1,
            bytes: self.batch_max_bytes.get(),
            atomic: self.has(Self::ATOMIC_BATCH).then(|| AtomicLimits {
                requests: u32::from(self.atomic_requests_z.get()) + 1,
                bytes: self.atomic_max_bytes.get(),
            }),
        })
    }
}

impl KvNamespace {
    /// The present format of the namespace: the one KVFC points at.
    #[must_use]
    pub fn format(&self) -> &KvFormat {
        &self.formats[usize::from(self.format_current & 0x0F)]
    }

    /// The structure of CNS 0Ah: what any namespace of this format would have. Fields of one namespace are zero.
    #[must_use]
    pub fn of_format(self) -> KvNamespace {
        KvNamespace {
            size_bytes: U64::ZERO,
            used_bytes: U64::ZERO,
            attributes: 0,
            nguid: [0; 16],
            eui64: [0; 8],
            ..self
        }
    }
}

/// Namespace of the NVM command set (CNS 00h). Hosts read it for a KV namespace, too: SPDK and xNVMe consider
/// a namespace without NCAP inactive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KvNamespaceAsBlocks {
    /// 0: NSZE, blocks.
    pub size_blocks: U64,
    /// 8: NCAP, blocks.
    pub capacity_blocks: U64,
    /// 16: NUSE, blocks.
    pub used_blocks: U64,
    /// 24: NSFEAT to byte 127.
    pub reserved_24: [u8; 104],
    /// 128: LBAF0.MS, bytes of metadata.
    pub metadata_bytes: U16,
    /// 130: LBAF0.LBADS, bytes of a block as a power of two.
    pub block_log2: u8,
    /// 131: the other formats, vendor specific.
    pub reserved_131: [u8; 3965],
}

/// Namespace, independent of its command set (CNS 08h). Linux shows no KV namespace without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IndependentNamespace {
    /// 0: NSFEAT.
    pub features: u8,
    /// 1: NMIC, sharing between controllers.
    pub sharing: u8,
    /// 2: RESCAP.
    pub reservations: u8,
    /// 3: FPI.
    pub format_progress: u8,
    /// 4: ANAGRPID.
    pub ana_group: U32,
    /// 8: NSATTR; bit 0, write protected.
    pub attributes: u8,
    /// 9.
    pub reserved_9: u8,
    /// 10: NVMSETID.
    pub nvm_set: U16,
    /// 12: ENDGID.
    pub endurance_group: U16,
    /// 14: NSTAT; bit 0, NRDY: it is ready.
    pub status: u8,
    /// 15.
    pub reserved_15: [u8; 4081],
}

/// KV controller (CNS 06h, CSI 01h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KvController {
    /// Version of the KV command set: major in bits 31:16, minor in bits 15:8.
    pub version: U32,
    /// Zero.
    pub reserved_4: [u8; 4092],
}

impl KvController {
    /// KV command set 1.3.
    pub const VERSION_1_3: u32 = 0x0001_0300;
}

/// Controller (CNS 01h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Controller {
    /// 0: VID, PCI vendor.
    pub pci_vendor: U16,
    /// 2: SSVID, PCI subsystem vendor.
    pub pci_subsystem_vendor: U16,
    /// 4: SN, ASCII padded with spaces ([`ascii_padded`]).
    pub serial: [u8; 20],
    /// 24: MN, ASCII padded with spaces.
    pub model: [u8; 40],
    /// 64: FR, ASCII padded with spaces.
    pub firmware: [u8; 8],
    /// 72: RAB, recommended arbitration burst, a power of two.
    pub arbitration_burst: u8,
    /// 73: IEEE OUI of the vendor.
    pub oui: [u8; 3],
    /// 76: CMIC: bit 0, the subsystem may have more than one port; bit 1, more than one controller.
    pub multipath: u8,
    /// 77: MDTS, most data a command moves: 4096 bytes times 2 to this; 0 for no limit.
    pub transfer_max_log2: u8,
    /// 78: CNTLID, the identifier that Connect answered.
    pub controller_id: U16,
    /// 80: VER, version of the base specification: major 31:16, minor 15:8.
    pub version: U32,
    /// 84: RTD3R and RTD3E, microseconds to resume from and enter D3.
    pub runtime_d3_us: [U32; 2],
    /// 92: OAES, optional asynchronous events; bit 8, namespace attributes.
    pub async_events: U32,
    /// 96: CTRATT; bit 0, 128-bit host identifier.
    pub attributes: U32,
    /// 100 to 110.
    pub reserved_100: [u8; 11],
    /// 111: CNTRLTYPE; 1 for I/O, 2 for discovery.
    pub controller_type: u8,
    /// 112: FGUID and reserved.
    pub reserved_112: [u8; 144],
    /// 256: OACS, optional admin commands.
    pub admin_commands: U16,
    /// 258: ACL, Abort commands outstanding, 0's based.
    pub aborts_z: u8,
    /// 259: AERL, Asynchronous Event Requests outstanding, 0's based.
    pub async_requests_z: u8,
    /// 260: FRMW, firmware slots.
    pub firmware_slots: u8,
    /// 261: LPA; bit 1, effects log; bit 2, offsets in Get Log Page.
    pub log_attributes: u8,
    /// 262: ELPE, error log entries, 0's based.
    pub error_entries_z: u8,
    /// 263: NPSS, power states, 0's based.
    pub power_states_z: u8,
    /// 264 to 319.
    pub reserved_264: [u8; 56],
    /// 320: KAS, keep-alive granularity in units of 100 ms; Linux insists on non-zero.
    pub keep_alive_100ms: U16,
    /// 322 to 511.
    pub reserved_322: [u8; 190],
    /// 512: SQES, entry size as a power of two: largest in 7:4, required in 3:0. 66h for 64 bytes.
    pub sqe_log2: u8,
    /// 513: CQES, likewise. 44h for 16 bytes.
    pub cqe_log2: u8,
    /// 514: MAXCMD, most outstanding commands.
    pub commands_max: U16,
    /// 516: NN, largest namespace identifier.
    pub namespaces: U32,
    /// 520: ONCS, optional commands.
    pub optional_commands: U16,
    /// 522: FUSES, fused operations.
    pub fused: U16,
    /// 524: FNA, format attributes.
    pub format_attributes: u8,
    /// 525: VWC; bit 0, volatile write cache present.
    pub volatile_cache: u8,
    /// 526 to 535.
    pub reserved_526: [u8; 10],
    /// 536: SGLS; bit 0, SGLs supported; bit 20, offsets in data blocks.
    pub sgl: U32,
    /// 540: MNAN, most namespaces that may be active.
    pub namespaces_max: U32,
    /// 544 to 767.
    pub reserved_544: [u8; 224],
    /// 768: SUBNQN, UTF-8, zero padded.
    pub subsystem_nqn: [u8; 256],
    /// 1024 to 1791.
    pub reserved_1024: [u8; 768],
    /// 1792: IOCCSZ, command capsule in units of 16 bytes: the entry and its in-capsule data.
    pub command_capsule_16b: U32,
    /// 1796: IORCSZ, response capsule in units of 16 bytes.
    pub response_capsule_16b: U32,
    /// 1800: ICDOFF, offset of in-capsule data in units of 16 bytes; Linux insists on 0.
    pub in_capsule_offset_16b: U16,
    /// 1802: FCATTR, fabrics attributes.
    pub fabrics_attributes: u8,
    /// 1803: MSDBD, most data block descriptors in a command; 0 for no limit.
    pub descriptors_max: u8,
    /// 1804 to 3071: reserved, power states.
    pub reserved_1804: [u8; 1268],
    /// 3072: vendor specific.
    pub vendor: [u8; 1024],
}

/// `text` in a field of `N` bytes, padded with spaces and cut at the end; characters that are not printable
/// ASCII become question marks (NVMe base specification: SN, MN and FR are ASCII strings).
#[must_use]
pub fn ascii_padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (byte, letter) in field.iter_mut().zip(text.chars()) {
        *byte = if matches!(letter, ' '..='~') { letter as u8 } else { b'?' };
    }
    field
}

/// Type of a namespace identification descriptor.
pub mod nidt {
    /// EUI64, 8 bytes.
    pub const EUI64: u8 = 1;
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// Command set identifier, 1 byte. Hosts ignore a namespace without it.
    pub const CSI: u8 = 4;
}

/// The namespace identification descriptors (CNS 03h) of a namespace of command set `csi`.
///
/// ```text
///  byte 0      1      2            4
///     +------+------+------------+------------+
///     | NIDT | NIDL | reserved 0 | NIDL bytes |   again and again; NIDL 0 ends the list
///     +------+------+------------+------------+
/// ```
///
/// NGUID and UUID are in the byte order in which they are written out.
#[must_use]
pub fn namespace_descriptors(csi: u8, nguid: [u8; 16], uuid: [u8; 16]) -> [u8; IDENTIFY_BYTES] {
    const HEADER_BYTES: usize = 4;
    let mut data = [0; IDENTIFY_BYTES];
    let mut at = 0;
    let csi = [csi];
    for (kind, id) in [(nidt::CSI, &csi[..]), (nidt::UUID, &uuid), (nidt::NGUID, &nguid)] {
        data[at] = kind;
        data[at + 1] = id.len() as u8;
        data[at + HEADER_BYTES..at + HEADER_BYTES + id.len()].copy_from_slice(id);
        at += HEADER_BYTES + id.len();
    }
    data
}

/// The identifier of type `kind` ([`nidt`]) in namespace identification descriptors from outside; `None`: there is none.
#[must_use]
pub fn namespace_descriptor(data: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = data;
    while let [nidt, bytes, _, _, after @ ..] = rest
        && *bytes > 0
    {
        let (id, behind) = after.split_at_checked(usize::from(*bytes))?;
        if *nidt == kind {
            return Some(id);
        }
        rest = behind;
    }
    None
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<KvFormat>() == 16);
    assert!(offset_of!(KvFormat, additional) == 3);
    assert!(offset_of!(KvFormat, value_max_bytes) == 4);
    assert!(offset_of!(KvFormat, keys_max) == 8);
};

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<KvNamespace>() == IDENTIFY_BYTES);
    assert!(offset_of!(KvNamespace, used_bytes) == 16);
    assert!(offset_of!(KvNamespace, features) == 24);
    assert!(offset_of!(KvNamespace, formats_z) == 25);
    assert!(offset_of!(KvNamespace, sharing) == 26);
    assert!(offset_of!(KvNamespace, reservations) == 27);
    assert!(offset_of!(KvNamespace, format_progress) == 28);
    assert!(offset_of!(KvNamespace, format_current) == 29);
    assert!(offset_of!(KvNamespace, optimal_value_bytes) == 32);
    assert!(offset_of!(KvNamespace, ana_group) == 36);
    assert!(offset_of!(KvNamespace, attributes) == 43);
    assert!(offset_of!(KvNamespace, nvm_set) == 44);
    assert!(offset_of!(KvNamespace, endurance_group) == 46);
    assert!(offset_of!(KvNamespace, nguid) == 48);
    assert!(offset_of!(KvNamespace, eui64) == 64);
    assert!(offset_of!(KvNamespace, formats) == 72);
    assert!(offset_of!(KvNamespace, reserved_328) == 328);
    assert!(offset_of!(KvNamespace, vendor) == 3840);
    assert!(size_of::<VendorNamespace>() == 256);
    assert!(offset_of!(VendorNamespace, features) == 8);
    assert!(offset_of!(VendorNamespace, batch_requests_z) == 10);
    assert!(offset_of!(VendorNamespace, batch_max_bytes) == 12);
    assert!(size_of::<KvController>() == IDENTIFY_BYTES);
    assert!(
        size_of::<KvNamespaceAsBlocks>() == IDENTIFY_BYTES
            && offset_of!(KvNamespaceAsBlocks, block_log2) == 130
    );
    assert!(size_of::<IndependentNamespace>() == IDENTIFY_BYTES);
    assert!(offset_of!(IndependentNamespace, attributes) == 8);
    assert!(offset_of!(IndependentNamespace, status) == 14);
};

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Controller>() == IDENTIFY_BYTES);
    assert!(offset_of!(Controller, serial) == 4);
    assert!(offset_of!(Controller, model) == 24);
    assert!(offset_of!(Controller, firmware) == 64);
    assert!(offset_of!(Controller, multipath) == 76);
    assert!(offset_of!(Controller, transfer_max_log2) == 77);
    assert!(offset_of!(Controller, controller_id) == 78);
    assert!(offset_of!(Controller, version) == 80);
    assert!(offset_of!(Controller, async_events) == 92);
    assert!(offset_of!(Controller, attributes) == 96);
    assert!(offset_of!(Controller, controller_type) == 111);
    assert!(offset_of!(Controller, admin_commands) == 256);
    assert!(offset_of!(Controller, aborts_z) == 258);
    assert!(offset_of!(Controller, async_requests_z) == 259);
    assert!(offset_of!(Controller, log_attributes) == 261);
    assert!(offset_of!(Controller, keep_alive_100ms) == 320);
    assert!(offset_of!(Controller, sqe_log2) == 512);
    assert!(offset_of!(Controller, cqe_log2) == 513);
    assert!(offset_of!(Controller, commands_max) == 514);
    assert!(offset_of!(Controller, namespaces) == 516);
    assert!(offset_of!(Controller, optional_commands) == 520);
    assert!(offset_of!(Controller, volatile_cache) == 525);
    assert!(offset_of!(Controller, sgl) == 536);
    assert!(offset_of!(Controller, namespaces_max) == 540);
    assert!(offset_of!(Controller, subsystem_nqn) == 768);
    assert!(offset_of!(Controller, command_capsule_16b) == 1792);
    assert!(offset_of!(Controller, response_capsule_16b) == 1796);
    assert!(offset_of!(Controller, in_capsule_offset_16b) == 1800);
    assert!(offset_of!(Controller, descriptors_max) == 1803);
    assert!(offset_of!(Controller, vendor) == 3072);
};
