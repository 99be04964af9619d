//! Authentication of queues with DH-HMAC-CHAP. A queue of a host that has a secret authenticates before it
//! may do anything else; the host may repeat that at any time.
//!
//! ```text
//!   Send negotiate ─► key pair ─► Receive: challenge ─► Send reply ─► check ─► Receive: success1 ─► Send success2
//!                     └─ may wait for the key thread ([`super::keys`]) ─┘       done                 done
//! ```
//!
//! Cheap checks come first: the offer, transaction, lengths, whether the public value belongs to its group,
//! whether there is a secret for the kind of authentication that the host requests. If a Receive arrives before a key
//! agreement has ended, it waits. After an error, the next Receive gets failure1 and then the queue ends.

use std::sync::Arc;

use kvdrive_auth::KeyPair;
use kvdrive_nvme::Status;
use kvdrive_nvme::auth::{Content, Group, Hash, MESSAGE_MAX_BYTES, Message, Offer, Reason};
use kvdrive_sim::wall::Bell;

pub use super::check::Host;
use super::check::{Check, Checked, Names};
use super::keys::{Asker, Worked};
use super::{Event, Step, Subsystem, done};
use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Tag};

/// The state of an exchange.
enum ExchangeState {
    /// The next message is Negotiate.
    Idle,
    /// The key pair for the challenge is being computed.
    Preparing,
    /// The challenge is ready for a Receive.
    Challenge { public: Vec<u8> },
    /// The next message is Reply.
    Reply,
    /// The reply is being checked.
    Checking,
    /// The host is authenticated; success1, with our response, is ready for a Receive.
    Success1(Option<Vec<u8>>),
    /// The next message says whether the host accepts our response.
    Success2,
    /// The exchange failed; failure1 is ready for a Receive.
    Failure(Reason),
}

/// The authentication of one queue.
pub(super) struct Authentication {
    state: ExchangeState,
    transaction: u16,
    hash: Hash,
    group: Group,
    pair: Option<Arc<KeyPair>>,
    challenge: Vec<u8>,
    sequence: u32,
    /// A Receive that waits: the transport's slot and its buffer.
    waiting: Option<(u16, Buffer)>,
}

impl Authentication {
    pub(super) fn new() -> Authentication {
        Authentication {
            state: ExchangeState::Idle,
            transaction: 0,
            hash: Hash::Sha256,
            group: Group::Null,
            pair: None,
            challenge: Vec::new(),
            sequence: 0,
            waiting: None,
        }
    }

    /// Negotiate: chooses the strongest hash and group that both ends allow; the challenge follows.
    fn negotiate(&mut self, message: &Message<'_>, least: (Hash, Group)) -> Result<(), Reason> {
        let Content::Negotiate { concatenation, offer } = message.content else {
            return Err(Reason::Message);
        };
        if concatenation != 0 {
            return Err(Reason::Concatenation);
        }
        let Offer { hashes, groups } = offer.ok_or(Reason::Protocol)?;
        let mut allowed_hashes = Hash::ALL.into_iter().filter(|hash| *hash >= least.0);
        let mut allowed_groups = Group::ALL.into_iter().filter(|group| *group >= least.1);
        let hash = allowed_hashes.find(|hash| hashes.contains(&(*hash as u8)));
        let group = allowed_groups.find(|group| groups.contains(&(*group as u8)));
        (self.hash, self.group) = (hash.ok_or(Reason::Hash)?, group.ok_or(Reason::Group)?);
        self.transaction = message.transaction;
        self.state = ExchangeState::Preparing;
        Ok(())
    }

    /// Reply: makes all cheap checks and returns the computation that is left.
    fn reply(&mut self, message: &Message<'_>, names: Names) -> Result<Box<Check>, Reason> {
        let Content::Reply { response, challenge, sequence, public } = message.content else {
            return Err(Reason::Message);
        };
        if message.transaction != self.transaction || response.len() != self.hash.bytes() {
            return Err(Reason::Payload);
        }
        let pair = self.pair.take().ok_or(Reason::Message)?;
        pair.check(public).map_err(|_| Reason::Payload)?;
        if challenge.is_some() && names.host.controller_secret.is_none() {
            return Err(Reason::Failed);
        }
        self.state = ExchangeState::Checking;
        Ok(Box::new(Check {
            names,
            pair,
            hash: self.hash,
            transaction: self.transaction,
            sequence: self.sequence,
            challenge: std::mem::take(&mut self.challenge),
            response: response.to_vec(),
            theirs: challenge.map(|challenge| (challenge.to_vec(), sequence)),
            public: public.to_vec(),
        }))
    }

