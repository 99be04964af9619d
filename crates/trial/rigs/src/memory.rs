//! A namespace in memory for tests: it completes its commands when the test allows it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kvdrive_admin::KeyValue;
use kvdrive_nvme::identify::KvNamespace;
use kvdrive_nvme::list::ListWriter;
use kvdrive_nvme::log::Health;
use kvdrive_nvme::{Command, Key, Sqe, Status, feature, opcode};
use kvdrive_subsystem::buffer::Buffer;
use kvdrive_subsystem::namespace::{Completion, Identity, Refreshable, ServedNamespace, Session, Tag};
use zerocopy::FromZeros;

/// Largest value, bytes.
pub const VALUE_MAX: u32 = 1 << 20;

/// State that test and namespace share.
#[derive(Default)]
pub struct MemoryState {
    pub pairs: BTreeMap<Key, Vec<u8>>,
    /// Open sessions.
    pub sessions: u32,
    /// Commands taken and not completed.
    pub under_way: usize,
    /// Number of commands that may still complete; `None`: all.
    pub allowed: Option<usize>,
    pub error_on_missing_key: bool,
    /// Commands taken.
    pub taken: u64,
    /// Streams that have begun a value.
    pub begun: BTreeSet<u16>,
    /// A part of a value that begins at this byte is refused before its stream sees it.
    pub refused_at: Option<u32>,
    /// It has lost its power.
    pub is_off: bool,
}

#[derive(Clone, Default)]
pub struct Memory {
    pub state: Rc<RefCell<MemoryState>>,
}

pub struct MemoryNamespace {
    state: Rc<RefCell<MemoryState>>,
    identity: Identity,
    health: Health,
    waiting: VecDeque<(Tag, Option<Sqe>, Buffer)>,
    /// Commands taken back, the Aborts that did so, and answers to admin commands.
    aborted: Vec<Completion>,
}

impl Memory {
    pub fn namespace(&self) -> Box<MemoryNamespace> {
        let mut identity = KvNamespace::new_zeroed();
        identity.size_bytes.set(1 << 30);
        identity.formats[0].key_max_bytes.set(16);
        identity.formats[0].value_max_bytes.set(VALUE_MAX);
        let mut health = Health::new_zeroed();
        health.spare_percent = 100;
        let (waiting, aborted) = (VecDeque::new(), Vec::new());
        let identity = Identity::Pairs(identity);
        Box::new(MemoryNamespace { state: self.state.clone(), identity, health, waiting, aborted })
    }
}

impl MemoryNamespace {
    fn carry_out(&self, sqe: &Sqe, data: &mut Buffer) -> Result<(u32, usize), Status> {
        let mut state = self.state.borrow_mut();
        match Command::decode(sqe)? {
            Command::Store(store) => {
                let value = data.get(..store.value_bytes as usize).ok_or(Status::SGL_LENGTH_INVALID)?;
                let there = state.pairs.contains_key(&store.key);
                match store.options {
                    options if options.update_only && !there => return Err(Status::KEY_NOT_FOUND),
                    options if options.add_only && there => return Err(Status::KEY_EXISTS),
                    _ => {}
                }
                state.pairs.insert(store.key, value.to_vec());
                Ok((0, 0))
            }
            Command::Retrieve { key, buffer_bytes, .. } => {
                let value = state.pairs.get(&key).ok_or(Status::KEY_NOT_FOUND)?;
                let bytes = value.len().min(buffer_bytes as usize);
                let to = data.get_mut(..bytes).ok_or(Status::SGL_LENGTH_INVALID)?;
                to.copy_from_slice(&value[..bytes]);
                Ok((value.len() as u32, bytes))
            }
            Command::Exist { key } if state.pairs.contains_key(&key) => Ok((0, 0)),
            Command::Exist { .. } => Err(Status::KEY_NOT_FOUND),
            Command::Delete { key, must_exist } => match state.pairs.remove(&key) {
                None if must_exist || state.error_on_missing_key => Err(Status::KEY_NOT_FOUND),
                _ => Ok((0, 0)),
            },
            Command::List { start, buffer_bytes } => {
                let room = data.len().min(buffer_bytes as usize);
                let mut writer = ListWriter::new(&mut data[..room]);
                let from = start.unwrap_or(Key::new(&[0]).unwrap());
                for (key, _) in state.pairs.range(from..) {
                    if !writer.push(*key) {
                        break;
                    }
                }
                let keys = writer.keys();
                Ok((keys, writer.finish()))
            }
            Command::StorePart(part) if state.refused_at == Some(part.at) => Err(Status::COMMAND_INTERRUPTED),
            Command::StorePart(part) => {
                let is_last = part.at + part.bytes == part.store.value_bytes;
                let _ =
                    if is_last { state.begun.remove(&part.stream) } else { state.begun.insert(part.stream) };
                Ok((0, 0))
            }
            Command::Discard { stream } => {
                state.begun.remove(&stream);
                Ok((0, 0))
            }
            _ => Err(Status::INVALID_OPCODE),
        }
    }
}

