//! Value bytes inside commands: where a *write* and a *transfer* carry them.
//!
//! ```text
//!  write     byte 16              40     44   45           56         64
//!   +--------+--------------------+------+----+------------+-----------+
//!   | header | value 0..23        | size | KL | value      | key       |     35 bytes
//!   |  + key | dwords 4-9         |      |    | 24..34     | 8..15     |
//!   +--------+--------------------+------+----+------------+-----------+
//!                                              dword 11 b31:8, dwords 12-13
//!
//!  transfer  byte 8                                                   64
//!   +--------+--------------------------------------------------------+
//!   | header | next 56 bytes of the value: dwords 2-15                |     56 bytes
//!   +--------+--------------------------------------------------------+
//!
//!  express   an entry with key and size, and directly after it in the queue
//!   +-----------------------------------------------------------------+
//!   | 64 bytes of the value, and nothing else: a chunk                |     as many as it takes
//!   +-----------------------------------------------------------------+
//! ```
//!
//! The layout is that of the ICPP paper, section 3.2 and figure 6: metadata and data pointer, the three free
//! bytes beside the key length, and two reserved dwords. (The released code drops the key length and carries
//! 36 bytes; kvdrive keeps the key length.) Bytes after the end of a value are zero. A key of more than 16 bytes is
//! named by dwords 4 and 5 ([`crate::command`]), so a *write* has 27 value bytes beside it, and a CXL store 16.
//!
//! Chunks are not commands: a drive takes them together with the *express* before them and completes only the
//! *express* (ByteExpress, HotStorage'25; opcode and size field are kvdrive's). One doorbell must publish
//! them all; a drive that finds too few refuses the *express* with 0Ch and takes no chunk.
//!
//! A *transfer* names no value: it continues the unfinished value of its queue. The queue keeps that order,
//! and the controller keeps the number of missing bytes.

use crate::key::Key;
use crate::sqe::Sqe;

/// Value bytes in a *write* with a key of at most 16 bytes.
pub const WRITE_INLINE_BYTES: usize = FRONT_BYTES + REAR_BYTES;
/// Value bytes in a *transfer*.
pub const TRANSFER_INLINE_BYTES: usize = Sqe::BYTES - TRANSFER_AT;

/// Value bytes in a CXL store with a key of at most 16 bytes: a tail for which a further flit would cost more than it carries.
pub const TAIL_INLINE_BYTES: usize = FRONT_BYTES;

/// Bytes of the pointer to a key of more than 16 bytes, dwords 4 and 5.
const KEY_POINTER_BYTES: usize = 8;

const FRONT_AT: usize = 16;
const FRONT_BYTES: usize = 24;
const REAR_AT: usize = 45;
const REAR_BYTES: usize = 11;
const TRANSFER_AT: usize = 8;

const _: () = assert!(WRITE_INLINE_BYTES == 35 && TRANSFER_INLINE_BYTES == 56);

/// Number of commands that carry a value of this size: one *write* and the *transfer* commands after it.
#[inline]
#[must_use]
pub const fn commands_for(value_bytes: u32) -> u32 {
    1 + transfers_for(value_bytes.saturating_sub(WRITE_INLINE_BYTES as u32))
}

/// Number of *transfer* commands that carry `rest_bytes` bytes: the rest of a value after its *write*, or the tail of a
/// *hybrid*.
#[inline]
#[must_use]
pub const fn transfers_for(rest_bytes: u32) -> u32 {
    rest_bytes.div_ceil(TRANSFER_INLINE_BYTES as u32)
}

/// Value bytes in a chunk entry.
pub const CHUNK_BYTES: usize = Sqe::BYTES;

/// Number of chunk entries that carry a value of this size after an *express*.
#[inline]
#[must_use]
pub const fn chunks_for(value_bytes: u32) -> u32 {
    value_bytes.div_ceil(CHUNK_BYTES as u32)
}

/// The chunk entry of these bytes, filled up with zeros.
///
/// # Panics
/// More than [`CHUNK_BYTES`] bytes.
#[inline]
#[must_use]
pub fn chunk(bytes: &[u8]) -> Sqe {
    let mut entry = [0; CHUNK_BYTES];
    entry[..bytes.len()].copy_from_slice(bytes);
    Sqe::from_bytes(entry)
}

/// Bytes at the front of an entry's value bytes that name its key instead, a key of more than 16 bytes.
#[inline]
fn key_pointer_bytes(sqe: &Sqe) -> usize {
    if sqe.has_long_key() { KEY_POINTER_BYTES } else { 0 }
}

/// Value bytes that this *write* has room for: [`WRITE_INLINE_BYTES`], less beside a key of more than 16 bytes.
#[inline]
#[must_use]
pub fn write_room(sqe: &Sqe) -> usize {
    WRITE_INLINE_BYTES - key_pointer_bytes(sqe)
}

