//! The control socket: how `kvdrive ctl` and others on this machine reach a drive that is served.
//!
//! A UNIX socket that only its owner can open. A request is a line of JSON, and so is its answer; a connection
//! may have any number of them:
//!
//! ```text
//!   {"do":"inject","rules":"[[rule]]\nfault = \"read-error\"\n"}   ─►
//!   ◄─  {"ok":"read-error 1\n"}      or  {"error":"rules:2:9: fault: no \"red-error\"; there are ..."}
//! ```
//!
//! A request may name a drive by `nsid`; without it, the first drive is meant.
//!
//! It runs on threads of its own; the server or the drive runs its requests between two turns, or two
//! events.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use kvdrive_subsystem::private;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::station::{Station, Stations};

/// A longer request is none.
const REQUEST_MAX_BYTES: u64 = 1 << 20;

/// Time after which the server tries again to accept a connection when that has failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// A request to a served drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What it does: [`super::seen::Seen`].
    Status,
    /// Connected hosts: a list of [`super::seen::SeenHost`].
    Hosts,
    /// Fault rules join those there are; the answer has their names, a line each, and then notes on them, in lines that
    /// begin with `note: `.
    Inject {
        /// A file of rules.
        rules: String,
    },
    /// The fault rules there are: a list of [`super::seen::SeenFault`].
    Faults,
    /// A fault rule goes, or all do; the answer says how many.
    Clear {
        /// Its name.
        name: Option<String>,
    },
    /// The power goes, and hosts see the drive vanish.
    PowerCut {
        /// May pages be torn that are being programmed?
        torn: bool,
    },
    /// Powers the drive on; the answer has the model time of recovery, ns.
    PowerOn,
    /// Erases the namespace.
    Format,
    /// The server takes no more commands, finishes those under way and ends.
    Drain,
    /// The server ends at once.
    Shutdown,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The result.
    Ok(Value),
    /// Why not, in a line; nothing has changed.
    Error(String),
}

/// The default place of the control socket: in the user's runtime folder, or in that for temporary files.
pub fn default_path() -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join("kvdrive.sock")
}

/// The socket of a server whose options name none: the default path, or another one beside it if a server answers
/// there.
pub fn free_path() -> PathBuf {
    let path = default_path();
    match UnixStream::connect(&path) {
        Ok(_) => path.with_file_name(format!("kvdrive-{}.sock", std::process::id())),
        Err(_) => path,
    }
}

/// The control socket's file, which is removed when this is dropped.
pub struct ControlSocket {
    path: PathBuf,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers requests at `path` for as long as the program runs.
///
/// # Errors
/// Another server answers there, or there can be no socket.
pub fn listen(path: &Path, stations: Stations) -> anyhow::Result<ControlSocket> {
    let listener = private::bind(path, |path| UnixListener::bind(path)).map_err(|error| {
        let advice = if error.kind() == ErrorKind::AddrInUse { "; choose another path" } else { "" };
        anyhow::anyhow!("--control {}: {error}{advice}", path.display())
    })?;
    let socket = ControlSocket { path: path.to_owned() };
    thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            // Without descriptors no connection can be taken until others end.
            let Ok(stream) = stream else {
                thread::sleep(ACCEPT_AGAIN);
                continue;
            };
            if !private::is_owner(&stream) {
                continue;
            }
            let stations = stations.clone();
            // A connection that can have no thread is closed.
            let _ = thread::Builder::new().name("control".into()).spawn(move || serve(stream, &stations));
        }
    })?;
    Ok(socket)
}

fn serve(stream: UnixStream, stations: &[Arc<Station>]) {
    let Ok(mut output) = stream.try_clone() else { return };
    let mut input = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match input.by_ref().take(REQUEST_MAX_BYTES).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut stops = 0;
        let answer = match asked(&line, stations) {
            Ok((station, request)) => {
                stops = stops_of(&request);
                match answer(station, request) {
                    Ok(value) => Answer::Ok(value),
                    Err(error) => Answer::Error(format!("{error:#}")),
                }
            }
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        let line = serde_json::to_string(&answer).expect("an answer is JSON") + "\n";
        let written = output.write_all(line.as_bytes());
        // After the answer: the program may end before it could be written.
        (0..stops).for_each(|_| stations[0].server().stop());
        if written.is_err() {
            return;
        }
    }
}

