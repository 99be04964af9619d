//! The environment of stores in tests: pages in memory whose power can be cut at any moment, and a processor
//! that lets callers alternate wherever a call may suspend them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kvdrive_content::{Piece, Region};
use kvdrive_declare::Counts;
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_store::{
    Applied, BACKGROUND_THREADS, Cpu, Cursor, Ground, Page, PageError, PageId, PageStore, Purpose, Recovered,
    Space, Step, Store, StoreError, StoreOptions, StoreRequest, StoreRow, StoredValue, Thread, Trouble,
    Value, Writing, do_background, run_background,
};
use scoped_tls::{ScopedKey, scoped_thread_local};

type Yield = Yielder<(), ()>;
scoped_thread_local!(static YIELD_0: Yield);
scoped_thread_local!(static YIELD_1: Yield);
scoped_thread_local!(static YIELD_2: Yield);
scoped_thread_local!(static YIELD_3: Yield);
scoped_thread_local!(static YIELD_4: Yield);
scoped_thread_local!(static YIELD_5: Yield);
static YIELDS: [&ScopedKey<Yield>; 6] = [&YIELD_0, &YIELD_1, &YIELD_2, &YIELD_3, &YIELD_4, &YIELD_5];

/// Threads of a test; those for background work have higher numbers.
pub const THREADS: u32 = YIELDS.len() as u32 - BACKGROUND_THREADS;
/// No test needs this many turns of its threads.
const MOST_TURNS: u32 = 10_000_000;
/// The only caller when threads do not alternate.
pub const MAIN: Thread = Thread(0);

/// The content of a page.
#[derive(Clone)]
enum Content {
    Page(Page),
    Torn,
    Lost,
}

/// A write or a trim of a page that is not durable.
#[derive(Clone)]
struct Change {
    page: u64,
    content: Content,
    is_ended: bool,
    write: u64,
}

/// The state of all pages after a cut is one choice from these.
#[derive(Clone, Default)]
struct Contents {
    durable: BTreeMap<u64, Content>,
    changes: Vec<Change>,
}

/// The possible states of the pages if the power were cut now, and the time.
#[derive(Clone)]
pub struct Cut {
    pub at: u64,
    contents: Contents,
}

/// A kind of call that pages may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Writes(Purpose),
    Trims,
}

/// Pages and processor of one store.
pub struct World {
    pub page_bytes: u32,
    pages: u64,
    contents: RefCell<Contents>,
    now: RefCell<HashMap<u64, Content>>,
    clock: Cell<u64>,
    next_write: Cell<u64>,
    /// Threads that wait.
    waiting: RefCell<[bool; YIELDS.len()]>,
    is_alternating: Cell<bool>,
    /// The store on these pages.
    store: RefCell<Option<Weak<dyn Store>>>,
    /// Cuts, if they are collected.
    cuts: RefCell<Option<Vec<Cut>>>,
    /// Counts by purpose: pages read, and pages written.
    pub read: RefCell<BTreeMap<&'static str, u64>>,
    pub written: RefCell<BTreeMap<&'static str, u64>>,
    pub steps: RefCell<BTreeMap<&'static str, u64>>,
    /// Reads and writes from this number on fail.
    fails_from: Cell<u64>,
    /// All calls of this kind fail.
    refused: Cell<Option<Refused>>,
    /// Earlier content of pages, oldest first, if it is collected.
    versions: RefCell<Option<Vec<(u64, Page)>>>,
}

impl World {
    pub fn new(page_bytes: u32, pages: u64) -> Rc<World> {
        World::with(page_bytes, pages, BTreeMap::new())
    }

