//! Transactions of several clients, compared with an order in which they could have run one after the other:
//! reads and the writes that they saw form a graph, which must have no circle.

use std::collections::{BTreeMap, BTreeSet};

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_nvme::{Status, StoreOptions};
use kvdrive_saker::counters::Count;
use kvdrive_saker::threaded::{Drive, Error, InTransaction};
use kvdrive_saker::{BatchSize, Commit, Ending, NoSteps, Read, SakerConfig, Write};
use kvdrive_sim::Rng;

use crate::drive::{Drive as Map, get, key, put, saker};
use crate::threaded::open;

/// A committed transaction: the writer of each key that it read (0: none), and the keys that it wrote.
#[derive(Clone, Debug)]
struct Committed {
    number: u64,
    reads: BTreeMap<u64, u64>,
    writes: BTreeSet<u64>,
}

/// Every writer of a key has read it before, so the versions of a key are a chain, and the order of its
/// writers is known.
fn check_serial(all: &[Committed]) {
    let mut next: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for transaction in all {
        for key in &transaction.writes {
            let other = next.insert((*key, transaction.reads[key]), transaction.number);
            assert_eq!(other, None, "key {key}: two have written over the same version; {transaction:?}");
        }
    }
    let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for Committed { number, reads, .. } in all {
        for (key, writer) in reads {
            after.entry(*writer).or_default().insert(*number);
            if let Some(overwriter) = next.get(&(*key, *writer)).filter(|overwriter| *overwriter != number) {
                after.entry(*number).or_default().insert(*overwriter);
            }
        }
    }
    let mut ahead: BTreeMap<u64, u32> = BTreeMap::new();
    after.values().flatten().for_each(|number| *ahead.entry(*number).or_default() += 1);
    let mut ready = vec![0];
    let mut done = 0;
    while let Some(number) = ready.pop() {
        done += 1;
        for other in after.get(&number).into_iter().flatten() {
            let left = ahead.get_mut(other).expect("it was counted");
            *left -= 1;
            if *left == 0 {
                ready.push(*other);
            }
        }
    }
    assert_eq!(done, all.len() + 1, "these transactions have no order one after the other");
}