    /// The message for the next Receive; `None`: the Receive has to wait.
    fn message(&self) -> Option<Vec<u8>> {
        let content = match &self.state {
            ExchangeState::Preparing | ExchangeState::Checking => return None,
            ExchangeState::Challenge { public } => Content::Challenge {
                hash: self.hash,
                group: self.group,
                sequence: self.sequence,
                challenge: &self.challenge,
                public,
            },
            ExchangeState::Success1(response) => {
                Content::Success1 { hash_bytes: self.hash.bytes() as u8, response: response.as_deref() }
            }
            ExchangeState::Failure(reason) => Content::Failure1(*reason),
            ExchangeState::Idle | ExchangeState::Reply | ExchangeState::Success2 => {
                Content::Failure1(Reason::Message)
            }
        };
        Some(Message { transaction: self.transaction, content }.encode())
    }
}

/// The work that a Send leaves to be done.
enum Sent {
    Negotiated,
    Reply(Box<Check>),
    Authenticated,
    GivenUp,
}

impl Subsystem {
    /// Sets the bell that the key thread rings after a key agreement. Without it, the next
    /// [`Subsystem::poll`] finds the result.
    pub fn set_bell(&mut self, bell: Arc<Bell>) {
        self.bell = bell;
    }

    /// Does the host of this queue have to authenticate before anything else?
    pub fn is_locked(&self, queue: QueueId) -> bool {
        self.queue(queue).is_some_and(|queue| queue.locked_since_ms.is_some())
    }

