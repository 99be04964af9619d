//! A drive as this process reaches it: a controller, its admin queue, and as many I/O queues as threads ask at the
//! same time.
//!
//! ```text
//!   a thread ─► Drive::command ─► a free queue of the session, or a new one ─► the controller
//!                                 (as many as it grants; then threads wait)
//! ```
//!
//! A session begins with the first command. It ends with any failure of a connection, as Linux resets a controller:
//! commands under way fail with EINTR, and the next command begins another session.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use kvdrive_host::reach::{self, ReachError, Remote};
use kvdrive_host::tcp::{Completed, Data, Error, Initiator, Options, Queue, connect};
use kvdrive_nvme::identify::{CSI_KV, Controller};
use kvdrive_nvme::{Sqe, property};
use kvdrive_sim::wall::lock;
use kvdrive_text::output::tell;
use uuid::Uuid;

use crate::in_process::{Address, InProcess};
use crate::kept::{Connected, Kept};

/// Entries of an I/O queue; each has one command at a time.
const QUEUE_ENTRIES: u16 = 16;
/// I/O queues that are asked for.
const QUEUES: u16 = 64;
/// How long a controller may be silent while it is connected to. One without power takes connections and says nothing.
const CONNECT_SILENCE: Duration = Duration::from_secs(3);
/// MDTS counts pages of this size, bytes.
const TRANSFER_UNIT_BYTES: u64 = 4096;

/// Address or profile of the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Network(At),
    InProcess(InProcess),
}

/// Where a drive is on a network.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    /// `HOST:PORT`.
    address: String,
    /// Name of the subsystem; `None`: the only one that discovery reports.
    nqn: Option<String>,
    /// The namespace; `None`: the first one of pairs, or else the first.
    nsid: Option<u32>,
    /// Name of this host.
    host_nqn: Option<String>,
}

/// Identify data of a controller and of the namespace of a node.
pub struct Facts {
    /// Identify, controller.
    pub controller: Controller,
    /// NQN of the subsystem.
    pub nqn: String,
    /// The namespace of the nodes.
    pub nsid: u32,
    /// Its command set.
    pub csi: u8,
    /// How many namespaces are active.
    pub namespaces: usize,
    /// Largest transfer of a command.
    pub transfer_max_bytes: u64,
    /// CAP.
    pub capabilities: property::Capabilities,
    /// CNTLID.
    pub controller_id: u16,
    /// `HOST:PORT`.
    pub address: String,
    /// Name of this host.
    pub host_nqn: String,
    /// Its identifier.
    pub host_id: String,
    /// NUSE of the namespace.
    pub used_bytes: u64,
    /// NGUID of the namespace; zeros, it has none.
    pub nguid: [u8; 16],
}

/// One life of the connections to a controller.
pub struct Session {
    /// Properties of the drive that it is connected to.
    pub facts: Facts,
    admin: Mutex<Kept<Initiator>>,
    lanes: Mutex<Lanes>,
    freed: Condvar,
    is_broken: AtomicBool,
}

struct Lanes {
    idle: Vec<Kept<Queue>>,
    made: u16,
    granted: u16,
}

/// Why a command has no status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStatus {
    /// The drive cannot be reached now; the reason is on standard error.
    Unreachable,
    /// The connection broke or the time ran out while the command was under way.
    Cancelled,
}

/// Which queue a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueKind {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// A drive behind one node or several.
pub struct Drive {
    /// The text that named it.
    name: String,
    which: Which,
    /// How to reach it, if it is in this process and runs.
    door: Mutex<Option<Address>>,
    session: Mutex<Option<Arc<Session>>>,
    /// The last reason that standard error has.
    told: Mutex<String>,
}

