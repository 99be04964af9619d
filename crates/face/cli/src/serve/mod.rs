//! `kvdrive serve`: a drive that hosts reach over NVMe/TCP and as a PCI function, and that others on this machine look at and make fail.
//!
//! | file | what |
//! |---|---|
//! | [`station`] | the drive and its server, for other threads; its power |
//! | [`control`] | the control socket: requests and answers |
//! | [`descriptors`] | how many connections hosts may have, so that page and control socket stay reachable |
//! | [`http`] | the page, and what is on it for machines |
//! | [`metrics`] | for Prometheus |
//! | [`namespaces`] | which drives there are, by options, files or a variable |
//! | [`s3`] | objects by S3 |
//! | [`seen`] | what there is to see |
//! | [`site`] | the names by which the page may be asked for |

pub mod control;
mod descriptors;
#[cfg(feature = "page")]
mod http;
#[cfg(feature = "page")]
mod metrics;
mod namespaces;
mod s3;
pub mod seen;
#[cfg(feature = "page")]
mod site;
mod station;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kvdrive_auth::tls::{self, Known};
use kvdrive_config::{COUNTS_LIVE_BYTES, Config, Document};
use kvdrive_declare::Counters;
use kvdrive_link::recording::Recorder;
use kvdrive_run::memory;
use kvdrive_run::report::Report;
use kvdrive_run::wall::{ServedDrive, open_recorder};
use kvdrive_sim::wall::Pace;
use kvdrive_subsystem::log::Log;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Options, Served, Subsystem, nqn_of};
use kvdrive_subsystem::tcp::connection::{LeastRate, Limits};
use kvdrive_subsystem::tcp::listener::{Server, ServerHandle, Sockets};
use kvdrive_subsystem::vfio::faults;
use kvdrive_text::scaled::bytes;
use kvdrive_text::{grouped, number_of};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use station::{PowerSupply, Station, StationParts, Stations};

use crate::nqn::name;
use crate::settings::{Settings, size, tell_capacity};
use crate::verdict::verdict;
use crate::{output, secret};

/// The namespace of the first drive; the others follow.
pub const FIRST: u32 = 1;
/// Least that one command may move, bytes.
const TRANSFER_MIN_BYTES: u32 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PaceName {
    Model,
    Off,
}

/// Between two looks whether the files of drives take writes.
const FILES_LOOK: Duration = Duration::from_secs(1);

/// Reads the address of the page.
#[cfg(feature = "page")]
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "allowed: an address and a port, as 127.0.0.1:8080, or port 0 for a free one".to_owned())
}

