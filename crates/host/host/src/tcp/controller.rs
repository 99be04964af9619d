//! A controller: connecting to it, and using its admin queue.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};

use kvdrive_nvme::discovery::{DiscoveryEntry, DiscoveryHeader};
use kvdrive_nvme::fabrics::{ANY_CONTROLLER, Connect, ConnectData, DISCOVERY_NQN, Fabrics, nqn, nqn_field};
use kvdrive_nvme::identify::{self, CSI_KV, IDENTIFY_BYTES, KvNamespace, cns};
use kvdrive_nvme::log::{LogRequest, lid};
use kvdrive_nvme::opcode::admin;
use kvdrive_nvme::property::{self, Configuration, ControllerStatus};
use kvdrive_nvme::{Sqe, Status, auth, feature};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::options::Options;
use super::queue::{Completed, Data, Queue};
use crate::Error;

/// Entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Most entries of a discovery log, a log of 64 MiB: a controller that announces more is not believed.
const DISCOVERED_MAX: u64 = 1 << 16;
const NO_SECRET: Error = Error::Status(Status::AUTHENTICATION_REQUIRED);
/// CC: entries of 64 and 16 bytes, all I/O command sets, enabled.
const ENABLED: Configuration =
    Configuration::new().with_sqe_log2(6).with_cqe_log2(4).with_command_set(0b110).with_enable(true);

/// A controller of a subsystem.
pub struct Initiator {
    at: Vec<SocketAddr>,
    nqn: String,
    options: Options,
    admin: Queue,
    controller_id: u16,
    /// Most data in a capsule of an I/O queue, bytes.
    in_capsule_bytes: u32,
}

/// A subsystem in a discovery log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovered {
    /// Its name.
    pub nqn: String,
    /// TRADDR.
    pub address: String,
    /// TRSVCID.
    pub service: String,
}

/// Makes a queue of a connection: Connect, and authentication. Also returns the controller's number.
fn connect_queue(
    mut queue: Queue,
    nqn: &str,
    options: &Options,
    controller_id: u16,
    number: u16,
    entries: u16,
) -> Result<(Queue, u16), Error> {
    let mut data = ConnectData::new_zeroed();
    data.host_id = options.host_id;
    data.controller_id = U16::new(controller_id);
    data.subsystem_nqn = nqn_field(nqn).ok_or(Error::Protocol("a name of a subsystem is too long"))?;
    data.host_nqn = nqn_field(&options.host_nqn).ok_or(Error::Protocol("a name of a host is too long"))?;
    let connect = Connect {
        record_format: 0,
        queue_id: number,
        entries_z: entries - 1,
        attributes: if options.flow_control { 0 } else { Connect::NO_FLOW_CONTROL },
        keep_alive_ms: options.keep_alive_ms,
    };
    let completed = queue.execute(Fabrics::Connect(connect).encode(0), Data::Out(data.as_bytes()))?;
    let status = completed.cqe.status();
    if !status.is_success() {
        return Err(Error::Refused(status, completed.cqe.dw0.get()));
    }
    let dw0 = completed.cqe.dw0.get();
    let authentication = options.authentication.as_ref();
    if dw0 & auth::SECURE_CHANNEL_REQUIRED != 0 {
        return Err(Error::Protocol("the controller requires a secure channel, and this host has none"));
    }
    // A host may authenticate a controller that asks for no authentication itself.
    let wants = authentication.is_some_and(|own| own.controller_secret.is_some()) && nqn != DISCOVERY_NQN;
    match authentication {
        Some(authentication) if dw0 & auth::REQUIRED != 0 || wants => {
            authentication.run(&mut queue, &options.host_nqn, nqn)?;
        }
        None if dw0 & auth::REQUIRED != 0 => return Err(Error::Status(Status::AUTHENTICATION_REQUIRED)),
        _ => {}
    }
    Ok((queue, dw0 as u16))
}

impl Initiator {
    /// Connects to a controller of the subsystem `nqn` and enables it.
    ///
    /// # Errors
    /// The socket failed, the controller refused, or it did not become ready.
    pub fn connect(at: impl ToSocketAddrs, nqn: &str, options: &Options) -> Result<Initiator, Error> {
        let at: Vec<_> = at.to_socket_addrs()?.collect();
        let admin = Queue::open(&at, nqn, options)?;
        Initiator::enable(at, admin, nqn, options)
    }

    /// As [`Initiator::connect`], on an existing connection, such as one through a proxy. It has no I/O
    /// queues, since it knows no address to connect them to.
    ///
    /// # Errors
    /// As [`Initiator::connect`].
    pub fn on(socket: TcpStream, nqn: &str, options: &Options) -> Result<Initiator, Error> {
        Initiator::enable(Vec::new(), Queue::on(socket, nqn, options)?, nqn, options)
    }