impl Drive {
    /// The drive of this text: `tcp://HOST[:PORT][,nqn=NQN][,nsid=N][,host-nqn=NQN]`, or
    /// `kvdrive:PROFILE[,file=PATH][,KEY=VALUE...]`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(text: &str) -> Result<Drive, String> {
        let which = match (text.strip_prefix("tcp://"), text.strip_prefix("kvdrive:")) {
            (Some(rest), _) => Which::Network(At::of(rest)?),
            (_, Some(rest)) => Which::InProcess(InProcess::of(rest)?),
            _ => return Err(format!("{text:?}; allowed: tcp://HOST:PORT, kvdrive:PROFILE")),
        };
        Ok(Drive::new(text, which))
    }

    fn new(name: &str, which: Which) -> Drive {
        let (door, session, told) = (Mutex::default(), Mutex::default(), Mutex::default());
        Drive { name: name.to_owned(), which, door, session, told }
    }

    /// The same drive for a child that `fork` made. Takes no lock.
    pub fn of_child(&self) -> Drive {
        Drive::new(&self.name, self.which.clone())
    }

    /// Do both mean the same drive?
    pub fn is_same(&self, other: &Drive) -> bool {
        self.which == other.which
    }

    /// Its address. A drive in this process is powered on first.
    fn at(&self) -> Result<At, String> {
        let in_process = match &self.which {
            Which::Network(at) => return Ok(at.clone()),
            Which::InProcess(in_process) => in_process,
        };
        let mut door = lock(&self.door);
        if door.is_none() {
            *door = Some(in_process.power_on()?);
        }
        let Address { at, nqn, host_nqn } = door.clone().expect("it is there now");
        Ok(At { address: at.to_string(), nqn: Some(nqn), nsid: None, host_nqn: Some(host_nqn) })
    }

    /// The session there is, or a new one.
    ///
    /// # Errors
    /// There is no way to the drive; standard error has the reason, once.
    pub fn session(&self) -> Result<Arc<Session>, NoStatus> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session
            && !session.is_broken.load(Ordering::Acquire)
        {
            return Ok(session.clone());
        }
        *session = None;
        let begun = self.at().and_then(|at| Session::begin(&at).map_err(|error| error.line()));
        match begun {
            Ok(begun) => {
                lock(&self.told).clear();
                Ok(session.insert(Arc::new(begun)).clone())
            }
            Err(problem) => {
                let line = format!("kvdrive-ng: {}: {problem}", self.name);
                let mut told = lock(&self.told);
                if *told != line {
                    tell(&line);
                    *told = line;
                }
                Err(NoStatus::Unreachable)
            }
        }
    }

    /// Ends the session there is and begins another one.
    ///
    /// # Errors
    /// As [`Drive::session`].
    pub fn reset(&self) -> Result<(), NoStatus> {
        if let Some(session) = &*lock(&self.session) {
            session.give_up();
        }
        self.session().map(|_| ())
    }

    /// Sends a command and waits for its completion.
    ///
    /// # Errors
    /// There is no completion, and so no status.
    pub fn command(
        &self,
        set: QueueKind,
        sqe: Sqe,
        data: Data<'_>,
        timeout: Duration,
    ) -> Result<Completed, NoStatus> {
        let mut session = self.session()?;
        if session.is_stale(set) {
            session.give_up();
            session = self.session()?;
        }
        let done = match set {
            QueueKind::Admin => session.admin(sqe, data, timeout),
            QueueKind::Io => session.io(sqe, data, timeout),
        };
        done.map_err(|problem| {
            session.give_up();
            tell(&format!("kvdrive-ng: {}: {problem}", self.name));
            NoStatus::Cancelled
        })
    }
}

impl At {
    fn of(rest: &str) -> Result<At, String> {
        let wrong = |_| format!("\"tcp://{rest}\"; allowed: tcp://HOST:PORT, as tcp://127.0.0.1:4420");
        let mut parts = rest.split(',');
        let host = parts.next().unwrap_or_default();
        let address = reach::address(&format!("tcp://{host}")).map_err(wrong)?;
        let mut at = At { address, nqn: None, nsid: None, host_nqn: None };
        for part in parts {
            match part.split_once('=') {
                Some(("nqn", nqn)) => at.nqn = Some(nqn.to_owned()),
                Some(("host-nqn", nqn)) => at.host_nqn = Some(nqn.to_owned()),
                Some(("nsid", nsid)) => {
                    at.nsid = Some(nsid.parse().map_err(|_| format!("nsid={nsid}: a number is needed"))?);
                }
                _ => return Err(format!("{part:?}; allowed: nqn=NQN, nsid=N, host-nqn=NQN")),
            }
        }
        Ok(at)
    }
}

