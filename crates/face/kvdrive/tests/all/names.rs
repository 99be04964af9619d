//! Keys of any length: names, stored under a digest.

use kvdrive::{Done, Drive, Ended, Error, Pipeline, Places, Status, StoreOptions, key_of};

const NAME: &[u8] = b"a name of more than sixteen bytes";
const OTHER: &[u8] = b"another name of more than sixteen bytes";

fn ended(pipeline: &mut Pipeline<'_>) -> Result<Done, Error> {
    let Ended { key, result, .. } = pipeline.next_ended().unwrap().unwrap();
    assert_eq!(key, NAME, "a call is told by the name that was given");
    result
}

#[test]
fn a_name_is_a_key_in_every_call() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    assert_eq!(drive.get(NAME).unwrap(), None);
    assert!(!drive.remove(NAME).unwrap());
    drive.store(NAME, b"value").unwrap();
    drive.store(NAME, b"replaced").unwrap();
    drive.store(OTHER, &vec![7; 3 << 20]).unwrap();
    assert_eq!(drive.get(NAME).unwrap().as_deref(), Some(&b"replaced"[..]));
    let part = drive.get_part(NAME, 2, 3).unwrap().unwrap();
    assert_eq!((&part.bytes[..], part.value_bytes), (&b"pla"[..], 8));
    let mut pairs: Vec<_> = drive.pairs().unwrap().map(|pair| pair.unwrap().0).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [NAME, OTHER], "pairs have the names that were given");
    let keys: Vec<_> = drive.keys().map(Result::unwrap).collect();
    assert!([NAME, OTHER].iter().all(|name| keys.contains(&key_of(name).unwrap().to_array().to_vec())));

    let (add, update) = (
        StoreOptions { add_only: true, ..StoreOptions::default() },
        StoreOptions { update_only: true, ..StoreOptions::default() },
    );
    let status = |ended: Result<(), Error>| ended.unwrap_err().status();
    assert_eq!(status(drive.store_with(NAME, b"", add)), Some(Status::KEY_EXISTS));
    drive.store_with(NAME, b"updated", update).unwrap();
    assert!(drive.exist(NAME).unwrap() && drive.remove(NAME).unwrap() && !drive.exist(NAME).unwrap());
    assert_eq!(status(drive.store_with(NAME, b"", update)), Some(Status::KEY_NOT_FOUND));
    drive.delete(OTHER).unwrap();
    assert_eq!(drive.count(b"").unwrap(), 0);
    assert!(matches!(drive.store(&[1; 65_536], b""), Err(Error::KeySize(65_536))));
    assert!(matches!(drive.store(NAME, &vec![0; 256 << 20]), Err(Error::ValueSize { .. })));
}

/// Keys that are long as sizes end in zeros, too; a name is one only for the library.
#[test]
fn a_name_that_ends_in_zeros_is_a_name() {
    let (drive, name) = (kvdrive::open("cosmos-plus").unwrap(), [0; 17]);
    drive.store(&name, b"value").unwrap();
    assert_eq!(drive.get(&name).unwrap().as_deref(), Some(&b"value"[..]));
    let keys: Vec<_> = drive.keys().map(Result::unwrap).collect();
    assert_eq!(keys, [key_of(&name).unwrap().to_array().to_vec()]);
}

#[test]
fn a_key_of_sixteen_bytes_is_itself() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    drive.store(&[b'k'; 16], b"value").unwrap();
    assert_eq!(key_of(&[b'k'; 16]).unwrap().to_array(), [b'k'; 16]);
    assert_eq!(drive.get_part(&[b'k'; 16], 0, 9).unwrap().unwrap().bytes, b"value");
    // What the documentation says: the first 16 bytes of SHA-256, and the value after mark, length and name.
    drive.store(NAME, b"value").unwrap();
    let stored = drive.get(&key_of(NAME).unwrap().to_array()).unwrap().unwrap();
    let expected = [b"kvN1", &33u32.to_le_bytes()[..], NAME, b"value"].concat();
    assert_eq!(stored, expected);
    let abc = key_of(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").unwrap();
    // FIPS 180-2, appendix B.2.
    assert_eq!(abc.to_array()[..6], [0x24, 0x8d, 0x6a, 0x61, 0xd2, 0x06]);
}