    fn enable(at: Vec<SocketAddr>, admin: Queue, nqn: &str, options: &Options) -> Result<Initiator, Error> {
        let (admin, controller_id) = connect_queue(admin, nqn, options, ANY_CONTROLLER, 0, ADMIN_ENTRIES)?;
        let options = options.clone();
        let mut controller =
            Initiator { at, nqn: nqn.to_owned(), options, admin, controller_id, in_capsule_bytes: 0 };
        controller.set_property(property::CC, u64::from(ENABLED.into_bits()))?;
        if !controller.status()?.ready() {
            return Err(Error::Protocol("the controller was enabled and is not ready"));
        }
        let identity = controller.identify_controller()?;
        if identity.controller_id.get() != controller_id {
            return Err(Error::Protocol("Identify describes another controller"));
        }
        let capsule_bytes = identity.command_capsule_16b.get().saturating_mul(16);
        controller.in_capsule_bytes = capsule_bytes.saturating_sub(Sqe::BYTES as u32);
        Ok(controller)
    }

    /// CNTLID.
    pub fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// The admin queue.
    pub fn admin(&mut self) -> &mut Queue {
        &mut self.admin
    }

    /// Connects I/O queue `number`, of `entries` entries.
    ///
    /// # Errors
    /// The socket failed, or the controller refused.
    pub fn io_queue(&mut self, number: u16, entries: u16) -> Result<Queue, Error> {
        let queue = Queue::open(&self.at, &self.nqn, &self.options)?;
        let (mut queue, _) =
            connect_queue(queue, &self.nqn, &self.options, self.controller_id, number, entries)?;
        queue.in_capsule_bytes = if self.options.in_capsule { self.in_capsule_bytes } else { 0 };
        Ok(queue)
    }

    /// Authenticates the admin queue again.
    ///
    /// # Errors
    /// [`Error::Authentication`], after which the queue has ended; or there is no secret.
    pub fn authenticate_again(&mut self) -> Result<(), Error> {
        let own = self.options.authentication.as_ref().ok_or(NO_SECRET)?;
        own.run(&mut self.admin, &self.options.host_nqn, &self.nqn)
    }

    /// Authenticates an I/O queue again, which has no command under way.
    ///
    /// # Errors
    /// As [`Initiator::authenticate_again`].
    pub fn authenticate_queue_again(&self, queue: &mut Queue) -> Result<(), Error> {
        let own = self.options.authentication.as_ref().ok_or(NO_SECRET)?;
        own.run(queue, &self.options.host_nqn, &self.nqn)
    }

