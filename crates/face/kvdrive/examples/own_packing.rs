//! A packing policy that is in no table of the drive: every value starts on a boundary of 64 bytes.
//!
//! `cargo run --release -p kvdrive --example own_packing`

use kvdrive::Error;
use kvdrive::packing::{Arrival, LogView, Packing, PackingRow, Placement};

const LINE: u64 = 64;

/// A single write pointer; values that arrive by DMA are copied to it.
#[derive(Default)]
struct Lines {
    next: u64,
}

impl Packing for Lines {
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement {
        if bytes == 0 {
            return Placement { at: self.next, copied_bytes: 0 };
        }
        let at = log.uncrossed(self.next, bytes);
        self.next = (at + u64::from(bytes)).next_multiple_of(LINE);
        let copied_bytes = if arrival == Arrival::Inline { 0 } else { bytes };
        Placement { at, copied_bytes }
    }

    fn skip_to(&mut self, at: u64) {
        self.next = self.next.max(at);
    }

    fn oldest_open(&self) -> u64 {
        self.next
    }

    fn frontier(&self) -> u64 {
        self.next
    }

    fn save(&self) -> Vec<u8> {
        self.next.to_le_bytes().to_vec()
    }

    fn restore(&mut self, saved: &[u8]) -> bool {
        let next = saved.try_into().map(u64::from_le_bytes).ok().filter(|next| next % LINE == 0);
        self.next = next.unwrap_or(self.next);
        next.is_some()
    }
}

static LINES: PackingRow = PackingRow {
    name: "lines",
    origin: "every value begins on a boundary of 64 bytes",
    weighs_costs: false,
    has_dlt: false,
    has_slots: false,
    build_for_moved: || Box::<Lines>::default(),
    state_bytes: |_| 8,
    build: |_| Box::<Lines>::default(),
};

pub(crate) fn main() -> Result<(), Error> {
    let described = kvdrive::build().transfer("prp");
    let pages = |drive: kvdrive::Drive| {
        (0..4000_u32).try_for_each(|number| drive.store(&number.to_be_bytes(), &[1; 100]))?;
        let pages = drive.numbers()?.get("engine.value_pages_opened");
        let drive = drive.cut_power(true)?.power_on()?;
        assert_eq!(drive.get(&1234_u32.to_be_bytes())?, Some(vec![1; 100]));
        Ok::<_, Error>(pages.expect("pages of a value log are of values"))
    };
    let (own, block) = (described.clone().packing(&LINES), described.set("packing.policy", "block"));
    let (own, block) = (pages(own.open()?)?, pages(block.open()?)?);
    println!("4000 values of 100 B: {own} NAND pages opened by lines, {block} by block");
    Ok(())
}
