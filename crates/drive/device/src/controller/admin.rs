//! Admin commands from an admin queue of the link: moves the answers of crate `admin` about this drive to the
//! host. The drive knows a host only by its admin queue, so features belong to one admin queue and end with
//! it, except for those of a namespace. Commands that wait are in [`super::waiting`].

use std::rc::Rc;

use kvdrive_admin::log::{self, Sources, TEMPERATURE_K};
use kvdrive_admin::queue::{self, There};
use kvdrive_admin::{
    ControllerKind, IdentifyAnswer, KeyValue, Limits, LogAnswer, Namespace, event, feature, format, identify,
};
use kvdrive_content::Region;
use kvdrive_flash::FlashPort;
use kvdrive_link::port::Queues;
use kvdrive_link::{Port, Request};
use kvdrive_nvme::feature::event as events;
use kvdrive_nvme::identify::CSI_NVM;
use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::queue::QueueCommand;
use kvdrive_nvme::{DRIVE_NSID, Sqe, Status, nvm, opcode, write_protection};
use zerocopy::FromZeros;

use super::{Controller, IO_QUEUES_MAX};
use crate::answers::{Answer, send};

/// The drive warns if fewer than this percentage of its spare blocks is left.
const SPARE_THRESHOLD_PERCENT: u8 = 10;
/// SGLs for I/O commands: supported, any alignment and granularity (SGLS bits 1:0 = 01b).
const SGL: u32 = 1;
/// Admin commands in addition to those that every controller has.
const ADMIN: [u8; 8] = [
    opcode::admin::DELETE_IO_SQ,
    opcode::admin::CREATE_IO_SQ,
    opcode::admin::DELETE_IO_CQ,
    opcode::admin::CREATE_IO_CQ,
    opcode::admin::ABORT,
    opcode::admin::ASYNC_EVENT_REQUEST,
    opcode::admin::KEEP_ALIVE,
    opcode::admin::FORMAT,
];
/// Dword 0 of the answer to Abort: the command was not aborted and completes by itself.
const NOT_ABORTED: u32 = 1;

