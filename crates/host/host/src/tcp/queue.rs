//! One connection, which is one queue: commands go out, completions come in, data travel both ways. Units that come
//! are taken in [`units`].

mod units;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kvdrive_nvme::list::ListReader;
use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, flag, kind};
use kvdrive_nvme::{
    Command, Cqe, DRIVE_NSID, Key, RetrieveOptions, SglDescriptor, Sqe, Status, Store, StoreOptions, opcode,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::input::{Arriving, Input};
use super::options::{Options, Tls};
use super::wire::Wire;
use crate::Error;

/// Gathered commands are sent when they have this many bytes.
const GATHERED_MAX_BYTES: usize = 64 << 10;

/// The data of a command.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// The command has no data.
    None,
    /// The data go to the controller.
    Out(&'a [u8]),
    /// The answer has room for this many bytes.
    In(u32),
}

/// A command that has completed.
#[derive(Clone, Debug)]
pub struct Completed {
    /// Its completion.
    pub cqe: Cqe,
    /// The data that came with it.
    pub data: Vec<u8>,
}

impl Completed {
    /// # Errors
    /// The status, if it is not success.
    pub fn ok(self) -> Result<Completed, Error> {
        let status = self.cqe.status();
        if status.is_success() { Ok(self) } else { Err(Error::Status(status)) }
    }
}

/// A command under way.
struct Pending {
    out: Vec<u8>,
    /// Bytes of `out` that the controller has asked for.
    asked: usize,
    data: Vec<u8>,
    room: u32,
    /// The identifier is from the queue's free ones.
    is_free_after: bool,
    /// A retrieve: from where in its value on.
    retrieves_from: Option<u32>,
}

impl Pending {
    /// How many bytes of data a successful answer of this command has to bring, by its dword 0; other commands than
    /// retrieves say it in their data.
    fn due_bytes(&self, dw0: u32) -> usize {
        self.retrieves_from.map_or(0, |from| dw0.saturating_sub(from).min(self.room) as usize)
    }
}

/// One connection.
pub struct Queue {
    input: Input<Wire>,
    /// Data whose unit has begun.
    arriving: Option<Arriving>,
    /// By command identifier.
    pending: Vec<Option<Pending>>,
    free: Vec<u16>,
    /// Buffers of answers that were given back, for reuse.
    spare: Vec<Vec<u8>>,
    digests: u8,
    padded_digest: bool,
    data_max_bytes: u32,
    /// Most data in a capsule, bytes.
    pub(super) in_capsule_bytes: u32,
    /// Namespace of the typed commands.
    pub nsid: u32,
    /// T_ID of the last authentication.
    transaction: u16,
}

impl Queue {
    /// Connects and initializes; the first command must be Connect, to the subsystem `nqn`.
    pub(super) fn open(at: &[SocketAddr], nqn: &str, options: &Options) -> Result<Queue, Error> {
        Queue::begin(Wire::connect(at, options.silence)?, nqn, options)
    }

    /// Initializes an existing connection, such as one through a proxy; the first command must be Connect, to
    /// the subsystem `nqn`.
    ///
    /// # Errors
    /// The socket failed, or the controller violated the protocol.
    pub fn on(socket: TcpStream, nqn: &str, options: &Options) -> Result<Queue, Error> {
        Queue::begin(Wire::on(socket, options.silence)?, nqn, options)
    }

    fn begin(mut wire: Wire, nqn: &str, options: &Options) -> Result<Queue, Error> {
        if let Some(Tls { psk, version, derivation }) = &options.tls {
            let psk = psk.for_tls(&options.host_nqn, nqn, *version, *derivation);
            wire.shake_hands(&psk.map_err(io::Error::other)?)?;
        }
        let mut input = Input::new(wire);
        let wanted =
            u8::from(options.header_digest) * digests::HEADER + u8::from(options.data_digest) * digests::DATA;
        let mut request = tcp::InitializeRequest::new_zeroed();
        request.header = Header::new(kind::IC_REQ, 128);
        request.digests = wanted;
        input.wire.outbox.extend_from_slice(request.as_bytes());
        let bytes = size_of::<tcp::InitializeResponse>();
        let response = tcp::InitializeResponse::read_from_bytes(input.need(bytes)?).expect("it has its size");
        input.take(bytes);
        if response.header != Header::new(kind::IC_RESP, 128) || response.data_alignment_z != 0 {
            return Err(Error::Protocol("no valid ICResp"));
        }
        if response.digests & !wanted != 0 || response.data_max_bytes.get() < 4096 {
            return Err(Error::Protocol("an ICResp with options that were not requested"));
        }
        Ok(Queue {
            input,
            arriving: None,
            pending: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            digests: response.digests,
            padded_digest: options.padded_digest,
            data_max_bytes: response.data_max_bytes.get(),
            in_capsule_bytes: if options.in_capsule { tcp::ADMIN_IN_CAPSULE_BYTES } else { 1024 },
            nsid: DRIVE_NSID,
            transaction: 0,
        })
    }

    /// The socket, for tests that break it.
    pub fn socket(&self) -> &TcpStream {
        &self.input.wire.socket
    }

    /// Sets how long the controller may be silent while this host waits for it; `None`: without a limit.
    pub fn set_silence(&mut self, silence: Option<Duration>) {
        self.input.wire.silence = silence;
    }

    pub(super) fn silence(&self) -> Option<Duration> {
        self.input.wire.silence
    }

    /// How often a thread slept to wait for the controller.
    pub fn sleeps(&self) -> u64 {
        self.input.wire.sleeps
    }

    /// Bytes that the socket has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.input.wire.unsent_bytes()
    }

    /// Whether header and data digests were negotiated.
    pub fn digests(&self) -> (bool, bool) {
        (self.has(digests::HEADER), self.has(digests::DATA))
    }

    /// The number of the next authentication (T_ID).
    pub(super) fn next_transaction(&mut self) -> u16 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.pending.iter().flatten().count()
    }

    fn has(&self, digest: u8) -> bool {
        self.digests & digest != 0
    }

    fn data_digest(&self, data: &[u8]) -> u32 {
        let padding = if self.padded_digest { data.len().next_multiple_of(4) - data.len() } else { 0 };
        crc32c::crc32c_append(crc32c::crc32c(data), &[0; 3][..padding])
    }

    /// Adds a unit to the outbox, and sets its digests, PDO and PLEN.
    fn put(&mut self, header: &mut [u8], data: &[u8]) {
        let mut bytes = header.len() + if self.has(digests::HEADER) { DIGEST_BYTES } else { 0 };
        if self.has(digests::HEADER) {
            header[1] |= flag::HEADER_DIGEST;
        }
        if !data.is_empty() {
            header[3] = bytes as u8;
            bytes += data.len();
            if self.has(digests::DATA) {
                header[1] |= flag::DATA_DIGEST;
                bytes += DIGEST_BYTES;
            }
        }
        header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        let (has_header_digest, has_data_digest) = self.digests();
        let data_digest = (!data.is_empty() && has_data_digest).then(|| self.data_digest(data));
        let outbox = &mut self.input.wire.outbox;
        outbox.extend_from_slice(header);
        if has_header_digest {
            outbox.extend_from_slice(&crc32c::crc32c(header).to_le_bytes());
        }
        outbox.extend_from_slice(data);
        if let Some(digest) = data_digest {
            outbox.extend_from_slice(&digest.to_le_bytes());
        }
    }

    /// Sends a command; sets its identifier and data pointer. Returns the identifier.
    ///
    /// # Errors
    /// The socket failed.
    pub fn submit(&mut self, sqe: Sqe, data: Data<'_>) -> Result<u16, Error> {
        let cid = self.gather(sqe, data)?;
        self.push()?;
        Ok(cid)
    }

    /// Sends gathered bytes, as far as the socket takes them without waiting.
    pub(super) fn push(&mut self) -> Result<(), Error> {
        Ok(self.input.wire.push()?)
    }

    /// As [`Queue::submit`], but the command is sent by the next wait at the latest.
    fn gather(&mut self, sqe: Sqe, data: Data<'_>) -> Result<u16, Error> {
        let cid = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() as u16 - 1
        });
        self.gather_as(cid, true, sqe, data)?;
        Ok(cid)
    }

    /// Queues a command under an identifier that no command under way has; it is sent by the next wait at the
    /// latest.
    pub(super) fn gather_as(
        &mut self,
        cid: u16,
        is_free_after: bool,
        mut sqe: Sqe,
        data: Data<'_>,
    ) -> Result<(), Error> {
        sqe.cid = U16::new(cid);
        let memory = self.spare.pop().unwrap_or_default();
        let retrieves_from = match sqe.opcode {
            opcode::RETRIEVE => Some(0),
            opcode::RETRIEVE_PART => Some(sqe.cdw13.get()),
            _ => None,
        };
        let mut pending =
            Pending { out: Vec::new(), asked: 0, data: memory, room: 0, is_free_after, retrieves_from };
        let mut in_capsule: &[u8] = &[];
        match data {
            Data::None => {
                // No descriptor is set: inline commands have bytes of a value in its place.
                sqe.flags |= 0x40;
            }
            Data::Out(bytes) if bytes.len() <= self.in_capsule_bytes as usize => {
                sqe.set_sgl(SglDescriptor::in_capsule(bytes.len() as u32));
                in_capsule = bytes;
            }
            Data::Out(bytes) => {
                sqe.set_sgl(SglDescriptor::transport(bytes.len() as u32));
                pending.out = bytes.to_vec();
            }
            Data::In(room) => {
                sqe.set_sgl(SglDescriptor::transport(room));
                pending.room = room;
            }
        }
        if self.pending.len() <= usize::from(cid) {
            self.pending.resize_with(usize::from(cid) + 1, || None);
        }
        self.pending[usize::from(cid)] = Some(pending);
        let mut capsule = tcp::CommandCapsule { header: Header::new(kind::CAPSULE_CMD, 72), sqe };
        self.put(capsule.as_mut_bytes(), in_capsule);
        if self.input.wire.outbox.len() >= GATHERED_MAX_BYTES {
            self.input.wire.push()?;
        }
        Ok(())
    }

    /// Gives the buffer of an answer back, for reuse.
    pub fn give_back(&mut self, mut data: Vec<u8>) {
        data.clear();
        if self.spare.len() < self.pending.len() {
            self.spare.push(data);
        }
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// The socket failed, the controller terminated the connection, or it violated the protocol.
    pub fn next_completion(&mut self) -> Result<Completed, Error> {
        loop {
            if let Some(completed) = self.take_unit()? {
                return Ok(completed);
            }
        }
    }

    /// Sends a command and waits for it. No other command may be under way.
    ///
    /// # Errors
    /// As [`Queue::next_completion`]; a status other than success is not an error here.
    pub fn execute(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Completed, Error> {
        self.submit(sqe, data)?;
        self.next_completion()
    }

    /// Stores a value.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn store(&mut self, key: Key, value: &[u8]) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Stores a value under a condition.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn store_with(&mut self, key: Key, value: &[u8], options: StoreOptions) -> Result<(), Error> {
        let store = Store { key, value_bytes: value.len() as u32, options };
        self.execute(Command::Store(store).encode(0, self.nsid), Data::Out(value))?.ok().map(|_| ())
    }

    /// Retrieves at most `room` bytes of a value; returns the value's size and those bytes.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn retrieve(&mut self, key: Key, room: u32) -> Result<(u32, Vec<u8>), Error> {
        let command = Command::Retrieve { key, buffer_bytes: room, options: RetrieveOptions::default() };
        let completed = self.execute(command.encode(0, self.nsid), Data::In(room))?.ok()?;
        let (value_bytes, mut data) = (completed.cqe.dw0.get(), completed.data);
        // A controller may pad the last dword.
        data.truncate(value_bytes as usize);
        Ok((value_bytes, data))
    }

    /// Removes a pair.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn delete(&mut self, key: Key) -> Result<(), Error> {
        let sqe = Command::Delete { key, must_exist: false }.encode(0, self.nsid);
        self.execute(sqe, Data::None)?.ok().map(|_| ())
    }

    /// Is there a pair?
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn exist(&mut self, key: Key) -> Result<bool, Error> {
        let sqe = Command::Exist { key }.encode(0, self.nsid);
        match self.execute(sqe, Data::None)?.ok() {
            Ok(_) => Ok(true),
            Err(Error::Status(Status::KEY_NOT_FOUND)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keys from `start` on, as many as fit `room` bytes.
    ///
    /// # Errors
    /// The status, or as [`Queue::next_completion`].
    pub fn list(&mut self, start: Option<Key>, room: u32) -> Result<Vec<Key>, Error> {
        let sqe = Command::List { start, buffer_bytes: room }.encode(0, self.nsid);
        let completed = self.execute(sqe, Data::In(room))?.ok()?;
        let keys = ListReader::new(&completed.data).map_err(|_| Error::Protocol("a list cut short"))?;
        keys.map(|key| key.map_err(|_| Error::Protocol("a list that contradicts itself"))).collect()
    }
}
