//! The behaviour that all clients share. A test of each kind calls [`check`]: those within a program in crate `host`, the one
//! over a network in crate `subsystem`.

use kvdrive_content::{Piece, Region};
use kvdrive_host::{Answer, Call, Calls, Client, Completion, Content, Error, Pair, Pipelined};
use kvdrive_nvme::{Key, Status, StoreOptions};

fn key(number: u32) -> Key {
    Key::from_u32_be(number)
}

/// Bytes that depend on the key and on every position.
fn value(number: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ (at >> 8) ^ number.wrapping_mul(31)) as u8).collect()
}

const SIZES: [u32; 10] = [1, 35, 36, 91, 500, 4_095, 4_096, 4_097, 4_200, 9_000];

/// Makes every call, also refused ones, several commands under way at once, and tickets that are dropped,
/// through a client with at least four slots, on an empty drive whose largest value has `max_value_bytes`
/// bytes.
pub fn check<C: Client>(client: &mut C, max_value_bytes: u32) {
    one_at_a_time(client, max_value_bytes);
    several_at_once(client);
    tickets_are_dropped(client);
}

/// Makes the calls that [`check`] makes one at a time through a pipeline; with the same conditions.
pub fn check_pipeline(pipeline: &mut dyn Pipelined<Vec<u8>>, max_value_bytes: u32) {
    one_at_a_time(&mut OneAtATime(pipeline), max_value_bytes);
    brought_pairs_are_taken(pipeline);
}

/// A scan that takes the pairs that each third NEXT has brought, and leaves the others to the pipeline,
/// misses no pair.
fn brought_pairs_are_taken(pipeline: &mut dyn Pipelined<Vec<u8>>) {
    let mut client = OneAtATime(pipeline);
    let mut into = Region::new();
    for number in 10..100 {
        client.store(key(number), Piece::Bytes(&value(number, number))).unwrap();
    }
    let (iterator, mut pair) = client.seek(Some(key(10)), &mut into).unwrap();
    let (mut numbers, mut nexts) = (10.., 0);
    let mut is_next = |pair: Pair, into: &Region| {
        let number = numbers.next().unwrap();
        assert_eq!((pair.key, pair.came_bytes), (key(number), number));
        assert!(into.to_bytes(number) == value(number, number), "{number}");
    };
    while let Some(found) = pair {
        is_next(found, &into);
        pair = client.next(iterator, &mut into).unwrap();
        nexts += 1;
        if nexts % 3 == 0 {
            if let Some(found) = pair {
                is_next(found, &into);
            }
            let mut brought = client.0.take_brought(iterator);
            while let Some(taken) = brought.next(&mut into).unwrap() {
                is_next(taken, &into);
            }
            assert!(brought.is_empty() && client.0.take_brought(iterator).is_empty());
            pair = client.next(iterator, &mut into).unwrap();
        }
    }
    assert_eq!(numbers.next(), Some(100), "every pair has come once");
    client.close(iterator).unwrap();
}

/// A pipeline as a client: it waits for each answer before the next call.
struct OneAtATime<'p>(&'p mut dyn Pipelined<Vec<u8>>);

impl Client for OneAtATime<'_> {
    type Ticket<V: Content> = Completion<Vec<u8>>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Completion<Vec<u8>>, Error> {
        let (call, value) = call.split();
        let mut bytes = Vec::new();
        if let Some(piece) = value.as_ref().map(Content::piece) {
            bytes.resize(piece.bytes() as usize, 0);
            piece.expand(&mut bytes);
        }
        self.0.begin(call, bytes, Region::new()).expect("there is room");
        let completion = self.0.next_completion()?.expect("it is under way");
        assert_eq!((completion.call, self.0.under_way()), (call, 0));
        Ok(completion)
    }

    fn wait<V: Content>(&mut self, ticket: Completion<Vec<u8>>, into: &mut Region) -> Result<Answer, Error> {
        *into = ticket.content;
        Ok(ticket.result?)
    }
}

