//! One connection, which is one queue: commands go out, completions come in, data travel both ways.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kvdrive_nvme::list::ListReader;
use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, flag, kind};
use kvdrive_nvme::{
    Command, Cqe, Key, RetrieveOptions, SglDescriptor, Sqe, Status, Store, StoreOptions, opcode,
};
use kvdrive_sim::wall::Stopwatch;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::options::{Options, Tls};
use super::wire::Wire;
use crate::Error;
use crate::answers::NSID;

/// Most bytes of one read from the socket.
const READ_BYTES: usize = 64 << 10;
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
    wire: BufReader<Wire>,
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
        let mut wire = BufReader::with_capacity(READ_BYTES, wire);
        let wanted =
            u8::from(options.header_digest) * digests::HEADER + u8::from(options.data_digest) * digests::DATA;
        let mut request = tcp::InitializeRequest::new_zeroed();
        request.header = Header::new(kind::IC_REQ, 128);
        request.digests = wanted;
        wire.get_mut().outbox.extend_from_slice(request.as_bytes());
        let mut response = tcp::InitializeResponse::new_zeroed();
        wire.read_exact(response.as_mut_bytes())?;
        if response.header != Header::new(kind::IC_RESP, 128) || response.data_alignment_z != 0 {
            return Err(Error::Protocol("no valid ICResp"));
        }
        if response.digests & !wanted != 0 || response.data_max_bytes.get() < 4096 {
            return Err(Error::Protocol("an ICResp with options that were not requested"));
        }
        Ok(Queue {
            wire,
            pending: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            digests: response.digests,
            padded_digest: options.padded_digest,
            data_max_bytes: response.data_max_bytes.get(),
            in_capsule_bytes: if options.in_capsule { tcp::ADMIN_IN_CAPSULE_BYTES } else { 1024 },
            nsid: NSID,
            transaction: 0,
        })
    }

    /// The socket, for tests that break it.
    pub fn socket(&self) -> &TcpStream {
        &self.wire.get_ref().socket
    }

    /// Sets how long the controller may be silent while this host waits for it; `None`: without a limit.
    pub fn set_silence(&mut self, silence: Option<Duration>) {
        self.wire.get_mut().silence = silence;
    }

    pub(super) fn silence(&self) -> Option<Duration> {
        self.wire.get_ref().silence
    }

    /// How often a thread slept to wait for the controller.
    pub fn sleeps(&self) -> u64 {
        self.wire.get_ref().sleeps
    }

    /// Bytes that the socket has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.wire.get_ref().unsent_bytes()
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
        let outbox = &mut self.wire.get_mut().outbox;
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

    /// Has anything arrived that was not read? Waits for it for `timeout` at most.
    pub(super) fn has_arrived(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wire.get_mut().limit = Some((Stopwatch::start(), timeout));
        let arrived = self.wire.fill_buf().map(|_| true);
        self.wire.get_mut().limit = None;
        match arrived {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            arrived => Ok(arrived?),
        }
    }

    /// Sends gathered bytes, as far as the socket takes them without waiting.
    pub(super) fn push(&mut self) -> Result<(), Error> {
        Ok(self.wire.get_mut().push()?)
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
        if self.wire.get_ref().outbox.len() >= GATHERED_MAX_BYTES {
            self.wire.get_mut().push()?;
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

    /// Has the next unit arrived as a whole and was not read?
    pub(super) fn is_unit_buffered(&self) -> bool {
        let buffer = self.wire.buffer();
        Header::read_from_prefix(buffer).is_ok_and(|(unit, _)| unit.bytes.get() as usize <= buffer.len())
    }

    /// Waits for the next unit; returns the command that it completes, if it does.
    ///
    /// # Errors
    /// As [`Queue::next_completion`].
    pub(super) fn take_unit(&mut self) -> Result<Option<Completed>, Error> {
        let mut header = [0; 128];
        self.wire.read_exact(&mut header[..Header::BYTES])?;
        let header_bytes = usize::from(header[2]);
        if Some(header[2]) != tcp::header_bytes(header[0]) {
            return Err(Error::Protocol("a header of another length"));
        }
        self.wire.read_exact(&mut header[Header::BYTES..header_bytes])?;
        if header[0] == kind::C2H_TERM_REQ {
            let unit = tcp::Termination::read_from_bytes(&header[..24]).expect("it has its size");
            let (reason, information) = (unit.reason.get(), unit.information.get());
            return Err(Error::Terminated { reason, information });
        }
        self.check_header_digest(&header[..header_bytes])?;
        match header[0] {
            kind::CAPSULE_RESP | kind::R2T if !self.is_header_alone(&header) => {
                return Err(Error::Protocol("a unit that is longer or shorter than its header"));
            }
            kind::CAPSULE_RESP => {
                let unit = tcp::ResponseCapsule::read_from_bytes(&header[..24]).expect("it has its size");
                let cid = unit.cqe.cid.get();
                let slot = self.pending.get_mut(usize::from(cid)).and_then(Option::take);
                let pending = slot.ok_or(Error::Protocol("a response without a command"))?;
                if pending.is_free_after {
                    self.free.push(cid);
                }
                // A part of a value must not pass as the value.
                let is_short = pending.data.len() < pending.due_bytes(unit.cqe.dw0.get());
                let cqe = match unit.cqe.status().is_success() && is_short {
                    true => Cqe::new(cid, Status::TRANSIENT_TRANSPORT_ERROR),
                    false => unit.cqe,
                };
                return Ok(Some(Completed { cqe, data: pending.data }));
            }
            kind::C2H_DATA => return self.take_data(&header[..24]),
            kind::R2T => self.send_data(&header[..24])?,
            _ => return Err(Error::Protocol("a unit that only hosts send")),
        }
        Ok(None)
    }

    /// Does the unit end with its header and the header's digest?
    fn is_header_alone(&self, header: &[u8]) -> bool {
        let (unit, _) = Header::read_from_prefix(header).expect("it has its size");
        let digest = if self.has(digests::HEADER) { DIGEST_BYTES } else { 0 };
        unit.bytes.get() as usize == usize::from(unit.header_bytes) + digest
    }

    fn check_header_digest(&mut self, header: &[u8]) -> Result<(), Error> {
        if !self.has(digests::HEADER) {
            return Ok(());
        }
        let mut digest = [0; DIGEST_BYTES];
        self.wire.read_exact(&mut digest)?;
        if header[1] & flag::HEADER_DIGEST == 0 || crc32c::crc32c(header).to_le_bytes() != digest {
            return Err(Error::Protocol("a header digest is wrong"));
        }
        Ok(())
    }

    /// Takes data; the completion, if the command has succeeded and no response follows.
    fn take_data(&mut self, header: &[u8]) -> Result<Option<Completed>, Error> {
        let unit = tcp::Transfer::read_from_bytes(header).expect("it has its size");
        let before = 24 + if self.has(digests::HEADER) { DIGEST_BYTES } else { 0 };
        let padding = usize::from(unit.header.data_at)
            .checked_sub(before)
            .ok_or(Error::Protocol("data inside their header"))?;
        let behind = if self.has(digests::DATA) { DIGEST_BYTES } else { 0 };
        let bytes = unit.length.get() as usize;
        if unit.header.bytes.get() as usize != before + padding + bytes + behind {
            return Err(Error::Protocol("data of another length than their unit"));
        }
        let pending = self.pending.get_mut(usize::from(unit.cid.get())).and_then(Option::as_mut);
        let pending = pending.ok_or(Error::Protocol("data for nothing"))?;
        if bytes == 0
            || unit.offset.get() as usize != pending.data.len()
            || pending.data.len() + bytes > pending.room as usize
        {
            return Err(Error::Protocol("data that are empty, too long or not the next ones"));
        }
        let mut skipped = [0; 255];
        self.wire.read_exact(&mut skipped[..padding])?;
        let before = pending.data.len();
        pending.data.resize(before + bytes, 0);
        self.wire.read_exact(&mut pending.data[before..])?;
        if behind > 0 {
            let mut digest = [0; DIGEST_BYTES];
            self.wire.read_exact(&mut digest)?;
            let pending = self.pending[usize::from(unit.cid.get())].as_ref().expect("it was there");
            if self.data_digest(&pending.data[before..]) != u32::from_le_bytes(digest) {
                return Err(Error::Protocol("a data digest is wrong"));
            }
        }
        if unit.header.flags & flag::SUCCESS == 0 {
            return Ok(None);
        }
        let pending = self.pending[usize::from(unit.cid.get())].take().expect("it was there");
        if pending.is_free_after {
            self.free.push(unit.cid.get());
        }
        let bytes = pending.data.len() as u32;
        // Dword 0 is lost, which has the size of a value: it is known only if the value was shorter than its room.
        if pending.retrieves_from.is_some() && bytes == pending.room {
            return Err(Error::Protocol(
                "data with SUCCESS in place of a response that has the value's size",
            ));
        }
        let dw0 = pending.retrieves_from.map_or(0, |from| from + bytes);
        Ok(Some(Completed {
            cqe: Cqe::new(unit.cid.get(), Status::SUCCESS).with_result(dw0, 0),
            data: pending.data,
        }))
    }

    /// Answers an R2T: sends the data that the controller asks for.
    fn send_data(&mut self, header: &[u8]) -> Result<(), Error> {
        let unit = tcp::Transfer::read_from_bytes(header).expect("it has its size");
        let (from, bytes) = (unit.offset.get() as usize, unit.length.get() as usize);
        let pending = self.pending.get_mut(usize::from(unit.cid.get())).and_then(Option::as_mut);
        let pending = pending.ok_or(Error::Protocol("an R2T without a command"))?;
        let out = std::mem::take(&mut pending.out);
        // `asked` bounds the outbox: a controller that repeats an R2T would fill memory without end.
        pending.asked += bytes;
        if pending.asked > out.len() {
            return Err(Error::Protocol("R2Ts for more data than the command has"));
        }
        let wanted = out.get(from..).and_then(|rest| rest.get(..bytes)).filter(|wanted| !wanted.is_empty());
        let Some(wanted) = wanted else {
            return Err(Error::Protocol("an R2T for data beyond those of the command"));
        };
        let most = self.data_max_bytes as usize;
        for (index, piece) in wanted.chunks(most).enumerate() {
            let at = index * most;
            let mut data = tcp::Transfer::new_zeroed();
            data.header = Header::new(kind::H2C_DATA, 24);
            data.header.flags = if at + piece.len() == bytes { flag::LAST } else { 0 };
            data.cid = unit.cid;
            data.tag = unit.tag;
            data.offset = U32::new((from + at) as u32);
            data.length = U32::new(piece.len() as u32);
            self.put(data.as_mut_bytes(), piece);
        }
        if let Some(pending) = &mut self.pending[usize::from(unit.cid.get())] {
            pending.out = out;
        }
        Ok(self.wire.get_mut().push()?)
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