/// Value bytes that a CXL store has room for beside this key.
#[inline]
#[must_use]
pub const fn tail_room(key_bytes: usize) -> usize {
    if key_bytes > Key::IDENTITY_BYTES { FRONT_BYTES - KEY_POINTER_BYTES } else { FRONT_BYTES }
}

/// Puts the first bytes of `value` into a *write*; returns how many, at most [`write_room`]. Header, key, its pointer,
/// size and key length are not touched.
#[inline]
pub fn put_write(sqe: &mut Sqe, value: &[u8]) -> usize {
    if sqe.has_long_key() {
        return put_write_beside(sqe, value);
    }
    match value.first_chunk() {
        Some(full) => put_write_full(sqe, full),
        None => {
            let mut padded = [0; WRITE_INLINE_BYTES];
            padded[..value.len()].copy_from_slice(value);
            put_write_full(sqe, &padded);
        }
    }
    value.len().min(WRITE_INLINE_BYTES)
}

// Lengths are constants here: five moves instead of two calls of memcpy.
#[inline]
fn put_write_full(sqe: &mut Sqe, bytes: &[u8; WRITE_INLINE_BYTES]) {
    let entry = sqe.as_mut_bytes();
    entry[FRONT_AT..FRONT_AT + FRONT_BYTES].copy_from_slice(&bytes[..FRONT_BYTES]);
    entry[REAR_AT..REAR_AT + REAR_BYTES].copy_from_slice(&bytes[FRONT_BYTES..]);
}

/// As [`put_write`], behind the pointer to a key.
#[cold]
fn put_write_beside(sqe: &mut Sqe, value: &[u8]) -> usize {
    let sent_bytes = value.len().min(write_room(sqe));
    let mut bytes = [0; WRITE_INLINE_BYTES];
    bytes[..KEY_POINTER_BYTES].copy_from_slice(&sqe.as_bytes()[FRONT_AT..FRONT_AT + KEY_POINTER_BYTES]);
    bytes[KEY_POINTER_BYTES..][..sent_bytes].copy_from_slice(&value[..sent_bytes]);
    put_write_full(sqe, &bytes);
    sent_bytes
}

/// Reads the value bytes of a *write*, [`write_room`] of them. The value size says how many of them belong to the value.
#[inline]
pub fn get_write(sqe: &Sqe, out: &mut [u8; WRITE_INLINE_BYTES]) {
    let entry = sqe.as_bytes();
    out[..FRONT_BYTES].copy_from_slice(&entry[FRONT_AT..FRONT_AT + FRONT_BYTES]);
    out[FRONT_BYTES..].copy_from_slice(&entry[REAR_AT..REAR_AT + REAR_BYTES]);
    if sqe.has_long_key() {
        out.copy_within(KEY_POINTER_BYTES.., 0);
    }
}

/// Puts a value's last bytes into a CXL store.
///
/// # Panics
/// More than [`tail_room`] bytes.
#[inline]
pub fn put_tail(sqe: &mut Sqe, tail: &[u8]) {
    let pointer_bytes = key_pointer_bytes(sqe);
    assert!(pointer_bytes + tail.len() <= TAIL_INLINE_BYTES, "a tail of {} bytes", tail.len());
    sqe.as_mut_bytes()[FRONT_AT + pointer_bytes..][..tail.len()].copy_from_slice(tail);
}

/// Reads the tail of a CXL store. The command says how many of the bytes belong to the value.
#[inline]
pub fn get_tail(sqe: &Sqe, out: &mut [u8; TAIL_INLINE_BYTES]) {
    out.copy_from_slice(&sqe.as_bytes()[FRONT_AT..FRONT_AT + TAIL_INLINE_BYTES]);
    if sqe.has_long_key() {
        out.copy_within(KEY_POINTER_BYTES.., 0);
    }
}

/// Puts the first bytes of `rest`, the part of the value not sent yet, into a *transfer*; returns how many,
/// at most [`TRANSFER_INLINE_BYTES`].
#[inline]
pub fn put_transfer(sqe: &mut Sqe, rest: &[u8]) -> usize {
    let space = &mut sqe.as_mut_bytes()[TRANSFER_AT..];
    let taken = rest.len().min(TRANSFER_INLINE_BYTES);
    if let Some(full) = rest.first_chunk::<TRANSFER_INLINE_BYTES>() {
        space.copy_from_slice(full);
    } else {
        space[..taken].copy_from_slice(rest);
        space[taken..].fill(0);
    }
    taken
}

/// Reads the value bytes of a *transfer*. The value size says how many of them belong to the value.
#[inline]
pub fn get_transfer(sqe: &Sqe, out: &mut [u8; TRANSFER_INLINE_BYTES]) {
    out.copy_from_slice(&sqe.as_bytes()[TRANSFER_AT..]);
}
