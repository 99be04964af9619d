//! A dispatcher and its I/O threads: which thread gets which command, in which order, and on which core.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_device::config::Dispatch;
use kvdrive_device::controller::Controller;
use kvdrive_device::dispatch;
use kvdrive_device::namespaces::kv::KvNamespace;
use kvdrive_engines::firmware::Cores;
use kvdrive_flash::Identity;
use kvdrive_flash::faults::Faults;
use kvdrive_flash::power::{Journal, NamespaceFeatures};
use kvdrive_link::{Link, LinkConfig, LocalMemory, PciePort, QueuePair};
use kvdrive_nvme::{Command, Key, RetrieveOptions, SglDescriptor, Sqe, Status};
use kvdrive_sim::{Ns, ResourceStatistics, Rng, Sim};

use super::mock_engine::{Jitter, MockEngine, Stored};
use super::rig;

const DEAL_NS: Ns = 100;
/// Time in which the rig's controller decodes an Exist and completes it.
const DECODE_NS: Ns = 300;
const COMPLETE_NS: Ns = 50;
/// Time of a page by DMA here: far longer than all other steps of a command.
const PAGE_NS: Ns = 50_000;

struct Rig {
    sim: Sim,
    link: Rc<Link>,
    cores: Cores,
    memory: Rc<LocalMemory>,
    queue: Rc<QueuePair>,
    namespace: Rc<KvNamespace<MockEngine>>,
}

/// A drive that holds a page under key 1, and a queue.
fn rig(dispatch: Dispatch) -> Rig {
    rig_of(Sim::new(), dispatch, MockEngine::new(4096))
}

/// The same around this engine.
fn rig_of(sim: Sim, dispatch: Dispatch, engine: MockEngine) -> Rig {
    let memory = Rc::new(LocalMemory::new());
    let config = LinkConfig { dma_page_ns: PAGE_NS, ..rig::link_config(4096) };
    let link = Link::new(&sim, config, memory.clone());
    let cores = Cores::new(&sim, dispatch.roles());
    let page = Stored { content: Region::from_bytes(vec![7; 4096]), bytes: 4096 };
    engine.values.borrow_mut().insert(key(), Rc::new(page));
    let config = rig::controller_config(dispatch);
    let (journal, identity) = (Journal::default(), Identity::default());
    let namespace =
        KvNamespace::new(&sim, &config, &cores, (journal.clone(), NamespaceFeatures::default()), engine);
    let controller = Controller::new(
        PciePort::new(&link),
        cores.clone(),
        config.costs,
        journal,
        identity,
        Faults::new(&sim),
        namespace.clone(),
    );
    dispatch::start(&controller, dispatch);
    let queue = link.create_queue(64);
    Rig { sim, link, cores, memory, queue, namespace }
}

fn key() -> Key {
    Key::from_u32_be(1)
}

impl Rig {
    /// Submits all of `commands` at once; returns their identifiers in the order of completion, and the time
    /// from the first completion to the last.
    fn complete(&self, commands: &[Sqe]) -> (Vec<u16>, Ns) {
        for sqe in commands {
            assert!(self.queue.try_submit(*sqe));
        }
        self.sim.block_on(|| self.link.ring_submission(&self.queue));
        let mut completed = Vec::new();
        let mut times = Vec::new();
        while self.sim.step() {
            while let Some(cqe) = self.queue.any_completion() {
                assert_eq!(cqe.status(), Status::SUCCESS);
                self.link.ring_completion(&self.queue);
                completed.push(cqe.cid.get());
                times.push(self.sim.now());
            }
        }
        (completed, times[times.len() - 1] - times[0])
    }

    fn core(&self, name: &str) -> ResourceStatistics {
        let core = self.cores.resources().into_iter().find(|core| core.name() == name);
        core.unwrap_or_else(|| panic!("no core {name}")).statistics()
    }

    /// A retrieve of the page: slow.
    fn retrieve(&self, cid: u16) -> Sqe {
        let options = RetrieveOptions::default();
        let mut sqe = Command::Retrieve { key: key(), buffer_bytes: 4096, options }.encode(cid, 1);
        sqe.set_prps(self.memory.map(4096), 0);
        sqe
    }
}

fn exist(cid: u16) -> Sqe {
    Command::Exist { key: key() }.encode(cid, 1)
}

fn threads(io_threads: u32) -> Dispatch {
    Dispatch::RoundRobin { io_threads, deal_ns: DEAL_NS }
}

