//! The host's end of DH-HMAC-CHAP: a queue proves that its host knows its secret, and demands the same of the
//! controller if the host has a secret for it. (Messages: `kvdrive_nvme::auth`; computations: crate `auth`.)

use kvdrive_auth::{KeyPair, Response, Role, random};
use kvdrive_nvme::auth::{Content, MESSAGE_MAX_BYTES, Message, Offer, Reason};
use kvdrive_nvme::fabrics::Fabrics;

use super::options::Authentication;
use super::queue::{Data, Queue};
use crate::Error;

/// The bytes of the controller's next message.
fn receive(queue: &mut Queue) -> Result<Vec<u8>, Error> {
    let bytes = MESSAGE_MAX_BYTES as u32;
    let receive = Fabrics::AuthenticationReceive { bytes }.encode(0);
    Ok(queue.execute(receive, Data::In(bytes))?.ok()?.data)
}

fn send(queue: &mut Queue, transaction: u16, content: Content<'_>) -> Result<(), Error> {
    let message = Message { transaction, content }.encode();
    let send = Fabrics::AuthenticationSend { bytes: message.len() as u32 }.encode(0);
    queue.execute(send, Data::Out(&message))?.ok().map(|_| ())
}

impl Authentication {
    /// Runs one exchange on a queue on which nothing is under way.
    ///
    /// # Errors
    /// [`Error::Authentication`] if an end fails to prove its secret, which ends the queue.
    pub(super) fn run(&self, queue: &mut Queue, host_nqn: &str, subsystem_nqn: &str) -> Result<(), Error> {
        let transaction = queue.next_transaction();
        match self.exchange(queue, transaction, host_nqn, subsystem_nqn) {
            // The controller gets a message about its mistake.
            Err(ExchangeError::Here(reason)) => {
                send(queue, transaction, Content::Failure2(reason))?;
                Err(Error::Authentication { reason, by_controller: false })
            }
            Err(ExchangeError::There(reason)) => Err(Error::Authentication { reason, by_controller: true }),
            Err(ExchangeError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn exchange(
        &self,
        queue: &mut Queue,
        transaction: u16,
        host_nqn: &str,
        subsystem_nqn: &str,
    ) -> Result<(), ExchangeError> {
        let hashes: Vec<u8> = self.hashes.iter().map(|hash| *hash as u8).collect();
        let groups: Vec<u8> = self.groups.iter().map(|group| *group as u8).collect();
        let offer = Some(Offer { hashes: &hashes, groups: &groups });
        send(queue, transaction, Content::Negotiate { concatenation: 0, offer })?;

        let bytes = receive(queue)?;
        let Content::Challenge { hash, group, sequence, challenge, public } = content(&bytes, transaction)?
        else {
            return Err(ExchangeError::Here(Reason::Message));
        };
        if !self.hashes.contains(&hash) || !self.groups.contains(&group) || sequence == 0 {
            return Err(ExchangeError::Here(Reason::Payload));
        }
        let pair = KeyPair::new(group);
        let shared = pair.agree(public).map_err(|_| ExchangeError::Here(Reason::Payload))?;
        let ours = Response {
            role: Role::Host,
            secret: &self.secret,
            own_nqn: host_nqn,
            other_nqn: subsystem_nqn,
            hash,
            shared: &shared,
            sequence,
            transaction,
        };
        let own_challenge = self.controller_secret.as_ref().map(|_| random(hash.bytes()));
        let own_sequence = if own_challenge.is_some() { sequence.wrapping_add(1).max(1) } else { 0 };
        let reply = Content::Reply {
            response: &ours.to(challenge),
            challenge: own_challenge.as_deref(),
            sequence: own_sequence,
            public: pair.public(),
        };
        send(queue, transaction, reply)?;

        let bytes = receive(queue)?;
        let Content::Success1 { response, .. } = content(&bytes, transaction)? else {
            return Err(ExchangeError::Here(Reason::Message));
        };
        let (Some(secret), Some(challenge)) = (&self.controller_secret, &own_challenge) else {
            return Ok(());
        };
        let theirs = Response {
            role: Role::Controller,
            secret,
            own_nqn: subsystem_nqn,
            other_nqn: host_nqn,
            sequence: own_sequence,
            ..ours
        };
        match response {
            Some(response) if theirs.is(response, challenge) => {
                Ok(send(queue, transaction, Content::Success2)?)
            }
            Some(_) => Err(ExchangeError::Here(Reason::Failed)),
            None => Err(ExchangeError::Here(Reason::Payload)),
        }
    }
}

/// Why an exchange failed.
enum ExchangeError {
    Here(Reason),
    There(Reason),
    Error(Error),
}

impl From<Error> for ExchangeError {
    fn from(error: Error) -> ExchangeError {
        ExchangeError::Error(error)
    }
}

fn content(bytes: &[u8], transaction: u16) -> Result<Content<'_>, ExchangeError> {
    let (message, _) = Message::decode(bytes).map_err(ExchangeError::Here)?;
    match message.content {
        Content::Failure1(reason) => Err(ExchangeError::There(reason)),
        _ if message.transaction != transaction => Err(ExchangeError::Here(Reason::Payload)),
        content => Ok(content),
    }
}
