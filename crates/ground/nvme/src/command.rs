//! I/O commands, decoded from an entry and encoded to one.
//!
//! Every command has opcode, CID and NSID where [`crate::sqe`] draws them. Its other fields:
//!
//! ```text
//!             2-3, 14-15  6-9    10            byte 44   byte 45    12       13
//!  Flush      -           -      -             -         -          -        -
//!  Store      key         data   value size    key len   option     -        -
//!  Retrieve   key         data   buffer size   key len   option     -        -
//!  List       start key   data   buffer size   key len¹  -          -        -
//!  Delete     key         -      -             key len   option     -        -
//!  Exist      key         -      -             key len   -          -        -
//!  write      key         value  value size    key len   value      value    value    (and 4-5)
//!  hybrid     key         data²  value size    key len   -          pages_z  -
//!  transfer   value in dwords 2 to 15
//!  discard    -           -      -             -         -          stream   -
//!  express    key         -      value size    key len   option     -        -        (chunks follow)
//!  SEEK       key         data   buffer size   key len¹  -          -        -
//!  NEXT       -           data   buffer size   -         -          iterator -
//!  close      -           -      -             -         -          iterator -
//!  CXL store  key         tail³  value size    key len   tail len   offset   generation
//!  batch      -           data   value size    -         -          -        -
//!  store part key         data   part size     key len⁴  option     value size offset
//!  retr. part key         data   part size     key len⁴  option     room     offset
//!
//!  write, hybrid, express and CXL store with a key length of 0 are batches too: their value is a structured
//!  value ([`crate::batch`]), which travels as their values do, and its keys are in it
//!  ³ the value's last bytes, at most 24, in dwords 4 to 9; the rest is in the window ([`crate::window`])
//!  ⁴ bytes 46 and 47: the stream, which parts of one value have in common in their queue
//!  ¹ 0: from the first key on      ² whole pages only; the tail follows in transfer commands
//!  a key length above 16 (ours): dwords 4 and 5 are the address of the whole key in host memory, whose first 16 bytes
//!  are in the entry too; the rest is zeros ([`crate::key`]). Without an address it is refused, as any host's long key
//!  option of Store: bit 0 update only, bit 1 add only, bit 2 do not compress; of Retrieve: bit 0 raw; of Delete: bit 0
//!  only what is there, which is ours: a drive whose Identify does not offer it ignores the bit
//! ```
//!
//! This module checks an entry by itself: opcode, FUSE, key length, option bits, the page count of a *hybrid*. It does
//! not check the namespace, the data pointer, the limits of a drive (value size), or the order of commands. Reserved
//! dwords are ignored, as NVMe requires.

use zerocopy::little_endian::U32;

use crate::PAGE_BYTES;
use crate::inline::tail_room;
use crate::key::Key;
use crate::opcode;
use crate::sqe::Sqe;
use crate::status::Status;

