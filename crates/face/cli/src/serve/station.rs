//! A drive that is served, for threads that look at it or change it: whether it has power, and how to reach it
//! and its server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use kvdrive_config::Config;
use kvdrive_declare::{Counters, Sections};
use kvdrive_flash::faults::{Effect, Rule};
use kvdrive_flash::power::Survivors;
use kvdrive_flash::power::machine_file::WriteFailure;
use kvdrive_link::recording::Recorder;
use kvdrive_link::shared::{Control, ServerConfig, Serving};
use kvdrive_nvme::identify::{CSI_KV, CSI_NVM};
use kvdrive_nvme::opcode;
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_run::memory::ProcessMemory;
use kvdrive_run::wall::{Change, Running, ServedDrive, served};
use kvdrive_sim::wall::{Bell, Pace, Stopwatch};
use kvdrive_subsystem::drive::{Commands, DriveNamespace, power_on, power_on_beside};
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::NOT_OVER_NETWORKS;
use kvdrive_subsystem::tcp::listener::ServerHandle;

use super::seen::{DriveLook, HostsLook, Seen, SeenCounts, SeenDrive, SeenFault, SeenHost, ServerCounters};

/// Between two looks whether hosts have seen the power go.
const LOOK: Duration = Duration::from_millis(1);
/// Hosts that are looked at in one turn of the server.
const HOSTS_AT_ONCE: usize = 64;

/// The drives of one server, in the order of their namespaces; at least one.
pub type Stations = Arc<[Arc<Station>]>;

/// Can a rule match a command of a host at all, and strike it at one of the ports of the server?
fn can_match(rule: &Rule, listening: &[String]) -> anyhow::Result<()> {
    let has_sockets = listening.iter().any(|at| at.starts_with("tcp://"));
    anyhow::ensure!(
        has_sockets || rule.effect != Effect::AtDoor(TransportFault::BadDigest),
        "bad-digest never strikes: the server has PCI functions alone, whose answers have no digest"
    );
    let opcodes = &rule.matches.opcodes;
    let never = !opcodes.is_empty() && opcodes.iter().all(|opcode| NOT_OVER_NETWORKS.contains(opcode));
    let names = || opcodes.iter().filter_map(|code| opcode::name(*code)).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!never, "opcode: {} never matches: hosts of a server cannot send it", names());
    Ok(())
}

/// A drive and its thread.
pub type ServingDrive = Serving<Running, ServedDrive>;

/// The drive's lives so far.
struct Lives {
    count: u32,
    /// The drive that has power, or whose power was cut and whose end was not read yet.
    serving: Option<ServingDrive>,
    /// Survivors of a drive in memory whose power was cut, for its next power-on.
    survivors: Option<Survivors>,
}

/// How a drive is powered on, for the first time and again.
#[derive(Clone)]
pub struct PowerSupply {
    /// The drive's configuration.
    pub config: Config,
    /// Its pace.
    pub pace: Pace,
    /// The bell of the server's thread.
    pub bell: Arc<Bell>,
    /// Most bytes that a command moves.
    pub transfer_max_bytes: u32,
    /// Does it run on a thread of its own? Otherwise it runs in the loop of the server, which has room for one drive.
    pub own_thread: bool,
    /// The namespace that it is.
    pub nsid: u32,
}

impl PowerSupply {
    /// Powers the drive on, on the server's thread, and hands it to `core` if it is to run there.
    ///
    /// # Errors
    /// Why it does not start.
    pub fn power_on(
        &self,
        core: &mut Core,
        recorder: Option<Recorder>,
        survivors: Option<Survivors>,
    ) -> Result<(DriveNamespace, ServingDrive), String> {
        let config = ServerConfig { pace: self.pace, recorder };
        let command_set = if self.config.has_blocks() { CSI_NVM } else { CSI_KV };
        let commands = Commands { transfer_max_bytes: self.transfer_max_bytes, command_set };
        let (bell, build) = (self.bell.clone(), served(self.config.clone(), survivors));
        let (mut namespace, serving) = if self.own_thread {
            power_on(config, bell, commands, build).map_err(|error| error.to_string())?
        } else {
            let (namespace, serving, drive) =
                power_on_beside(config, bell, commands, build).map_err(|error| error.to_string())?;
            core.drive = Some(drive);
            (namespace, serving)
        };
        // Without pacing, commands take turns on one thread, even if the firmware would run them side by side.
        if self.pace == Pace::Model {
            namespace.set_side_by_side(self.config.controller.dispatch.side_by_side());
        }
        Ok((namespace, serving))
    }
}

/// See the module.
pub struct Station {
    nqn: String,
    listening: Vec<String>,
    control: PathBuf,
    supply: PowerSupply,
    server: ServerHandle,
    clock: Stopwatch,
    lives: Mutex<Lives>,
}