    fn with(page_bytes: u32, pages: u64, durable: BTreeMap<u64, Content>) -> Rc<World> {
        let now = durable.iter().map(|(page, content)| (*page, content.clone())).collect();
        Rc::new(World {
            page_bytes,
            pages,
            contents: RefCell::new(Contents { durable, changes: Vec::new() }),
            now: RefCell::new(now),
            clock: Cell::new(1),
            next_write: Cell::new(0),
            waiting: RefCell::default(),
            is_alternating: Cell::new(false),
            store: RefCell::new(None),
            cuts: RefCell::new(None),
            read: RefCell::default(),
            written: RefCell::default(),
            steps: RefCell::default(),
            fails_from: Cell::new(u64::MAX),
            refused: Cell::new(None),
            versions: RefCell::new(None),
        })
    }

    /// A store of that row on these pages, not recovered. A single caller finds all background work done that
    /// its calls have requested ([`Alone`]).
    pub fn make(self: &Rc<World>, row: &StoreRow, options: &StoreOptions) -> Rc<dyn Store> {
        (row.check)(options, self.page_bytes, self.pages, THREADS).unwrap();
        let threads = THREADS + (row.background)(options).map_or(0, |_| BACKGROUND_THREADS);
        let ground = Ground { pages: self.clone(), cpu: self.clone(), threads };
        let store = (row.make)(options, ground);
        *self.store.borrow_mut() = Some(Rc::downgrade(&store));
        Rc::new(Alone { world: self.clone(), store })
    }

    /// As [`World::make`], recovered.
    pub fn open(self: &Rc<World>, row: &StoreRow, options: &StoreOptions) -> Rc<dyn Store> {
        let store = self.make(row, options);
        store.recover(MAIN).unwrap();
        store
    }

    /// A time later than all before.
    pub fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// From now on, keeps the possible states after a cut, at every change of the pages.
    pub fn collect_cuts(&self) {
        *self.cuts.borrow_mut() = Some(Vec::new());
    }

    pub fn take_cuts(&self) -> Vec<Cut> {
        self.cuts.borrow_mut().take().unwrap_or_default()
    }

    fn event(&self) {
        let at = self.tick();
        if let Some(cuts) = self.cuts.borrow_mut().as_mut() {
            cuts.push(Cut { at, contents: self.contents.borrow().clone() });
        }
    }

    /// From now on, keeps the content of pages before they are written or trimmed.
    pub fn remember_versions(&self) {
        *self.versions.borrow_mut() = Some(Vec::new());
    }

    /// Earlier content of pages, oldest first.
    pub fn versions(&self) -> Vec<(u64, Page)> {
        self.versions.borrow().clone().unwrap_or_default()
    }

    /// The same pages for a world of its own.
    pub fn copied(&self) -> Rc<World> {
        let pages = self.used().into_iter().map(|(page, content)| (page, Content::Page(content)));
        World::with(self.page_bytes, self.pages, pages.collect())
    }

    /// Makes every call from this number on fail.
    pub fn fail_from(&self, call: u64) {
        self.fails_from.set(call);
    }

    /// Makes calls of this kind fail, until it is called again.
    pub fn refuse(&self, refused: Option<Refused>) {
        self.refused.set(refused);
    }

    fn refuses(&self, page: PageId, kind: Refused) -> Result<(), PageError> {
        match self.refused.get() == Some(kind) {
            true => Err(PageError { page, trouble: Trouble::ReadOnly }),
            false => self.fails(page, Trouble::ReadOnly),
        }
    }

    fn fails(&self, page: PageId, trouble: Trouble) -> Result<(), PageError> {
        let left = self.fails_from.get();
        if left == 0 {
            return Err(PageError { page, trouble });
        }
        self.fails_from.set(left.saturating_sub(u64::from(left < u64::MAX)));
        Ok(())
    }

    /// Overwrites a page without the store's knowledge.
    pub fn scribble(&self, page: u64, region: Region) {
        self.replace(page, Content::Page(Rc::new(region)));
    }

    /// A page that was written whole cannot be read any more.
    pub fn lose(&self, page: u64) {
        self.replace(page, Content::Lost);
    }

    fn replace(&self, page: u64, content: Content) {
        self.now.borrow_mut().insert(page, content.clone());
        self.contents.borrow_mut().durable.insert(page, content);
    }