/// An I/O command, without identifier, namespace and data pointer: those stay in the entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Make volatile content durable.
    Flush,
    /// Write a pair; the value is in host memory.
    Store(Store),
    /// Read a value into host memory.
    Retrieve {
        /// The key.
        key: Key,
        /// Size of the host's buffer in bytes; a longer value is truncated.
        buffer_bytes: u32,
        /// Options.
        options: RetrieveOptions,
    },
    /// Read keys into host memory ([`crate::list`]).
    List {
        /// The first key wanted, inclusive; `None`: from the lowest key on.
        start: Option<Key>,
        /// Size of the host's buffer in bytes.
        buffer_bytes: u32,
    },
    /// Remove a pair.
    Delete {
        /// The key.
        key: Key,
        /// The answer is [`Status::KEY_NOT_FOUND`] if there is no pair, as feature 20h has it for all commands.
        must_exist: bool,
    },
    /// Ask whether a pair exists.
    Exist {
        /// The key.
        key: Key,
    },
    /// Write a pair whose value starts in this entry and continues in *transfer* commands.
    Write(Write),
    /// Write a pair whose whole pages are transferred by PRP and whose tail is in *transfer* commands.
    Hybrid {
        /// The key.
        key: Key,
        /// Size of the whole value in bytes.
        value_bytes: u32,
        /// Pages transferred by PRP, 0's based: `4096 * (pages_z + 1) < value_bytes`.
        pages_z: u32,
    },
    /// The next bytes of the unfinished value of this queue.
    Transfer,
    /// Give up the unfinished value of this queue, if there is one.
    Discard {
        /// 0: the value of its inline commands; [`ALL_STREAMS`]: all streams; else this one.
        stream: u16,
    },
    /// The next bytes of a value that comes in several commands.
    StorePart(StorePart),
    /// Read a part of a value into host memory.
    RetrievePart(RetrievePart),
    /// Write a pair whose value follows in chunk entries of the same queue ([`crate::inline`]).
    Express(Store),
    /// Open an iterator and read the pair at or after a key ([`crate::iter`]).
    Seek {
        /// Where to start, inclusive; `None`: at the first pair.
        key: Option<Key>,
        /// Size of the host's buffer in bytes.
        buffer_bytes: u32,
    },
    /// Read the next pair of an iterator, or several ([`crate::iter`]).
    Next {
        /// The iterator, as SEEK's completion named it.
        iterator: u32,
        /// Size of the host's buffer in bytes.
        buffer_bytes: u32,
        /// Most pairs wanted, 0's based; pairs after the first are returned only if they fit whole.
        pairs_z: u16,
    },
    /// Close an iterator.
    IterClose {
        /// The iterator, as SEEK's completion named it.
        iterator: u32,
    },
    /// Write a pair whose value the host has stored into the exposed page buffer (CXL article:
    /// only the key travels in the command).
    CxlStore {
        /// The key.
        key: Key,
        /// Size of the value in bytes.
        value_bytes: u32,
        /// Where the value starts, in bytes from the start of the window; [`crate::window::ASK`]: there is no
        /// value, and the host asks for another window.
        window_offset: u32,
        /// Generation of the window; a drive refuses an old one.
        generation: u32,
        /// Number of the value's last bytes that are in the command and not in the window.
        tail_bytes: u8,
    },
    /// Execute the requests of a structured value ([`crate::batch`]).
    Batch(Batch),
}

/// Option of a Delete: there has to be a pair.
const MUST_EXIST: u8 = 1;

/// Names all streams of a queue.
pub const ALL_STREAMS: u16 = u16::MAX;

/// A part of a value that is stored. Parts of one stream follow each other without a gap, and each is sent after the
/// previous one has completed. The part at offset 0 begins a new value and discards an unfinished one of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorePart {
    /// Key, size and conditions of the whole value, the same in all parts.
    pub store: Store,
    /// Where the part begins, in bytes from the front of the value.
    pub at: u32,
    /// Size of the part in bytes.
    pub bytes: u32,
    /// The value that it is a part of, 1 to below [`ALL_STREAMS`].
    pub stream: u16,
}

/// A part of a value that is retrieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetrievePart {
    /// The key.
    pub key: Key,
    /// Where the part begins, in bytes from the front of the value.
    pub at: u32,
    /// Size of the host's buffer in bytes.
    pub bytes: u32,
    /// 0: the part is read from the present value of the key. Otherwise all parts with the same number are read from
    /// one value, the one that existed when the part at offset 0 was retrieved, until byte `room` of it has been read.
    pub stream: u16,
    /// Bytes of the value that the host has room for, in all parts of the stream together.
    pub room: u32,
    /// Options.
    pub options: RetrieveOptions,
}

/// A batch: a value that contains its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Size of the structured value in bytes.
    pub value_bytes: u32,
    /// Where the drive takes the value from.
    pub source: ValueSource,
}