/// Options of `serve`.
#[derive(Args)]
pub struct Serve {
    #[command(flatten)]
    settings: Settings,
    /// Address to listen on, as `tcp://127.0.0.1:4420` or `tcp://[::1]:4420`; port 0: a free port; may be repeated
    #[arg(long, value_name = "tcp://ADDRESS:PORT", default_value = "tcp://127.0.0.1:4420")]
    listen: Vec<String>,
    /// A vfio-user socket, as DIR/cntrl: the drive as a PCI function of a virtual machine, or of another program; only
    /// this user can open it; may be repeated
    #[arg(long, value_name = "PATH")]
    vfio_user: Vec<PathBuf>,
    /// `model` paces the drive by its model times; with `off` it runs as fast as the machine can, and model time passes
    /// from event to event
    #[arg(long, value_name = "model|off", default_value = "model")]
    pace: PaceName,
    /// Name of the subsystem [default: one made from this machine's and the first address]
    #[arg(long, value_name = "NQN", value_parser = name)]
    nqn: Option<String>,
    /// Name of a host that may connect; with it the secret by which the host has to authenticate (DH-HMAC-CHAP;
    /// `DHHC-1:...`, or a file that contains it), the secret of the subsystem if the host asks for it, and the PSK of
    /// TLS (`NVMeTLSkey-1:...`, or a file); may be repeated [default: any host, on addresses that only this machine
    /// reaches]
    #[arg(long, value_name = "NQN[=SECRET|PSK|@FILE[,...]]")]
    host: Vec<String>,
    /// Weakest hash by which a --host may authenticate
    #[arg(long, value_name = "sha256|sha384|sha512", default_value = "sha256", hide_possible_values = true)]
    dhchap_min_hash: secret::HashName,
    /// Weakest key agreement with which a --host may authenticate; none: the secret is enough
    #[arg(
        long,
        value_name = "none|ffdhe2048|...|ffdhe8192",
        default_value = "none",
        hide_possible_values = true
    )]
    dhchap_min_group: secret::GroupName,
    /// Requires TLS 1.3 of every connection, with the PSK of a --host; `kvdrive secret psk` makes one
    #[arg(long, requires = "host")]
    tls: bool,
    /// How TLS keys are derived from PSKs: as specified, or as by older versions of libnvme (nvme-cli: --compat)
    #[arg(
        long,
        value_name = "rfc8446|libnvme",
        default_value = "rfc8446",
        hide_possible_values = true,
        requires = "tls"
    )]
    psk_derivation: secret::PskDerivation,
    /// Lets any host connect, on any address
    #[arg(long, conflicts_with = "host")]
    allow_any_host: bool,
    /// Lets hosts erase a namespace by Format NVM; without it only `kvdrive ctl format` does
    #[arg(long)]
    allow_format: bool,
    /// One more namespace (2, 3, ...): a separate drive on a thread of its own, with the default profile and the keys
    /// of this TOML file; may be repeated. The variable KVDRIVE_NAMESPACES lists all of them instead, as
    /// kv:mem,kv:FILE
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    namespace: Vec<PathBuf>,
    /// Threads for connections: with 0, the thread of the drive serves them between its events; with 1, they have a
    /// thread of their own
    #[arg(long, value_name = "0|1", default_value = "0", value_parser = clap::value_parser!(u32).range(0..=1))]
    reactors: u32,
    /// The thread that serves connections and doorbells never sleeps: a command waits for no wake-up, and a core is busy at
    /// all times, also while no host is connected. For a machine that has a core to spare for it besides those of the hosts
    /// on it; elsewhere everything is slower
    #[arg(long, conflicts_with = "reactors")]
    poll: bool,
    /// Most entries of an I/O queue
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(2..=32768))]
    queue_entries: u32,
    /// Most data in the capsule of an I/O command, bytes, in steps of 16; with 0, the drive requests the data of every
    /// store (R2T)
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = size_of_capsule)]
    in_capsule: u32,
    /// Memory for data in flight, as 64MiB, or a number of MiB. Half of it is cut into reserves, one for each host (at
    /// most half of them for hosts of one address that do not authenticate); the other half goes in equal parts to the
    /// hosts that want more
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size_of_memory)]
    memory: usize,
    /// Least rate, in bytes a second over 30 s, at which a host must continue a transfer that it has begun: requested
    /// data, a PDU, or reading its answers; a slower host is disconnected. With 0, a byte in 30 s is enough. While a host
    /// with less memory waits for some, 5 s count
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = size)]
    least_rate: u64,
    /// The socket for `kvdrive ctl` [default: kvdrive.sock in the user's runtime folder]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Address of the web page and the metrics; port 0: a free port
    #[cfg(feature = "page")]
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = socket_address)]
    http: SocketAddr,
    /// A name of this machine or of a proxy, by which browsers may ask for the page, besides addresses and localhost;
    /// may be repeated
    #[cfg(feature = "page")]
    #[arg(long, value_name = "NAME", value_parser = site::site_name)]
    http_name: Vec<String>,
    #[command(flatten)]
    s3: s3::S3,
    /// Ends when the last host has disconnected
    #[arg(long)]
    once: bool,
    /// Records everything that arrives at the drive, for `replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Writes the report as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Serve {
    /// Serves until a signal, and prints the report.
    pub fn run(&self) -> anyhow::Result<()> {
        let (documents, sizes) = self.documents()?;
        output::check_json(self.json.as_ref())?;
        self.s3.check(!self.host.is_empty())?;
        let configs = documents.iter().map(Document::config).collect::<Result<Vec<_>, _>>()?;
        let addresses = self.listen.iter().map(|text| address(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let subsystem = Subsystem::new(self.options(&configs, &addresses)?)?;
        let nqn = subsystem.options().nqn.clone();

        let (sockets, bound) = self.sockets(addresses, self.psks(subsystem.options())?)?;
        let pace = match self.pace {
            PaceName::Model => Pace::Model,
            // Commands of different hosts interleave only where model time passes, so the clock is not held.
            PaceName::Off => Pace::Jump,
        };
        let transfer_max_bytes = subsystem.options().transfer_max_bytes;
        let (recorder, started) = open_recorder(&documents[0], self.record.as_deref())?;
        recorder.iter().for_each(tell_of_recording);
        let bell = sockets.bell().clone();
        let mut core = Core::new(subsystem, self.memory);
        core.log = Log::new(|line| output::tell(&format!("kvdrive: {line}")));
        let (mut recorder, mut drives) = (recorder, Vec::new());
        for (nsid, config) in (FIRST..).zip(configs) {
            let (bell, own_thread) = (bell.clone(), self.reactors > 0 || nsid > FIRST);
            let supply = PowerSupply { config, pace, bell, transfer_max_bytes, own_thread, nsid };
            let (namespace, serving) = supply
                .power_on(&mut core, recorder.take(), None)
                .map_err(|error| anyhow::anyhow!("namespace {nsid}: {error}"))?;
            core.subsystem.attach(nsid, Box::new(namespace));
            drives.push((supply, serving));
        }
        started.store(true, Ordering::Release);
        let least = LeastRate { bytes_per_s: self.least_rate, ..LeastRate::default() };
        let limits = Limits { connections_max: descriptors::for_connections(), least, ..Limits::default() };
        let server = Server::new(sockets, core, limits).only_polling(self.poll);
        end_by_signal(server.handle())?;
        let at_paths = self.vfio_user.iter().map(|path| format!("vfio-user:{}", path.display()));
        let listening = bound.iter().map(|at| format!("tcp://{at}")).chain(at_paths).collect::<Vec<_>>();
        let path = self.control.clone().unwrap_or_else(control::free_path);
        let station = |(supply, serving)| {
            let (nqn, listening, control) = (nqn.clone(), listening.clone(), path.clone());
            Arc::new(Station::new(StationParts {
                nqn,
                listening,
                control,
                supply,
                server: server.handle(),
                serving,
            }))
        };
        let stations: Stations = drives.into_iter().map(station).collect();
        let socket = control::listen(&path, stations.clone())?;
        tell_of_files(stations.clone())?;
        #[cfg(feature = "page")]
        let page = Some(http::listen(self.http, site::SiteNames::new(&self.http_name), stations.clone())?);
        #[cfg(not(feature = "page"))]
        let page: Option<SocketAddr> = None;
        page.iter().for_each(warn_of_page);
        let objects = self.s3.listen(bound[0], &nqn, stations.len())?;
        sizes.iter().for_each(|line| output::tell(&format!("kvdrive: {line}")));
        let doors = (page, objects);
        announce(&nqn, &bound, self.tls, &self.vfio_user, &path, doors, stations.len());

        let core = server.run(self.once)?;
        let counts = core.subsystem.served().clone();
        drop((core, socket));
        let failure = self.conclude(&stations, &documents, &counts)?;
        failure.map_or(Ok(()), |failure| Err(verdict(failure)))
    }

    /// The configuration of each drive, in the order of their namespaces; and a line for each whose size was chosen here.
    fn documents(&self) -> anyhow::Result<(Vec<Document>, Vec<String>)> {
        let listed = std::env::var_os(namespaces::VARIABLE).map(|value| value.to_string_lossy().into_owned());
        let mut options = self.settings.options()?;
        if let PaceName::Off = self.pace {
            options.set_default(COUNTS_LIVE_BYTES);
        }
        let mut documents = namespaces::documents(options, &self.namespace, listed.as_deref())?;
        anyhow::ensure!(
            self.record.is_none() || documents.len() == 1,
            "--record: a recording is of one drive; {} lists {}",
            namespaces::VARIABLE,
            documents.len()
        );
        tell_capacity(&documents);
        let sizes = memory::fit(documents.iter_mut(), "--capacity, or --media file")?;
        Ok((documents, sizes))
    }

    /// The sockets, and the addresses that they have.
    fn sockets(
        &self,
        addresses: Vec<SocketAddr>,
        psks: Option<Known>,
    ) -> anyhow::Result<(Sockets, Vec<SocketAddr>)> {
        let (mut sockets, mut bound) = (Sockets::new()?, Vec::new());
        for at in addresses {
            let listening = match &psks {
                Some(psks) => sockets.listen_with_tls(at, psks.clone()),
                None => sockets.listen(at),
            };
            bound.push(listening.with_context(|| format!("--listen tcp://{at}"))?);
        }
        if !self.vfio_user.is_empty() {
            faults::handle().context("faults of clients' memory")?;
        }
        for path in &self.vfio_user {
            let listening = sockets.listen_vfio_user(path);
            listening.with_context(|| format!("--vfio-user {}", path.display()))?;
        }
        Ok((sockets, bound))
    }

    /// Ends the drives, and prints or writes their reports. Returns why a file of one cannot be written, if so.
    fn conclude(
        &self,
        stations: &Stations,
        documents: &[Document],
        counts: &Served,
    ) -> anyhow::Result<Option<String>> {
        let (mut reports, mut failures) = (Vec::new(), Vec::new());
        for (station, document) in stations.iter().zip(documents) {
            let seconds = station.seconds();
            let (drive, lives) = station.end();
            let is_asked = document.config()?.media.read_only;
            let failure = drive.as_ref().and_then(ServedDrive::write_failure);
            let of_file = failure.filter(|failure| failure.path.is_some() && !is_asked);
            failures.extend(of_file.map(|failure| format!("namespace {}: {failure}", station.nsid())));
            failures.extend(drive.as_ref().and_then(ServedDrive::record_failure));
            let report = drive.map(|drive| drive.into_report(document, seconds)).transpose()?;
            report.iter().for_each(|report| output::tell_unmatched(&report.faults));
            reports.push((station.nsid(), report, lives));
        }
        if self.json.as_deref() != Some("-") {
            print_reports(&reports);
            output::print(&summary(counts));
        }
        let failure = failures.into_iter().next();
        let Some(path) = &self.json else { return Ok(failure) };
        let reports: Vec<_> = reports.into_iter().filter_map(|(_, report, _)| report).collect();
        match &reports[..] {
            [] => {}
            [report] if documents.len() == 1 => output::write_json(path, report)?,
            _ => output::write_json(path, &reports)?,
        }
        Ok(failure)
    }

    /// The PSKs with which hosts may connect; `None`: without TLS.
    fn psks(&self, options: &Options) -> anyhow::Result<Option<Known>> {
        let mut hosts = options.hosts.iter().flatten();
        if self.tls {
            tls::is_built_in().context("--tls")?;
            let psks = options.psks(self.psk_derivation.into());
            anyhow::ensure!(!psks.is_empty(), "--tls: no --host has a PSK; `kvdrive secret psk` makes one");
            return Ok(Some(psks.into()));
        }
        let with_psk = hosts.find(|host| host.psk.is_some());
        with_psk.map_or(Ok(None), |host| anyhow::bail!("--host {}: its PSK is for TLS; give --tls", host.nqn))
    }

    fn options(&self, configs: &[Config], addresses: &[SocketAddr]) -> anyhow::Result<Options> {
        let only_here = addresses.iter().all(|at| at.ip().is_loopback());
        anyhow::ensure!(
            only_here || self.allow_any_host || !self.host.is_empty(),
            "--listen: other machines can reach that address; name the hosts that may connect with --host NQN, or give \
             --allow-any-host"
        );
        let hosts = self.host.iter().map(|text| secret::host(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let largest =
            configs.iter().map(|config| config.controller.max_value_bytes).fold(TRANSFER_MIN_BYTES, u32::max);
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let nqn =
            self.nqn.clone().unwrap_or_else(|| nqn_of(&format!("{} {:?}", machine.trim(), self.listen)));
        Ok(Options {
            nqn,
            transfer_max_bytes: largest.checked_next_power_of_two().unwrap_or(1 << 31),
            in_capsule_bytes: self.in_capsule,
            queue_entries_max: self.queue_entries,
            hosts: (!hosts.is_empty()).then_some(hosts),
            allow_format: self.allow_format,
            hash_min: self.dhchap_min_hash.into(),
            group_min: self.dhchap_min_group.into(),
            ..Options::default()
        })
    }
}

fn size_of_capsule(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| "allowed: at most 8KiB".to_owned())
}

/// Reads a size of memory, bytes. A bare number is of MiB.
fn size_of_memory(text: &str) -> Result<usize, String> {
    let is_bare = text.trim().ends_with(|last: char| last.is_ascii_digit());
    let bytes = if is_bare { size(&format!("{}MiB", text.trim())) } else { size(text) };
    let bytes = bytes.ok().and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "allowed: a size above 0, as 64MiB".to_owned())
}

/// The address in `tcp://ADDRESS:PORT`.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let wrong = || format!("--listen: {text:?}; allowed: tcp://ADDRESS:PORT, as tcp://127.0.0.1:4420");
    let rest = text.strip_prefix("tcp://").with_context(wrong)?;
    rest.to_socket_addrs().with_context(wrong)?.next().with_context(wrong)
}

