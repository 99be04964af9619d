//! One command in detail: every step with its time, part of the system, bytes and purpose.

use std::rc::Rc;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_device::Drive;
use kvdrive_flash::faults::Rule;
use kvdrive_host::modelled::saker::Handle;
use kvdrive_host::{Call, Calls, Client, Error};
use kvdrive_link::{Link, LocalMemory};
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BatchBuilder, RequestKind};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Ns, OccupationStatistics, Sim, TraceEntry};

use kvdrive_config::Document;
use kvdrive_config::setup;

/// The kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A store of a value.
    Store,
    /// This many stores in one batch; with SAKER in front, from its container to their pages.
    Batch(u32),
    /// A retrieve of a value that was stored before.
    Retrieve,
    /// A delete of a pair that was stored before.
    Delete,
    /// An exist for a key that was stored before.
    Exist,
    /// A list from the first key.
    List,
    /// A seek to the first pair.
    Seek,
}

/// The recorded command.
pub struct Explanation {
    /// Every step, in the order of their beginnings. Times count from the call, in ns.
    pub steps: Vec<TraceEntry>,
    /// Number of steps at the beginning that request a window of the page buffer, which the next store does
    /// not need.
    pub asking: usize,
    /// Number of steps at the end that follow the answer: buffered pages are written.
    pub after_answer: usize,
    /// How the controller's contexts and threads spent their time until the answer.
    pub occupied: Vec<OccupationStatistics>,
    /// How long the application waited, ns.
    pub latency_ns: Ns,
    /// The status of the command.
    pub status: Status,
    /// Bytes of the value, or of each value of a batch.
    pub value_bytes: u32,
}

/// Runs one command of `kind` on a drive that holds one pair, and records it. `rules` are the faults that may
/// strike it.
///
/// # Errors
/// The configuration is invalid, or the drive cannot be built or does not take its pair.
pub fn explain(document: &Document, kind: Kind, rules: &[Rule]) -> anyhow::Result<Explanation> {
    let config = document.config()?;
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, config.link.clone(), memory.clone());
    let explanation = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, &config.drive(), None)?;
        let driver = setup::drivers(&config, &link, &memory, &setup::cores(&config, &sim))?.remove(0);
        let saker = setup::saker(&config, &sim)?;
        let value_bytes = config.workload.value_size;
        let present = Key::from_u32_be(1);
        if !matches!(kind, Kind::Store | Kind::Batch(_)) {
            driver.store(present, content(present, value_bytes))?;
        }
        drive.faults().set(rules, config.run.seed);
        let (began, before) = (sim.now(), sim.occupations());
        sim.trace().start();
        let result = match (kind, &saker) {
            (Kind::Batch(stores), Some(saker)) => through(saker.connect(&driver), stores, value_bytes),
            _ => perform(&driver, kind, present, value_bytes),
        };
        let latency_ns = sim.now() - began;
        let occupied = sim.occupations().iter().map(|now| now.since(&before)).collect();
        let mut steps = sim.trace().take();
        let answered = steps.len();
        if saker.is_some() {
            sim.trace().start();
            drive.drain();
            steps.extend(sim.trace().take());
        }
        let after_answer = steps.len() - answered;
        for step in &mut steps {
            step.at -= began;
        }
        let status = result.map_or_else(Error::status, |()| Ok(Status::SUCCESS))?;
        anyhow::Ok(Explanation {
            asking: asking(&steps),
            steps,
            after_answer,
            occupied,
            latency_ns,
            status,
            value_bytes,
        })
    })?;
    sim.clear();
    Ok(explanation)
}

/// Number of steps before the value is stored by CXL.mem: they belong to the request for a window.
fn asking(steps: &[TraceEntry]) -> usize {
    let by_cxl = steps.iter().position(|step| step.what == "set up a CXL store" || step.purpose == "cxl");
    let ahead = &steps[..by_cxl.unwrap_or(0)];
    if ahead.iter().any(|step| step.purpose == "sqe") { ahead.len() } else { 0 }
}

fn content(key: Key, bytes: u32) -> Piece<'static> {
    Piece::Pattern(Pattern::of_value(&key, 0, bytes))
}

fn perform(mut client: impl Client, kind: Kind, key: Key, value_bytes: u32) -> Result<(), Error> {
    let mut region = Region::new();
    match kind {
        Kind::Store => client.store(key, content(key, value_bytes)),
        Kind::Batch(stores) => {
            let value = batch_of(stores, value_bytes);
            let (_, status) = client.call(Call::Batch { value }, &mut region)?.applied();
            if status.is_success() { Ok(()) } else { Err(status.into()) }
        }
        Kind::Retrieve => client.retrieve(key, &mut region).map(|_| ()),
        Kind::Delete => client.delete(key),
        Kind::Exist => client.exist(key).map(|_| ()),
        Kind::List => client.list(None, 4096).map(|_| ()),
        Kind::Seek => client.seek(None, &mut region).map(|_| ()),
    }
}

/// Sends `stores` stores with keys from 1 on through SAKER, and syncs.
fn through(mut handle: Handle<'_>, stores: u32, value_bytes: u32) -> Result<(), Error> {
    for number in 1..=stores {
        let key = Key::from_u32_be(number);
        handle.store(key, content(key, value_bytes))?;
    }
    match handle.close().first() {
        None => Ok(()),
        Some(failure) => Err(failure.status.into()),
    }
}

/// A structured value of `stores` stores with keys from 1 on.
fn batch_of(stores: u32, value_bytes: u32) -> Vec<u8> {
    let (mut structured, mut batch) = (vec![0; BATCH_HEAD_BYTES as usize], BatchBuilder::new());
    let mut value = vec![0; value_bytes as usize];
    for number in 1..=stores {
        let key = Key::from_u32_be(number);
        content(key, value_bytes).expand(&mut value);
        batch.append(&mut structured, RequestKind::Store, key, &value);
    }
    structured[..BATCH_HEAD_BYTES as usize].copy_from_slice(&batch.head(false));
    structured
}