/// The parts of a [`Station`].
pub struct StationParts {
    /// Name of the subsystem.
    pub nqn: String,
    /// Where it listens.
    pub listening: Vec<String>,
    /// The control socket.
    pub control: PathBuf,
    /// How the drive is powered on again.
    pub supply: PowerSupply,
    /// The server.
    pub server: ServerHandle,
    /// The drive, which has power.
    pub serving: ServingDrive,
}

impl Station {
    /// Of a drive that has just been powered on.
    pub fn new(made: StationParts) -> Station {
        let StationParts { nqn, listening, control, supply, server, serving } = made;
        let lives = Mutex::new(Lives { count: 1, serving: Some(serving), survivors: None });
        let clock = Stopwatch::start();
        Station { nqn, listening, control, supply, server, clock, lives }
    }

    /// The namespace that it is.
    pub fn nsid(&self) -> u32 {
        self.supply.nsid
    }

    /// The server.
    pub fn server(&self) -> &ServerHandle {
        &self.server
    }

    /// Time since the beginning, s.
    pub fn seconds(&self) -> f64 {
        self.clock.seconds()
    }

    fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive, which may have lost its power.
    fn control(&self) -> Option<Control<Running>> {
        self.lives().serving.as_ref().map(|serving| serving.control().clone())
    }

    fn powered(&self) -> anyhow::Result<Control<Running>> {
        self.control().ok_or_else(|| self.off())
    }

    /// The error that the drive has no power, with the command that powers it on.
    fn off(&self) -> anyhow::Error {
        anyhow::anyhow!("the drive has no power; `{} power on` switches it on", self.ctl())
    }

    fn ctl(&self) -> String {
        format!("kvdrive ctl --control {} --nsid {}", self.control.display(), self.nsid())
    }

    /// A snapshot of now.
    pub fn seen(&self) -> anyhow::Result<Seen> {
        let drive = self.control().and_then(|control| control.look(|_, running| DriveLook::of(running)).ok());
        let hosts = self.server.ask(|core| HostsLook::of(core))?;
        let server = ServerCounters {
            has_power: drive.is_some(),
            power_ons: self.lives().count,
            uptime_ns: self.clock.ns(),
            snapshot_ns: hosts.spent_ns() + drive.as_ref().map_or(0, DriveLook::spent_ns),
        };
        let counts = Sections::default()
            .with("server", server.counts())
            .with("process", ProcessMemory::now().counts())
            .with("hosts", hosts.counts());
        Ok(Seen {
            nqn: self.nqn.clone(),
            nsid: self.supply.nsid,
            ctl: self.ctl(),
            pid: std::process::id(),
            listening: self.listening.clone(),
            counts: SeenCounts::Declared(counts),
            latencies: hosts.latencies(),
            drive: drive.map(SeenDrive::from),
        })
    }

    /// I/O commands of hosts so far, and the time since the beginning, ns.
    pub fn io_commands(&self) -> anyhow::Result<(u64, u64)> {
        let commands = self.server.ask(|core| core.subsystem.served().io_commands.iter().sum())?;
        Ok((commands, self.clock.ns()))
    }

    /// The connected hosts.
    pub fn hosts(&self) -> anyhow::Result<Vec<SeenHost>> {
        let (mut hosts, mut from) = (Vec::new(), Some(0));
        // In portions, because reading a thousand hosts in one turn would delay commands.
        while let Some(first) = from {
            let (portion, next) =
                self.server.ask(move |core| core.subsystem.hosts(first, HOSTS_AT_ONCE, core.now_ms))?;
            hosts.extend(portion.into_iter().map(SeenHost::from));
            from = next;
        }
        Ok(hosts)
    }

    /// Adds fault rules; returns their names, a line each, and then what their user should know, in lines that begin with
    /// `note: `.
    ///
    /// # Errors
    /// A rule is none, or can never match here.
    pub fn inject(&self, rules: String) -> anyhow::Result<String> {
        let parsed =
            kvdrive_config::faults::rules("rules", &rules, &self.supply.config.drive().flash.geometry());
        // What is wrong with rules is said by the drive, which also knows those that it has.
        let parsed = parsed.unwrap_or_default();
        parsed.iter().try_for_each(|rule| can_match(rule, &self.listening))?;
        let names = self.change(Change::AddFaults(rules))?;
        let notes = parsed.iter().filter_map(|rule| self.note_on(rule));
        Ok(names + &notes.map(|note| format!("note: {note}\n")).collect::<String>())
    }

    /// What the user of a rule should know about its effect here.
    fn note_on(&self, rule: &Rule) -> Option<String> {
        let seen = match rule.effect {
            Effect::AtDoor(TransportFault::BadDigest) => {
                return Some(format!("{}: a host that asked for no digest notices nothing", rule.name));
            }
            _ if self.supply.pace == Pace::Model => return None,
            Effect::Delay(_) => "hosts see no delay",
            Effect::Lose(_) => "hosts get 07h at once",
            _ => return None,
        };
        Some(format!(
            "{}: the server runs with --pace off, where model time takes no time: {seen}. `inject late` delays answers in \
             wall time, and `inject stall` a whole connection",
            rule.name
        ))
    }

