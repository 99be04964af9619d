//! Identify data of a KV namespace and its controller.

use kvdrive_nvme::identify::{CSI_KV, IndependentNamespace, KvNamespaceAsBlocks, cns, nidt};
use kvdrive_nvme::{Key, Status};
use zerocopy::FromBytes;

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, is, is_one, same};

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Identify, section, id, asks, check)
}

pub(super) static CLAUSES: &[Clause] = &[
    row("B 5.17.2", "command-sets", "CNS 1Ch: a combination of command sets includes KV", command_sets),
    row("B 5.17.2", "active-list", "CNS 02h and 07h list the namespace", active),
    row("B 5.17.2", "descriptor-of-set", "CNS 03h has a descriptor of command set 1", descriptor),
    row("B 5.17.2", "independent", "CNS 08h: same NMIC, NSATTR as CNS 05h, and NRDY", independent)
        .who("Linux shows no /dev/ngXnY without CNS 08h and NRDY"),
    row("-", "as-blocks", "CNS 00h succeeds and NCAP is not 0", as_blocks)
        .who("SPDK and xNVMe take a namespace without it for inactive; no specification asks for it"),
    row("4.1.5.1", "size-and-use", "NSZE is not 0, NUSE is at most NSZE", size_and_use),
    row("4.1.5.1", "format-count", "NKVF is 0's based: formats 0 to NKVF are there, no others", format_count).who(
        "SPDK (KV 1.3): 0's based, as specified; QEMU's KV device and xNVMe: a count, so that one format is told as 1",
    ),
    row("4.1.5.1", "format-current", "KVFC names a format that exists", format_current)
        .who("reserved before KV 1.3; SPDK reads it"),
    row("4.1.5.1", "format-key", "KVKML of each format is 1 to 16", format_key),
    row("4.1.5.1", "format-value", "KVVML of each format is not 0", format_value),
    row("4.1.5.1", "format-reserved", "reserved bytes of formats are 0", format_reserved),
    row("4.1.5.1", "reserved", "bytes 15:8, 42:40 and 3839:328 are 0", reserved),
    row("4.1.5.1", "nguid", "NGUID is that of CNS 03h, if both tell one", nguid),
    row("4.1.5.2", "controller-of-set", "CNS 06h of command set 1 succeeds", controller)
        .who("1.0d: zeros; later: a version in bytes 3:0, which SPDK reads"),
    row("B 5.17.2", "by-format", "CNS 0Ah: format 0 is that of CNS 05h, none beyond NKVF", by_format)
        .who("FEMU has it; QEMU's KV device does not"),
    row("B 5.17.2", "no-such-namespace", "CNS 05h of NSID FFFFFFFEh: Invalid Namespace (0Bh)", no_namespace),
    row("B 5.17.2", "no-such-structure", "an unknown CNS: Invalid Field (02h)", no_structure),
    row("-", "value-and-mdts", "KVVML is not above MDTS", value_and_mdts)
        .who("KV has no offsets, so a larger value cannot be moved; Linux refuses it in the host, SPDK does not look"),
];

fn command_sets(ask: &mut Ask<'_>) -> Outcome {
    let page = ask.identified(cns::COMMAND_SETS, 0, u32::from(u16::MAX))?;
    let has_kv = page.chunks_exact(8).any(|vector| vector[0] & 1 << CSI_KV != 0);
    ensure(has_kv, || "bit 1 of no combination is set".to_owned())?;
    pass()
}

fn active(ask: &mut Ask<'_>) -> Outcome {
    let nsid = ask.nsid();
    for (structure, csi) in [(cns::ACTIVE_NAMESPACES, 0), (cns::CSI_ACTIVE_NAMESPACES, CSI_KV)] {
        // The list begins above the identifier that is named.
        let page = ask.identified(structure, csi, nsid - 1)?;
        let first = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
        ensure(first == nsid, || {
            format!("CNS {structure:02X}h after {}: {first}; expected {nsid}", nsid - 1)
        })?;
    }
    pass()
}

