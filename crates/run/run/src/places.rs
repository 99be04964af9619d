//! The host's side of a run: the cores of its threads, and the client that each task uses.
//!
//! | a task uses | tasks | cores |
//! |---|---|---|
//! | the drive | `host.depth`, over all queue pairs | `host.cores`, or one per thread (`host.threads`) |
//! | SAKER in front of the drive | one for each thread | one for each thread |
//! | a store on the host | one for each thread | one for each thread |
//!
//! Answered writes of a drive are durable. Other clients need a sync: [`TaskClient`].

use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::Sections;
use kvdrive_host::hostkv::{HostKv, HostKvClient};
use kvdrive_host::modelled::Driver;
use kvdrive_host::modelled::saker::{Handle, ModelledSaker};
use kvdrive_host::{Call, Client, Error, IteratorId, Pair};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BatchBuilder, RequestKind};
use kvdrive_nvme::{Key, Status};
use kvdrive_saker::Failure;
use kvdrive_saker::transaction::Ending;
use kvdrive_sim::{Ns, Resource};

use super::kinds::{DELETE, STORE};
use kvdrive_config::Config;
use kvdrive_config::setup;

/// Called for writes that were acknowledged and failed later: kind of operation, key and status.
pub(super) type OnRefused<'a> = &'a mut dyn FnMut(usize, &Key, Status);

/// A client as a task of a run uses it.
pub(super) trait TaskClient: Client {
    /// Makes all of its writes durable, and reports those that failed.
    ///
    /// # Errors
    /// The writes are not durable, and it is unknown which of them.
    fn sync(&mut self, on_refused: OnRefused<'_>) -> Result<(), Error>;

    /// Carries out these stores as one atomic batch: all or none.
    ///
    /// # Errors
    /// The status that the drive answered; or the connection failed.
    fn commit(&mut self, stores: &[(Key, Vec<u8>)]) -> Result<(), Error> {
        let mut batch = BatchBuilder::new();
        let mut value = vec![0; BATCH_HEAD_BYTES as usize];
        for (key, stored) in stores {
            batch.append(&mut value, RequestKind::Store, *key, stored);
        }
        value[..BATCH_HEAD_BYTES as usize].copy_from_slice(&batch.head(true));
        let answer = self.call(Call::Batch { value: &value[..] }, &mut Region::new())?;
        match answer.applied() {
            (_, Status::SUCCESS) => Ok(()),
            (_, status) => Err(status.into()),
        }
    }

    /// The iterator's next pair, if an earlier call has brought it: it takes no command and no time. Its
    /// value is written to `_into`.
    ///
    /// # Errors
    /// As [`Calls::next`](kvdrive_host::Calls::next).
    fn next_brought(&mut self, _iterator: IteratorId, _into: &mut Region) -> Result<Option<Pair>, Status> {
        Ok(None)
    }

    /// Takes one answer that other tasks of the run may be waiting for, if no other task takes it; `false`: there is
    /// none. Called while the task waits for another task.
    fn take_answer(&mut self) -> bool {
        false
    }
}

impl TaskClient for &Driver {
    fn sync(&mut self, _: OnRefused<'_>) -> Result<(), Error> {
        Ok(())
    }
}

impl TaskClient for &HostKvClient {
    fn sync(&mut self, _: OnRefused<'_>) -> Result<(), Error> {
        Ok(HostKvClient::sync(self)?)
    }
}

impl TaskClient for Handle<'_> {
    fn sync(&mut self, on_refused: OnRefused<'_>) -> Result<(), Error> {
        tell_failures(Handle::sync(self), on_refused);
        Ok(())
    }

    fn commit(&mut self, stores: &[(Key, Vec<u8>)]) -> Result<(), Error> {
        let mut transaction = self.transaction();
        for (key, value) in stores {
            transaction.store(*key, Piece::Bytes(value))?;
        }
        match transaction.commit()? {
            Ending::Committed => Ok(()),
            Ending::Conflict => unreachable!("nothing was read in it"),
        }
    }