    /// Why its files take no write, if so and if that was not asked for.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        let look = self.control()?.look(|_, running| running.drive().write_failure());
        look.ok().flatten().filter(|failure| failure.path.is_some() && !self.supply.config.media.read_only)
    }

    /// The fault rules there are.
    pub fn faults(&self) -> anyhow::Result<Vec<SeenFault>> {
        let counts = self.powered()?.look(|_, running| running.faults()).map_err(|_| self.off())?;
        Ok(counts.into_iter().map(SeenFault::from).collect())
    }

    /// Takes a fault rule away, or all; returns how many.
    pub fn clear_faults(&self, name: Option<String>) -> anyhow::Result<u64> {
        Ok(self.change(Change::ClearFaults(name))?.parse()?)
    }

    fn change(&self, change: Change) -> anyhow::Result<String> {
        let outcome = self.powered()?.change(change).map_err(|_| self.off())?;
        outcome.map_err(anyhow::Error::msg)
    }

    /// Cuts the power, and returns when hosts have seen the drive vanish. Another caller may power it on meanwhile.
    pub fn cut_power(&self, torn: bool) -> anyhow::Result<()> {
        let (life, control) = {
            let lives = self.lives();
            (lives.count, lives.serving.as_ref().map(|serving| serving.control().clone()))
        };
        // The drive may end before it has answered.
        if let Ok(Err(what)) = control.ok_or_else(|| self.off())?.change(Change::CutPower { torn }) {
            anyhow::bail!(what);
        }
        let nsid = self.supply.nsid;
        let is_gone = move |core: &mut Core| core.subsystem.is_off(nsid) && core.subsystem.is_dark_at(nsid);
        while self.lives().count == life && !self.server.ask(is_gone)? {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Erases the namespace, and returns when that is done.
    pub fn format(&self) -> anyhow::Result<()> {
        let nsid = self.supply.nsid;
        self.server.ask(move |core| core.subsystem.format(nsid))?;
        loop {
            if let Some(status) = self.server.ask(move |core| core.subsystem.take_formatted(nsid))? {
                anyhow::ensure!(status.is_success(), "format: {status}");
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }

    /// Powers on a drive that has lost its power; returns the model time that this took, ns. Events from here on are in
    /// no recording.
    pub fn power_on(&self) -> anyhow::Result<u64> {
        let mut lives = self.lives();
        let nsid = self.supply.nsid;
        anyhow::ensure!(self.server.ask(move |core| core.subsystem.is_off(nsid))?, "the drive has power");
        if let Some(ended) = lives.serving.take() {
            lives.survivors = ended.join().take_survivors();
        }
        let survivors = lives.survivors.clone();
        let supply = self.supply.clone();
        // No host of this namespace is connected. Hosts of others wait while it recovers.
        let serving = self.server.ask(move |core| {
            let (namespace, serving) = supply.power_on(core, None, survivors)?;
            core.subsystem.replace(nsid, Box::new(namespace));
            Ok::<ServingDrive, String>(serving)
        })?;
        let serving = serving.map_err(anyhow::Error::msg)?;
        let recovery_ns =
            serving.control().look(|_, running| running.drive().counts().of("drive.recovery_ns"));
        lives.serving = Some(serving);
        lives.survivors = None;
        lives.count += 1;
        recovery_ns.map_err(|_| self.off())
    }

    /// The last life, when the server has ended (`None` if the drive could not be powered on again), and the
    /// number of lives.
    pub fn end(&self) -> (Option<ServedDrive>, u32) {
        let mut lives = self.lives();
        (lives.serving.take().map(ServingDrive::join), lives.count)
    }
}

#[cfg(test)]
mod tests {
    use kvdrive_config::Document;

    use super::*;

    #[test]
    fn a_rule_that_strikes_at_no_port_of_the_server_is_refused() {
        let rule = |text: &str| {
            let text = format!("[[rule]]\n{text}\n");
            let geometry =
                Document::profile("cosmos-plus").unwrap().config().unwrap().drive().flash.geometry();
            kvdrive_config::faults::rules("rules", &text, &geometry).unwrap().remove(0)
        };
        let at = |text: &str, ports: &[&str]| {
            let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
            can_match(&rule(text), &ports).is_ok()
        };
        let (socket, function) = ("tcp://127.0.0.1:4420", "vfio-user:/tmp/a/cntrl");
        let digest = "fault = \"bad-digest\"";
        assert_eq!(
            [at(digest, &[socket]), at(digest, &[function]), at(digest, &[function, socket])],
            [true, false, true]
        );
        assert!(at("fault = \"drop-connection\"", &[function]), "a function ends as a connection does");
        assert!(!at("fault = \"lose\"\nopcode = \"hybrid\"", &[socket]));
    }
}
