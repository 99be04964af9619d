//! A drive in the program's own process: `kvdrive:PROFILE[,file=PATH][,KEY=VALUE...]`.
//!
//! ```text
//!   the program's threads ─► our initiator ─► 127.0.0.1, a free port ─► a thread with the door and the drive
//! ```
//!
//! It is reached over the network like a served drive, so that both behave alike. Its door accepts only a host with a
//! random name that this process alone knows. The drive runs as fast as the machine can, and ends with the process; its
//! pairs survive if it has a file, also `kill -9`. A forked child has no drive, because threads stay with the parent. The
//! drive's threads have a table of descriptors of their own, which a program that closes all of its descriptors does not
//! reach.

use kvdrive_nvme::DRIVE_NSID;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use kvdrive_config::Document;
use kvdrive_link::shared::ServerConfig;
use kvdrive_run::memory;
use kvdrive_run::wall::served;
use kvdrive_sim::wall::Pace;
use kvdrive_subsystem::drive::power_on_beside;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Host, NQN_OF_UUID, Options, Subsystem, nqn_of};
use kvdrive_subsystem::tcp::connection::Limits;
use kvdrive_subsystem::tcp::listener::{Server, Sockets};
use kvdrive_text::output::tell;
use uuid::Uuid;

use crate::kernel;

/// Least that one command may move, bytes.
const TRANSFER_MIN_BYTES: u32 = 1 << 20;
/// Memory for data on their way, bytes.
const MEMORY_BYTES: usize = 64 << 20;

/// The process from which this one was forked has a drive.
static PARENT_HAS_DRIVE: AtomicBool = AtomicBool::new(false);
static HAS_DRIVE: AtomicBool = AtomicBool::new(false);

/// This process was created by `fork`: the drives stayed with its parent.
pub fn forked() {
    PARENT_HAS_DRIVE.fetch_or(HAS_DRIVE.swap(false, Ordering::Relaxed), Ordering::Relaxed);
}

/// Profile and settings of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InProcess {
    profile: String,
    settings: Vec<String>,
}

/// How to reach a drive that runs.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Where it listens.
    pub at: SocketAddr,
    /// Name of the subsystem.
    pub nqn: String,
    /// Name of the one host that it takes.
    pub host_nqn: String,
}

impl InProcess {
    /// The drive that `text` describes: the part of a node after `kvdrive:`.
    pub fn of(text: &str) -> Result<InProcess, String> {
        let mut parts = text.split(',');
        let profile = parts.next().unwrap_or_default().to_owned();
        let mut settings = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some(("file", path)) => {
                    settings.extend(["media.kind=file".to_owned(), format!("media.path={path}")]);
                }
                Some(_) => settings.push(part.to_owned()),
                None => return Err(format!("{part:?}; allowed: file=PATH, KEY=VALUE")),
            }
        }
        let drive = InProcess { profile, settings };
        drive.document()?;
        Ok(drive)
    }

    fn document(&self) -> Result<Document, String> {
        let mut document = Document::profile(&self.profile).map_err(|error| error.to_string())?;
        for setting in &self.settings {
            document.set(setting).map_err(|error| error.to_string())?;
        }
        document.config().map_err(|error| error.to_string())?;
        Ok(document)
    }

    /// Powers it on, on a thread of its own that serves it until the process ends.
    pub fn power_on(&self) -> Result<Address, String> {
        if PARENT_HAS_DRIVE.load(Ordering::Relaxed) {
            return Err(
                "a child cannot use the drive in its parent's process; `kvdrive serve` serves both".into()
            );
        }
        let mut document = self.document()?;
        let fitted = memory::fit([&mut document].into_iter(), "flash.capacity=SIZE, or file=PATH");
        let fitted = fitted.map_err(|error| error.to_string())?;
        fitted.iter().for_each(|line| tell(&format!("kvdrive-ng: {line}")));
        let config = document.config().map_err(|error| error.to_string())?;
        // The same drive has the same name each time, and no two hosts have.
        let nqn = nqn_of(&format!("{self:?}"));
        let host_nqn = format!("{NQN_OF_UUID}{}", Uuid::new_v4());
        let most = config.controller.max_value_bytes.max(TRANSFER_MIN_BYTES);
        let options = Options {
            nqn: nqn.clone(),
            transfer_max_bytes: most.checked_next_power_of_two().unwrap_or(1 << 31),
            hosts: Some(vec![Host::from(&*host_nqn)]),
            ..Options::default()
        };
        let (started, outcome) = mpsc::channel();
        let begin = move || {
            let mut sockets = Sockets::new().map_err(|error| error.to_string())?;
            let at = sockets.listen(([127, 0, 0, 1], 0).into()).map_err(|error| error.to_string())?;
            let subsystem = Subsystem::new(options).map_err(|error| error.to_string())?;
            let (bell, most) = (sockets.bell().clone(), subsystem.options().transfer_max_bytes);
            let mut core = Core::new(subsystem, MEMORY_BYTES);
            let server = ServerConfig { pace: Pace::Off, recorder: None };
            let (namespace, serving, drive) = power_on_beside(server, bell, most, served(config, None))
                .map_err(|error| error.to_string())?;
            core.drive = Some(drive);
            core.subsystem.attach(DRIVE_NSID, Box::new(namespace));
            Ok::<_, String>((at, serving, Server::new(sockets, core, Limits::default())))
        };
        let run = move || {
            kernel::own_descriptors();
            match begin() {
                Ok((at, serving, server)) => {
                    let _ = started.send(Ok(at));
                    if let Err(error) = server.run(false) {
                        tell(&format!("kvdrive-ng: the drive in this process has ended: {error}"));
                    }
                    drop(serving);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        thread::Builder::new().name("kvdrive".into()).spawn(run).map_err(|error| error.to_string())?;
        let at = outcome.recv().map_err(|_| "the drive's thread has ended".to_owned())??;
        HAS_DRIVE.store(true, Ordering::Relaxed);
        Ok(Address { at, nqn, host_nqn })
    }
}