impl<P: Port> Controller<P> {
    /// Answers an admin command that does not have to wait.
    pub(crate) fn admin(self: &Rc<Self>, request: &dyn Request) -> Answer {
        let sqe = request.sqe();
        match sqe.opcode {
            opcode::admin::IDENTIFY => {
                let page = self.tell(|of| identify(of, sqe))?;
                answer(
                    request,
                    match page {
                        IdentifyAnswer::Page(page) => page,
                        IdentifyAnswer::OfNamespace(_) => self.of_namespace(sqe)?,
                    },
                )
            }
            opcode::admin::GET_LOG_PAGE => self.log_page(request),
            opcode::admin::SET_FEATURES | opcode::admin::GET_FEATURES if feature::is_of_namespace(sqe) => {
                self.feature_of_namespace(sqe)
            }
            opcode::admin::SET_FEATURES => self.set_feature(request),
            opcode::admin::GET_FEATURES => {
                let mut queues = self.admin_queues.borrow_mut();
                let of = &queues.entry(request.session().number()).or_default().features;
                Ok((of.get(sqe, ControllerKind::Io)?, 0))
            }
            opcode::admin::ABORT => {
                let (queue, cid) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
                let is_ended = match queue {
                    0 => self.end_held(request.session().number(), cid),
                    _ => request.queues().is_some_and(|queues| queues.abort(queue, cid)),
                };
                Ok((if is_ended { 0 } else { NOT_ABORTED }, 0))
            }
            opcode::admin::KEEP_ALIVE => Ok((0, 0)),
            opcode::admin::FORMAT => self.format(sqe),
            opcode if QueueCommand::is_one(opcode) => self.make_queue(request),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Calls `told` with this drive as crate `admin` describes it.
    fn tell<T>(&self, told: impl FnOnce(&kvdrive_admin::Controller<'_>) -> T) -> T {
        let command_set = self.namespace.command_set();
        let used = self.namespace.utilization();
        // The drive has one namespace, whose identity is that of the drive.
        let nguid = self.identity.to_bytes();
        let namespace = Namespace {
            nsid: DRIVE_NSID,
            command_set,
            nguid,
            uuid: nguid,
            sharing: 0,
            attributes: u8::from(self.journal.is_protected()),
            size_bytes: used.capacity_bytes,
            used_bytes: used.live_bytes.min(used.capacity_bytes),
        };
        told(&kvdrive_admin::Controller {
            kind: ControllerKind::Io,
            id: 1,
            serial: &self.identity.serial(),
            nqn: None,
            transfer_max_log2: self.namespace.transfer_max_log2(),
            sgl: SGL,
            commands_max: 0,
            admin_commands: &ADMIN,
            refused: self.port.refused(),
            optional_commands: if command_set == CSI_NVM { nvm::OPTIONAL_COMMANDS } else { 0 },
            capsules: None,
            async_requests: event::REQUESTS_MAX as u8,
            async_events: events::NAMESPACE_ATTRIBUTES,
            namespaces: &[namespace],
        })
    }

    fn of_namespace(&self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        self.namespace.identify(sqe.cdw10.get() as u8, self.identity.to_bytes()).ok_or(Status::INVALID_FIELD)
    }

    fn log_page(&self, request: &dyn Request) -> Answer {
        let asked = LogRequest::of(request.sqe());
        let told = {
            let queues = self.admin_queues.borrow();
            let changes = queues.get(&request.session().number()).map(|queue| &queue.changes);
            let all = self.logs.borrow();
            let logs = changes.filter(|_| asked.page == lid::CHANGED_NAMESPACES).unwrap_or(&all);
            self.tell(|of| logs.page(of, &asked, self))?
        };
        let page = match told {
            LogAnswer::Page(page) => page,
            LogAnswer::OfNamespace => {
                let reason = self.journal.write_failure().map(|failure| failure.to_string());
                write_protection::encode(reason.as_deref()).to_vec()
            }
        };
        let part = log::part(&page, &asked)?;
        if !asked.retain_event
            && let Some(queue) = self.admin_queues.borrow_mut().get_mut(&request.session().number())
        {
            queue.events.note_read(asked.page);
            if asked.page == lid::CHANGED_NAMESPACES {
                queue.changes.changed_namespaces.clear();
            }
        }
        answer(request, part)
    }

    /// Checks whether a Create or Delete command is possible.
    pub(super) fn check_queue_command(&self, request: &dyn Request) -> Result<QueueCommand, Status> {
        let queues = request.queues().ok_or(Status::INVALID_OPCODE)?;
        let command = QueueCommand::decode(request.sqe())?;
        let mut of = self.admin_queues.borrow_mut();
        let granted_z = of.entry(request.session().number()).or_default().features.queues_z;
        queue::check(command, there(command, queues), granted_z + 1)?;
        Ok(command)
    }

    /// Creates a queue, or deletes a completion queue.
    fn make_queue(&self, request: &dyn Request) -> Answer {
        let command = self.check_queue_command(request)?;
        let queues = request.queues().expect("they were looked at");
        match command {
            QueueCommand::CreateCompletion { id, entries } => queues.create_completion(id, entries),
            QueueCommand::CreateSubmission { id, entries, completion } => {
                queues.create_submission(id, entries, completion);
            }
            QueueCommand::DeleteCompletion { id } => queues.delete_completion(id),
            QueueCommand::DeleteSubmission { .. } => unreachable!("it waits for the last command"),
        }
        Ok((0, 0))
    }

    /// Health of the drive. It does not count the bytes that hosts have read and written.
    pub(super) fn health(&self) -> Health {
        let flash = self.flash.get().map(FlashPort::health).unwrap_or_default();
        let mut answer = Health::new_zeroed();
        answer.temperature_k.set(TEMPERATURE_K);
        answer.spare_threshold_percent = SPARE_THRESHOLD_PERCENT;
        answer.spare_percent = match (flash.spare_blocks, flash.spare_blocks_left) {
            (0, _) if flash.is_read_only => 0,
            (0, _) => 100,
            (all, left) => (u64::from(left) * 100 / u64::from(all)) as u8,
        };
        if answer.spare_percent < SPARE_THRESHOLD_PERCENT {
            answer.warnings |= Health::FEW_SPARES;
        }
        if self.journal.is_protected() {
            answer.warnings |= Health::READ_ONLY;
        }
        answer.media_errors[0].set(flash.read_errors);
        answer
    }

    fn set_feature(&self, request: &dyn Request) -> Answer {
        let mut queues = self.admin_queues.borrow_mut();
        let of = &mut queues.entry(request.session().number()).or_default().features;
        let has_io_queues = request.queues().is_some_and(Queues::has_some);
        let limits = Limits { kind: ControllerKind::Io, io_queues_max: IO_QUEUES_MAX, has_io_queues };
        let change = of.wanted(request.sqe(), limits)?;
        Ok((of.keep(change), 0))
    }

    /// Format NVM. Which hosts may send it is decided by the doors; this queue is theirs.
    fn format(&self, sqe: &Sqe) -> Answer {
        if sqe.nsid.get() != DRIVE_NSID && sqe.nsid.get() != u32::MAX {
            return Err(Status::INVALID_NAMESPACE);
        }
        format::check(sqe)?;
        if self.journal.is_protected() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        self.namespace.format()?;
        if self.journal.settle() { Ok((0, 0)) } else { Err(Status::NAMESPACE_WRITE_PROTECTED) }
    }

    /// Set and Get Features of feature 20h. A new value is in the protected image before the command completes.
    fn feature_of_namespace(&self, sqe: &Sqe) -> Answer {
        let features = self.namespace.features().ok_or(Status::INVALID_FIELD)?;
        let is_set = sqe.opcode == opcode::admin::SET_FEATURES;
        match sqe.nsid.get() {
            DRIVE_NSID => {}
            // All namespaces can be given a value; they need not have the same one.
            u32::MAX if is_set => {}
            u32::MAX => return Err(Status::INVALID_FIELD),
            _ => return Err(Status::INVALID_NAMESPACE),
        }
        let before = features.key_value();
        if !is_set {
            return Ok((KeyValue::told(sqe, before), 0));
        }
        let wanted = KeyValue::wanted(sqe)?;
        if wanted != before && self.journal.is_protected() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        features.set_key_value(wanted);
        if wanted != before && self.journal.is_kept() {
            self.journal.checkpoint(&self.namespace.protected_image());
            if self.journal.is_protected() {
                features.set_key_value(before);
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
        }
        Ok((0, 0))
    }
}

impl<P: Port> Sources for Controller<P> {
    fn health(&self) -> Health {
        Controller::health(self)
    }
}

/// What exists under the identifiers that `command` names.
fn there(command: QueueCommand, queues: &dyn Queues) -> There {
    let (submission, completion) = match command {
        QueueCommand::CreateSubmission { id, completion, .. } => (id, completion),
        QueueCommand::CreateCompletion { id, .. }
        | QueueCommand::DeleteCompletion { id }
        | QueueCommand::DeleteSubmission { id } => (id, id),
    };
    let used = queues.completion(completion);
    There {
        submission: queues.has_submission(submission),
        completion: used.is_some(),
        is_used: used == Some(true),
    }
}

/// Sends `page` to the memory that a command names for it.
fn answer(request: &dyn Request, page: Vec<u8>) -> Answer {
    let bytes = page.len() as u32;
    send(request, bytes, &Region::from_bytes(page), bytes)?;
    Ok((0, 0))
}
