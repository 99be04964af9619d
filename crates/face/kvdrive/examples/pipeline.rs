//! Many commands at once from one thread, and from several.
//!
//! `cargo run --release -p kvdrive --example pipeline`

use std::thread;

use kvdrive::{Drive, Ended, Error};

const THREADS: u32 = 4;
const PAIRS: u32 = 2000;

pub(crate) fn main() -> Result<(), Error> {
    let drive = kvdrive::build().transfer("piggyback").set("host.depth", 16).open()?;
    thread::scope(|scope| {
        let fill = |thread: u32| fill(&drive, thread);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || fill(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of ours does not panic"))
    })?;
    let pairs = drive.pairs()?.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(pairs.len() as u32, THREADS * PAIRS);
    println!("{}", drive.numbers()?);
    Ok(())
}

/// Each thread has a queue pair of its own. Stores gather and cross with one doorbell; a store that finds the
/// pipeline full returns the result of an earlier one.
fn fill(drive: &Drive, thread: u32) -> Result<(), Error> {
    let mut client = drive.client()?;
    let mut pipeline = client.pipeline()?;
    for number in thread * PAIRS..(thread + 1) * PAIRS {
        if let Some(Ended { result, .. }) =
            pipeline.store(&number.to_be_bytes(), *b"twenty-four bytes of it.")?
        {
            result?;
        }
    }
    while let Some(Ended { result, .. }) = pipeline.next_ended()? {
        result?;
    }
    Ok(())
}