    /// Reads a property: eight bytes of CAP, four bytes of others.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn property(&mut self, offset: u32) -> Result<u64, Error> {
        let get = Fabrics::PropertyGet { wide: offset == property::CAP, offset };
        let cqe = self.admin.execute(get.encode(0), Data::None)?.ok()?.cqe;
        Ok(u64::from(cqe.dw1.get()) << 32 | u64::from(cqe.dw0.get()))
    }

    /// Writes a property of four bytes.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn set_property(&mut self, offset: u32, value: u64) -> Result<(), Error> {
        let set = Fabrics::PropertySet { wide: false, offset, value };
        self.admin.execute(set.encode(0), Data::None)?.ok().map(|_| ())
    }

    /// The controller's status (CSTS).
    ///
    /// # Errors
    /// As [`Initiator::property`].
    pub fn status(&mut self) -> Result<ControllerStatus, Error> {
        Ok(ControllerStatus::from_bits(self.property(property::CSTS)? as u32))
    }

    /// Shuts the controller down, as a host does before it disconnects.
    ///
    /// # Errors
    /// As [`Initiator::property`]; or the controller does not report a complete shutdown.
    pub fn shut_down(&mut self) -> Result<(), Error> {
        self.set_property(property::CC, u64::from(ENABLED.with_shutdown(0b01).into_bits()))?;
        match self.status()?.shutdown() {
            ControllerStatus::SHUTDOWN_DONE => Ok(()),
            _ => Err(Error::Protocol("the controller was shut down and is not")),
        }
    }

    /// Identify, any structure.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn identify(&mut self, structure: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Error> {
        let mut sqe = Sqe::new(admin::IDENTIFY, 0, nsid);
        sqe.cdw10 = U32::new(u32::from(structure));
        sqe.cdw11 = U32::new(u32::from(csi) << 24);
        Ok(self.admin.execute(sqe, Data::In(IDENTIFY_BYTES as u32))?.ok()?.data)
    }

    /// Identify, controller.
    ///
    /// # Errors
    /// As [`Initiator::identify`].
    pub fn identify_controller(&mut self) -> Result<identify::Controller, Error> {
        let data = self.identify(cns::CONTROLLER, 0, 0)?;
        identify::Controller::read_from_bytes(&data).map_err(|_| Error::Protocol("Identify is cut short"))
    }

    /// Identify, KV namespace.
    ///
    /// # Errors
    /// As [`Initiator::identify`].
    pub fn identify_namespace(&mut self, nsid: u32) -> Result<KvNamespace, Error> {
        let data = self.identify(cns::CSI_NAMESPACE, CSI_KV, nsid)?;
        KvNamespace::read_from_bytes(&data).map_err(|_| Error::Protocol("Identify is cut short"))
    }

    /// Identifiers of its active namespaces.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, Error> {
        let list = self.identify(cns::ACTIVE_NAMESPACES, 0, 0)?;
        let ids = list.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
        Ok(ids.take_while(|id| *id != 0).collect())
    }

    /// Get Log Page.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn log_page(&mut self, request: LogRequest) -> Result<Vec<u8>, Error> {
        let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0, u32::MAX);
        request.put(&mut sqe);
        Ok(self.admin.execute(sqe, Data::In(request.bytes as u32))?.ok()?.data)
    }

    /// The subsystems that a discovery controller reports.
    ///
    /// # Errors
    /// As [`Initiator::log_page`]; or the log page is malformed.
    pub fn discovered(&mut self) -> Result<Vec<Discovered>, Error> {
        const NONE: Error = Error::Protocol("the discovery log is cut short");
        let mut page = |offset, bytes| {
            let page = lid::DISCOVERY;
            self.log_page(LogRequest { page, retain_event: false, bytes, offset, command_set: 0 })
        };
        let header = DiscoveryHeader::read_from_bytes(&page(0, 1024)?).map_err(|_| NONE)?;
        let entries = header.entries.get();
        if entries > DISCOVERED_MAX {
            return Err(Error::Protocol("a discovery log with too many entries"));
        }
        let mut found = Vec::new();
        for index in 0..entries {
            let entry =
                DiscoveryEntry::read_from_bytes(&page(1024 * (index + 1), 1024)?).map_err(|_| NONE)?;
            let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned();
            found.push(Discovered {
                nqn: nqn(&entry.subsystem_nqn).ok_or(NONE)?.to_owned(),
                address: text(&entry.address),
                service: text(&entry.service),
            });
        }
        Ok(found)
    }

    /// Set Features; returns dword 0.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn set_feature(&mut self, id: u8, value: u32, nsid: u32) -> Result<u32, Error> {
        let mut sqe = Sqe::new(admin::SET_FEATURES, 0, nsid);
        sqe.cdw10 = U32::new(u32::from(id));
        sqe.cdw11 = U32::new(value);
        Ok(self.admin.execute(sqe, Data::None)?.ok()?.cqe.dw0.get())
    }

    /// Get Features; returns dword 0.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn feature(&mut self, id: u8) -> Result<u32, Error> {
        let mut sqe = Sqe::new(admin::GET_FEATURES, 0, 0);
        sqe.cdw10 = U32::new(u32::from(id));
        Ok(self.admin.execute(sqe, Data::None)?.ok()?.cqe.dw0.get())
    }

    /// Asks for `count` I/O queues; returns how many the controller grants.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn ask_for_queues(&mut self, count: u16) -> Result<u16, Error> {
        let count_z = u32::from(count.max(1)) - 1;
        let granted = self.set_feature(feature::QUEUES, count_z << 16 | count_z, 0)?;
        Ok((granted as u16).min((granted >> 16) as u16).saturating_add(1))
    }

    /// Keep Alive.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn keep_alive(&mut self) -> Result<(), Error> {
        self.admin.execute(Sqe::new(admin::KEEP_ALIVE, 0, 0), Data::None)?.ok().map(|_| ())
    }

    /// Posts an Asynchronous Event Request; it completes when there is an event.
    ///
    /// # Errors
    /// The socket failed.
    pub fn await_event(&mut self) -> Result<u16, Error> {
        self.admin.submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0, 0), Data::None)
    }

    /// Waits for the next completion on the admin queue.
    ///
    /// # Errors
    /// As [`Queue::next_completion`].
    pub fn next_event(&mut self) -> Result<Completed, Error> {
        self.admin.next_completion()
    }
}

/// Asks the discovery controller at an address.
///
/// # Errors
/// As [`Initiator::connect`]; or the log page is malformed.
pub fn discover(at: impl ToSocketAddrs, options: &Options) -> Result<Vec<Discovered>, Error> {
    Initiator::connect(at, DISCOVERY_NQN, options)?.discovered()
}
