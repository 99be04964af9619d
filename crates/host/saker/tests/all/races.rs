//! Each race that the order of calls can cause, by name.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Status, StoreOptions};
use kvdrive_saker::counters::Count;
use kvdrive_saker::{
    Batch, BatchSize, Client, NoSteps, Payload, Read, Saker, SakerConfig, Sync, Whereabouts, Write,
};

use crate::drive::{Drive, get, key, put, saker, sync_done, sync_waits};

fn rig(batch: u32) -> (Arc<Saker>, Client, Client, Drive) {
    let mut config = SakerConfig { batch: BatchSize::Fixed(batch), ..SakerConfig::default() };
    config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
    config.cache.bytes = 1 << 20;
    let saker = saker(config);
    (saker.clone(), saker.client(), saker.client(), Drive::default())
}

fn delete(client: &mut Client, number: u64) {
    assert!(matches!(client.delete(key(number), &mut NoSteps), Write::Buffered));
}

fn region(value: &[u8]) -> Region {
    Region::from_bytes(value.to_vec())
}

fn add(client: &mut Client, number: u64, value: &[u8]) -> Write {
    let options = StoreOptions { add_only: true, ..StoreOptions::default() };
    client.store(key(number), Piece::Bytes(value), options, &mut NoSteps)
}

fn update(client: &mut Client, number: u64, value: &[u8]) -> Write {
    let options = StoreOptions { update_only: true, ..StoreOptions::default() };
    client.store(key(number), Piece::Bytes(value), options, &mut NoSteps)
}

#[track_caller]
fn carried_by(batch: &Arc<Batch>, client: &Client) {
    assert!(matches!(batch.whereabouts(), Whereabouts::With(id) if id == client.id()));
}

/// The answer to a retrieve comes after a write came and was answered: the cache must not keep the old value.
#[test]
fn a_fill_after_a_write() {
    let (saker, mut a, mut b, mut drive) = rig(1);
    let mut into = Region::new();
    let Read::Ask(ask) = a.retrieve(key(1), &mut into, &mut NoSteps) else { panic!("not here") };
    put(&mut b, 1, b"new");
    drive.answer_all(&mut b);
    a.fill(ask, &region(b"old"), 3, &mut NoSteps);
    assert_eq!(get(&mut a, 1), None, "the drive must be asked");
    assert_eq!(saker.count(Count::LostFills), 1);
    // Without a write in between it enters.
    let Read::Ask(ask) = a.retrieve(key(1), &mut into, &mut NoSteps) else { panic!("not here") };
    a.fill(ask, &region(b"new"), 3, &mut NoSteps);
    assert_eq!(get(&mut b, 1), Some(Some(b"new".to_vec())));
}

/// The same with the write still pending when the fill comes, and answered afterwards.
#[test]
fn a_fill_beside_a_pending_write() {
    let (_, mut a, mut b, mut drive) = rig(2);
    let Read::Ask(ask) = a.retrieve(key(1), &mut Region::new(), &mut NoSteps) else { panic!("not here") };
    put(&mut b, 1, b"new");
    a.fill(ask, &region(b"old"), 3, &mut NoSteps);
    assert_eq!(get(&mut a, 1), Some(Some(b"new".to_vec())));
    let _ = b.sync(&mut NoSteps);
    drive.answer_all(&mut b);
    assert_eq!(get(&mut a, 1), None);
}

/// An older version is answered while a newer one is pending: the newer one stays readable.
#[test]
fn a_completion_of_an_older_version() {
    let (_, mut a, _, mut drive) = rig(2);
    put(&mut a, 1, b"v1");
    put(&mut a, 2, b"x");
    put(&mut a, 1, b"v2");
    assert_eq!(drive.take(&mut a), 1);
    drive.answer(0, &mut a);
    assert_eq!(get(&mut a, 1), Some(Some(b"v2".to_vec())));
    // The same within one batch.
    put(&mut a, 1, b"v3");
    assert_eq!(get(&mut a, 1), Some(Some(b"v3".to_vec())));
    drive.answer_all(&mut a);
    assert_eq!(drive.pairs[&key(1)], b"v3");
    assert_eq!(get(&mut a, 1), None, "nothing is pending");
}