/// SIGTERM, SIGINT and SIGHUP: commands under way are finished; a second one ends at once.
fn end_by_signal(server: ServerHandle) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    // Under `nohup` the end of the terminal does not concern the server.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            server.stop();
        }
    })?;
    Ok(())
}

/// Says it when a recording takes no write.
fn tell_of_recording(recorder: &Recorder) {
    recorder
        .on_failure(|error| output::tell(&format!("kvdrive: --record {error}; the rest is not recorded")));
}

/// Says it when a drive turns read-only because a file of it takes no write.
fn tell_of_files(stations: Stations) -> anyhow::Result<()> {
    thread::Builder::new().name("files".into()).spawn(move || {
        let mut well: Vec<_> = stations.iter().collect();
        while !well.is_empty() {
            thread::sleep(FILES_LOOK);
            well.retain(|station| {
                let failure = station.write_failure();
                let tell =
                    |failure| output::tell(&format!("kvdrive: namespace {}: {failure}", station.nsid()));
                failure.map(tell).is_none()
            });
        }
    })?;
    Ok(())
}

/// Does this program ignore the signal, as its parent has asked for? Unknown where the system does not tell.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The report of each drive, under the number of its namespace if there are several.
fn print_reports(reports: &[(u32, Option<Report>, u32)]) {
    for (nsid, report, lives) in reports {
        if reports.len() > 1 {
            output::print(&format!("namespace {nsid}"));
        }
        report.iter().for_each(|report| output::print(&report.in_columns(output::columns())));
        if *lives > 1 {
            output::print(&format!("the drive was powered on {lives} times; the report is of the last"));
        }
    }
}

