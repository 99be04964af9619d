//! The host's side of a run: the cores of its threads, and whom each task asks.
//!
//! | a task asks | tasks | cores |
//! |---|---|---|
//! | the drive | `host.depth`, spread over the queue pairs | `host.cores` for all, or one a thread (`host.threads`) |
//! | SAKER, and the drive behind it | one a thread | one a thread |
//! | a store on the host | one a thread | one a thread |
//!
//! What a drive answers is durable. The others have something to sync: [`Party`].

use std::rc::Rc;

use kvdrive_host::Client;
use kvdrive_host::hostkv::{HostKv, HostKvClient};
use kvdrive_host::modelled::Driver;
use kvdrive_host::modelled::saker::{Handle, ModelledSaker};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_saker::{Failure, Saker};
use kvdrive_sim::Resource;
use kvdrive_spec::batch::RequestKind;
use kvdrive_spec::{Key, Status};

use super::seen::{DELETE, STORE};
use crate::config::Config;
use crate::setup;

/// Hears of writes that were answered and then refused: kind of operation, key and status.
pub(super) type OnRefused<'a> = &'a mut dyn FnMut(usize, &Key, Status);

/// A client as a task of a run asks it.
pub(super) trait Party: Client {
    /// Makes durable all that it has written, and tells what failed of it.
    ///
    /// # Errors
    /// It is not durable, and nobody can say what of it.
    fn sync(&mut self, on_refused: OnRefused<'_>) -> Result<(), Status>;

    /// It is about to wait for another task of the run: whatever that one may wait for of it is done first.
    fn before_waiting(&mut self) {}
}

impl Party for &Driver {
    fn sync(&mut self, _: OnRefused<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Party for &HostKvClient {
    fn sync(&mut self, _: OnRefused<'_>) -> Result<(), Status> {
        HostKvClient::sync(self)
    }
}

impl Party for Handle<'_> {
    fn sync(&mut self, on_refused: OnRefused<'_>) -> Result<(), Status> {
        tell_failures(Handle::sync(self), on_refused);
        Ok(())
    }

    fn before_waiting(&mut self) {
        self.take_answers();
    }
}

/// Tells of what SAKER found refused.
pub(super) fn tell_failures(failures: Vec<Failure>, on_refused: OnRefused<'_>) {
    for Failure { kind, key, status } in failures {
        let kind = match kind {
            RequestKind::Store => STORE,
            RequestKind::Delete => DELETE,
        };
        on_refused(kind, &key, status);
    }
}

/// Whom a task asks.
#[derive(Clone)]
pub(super) enum Whom {
    /// The drive, over a queue pair.
    Drive(Rc<Driver>),
    /// SAKER, over a queue pair.
    Saker(Rc<ModelledSaker>, Rc<Driver>),
    /// A store on the host, as one of its threads.
    Store(Rc<HostKvClient>),
}

/// What a task has.
#[derive(Clone)]
pub(super) struct Seat {
    pub(super) whom: Whom,
    /// Where it works between two operations.
    pub(super) core: Rc<Resource>,
}

/// The host's side of a run.
pub(super) struct HostSide {
    pub(super) cores: Vec<Rc<Resource>>,
    pub(super) seats: Vec<Seat>,
    kv: Option<Rc<HostKv>>,
    saker: Option<Rc<ModelledSaker>>,
}

impl HostSide {
    /// Connects to the drive behind `link`, which is powered on.
    pub(super) fn connect(
        config: &Config,
        link: &Rc<Link>,
        memory: &Rc<LocalMemory>,
    ) -> anyhow::Result<HostSide> {
        let cores = setup::cores(config, link.sim());
        let core = |index: usize| cores[index % cores.len()].clone();
        if config.has_store_on_host() {
            let kv = setup::store_on_host(config, link, memory, &cores)?;
            let seat = |(thread, core): (usize, &Rc<Resource>)| Seat {
                whom: Whom::Store(Rc::new(kv.client(thread as u32))),
                core: core.clone(),
            };
            let seats = cores.iter().enumerate().map(seat).collect();
            let cores = cores.iter().chain(kv.background_core()).cloned().collect();
            return Ok(HostSide { seats, cores, kv: Some(kv), saker: None });
        }
        let drivers: Vec<_> =
            setup::drivers(config, link, memory, &cores)?.into_iter().map(Rc::new).collect();
        let saker = setup::saker(config, link.sim())?;
        let seats = match &saker {
            Some(saker) => {
                let seat = |(driver, core): (&Rc<Driver>, &Rc<Resource>)| Seat {
                    whom: Whom::Saker(saker.clone(), driver.clone()),
                    core: core.clone(),
                };
                drivers.iter().zip(&cores).map(seat).collect()
            }
            None => {
                let seat =
                    |driver: usize| Seat { whom: Whom::Drive(drivers[driver].clone()), core: core(driver) };
                setup::driver_of_each_task(config).map(seat).collect()
            }
        };
        Ok(HostSide { seats, cores, kv: None, saker })
    }

    /// Makes durable what a store on the host has in memory.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        match &self.seats[0].whom {
            // Tasks of SAKER sync before they end.
            Whom::Drive(_) | Whom::Saker(..) => Ok(()),
            // Of all threads.
            Whom::Store(client) => Ok(client.sync()?),
        }
    }

    /// What a store on the host has counted.
    pub(super) fn store_counts(&self) -> Vec<(String, u64)> {
        self.kv.as_ref().map_or_else(Vec::new, |kv| kv.counters())
    }

    /// What SAKER has counted.
    pub(super) fn saker_counts(&self) -> Vec<(String, u64)> {
        self.saker.as_ref().map_or_else(Vec::new, |saker| saker_counts(saker.saker()))
    }
}

/// What SAKER has counted, and the most it had pending.
pub(crate) fn saker_counts(saker: &Saker) -> Vec<(String, u64)> {
    let counted = saker.counts().into_iter().map(|(name, count)| (name.to_owned(), count));
    let states =
        [("most_pending_bytes", saker.most_pending_bytes()), ("cache_bytes_now", saker.cache_bytes())];
    counted.chain(states.map(|(name, bytes)| (name.to_owned(), bytes))).collect()
}
