//! A host: state that its drivers share, and its use of the admin queue: Identify, and creation of queue
//! pairs.

use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_declare::Section;
use kvdrive_link::transfer::{BY_WINDOW, PAIRS};
use kvdrive_link::{HostMemory, Link, LocalMemory, QueuePair};
use kvdrive_nvme::identify::{IDENTIFY_BYTES, KvNamespace};
use kvdrive_nvme::{Sqe, Status};
use kvdrive_sim::{Ns, Resource, TaskCell, WaitQueue};

use crate::answers::{self, IteratorId, RING};
use crate::conversation::course::done;
use crate::conversation::unclaimed::{Claimed, NextPair, Unclaimed};

/// Times of the host's work on its core, ns. Their sources are in the profiles.
///
/// A store names the application's own pages, so it pays for pinning and naming them. What a retrieve, a
/// listing or an iterator brings lands in the buffer of a slot, which is pinned and named once: they pay for
/// neither, and the copy from there to the application is not charged. A retrieve is therefore shorter, by up
/// to `dma_setup_ns` + pages x `pin_page_ns`, than that of a driver that reads into its caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
#[section("host", default)]
pub struct HostCosts {
    /// Host core time from the application's call to the doorbell, for each command, ns.
    #[setting(is = TIME)]
    pub submit_ns: Ns,
    /// Host core time from the completion to the application, for each command, ns.
    #[setting(is = TIME)]
    pub complete_ns: Ns,
    /// Host core time to set up a DMA transfer, for each store that has one, ns.
    #[setting(is = TIME)]
    pub dma_setup_ns: Ns,
    /// Host core time to pin and name one page of a store for DMA, ns.
    #[setting(is = TIME)]
    pub pin_page_ns: Ns,
    /// Host core time for each submission entry after the first of a doorbell, and for each completion after the first
    /// that is taken at once, ns.
    #[setting(is = TIME)]
    pub entry_ns: Ns,
    /// Host core time before a store into a window by CXL.mem, ns.
    #[setting(is = TIME, when = &[PAIRS, BY_WINDOW])]
    pub cxl_setup_ns: Ns,
}

/// A host: its memory, its core and the times of its work. Drivers of several queues share one.
pub struct Host {
    pub(super) link: Rc<Link>,
    pub(super) memory: Rc<LocalMemory>,
    pub(super) core: Rc<Resource>,
    pub(super) costs: HostCosts,
    pub(super) max_value_bytes: u32,
    /// Answers to NEXT commands that were dropped, and tasks that wait for them.
    pub(super) unclaimed: TaskCell<Unclaimed>,
    pub(super) unclaimed_came: WaitQueue,
}

impl Host {
    /// Sends Identify over the admin queue and remembers the limits of the drive.
    ///
    /// # Errors
    /// The status of a failed Identify.
    pub fn connect(
        link: Rc<Link>,
        memory: Rc<LocalMemory>,
        core: Rc<Resource>,
        costs: HostCosts,
    ) -> Result<Rc<Host>, Status> {
        let (unclaimed, unclaimed_came) = (TaskCell::default(), WaitQueue::new(link.sim()));
        let mut host = Host { link, memory, core, costs, max_value_bytes: 0, unclaimed, unclaimed_came };
        host.max_value_bytes = host.identify()?.format().value_max_bytes.get();
        Ok(Rc::new(host))
    }

    /// Identify data of the KV namespace as it is now.
    ///
    /// # Errors
    /// The status of a failed Identify.
    pub fn identify(&self) -> Result<KvNamespace, Status> {
        identify(&self.link, &self.memory, answers::identify_namespace, answers::take_namespace)
    }

    /// Size of the largest value that the drive takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.max_value_bytes
    }

    /// Takes a kept pair of `iterator`; waits for the answer to a dropped NEXT in progress.
    pub(super) fn claim(&self, iterator: IteratorId, into: &mut Region) -> Option<NextPair> {
        loop {
            let claimed = self.unclaimed.borrow_mut().claim(iterator, into);
            match claimed {
                Claimed::Nothing => return None,
                Claimed::Expected => self.unclaimed_came.wait(),
                Claimed::Pair(pair) => return Some(pair),
            }
        }
    }

    /// The iterator is closed.
    pub(super) fn forget(&self, iterator: IteratorId) {
        self.unclaimed.borrow_mut().forget(|other| other == iterator);
        self.unclaimed_came.wake_all();
    }
}

/// Asks the drive at the other end of `link` over the admin queue: `ask` makes the command from an identifier
/// and the address of a buffer, and `take` reads the answer from that buffer.
pub(crate) fn identify<T>(
    link: &Link,
    memory: &LocalMemory,
    ask: impl FnOnce(u16, u64) -> Sqe,
    take: impl FnOnce(&dyn HostMemory, u64) -> T,
) -> Result<T, Status> {
    let buffer = memory.map(IDENTIFY_BYTES as u32);
    let function = link.first_function();
    let _turn = function.administration().lock();
    administer(link, ask(0, buffer)).map(|()| take(memory, buffer))
}

/// Has the drive at the other end of `link` carry out a command of the admin queue, which the caller holds.
fn administer(link: &Link, sqe: Sqe) -> Result<(), Status> {
    let queue = link.admin_queue();
    assert!(queue.try_submit(sqe), "the admin queue takes one command at a time");
    link.ring_submission(&queue);
    let status = queue.completion(sqe.cid.get()).status();
    link.ring_completion(&queue);
    done(status)
}

/// Has the drive create a queue pair of `entries` slots under the lowest free identifier. This happens once,
/// so it takes no time on a host's core.
pub(crate) fn create_queue(link: &Link, entries: u32) -> Result<Rc<QueuePair>, Status> {
    let function = link.first_function();
    let _turn = function.administration().lock();
    let id = function.free_id().ok_or(Status::INVALID_QUEUE_ID)?;
    for command in answers::create_pair(id, entries) {
        administer(link, command.encode(0, RING))?;
    }
    Ok(function.queue(id).expect("the drive has created it"))
}

/// Has the drive delete a queue pair.
pub(crate) fn delete_queue(link: &Link, queue: &QueuePair) -> Result<(), Status> {
    let function = link.first_function();
    let _turn = function.administration().lock();
    for command in answers::delete_pair(queue.id()) {
        administer(link, command.encode(0, RING))?;
    }
    Ok(())
}