impl ServedNamespace for MemoryNamespace {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&mut self, _: u32) -> Result<Session, Status> {
        self.state.borrow_mut().sessions += 1;
        Ok(Session(0))
    }

    fn close(&mut self, _: Session) {
        self.state.borrow_mut().sessions -= 1;
    }

    fn submit(&mut self, _: Session, tag: Tag, sqe: &Sqe, data: Buffer) {
        let mut state = self.state.borrow_mut();
        state.under_way += 1;
        state.taken += 1;
        self.waiting.push_back((tag, Some(*sqe), data));
    }

    fn abort(&mut self, _: Session, tag: Tag, by: Completion) -> Option<Completion> {
        let at = self.waiting.iter().position(|(of, sqe, _)| *of == tag && sqe.is_some());
        let Some((tag, _, data)) = at.and_then(|at| self.waiting.remove(at)) else { return Some(by) };
        self.state.borrow_mut().under_way -= 1;
        self.aborted
            .extend([Completion::failed(tag, Status::ABORT_REQUESTED, data), Completion { dw0: 0, ..by }]);
        None
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn is_off(&self) -> bool {
        self.state.borrow().is_off
    }

    fn look(&mut self, _: Refreshable, tag: Tag, data: Buffer) {
        self.state.borrow_mut().under_way += 1;
        self.waiting.push_back((tag, None, data));
    }

    /// Feature 20h is the one thing that such a namespace is asked for.
    fn admin(&mut self, tag: Tag, sqe: &Sqe, data: Buffer) {
        let mut state = self.state.borrow_mut();
        let told = if sqe.opcode == opcode::admin::SET_FEATURES {
            KeyValue::wanted(sqe).map(|value| {
                state.error_on_missing_key = value & feature::ERROR_ON_MISSING_KEY != 0;
                0
            })
        } else {
            Ok(KeyValue::told(sqe, u32::from(state.error_on_missing_key)))
        };
        let failed = Completion::failed(tag, Status::SUCCESS, data);
        self.aborted.push(match told {
            Ok(dw0) => Completion { dw0, ..failed },
            Err(status) => Completion { status, ..failed },
        });
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> bool {
        done.append(&mut self.aborted);
        loop {
            let mut state = self.state.borrow_mut();
            if state.allowed == Some(0) {
                break;
            }
            let Some((tag, sqe, mut data)) = self.waiting.pop_front() else { break };
            state.allowed = state.allowed.map(|allowed| allowed - 1);
            state.under_way -= 1;
            drop(state);
            done.push(match sqe {
                None => {
                    let fault = None;
                    Completion { tag, status: Status::SUCCESS, dw0: 0, dw1: 0, data, data_bytes: 0, fault }
                }
                Some(sqe) => match self.carry_out(&sqe, &mut data) {
                    Ok((dw0, data_bytes)) => Completion {
                        tag,
                        status: Status::SUCCESS,
                        dw0,
                        dw1: 0,
                        data,
                        data_bytes,
                        fault: None,
                    },
                    Err(status) => Completion::failed(tag, status, data),
                },
            });
        }
        !self.waiting.is_empty()
    }
}