/// Where the drive takes a value from, of a pair or of a batch; each row names the command for pairs that does the
/// same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueSource {
    /// The value is where the data pointer says: [`Command::Store`], or opcode B1h.
    Data,
    /// The value starts in the entry: [`Command::Write`].
    Inline,
    /// The value's whole pages are where the data pointer says: [`Command::Hybrid`].
    Hybrid {
        /// Pages, 0's based.
        pages_z: u32,
    },
    /// The value is in the entries after the command: [`Command::Express`].
    Chunks,
    /// The value is in the exposed page buffer: [`Command::CxlStore`].
    Window {
        /// Where the value starts, as in [`Command::CxlStore`].
        window_offset: u32,
        /// Generation of the window.
        generation: u32,
        /// Number of the value's last bytes that are in the command.
        tail_bytes: u8,
    },
}

/// A Store: the whole value is where the data pointer says. (For an *express*: in the entries after it.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store {
    /// The key.
    pub key: Key,
    /// Size of the value in bytes.
    pub value_bytes: u32,
    /// Options.
    pub options: StoreOptions,
}

/// A BandSlim *write*: the first bytes of the value are in the entry ([`crate::inline`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// Size of the whole value in bytes.
    pub value_bytes: u32,
}

/// Options of a Store (byte 45).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreOptions {
    /// Bit 0: only replace; the answer is [`Status::KEY_NOT_FOUND`] if the key does not exist.
    pub update_only: bool,
    /// Bit 1: only add; the answer is [`Status::KEY_EXISTS`] if the key exists.
    pub add_only: bool,
    /// Bit 2: do not compress. Accepted; this drive never compresses.
    pub no_compress: bool,
}

impl StoreOptions {
    /// The options in a byte.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] if a reserved bit is set, or bits 0 and 1 both: no store could
    /// satisfy them (no public host or drive defines the answer).
    #[inline]
    pub fn from_bits(bits: u8) -> Result<StoreOptions, Status> {
        if bits & !0b111 != 0 || bits & 0b11 == 0b11 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(StoreOptions {
            update_only: bits & 0b001 != 0,
            add_only: bits & 0b010 != 0,
            no_compress: bits & 0b100 != 0,
        })
    }

    /// The byte for these options.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u8 {
        u8::from(self.update_only) | u8::from(self.add_only) << 1 | u8::from(self.no_compress) << 2
    }
}

/// Options of a Retrieve (byte 45).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetrieveOptions {
    /// Bit 0: raw, do not decompress. Accepted; this drive never compresses.
    pub raw: bool,
}

impl RetrieveOptions {
    /// The options in a byte.
    ///
    /// # Errors
    /// [`Status::INVALID_FIELD`] if a reserved bit is set.
    #[inline]
    pub fn from_bits(bits: u8) -> Result<RetrieveOptions, Status> {
        if bits & !0b1 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(RetrieveOptions { raw: bits != 0 })
    }

    /// The byte for these options.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u8 {
        u8::from(self.raw)
    }
}

