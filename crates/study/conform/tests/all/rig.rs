//! Small drives: in this process, and served on a loopback socket.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use kvdrive_config::{Config, Document};
use kvdrive_conform::report::{Report, Verdict};
use kvdrive_conform::target::Target;
use kvdrive_conform::tcp::Tcp;
use kvdrive_conform::{Wanted, check};
use kvdrive_link::shared::ServerConfig;
use kvdrive_probe::storm::SMALL;
use kvdrive_run::wall::connected::Remote;
use kvdrive_run::wall::served;
use kvdrive_sim::wall::Pace;
use kvdrive_subsystem::drive::power_on_beside;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Options, Subsystem};
use kvdrive_subsystem::tcp::connection::Limits;
use kvdrive_subsystem::tcp::listener::{Server, ServerHandle, Sockets};

/// A small drive of this engine, with these settings.
pub fn config(engine: &str, settings: &[&str]) -> Config {
    let mut document = Document::profile("cosmos-plus").unwrap();
    document.set(&format!("engine.name={engine}")).unwrap();
    for setting in SMALL.iter().chain(&["flash.blocks_per_die=64"]) {
        let mut smaller = document.clone();
        if smaller.set(setting).is_ok() && smaller.config().is_ok() {
            document = smaller;
        }
    }
    settings.iter().for_each(|setting| document.set(setting).unwrap());
    document.config().unwrap()
}

/// A drive that is served on a loopback socket.
pub struct Served {
    pub at: SocketAddr,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Served {
    pub fn new(config: Config, options: Options) -> Served {
        let (started, outcome) = mpsc::channel();
        let run = move || {
            let mut sockets = Sockets::new().unwrap();
            let at = sockets.listen(([127, 0, 0, 1], 0).into()).unwrap();
            let subsystem = Subsystem::new(options).unwrap();
            let (bell, most) = (sockets.bell().clone(), subsystem.options().transfer_max_bytes);
            let mut core = Core::new(subsystem, 64 << 20);
            let server = ServerConfig { pace: Pace::Jump, recorder: None };
            let (namespace, serving, drive) =
                power_on_beside(server, bell, most, served(config, None)).unwrap();
            core.drive = Some(drive);
            core.subsystem.attach(1, Box::new(namespace));
            let server = Server::new(sockets, core, Limits::default());
            started.send((at, server.handle())).unwrap();
            server.run(false).unwrap();
            drop(serving);
        };
        let thread = Some(thread::spawn(run));
        let (at, handle) = outcome.recv().unwrap();
        Served { at, handle, thread }
    }

    pub fn target(&self) -> Tcp {
        Tcp::connect(Remote { address: self.at.to_string(), ..Remote::default() }).unwrap()
    }
}

/// Checks a target; a failure prints its lines.
pub fn checked(target: &mut dyn Target, wanted: &Wanted) -> Report {
    check(target, wanted, &mut |judged| {
        if judged.verdict == Verdict::Fail {
            println!("{}", judged.text());
        }
    })
    .unwrap()
}
