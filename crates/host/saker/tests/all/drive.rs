//! A drive of a map: it applies commands under way in any order and answers them in any order, as the test
//! decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_content::Piece;
use kvdrive_nvme::batch::{BatchReader, Request, RequestKind};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_saker::{Batch, Client, NoSteps, Payload, Read, Saker, SakerConfig, Sync, Write};

/// The command of a batch or bypass.
pub struct Sent {
    pub batch: Arc<Batch>,
    requests: Vec<(Key, Option<Vec<u8>>)>,
    /// The answer, after the command was applied.
    answer: Option<(Status, u32)>,
}

#[derive(Default)]
pub struct Drive {
    pub pairs: BTreeMap<Key, Vec<u8>>,
    pub under_way: Vec<Sent>,
    /// Fails the request after this many, once.
    pub fail_after: Option<u32>,
}

impl Drive {
    /// Takes a batch. No older batch with one of its keys may be under way.
    pub fn submit(&mut self, batch: Arc<Batch>) {
        let content = batch.content();
        let requests = match batch.payload() {
            Payload::Store { key, at, bytes } => {
                let mut value = vec![0; bytes as usize];
                content.copy_to(at, &mut value);
                vec![(key, Some(value))]
            }
            Payload::Delete { key } => vec![(key, None)],
            Payload::Batch { bytes, requests, .. } => {
                let mut reader = BatchReader::new(bytes, |at, out| content.copy_to(at, out)).unwrap();
                reader.check().unwrap();
                assert_eq!(reader.requests(), requests);
                let all: Result<Vec<Request>, _> = reader.collect();
                let value = |request: &Request| {
                    let mut value = vec![0; request.value_bytes as usize];
                    content.copy_to(request.value_at, &mut value);
                    (request.key, (request.kind == RequestKind::Store).then_some(value))
                };
                all.unwrap().iter().map(value).collect()
            }
        };
        self.submit_requests(batch, requests);
    }

    pub fn submit_requests(&mut self, batch: Arc<Batch>, requests: Vec<(Key, Option<Vec<u8>>)>) {
        for sent in &self.under_way {
            let shared = sent.requests.iter().find(|(key, _)| requests.iter().any(|(other, _)| key == other));
            assert!(shared.is_none(), "two batches with key {:?} under way", shared.unwrap().0);
        }
        self.under_way.push(Sent { batch, requests, answer: None });
    }

    /// Applies the requests of the command at `at`.
    pub fn apply(&mut self, at: usize) {
        let sent = &mut self.under_way[at];
        if sent.answer.is_some() {
            return;
        }
        let failing = self.fail_after.take().filter(|after| (*after as usize) < sent.requests.len());
        let applied = failing.map_or(sent.requests.len(), |after| after as usize);
        for (key, value) in &sent.requests[..applied] {
            match value {
                Some(value) => drop(self.pairs.insert(*key, value.clone())),
                None => drop(self.pairs.remove(key)),
            }
        }
        let status = if failing.is_some() { Status::CAPACITY_EXCEEDED } else { Status::SUCCESS };
        sent.answer = Some((status, applied as u32));
    }

    /// Applies the command at `at`, if that has not been done, and answers it to `client`.
    pub fn answer(&mut self, at: usize, client: &mut Client) {
        self.apply(at);
        let Sent { batch, answer, .. } = self.under_way.remove(at);
        let (status, applied) = answer.unwrap();
        client.complete(&batch, status, applied, &mut NoSteps);
    }

    /// Takes the batches that a client hands out.
    pub fn take(&mut self, client: &mut Client) -> usize {
        let mut taken = 0;
        while let Some(batch) = client.next_batch() {
            self.submit(batch);
            taken += 1;
        }
        taken
    }

    /// Answers all commands under way, the oldest first, and those that are handed out then.
    pub fn answer_all(&mut self, client: &mut Client) {
        self.take(client);
        while !self.under_way.is_empty() {
            self.answer(0, client);
            self.take(client);
        }
    }

    /// The index of a batch in the drive.
    pub fn position(&self, batch: &Arc<Batch>) -> Option<usize> {
        self.under_way.iter().position(|sent| Arc::ptr_eq(&sent.batch, batch))
    }
}

pub fn saker(config: SakerConfig) -> Arc<Saker> {
    Saker::new(config).unwrap()
}

pub fn key(number: u64) -> Key {
    Key::from_u64_be(number)
}

/// A store that must be accepted.
#[track_caller]
pub fn put(client: &mut Client, number: u64, value: &[u8]) {
    let write = client.store(key(number), Piece::Bytes(value), StoreOptions::default(), &mut NoSteps);
    assert!(matches!(write, Write::Buffered), "{write:?}");
}

/// A client's read from pending writes and cache: `None` if it asks the drive.
pub fn get(client: &mut Client, number: u64) -> Option<Option<Vec<u8>>> {
    let mut into = kvdrive_content::Region::new();
    match client.retrieve(key(number), &mut into, &mut NoSteps) {
        Read::Found(bytes) => Some(Some(into.to_bytes(bytes))),
        Read::Missing => Some(None),
        Read::Ask(_) => None,
        Read::Wait(batch) => panic!("waits for {batch:?}"),
    }
}

/// The batch that a sync waits for.
#[track_caller]
pub fn sync_waits(client: &mut Client) -> Arc<Batch> {
    match client.sync(&mut NoSteps) {
        Sync::Wait(batch) => batch,
        Sync::Done(failures) => panic!("done, with {failures:?}"),
    }
}

#[track_caller]
pub fn sync_done(client: &mut Client) -> Vec<kvdrive_saker::Failure> {
    match client.sync(&mut NoSteps) {
        Sync::Wait(batch) => panic!("waits for {batch:?}"),
        Sync::Done(failures) => failures,
    }
}