/// The descriptors of CNS 03h: type and bytes.
fn descriptors(ask: &mut Ask<'_>) -> Result<Vec<(u8, Vec<u8>)>, Why> {
    let page = ask.identified(cns::NAMESPACE_DESCRIPTORS, 0, ask.nsid())?;
    let (mut found, mut at) = (Vec::new(), 0);
    while at + 4 <= page.len() && page[at + 1] != 0 {
        let (kind, bytes) = (page[at], usize::from(page[at + 1]));
        let data = page.get(at + 4..at + 4 + bytes);
        let data = data.ok_or_else(|| Why::Fail(format!("the descriptor at {at} is cut off")))?;
        found.push((kind, data.to_vec()));
        at += 4 + bytes;
    }
    Ok(found)
}

fn descriptor(ask: &mut Ask<'_>) -> Outcome {
    let found = descriptors(ask)?;
    let csi = found.iter().find(|(kind, _)| *kind == nidt::CSI).map(|(_, data)| data.clone());
    let told = || format!("the descriptor of type 4 is {csi:02X?}; expected 01");
    ensure(csi.as_deref() == Some(&[CSI_KV]), told)?;
    pass()
}

fn independent(ask: &mut Ask<'_>) -> Outcome {
    let page = ask.identified(cns::INDEPENDENT_NAMESPACE, 0, ask.nsid())?;
    let page = IndependentNamespace::read_from_bytes(&page).expect("it has its size");
    let namespace = ask.namespace()?;
    ensure(page.sharing == namespace.sharing, || {
        format!("NMIC is {:02X}h, and {:02X}h in CNS 05h", page.sharing, namespace.sharing)
    })?;
    ensure(page.attributes == namespace.attributes, || {
        format!("NSATTR is {:02X}h, and {:02X}h in CNS 05h", page.attributes, namespace.attributes)
    })?;
    ensure(page.status & 1 == 1, || format!("NSTAT is {:02X}h; expected bit 0", page.status))?;
    pass()
}

fn as_blocks(ask: &mut Ask<'_>) -> Outcome {
    let page = ask.identified(cns::NAMESPACE, 0, ask.nsid())?;
    let page = KvNamespaceAsBlocks::read_from_bytes(&page).expect("it has its size");
    ensure(page.capacity_blocks.get() > 0, || "NCAP is 0".to_owned())?;
    pass()
}

fn size_and_use(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    let (size, used) = (namespace.size_bytes.get(), namespace.used_bytes.get());
    ensure(size > 0 && used <= size, || format!("NSZE {size} B, NUSE {used} B"))?;
    pass()
}

fn format_count(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    let last = usize::from(namespace.formats_z);
    ensure(last < namespace.formats.len(), || format!("NKVF is {last}; there are at most 16 formats"))?;
    let is_there = |format: usize| namespace.formats[format].key_max_bytes.get() > 0;
    let missing = (0..=last).find(|format| !is_there(*format));
    ensure(missing.is_none(), || {
        let format = missing.unwrap_or_default();
        format!("NKVF is {last}, and format {format} is empty: NKVF is a count here")
    })?;
    let more = (last + 1..namespace.formats.len()).find(|format| is_there(*format));
    ensure(more.is_none(), || {
        format!("NKVF is {last}, and format {} is not empty", more.unwrap_or_default())
    })?;
    pass()
}

fn format_current(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    let (current, last) = (namespace.format_current & 0xF, namespace.formats_z);
    ensure(current <= last, || format!("KVFC is {current}, NKVF {last}"))?;
    pass()
}

fn format_key(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    for format in formats(&namespace) {
        let most = format.key_max_bytes.get();
        ensure((1..=Key::IDENTITY_BYTES as u16).contains(&most), || format!("KVKML is {most}"))?;
    }
    pass()
}

fn format_value(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    let is_none = formats(&namespace).any(|format| format.value_max_bytes.get() == 0);
    ensure(!is_none, || "KVVML is 0".to_owned())?;
    pass()
}