/// Warns of a page that other machines reach.
fn warn_of_page(page: &SocketAddr) {
    if !page.ip().is_loopback() {
        output::tell(&format!(
            "kvdrive: warning: --http {page}: other machines can read the page and the metrics, which contain names of \
             hosts; no password protects them"
        ));
    }
}

/// Prints what a user or a script needs to connect; the last line says that the server is ready. `page` is where the
/// page is, in a build that has one, and `objects` where S3 is, if it was asked for.
fn announce(
    nqn: &str,
    bound: &[SocketAddr],
    tls: bool,
    functions: &[PathBuf],
    control: &Path,
    (page, objects): (Option<SocketAddr>, Option<SocketAddr>),
    namespaces: usize,
) {
    let mut text = format!("subsystem  {nqn}\n");
    for at in bound {
        text += &format!("listening  tcp://{at}\n");
        let host = if at.ip().is_unspecified() { "ADDRESS".to_owned() } else { at.ip().to_string() };
        text += &format!(
            "           nvme connect -t tcp -a {host} -s {} -n {nqn}{}\n",
            at.port(),
            if tls { " --tls" } else { "" }
        );
    }
    for path in functions {
        text += &function(path);
    }
    text += &format!("control    {}\n           kvdrive ctl --control {0} status\n", control.display());
    if let Some(page) = page {
        text += &format!("page       http://{page}/\nmetrics    http://{page}/metrics\n");
    }
    if let Some(objects) = objects {
        text += &format!("objects    http://{objects}/ (S3)\n");
    }
    for nsid in 2..=namespaces {
        let page = page.map_or_else(String::new, |page| format!("http://{page}/{nsid}/, "));
        text += &format!("namespace  {nsid}: {page}kvdrive ctl --nsid {nsid} status\n");
    }
    output::print(&(text + "ready"));
}

