//! The admin command set of a controller. Crate `admin` makes the pages; this module adds state that a subsystem has
//! and a drive does not: the connected hosts, and commands that wait.

use kvdrive_admin::feature::is_of_namespace;
use kvdrive_admin::log::{self, Sources, TEMPERATURE_K};
use kvdrive_admin::{
    Capsules, ControllerKind, FeatureChange, IdentifyAnswer, Limits, LogAnswer, Namespace, identify,
};
use kvdrive_nvme::discovery::{DiscoveryEntry, DiscoveryHeader};
use kvdrive_nvme::fabrics::{ANY_CONTROLLER, DISCOVERY_NQN, nqn_field};
use kvdrive_nvme::feature::{self, event};
use kvdrive_nvme::identify::{CSI_KV, CSI_NVM, IDENTIFY_BYTES, ascii_padded, cns};
use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::nvm;
use kvdrive_nvme::opcode::{self, Direction, admin};
use kvdrive_nvme::{Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::Subsystem;
use super::connect::ADMIN_ENTRIES_MAX;
use super::controller::{Controller, Transport};
use super::nqn::as_uuid;
use super::served::opcode_place;
use super::step::{Page, PendingPage, Step};
use crate::buffer::Buffer;
use crate::namespace::{Completion, Identity, Refreshable, Tag};

/// Admin commands in addition to those that every controller has.
const ADMIN: [u8; 3] = [admin::ABORT, admin::ASYNC_EVENT_REQUEST, admin::KEEP_ALIVE];
/// Admin commands of a PCI function in addition to those that every controller has.
const ADMIN_OF_FUNCTION: [u8; 6] = [
    admin::DELETE_IO_SQ,
    admin::CREATE_IO_SQ,
    admin::DELETE_IO_CQ,
    admin::CREATE_IO_CQ,
    admin::ABORT,
    admin::ASYNC_EVENT_REQUEST,
];
/// I/O commands that are not available over a network: they need windows into the drive, a queue in memory,
/// or whole pages there.
pub const NOT_OVER_NETWORKS: [u8; 3] = [opcode::CXL_STORE, opcode::EXPRESS, opcode::HYBRID];
/// NMIC bit 0: the namespace may be attached to several controllers.
const SHARED: u8 = 1;
/// NMIC is byte 30 of Identify of a namespace of blocks.
const NMIC_IN_27: usize = 3;
/// SGLS bit 0: SGLs with any alignment; bit 20: offsets into the capsule. Linux requires bit 0 or 1.
const SGL: u32 = 1 | 1 << 20;
/// The same of a PCI function: bit 18: the list may name more memory than there are data.
const SGL_OF_FUNCTION: u32 = 1 | 1 << 18;

impl Subsystem {
    /// Runs an admin command of the controller at `index`, which is ready.
    pub(super) fn admin(
        &mut self,
        index: usize,
        tag: Tag,
        sqe: &Sqe,
        data: &mut Buffer,
    ) -> Result<Step, Status> {
        let kind = self.controller(index)?.kind;
        match sqe.opcode {
            admin::IDENTIFY => self.identify(index, sqe, data),
            admin::GET_LOG_PAGE => self.get_log_page(index, sqe, data),
            admin::KEEP_ALIVE => Ok(Step::SUCCESS),
            admin::ASYNC_EVENT_REQUEST => {
                let parked = self.controller(index)?.events.park((tag.slot, sqe.cid.get()));
                parked.map(|()| Step::Parked).map_err(|(_, status)| status)
            }
            admin::SET_FEATURES | admin::GET_FEATURES
                if kind == ControllerKind::Io && is_of_namespace(sqe) =>
            {
                let is_set = sqe.opcode == admin::SET_FEATURES;
                let all_refused = (!is_set).then_some(Status::INVALID_FIELD);
                self.pass_on(sqe, self.named(sqe.nsid.get(), all_refused)?)
            }
            admin::FORMAT if kind == ControllerKind::Io && self.options.allow_format => {
                self.pass_on(sqe, self.named(sqe.nsid.get(), None)?)
            }
            admin::SET_FEATURES => self.set_feature(index, sqe),
            admin::GET_FEATURES => self.get_feature(index, sqe, data),
            admin::ABORT if kind == ControllerKind::Io => self.abort(index, sqe),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    pub(super) fn controller(&mut self, index: usize) -> Result<&mut Controller, Status> {
        self.controllers[index].as_mut().ok_or(Status::INTERNAL)
    }

    /// Calls `told` with the controller at `index`, as the subsystem has it and as crate `admin` describes
    /// it.
    fn tell<T>(
        &self,
        index: usize,
        told: impl FnOnce(&Controller, &kvdrive_admin::Controller<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let controller = self.controllers[index].as_ref().ok_or(Status::INTERNAL)?;
        let namespaces: Vec<Namespace> = self.described().collect();
        let (is_io, options) = (controller.kind == ControllerKind::Io, &self.options);
        let (admin_commands, sgl, capsules, transfer_max_bytes): (&[u8], _, _, _) = match controller.transport
        {
            Transport::Fabric => {
                let data_bytes = if is_io { options.in_capsule_bytes } else { 0 };
                (&ADMIN, SGL, Some(Capsules { data_bytes }), options.transfer_max_bytes)
            }
            Transport::Pcie => (&ADMIN_OF_FUNCTION, SGL_OF_FUNCTION, None, options.whole_max_bytes()),
        };
        // A command that moves blocks does so with memory for all of them; only values are divided.
        let has_blocks = namespaces.iter().any(|namespace| namespace.command_set == CSI_NVM);
        let (transfer_max_bytes, optional_commands) = match has_blocks {
            true => (options.whole_max_bytes(), nvm::OPTIONAL_COMMANDS),
            false => (transfer_max_bytes, 0),
        };
        let formats = (is_io && options.allow_format).then_some(admin::FORMAT);
        let admin_commands: Vec<u8> = admin_commands.iter().copied().chain(formats).collect();
        told(
            controller,
            &kvdrive_admin::Controller {
                kind: controller.kind,
                id: index as u16 + 1,
                serial: &format!("{:016X}", self.identifier(0) as u64),
                nqn: Some(if is_io { &options.nqn } else { DISCOVERY_NQN }),
                transfer_max_log2: (transfer_max_bytes / 4096).trailing_zeros() as u8,
                sgl,
                commands_max: options.queue_entries_max.min(u32::from(u16::MAX)) as u16,
                admin_commands: &admin_commands,
                refused: &NOT_OVER_NETWORKS,
                optional_commands,
                capsules,
                async_requests: kvdrive_admin::event::REQUESTS_MAX as u8,
                async_events: if is_io { event::NAMESPACE_ATTRIBUTES } else { event::DISCOVERY_LOG },
                namespaces: &namespaces,
            },
        )
    }

    /// The namespaces as crate `admin` describes them to hosts.
    fn described(&self) -> impl Iterator<Item = Namespace> {
        self.namespaces.iter().map(|(nsid, namespace)| {
            let (id, identity) = (self.identifier(u64::from(*nsid)).to_be_bytes(), namespace.identity());
            Namespace {
                nsid: *nsid,
                command_set: identity.command_set(),
                nguid: id,
                uuid: as_uuid(id),
                sharing: SHARED,
                attributes: identity.attributes(),
                size_bytes: identity.size_bytes(),
                used_bytes: identity.used_bytes(),
            }
        })
    }

    fn identify(&self, index: usize, sqe: &Sqe, data: &mut Buffer) -> Result<Step, Status> {
        let Some(to) = data.get_mut(..IDENTIFY_BYTES) else { return Err(Status::SGL_LENGTH_INVALID) };
        match self.tell(index, |_, of| identify(of, sqe))? {
            IdentifyAnswer::OfNamespace(nsid) => {
                let page = Page::Identity(sqe.cdw10.get() as u8);
                Ok(Step::Refresh(PendingPage { rest: vec![nsid], page }))
            }
            IdentifyAnswer::Page(page) => {
                to.copy_from_slice(&page);
                Ok(Step::Done { dw0: 0, data_bytes: IDENTIFY_BYTES })
            }
        }
    }

    /// The namespaces that an admin command names, in reverse order; FFFFFFFFh is all of them, unless that is refused
    /// with a status.
    fn named(&self, nsid: u32, all_refused: Option<Status>) -> Result<Vec<u32>, Status> {
        match (nsid, all_refused) {
            (u32::MAX, Some(status)) => Err(status),
            (u32::MAX, None) => Ok(self.namespaces.keys().rev().copied().collect()),
            (nsid, _) if self.namespaces.contains_key(&nsid) => Ok(vec![nsid]),
            _ => Err(Status::INVALID_NAMESPACE),
        }
    }

    /// Has these namespaces answer a command themselves, one after the other; success without any.
    fn pass_on(&self, sqe: &Sqe, rest: Vec<u32>) -> Result<Step, Status> {
        if rest.is_empty() {
            return Ok(Step::SUCCESS);
        }
        Ok(Step::Refresh(PendingPage { rest, page: Page::Command(*sqe) }))
    }

    /// Asks the next namespace of a question.
    pub(super) fn ask(&mut self, tag: Tag, pending: PendingPage, data: Buffer) {
        let nsid = pending.rest.last().expect("a page is pending for a namespace");
        let namespace = self.namespaces.get_mut(nsid).expect("namespaces stay");
        match &pending.page {
            Page::Identity(_) => namespace.look(Refreshable::Identity, tag, data),
            Page::Health(_) => namespace.look(Refreshable::Health, tag, data),
            Page::Command(sqe) => namespace.admin(tag, sqe, data),
        }
        self.pending_pages.push((tag, pending));
    }

    /// A namespace has answered: continues with the next namespace, or makes the answer.
    pub(super) fn conclude(
        &mut self,
        tag: Tag,
        mut pending: PendingPage,
        mut completion: Completion,
    ) -> Option<Completion> {
        if !completion.status.is_success() {
            if let Page::Command(sqe) = &pending.page {
                self.note_failure(0, sqe.cid.get(), &completion);
            }
            return Some(completion);
        }
        let nsid = pending.rest.pop().expect("a namespace was asked");
        if !pending.rest.is_empty() {
            self.ask(tag, pending, completion.data);
            return None;
        }
        let told = match pending.page {
            Page::Identity(structure) => self
                .identity_of(nsid, structure)
                .and_then(|page| fill(&mut completion.data, &page, IDENTIFY_BYTES)),
            Page::Health(request) => fill_part(&mut completion.data, self.health().as_bytes(), &request),
            Page::Command(_) => return Some(completion),
        };
        match told {
            Ok(data_bytes) => Some(Completion { data_bytes, ..completion }),
            Err(status) => Some(Completion::failed(tag, status, completion.data)),
        }
    }

    /// The Identify data that a namespace reports in this structure, with the fields that the subsystem determines: its
    /// identifier, that it is shared, and the largest value, which is limited to the bytes that one command can move.
    fn identity_of(&self, nsid: u32, structure: u8) -> Result<Vec<u8>, Status> {
        let nguid = self.identifier(u64::from(nsid)).to_be_bytes();
        match *self.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)?.identity() {
            Identity::Pairs(mut identity) => {
                (identity.nguid, identity.sharing) = (nguid, SHARED);
                let limit_bytes = self.options.transfer_max_bytes;
                for format in &mut identity.formats {
                    format.value_max_bytes.set(format.value_max_bytes.get().min(limit_bytes));
                }
                let identity = if structure == cns::CSI_FORMAT { identity.of_format() } else { identity };
                Ok(identity.as_bytes().to_vec())
            }
            Identity::Blocks(mut identity) if structure == cns::NAMESPACE => {
                identity.nguid = nguid;
                identity.reserved_27[NMIC_IN_27] = SHARED;
                Ok(identity.as_bytes().to_vec())
            }
            // The NVM command set adds nothing that a drive supports.
            Identity::Blocks(_) => Ok(vec![0; IDENTIFY_BYTES]),
        }
    }

    fn get_log_page(&mut self, index: usize, sqe: &Sqe, data: &mut Buffer) -> Result<Step, Status> {
        let request = LogRequest::of(sqe);
        if request.page == lid::HEALTH && self.controller(index)?.kind == ControllerKind::Io {
            // A controller has one page of health, which covers all namespaces, whichever one the request
            // names.
            let rest: Vec<u32> = self.namespaces.keys().copied().collect();
            if !rest.is_empty() {
                // A request that is not valid fails before any namespace looks.
                fill_part(data, Health::new_zeroed().as_bytes(), &request)?;
                return Ok(Step::Refresh(PendingPage { rest, page: Page::Health(request) }));
            }
        }
        let told = self.tell(index, |controller, of| {
            controller.logs.page(of, &request, &SourcesOf { subsystem: self, controller })
        })?;
        let page = match told {
            LogAnswer::Page(page) => page,
            LogAnswer::OfNamespace => {
                let of_first = || Ok(self.namespaces.keys().next().copied().into_iter().collect());
                let rest = match sqe.nsid.get() {
                    // The page of all is that of the first one.
                    0 | u32::MAX => of_first(),
                    nsid => self.named(nsid, None),
                };
                return self.pass_on(sqe, rest?);
            }
        };
        let data_bytes = fill_part(data, &page, &request)?;
        if !request.retain_event {
            let controller = self.controller(index)?;
            controller.events.note_read(request.page);
            if request.page == lid::CHANGED_NAMESPACES {
                controller.logs.changed_namespaces.clear();
            }
        }
        Ok(Step::Done { dw0: 0, data_bytes })
    }

    /// Health of the drives, with counts of the bytes that hosts have read and written.
    fn health(&self) -> Health {
        let served = &self.served;
        let mut answer = Health::new_zeroed();
        answer.temperature_k.set(TEMPERATURE_K);
        answer.spare_percent = 100;
        for drive in self.namespaces.values().map(|namespace| namespace.health()) {
            answer.warnings |= drive.warnings;
            answer.spare_percent = answer.spare_percent.min(drive.spare_percent);
            answer.spare_threshold_percent =
                answer.spare_threshold_percent.max(drive.spare_threshold_percent);
            answer.media_errors[0] += drive.media_errors[0];
        }
        answer.read_512k[0].set(served.read_bytes.div_ceil(512_000));
        answer.written_512k[0].set(served.written_bytes.div_ceil(512_000));
        let count = |direction| -> u64 {
            let of = |row: &&(u8, &str, Direction)| row.2 == direction;
            let rows = opcode::IO_TABLE.iter().filter(of);
            let both = |row: &(u8, &str, Direction)| [CSI_KV, CSI_NVM].map(|set| opcode_place(row.0, set));
            rows.flat_map(both).map(|place| served.io_commands[usize::from(place)]).sum()
        };
        answer.read_commands[0].set(count(Direction::ToHost));
        answer.write_commands[0].set(count(Direction::ToDrive));
        answer
    }

    /// The discovery entry of this subsystem, at the address that the host used. It does not change while the server
    /// runs, so hosts that ask for notices of changes get none.
    fn discovery(&self, controller: &Controller) -> Vec<u8> {
        let mut header = DiscoveryHeader::new_zeroed();
        header.generation.set(1);
        header.entries.set(1);
        let at = &controller.reached_at;
        let mut entry = DiscoveryEntry::empty();
        entry.transport = at.transport;
        entry.address_family = at.family;
        entry.subsystem_type = DiscoveryEntry::NVM_SUBSYSTEM;
        (entry.requirements, entry.transport_specific[0]) = if at.is_secure {
            (DiscoveryEntry::SECURE_REQUIRED, DiscoveryEntry::TLS_1_3)
        } else {
            // TREQ is not "not required": nvme-cli 2.3 then asks its kernel for TLS, and a kernel without TLS
            // refuses.
            (DiscoveryEntry::SECURE_NOT_SPECIFIED, DiscoveryEntry::NO_TLS)
        };
        entry.port_id.set(1);
        entry.controller_id.set(ANY_CONTROLLER);
        entry.admin_entries_max.set(ADMIN_ENTRIES_MAX as u16);
        entry.service = ascii_padded(&at.service);
        entry.address = ascii_padded(&at.address);
        entry.subsystem_nqn = nqn_field(&self.options.nqn).unwrap_or([0; 256]);
        [header.as_bytes(), entry.as_bytes()].concat()
    }

    fn set_feature(&mut self, index: usize, sqe: &Sqe) -> Result<Step, Status> {
        let io_queues_max = self.options.io_queues_max;
        let controller = self.controllers[index].as_mut().ok_or(Status::INTERNAL)?;
        let has_io_queues = controller.io.iter().any(Option::is_some);
        let limits = Limits { kind: controller.kind, io_queues_max, has_io_queues };
        let change = controller.features.wanted(sqe, limits)?;
        match change {
            FeatureChange::Queues(granted_z) => controller.io = vec![None; usize::from(granted_z) + 1],
            FeatureChange::Events(_) | FeatureChange::KeepAlive(_) | FeatureChange::Kept { .. } => {}
        }
        Ok(Step::Done { dw0: controller.features.keep(change), data_bytes: 0 })
    }

    fn get_feature(&mut self, index: usize, sqe: &Sqe, data: &mut Buffer) -> Result<Step, Status> {
        let controller = self.controller(index)?;
        if sqe.cdw10.get() as u8 == feature::HOST_ID {
            let id = controller.host_id;
            let to = data.get_mut(..id.len()).ok_or(Status::SGL_LENGTH_INVALID)?;
            to.copy_from_slice(&id);
            return Ok(Step::Done { dw0: 0, data_bytes: id.len() });
        }
        let dw0 = controller.features.get(sqe, controller.kind)?;
        Ok(Step::Done { dw0, data_bytes: 0 })
    }
}

/// What a controller of a subsystem knows for its log pages.
struct SourcesOf<'a> {
    subsystem: &'a Subsystem,
    controller: &'a Controller,
}

impl Sources for SourcesOf<'_> {
    fn health(&self) -> Health {
        self.subsystem.health()
    }

    fn discovery(&self) -> Vec<u8> {
        self.subsystem.discovery(self.controller)
    }
}

/// Copies `page` to the front of `data`, which has room for at least `room_bytes`.
fn fill(data: &mut Buffer, page: &[u8], room_bytes: usize) -> Result<usize, Status> {
    let to = data.get_mut(..room_bytes).ok_or(Status::SGL_LENGTH_INVALID)?;
    to[..page.len()].copy_from_slice(page);
    to[page.len()..].fill(0);
    Ok(room_bytes)
}

/// Copies the part of `page` that `request` asks for into `data`.
fn fill_part(data: &mut Buffer, page: &[u8], request: &LogRequest) -> Result<usize, Status> {
    let part = log::part(page, request)?;
    fill(data, &part, part.len())
}
