//! A power cut, and the end of a program: which pairs survive.
//!
//! `cargo run --release -p kvdrive --example crash`

use kvdrive::{Error, Lasting};

pub(crate) fn main() -> Result<(), Error> {
    // In memory: the power is cut between two events, and the drive loses everything except flash and the
    // state that capacitors save.
    let drive = kvdrive::open("cosmos-plus")?;
    drive.store(b"acknowledged", &[7; 3000])?;
    let off = drive.cut_power(true)?;
    let drive = off.power_on()?;
    assert_eq!(drive.get(b"acknowledged")?, Some(vec![7; 3000]));
    println!("recovered in {} ns of model time", drive.numbers()?.of("drive.recovery_ns"));

    // On a file: the next program finds the drive again, also after `kill -9`.
    let folder = tempfile::tempdir().expect("a folder of its own");
    let described = kvdrive::build().file(folder.path().join("drive.img"));
    let drive = described.open()?;
    drive.store(b"kept", b"until the next program")?;
    let closed = drive.close()?;
    assert_eq!(closed.lasting, Lasting::Program);
    let drive = described.open()?;
    assert_eq!(drive.get(b"kept")?.as_deref(), Some(&b"until the next program"[..]));
    Ok(())
}