#[test]
fn commands_are_dealt_in_turn_and_wait_for_those_before_them_on_their_thread_alone() {
    let order = |dispatch, slow: &[u16]| {
        let rig = rig(dispatch);
        let commands: Vec<Sqe> =
            (0..6).map(|cid| if slow.contains(&cid) { rig.retrieve(cid) } else { exist(cid) }).collect();
        let (order, _) = rig.complete(&commands);
        rig.sim.clear();
        order
    };
    assert_eq!(order(threads(1), &[0]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(order(threads(2), &[0]), [1, 3, 5, 0, 2, 4]);
    assert_eq!(order(threads(3), &[0]), [1, 2, 4, 5, 0, 3]);
    // The retrieve of thread 0 waits for that of thread 1 at the DMA engine.
    assert_eq!(order(threads(3), &[1, 3]), [0, 2, 5, 1, 4, 3]);
    assert_eq!(order(threads(6), &[0]), [1, 2, 3, 4, 5, 0]);
    assert_eq!(order(rig::on_contexts(2), &[0]), [1, 2, 3, 4, 5, 0], "a context takes whatever is next");
}

#[test]
fn each_thread_gets_the_same_share_and_its_steps_are_taken_by_its_core() {
    const COMMANDS: u64 = 40;
    let rig = rig(threads(4));
    let commands: Vec<Sqe> = (0..COMMANDS as u16).map(exist).collect();
    let (order, span_ns) = rig.complete(&commands);
    assert_eq!(order, (0..COMMANDS as u16).collect::<Vec<_>>(), "all are alike");
    let dispatcher = rig.core("firmware.dispatcher");
    assert_eq!((dispatcher.uses, dispatcher.busy_ns), (2 * COMMANDS, COMMANDS * (DECODE_NS + DEAL_NS)));
    for thread in 0..4 {
        let core = rig.core(&format!("firmware.io-{thread}"));
        assert_eq!((core.uses, core.busy_ns), (COMMANDS / 4, COMMANDS / 4 * COMPLETE_NS), "{thread}");
    }
    // The dispatcher is the limit: it fetches, decodes and deals out one command after another.
    let link = super::rig::link_config(4096);
    let fetch_ns = link.sqe_fetch_ns + link.line_ns(link.read_wire_bytes(64));
    assert_eq!(span_ns, (COMMANDS - 1) * (fetch_ns + DECODE_NS + DEAL_NS));
    rig.sim.clear();
}

/// A List of many keys takes long. After its first slice it continues without a context, so one context
/// serves other commands meanwhile: those that read and those that change pairs.
#[test]
fn a_host_that_lists_much_keeps_no_other_host_waiting() {
    const LISTS: u16 = 4;
    const KEYS: u32 = 4_000;
    const LIST_BYTES: u32 = 64 << 10;
    let mut engine = MockEngine::new(4096);
    let rng = RefCell::new(Rng::stream(1, "a cursor's time"));
    // A cursor step takes as long as a page of the index for each key of the page.
    let sim = Sim::new();
    engine.jitter = Some(Jitter { sim: sim.clone(), rng, below_ns: 100 });
    let rig = rig_of(sim, rig::on_contexts(1), engine);
    {
        let page = rig.namespace.engine().values.borrow()[&key()].clone();
        let mut values = rig.namespace.engine().values.borrow_mut();
        values.extend((2..KEYS).map(|number| (Key::from_u32_be(number), page.clone())));
    }
    let other = rig.link.create_queue(64);
    let (link, queue) = (rig.link.clone(), other.clone());
    let answers = Rc::new(Cell::new(0u32));
    let answered = answers.clone();
    rig.sim.spawn(move || {
        loop {
            let delete = Command::Delete { key: Key::from_u32_be(KEYS + 1), must_exist: false }.encode(1, 1);
            assert!(queue.try_submit(if answered.get().is_multiple_of(2) { exist(1) } else { delete }));
            link.ring_submission(&queue);
            assert_eq!(queue.completion(1).status(), Status::SUCCESS);
            link.ring_completion(&queue);
            answered.set(answered.get() + 1);
        }
    });
    let list = |cid| {
        let mut sqe = Command::List { start: None, buffer_bytes: LIST_BYTES }.encode(cid, 1);
        sqe.set_sgl(SglDescriptor::data_block(rig.memory.map(LIST_BYTES), LIST_BYTES));
        sqe
    };
    for cid in 0..LISTS {
        assert!(rig.queue.try_submit(list(cid)));
    }
    let listed = rig.sim.block_on(|| {
        rig.link.ring_submission(&rig.queue);
        for cid in 0..LISTS {
            let cqe = rig.queue.completion(cid);
            assert_eq!((cqe.status(), cqe.dw0.get()), (Status::SUCCESS, KEYS - 1));
            rig.link.ring_completion(&rig.queue);
        }
        answers.get()
    });
    assert!(listed >= 10 * u32::from(LISTS), "{listed} answers beside {LISTS} Lists");
    rig.sim.clear();
}
