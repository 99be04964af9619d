//! The data that Identify returns. A structure is a row of [`STRUCTURES`] and a file here; what independent hosts check in
//! them, and the effect of a missing value, is documented at the fields.

mod active;
mod controller;
mod descriptors;
mod independent;
mod namespace;
mod set_controller;
mod set_namespace;
mod sets;

use kvdrive_nvme::identify::{CSI_KV, cns};
use kvdrive_nvme::{Sqe, Status};

use crate::{Controller, ControllerKind};

/// An Identify structure.
pub struct StructureRow {
    /// CNS.
    pub cns: u8,
    /// Is it of a namespace that the command names? Otherwise the command names none.
    pub is_of_namespace: bool,
    /// Does a discovery controller have it, too?
    of_discovery: bool,
    page: fn(&Asked<'_>) -> Result<IdentifyAnswer, Status>,
}

const fn row(
    cns: u8,
    is_of_namespace: bool,
    page: fn(&Asked<'_>) -> Result<IdentifyAnswer, Status>,
) -> StructureRow {
    StructureRow { cns, is_of_namespace, of_discovery: cns == cns::CONTROLLER, page }
}

/// All structures, which every port answers.
pub static STRUCTURES: &[StructureRow] = &[
    row(cns::NAMESPACE, true, namespace::page),
    row(cns::CONTROLLER, false, controller::page),
    row(cns::ACTIVE_NAMESPACES, false, active::all),
    row(cns::NAMESPACE_DESCRIPTORS, true, descriptors::page),
    row(cns::CSI_NAMESPACE, true, set_namespace::page),
    row(cns::CSI_CONTROLLER, false, set_controller::page),
    row(cns::CSI_ACTIVE_NAMESPACES, false, active::of_set),
    row(cns::INDEPENDENT_NAMESPACE, true, independent::page),
    row(cns::CSI_FORMAT, false, set_namespace::format),
    row(cns::COMMAND_SETS, false, sets::page),
];

/// The answer to Identify.
pub enum IdentifyAnswer {
    /// The data.
    Page(Vec<u8>),
    /// The namespace itself must answer: CNS 05h and 0Ah, and CNS 00h of blocks.
    OfNamespace(u32),
}

/// A request, and what a structure is made of.
struct Asked<'a> {
    of: &'a Controller<'a>,
    nsid: u32,
    csi: u8,
    /// CNS specific identifier: the index of a format.
    format: u16,
}

/// Answers Identify.
///
/// # Errors
/// The command asks for something that does not exist.
pub fn identify(of: &Controller<'_>, sqe: &Sqe) -> Result<IdentifyAnswer, Status> {
    let (structure, specific) = (sqe.cdw10.get() as u8, sqe.cdw11.get());
    let is_there = |row: &&StructureRow| {
        row.cns == structure && (row.of_discovery || of.kind != ControllerKind::Discovery)
    };
    let row = STRUCTURES.iter().find(is_there).ok_or(Status::INVALID_FIELD)?;
    (row.page)(&Asked { of, nsid: sqe.nsid.get(), csi: (specific >> 24) as u8, format: specific as u16 })
}

impl Controller<'_> {
    /// Does it have namespaces of this command set? A controller without any may get some of pairs.
    pub(crate) fn has(&self, csi: u8) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|is| is.command_set == csi) || self.namespaces.is_empty() && csi == CSI_KV
    }
}
