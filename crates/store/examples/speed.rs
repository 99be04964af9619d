//! How fast each store is on this machine, on pages in memory that take no time.
//!
//! `cargo run --release -p kvdrive-store --example speed [PAIRS [STORE]]`: puts of 16-byte values (patterns)
//! under 8-byte keys, at random; then the same again over what is there; then gets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_content::{Pattern, Region};
use kvdrive_sim::Rng;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_spec::Key;
use kvdrive_store::{
    Cpu, Ground, Page, PageError, PageId, PageStore, Purpose, STORES, Step, StoreOptions, Thread, Writing,
};

const MAIN: Thread = Thread(0);

/// Pages in memory.
struct Memory {
    pages: RefCell<Vec<Option<Page>>>,
    blank: Page,
    written: Cell<u64>,
    read: Cell<u64>,
}

impl PageStore for Memory {
    fn page_bytes(&self) -> u32 {
        4096
    }

    fn pages(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    fn read(
        &self,
        _thread: Thread,
        first: PageId,
        count: u32,
        _why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        let pages = self.pages.borrow();
        let run = &pages[first.0 as usize..first.0 as usize + count as usize];
        out.extend(run.iter().map(|page| page.as_ref().unwrap_or(&self.blank).clone()));
        self.read.set(self.read.get() + u64::from(count));
        Ok(())
    }

    fn start_write(&self, _: Thread, first: PageId, run: &[Page], _: Purpose) -> Result<Writing, PageError> {
        let mut pages = self.pages.borrow_mut();
        for (at, page) in (first.0 as usize..).zip(run) {
            pages[at] = Some(page.clone());
        }
        self.written.set(self.written.get() + run.len() as u64);
        Ok(Writing(0))
    }

    fn finish_write(&self, _: Thread, _: Writing) -> Result<(), PageError> {
        Ok(())
    }

    fn trim(&self, _: Thread, first: PageId, count: u32, _: Purpose) -> Result<(), PageError> {
        let mut pages = self.pages.borrow_mut();
        pages[first.0 as usize..first.0 as usize + count as usize].fill(None);
        Ok(())
    }

    fn flush(&self, _: Thread, _: Purpose) -> Result<(), PageError> {
        Ok(())
    }
}

/// A processor that takes no time.
struct Idle;

impl Cpu for Idle {
    fn work(&self, _: Thread, _: &[(Step, u64)]) {}
    fn pause(&self, _: Thread, _: u64) {}
    fn wait(&self, _: Thread) {
        panic!("there is nobody to wait for");
    }
    fn wake(&self) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pairs: u64 = arguments.next().map_or(1_000_000, |pairs| pairs.parse().expect("a number of pairs"));
    let only = arguments.next();
    for row in STORES.iter().filter(|row| only.as_ref().is_none_or(|only| only == row.name)) {
        // Room for three times the pairs, and for what every store needs beside them.
        let count = (pairs * 32 * 3 / 4096 + (1 << 16)) as usize;
        let memory = Rc::new(Memory {
            pages: RefCell::new(vec![None; count]),
            blank: Rc::new(Region::new()),
            written: Cell::new(0),
            read: Cell::new(0),
        });
        let ground = Ground { pages: memory.clone(), cpu: Rc::new(Idle), threads: 1, has_background: false };
        let store = (row.make)(&StoreOptions::default(), ground);
        store.recover(MAIN).expect("empty pages are an empty store");
        let mut rng = Rng::stream(1, "keys");
        for what in ["put", "overwrite", "get"] {
            let watch = Stopwatch::start();
            for number in 0..pairs {
                // An odd factor makes different numbers of different ones.
                let number = if what == "put" { number } else { rng.below(pairs) };
                let key = Key::from_u64_be(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                match what {
                    "get" => assert!(store.get(MAIN, key).expect("pages are whole").is_some()),
                    _ => {
                        let value = Pattern { seed: number, offset: 0, bytes: 16 };
                        store.put(MAIN, key, value.into()).expect("there is room");
                    }
                }
            }
            let seconds = watch.seconds();
            let rate = pairs as f64 / seconds / 1e6;
            let (written, read) = (memory.written.take(), memory.read.take());
            println!(
                "{:8} {what:9} {rate:6.2} M/s measured   pages written {written:9}, read {read:9} counted",
                row.name
            );
        }
        println!("{:8} memory    {:?}", row.name, store.dram());
    }
}