/// A vfio-user socket, and the argument with which QEMU gives the drive to a virtual machine.
fn function(path: &Path) -> String {
    format!(
        "function   {0}\n           qemu-system-x86_64 ... -device \
         '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{0}\"}}}}'\n",
        path.display()
    )
}

/// A summary of the commands of hosts (counted).
fn summary(served: &Served) -> String {
    let mut text = format!(
        "served: {}, {}, {}; {} timed out\n",
        number_of(served.controllers, "controller"),
        number_of(served.queues, "queue"),
        number_of(served.admin_commands, "admin command"),
        number_of(served.expired, "host")
    );
    if served.authentication_failures > 0 {
        text += &format!(
            "  {} ended because the host did not authenticate\n",
            number_of(served.authentication_failures, "queue")
        );
    }
    for (name, count) in served.counts().labels("io_commands").filter(|(_, count)| *count > 0) {
        text += &format!("  {name:<12} {}\n", grouped(count));
    }
    text += &format!(
        "  {} found nothing, {} failed; {} received, {} sent\n",
        number_of(served.io_misses, "I/O command"),
        grouped(served.io_errors),
        bytes(served.written_bytes as f64),
        bytes(served.read_bytes as f64)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_bare_ones_of_memory_are_mib() {
        assert_eq!((size_of_capsule("8192"), size_of_capsule("8KiB")), (Ok(8192), Ok(8192)));
        assert_eq!([" 64", "64MiB", "65536KiB"].map(size_of_memory), [const { Ok(64 << 20) }; 3]);
        assert_eq!(size("4KiB"), Ok(4096));
        for wrong in ["0", "0MiB", "64M", "-1", "9999999999999GiB", ""] {
            assert!(size_of_memory(wrong).unwrap_err().contains("64MiB"), "{wrong}");
        }
        assert!(size_of_capsule("8GiB").is_err() && size("8k").is_err());
    }

    #[test]
    fn the_argument_for_qemu_is_json_without_blanks() {
        let text = function(Path::new("/run/cntrl"));
        let argument = text.split('\'').nth(1).unwrap();
        assert!(!argument.contains(' '), "{argument}");
        let device: serde_json::Value = serde_json::from_str(argument).unwrap();
        assert_eq!(device["socket"]["path"], "/run/cntrl");
    }

    #[test]
    fn an_address_is_tcp_and_a_wrong_one_says_what_is_allowed() {
        assert_eq!(address("tcp://127.0.0.1:4420").unwrap(), "127.0.0.1:4420".parse().unwrap());
        assert_eq!(address("tcp://[::1]:0").unwrap(), "[::1]:0".parse().unwrap());
        for wrong in ["127.0.0.1:4420", "rdma://127.0.0.1:4420", "tcp://127.0.0.1", "tcp://", ""] {
            let error = address(wrong).unwrap_err().to_string();
            assert!(error.contains("allowed: tcp://ADDRESS:PORT"), "{wrong}: {error}");
        }
    }
}