fn number_of<D: Drive>(transaction: &mut InTransaction<'_, D>, of: u64) -> u64 {
    let mut into = Region::new();
    match transaction.retrieve(key(of), &mut into) {
        Ok(bytes) => u64::from_le_bytes(into.to_bytes(bytes).try_into().expect("a number")),
        Err(Error::Status(Status::KEY_NOT_FOUND)) => 0,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn transactions_of_threads_are_serialisable() {
    const THREADS: u64 = 4;
    const KEYS: u64 = 5;
    let mut config = SakerConfig { batch: BatchSize::Fixed(4), buckets: 16, ..SakerConfig::default() };
    config.cache.charge = kvdrive_saker::Charge::Content { beside: 0 };
    config.cache.bytes = 200;
    let (threaded, inside) = open(config, 3);
    let run = |who: u64| {
        let threaded = threaded.clone();
        std::thread::spawn(move || {
            let (mut handle, mut rng) = (threaded.connect().unwrap(), Rng::stream(who, "transactions"));
            let mut committed = Vec::new();
            for life in 0..400 {
                let number = 1 + who + THREADS * life;
                let mut transaction = handle.transaction();
                let (mut reads, mut writes) = (BTreeMap::new(), BTreeSet::new());
                for _ in 0..1 + rng.below(3) {
                    let of = rng.below(KEYS);
                    if writes.contains(&of) {
                        assert_eq!(number_of(&mut transaction, of), number, "its own");
                        continue;
                    }
                    let writer = number_of(&mut transaction, of);
                    reads.entry(of).or_insert(writer);
                    if rng.one_in(2) {
                        transaction.store(key(of), Piece::Bytes(&number.to_le_bytes())).unwrap();
                        writes.insert(of);
                    }
                }
                if transaction.commit().unwrap() == Ending::Committed {
                    committed.push(Committed { number, reads, writes });
                }
                // Pending writes of others delay a commit, and are read.
                if rng.one_in(4) {
                    handle.store(key(100 + who), Piece::Bytes(&number.to_le_bytes())).unwrap();
                }
            }
            handle.close().unwrap();
            committed
        })
    };
    let running: Vec<_> = (0..THREADS).map(run).collect();
    let all: Vec<Committed> = running.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    check_serial(&all);
    assert!(all.len() > 300, "{} were committed", all.len());
    assert_eq!(threaded.saker().count(Count::Commits), all.len() as u64);
    assert!(threaded.saker().count(Count::Conflicts) > 0, "no transactions were in conflict");
    // The drive has the last version of each key's chain.
    let overwritten: BTreeSet<(u64, u64)> =
        all.iter().flat_map(|one| one.writes.iter().map(|key| (*key, one.reads[key]))).collect();
    for of in 0..KEYS {
        let stored = inside.pairs.lock().unwrap().get(&key(of)).cloned();
        let last = stored.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        assert!(!overwritten.contains(&(of, last)), "key {of}: {last} was overwritten");
    }
}

#[test]
fn a_write_of_another_client_is_a_conflict_and_changes_nothing() {
    let saker = saker(SakerConfig::default());
    let (mut a, mut b, mut drive) = (saker.client(), saker.client(), Map::default());
    let mut transaction = a.begin();
    let mut into = Region::new();
    drop(a.retrieve_in(&mut transaction, key(1), &mut into, &mut NoSteps));
    transaction.store(key(2), Piece::Bytes(b"two")).unwrap();
    put(&mut b, 1, b"one");
    assert!(matches!(a.commit(&transaction, &mut NoSteps), Commit::Ended(Ending::Conflict)));
    assert_eq!(get(&mut a, 2), None, "the drive is asked: nothing is pending");
    // A transaction that has read a pending pair waits until that pair is on the drive.
    let mut transaction = a.begin();
    drop(a.retrieve_in(&mut transaction, key(1), &mut into, &mut NoSteps));
    transaction.delete(key(1)).unwrap();
    transaction.store(key(2), Piece::Bytes(b"two")).unwrap();
    let Commit::Wait(batch) = a.commit(&transaction, &mut NoSteps) else { panic!("b's write is pending") };
    drive.take(&mut a);
    let at = drive.position(&batch).expect("its container was closed");
    drive.answer(at, &mut a);
    let Commit::Sent(sent) = a.commit(&transaction, &mut NoSteps) else { panic!("nothing is in the way") };
    assert_eq!(get(&mut b, 1), Some(None), "what is committed is read before it is answered");
    assert_eq!(get(&mut b, 2), Some(Some(b"two".to_vec())));
    drive.answer_all(&mut a);
    assert_eq!(sent.ending(), Ok(Ending::Committed));
    assert_eq!(drive.pairs.into_iter().collect::<Vec<_>>(), [(key(2), b"two".to_vec())]);
}

/// If a transaction fails, a transaction that has read its values cannot commit writes that follow from them.
#[test]
fn a_failed_commit_fails_transactions_that_read_its_values() {
    let saker = saker(SakerConfig::default());
    let (mut a, mut b, mut drive) = (saker.client(), saker.client(), Map::default());
    let (mut first, mut second, mut into) = (a.begin(), b.begin(), Region::new());
    for number in [1, 2] {
        first.store(key(number), Piece::Bytes(b"new")).unwrap();
    }
    let Commit::Sent(sent) = a.commit(&first, &mut NoSteps) else { panic!("nothing is in the way") };
    drop(b.retrieve_in(&mut second, key(2), &mut into, &mut NoSteps));
    second.store(key(3), Piece::Bytes(b"follows")).unwrap();
    assert!(matches!(b.commit(&second, &mut NoSteps), Commit::Wait(_)), "it is not known yet");
    drive.take(&mut a);
    drive.fail_after = Some(0);
    drive.answer_all(&mut a);
    assert_eq!(sent.ending(), Err(Status::CAPACITY_EXCEEDED));
    assert!(matches!(b.commit(&second, &mut NoSteps), Commit::Ended(Ending::Conflict)));
    assert!(drive.pairs.is_empty());
    assert_eq!(saker.pending_bytes(), 0);
}

#[test]
fn a_transaction_has_room_for_one_structured_value() {
    let saker = saker(SakerConfig { container_bytes: 100, ..SakerConfig::default() });
    let mut client = saker.client();
    let mut transaction = client.begin();
    // 16 B of head, and 16 B besides each value.
    transaction.store(key(1), Piece::Bytes(&[1; 40])).unwrap();
    assert_eq!(transaction.store(key(2), Piece::Bytes(&[2; 13])), Err(Status::INVALID_VALUE_SIZE));
    transaction.store(key(2), Piece::Bytes(&[2; 12])).unwrap();
    assert_eq!(transaction.delete(key(3)), Err(Status::INVALID_VALUE_SIZE));
    transaction.store(key(1), Piece::Bytes(&[1; 24])).unwrap();
    transaction.delete(key(3)).unwrap();
    let Commit::Sent(sent) = client.commit(&transaction, &mut NoSteps) else {
        panic!("nothing is in the way")
    };
    assert_eq!(sent.batch().bytes(), 100);
    let plain = client.store(key(1), Piece::Bytes(b"v"), StoreOptions::default(), &mut NoSteps);
    assert!(matches!(plain, Write::Buffered), "after it");
}

/// The bytes would suffice for more requests, but the head of a structured value counts them in 16 bits.
#[test]
fn a_transaction_writes_no_more_keys_than_a_batch_counts() {
    let saker = saker(SakerConfig { container_bytes: 2 << 20, ..SakerConfig::default() });
    let mut client = saker.client();
    let mut transaction = client.begin();
    let most = u64::from(BATCH_REQUESTS_MAX);
    (0..most).for_each(|number| transaction.delete(key(number)).unwrap());
    assert_eq!(transaction.delete(key(most)), Err(Status::INVALID_VALUE_SIZE));
    assert_eq!(transaction.store(key(most), Piece::Bytes(b"")), Err(Status::INVALID_VALUE_SIZE));
    transaction.store(key(0), Piece::Bytes(b"again")).expect("a key that is there is no other request");
    let Commit::Sent(sent) = client.commit(&transaction, &mut NoSteps) else {
        panic!("nothing is in the way")
    };
    assert_eq!(sent.batch().bytes(), 16 + 16 * BATCH_REQUESTS_MAX + 5);
}

#[test]
fn a_transaction_reads_what_it_wrote_and_the_first_of_its_reads_counts() {
    let saker = saker(SakerConfig::default());
    let (mut a, mut b, mut into) = (saker.client(), saker.client(), Region::new());
    let mut transaction = a.begin();
    put(&mut b, 1, b"one");
    transaction.delete(key(1)).unwrap();
    let read = a.retrieve_in(&mut transaction, key(1), &mut into, &mut NoSteps);
    assert!(matches!(read, Read::Missing), "it has deleted it");
    transaction.store(key(1), Piece::Bytes(b"own")).unwrap();
    let read = a.retrieve_in(&mut transaction, key(1), &mut into, &mut NoSteps);
    assert!(matches!(read, Read::Found(3)), "it has stored it");
    // Two reads of one key with another client's write between them see two moments.
    let mut transaction = a.begin();
    drop(a.retrieve_in(&mut transaction, key(2), &mut into, &mut NoSteps));
    put(&mut b, 2, b"two");
    drop(a.retrieve_in(&mut transaction, key(2), &mut into, &mut NoSteps));
    assert!(matches!(a.commit(&transaction, &mut NoSteps), Commit::Ended(Ending::Conflict)));
}