/// Has the other end closed this connection, which has no command in flight, or this program its descriptor?
fn is_closed<T: Connected>(connection: &mut Kept<T>) -> bool {
    // Does not block; the bytes stay in the socket.
    let peeked = |socket: &TcpStream| socket.peek(&mut [0]);
    !connection.is_ours()
        || !matches!(peeked(connection.socket()), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

impl Session {
    fn begin(at: &At) -> Result<Session, ReachError> {
        let of_any = Options::default();
        let host_nqn = at.host_nqn.clone().unwrap_or_else(|| of_any.host_nqn.clone());
        let options = Options { host_nqn, silence: Some(CONNECT_SILENCE), ..of_any };
        let (address, nqn) = (at.address.clone(), at.nqn.clone());
        let remote = Remote { address, nqn, nsid: at.nsid, options };
        let (mut admin, nqn) = connect(&remote)?;
        let options = remote.options;
        let controller = admin.identify_controller()?;
        let ids = admin.active_namespaces()?;
        let is_kv = |admin: &mut Initiator, nsid| {
            admin.identify_namespace(nsid).is_ok_and(|it| it.format().value_max_bytes.get() > 0)
        };
        let nsid = match at.nsid {
            Some(nsid) if ids.contains(&nsid) => nsid,
            Some(_) => return Err(Error::Protocol("there is no namespace of that identifier").into()),
            None => {
                let pairs = ids.iter().copied().find(|nsid| is_kv(&mut admin, *nsid));
                pairs.or(ids.first().copied()).ok_or(Error::Protocol("there is no namespace"))?
            }
        };
        let namespace = admin.identify_namespace(nsid).ok();
        let facts = Facts {
            address: at.address.clone(),
            host_nqn: options.host_nqn.clone(),
            host_id: Uuid::from_bytes(options.host_id).to_string(),
            used_bytes: namespace.as_ref().map_or(0, |it| it.used_bytes.get()),
            nguid: namespace.as_ref().map_or([0; 16], |it| it.nguid),
            nqn,
            nsid,
            csi: if is_kv(&mut admin, nsid) { CSI_KV } else { 0 },
            namespaces: ids.len(),
            transfer_max_bytes: match controller.transfer_max_log2 {
                0 => u64::MAX,
                log2 => TRANSFER_UNIT_BYTES.checked_shl(log2.into()).unwrap_or(u64::MAX),
            },
            capabilities: property::Capabilities::from_bits(admin.property(property::CAP)?),
            controller_id: admin.controller_id(),
            controller,
        };
        let granted = admin.ask_for_queues(QUEUES)?;
        let lanes = Lanes { idle: Vec::new(), made: 0, granted };
        let is_broken = AtomicBool::new(false);
        Ok(Session {
            facts,
            admin: Mutex::new(Kept::new(admin)),
            lanes: Mutex::new(lanes),
            freed: Condvar::new(),
            is_broken,
        })
    }

    /// No command begins on the session any more; threads that wait for a queue are woken and fail.
    fn give_up(&self) {
        let _lanes = lock(&self.lanes);
        self.is_broken.store(true, Ordering::Release);
        self.freed.notify_all();
    }

    /// Has the controller gone since it was last asked?
    fn is_stale(&self, set: QueueKind) -> bool {
        match set {
            QueueKind::Admin => is_closed(&mut *lock(&self.admin)),
            QueueKind::Io => lock(&self.lanes).idle.last_mut().is_some_and(is_closed),
        }
    }

    fn admin(&self, sqe: Sqe, data: Data<'_>, timeout: Duration) -> Result<Completed, Error> {
        let mut admin = lock(&self.admin);
        admin.admin().set_silence(Some(timeout));
        admin.admin().execute(sqe, data)
    }

    fn io(&self, sqe: Sqe, data: Data<'_>, timeout: Duration) -> Result<Completed, Error> {
        let mut queue = self.queue()?;
        queue.set_silence(Some(timeout));
        let completed = queue.execute(sqe, data)?;
        lock(&self.lanes).idle.push(queue);
        self.freed.notify_one();
        Ok(completed)
    }

    /// A queue that no other thread has.
    fn queue(&self) -> Result<Kept<Queue>, Error> {
        let mut lanes = lock(&self.lanes);
        loop {
            if self.is_broken.load(Ordering::Acquire) {
                return Err(Error::Protocol("the controller was reset"));
            }
            if let Some(mut queue) = lanes.idle.pop() {
                let lost = Error::Protocol("the program has closed the descriptor of a connection");
                return if queue.is_ours() { Ok(queue) } else { Err(lost) };
            }
            if lanes.made < lanes.granted {
                lanes.made += 1;
                let number = lanes.made;
                drop(lanes);
                let most = self.facts.capabilities.entries_max_z().saturating_add(1);
                return lock(&self.admin).io_queue(number, QUEUE_ENTRIES.min(most)).map(Kept::new);
            }
            lanes = self.freed.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
