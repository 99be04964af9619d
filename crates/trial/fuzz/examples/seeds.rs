//! Writes the seeds of a target as files, in the form that cargo-fuzz starts from: `seeds NAME FOLDER`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(folder)) = (arguments.next(), arguments.next().map(PathBuf::from)) else {
        return Err(std::io::Error::other("seeds NAME FOLDER"));
    };
    for (index, seed) in (kvdrive_fuzz::target(&name).seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{index}")), seed)?;
    }
    Ok(())
}