/// Puts a pair of another name where that of `NAME` belongs.
fn taken(drive: &Drive) {
    let other = [b"kvN1", &33u32.to_le_bytes()[..], b"A name of more than sixteen bytes", b"value"].concat();
    drive.store(&key_of(NAME).unwrap().to_array(), &other).unwrap();
}

#[test]
fn a_pair_of_another_name_is_left_alone() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    taken(&drive);
    let refused = |error: Option<Error>| assert!(matches!(error, Some(Error::OtherName { .. })), "{error:?}");
    refused(drive.get(NAME).err());
    refused(drive.store(NAME, b"mine").err());
    refused(drive.delete(NAME).err());
    refused(drive.remove(NAME).err());
    refused(drive.get_part(NAME, 0, 1).err());
    let mut client = drive.client().unwrap();
    let mut pipeline = client.pipeline().unwrap();
    pipeline.store(NAME, b"mine".to_vec()).unwrap();
    refused(ended(&mut pipeline).err());
    pipeline.get(NAME).unwrap();
    refused(ended(&mut pipeline).err());
    pipeline.delete(NAME).unwrap();
    refused(ended(&mut pipeline).err());
    pipeline.remove(NAME).unwrap();
    refused(ended(&mut pipeline).err());
    assert_eq!(drive.count(b"").unwrap(), 1);
}

#[test]
fn a_pipeline_has_second_commands_of_names_beside_other_calls() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let mut client = drive.client().unwrap();
    let names: Vec<Vec<u8>> = (0..200).map(|n: u32| format!("{n:04} and some more bytes").into()).collect();
    for round in 0..3u8 {
        let values: Vec<Vec<u8>> = (0..200).map(|n| vec![round; n * 40]).collect();
        let mut pipeline = client.pipeline().unwrap();
        let mut ended = Vec::new();
        for (name, value) in names.iter().zip(&values) {
            // From the second round on each store is refused first, since the pair exists.
            ended.extend(pipeline.store_borrowed(name, value).unwrap());
            ended.extend(pipeline.exist(b"short").unwrap());
        }
        while let Some(one) = pipeline.next_ended().unwrap() {
            ended.push(one);
        }
        assert_eq!(ended.len(), 400);
        ended.sort_unstable_by_key(|one| one.number);
        for (call, one) in ended.into_iter().enumerate() {
            let expected = if call % 2 == 0 { Done::Stored } else { Done::Exists(false) };
            assert_eq!((one.number, one.result), (call as u64, Ok(expected)));
        }
        drop(pipeline);
        assert!(
            names.iter().zip(&values).all(|(name, value)| drive.get(name).unwrap().as_ref() == Some(value))
        );
    }
}

struct Rooms(Vec<Vec<u8>>);

impl Places for Rooms {
    fn place(&mut self, number: u64, bytes: u32) -> Option<&mut [u8]> {
        self.0[number as usize].get_mut(..bytes as usize)
    }
}

#[test]
fn values_go_to_the_places_of_the_caller() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    drive.store(b"short", b"abc").unwrap();
    drive.store(NAME, b"defghi").unwrap();
    let mut client = drive.client().unwrap();
    let mut pipeline = client.pipeline().unwrap();
    for key in [&b"short"[..], NAME, b"none", NAME] {
        assert_eq!(pipeline.get(key).unwrap(), None);
    }
    let mut rooms = Rooms(vec![vec![0; 4], vec![0; 6], vec![0; 9], vec![0; 5]]);
    let mut told = [None; 4];
    while let Some(one) = pipeline.next_ended_to(&mut rooms).unwrap() {
        let Ok(Done::Placed(bytes)) = one.result else { panic!("{one:?}") };
        told[one.number as usize] = bytes;
    }
    assert_eq!(
        told,
        [Some(3), Some(6), None, Some(6)],
        "the size is told where there is no place for the value, too"
    );
    assert_eq!(rooms.0, [b"abc\0".to_vec(), b"defghi".to_vec(), vec![0; 9], vec![0; 5]]);
}