    /// The pages that are not blank, with their content.
    pub fn used(&self) -> Vec<(u64, Page)> {
        let now = self.now.borrow();
        let mut pages: Vec<_> = now
            .iter()
            .filter_map(|(page, content)| match content {
                Content::Page(content) => Some((*page, content.clone())),
                Content::Torn | Content::Lost => None,
            })
            .collect();
        pages.sort_by_key(|(page, _)| *page);
        pages
    }

    /// The same pages with their patterns as bytes.
    pub fn expanded(&self) -> Rc<World> {
        let bytes = |page: &Page| Content::Page(Rc::new(Region::from_bytes(page.to_bytes(self.page_bytes))));
        let durable = self.used().iter().map(|(page, content)| (*page, bytes(content))).collect();
        World::with(self.page_bytes, self.pages, durable)
    }

    /// Runs tasks that may all be inside the store at once: each task is a thread, and so is background work,
    /// alternating as `seed` says. No task may wait for ever; and after all of them have ended, no background
    /// work may be left that was not requested.
    pub fn alternate(self: &Rc<World>, seed: u64, tasks: Vec<Box<dyn FnOnce()>>, store: &Rc<dyn Store>) {
        let mut rng = Rng::stream(seed, "schedule");
        let callers = tasks.len();
        assert_eq!(callers, THREADS as usize);
        let background = (THREADS..YIELDS.len() as u32).map(Thread).map(|thread| {
            let (store, world) = (store.clone(), self.clone());
            Box::new(move || run_background(&*store, &*world, thread)) as Box<dyn FnOnce()>
        });
        let mut threads: Vec<Option<Coroutine<(), (), ()>>> = tasks
            .into_iter()
            .chain(background)
            .zip(YIELDS)
            .map(|(task, key)| {
                let stack = DefaultStack::new(2 << 20).unwrap();
                Some(Coroutine::with_stack(stack, move |yielder: &Yield, ()| key.set(yielder, task)))
            })
            .collect();
        self.is_alternating.set(true);
        *self.waiting.borrow_mut() = Default::default();
        for turn in 0.. {
            assert!(turn < MOST_TURNS, "they wake each other for ever");
            let waiting = *self.waiting.borrow();
            let is_ready = |at: &usize| threads[*at].is_some() && !waiting[*at];
            let ready: Vec<usize> = (0..threads.len()).filter(is_ready).collect();
            if ready.is_empty() {
                break;
            }
            let at = ready[rng.below(ready.len() as u64) as usize];
            let thread = threads[at].as_mut().unwrap();
            if let CoroutineResult::Return(()) = thread.resume(()) {
                threads[at] = None;
            }
        }
        assert!(threads[..callers].iter().all(Option::is_none), "all callers wait, and none will be woken");
        assert!(!store.background_due(), "the background waits, and there is work for it");
        drop(threads);
        self.is_alternating.set(false);
    }

    fn suspend(&self, thread: Thread) {
        if self.is_alternating.get() {
            YIELDS[thread.0 as usize].with(|yielder| yielder.suspend(()));
        }
    }

    fn change(&self, page: u64, content: Content, write: u64) {
        let before = self.now.borrow_mut().insert(page, content.clone());
        if let (Some(versions), Some(Content::Page(before))) = (&mut *self.versions.borrow_mut(), before) {
            versions.push((page, before));
        }
        self.contents.borrow_mut().changes.push(Change { page, content, is_ended: false, write });
    }

    fn end(&self, write: u64) {
        let mut contents = self.contents.borrow_mut();
        contents.changes.iter_mut().filter(|c| c.write == write).for_each(|c| c.is_ended = true);
    }

    fn blank() -> Content {
        Content::Page(Rc::new(Region::new()))
    }
}

