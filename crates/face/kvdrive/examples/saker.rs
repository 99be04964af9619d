//! SAKER in front of a drive: threads, a sync, a crash, and the pairs that are there after the drive is
//! powered on again.
//!
//! `cargo run --release -p kvdrive --example saker`

use std::thread;

use kvdrive::Error;
use kvdrive::saker::{Saker, SakerConfig};

const THREADS: u32 = 4;
const PAIRS: u32 = 1000;

pub(crate) fn main() -> Result<(), Error> {
    let drive = kvdrive::open("cosmos-plus")?;
    let saker = drive.saker(SakerConfig::default())?;
    thread::scope(|scope| {
        let saker = &saker;
        let write = |thread| scope.spawn(move || write(saker, thread));
        let threads: Vec<_> = (0..THREADS).map(write).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of ours does not panic"))
    })?;
    let mut late = saker.handle()?;
    late.store(b"late", b"never synced")?;
    println!("{}", drive.numbers()?); // far fewer commands than pairs

    let drive = drive.cut_power(true)?.power_on()?;
    for number in 0..THREADS * PAIRS {
        assert_eq!(
            drive.get(&number.to_be_bytes())?,
            Some(vec![number as u8; 16]),
            "what was synced is there"
        );
    }
    println!("{} write was not synced; there after the crash: {}", late.unsynced(), drive.exist(b"late")?);
    Ok(())
}

/// Each thread has its own handle. Its writes can be read at once, and are durable after the sync.
fn write(saker: &Saker, thread: u32) -> Result<(), Error> {
    let mut handle = saker.handle()?;
    for number in thread * PAIRS..(thread + 1) * PAIRS {
        handle.store(&number.to_be_bytes(), &[number as u8; 16])?;
    }
    assert_eq!(handle.get(&(thread * PAIRS).to_be_bytes())?, Some(vec![(thread * PAIRS) as u8; 16]));
    handle.sync()
}