impl Command {
    /// Decodes an entry.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`]; [`Status::INVALID_KEY_SIZE`] for a key length of 0 (where it has no
    /// meaning); [`Status::INVALID_FIELD`] for a key of more than 16 bytes (KV command set 2.1.5) that no address names, a fused command,
    /// reserved or contradictory option bits, or a *hybrid* without a tail.
    #[inline]
    pub fn decode(sqe: &Sqe) -> Result<Command, Status> {
        let size_bytes = sqe.cdw10.get();
        let command = match sqe.opcode {
            opcode::FLUSH => Command::Flush,
            opcode::STORE => {
                let options = StoreOptions::from_bits(option_bits(sqe))?;
                Command::Store(Store { key: key(sqe)?, value_bytes: size_bytes, options })
            }
            opcode::EXPRESS => {
                let options = StoreOptions::from_bits(option_bits(sqe))?;
                match optional_key(sqe)? {
                    Some(key) => Command::Express(Store { key, value_bytes: size_bytes, options }),
                    None if options != StoreOptions::default() => return Err(Status::INVALID_FIELD),
                    None => Command::Batch(Batch { value_bytes: size_bytes, source: ValueSource::Chunks }),
                }
            }
            opcode::RETRIEVE => {
                let options = RetrieveOptions::from_bits(option_bits(sqe))?;
                Command::Retrieve { key: key(sqe)?, buffer_bytes: size_bytes, options }
            }
            opcode::LIST => Command::List { start: optional_key(sqe)?, buffer_bytes: size_bytes },
            opcode::DELETE => {
                Command::Delete { key: key(sqe)?, must_exist: option_bits(sqe) & MUST_EXIST != 0 }
            }
            opcode::EXIST => Command::Exist { key: key(sqe)? },
            opcode::WRITE => match optional_key(sqe)? {
                Some(key) => Command::Write(Write { key, value_bytes: size_bytes }),
                None => Command::Batch(Batch { value_bytes: size_bytes, source: ValueSource::Inline }),
            },
            opcode::HYBRID => hybrid(sqe)?,
            opcode::TRANSFER => Command::Transfer,
            opcode::DISCARD => Command::Discard { stream: sqe.cdw12.get() as u16 },
            opcode::STORE_PART => store_part(sqe)?,
            opcode::RETRIEVE_PART => retrieve_part(sqe)?,
            opcode::SEEK => Command::Seek { key: optional_key(sqe)?, buffer_bytes: size_bytes },
            opcode::NEXT => Command::Next {
                iterator: sqe.cdw12.get(),
                buffer_bytes: size_bytes,
                pairs_z: sqe.cdw13.get() as u16,
            },
            opcode::ITER_CLOSE => Command::IterClose { iterator: sqe.cdw12.get() },
            opcode::CXL_STORE => cxl_store(sqe)?,
            opcode::BATCH => Command::Batch(Batch { value_bytes: size_bytes, source: ValueSource::Data }),
            _ => return Err(Status::INVALID_OPCODE),
        };
        // There are no fused operations here; for an unknown opcode that status says more.
        if sqe.fuse() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(command)
    }