    /// Has the host of this queue authenticated?
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
        let least = (self.options.hash_min, self.options.group_min);
        let failed = match take_message(authentication, sent, names, least) {
            Ok(Sent::Authenticated) => {
                authentication.state = ExchangeState::Idle;
                queue.locked_since_ms = None;
                return Ok(Step::SUCCESS);
            }
            Ok(Sent::GivenUp) => {
                self.note_unauthenticated(id, "the host gave up");
                return Ok(Step::Disconnect { data_bytes: 0 });
            }
            Ok(Sent::Negotiated) => self.challenge(id),
            Ok(Sent::Reply(check)) => self.check(id, check),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = failed {
            self.settle_authentication(id, ExchangeState::Failure(reason));
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
        authentication.state = match std::mem::replace(&mut authentication.state, ExchangeState::Idle) {
            ExchangeState::Challenge { .. } => ExchangeState::Reply,
            ExchangeState::Success1(Some(_)) => ExchangeState::Success2,
            ExchangeState::Success1(None) => {
                queue.locked_since_ms = None;
                ExchangeState::Idle
            }
            ended => {
                let reason =
                    if let ExchangeState::Failure(reason) = ended { reason } else { Reason::Message };
                self.note_unauthenticated(id, &reason.to_string());
                return Ok(Step::Disconnect { data_bytes });
            }
        };
        Ok(Step::Done { dw0: 0, data_bytes })
    }

    /// Parks a Receive until the key thread is done.
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

    /// Makes the challenge of a queue that has negotiated, or requests the key pair for it.
    fn challenge(&mut self, id: QueueId) -> Result<(), Reason> {
        let Some(authentication) = self.queue(id).and_then(|queue| queue.authentication.as_ref()) else {
            return Ok(());
        };
        let (hash, group) = (authentication.hash, authentication.group);
        let Some(pair) = self.keys.pair(group, self.now_ms) else {
            self.keys.want(group);
            return self.compute();
        };
        let (sequence, public) = (self.keys.next_sequence(), pair.public().to_vec());
        if let Some(authentication) = self.queue_mut(id).and_then(|queue| queue.authentication.as_mut()) {
            authentication.challenge = kvdrive_auth::random(hash.bytes());
            authentication.sequence = sequence;
            authentication.pair = Some(pair);
        }
        self.settle_authentication(id, ExchangeState::Challenge { public });
        Ok(())
    }

    /// Checks a reply: at once if there is no group, otherwise in turn on the key thread.
    fn check(&mut self, id: QueueId, check: Box<Check>) -> Result<(), Reason> {
        let Some(queue) = self.queue(id) else { return Ok(()) };
        if check.public.is_empty() {
            self.take_checked(id, check.run());
            return Ok(());
        }
        let asker = Asker::new(&check.names.host.nqn, queue.from);
        self.keys.check(asker, id, check);
        self.compute()
    }

    /// Gives the key thread its next computation, if it is idle.
    fn compute(&mut self) -> Result<(), Reason> {
        let queues = &self.queues;
        let is_there = |id: QueueId| {
            let slot = queues.get(id.index as usize);
            slot.is_some_and(|slot| slot.generation == id.generation && slot.queue.is_some())
        };
        self.keys.go_on(&self.bell, is_there).map_err(|_| Reason::Failed)
    }

    /// Takes the result of the key thread, and gives it the next computation.
    pub(super) fn take_worked(&mut self) {
        while let Some(worked) = self.keys.take_worked(self.now_ms) {
            match worked {
                Worked::Check(id, checked) => self.take_checked(id, checked),
                Worked::Pair(group) => self.challenge_all(group),
            }
            // A thread that has delivered a result is running, so this cannot fail.
            _ = self.compute();
        }
    }

    /// Challenges all queues that wait for the key pair of `group`.
    fn challenge_all(&mut self, group: Group) {
        for index in 0..self.queues.len() {
            let slot = &self.queues[index];
            let authentication = slot.queue.as_ref().and_then(|queue| queue.authentication.as_ref());
            let waits =
                |of: &Authentication| matches!(of.state, ExchangeState::Preparing) && of.group == group;
            let id = QueueId { index: index as u32, generation: slot.generation };
            if authentication.is_some_and(|authentication| waits(authentication))
                && let Err(reason) = self.challenge(id)
            {
                self.settle_authentication(id, ExchangeState::Failure(reason));
            }
        }
    }

    /// Takes the result of a check. Meanwhile the queue may have ended, or its exchange may have failed.
    fn take_checked(&mut self, id: QueueId, checked: Checked) {
        let authentication = self.queue(id).and_then(|queue| queue.authentication.as_ref());
        if !authentication.is_some_and(|of| matches!(of.state, ExchangeState::Checking)) {
            return;
        }
        let state = checked.map_or_else(ExchangeState::Failure, ExchangeState::Success1);
        self.settle_authentication(id, state);
    }

    /// Sets the state of an exchange and answers the Receive that waits for it.
    fn settle_authentication(&mut self, id: QueueId, state: ExchangeState) {
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

    /// Carries out `step` of the command `tag`, whose buffer is `data`; only for steps of authentication.
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

/// Applies a message to an exchange.
fn take_message(
    authentication: &mut Authentication,
    sent: &[u8],
    names: Names,
    least: (Hash, Group),
) -> Result<Sent, Reason> {
    let (message, rest) = Message::decode(sent)?;
    match (&authentication.state, message.content) {
        (ExchangeState::Idle, Content::Negotiate { .. }) if rest.is_empty() => {
            authentication.negotiate(&message, least).map(|()| Sent::Negotiated)
        }
        (ExchangeState::Reply, Content::Reply { .. }) if rest.is_empty() => {
            authentication.reply(&message, names).map(Sent::Reply)
        }
        (ExchangeState::Success2, Content::Success2) if message.transaction == authentication.transaction => {
            Ok(Sent::Authenticated)
        }
        (_, Content::Failure2(_)) => Ok(Sent::GivenUp),
        (ExchangeState::Idle, Content::Negotiate { .. }) | (ExchangeState::Reply, Content::Reply { .. }) => {
            Err(Reason::Payload)
        }
        (ExchangeState::Success2, Content::Success2) => Err(Reason::Payload),
        _ => Err(Reason::Message),
    }
}