fn format_reserved(ask: &mut Ask<'_>) -> Outcome {
    let namespace = ask.namespace()?;
    for format in formats(&namespace) {
        let is_clear =
            format.reserved_2 == 0 && format.additional & !0b11 == 0 && format.reserved_12 == [0; 4];
        ensure(is_clear, || format!("{format:02X?}"))?;
    }
    pass()
}

fn formats(
    namespace: &kvdrive_nvme::identify::KvNamespace,
) -> impl Iterator<Item = &kvdrive_nvme::identify::KvFormat> {
    namespace.formats.iter().take(usize::from(namespace.formats_z) + 1)
}

fn reserved(ask: &mut Ask<'_>) -> Outcome {
    let page = ask.identified(cns::CSI_NAMESPACE, CSI_KV, ask.nsid())?;
    for range in [8..16, 40..43, 328..3840] {
        let from = range.start;
        let at = page[range].iter().position(|byte| *byte != 0);
        ensure(at.is_none(), || format!("byte {} is not 0", from + at.unwrap_or_default()))?;
    }
    pass()
}

fn nguid(ask: &mut Ask<'_>) -> Outcome {
    let found = descriptors(ask)?;
    let namespace = ask.namespace()?;
    let told = found.into_iter().find(|(kind, _)| *kind == nidt::NGUID).map(|(_, data)| data);
    match told {
        Some(told) if namespace.nguid != [0; 16] => same(&told, &namespace.nguid, "NGUID")?,
        _ => return Err(Why::NotOffered("no NGUID in CNS 03h, or none in CNS 05h".to_owned())),
    }
    pass()
}

fn controller(ask: &mut Ask<'_>) -> Outcome {
    let page = ask.identified(cns::CSI_CONTROLLER, CSI_KV, 0)?;
    let version = u32::from_le_bytes(page[..4].try_into().expect("4 bytes"));
    Ok(match version {
        0 => "zeros, as of 1.0".to_owned(),
        _ => format!("KV {}.{}", version >> 16, version >> 8 & 0xFF),
    })
}

fn by_format(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.identify(cns::CSI_FORMAT, CSI_KV, ask.nsid())?;
    if !answer.status.is_success() {
        return Err(Why::NotOffered(format!("CNS 0Ah: {}", answer.status)));
    }
    let namespace = ask.namespace()?;
    let format = answer.data.get(72..88).unwrap_or_default();
    same(format, zerocopy::IntoBytes::as_bytes(&namespace.formats[0]), "KVF0")?;
    let mut sqe = kvdrive_nvme::Sqe::new(kvdrive_nvme::opcode::admin::IDENTIFY, 0, ask.nsid());
    sqe.cdw10.set(cns::CSI_FORMAT.into());
    sqe.cdw11.set((u32::from(CSI_KV) << 24) | (u32::from(namespace.formats_z) + 1));
    let beyond = ask.admin(sqe, crate::target::Data::In(4096))?;
    is(&beyond, Status::INVALID_FIELD, "the format after the last")?;
    pass()
}

fn no_namespace(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.identify(cns::CSI_NAMESPACE, CSI_KV, u32::MAX - 1)?;
    is_one(&answer, &[Status::INVALID_NAMESPACE, Status::INVALID_FIELD], "NSID FFFFFFFEh")?;
    if answer.status == Status::INVALID_FIELD { Ok("answered with 02h".to_owned()) } else { pass() }
}

fn no_structure(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.identify(0x7F, CSI_KV, ask.nsid())?;
    is(&answer, Status::INVALID_FIELD, "CNS 7Fh")?;
    pass()
}

fn value_and_mdts(ask: &mut Ask<'_>) -> Outcome {
    let (value, most) = (ask.facts.namespace.format().value_max_bytes.get(), ask.facts.transfer_max_bytes);
    ensure(u64::from(value) <= most, || format!("KVVML is {value} B, and a command moves {most}"))?;
    pass()
}
