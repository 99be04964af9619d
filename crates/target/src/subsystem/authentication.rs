//! Authentication of queues: DH-HMAC-CHAP, on each queue of a host that has a secret, before it may do anything
//! else, and again whenever the host likes.
//!
//! ```text
//!   Send negotiate ─► prepare ─► Receive: challenge ─► Send reply ─► check ─► Receive: success1 ─► Send success2
//!                     └───────── on a thread of its own ─────────────┘         done              done
//! ```
//!
//! Key agreement takes milliseconds, so it is done on another thread ([`KeyWorker`]); a Receive that comes before
//! it has ended waits. What goes wrong is told with failure1 to the next Receive, and then the queue ends.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use kvdrive_auth::{KeyPair, Psk, Response, Role, Secret};
use kvdrive_spec::Status;
use kvdrive_spec::auth::{Content, Group, Hash, MESSAGE_MAX_BYTES, Message, Offer, Reason};

use super::{Event, Step, Subsystem, done};
use crate::bell::Bell;
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Tag};

/// Key agreements that wait at a time; beyond them authentication fails.
const WORK_MAX: usize = 64;

/// A host that may use a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name.
    pub nqn: String,
    /// By which it authenticates; none: it need not.
    pub secret: Option<Secret>,
    /// By which the subsystem authenticates if the host asks for that.
    pub controller_secret: Option<Secret>,
    /// By which it speaks TLS, which it has to then.
    pub psk: Option<Psk>,
}

impl From<&str> for Host {
    fn from(nqn: &str) -> Host {
        Host { nqn: nqn.to_owned(), secret: None, controller_secret: None, psk: None }
    }
}

/// How far an exchange is.
enum State {
    /// Negotiate is to come.
    Idle,
    /// A challenge is being made.
    Preparing,
    /// A challenge waits for its Receive.
    Challenge { public: Vec<u8> },
    /// A reply is to come.
    Reply,
    /// It is being checked.
    Checking,
    /// The host is who it says, which waits for its Receive, with our response.
    Success1(Option<Vec<u8>>),
    /// The host is to say whether we are who we say.
    Success2,
    /// It has failed, which waits for its Receive.
    Failure(Reason),
}

/// What a queue has of its authentication.
pub(super) struct Authentication {
    state: State,
    transaction: u16,
    hash: Hash,
    group: Group,
    pair: Option<KeyPair>,
    challenge: Vec<u8>,
    sequence: u32,
    /// A Receive that waits: the transport's slot, its buffer.
    waiting: Option<(u16, Buffer)>,
}

impl Authentication {
    pub(super) fn new() -> Authentication {
        Authentication {
            state: State::Idle,
            transaction: 0,
            hash: Hash::Sha256,
            group: Group::Null,
            pair: None,
            challenge: Vec::new(),
            sequence: 0,
            waiting: None,
        }
    }

    /// Negotiate: what is to be prepared.
    fn negotiate(&mut self, message: &Message<'_>) -> Result<Work, Reason> {
        let Content::Negotiate { concatenation, offer } = message.content else {
            return Err(Reason::Message);
        };
        if concatenation != 0 {
            return Err(Reason::Concatenation);
        }
        let Offer { hashes, groups } = offer.ok_or(Reason::Protocol)?;
        let hash = Hash::ALL.into_iter().find(|hash| hashes.contains(&(*hash as u8)));
        let group = Group::ALL.into_iter().find(|group| groups.contains(&(*group as u8)));
        (self.hash, self.group) = (hash.ok_or(Reason::Hash)?, group.ok_or(Reason::Group)?);
        self.transaction = message.transaction;
        self.state = State::Preparing;
        Ok(Work::Prepare { hash: self.hash, group: self.group })
    }

