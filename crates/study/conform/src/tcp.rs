//! A controller on a network as a [`Target`]: an admin queue and an I/O queue over NVMe/TCP.

use kvdrive_host::reach::Remote;
use kvdrive_host::tcp::{self, Initiated, Initiator, Options, Queue, discover, initiate};
use kvdrive_nvme::fabrics::Fabrics;
use kvdrive_nvme::{Sqe, Status};

use crate::target::{Answer, Data, Digests, Fabric, Lost, NoAnswer, Target};

/// Entries of the I/O queue: one command is under way at a time.
const ENTRIES: u16 = 16;

/// A controller with its queues.
pub struct Tcp {
    remote: Remote,
    nqn: String,
    nsid: u32,
    admin: Initiator,
    queue: Queue,
}

fn lost(error: impl std::fmt::Display) -> Lost {
    Lost(error.to_string())
}

impl Tcp {
    /// Connects. Without a name the only subsystem that discovery reports, without a number the first namespace of pairs.
    ///
    /// # Errors
    /// A line without the address: no answer there, no such subsystem or namespace.
    pub fn connect(remote: Remote) -> Result<Tcp, Lost> {
        let Initiated { initiator, nqn, nsid, .. } = initiate(&remote).map_err(|error| Lost(error.line()))?;
        Tcp::with_queue(remote, nqn, nsid, initiator)
    }

    fn with_queue(remote: Remote, nqn: String, nsid: u32, mut admin: Initiator) -> Result<Tcp, Lost> {
        admin.ask_for_queues(1).map_err(lost)?;
        let queue = admin.io_queue(1, ENTRIES).map_err(lost)?;
        Ok(Tcp { remote, nqn, nsid, admin, queue })
    }

    /// The same namespace by another controller.
    fn again(&self, options: &Options) -> Result<Tcp, Lost> {
        let admin = Initiator::connect(&*self.remote.address, &self.nqn, options).map_err(lost)?;
        let remote = Remote { options: options.clone(), ..self.remote.clone() };
        Tcp::with_queue(remote, self.nqn.clone(), self.nsid, admin)
    }
}

fn execute(queue: &mut Queue, sqe: Sqe, data: Data<'_>) -> Result<Answer, Lost> {
    let data = match data {
        Data::None => tcp::Data::None,
        Data::Out(bytes) => tcp::Data::Out(bytes),
        Data::In(room) => tcp::Data::In(room),
    };
    let completed = queue.execute(sqe, data).map_err(lost)?;
    Ok(Answer { status: completed.cqe.status(), dw0: completed.cqe.dw0.get(), data: completed.data })
}

impl Target for Tcp {
    fn name(&self) -> String {
        format!("tcp://{} {}", self.remote.address, self.nqn)
    }

    fn nsid(&self) -> u32 {
        self.nsid
    }

    fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        Ok(execute(self.admin.admin(), sqe, data)?)
    }

    fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        Ok(execute(&mut self.queue, sqe, data)?)
    }

    fn reconnect(&mut self) -> Result<(), Lost> {
        *self = self.again(&self.remote.options)?;
        Ok(())
    }

    fn another(&self) -> Result<Option<Box<dyn Target>>, Lost> {
        Ok(Some(Box::new(self.again(&self.remote.options)?)))
    }

    fn fabric(&mut self) -> Option<&mut dyn Fabric> {
        Some(self)
    }
}

impl Fabric for Tcp {
    fn controller_id(&self) -> u16 {
        self.admin.controller_id()
    }

    fn property(&mut self, offset: u32, wide: bool) -> Result<(Status, u64), Lost> {
        let get = Fabrics::PropertyGet { wide, offset };
        let cqe = self.admin.admin().execute(get.encode(0), tcp::Data::None).map_err(lost)?.cqe;
        Ok((cqe.status(), u64::from(cqe.dw1.get()) << 32 | u64::from(cqe.dw0.get())))
    }

    fn with_digests(&self, wanted: Digests) -> Result<(Box<dyn Target>, Digests), Lost> {
        let options = Options {
            header_digest: wanted.header,
            data_digest: wanted.data,
            padded_digest: wanted.padded,
            ..self.remote.options.clone()
        };
        let target = self.again(&options)?;
        let (header, data) = target.queue.digests();
        Ok((Box::new(target), Digests { header, data, padded: wanted.padded && data }))
    }

    fn discovered(&self) -> Result<Vec<String>, Lost> {
        let found = discover(&*self.remote.address, &self.remote.options).map_err(lost)?;
        Ok(found.into_iter().map(|entry| entry.nqn).collect())
    }

    fn nqn(&self) -> &str {
        &self.nqn
    }
}
