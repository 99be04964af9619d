//! A server on a loopback socket, on a thread of its own, with a namespace in memory or a drive behind it.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use kvdrive_lab::config::Document;
use kvdrive_lab::wall::served;
use kvdrive_link::shared::ServerConfig;
use kvdrive_sim::wall::Pace;
use kvdrive_target::drive;
use kvdrive_target::subsystem::{Options, Served, Subsystem};
use kvdrive_target::tcp::Core;
use kvdrive_target::tcp::connection::Limits;
use kvdrive_target::tcp::listener::{Handle, Server, Sockets};

use super::memory::Memory;

/// What stands behind the socket.
#[derive(Clone)]
pub enum Behind {
    Memory,
    /// A drive of the default profile, with these settings.
    Drive(Vec<String>),
}

/// What a server had at its end.
pub struct End {
    pub served: Served,
    /// Data memory that was not given back.
    pub leaked_bytes: usize,
    pub controllers: usize,
}

pub struct Running {
    pub at: SocketAddr,
    pub nqn: String,
    stop: Handle,
    thread: JoinHandle<End>,
}

/// Serves until it is stopped.
pub fn serve(behind: Behind, options: Options, memory_bytes: usize) -> Running {
    let nqn = options.nqn.clone();
    let (started, outcome) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut sockets = Sockets::new().unwrap();
        let at = sockets.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut subsystem = Subsystem::new(options).unwrap();
        let mut thread = None;
        match behind {
            Behind::Memory => subsystem.attach(1, Memory::default().namespace()),
            Behind::Drive(settings) => {
                let mut document = Document::profile("cosmos-plus").unwrap();
                settings.iter().for_each(|setting| document.set(setting).unwrap());
                let config = ServerConfig { pace: Pace::Off, recorder: None };
                let limit_bytes = subsystem.options().transfer_max_bytes;
                let build = served(document.config().unwrap(), None);
                let (namespace, drive) =
                    drive::power_on(config, sockets.bell().clone(), limit_bytes, build).unwrap();
                subsystem.attach(1, Box::new(namespace));
                thread = Some(drive);
            }
        }
        let limits = Limits { data_max_bytes: 16 << 10, ..Limits::default() };
        let server = Server::new(sockets, Core::new(subsystem, memory_bytes), limits);
        started.send((at, server.handle())).unwrap();
        let core = server.run(false).unwrap();
        let end = End {
            served: core.subsystem.served().clone(),
            leaked_bytes: core.used_bytes(),
            controllers: core.subsystem.controllers(),
        };
        drop(core);
        if let Some(drive) = thread {
            drive.join();
        }
        end
    });
    let (at, stop) = outcome.recv().expect("the server has started");
    Running { at, nqn, stop, thread }
}

impl Running {
    /// Stops it and returns what it had.
    pub fn end(self) -> End {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}