    /// Reply: what is to be checked.
    fn reply(&mut self, message: &Message<'_>, names: Names) -> Result<Work, Reason> {
        let Content::Reply { response, challenge, sequence, public } = message.content else {
            return Err(Reason::Message);
        };
        if message.transaction != self.transaction || response.len() != self.hash.bytes() {
            return Err(Reason::Payload);
        }
        self.state = State::Checking;
        Ok(Work::Check(Box::new(Check {
            names,
            pair: self.pair.take().ok_or(Reason::Message)?,
            hash: self.hash,
            transaction: self.transaction,
            sequence: self.sequence,
            challenge: std::mem::take(&mut self.challenge),
            response: response.to_vec(),
            theirs: challenge.map(|challenge| (challenge.to_vec(), sequence)),
            public: public.to_vec(),
        })))
    }

    /// What the next Receive is told; `None`: it has to wait.
    fn message(&self) -> Option<Vec<u8>> {
        let content = match &self.state {
            State::Preparing | State::Checking => return None,
            State::Challenge { public } => Content::Challenge {
                hash: self.hash,
                group: self.group,
                sequence: self.sequence,
                challenge: &self.challenge,
                public,
            },
            State::Success1(response) => {
                Content::Success1 { hash_bytes: self.hash.bytes() as u8, response: response.as_deref() }
            }
            State::Failure(reason) => Content::Failure1(*reason),
            State::Idle | State::Reply | State::Success2 => Content::Failure1(Reason::Message),
        };
        Some(Message { transaction: self.transaction, content }.encode())
    }
}

/// What a Send leaves to be done.
enum Sent {
    Work(Work),
    Authenticated,
    GivenUp,
}

/// Both ends and their secrets.
struct Names {
    host: Host,
    subsystem: String,
}

/// What another thread computes.
enum Work {
    Prepare { hash: Hash, group: Group },
    Check(Box<Check>),
}

struct Check {
    names: Names,
    pair: KeyPair,
    hash: Hash,
    transaction: u16,
    sequence: u32,
    challenge: Vec<u8>,
    response: Vec<u8>,
    /// C2 and S2.
    theirs: Option<(Vec<u8>, u32)>,
    public: Vec<u8>,
}

/// What it came to.
enum Worked {
    Prepared {
        pair: KeyPair,
        challenge: Vec<u8>,
    },
    /// The host's response is right; ours, if it asked.
    Checked(Result<Option<Vec<u8>>, Reason>),
}

impl Work {
    fn run(self) -> Worked {
        match self {
            Work::Prepare { hash, group } => {
                let challenge = kvdrive_auth::random(hash.bytes());
                Worked::Prepared { pair: KeyPair::new(group), challenge }
            }
            Work::Check(check) => Worked::Checked(check.run()),
        }
    }
}

impl Check {
    fn run(&self) -> Result<Option<Vec<u8>>, Reason> {
        let Host { nqn, secret, controller_secret, .. } = &self.names.host;
        let shared = self.pair.agree(&self.public).map_err(|_| Reason::Payload)?;
        let of_host = Response {
            role: Role::Host,
            secret: secret.as_ref().ok_or(Reason::Failed)?,
            own_nqn: nqn,
            other_nqn: &self.names.subsystem,
            hash: self.hash,
            shared: &shared,
            sequence: self.sequence,
            transaction: self.transaction,
        };
        if !of_host.is(&self.response, &self.challenge) {
            return Err(Reason::Failed);
        }
        let Some((challenge, sequence)) = &self.theirs else { return Ok(None) };
        let ours = Response {
            role: Role::Controller,
            secret: controller_secret.as_ref().ok_or(Reason::Failed)?,
            own_nqn: &self.names.subsystem,
            other_nqn: nqn,
            sequence: *sequence,
            ..of_host
        };
        Ok(Some(ours.to(challenge)))
    }
}

/// The thread that computes. It ends with the subsystem.
pub(super) struct KeyWorker {
    work: Sender<(QueueId, Work)>,
    worked: Receiver<(QueueId, Worked)>,
    under_way: usize,
    /// S1 of the last challenge.
    sequence: u32,
}