/// The request of a line, and its drive.
fn asked<'a>(line: &str, stations: &'a [Arc<Station>]) -> anyhow::Result<(&'a Station, Request)> {
    let mut request: serde_json::Map<String, Value> = serde_json::from_str(line).context("no request")?;
    let station = match request.remove("nsid") {
        None => &stations[0],
        Some(nsid) => {
            let of = stations.iter().find(|station| nsid == station.nsid());
            of.with_context(|| format!("nsid {nsid}: there is no such namespace"))?
        }
    };
    let request = serde_json::from_value(Value::Object(request)).context("no request")?;
    Ok((station, request))
}

/// How often the server is asked to end by this: the second time it ends at once.
fn stops_of(request: &Request) -> u32 {
    match request {
        Request::Drain => 1,
        Request::Shutdown => 2,
        _ => 0,
    }
}

fn answer(station: &Station, request: Request) -> anyhow::Result<Value> {
    Ok(match request {
        Request::Status => serde_json::to_value(station.seen()?)?,
        Request::Hosts => serde_json::to_value(station.hosts()?)?,
        Request::Inject { rules } => json!(station.inject(rules)?),
        Request::Faults => serde_json::to_value(station.faults()?)?,
        Request::Clear { name } => json!(station.clear_faults(name)?),
        Request::PowerCut { torn } => {
            station.cut_power(torn)?;
            Value::Null
        }
        Request::PowerOn => json!(station.power_on()?),
        Request::Format => {
            station.format()?;
            Value::Null
        }
        Request::Drain | Request::Shutdown => Value::Null,
    })
}

/// Asks the server at `path` about the drive that is the namespace `nsid`.
///
/// # Errors
/// No server answers there, or the server's reason for refusing the request.
pub fn ask(path: &Path, nsid: u32, request: &Request) -> anyhow::Result<Value> {
    Client::connect(path, nsid)?.ask(request)
}

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The same for a power-on: a recovery reads a large image.
const POWER_ON_MAX: Duration = Duration::from_secs(600);

/// A connection to a control socket.
pub struct Client {
    nsid: u32,
    input: BufReader<UnixStream>,
    output: UnixStream,
}

impl Client {
    /// Connects, for requests about the drive that is the namespace `nsid`.
    ///
    /// # Errors
    /// No server answers there.
    pub fn connect(path: &Path, nsid: u32) -> anyhow::Result<Client> {
        let output = UnixStream::connect(path).with_context(|| {
            let path = path.display();
            format!("{path}: no server answers; start one with `kvdrive serve --control {path}`")
        })?;
        Ok(Client { nsid, input: BufReader::new(output.try_clone()?), output })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The error message of the server, or that it has ended, or that it does not answer.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Value> {
        let most = if matches!(request, Request::PowerOn) { POWER_ON_MAX } else { ANSWER_MAX };
        let mut request = serde_json::to_value(request)?;
        request["nsid"] = json!(self.nsid);
        let line = request.to_string() + "\n";
        self.output.set_read_timeout(Some(most))?;
        self.output.set_write_timeout(Some(most))?;
        let mut answer = String::new();
        let exchanged =
            self.output.write_all(line.as_bytes()).and_then(|()| self.input.read_line(&mut answer));
        match exchanged {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                anyhow::bail!(
                    "the server has not answered for {} s; it may be stopped (SIGSTOP, a debugger)",
                    most.as_secs()
                )
            }
            exchanged => exchanged?,
        };
        anyhow::ensure!(!answer.is_empty(), "the server has ended");
        match serde_json::from_str(&answer)? {
            Answer::Ok(value) => Ok(value),
            Answer::Error(what) => anyhow::bail!(what),
        }
    }
}
