//! SAKER in front of a drive of the library, and calls beside it.

use std::collections::BTreeMap;

use kvdrive::saker::SakerConfig;
use kvdrive::{Drive, Error};

fn with_cache() -> SakerConfig {
    let mut config = SakerConfig::default();
    config.cache.bytes = 1 << 20;
    config
}

fn open(engine: &str) -> Drive {
    kvdrive::build().engine(engine).open().unwrap()
}

#[test]
fn a_container_above_the_largest_value_is_refused_when_it_is_opened() {
    let drive = kvdrive::build().set("controller.max_value_bytes", 65536).open().unwrap();
    let refused = |bytes| {
        let config = SakerConfig { container_bytes: bytes, ..SakerConfig::default() };
        drive.saker(config).map(drop)
    };
    assert_eq!(
        refused(65537),
        Err(Error::configuration(
            "saker.container_bytes",
            "is 65537; a value of this drive has at most 65536 bytes (controller.max_value_bytes)"
        ))
    );
    assert_eq!(refused(65536), Ok(()));
}

#[test]
fn a_drive_has_one_saker_at_a_time() {
    let drive = open("lsm");
    let first = drive.saker(with_cache()).unwrap();
    let handle = first.handle().unwrap();
    let second = || drive.saker(with_cache()).map(drop);
    let Err(Error::Refused(what)) = second() else { panic!("two sets of pending writes") };
    assert!(what.starts_with("saker: this drive has one already"), "{what}");
    drop(first);
    assert!(second().is_err(), "its handles are there");
    drop(handle);
    assert_eq!(second(), Ok(()));
}

/// Writes that bypass SAKER: by the drive, a client, a pipeline. A handle had the older value in its cache.
#[test]
fn what_is_written_past_saker_is_read_through_it() {
    let drive = open("lsm");
    let saker = drive.saker(with_cache()).unwrap();
    let mut handle = saker.handle().unwrap();
    let mut client = drive.client().unwrap();
    let mut expected = |value: Option<&[u8]>| {
        for _ in 0..2 {
            assert_eq!(handle.get(b"key").unwrap().as_deref(), value);
        }
        assert_eq!(handle.exist(b"key").unwrap(), value.is_some());
    };
    drive.store(b"key", b"one").unwrap();
    expected(Some(b"one"));
    client.store(b"key", b"two").unwrap();
    expected(Some(b"two"));
    let mut pipeline = client.pipeline().unwrap();
    pipeline.store(b"key", *b"three").unwrap();
    while pipeline.next_ended().unwrap().is_some() {}
    expected(Some(b"three"));
    pipeline.delete(b"key").unwrap();
    while pipeline.next_ended().unwrap().is_some() {}
    expected(None);
    drop(pipeline);
    drive.store(b"key", b"four").unwrap();
    expected(Some(b"four"));
    drive.delete(b"key").unwrap();
    expected(None);
}

#[test]
fn pairs_have_what_is_pending() {
    for engine in ["lsm", "plus", "hashlog"] {
        let drive = open(engine);
        (0..40_u32).for_each(|number| drive.store(&number.to_be_bytes(), &[1; 30]).unwrap());
        let saker = drive.saker(with_cache()).unwrap();
        let (mut writer, mut reader) = (saker.handle().unwrap(), saker.handle().unwrap());
        let mut expected: BTreeMap<Vec<u8>, Vec<u8>> =
            (0..40_u32).map(|number| (number.to_be_bytes().to_vec(), vec![1; 30])).collect();
        for number in 35..50_u32 {
            writer.store(&number.to_be_bytes(), &[2; 10]).unwrap();
            expected.insert(number.to_be_bytes().to_vec(), vec![2; 10]);
        }
        for number in [0, 7, 36, 45_u32] {
            writer.delete(&number.to_be_bytes()).unwrap();
            expected.remove(&number.to_be_bytes()[..]);
        }
        let found: Vec<_> = reader.pairs().unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), expected.len(), "{engine}: each pair once");
        assert_eq!(found.iter().cloned().collect::<BTreeMap<_, _>>(), expected, "{engine}");
        let from = 20_u32.to_be_bytes();
        match reader.pairs_from(&from) {
            Ok(pairs) => {
                let found: Vec<_> = pairs.map(Result::unwrap).collect();
                let expected: Vec<_> =
                    expected.range(from.to_vec()..).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(found, expected, "{engine}");
            }
            Err(error) => assert!(engine != "lsm" && matches!(error, Error::Refused(_)), "{engine}: {error}"),
        }
        assert_eq!((saker.counts().of("requests"), writer.unsynced()), (19, 19), "{engine}");
        assert!(saker.pending_bytes() > 0);
    }
}