impl KeyWorker {
    fn start(bell: Arc<Bell>) -> io::Result<KeyWorker> {
        let (work, to_do) = mpsc::channel::<(QueueId, Work)>();
        let (done, worked) = mpsc::channel();
        thread::Builder::new().name("key agreement".into()).spawn(move || {
            for (queue, work) in to_do {
                if done.send((queue, work.run())).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        let mut first = [0; 4];
        first.copy_from_slice(&kvdrive_auth::random(4));
        Ok(KeyWorker { work, worked, under_way: 0, sequence: u32::from_le_bytes(first) })
    }
}

impl Subsystem {
    /// What is rung when a key agreement has ended, which is on another thread. Without it the next
    /// [`Subsystem::poll`] finds out.
    pub fn set_bell(&mut self, bell: Arc<Bell>) {
        self.bell = bell;
    }

    /// Has the host of this queue to authenticate before anything else?
    pub fn is_locked(&self, queue: QueueId) -> bool {
        self.queue(queue).is_some_and(|queue| queue.locked_since_ms.is_some())
    }

    /// Has its host shown that it knows its secret?
    pub(super) fn has_authenticated(&self, id: QueueId) -> bool {
        self.queue(id).is_some_and(|queue| queue.locked_since_ms.is_none() && queue.authentication.is_some())
    }

    /// Authentication Send: `sent` is the message.
    pub(super) fn authentication_send(
        &mut self,
        id: QueueId,
        bytes: u32,
        sent: &[u8],
    ) -> Result<Step, Status> {
        let names = self.names(id)?;
        if bytes as usize != sent.len() || sent.len() > MESSAGE_MAX_BYTES {
            return Err(Status::INVALID_FIELD);
        }
        let queue = self.queues[id.index as usize].queue.as_mut().ok_or(Status::INTERNAL)?;
        let authentication = queue.authentication.get_or_insert_with(|| Box::new(Authentication::new()));
        let work = match take_message(authentication, sent, names) {
            Ok(Sent::Authenticated) => {
                authentication.state = State::Idle;
                queue.locked_since_ms = None;
                return Ok(Step::SUCCESS);
            }
            Ok(Sent::GivenUp) => {
                self.served.authentication_failures += 1;
                return Ok(Step::Disconnect { data_bytes: 0 });
            }
            Ok(Sent::Work(work)) => self.begin_work(id, work),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = work {
            self.settle_authentication(id, State::Failure(reason));
        }
        Ok(Step::SUCCESS)
    }

    /// Authentication Receive, with room for `bytes`.
    pub(super) fn authentication_receive(
        &mut self,
        id: QueueId,
        bytes: u32,
        to: &mut Buffer,
    ) -> Result<Step, Status> {
        self.names(id)?;
        if bytes as usize != to.len() {
            return Err(Status::INVALID_FIELD);
        }
        let queue = self.queues[id.index as usize].queue.as_mut().ok_or(Status::INTERNAL)?;
        let authentication = queue.authentication.get_or_insert_with(|| Box::new(Authentication::new()));
        let Some(message) = authentication.message() else {
            return if authentication.waiting.is_none() {
                Ok(Step::AwaitKeys)
            } else {
                Err(Status::COMMAND_SEQUENCE_ERROR)
            };
        };
        to.get_mut(..message.len()).ok_or(Status::INVALID_FIELD)?.copy_from_slice(&message);
        let data_bytes = message.len();
        authentication.state = match std::mem::replace(&mut authentication.state, State::Idle) {
            State::Challenge { .. } => State::Reply,
            State::Success1(Some(_)) => State::Success2,
            State::Success1(None) => {
                queue.locked_since_ms = None;
                State::Idle
            }
            _ => {
                self.served.authentication_failures += 1;
                return Ok(Step::Disconnect { data_bytes });
            }
        };
        Ok(Step::Done { dw0: 0, data_bytes })
    }

    /// A Receive waits for the other thread.
    pub(super) fn await_keys(&mut self, tag: Tag, data: Buffer) {
        let queue = self.queues[tag.queue.index as usize].queue.as_mut();
        if let Some(authentication) = queue.and_then(|queue| queue.authentication.as_mut()) {
            authentication.waiting = Some((tag.slot, data));
        }
    }

    /// Both ends of a queue; an error for a host without a secret.
    fn names(&self, id: QueueId) -> Result<Names, Status> {
        let queue = self.queue(id).ok_or(Status::INTERNAL)?;
        let controller = self.controllers[queue.controller].as_ref().ok_or(Status::INTERNAL)?;
        let host = self.host(&controller.host_nqn).filter(|host| host.secret.is_some());
        let host = host.ok_or(Status::INVALID_OPCODE)?.clone();
        Ok(Names { host, subsystem: self.options.nqn.clone() })
    }

    fn begin_work(&mut self, id: QueueId, work: Work) -> Result<(), Reason> {
        if self.key_worker.is_none() {
            self.key_worker = KeyWorker::start(self.bell.clone()).ok();
        }
        let worker = self.key_worker.as_mut().ok_or(Reason::Failed)?;
        if worker.under_way >= WORK_MAX {
            return Err(Reason::Failed);
        }
        worker.work.send((id, work)).map_err(|_| Reason::Failed)?;
        worker.under_way += 1;
        Ok(())
    }

    /// Takes what the other thread has computed.
    pub(super) fn take_worked(&mut self) {
        while let Some(worker) = &mut self.key_worker
            && let Ok((id, worked)) = worker.worked.try_recv()
        {
            worker.under_way -= 1;
            worker.sequence = worker.sequence.wrapping_add(1).max(1);
            let sequence = worker.sequence;
            // Its queue may have ended meanwhile.
            let Some(queue) = self.queue_mut(id) else { continue };
            let Some(authentication) = &mut queue.authentication else { continue };
            // Or its exchange has failed.
            if !matches!(authentication.state, State::Preparing | State::Checking) {
                continue;
            }
            let state = match worked {
                Worked::Prepared { pair, challenge } => {
                    let public = pair.public().to_vec();
                    (authentication.pair, authentication.challenge) = (Some(pair), challenge);
                    authentication.sequence = sequence;
                    State::Challenge { public }
                }
                Worked::Checked(Ok(response)) => State::Success1(response),
                Worked::Checked(Err(reason)) => State::Failure(reason),
            };
            self.settle_authentication(id, state);
        }
    }

    /// An exchange has got to `state`: a Receive that waits for it is answered.
    fn settle_authentication(&mut self, id: QueueId, state: State) {
        let Some(authentication) = self.queue_mut(id).and_then(|queue| queue.authentication.as_mut()) else {
            return;
        };
        authentication.state = state;
        let Some((slot, mut data)) = authentication.waiting.take() else { return };
        let tag = Tag { queue: id, slot };
        let bytes = data.len() as u32;
        let step = self.authentication_receive(id, bytes, &mut data);
        self.go_on(tag, step, data);
    }

    /// What `step` of the command `tag` leads to, whose buffer is `data`; only those that authentication knows.
    fn go_on(&mut self, tag: Tag, step: Result<Step, Status>, data: Buffer) {
        match step {
            Ok(Step::Done { dw0, data_bytes }) => {
                self.events.push_back(Event::Completed(done(tag, dw0, data_bytes, data)));
            }
            Ok(Step::Disconnect { data_bytes }) => self.end_with(tag, data_bytes, data),
            Ok(_) => self.await_keys(tag, data),
            Err(status) => {
                self.events.push_back(Event::Completed(Completion::failed(tag, status, data)));
            }
        }
    }
}

/// What a message does to an exchange.
fn take_message(authentication: &mut Authentication, sent: &[u8], names: Names) -> Result<Sent, Reason> {
    let (message, rest) = Message::decode(sent)?;
    match (&authentication.state, message.content) {
        (State::Idle, Content::Negotiate { .. }) if rest.is_empty() => {
            authentication.negotiate(&message).map(Sent::Work)
        }
        (State::Reply, Content::Reply { .. }) if rest.is_empty() => {
            authentication.reply(&message, names).map(Sent::Work)
        }
        (State::Success2, Content::Success2) if message.transaction == authentication.transaction => {
            Ok(Sent::Authenticated)
        }
        (_, Content::Failure2(_)) => Ok(Sent::GivenUp),
        (State::Idle, Content::Negotiate { .. }) | (State::Reply, Content::Reply { .. }) => {
            Err(Reason::Payload)
        }
        (State::Success2, Content::Success2) => Err(Reason::Payload),
        _ => Err(Reason::Message),
    }
}
