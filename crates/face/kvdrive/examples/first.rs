//! The first program: stores and reads pairs, and prints the cost.
//!
//! `cargo run --release -p kvdrive --example first`

pub(crate) fn main() -> Result<(), kvdrive::Error> {
    let drive = kvdrive::open("cosmos-plus")?;
    drive.store(b"user17", b"some value")?;
    assert_eq!(drive.get(b"user17")?.as_deref(), Some(&b"some value"[..]));
    drive.delete(b"user17")?;
    assert!(!drive.exist(b"user17")?);
    println!("{}", drive.numbers()?);
    let closed = drive.close()?;
    assert_eq!(closed.unanswered, 0);
    Ok(())
}