impl Cut {
    /// One of the states that this cut may leave, as a world.
    pub fn world(&self, of: &World, seed: u64) -> Rc<World> {
        let mut rng = Rng::stream(seed, "cut");
        // Some cuts keep all changes, some none, most a part.
        let keep = [0, 50, 90, 100][rng.below(4) as usize];
        let tear = [0, 10][rng.below(2) as usize];
        let mut pages = self.contents.durable.clone();
        for change in &self.contents.changes {
            if rng.below(100) < tear {
                let torn = torn(of.page_bytes, pages.get(&change.page), &change.content, &mut rng);
                pages.insert(change.page, torn);
            } else if rng.below(100) < keep {
                pages.insert(change.page, change.content.clone());
            }
        }
        World::with(of.page_bytes, of.pages, pages)
    }
}

/// Half of the old content and half of the new, or unreadable.
fn torn(page_bytes: u32, old: Option<&Content>, new: &Content, rng: &mut Rng) -> Content {
    let blank = World::blank();
    let (Content::Page(old), Content::Page(new)) = (old.unwrap_or(&blank), new) else { return Content::Torn };
    if rng.one_in(2) || !old.patterns().is_empty() || !new.patterns().is_empty() {
        return Content::Torn;
    }
    let (old, mut mixed) = (old.to_bytes(page_bytes), new.to_bytes(page_bytes));
    for (at, byte) in old.iter().enumerate() {
        if at / 64 % 2 == 1 {
            mixed[at] = *byte;
        }
    }
    if rng.one_in(2) {
        let half = page_bytes as usize / 2;
        mixed[half..].copy_from_slice(&old[half..]);
    }
    Content::Page(Rc::new(Region::from_bytes(mixed)))
}

impl PageStore for World {
    fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    fn pages(&self) -> u64 {
        self.pages
    }

    fn read(
        &self,
        thread: Thread,
        first: PageId,
        count: u32,
        why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        assert!(first.0 + u64::from(count) <= self.pages, "page {first} + {count} of {}", self.pages);
        self.suspend(thread);
        self.fails(first, Trouble::Unreadable)?;
        *self.read.borrow_mut().entry(why.name()).or_default() += u64::from(count);
        for page in first.0..first.0 + u64::from(count) {
            match self.now.borrow().get(&page) {
                Some(Content::Page(content)) => out.push(content.clone()),
                Some(Content::Torn) => {
                    return Err(PageError { page: PageId(page), trouble: Trouble::Unreadable });
                }
                Some(Content::Lost) => {
                    return Err(PageError { page: PageId(page), trouble: Trouble::Lost });
                }
                None => out.push(Rc::new(Region::new())),
            }
        }
        self.suspend(thread);
        Ok(())
    }

    fn start_write(
        &self,
        thread: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError> {
        assert!(first.0 + run.len() as u64 <= self.pages, "page {first} + {} of {}", run.len(), self.pages);
        self.suspend(thread);
        self.refuses(first, Refused::Writes(why))?;
        *self.written.borrow_mut().entry(why.name()).or_default() += run.len() as u64;
        let write = self.next_write.replace(self.next_write.get() + 1);
        for (page, content) in (first.0..).zip(run) {
            assert!(content.written_end() <= self.page_bytes, "page {page} is too long");
            self.change(page, Content::Page(content.clone()), write);
        }
        self.event();
        self.suspend(thread);
        Ok(Writing(write))
    }

    fn finish_write(&self, thread: Thread, writing: Writing) -> Result<(), PageError> {
        self.suspend(thread);
        self.end(writing.0);
        Ok(())
    }

    fn trim(&self, thread: Thread, first: PageId, count: u32, _why: Purpose) -> Result<(), PageError> {
        self.suspend(thread);
        self.refuses(first, Refused::Trims)?;
        let write = self.next_write.replace(self.next_write.get() + 1);
        (first.0..first.0 + u64::from(count)).for_each(|page| self.change(page, World::blank(), write));
        self.event();
        self.suspend(thread);
        self.end(write);
        Ok(())
    }

    fn flush(&self, thread: Thread, _why: Purpose) -> Result<(), PageError> {
        self.fails(PageId(0), Trouble::ReadOnly)?;
        let before = self.next_write.get();
        let ended = |change: &Change| change.is_ended && change.write < before;
        let covered: Vec<u64> =
            self.contents.borrow().changes.iter().filter(|c| ended(c)).map(|c| c.write).collect();
        self.suspend(thread);
        let mut contents = self.contents.borrow_mut();
        let Contents { durable, changes } = &mut *contents;
        for change in changes.iter().filter(|change| covered.contains(&change.write)) {
            durable.insert(change.page, change.content.clone());
        }
        changes.retain(|change| !covered.contains(&change.write));
        drop(contents);
        self.event();
        self.suspend(thread);
        Ok(())
    }
}

impl Cpu for World {
    fn work(&self, thread: Thread, steps: &[(Step, u64)]) {
        for (step, times) in steps {
            *self.steps.borrow_mut().entry(step.name()).or_default() += times;
        }
        self.suspend(thread);
    }

