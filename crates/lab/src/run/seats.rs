//! The host's side of a run: the cores of its threads, and whom each task asks.
//!
//! | a task asks | tasks | cores |
//! |---|---|---|
//! | the drive | `host.depth`, spread over the queue pairs | `host.cores` that all share; with `host.threads` one for each |
//! | a store on the host | one a thread | one a thread |

use std::rc::Rc;

use kvdrive_host::hostkv::{HostKv, HostKvClient};
use kvdrive_host::modelled::Driver;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::Resource;

use crate::config::Config;
use crate::setup;

/// Whom a task asks.
#[derive(Clone)]
pub(super) enum Whom {
    /// The drive, over a queue pair.
    Drive(Rc<Driver>),
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
            return Ok(HostSide { seats, cores, kv: Some(kv) });
        }
        let drivers: Vec<_> =
            setup::drivers(config, link, memory, &cores)?.into_iter().map(Rc::new).collect();
        let seat = |driver: usize| Seat { whom: Whom::Drive(drivers[driver].clone()), core: core(driver) };
        let seats = setup::driver_of_each_task(config).map(seat).collect();
        Ok(HostSide { seats, cores, kv: None })
    }

    /// Makes durable what a store on the host has in memory.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        match &self.seats[0].whom {
            Whom::Drive(_) => Ok(()),
            // Of all threads.
            Whom::Store(client) => Ok(client.sync()?),
        }
    }

    /// What a store on the host has counted.
    pub(super) fn store_counts(&self) -> Vec<(String, u64)> {
        self.kv.as_ref().map_or_else(Vec::new, |kv| kv.counters())
    }
}
