//! A drive of this program as a [`Target`], on a thread of its own in this process: entries go to the drive's own queues,
//! with no network and no subsystem between.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use kvdrive_config::Config;
use kvdrive_content::{Piece, Region};
use kvdrive_flash::power::Survivors;
use kvdrive_link::shared::{
    CompletionSink, ServerConfig, Serving, SharedBuffer, SharedLink, SharedQueue, serve_thread,
};
use kvdrive_nvme::{Cqe, DRIVE_NSID, SglDescriptor, Sqe};
use kvdrive_run::wall::{Change, Running, ServedDrive, served};
use kvdrive_sim::wall::{Pace, lock};

use crate::target::{Answer, Data, Lost, NoAnswer, Target, UNTOUCHED};

/// Entries of an I/O queue: one command is under way at a time.
const ENTRIES: u32 = 16;

/// Where a queue's completions arrive.
#[derive(Default)]
struct Arrived {
    state: Mutex<(Option<Cqe>, bool)>,
    news: Condvar,
}

impl CompletionSink for Arrived {
    fn complete(&self, _: &SharedQueue, cqes: &[Cqe]) {
        lock(&self.state).0 = cqes.last().copied();
        self.news.notify_all();
    }

    fn power_off(&self) {
        lock(&self.state).1 = true;
        self.news.notify_all();
    }
}

/// A queue, and its completions.
struct Lane {
    queue: Arc<SharedQueue>,
    arrived: Arc<Arrived>,
    /// For the data of a command; it is replaced by a larger one when a command needs that. Memory of a link stays mapped.
    memory: Option<Arc<SharedBuffer>>,
}

impl Lane {
    fn on(link: &SharedLink) -> Result<Lane, Lost> {
        let arrived = Arc::<Arrived>::default();
        let queue = link.create_queue(ENTRIES, arrived.clone()).map_err(|_| off())?;
        Ok(Lane { queue, arrived, memory: None })
    }

    /// Memory with the data of a command, or with room for its answer.
    fn filled(&mut self, link: &SharedLink, data: Data<'_>) -> Option<(Arc<SharedBuffer>, u32)> {
        let room = match data {
            Data::None => 0,
            Data::Out(bytes) => bytes.len() as u32,
            Data::In(room) => room,
        };
        if room == 0 {
            return None;
        }
        let known = self.memory.take().filter(|memory| memory.bytes() >= room);
        let memory = known.unwrap_or_else(|| link.memory().map(room.next_power_of_two()));
        match data {
            Data::Out(bytes) => memory.fill(Piece::Bytes(bytes)),
            _ => memory.fill(Piece::Bytes(&vec![UNTOUCHED; room as usize])),
        }
        self.memory = Some(memory.clone());
        Some((memory, room))
    }

    fn execute(&mut self, link: &SharedLink, mut sqe: Sqe, data: Data<'_>) -> Result<Answer, Lost> {
        let memory = self.filled(link, data);
        let (address, room) = memory.as_ref().map_or((0, 0), |(memory, room)| (memory.address(), *room));
        sqe.set_sgl(SglDescriptor::data_block(address, room));
        assert!(self.queue.submit(&mut vec![sqe], 0), "one command at a time fits");
        let mut state = lock(&self.arrived.state);
        let cqe = loop {
            if let Some(cqe) = state.0.take() {
                break cqe;
            }
            if state.1 {
                return Err(off());
            }
            state = self.arrived.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.queue.ring_completion();
        let mut bytes = Vec::new();
        if let (Some((memory, room)), Data::In(_), true) = (&memory, data, cqe.status().is_success()) {
            let mut content = Region::new();
            memory.swap(&mut content);
            bytes = content.to_bytes(*room);
        }
        Ok(Answer { status: cqe.status(), dw0: cqe.dw0.get(), data: bytes })
    }
}

fn off() -> Lost {
    Lost("the drive has no power".to_owned())
}

/// A drive with power; it ends when the last host of it is dropped.
struct Life {
    link: Arc<SharedLink>,
    serving: Option<Serving<Running, ServedDrive>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// A drive in this process, and a host of it.
pub struct InProcess {
    name: String,
    config: Config,
    life: Arc<Mutex<Life>>,
    link: Arc<SharedLink>,
    admin: Arc<Mutex<Lane>>,
    io: Lane,
}

impl InProcess {
    /// Powers on the drive of `config`, which `name` describes.
    ///
    /// # Errors
    /// Why it does not start.
    pub fn power_on(name: &str, config: Config) -> Result<InProcess, Lost> {
        let (life, admin) = begin(&config, None)?;
        let link = life.link.clone();
        let io = Lane::on(&link)?;
        let (life, admin) = (Arc::new(Mutex::new(life)), Arc::new(Mutex::new(admin)));
        Ok(InProcess { name: name.to_owned(), config, life, link, admin, io })
    }
}

fn begin(config: &Config, survivors: Option<Survivors>) -> Result<(Life, Lane), Lost> {
    let arrived = Arc::<Arrived>::default();
    let (link, queue) = SharedLink::new(arrived.clone());
    let server = ServerConfig { pace: Pace::Off, recorder: None };
    let serving = serve_thread(&link, server, served(config.clone(), survivors));
    let serving = serving.map_err(|error| Lost(error.to_string()))?;
    Ok((Life { link, serving: Some(serving) }, Lane { queue, arrived, memory: None }))
}

impl Target for InProcess {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn nsid(&self) -> u32 {
        DRIVE_NSID
    }

    fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        Ok(lock(&self.admin).execute(&self.link, sqe, data)?)
    }

    fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        Ok(self.io.execute(&self.link, sqe, data)?)
    }

    /// A host of its own has no controller to end; its queue begins anew.
    fn reconnect(&mut self) -> Result<(), Lost> {
        self.io = Lane::on(&self.link)?;
        Ok(())
    }

    fn another(&self) -> Result<Option<Box<dyn Target>>, Lost> {
        Ok(Some(Box::new(InProcess {
            name: self.name.clone(),
            config: self.config.clone(),
            life: self.life.clone(),
            link: self.link.clone(),
            admin: self.admin.clone(),
            io: Lane::on(&self.link)?,
        })))
    }

    fn power_cycle(&mut self) -> Result<bool, Lost> {
        let mut life = lock(&self.life);
        let serving = life.serving.take().ok_or_else(off)?;
        // The drive may end before it has answered.
        _ = serving.control().change(Change::CutPower { torn: true });
        let survivors = serving.join().take_survivors();
        let (next, admin) = begin(&self.config, survivors)?;
        self.link = next.link.clone();
        *lock(&self.admin) = admin;
        self.io = Lane::on(&self.link)?;
        *life = next;
        Ok(true)
    }
}