    fn pause(&self, thread: Thread, _span_ns: u64) {
        self.suspend(thread);
    }

    fn wait(&self, thread: Thread) {
        if self.is_alternating.get() {
            self.waiting.borrow_mut()[thread.0 as usize] = true;
            return self.suspend(thread);
        }
        let store = self.store.borrow().as_ref().and_then(Weak::upgrade).expect("it waits");
        // A job that fails wakes the threads that wait for it.
        let is_done = store.background_step(Thread(THREADS)).unwrap_or(true);
        assert!(is_done, "a store waits for another thread, and there is none");
    }

    fn wake(&self) {
        *self.waiting.borrow_mut() = Default::default();
    }
}

/// A store for a single caller: all background work is done after each call.
struct Alone {
    world: Rc<World>,
    store: Rc<dyn Store>,
}

impl Alone {
    fn with_background<T>(&self, answer: T) -> T {
        if !self.world.is_alternating.get() {
            do_background(&*self.store, Thread(THREADS));
        }
        answer
    }
}

impl Store for Alone {
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        self.store.recover_from(thread, mark)
    }

    fn mark(&self) -> Vec<u8> {
        self.store.mark()
    }

    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.with_background(self.store.put(thread, key, value))
    }

    fn put_again(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.with_background(self.store.put_again(thread, key, value))
    }

    fn get(&self, thread: Thread, key: Key) -> Result<Option<StoredValue>, StoreError> {
        self.store.get(thread, key)
    }

    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError> {
        self.with_background(self.store.delete(thread, key))
    }

    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], atomic: bool) -> Applied {
        self.with_background(self.store.apply(thread, batch, atomic))
    }

    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError> {
        self.store.cursor(thread, from)
    }

    fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        self.store.sync(thread)
    }

    fn background_due(&self) -> bool {
        self.store.background_due()
    }

    fn background_step(&self, thread: Thread) -> Result<bool, StoreError> {
        self.store.background_step(thread)
    }

    fn max_value_bytes(&self) -> u32 {
        self.store.max_value_bytes()
    }

    fn space(&self) -> Space {
        self.store.space()
    }

    fn counts(&self) -> Counts {
        self.store.counts()
    }

    fn dram(&self) -> Counts {
        self.store.dram()
    }
}

/// Bytes that differ from those of every other number.
pub fn value_of(number: u64, bytes: u32) -> Vec<u8> {
    let word = number.to_le_bytes();
    (0..bytes as usize).map(|at| word[at % 8] ^ (at / 8) as u8).collect()
}

/// A page of random bytes.
pub fn random_page(rng: &mut Rng, page_bytes: u32) -> Region {
    let mut bytes = vec![0; page_bytes as usize];
    rng.fill(&mut bytes);
    let mut region = Region::new();
    region.write(0, Piece::Bytes(&bytes));
    region
}
