//! A server on a loopback socket, on a thread of its own, with a namespace in memory or a drive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use kvdrive_auth::tls::Known;
use kvdrive_config::{Config, Document};
use kvdrive_flash::power::Survivors;
use kvdrive_link::shared::{Control, DriveLoop, ServerConfig, Serving};
use kvdrive_nvme::identify::CSI_NVM;
use kvdrive_run::wall::{ServedDrive, served};
use kvdrive_sim::wall::{Bell, Pace};
use kvdrive_subsystem::drive::{self, Commands};
use kvdrive_subsystem::log::Log;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Options, Served, Subsystem};
use kvdrive_subsystem::tcp::connection::Limits;
use kvdrive_subsystem::tcp::listener::{Server, ServerHandle, Sockets};

use crate::memory::Memory;

/// The namespace of the served subsystem.
#[derive(Clone)]
pub enum Backend {
    Memory,
    /// A drive of the default profile, with these settings, on a thread of its own.
    Drive(Vec<String>),
    /// The same in the server's loop.
    Beside(Vec<String>),
    /// Namespaces of these identifiers, each with pairs of its own.
    Memories(Vec<u32>),
    /// The same, each a drive: the first in the server's loop, the others on threads of their own.
    Drives(Vec<u32>),
    /// A small drive of blocks on a thread of its own, empty or from the survivors of a power cut.
    Blocks(Option<Survivors>),
}

/// A drive of 384 MiB of blocks.
fn config_of_blocks() -> Config {
    let mut document = Document::profile("saker-mid").unwrap();
    document.serve_hosts();
    for setting in ["engine.name=block", "flash.capacity=384MiB", "media.kind=ram"] {
        document.set(setting).unwrap();
    }
    document.config().unwrap()
}

/// What builds the drive of these settings.
fn config(settings: &[String]) -> Config {
    let mut document = Document::profile("cosmos-plus").unwrap();
    settings.iter().for_each(|setting| document.set(setting).unwrap());
    document.config().unwrap()
}

/// A server's state at its end.
pub struct End {
    pub served: Served,
    /// Commands whose latency was recorded, by opcode.
    pub timed: BTreeMap<u16, u64>,
    /// Data memory that was not given back, bytes.
    pub leaked_bytes: usize,
    pub controllers: usize,
    /// Of a drive whose power was cut: what it can be powered on from.
    pub survivors: Option<Survivors>,
}

pub struct Running {
    pub at: SocketAddr,
    pub nqn: String,
    /// The lines of its log so far.
    pub log: Arc<Mutex<Vec<String>>>,
    /// The control channel of a drive.
    pub control: Option<Control<kvdrive_run::wall::Running>>,
    stop: ServerHandle,
    thread: JoinHandle<End>,
}

/// Serves until it is stopped.
pub fn serve(behind: Backend, options: Options, memory_bytes: usize) -> Running {
    serve_with(behind, options, memory_bytes, None)
}

/// The same; with PSKs, to hosts that speak TLS.
pub fn serve_with(behind: Backend, options: Options, memory_bytes: usize, psks: Option<Known>) -> Running {
    serve_at(behind, options, memory_bytes, psks, Vec::new())
}

/// Drives that stand behind a subsystem.
#[derive(Default)]
struct Attached {
    /// The one whose control is handed out.
    serving: Option<ServedBySubsystem>,
    /// The loop of a drive that runs on the server's thread.
    beside: Option<DriveLoop>,
    others: Vec<ServedBySubsystem>,
}

type ServedBySubsystem = Serving<kvdrive_run::wall::Running, ServedDrive>;