/// Three batches with one key: each is handed out after the one before has been answered, with any number of I/O
/// threads. A batch with other keys overtakes them.
#[test]
fn batches_of_one_key() {
    let (saker, mut a, _, mut drive) = rig(2);
    for version in 0..3u8 {
        put(&mut a, 1, &[version]);
        put(&mut a, 10 + u64::from(version), b"x");
    }
    put(&mut a, 20, b"x");
    put(&mut a, 21, b"x");
    assert_eq!(drive.take(&mut a), 2);
    assert_eq!(saker.count(Count::Held), 2);
    drive.answer(1, &mut a);
    assert_eq!(drive.take(&mut a), 0, "another batch says nothing of this key");
    for version in 0..3 {
        assert_eq!(drive.under_way.len(), 1);
        drive.answer(0, &mut a);
        assert_eq!(drive.pairs[&key(1)], [version]);
        assert_eq!(drive.take(&mut a), usize::from(version < 2));
    }
}

/// The last write wins, whichever client sends the batch.
#[test]
fn two_clients_one_key() {
    let (saker, mut a, mut b, mut drive) = rig(64);
    put(&mut a, 1, b"a");
    put(&mut a, 2, b"a");
    put(&mut b, 1, b"b");
    assert_eq!((drive.take(&mut a), drive.take(&mut b)), (0, 1), "B sends A's container");
    assert_eq!(saker.count(Count::ClosedByOrder), 1);
    assert_eq!(get(&mut a, 1), Some(Some(b"b".to_vec())));
    assert_eq!(get(&mut b, 2), Some(Some(b"a".to_vec())));
    let waited = sync_waits(&mut b);
    assert_eq!(drive.take(&mut b), 0, "A's version is under way");
    assert!(
        matches!(waited.whereabouts(), Whereabouts::WaitsFor(older) if drive.position(&older) == Some(0))
    );
    drive.answer_all(&mut b);
    assert_eq!(drive.pairs[&key(1)], b"b");
    assert_eq!((sync_done(&mut a), sync_done(&mut b)), (vec![], vec![]));
}

/// Two clients write two keys crosswise: batches that waited for each other would never be sent.
#[test]
fn two_clients_two_keys_crosswise() {
    let (_, mut a, mut b, mut drive) = rig(64);
    put(&mut a, 1, b"a");
    put(&mut b, 2, b"b");
    put(&mut b, 1, b"b");
    put(&mut a, 2, b"a");
    put(&mut b, 2, b"b again");
    put(&mut a, 1, b"a again");
    let (_, _) = (sync_waits(&mut a), sync_waits(&mut b));
    drive.take(&mut a);
    drive.answer_all(&mut b);
    drive.answer_all(&mut a);
    drive.answer_all(&mut b);
    assert_eq!((&drive.pairs[&key(1)][..], &drive.pairs[&key(2)][..]), (&b"a again"[..], &b"b again"[..]));
    assert_eq!((sync_done(&mut a), sync_done(&mut b)), (vec![], vec![]));
}

/// A sync waits for this client's requests in a batch that another client sends, and for no other client's.
#[test]
fn a_sync_beside_another_clients_batch() {
    let (_, mut a, mut b, mut drive) = rig(64);
    put(&mut a, 1, b"a");
    put(&mut b, 1, b"b");
    drive.take(&mut b);
    let waited = sync_waits(&mut a);
    carried_by(&waited, &b);
    assert_eq!(drive.position(&waited), Some(0));
    drive.answer(0, &mut b);
    assert_eq!(sync_done(&mut a), [], "B's version is pending, and is B's affair");
    assert_eq!(drive.pairs[&key(1)], b"a");
    assert_eq!((a.unsynced(), b.unsynced()), (0, 1));
}