    /// The key that the entry names; `None`: it names none, or the first or last of all keys is meant.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Command::Store(Store { key, .. })
            | Command::Express(Store { key, .. })
            | Command::Retrieve { key, .. }
            | Command::Delete { key, .. }
            | Command::Exist { key }
            | Command::Write(Write { key, .. })
            | Command::Hybrid { key, .. }
            | Command::StorePart(StorePart { store: Store { key, .. }, .. })
            | Command::RetrievePart(RetrievePart { key, .. })
            | Command::CxlStore { key, .. } => Some(key),
            Command::List { start: key, .. } | Command::Seek { key, .. } => key.as_ref(),
            Command::Flush
            | Command::Transfer
            | Command::Discard { .. }
            | Command::Next { .. }
            | Command::IterClose { .. }
            | Command::Batch(_) => None,
        }
    }

    /// Does the command change stored content? A read-only drive refuses such a command (20h).
    #[must_use]
    pub fn changes_content(&self) -> bool {
        matches!(
            self,
            Command::Store(_)
                | Command::Delete { .. }
                | Command::Express(_)
                | Command::CxlStore { .. }
                | Command::Write(_)
                | Command::Hybrid { .. }
                | Command::Transfer
                | Command::StorePart(_)
                | Command::Batch(_)
        )
    }

    /// The opcode of this command.
    #[inline]
    #[must_use]
    pub fn opcode(&self) -> u8 {
        match self {
            Command::Flush => opcode::FLUSH,
            Command::Store(_) => opcode::STORE,
            Command::Retrieve { .. } => opcode::RETRIEVE,
            Command::List { .. } => opcode::LIST,
            Command::Delete { .. } => opcode::DELETE,
            Command::Exist { .. } => opcode::EXIST,
            Command::Write(_) => opcode::WRITE,
            Command::Hybrid { .. } => opcode::HYBRID,
            Command::Transfer => opcode::TRANSFER,
            Command::Discard { .. } => opcode::DISCARD,
            Command::StorePart(_) => opcode::STORE_PART,
            Command::RetrievePart(_) => opcode::RETRIEVE_PART,
            Command::Express(_) => opcode::EXPRESS,
            Command::Seek { .. } => opcode::SEEK,
            Command::Next { .. } => opcode::NEXT,
            Command::IterClose { .. } => opcode::ITER_CLOSE,
            Command::CxlStore { .. } => opcode::CXL_STORE,
            Command::Batch(Batch { source, .. }) => match source {
                ValueSource::Data => opcode::BATCH,
                ValueSource::Inline => opcode::WRITE,
                ValueSource::Hybrid { .. } => opcode::HYBRID,
                ValueSource::Chunks => opcode::EXPRESS,
                ValueSource::Window { .. } => opcode::CXL_STORE,
            },
        }
    }

    /// The entry of this command, with `cid` and `nsid`. The data pointer and inline bytes are zero:
    /// [`Sqe::set_prps`], [`Sqe::set_sgl`] and [`crate::inline`] fill them in.
    #[inline]
    #[must_use]
    pub fn encode(&self, cid: u16, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(self.opcode(), cid, nsid);
        match *self {
            Command::Store(Store { key, value_bytes, options })
            | Command::Express(Store { key, value_bytes, options }) => {
                set_key(&mut sqe, key, options.to_bits());
                sqe.cdw10 = U32::new(value_bytes);
            }
            Command::Retrieve { key, buffer_bytes, options } => {
                set_key(&mut sqe, key, options.to_bits());
                sqe.cdw10 = U32::new(buffer_bytes);
            }
            Command::List { start: key, buffer_bytes } | Command::Seek { key, buffer_bytes } => {
                if let Some(key) = key {
                    set_key(&mut sqe, key, 0);
                }
                sqe.cdw10 = U32::new(buffer_bytes);
            }
            Command::Delete { key, must_exist } => {
                set_key(&mut sqe, key, if must_exist { MUST_EXIST } else { 0 });
            }
            Command::Exist { key } => set_key(&mut sqe, key, 0),
            Command::Write(Write { key, value_bytes }) => {
                set_key(&mut sqe, key, 0);
                sqe.cdw10 = U32::new(value_bytes);
            }
            Command::Hybrid { key, value_bytes, pages_z } => {
                set_key(&mut sqe, key, 0);
                sqe.cdw10 = U32::new(value_bytes);
                sqe.cdw12 = U32::new(pages_z);
            }
            Command::Flush | Command::Transfer => {}
            Command::Discard { stream } => sqe.cdw12 = U32::new(stream.into()),
            Command::StorePart(StorePart { store, at, bytes, stream }) => {
                set_key(&mut sqe, store.key, store.options.to_bits());
                set_part(&mut sqe, stream, bytes, store.value_bytes, at);
            }
            Command::RetrievePart(RetrievePart { key, at, bytes, stream, room, options }) => {
                set_key(&mut sqe, key, options.to_bits());
                set_part(&mut sqe, stream, bytes, room, at);
            }
            Command::Next { iterator, buffer_bytes, pairs_z } => {
                sqe.cdw10 = U32::new(buffer_bytes);
                sqe.cdw12 = U32::new(iterator);
                sqe.cdw13 = U32::new(pairs_z.into());
            }
            Command::IterClose { iterator } => sqe.cdw12 = U32::new(iterator),
            Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes } => {
                set_key(&mut sqe, key, tail_bytes);
                sqe.cdw10 = U32::new(value_bytes);
                sqe.cdw12 = U32::new(window_offset);
                sqe.cdw13 = U32::new(generation);
            }
            Command::Batch(Batch { value_bytes, source }) => {
                sqe.cdw10 = U32::new(value_bytes);
                match source {
                    ValueSource::Data | ValueSource::Inline | ValueSource::Chunks => {}
                    ValueSource::Hybrid { pages_z } => sqe.cdw12 = U32::new(pages_z),
                    ValueSource::Window { window_offset, generation, tail_bytes } => {
                        sqe.cdw11 = U32::new(u32::from(tail_bytes) << 8);
                        sqe.cdw12 = U32::new(window_offset);
                        sqe.cdw13 = U32::new(generation);
                    }
                }
            }
        }
        sqe
    }
}