fn attach(behind: Backend, subsystem: &mut Subsystem, bell: Arc<Bell>) -> Attached {
    let limit_bytes = subsystem.options().transfer_max_bytes;
    let server_config = ServerConfig { pace: Pace::Off, recorder: None };
    let mut attached = Attached::default();
    match behind {
        Backend::Memory => subsystem.attach(1, Memory::default().namespace()),
        Backend::Drive(settings) => {
            let build = served(config(&settings), None);
            let (namespace, drive) = drive::power_on(server_config, bell, limit_bytes, build).unwrap();
            subsystem.attach(1, Box::new(namespace));
            attached.serving = Some(drive);
        }
        Backend::Beside(settings) => {
            let build = served(config(&settings), None);
            let (namespace, drive, its_loop) =
                drive::power_on_beside(server_config, bell, limit_bytes, build).unwrap();
            subsystem.attach(1, Box::new(namespace));
            (attached.serving, attached.beside) = (Some(drive), Some(its_loop));
        }
        Backend::Blocks(survivors) => {
            let commands = Commands { transfer_max_bytes: limit_bytes, command_set: CSI_NVM };
            let build = served(config_of_blocks(), survivors);
            let (namespace, drive) = drive::power_on(server_config, bell, commands, build).unwrap();
            subsystem.attach(1, Box::new(namespace));
            attached.serving = Some(drive);
        }
        Backend::Memories(ids) => {
            ids.iter().for_each(|nsid| subsystem.attach(*nsid, Memory::default().namespace()));
        }
        Backend::Drives(ids) => {
            for (index, nsid) in ids.into_iter().enumerate() {
                let server_config = ServerConfig { pace: Pace::Off, recorder: None };
                let (bell, build) = (bell.clone(), served(config(&[]), None));
                if index == 0 {
                    let (namespace, drive, its_loop) =
                        drive::power_on_beside(server_config, bell, limit_bytes, build).unwrap();
                    subsystem.attach(nsid, Box::new(namespace));
                    (attached.serving, attached.beside) = (Some(drive), Some(its_loop));
                } else {
                    let (namespace, drive) =
                        drive::power_on(server_config, bell, limit_bytes, build).unwrap();
                    subsystem.attach(nsid, Box::new(namespace));
                    attached.others.push(drive);
                }
            }
        }
    }
    attached
}

/// The same; with a PCI function at each of these paths.
pub fn serve_at(
    behind: Backend,
    options: Options,
    memory_bytes: usize,
    psks: Option<Known>,
    functions: Vec<PathBuf>,
) -> Running {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = log.clone();
    let nqn = options.nqn.clone();
    let (started, outcome) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut sockets = Sockets::new().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let at = match psks {
            Some(psks) => sockets.listen_with_tls(any, psks).unwrap(),
            None => sockets.listen(any).unwrap(),
        };
        functions.iter().for_each(|path| sockets.listen_vfio_user(path).unwrap());
        let mut subsystem = Subsystem::new(options).unwrap();
        let bell = sockets.bell().clone();
        let Attached { serving, beside, others } = attach(behind, &mut subsystem, bell);
        let limits = Limits { data_max_bytes: 16 << 10, ..Limits::default() };
        let mut core = Core::new(subsystem, memory_bytes);
        core.drive = beside;
        core.log = Log::new(move |line| lines.lock().unwrap().push(line.to_owned()));
        let server = Server::new(sockets, core, limits);
        let control = serving.as_ref().map(|serving| serving.control().clone());
        started.send((at, server.handle(), control)).unwrap();
        let core = server.run(false).unwrap();
        let mut end = End {
            served: core.subsystem.served().clone(),
            timed: core.latencies.iter().map(|(place, latency)| (*place, latency.count())).collect(),
            leaked_bytes: core.used_bytes(),
            controllers: core.subsystem.controllers(),
            survivors: None,
        };
        drop(core);
        for drive in serving.into_iter().chain(others) {
            end.survivors = end.survivors.or(drive.join().take_survivors());
        }
        end
    });
    let (at, stop, control) = outcome.recv().expect("the server has started");
    Running { at, nqn, log, control, stop, thread }
}

impl Running {
    /// Controllers and connections of hosts now.
    pub fn left(&self) -> (usize, usize) {
        self.stop.ask(|core| (core.subsystem.controllers(), core.connections)).unwrap()
    }

    /// Stops the server; returns its state.
    pub fn end(self) -> End {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}