fn one_at_a_time<C: Client>(client: &mut C, max_value_bytes: u32) {
    let mut into = Region::new();
    for (number, bytes) in (0..).zip(SIZES) {
        client.store(key(number), Piece::Bytes(&value(number, bytes))).unwrap();
        assert_eq!(client.retrieve(key(number), &mut into), Ok(bytes));
        assert!(into.to_bytes(bytes) == value(number, bytes), "{bytes} bytes");
    }
    let add_only = StoreOptions { add_only: true, ..StoreOptions::default() };
    let again = client.store_with(key(3), Piece::Bytes(b"again"), add_only);
    assert_eq!(again, Err(Error::Status(Status::KEY_EXISTS)));
    let too_long = vec![0; max_value_bytes as usize + 1];
    let refused = client.store(key(99), Piece::Bytes(&too_long));
    assert_eq!(refused, Err(Error::Status(Status::INVALID_VALUE_SIZE)));
    assert_eq!(client.retrieve(key(99), &mut into), Err(Error::Status(Status::KEY_NOT_FOUND)));
    assert_eq!((client.exist(key(0)), client.exist(key(99))), (Ok(true), Ok(false)));
    client.delete(key(0)).unwrap();
    client.delete(key(99)).unwrap();
    assert_eq!(client.exist(key(0)), Ok(false));
    assert_eq!(client.list(Some(key(2)), 4096).unwrap(), (2..10).map(key).collect::<Vec<_>>());
    assert_eq!(client.list(None, u32::MAX).unwrap().len(), 9);
    let (iterator, mut pair) = client.seek(Some(key(7)), &mut into).unwrap();
    for number in 7..10 {
        let found = pair.expect("a pair is left");
        let bytes = SIZES[number as usize];
        assert_eq!((found.key, found.value_bytes), (key(number), bytes));
        assert!(into.to_bytes(bytes) == value(number, bytes), "{bytes} bytes");
        pair = client.next(iterator, &mut into).unwrap();
    }
    assert_eq!(pair, None);
    client.close(iterator).unwrap();
}

fn several_at_once<C: Client>(client: &mut C) {
    let mut into = Region::new();
    for (number, bytes) in (100..).zip(SIZES) {
        let calls = [0, 1, 2].map(|copy| Call::Store {
            key: key(number + 100 * copy),
            value: value(number + copy, bytes),
            options: StoreOptions::default(),
        });
        let tickets = calls.map(|call| client.submit(call).unwrap());
        // The order differs from that of submission.
        for ticket in tickets.into_iter().rev() {
            assert_eq!(client.wait(ticket, &mut into), Ok(Answer::Done));
        }
        let tickets = [0, 1, 2].map(|copy| client.submit(Call::retrieve(key(number + 100 * copy))).unwrap());
        for (copy, ticket) in (0..3).zip(tickets).rev() {
            assert_eq!(client.wait(ticket, &mut into).map(Answer::value), Ok(bytes));
            assert!(into.to_bytes(bytes) == value(number + copy, bytes), "{bytes} bytes");
        }
    }
}

fn tickets_are_dropped<C: Client>(client: &mut C) {
    let mut into = Region::new();
    type NoValue = Call<&'static [u8]>;
    // More than there are slots, and than the drive has iterators.
    for round in 0..20 {
        let long = Call::Store { key: key(900), value: value(900, 300), options: StoreOptions::default() };
        drop(client.submit(long).unwrap());
        drop(client.submit(NoValue::Seek { key: None }).unwrap());
        let answered = client.submit(NoValue::Seek { key: None }).unwrap();
        if round % 2 == 0 {
            assert_eq!(client.exist(key(1)), Ok(true));
        }
        drop(answered);
    }
    assert_eq!(client.retrieve(key(900), &mut into), Ok(300));
    for _ in 0..8 {
        // Iterators whose SEEK no caller waited for are closed meanwhile; a drive has only a few.
        assert_eq!(client.exist(key(1)), Ok(true));
    }
    let (iterator, pair) = client.seek(Some(key(1)), &mut into).unwrap();
    assert_eq!(pair.map(|pair| pair.key), Some(key(1)));
    for number in 2..10 {
        let dropped = client.submit(NoValue::Next { iterator }).unwrap();
        if number % 2 == 0 {
            assert_eq!(client.exist(key(1)), Ok(true));
        }
        drop(dropped);
        let bytes = SIZES[number as usize];
        let pair = client.next(iterator, &mut into).unwrap().expect("a pair is left");
        assert_eq!((pair.key, pair.value_bytes), (key(number), bytes), "the drive has passed it");
        assert!(into.to_bytes(bytes) == value(number, bytes), "{bytes} bytes");
    }
    client.close(iterator).unwrap();
}