fn hybrid(sqe: &Sqe) -> Result<Command, Status> {
    let (value_bytes, pages_z) = (sqe.cdw10.get(), sqe.cdw12.get());
    let by_prp_bytes = (u64::from(pages_z) + 1) * u64::from(PAGE_BYTES);
    if by_prp_bytes >= u64::from(value_bytes) {
        return Err(Status::INVALID_FIELD);
    }
    Ok(match optional_key(sqe)? {
        Some(key) => Command::Hybrid { key, value_bytes, pages_z },
        None => Command::Batch(Batch { value_bytes, source: ValueSource::Hybrid { pages_z } }),
    })
}

fn cxl_store(sqe: &Sqe) -> Result<Command, Status> {
    let (value_bytes, tail_bytes) = (sqe.cdw10.get(), option_bits(sqe));
    if usize::from(tail_bytes) > tail_room(key_bytes(sqe)) || u32::from(tail_bytes) > value_bytes {
        return Err(Status::INVALID_FIELD);
    }
    let (window_offset, generation) = (sqe.cdw12.get(), sqe.cdw13.get());
    Ok(match optional_key(sqe)? {
        Some(key) => Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes },
        None => Command::Batch(Batch {
            value_bytes,
            source: ValueSource::Window { window_offset, generation, tail_bytes },
        }),
    })
}

fn store_part(sqe: &Sqe) -> Result<Command, Status> {
    let (value_bytes, at, bytes) = (sqe.cdw12.get(), sqe.cdw13.get(), sqe.cdw10.get());
    let (options, stream) = (StoreOptions::from_bits(option_bits(sqe))?, stream(sqe));
    let is_inside = at.checked_add(bytes).is_some_and(|end| end <= value_bytes);
    if !is_inside || bytes == 0 && value_bytes > 0 || stream == 0 || stream == ALL_STREAMS {
        return Err(Status::INVALID_FIELD);
    }
    let store = Store { key: key(sqe)?, value_bytes, options };
    Ok(Command::StorePart(StorePart { store, at, bytes, stream }))
}

fn retrieve_part(sqe: &Sqe) -> Result<Command, Status> {
    let options = RetrieveOptions::from_bits(option_bits(sqe))?;
    let (at, bytes, stream, room) = (sqe.cdw13.get(), sqe.cdw10.get(), stream(sqe), sqe.cdw12.get());
    if stream == ALL_STREAMS {
        return Err(Status::INVALID_FIELD);
    }
    Ok(Command::RetrievePart(RetrievePart { key: key(sqe)?, at, bytes, stream, room, options }))
}

#[inline]
fn stream(sqe: &Sqe) -> u16 {
    (sqe.cdw11.get() >> 16) as u16
}

fn set_part(sqe: &mut Sqe, stream: u16, bytes: u32, of_bytes: u32, at: u32) {
    sqe.cdw11 = U32::new(sqe.cdw11.get() | u32::from(stream) << 16);
    (sqe.cdw10, sqe.cdw12, sqe.cdw13) = (U32::new(bytes), U32::new(of_bytes), U32::new(at));
}

#[inline]
fn key_bytes(sqe: &Sqe) -> usize {
    (sqe.cdw11.get() & 0xFF) as usize
}

#[inline]
fn option_bits(sqe: &Sqe) -> u8 {
    (sqe.cdw11.get() >> 8) as u8
}

#[inline]
fn key(sqe: &Sqe) -> Result<Key, Status> {
    let key = Key::from_padded(sqe.key_bytes(), key_bytes(sqe)).ok_or(Status::INVALID_KEY_SIZE)?;
    if key.is_long() && sqe.key_address() == 0 { Err(Status::INVALID_FIELD) } else { Ok(key) }
}

#[inline]
fn optional_key(sqe: &Sqe) -> Result<Option<Key>, Status> {
    match key_bytes(sqe) {
        0 => Ok(None),
        _ => key(sqe).map(Some),
    }
}

#[inline]
fn set_key(sqe: &mut Sqe, key: Key, option_bits: u8) {
    sqe.set_key_bytes(key.to_array());
    sqe.cdw11 = U32::new(key.len() as u32 | u32::from(option_bits) << 8);
}
