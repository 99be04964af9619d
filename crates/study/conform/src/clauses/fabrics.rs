//! What hosts on a network look at before they use a namespace.

use kvdrive_nvme::{Status, property};

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure};
use crate::target::Fabric;

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Fabrics, section, id, asks, check)
}

pub(super) static CLAUSES: &[Clause] = &[
    row("B 3.1.3.1", "cap-command-sets", "CAP.CSS bit 6: I/O command sets", command_sets)
        .who("without it Linux and SPDK use the NVM set only, and Linux shows no KV namespace"),
    row("B 3.1.3.6", "ready", "CSTS.RDY after CC.EN", ready),
    row("B 5.17.2", "controller-id", "CNTLID of Identify is that of Connect", controller_id)
        .who("Linux refuses another one"),
    row("B 5.17.2", "keep-alive", "KAS is not 0", keep_alive).who("Linux refuses a controller without it"),
    row("B 5.17.2", "capsules", "IOCCSZ is at least 4, IORCSZ at least 1, ICDOFF 0", capsules)
        .who("Linux refuses another ICDOFF"),
    row("B 5.17.2", "sgl", "SGLS says that SGLs are supported", sgl)
        .who("Linux refuses a controller without them"),
    row("B 5.17.2", "subsystem-nqn", "SUBNQN is the name that the host connected to", name),
    row("B 6.3", "property-unknown", "Property Get of an unknown offset fails", unknown)
        .who("kvdrive and Linux' target: 02h; SPDK's target: 182h"),
    row("B 3.1.3", "discovery", "discovery at the address reports the subsystem", discovery)
        .who("xNVMe's kvs reaches a target only through it"),
];

/// What a fabric says.
fn fabric<'a>(ask: &'a mut Ask<'_>) -> Result<&'a mut dyn Fabric, Why> {
    let none = || Why::NotOffered("there is no fabric between this host and the controller".to_owned());
    ask.target().fabric().ok_or_else(none)
}

fn property(ask: &mut Ask<'_>, offset: u32, wide: bool) -> Result<u64, Why> {
    let (status, value) = fabric(ask)?.property(offset, wide)?;
    ensure(status.is_success(), || format!("Property Get {offset:02X}h: {status}"))?;
    Ok(value)
}

fn command_sets(ask: &mut Ask<'_>) -> Outcome {
    let cap = property(ask, property::CAP, true)?;
    ensure(cap >> 43 & 1 == 1, || format!("CAP is {cap:016X}h; bit 43 is clear"))?;
    pass()
}

fn ready(ask: &mut Ask<'_>) -> Outcome {
    let csts = property(ask, property::CSTS, false)?;
    ensure(csts & 0b11 == 1, || format!("CSTS is {csts:08X}h; expected RDY and not CFS"))?;
    pass()
}

fn controller_id(ask: &mut Ask<'_>) -> Outcome {
    let connected = fabric(ask)?.controller_id();
    let told = ask.facts.controller.controller_id.get();
    // A clause before may have ended the controller of the facts.
    let page = ask.identified(kvdrive_nvme::identify::cns::CONTROLLER, 0, 0)?;
    let now = u16::from_le_bytes([page[78], page[79]]);
    ensure(now == connected, || format!("Identify: {now} ({told} at first), Connect: {connected}"))?;
    pass()
}

fn keep_alive(ask: &mut Ask<'_>) -> Outcome {
    fabric(ask)?;
    ensure(ask.facts.controller.keep_alive_100ms.get() > 0, || "KAS is 0".to_owned())?;
    pass()
}

fn capsules(ask: &mut Ask<'_>) -> Outcome {
    fabric(ask)?;
    let of = &ask.facts.controller;
    let (command, response) = (of.command_capsule_16b.get(), of.response_capsule_16b.get());
    let offset = of.in_capsule_offset_16b.get();
    ensure(command >= 4 && response >= 1 && offset == 0, || {
        format!("IOCCSZ {command}, IORCSZ {response}, ICDOFF {offset}")
    })?;
    Ok(format!("{} B of data in a capsule", (command - 4) * 16))
}

fn sgl(ask: &mut Ask<'_>) -> Outcome {
    fabric(ask)?;
    let sgl = ask.facts.controller.sgl.get();
    ensure(sgl & 0b11 != 0, || format!("SGLS is {sgl:08X}h"))?;
    pass()
}

fn name(ask: &mut Ask<'_>) -> Outcome {
    let connected = fabric(ask)?.nqn().to_owned();
    let told = String::from_utf8_lossy(&ask.facts.controller.subsystem_nqn);
    let told = told.trim_end_matches('\0');
    ensure(told == connected, || format!("SUBNQN is {told:?}; connected to {connected:?}"))?;
    pass()
}

fn unknown(ask: &mut Ask<'_>) -> Outcome {
    let (status, _) = fabric(ask)?.property(0x1300, false)?;
    ensure(status != Status::SUCCESS, || "it succeeded".to_owned())?;
    Ok(format!("answered with {status}"))
}

fn discovery(ask: &mut Ask<'_>) -> Outcome {
    let fabric = fabric(ask)?;
    let nqn = fabric.nqn().to_owned();
    let found = match fabric.discovered() {
        Ok(found) => found,
        Err(lost) => return Err(Why::NotOffered(format!("no discovery at this address: {lost}"))),
    };
    ensure(found.contains(&nqn), || format!("it reports {}", found.join(", ")))?;
    pass()
}