    fn take_answer(&mut self) -> bool {
        Handle::take_answer(self)
    }
}

/// Reports writes that SAKER found refused.
pub(super) fn tell_failures(failures: Vec<Failure>, on_refused: OnRefused<'_>) {
    for Failure { kind, key, status } in failures {
        let kind = match kind {
            RequestKind::Store => STORE,
            RequestKind::Delete => DELETE,
        };
        on_refused(kind, &key, status);
    }
}

/// The client of a task.
#[derive(Clone)]
pub(super) enum ConnectedClient {
    /// The drive, over a queue pair.
    Drive(Rc<Driver>),
    /// SAKER, over a queue pair.
    Saker(Rc<ModelledSaker>, Rc<Driver>),
    /// A store on the host, as one of its threads.
    Store(Rc<HostKvClient>),
}

/// The place of a task: its client and its core.
#[derive(Clone)]
pub(super) struct TaskPlace {
    pub(super) client: ConnectedClient,
    /// The core of its work between two operations, and the time of that work.
    pub(super) core: Rc<Resource>,
    pub(super) think_ns: Ns,
}

/// The host's side of a run.
pub(super) struct HostSide {
    pub(super) cores: Vec<Rc<Resource>>,
    pub(super) places: Vec<TaskPlace>,
    kv: Option<Rc<HostKv>>,
    saker: Option<Rc<ModelledSaker>>,
}

impl HostSide {
    /// Connects to the drive at the other end of `link`, which is powered on.
    pub(super) fn connect(
        config: &Config,
        link: &Rc<Link>,
        memory: &Rc<LocalMemory>,
    ) -> anyhow::Result<HostSide> {
        let cores = setup::cores(config, link.sim());
        let core = |index: usize| cores[index % cores.len()].clone();
        let think_ns = config.host.think_ns;
        if config.has_store_on_host() {
            let kv = setup::store_on_host(config, link, memory, &cores)?;
            let place = |(thread, core): (usize, &Rc<Resource>)| TaskPlace {
                client: ConnectedClient::Store(Rc::new(kv.client(thread as u32))),
                core: core.clone(),
                think_ns,
            };
            let places = cores.iter().enumerate().map(place).collect();
            let cores = cores.iter().chain(kv.background_core()).cloned().collect();
            return Ok(HostSide { places, cores, kv: Some(kv), saker: None });
        }
        let drivers: Vec<_> =
            setup::drivers(config, link, memory, &cores)?.into_iter().map(Rc::new).collect();
        let saker = setup::saker(config, link.sim())?;
        let places = match &saker {
            Some(saker) => {
                let place = |(driver, core): (&Rc<Driver>, &Rc<Resource>)| TaskPlace {
                    client: ConnectedClient::Saker(saker.clone(), driver.clone()),
                    core: core.clone(),
                    think_ns,
                };
                drivers.iter().zip(&cores).map(place).collect()
            }
            None => {
                let place = |driver: usize| TaskPlace {
                    client: ConnectedClient::Drive(drivers[driver].clone()),
                    core: core(driver),
                    think_ns,
                };
                setup::driver_of_each_task(config).map(place).collect()
            }
        };
        Ok(HostSide { places, cores, kv: None, saker })
    }

    /// Makes the writes durable that a store on the host has in memory.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        match &self.places[0].client {
            // Tasks of SAKER sync before they end.
            ConnectedClient::Drive(_) | ConnectedClient::Saker(..) => Ok(()),
            // One sync covers all threads.
            ConnectedClient::Store(client) => Ok(client.sync()?),
        }
    }

    /// Adds the counts of a store on the host and of SAKER.
    pub(super) fn count(&self, counts: &mut Sections) {
        if let Some(kv) = &self.kv {
            counts.set("store", kv.counts());
            counts.set("store_memory", kv.memory());
        }
        if let Some(saker) = &self.saker {
            counts.set("saker", saker.saker().counts());
        }
    }
}