/// A request too large for a container is sent after pending requests of its key have been answered; later
/// writes wait for it, and so do readers.
#[test]
fn a_bypass_after_pending_requests() {
    let (saker, mut a, mut b, mut drive) = rig(64);
    let large = vec![7; 5000];
    put(&mut a, 1, b"small");
    let store = |client: &mut Client| {
        client.store(key(1), Piece::Bytes(&large), StoreOptions::default(), &mut NoSteps)
    };
    let Write::Wait(first) = store(&mut b) else { panic!("A's version is pending") };
    assert_eq!(drive.take(&mut b), 1, "A's container goes first");
    assert_eq!(drive.position(&first), Some(0));
    assert!(matches!(store(&mut b), Write::Wait(_)), "still");
    drive.answer(0, &mut b);
    let Write::Bypass(alone) = store(&mut b) else { panic!("nothing is in the way") };
    drive.submit_requests(alone.clone(), vec![(key(1), Some(large.clone()))]);

    let read = a.retrieve(key(1), &mut Region::new(), &mut NoSteps);
    assert!(matches!(read, Read::Wait(batch) if Arc::ptr_eq(&batch, &alone)));
    put(&mut a, 1, b"later");
    let _ = sync_waits(&mut a);
    assert_eq!(drive.take(&mut a), 0, "after the large one");
    drive.answer(0, &mut b);
    assert_eq!(drive.take(&mut b), 1);
    assert_eq!(drive.pairs[&key(1)], large);
    drive.answer_all(&mut b);
    assert_eq!(drive.pairs[&key(1)], b"later");
    assert_eq!((sync_done(&mut a), saker.count(Count::Bypassed)), (vec![], 1));
}

/// The same with one client: its own container is sent first.
#[test]
fn a_bypass_after_the_own_container() {
    let (_, mut a, _, mut drive) = rig(64);
    put(&mut a, 1, b"small");
    let large = vec![7; 5000];
    let store = |client: &mut Client| {
        client.store(key(1), Piece::Bytes(&large), StoreOptions::default(), &mut NoSteps)
    };
    assert!(matches!(store(&mut a), Write::Wait(_)));
    drive.answer_all(&mut a);
    assert_eq!(drive.pairs[&key(1)], b"small");
    let Write::Bypass(alone) = store(&mut a) else { panic!("nothing is in the way") };
    drive.submit_requests(alone, vec![(key(1), Some(large.clone()))]);
    put(&mut a, 2, b"x");
    drive.answer_all(&mut a);
    assert_eq!(get(&mut a, 1), None);
    assert_eq!(a.unsynced(), 1, "the large one was answered to its caller");
}

/// Conditions take pending writes into account, also deletes.
#[test]
fn a_conditional_store_after_a_pending_delete() {
    let (_, mut a, mut b, mut drive) = rig(64);
    drive.pairs.insert(key(1), b"old".to_vec());
    delete(&mut a, 1);
    assert!(matches!(update(&mut b, 1, b"new"), Write::Refused(Status::KEY_NOT_FOUND)));
    assert!(matches!(b.exist(key(1), &mut NoSteps), Read::Missing));
    assert_eq!(get(&mut b, 1), Some(None));
    assert!(matches!(add(&mut b, 1, b"new"), Write::Buffered));
    assert!(matches!(add(&mut a, 1, b"newer"), Write::Refused(Status::KEY_EXISTS)));
    assert!(matches!(update(&mut a, 1, b"newest"), Write::Buffered));
    assert!(matches!(b.exist(key(1), &mut NoSteps), Read::Found(0)));
    let _ = sync_waits(&mut a);
    drive.take(&mut a);
    drive.answer_all(&mut b);
    drive.answer_all(&mut a);
    assert_eq!(drive.pairs[&key(1)], b"newest");
    // If no write is pending, the drive decides; until its answer, the outcome is unknown to all clients.
    let Write::Bypass(alone) = add(&mut a, 1, b"again") else { panic!("only the drive knows") };
    let Write::Wait(first) = update(&mut b, 1, b"other") else { panic!("the drive has not answered") };
    assert!(Arc::ptr_eq(&first, &alone));
    a.complete(&alone, Status::KEY_EXISTS, 0, &mut NoSteps);
    assert_eq!(sync_done(&mut a), [], "its caller has heard");
    assert!(matches!(update(&mut b, 1, b"other"), Write::Bypass(_)));
}

