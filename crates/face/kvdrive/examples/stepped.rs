//! A drive inside a simulator that moves its time: 32 readers, each of which asks again when it has its answer. Prints
//! the commands for each second of this machine (measured) and of the model (modelled).
//!
//! `cargo run --release -p kvdrive --example stepped -- 1000000`

use kvdrive::Error;
use kvdrive::stepped::Op;
use kvdrive_sim::wall::Stopwatch;

const READERS: u64 = 32;

pub(crate) fn main() -> Result<(), Error> {
    let commands = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(5_000);
    let mut drive =
        kvdrive::build().profile("kvvirt").engine("plus").capacity("1GiB").set("host.depth", 32).stepped()?;
    let pairs = drive.fill(0.3, 512)?;
    let key = |number: u64| (number * 7_919 % pairs).to_be_bytes();
    for reader in 0..READERS {
        drive.submit(0, Op::Retrieve { keep: false }, &key(reader))?;
    }
    let (began, mut ended) = (Stopwatch::start(), 0);
    while ended < commands {
        // Answers of 10 us at a time; a simulator that reacts to each takes `advance_to_next`.
        for answer in drive.advance(drive.now_ns() + 10_000)? {
            ended += 1;
            drive.submit(drive.now_ns(), Op::Retrieve { keep: false }, &key(answer.id + READERS))?;
        }
    }
    let seconds = began.seconds();
    println!("measured  {:.0} commands a second of this machine", ended as f64 / seconds);
    println!("modelled  {:.0} commands a second", ended as f64 * 1e9 / drive.now_ns() as f64);
    Ok(())
}
