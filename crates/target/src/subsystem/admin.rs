//! The admin command set: what a host asks of a controller besides its pairs.

use kvdrive_spec::opcode::admin;
use kvdrive_spec::{Sqe, Status, feature};

use super::controller::Kind;
use super::{Event, Step, Subsystem};
use crate::buffer::Buffer;
use crate::namespace::{Completion, Tag};

/// SEL of Get Features: what it can do, instead of its value.
const SELECT_CAPABILITIES: u32 = 3;
/// Of those: it can be set.
const CHANGEABLE: u32 = 1 << 2;

impl Subsystem {
    /// An admin command of the controller at `index`, which is ready.
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
                self.controller(index)?.park(tag.slot, sqe.cid.get()).map(|()| Step::Parked)
            }
            admin::SET_FEATURES => self.set_feature(index, sqe),
            admin::GET_FEATURES => self.get_feature(index, sqe, data),
            admin::ABORT if kind == Kind::Io => self.abort(index, sqe),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn controller(&mut self, index: usize) -> Result<&mut super::controller::Controller, Status> {
        self.controllers[index].as_mut().ok_or(Status::INTERNAL)
    }

    /// Abort: an Asynchronous Event Request that waits is ended. Commands of namespaces complete soon by
    /// themselves; dword 0 says that they were not aborted.
    fn abort(&mut self, index: usize, sqe: &Sqe) -> Result<Step, Status> {
        const NOT_ABORTED: Step = Step::Done { dw0: 1, data_bytes: 0 };
        let (queue, cid) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
        let controller = self.controller(index)?;
        if queue != 0 {
            return Ok(NOT_ABORTED);
        }
        let Some(slot) = controller.unpark(cid) else { return Ok(NOT_ABORTED) };
        let tag = Tag { queue: controller.admin, slot };
        let aborted = Completion::failed(tag, Status::ABORT_REQUESTED, Buffer::empty());
        self.events.push_back(Event::Completed(aborted));
        Ok(Step::SUCCESS)
    }

    fn set_feature(&mut self, index: usize, sqe: &Sqe) -> Result<Step, Status> {
        let (id, value) = (sqe.cdw10.get() as u8, sqe.cdw11.get());
        if sqe.cdw10.get() & feature::SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        let (queues_max, nsid) = (self.options.io_queues_max, sqe.nsid.get());
        let controller = self.controllers[index].as_mut().ok_or(Status::INTERNAL)?;
        match id {
            feature::QUEUES if controller.kind == Kind::Io => {
                // FFFFh is no number of queues (0's based).
                if value as u16 == u16::MAX || (value >> 16) as u16 == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                if controller.io.iter().any(Option::is_some) {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                let granted_z = (value as u16).min((value >> 16) as u16).min(queues_max - 1);
                controller.io = vec![None; usize::from(granted_z) + 1];
                Ok(Step::Done { dw0: queues(granted_z), data_bytes: 0 })
            }
            feature::ASYNC_EVENTS => {
                controller.wanted_events = value;
                Ok(Step::SUCCESS)
            }
            feature::KEEP_ALIVE => {
                controller.keep_alive_ms = value;
                Ok(Step::SUCCESS)
            }
            feature::KEY_VALUE if controller.kind == Kind::Io => {
                if value & !feature::ERROR_ON_MISSING_KEY != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                let on = value & feature::ERROR_ON_MISSING_KEY != 0;
                let of_all = nsid == u32::MAX;
                if !of_all && !self.namespaces.contains_key(&nsid) {
                    return Err(Status::INVALID_NAMESPACE);
                }
                let meant = self.namespaces.iter_mut().filter(|(of, _)| of_all || **of == nsid);
                for (_, namespace) in meant {
                    namespace.set_error_on_missing_key(on)?;
                }
                controller.error_on_missing_key = on;
                Ok(Step::SUCCESS)
            }
            _ => controller.keep(id, value).map(|()| Step::SUCCESS),
        }
    }

    fn get_feature(&mut self, index: usize, sqe: &Sqe, data: &mut Buffer) -> Result<Step, Status> {
        let (id, select) = (sqe.cdw10.get() as u8, sqe.cdw10.get() >> 8 & 0b111);
        let controller = self.controller(index)?;
        let value = match id {
            feature::QUEUES if controller.kind == Kind::Io => queues(controller.io.len() as u16 - 1),
            feature::ASYNC_EVENTS => controller.wanted_events,
            feature::KEEP_ALIVE => controller.keep_alive_ms,
            feature::KEY_VALUE if controller.kind == Kind::Io => u32::from(controller.error_on_missing_key),
            feature::HOST_ID => {
                let id = controller.host_id;
                let to = data.get_mut(..id.len()).ok_or(Status::SGL_LENGTH_INVALID)?;
                to.copy_from_slice(&id);
                return Ok(Step::Done { dw0: 0, data_bytes: id.len() });
            }
            _ => controller.kept(id).ok_or(Status::INVALID_FIELD)?,
        };
        let dw0 = if select == SELECT_CAPABILITIES { CHANGEABLE } else { value };
        Ok(Step::Done { dw0, data_bytes: 0 })
    }
}

/// Feature 07h: as many completion as submission queues.
fn queues(count_z: u16) -> u32 {
    u32::from(count_z) << 16 | u32::from(count_z)
}