/// A range while batches are answered: the drive's cursor and the versions merged with it make one moment.
#[test]
fn a_cursor_while_batches_complete() {
    let (_, mut a, mut b, mut drive) = rig(2);
    put(&mut a, 1, b"a1");
    put(&mut a, 2, b"a2");
    drive.take(&mut a);
    let range = b.begin_range();
    let cursor = drive.pairs.clone();
    // Answered after the cursor was opened: neither in the cursor nor pending any more.
    drive.answer(0, &mut a);
    put(&mut b, 3, b"b3");
    let view = b.view(range, Some(key(2)), &mut NoSteps).unwrap();
    assert!(cursor.is_empty());
    let keys: Vec<_> = view.entries().iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, [key(2), key(3)]);
    assert!(view.get(&key(2)).unwrap().is_some());
    // A bypass meanwhile: no client has its value, so the range begins again.
    let range = b.begin_range();
    let large = vec![1; 5000];
    let store = a.store(key(9), Piece::Bytes(&large), StoreOptions::default(), &mut NoSteps);
    let Write::Bypass(alone) = store else { panic!("{store:?}") };
    a.complete(&alone, Status::SUCCESS, 1, &mut NoSteps);
    assert!(b.view(range, None, &mut NoSteps).is_none());
    let range = b.begin_range();
    assert_eq!(b.view(range, None, &mut NoSteps).unwrap().entries().len(), 1);
}

/// The other clients send the writes of a dropped client; the number of its unsynced requests is counted.
#[test]
fn a_client_dropped() {
    let (saker, mut a, mut b, mut drive) = rig(2);
    (1..=3).for_each(|number| put(&mut a, number, b"a"));
    assert_eq!(a.unsynced(), 3);
    drop(a);
    assert_eq!(saker.count(Count::Unsynced), 3);
    assert_eq!(get(&mut b, 3), Some(Some(b"a".to_vec())), "pending all the same");
    assert_eq!(drive.take(&mut b), 2, "the full one and the open one");
    drive.under_way.iter().for_each(|sent| carried_by(&sent.batch, &b));
    drive.answer_all(&mut b);
    assert_eq!(drive.pairs.len(), 3);
    assert_eq!(sync_done(&mut b), []);
}

/// A batch that fails in the middle: each request that was not applied is reported, the cache drops its key,
/// and a later version of the key is sent nevertheless.
#[test]
fn a_batch_that_fails_in_the_middle() {
    let (saker, mut a, mut b, mut drive) = rig(4);
    drive.pairs.insert(key(3), b"old".to_vec());
    let Read::Ask(ask) = a.retrieve(key(3), &mut Region::new(), &mut NoSteps) else { panic!("not here") };
    a.fill(ask, &region(b"old"), 3, &mut NoSteps);
    (1..=4).for_each(|number| put(&mut a, number, b"new"));
    put(&mut b, 4, b"newer");
    let _ = sync_waits(&mut b);
    assert_eq!(drive.take(&mut b), 0);
    drive.take(&mut a);
    drive.fail_after = Some(2);
    drive.answer(0, &mut a);
    assert_eq!(get(&mut a, 3), None, "the cache has not the value that failed");
    assert_eq!(get(&mut a, 4), Some(Some(b"newer".to_vec())));
    let failed = sync_done(&mut a);
    let said: Vec<_> = failed.iter().map(|failure| (failure.key, failure.status)).collect();
    let status = Status::CAPACITY_EXCEEDED;
    assert_eq!(said, [(key(3), status), (key(4), status)]);
    assert_eq!(saker.count(Count::Failed), 2);
    drive.answer_all(&mut a);
    assert_eq!(drive.pairs[&key(4)], b"newer");
    assert!(matches!(b.sync(&mut NoSteps), Sync::Done(failed) if failed.is_empty()));
    // If a success counts fewer requests than were sent, the others count as failed.
    (1..=4).for_each(|number| put(&mut a, number, b"last"));
    let batch = a.next_batch().unwrap();
    assert!(matches!(batch.payload(), Payload::Batch { requests: 4, .. }));
    a.complete(&batch, Status::SUCCESS, 3, &mut NoSteps);
    let failed = sync_done(&mut a);
    assert_eq!((failed.len(), failed[0].key, failed[0].status), (1, key(4), Status::INTERNAL));
}
