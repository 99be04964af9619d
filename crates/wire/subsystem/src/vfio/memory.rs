//! Memory of a guest that its function reaches by DMA: regions that the client maps and unmaps at any moment.
//!
//! Every access looks up its address again, and copies: only the copy of the bytes is examined, since the guest may
//! change its own meanwhile. An access to memory that is not mapped, or not for that direction, fails and copies
//! nothing.
//!
//! A region is a part of a file whose descriptor the client sends. Two kinds of files are taken:
//!
//! | file | reached by | because |
//! |---|---|---|
//! | memfd that is sealed against shrinking (QEMU's memfd backend seals) | a mapping | it cannot be taken away: a mapping of a file that has become shorter ends the process that touches it (SIGBUS) |
//! | other memfd, file in tmpfs | `pread`, `pwrite` | they fail instead |
//!
//! Access to other files may block the thread without a time limit, so they are refused; so is hugetlbfs, which cannot
//! be written. A region without a descriptor is known, and no access to it succeeds.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use kvdrive_link::BadAddress;
use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use rustix::io::Errno;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use super::message::DmaMap;

/// Regions are of whole pages.
const PAGE_BYTES: u64 = 4096;
/// Most regions of a client.
pub const REGIONS_MAX: usize = 256;
/// Most bytes in regions of a client: guests are smaller, and the process needs addresses of its own.
const BYTES_MAX: u64 = 1 << 40;
/// The type that `statfs` reports for tmpfs, and for a memfd.
const TMPFS: u32 = 0x0102_1994;

/// See the module.
#[derive(Default)]
pub struct GuestMemory {
    /// By address; they do not overlap.
    regions: Vec<Region>,
}

struct Region {
    address: u64,
    bytes: u64,
    may_read: bool,
    may_write: bool,
    backing: Backing,
}

enum Backing {
    /// Part of a file that keeps its length.
    Mapped(MmapRegion),
    /// Part of another file, from this offset on.
    File(File, u64),
    /// No file: the client keeps it to itself.
    Nothing,
}

/// Direction of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl GuestMemory {
    /// Maps a region.
    ///
    /// # Errors
    /// `EEXIST` if it overlaps another region; `EINVAL` if it is not of whole pages, or its file is of another kind or
    /// too short; `ENOMEM` if there are too many regions or bytes; the error of a system call.
    pub fn map(&mut self, wanted: &DmaMap, descriptor: Option<OwnedFd>) -> Result<(), Errno> {
        let (address, bytes, flags) = (wanted.address.get(), wanted.bytes.get(), wanted.flags.get());
        let are_pages = [address, bytes, wanted.offset.get()].iter().all(|of| of.is_multiple_of(PAGE_BYTES));
        let end = address.checked_add(bytes).ok_or(Errno::INVAL)?;
        if !are_pages || bytes == 0 || flags & !(DmaMap::READ | DmaMap::WRITE) != 0 {
            return Err(Errno::INVAL);
        }
        let at = self.regions.partition_point(|region| region.address < address);
        let overlaps_before = at > 0 && self.regions[at - 1].end() > address;
        let overlaps_after = self.regions.get(at).is_some_and(|region| region.address < end);
        if overlaps_before || overlaps_after {
            return Err(Errno::EXIST);
        }
        let may_write = flags & DmaMap::WRITE != 0;
        let mapped_bytes: u64 = self.regions.iter().map(Region::mapped_bytes).sum();
        if self.regions.len() >= REGIONS_MAX {
            return Err(Errno::NOMEM);
        }
        let backing = match descriptor {
            None => Backing::Nothing,
            Some(_) if mapped_bytes.checked_add(bytes).is_none_or(|sum| sum > BYTES_MAX) => {
                return Err(Errno::NOMEM);
            }
            Some(descriptor) => back(descriptor, wanted.offset.get(), bytes, may_write)?,
        };
        let may_read = flags & DmaMap::READ != 0;
        self.regions.insert(at, Region { address, bytes, may_read, may_write, backing });
        Ok(())
    }

    /// Unmaps a region, exactly as it was mapped.
    ///
    /// # Errors
    /// `EINVAL`: there is no such region.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Errno> {
        let is_meant = |region: &Region| (region.address, region.bytes) == (address, bytes);
        let at = self.regions.iter().position(is_meant).ok_or(Errno::INVAL)?;
        self.regions.remove(at);
        Ok(())
    }

    /// Unmaps all regions.
    pub fn unmap_all(&mut self) {
        self.regions.clear();
    }

    /// Calls `act` with the parts of a range, each in one region: the region, where in it, and which bytes of the
    /// range. Nothing is called if a part is not mapped for this access.
    fn parts(
        &self,
        address: u64,
        bytes: usize,
        access: Access,
        mut act: impl FnMut(&Region, u64, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), BadAddress> {
        let bad = BadAddress { address, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
        let end = address.checked_add(bytes as u64).ok_or(bad)?;
        let first = self.regions.partition_point(|region| region.end() <= address);
        let mut from = address;
        for region in &self.regions[first..] {
            if from >= end {
                break;
            }
            if region.address > from || !region.may(access) {
                return Err(bad);
            }
            from = region.end();
        }
        if from < end {
            return Err(bad);
        }
        let mut from = address;
        for region in &self.regions[first..] {
            if from >= end {
                break;
            }
            let to = region.end().min(end);
            let range = (from - address) as usize..(to - address) as usize;
            act(region, from - region.address, range).ok_or(bad)?;
            from = to;
        }
        Ok(())
    }

    /// Copies bytes of the guest.
    ///
    /// # Errors
    /// Some of them cannot be read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        self.parts(address, into.len(), Access::Read, |region, at, range| region.read(at, &mut into[range]))
    }

    /// Copies bytes to the guest.
    ///
    /// # Errors
    /// Some of them cannot be written.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        self.parts(address, from.len(), Access::Write, |region, at, range| region.write(at, &from[range]))
    }

    /// Writes four bytes at an address that is a multiple of four, at once and after all that was written before.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn publish(&self, address: u64, value: u32) -> Result<(), BadAddress> {
        self.parts(address, 4, Access::Write, |region, at, _| match &region.backing {
            Backing::Mapped(mapped) => {
                let word = mapped.get_atomic_ref::<AtomicU32>(usize::try_from(at).ok()?).ok()?;
                word.store(value.to_le(), Ordering::Release);
                Some(())
            }
            Backing::File(..) | Backing::Nothing => region.write(at, &value.to_le_bytes()),
        })
    }
}

impl Region {
    fn end(&self) -> u64 {
        self.address + self.bytes
    }

    fn mapped_bytes(&self) -> u64 {
        if matches!(self.backing, Backing::Nothing) { 0 } else { self.bytes }
    }

    fn may(&self, access: Access) -> bool {
        let is_there = !matches!(self.backing, Backing::Nothing);
        is_there && if access == Access::Read { self.may_read } else { self.may_write }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Option<()> {
        match &self.backing {
            Backing::Mapped(mapped) => {
                mapped.get_slice(usize::try_from(at).ok()?, into.len()).ok()?.copy_to(into);
                Some(())
            }
            Backing::File(file, offset) => file.read_exact_at(into, offset + at).ok(),
            Backing::Nothing => None,
        }
    }

    fn write(&self, at: u64, from: &[u8]) -> Option<()> {
        match &self.backing {
            Backing::Mapped(mapped) => {
                mapped.get_slice(usize::try_from(at).ok()?, from.len()).ok()?.copy_from(from);
                Some(())
            }
            Backing::File(file, offset) => file.write_all_at(from, offset + at).ok(),
            Backing::Nothing => None,
        }
    }
}

/// How a part of a file is reached.
fn back(descriptor: OwnedFd, offset: u64, bytes: u64, may_write: bool) -> Result<Backing, Errno> {
    if fstatfs(&descriptor)?.f_type as u32 != TMPFS {
        return Err(Errno::INVAL);
    }
    let seals = fcntl_get_seals(&descriptor)?;
    let file = File::from(descriptor);
    // The length cannot shrink any more when it is read after the seal.
    let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
    let length = file.metadata().map_err(|_| Errno::INVAL)?.len();
    if end > length {
        return Err(Errno::INVAL);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Ok(Backing::File(file, offset));
    }
    let bytes = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
    let protection = if may_write { PROT_READ | PROT_WRITE } else { PROT_READ };
    let mapped = MmapRegion::build(Some(FileOffset::new(file, offset)), bytes, protection, MAP_SHARED);
    Ok(Backing::Mapped(mapped.map_err(|_| Errno::NOMEM)?))
}

/// Numbers of Linux's `mman.h`, the same on every architecture.
const PROT_READ: i32 = 1;
const PROT_WRITE: i32 = 2;
const MAP_SHARED: i32 = 1;

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn wanted(address: u64, pages: u64, offset: u64, flags: u32) -> DmaMap {
        let bytes = (pages * PAGE_BYTES).into();
        DmaMap {
            argsz: 32.into(),
            flags: flags.into(),
            offset: offset.into(),
            address: address.into(),
            bytes,
        }
    }

    const BOTH: u32 = DmaMap::READ | DmaMap::WRITE;

    #[test]
    fn a_range_over_several_regions_is_copied_whole_or_not_at_all() {
        let mut memory = GuestMemory::default();
        let sealed = memfd(2 * PAGE_BYTES, SealFlags::SHRINK);
        let open = memfd(2 * PAGE_BYTES, SealFlags::empty());
        memory.map(&wanted(0x1000, 1, PAGE_BYTES, BOTH), Some(sealed)).unwrap();
        memory.map(&wanted(0x2000, 2, 0, BOTH), Some(open)).unwrap();
        memory.map(&wanted(0x4000, 1, 0, BOTH), None).unwrap();
        memory.write(0x1FFE, &[1, 2, 3, 4]).unwrap();
        let mut back = [0; 4];
        memory.read(0x1FFE, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        for (address, bytes) in [(0x0FFF, 2), (0x3FFF, 2), (0x4000, 1), (u64::MAX, 2), (0x1000, 0x4000)] {
            assert!(memory.write(address, &vec![9; bytes]).is_err(), "{address:#x}");
            assert!(memory.read(address, &mut vec![0; bytes]).is_err(), "{address:#x}");
        }
        memory.read(0x1000, &mut back).unwrap();
        assert_eq!(back, [0; 4], "nothing of what failed was written");
    }

    #[test]
    fn a_region_is_refused_that_overlaps_or_whose_file_may_hold_or_end_the_process() {
        let mut memory = GuestMemory::default();
        let file = || Some(memfd(2 * PAGE_BYTES, SealFlags::SHRINK));
        memory.map(&wanted(0x2000, 2, 0, BOTH), file()).unwrap();
        assert_eq!(memory.map(&wanted(0x3000, 1, 0, BOTH), file()), Err(Errno::EXIST));
        assert_eq!(memory.map(&wanted(0x1000, 2, 0, BOTH), file()), Err(Errno::EXIST));
        assert_eq!(memory.map(&wanted(0x5000, 3, 0, BOTH), file()), Err(Errno::INVAL), "a shorter file");
        assert_eq!(memory.map(&wanted(0x5000, 1, u64::MAX - 0xFFF, BOTH), file()), Err(Errno::INVAL));
        assert_eq!(memory.map(&wanted(0x5001, 1, 0, BOTH), file()), Err(Errno::INVAL), "no page");
        assert_eq!(memory.map(&wanted(0x5000, 0, 0, BOTH), file()), Err(Errno::INVAL));
        assert_eq!(memory.map(&wanted(u64::MAX - 0xFFF, 1, 0, BOTH), file()), Err(Errno::INVAL));
        let on_disk = File::open("/proc/version").unwrap();
        assert_eq!(memory.map(&wanted(0x5000, 1, 0, BOTH), Some(on_disk.into())), Err(Errno::INVAL));
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(memory.map(&wanted(0x5000, 1, 0, BOTH), Some(pipe.into())), Err(Errno::INVAL));
        assert_eq!(memory.unmap(0x2000, PAGE_BYTES), Err(Errno::INVAL), "a part");
        memory.unmap(0x2000, 2 * PAGE_BYTES).unwrap();
        assert!(memory.read(0x2000, &mut [0]).is_err());
    }

    #[test]
    fn memory_that_shrinks_is_an_error_and_not_the_end_of_the_process() {
        let mut memory = GuestMemory::default();
        let file = File::from(memfd(PAGE_BYTES, SealFlags::empty()));
        memory.map(&wanted(0, 1, 0, BOTH), Some(file.try_clone().unwrap().into())).unwrap();
        ftruncate(&file, 0).unwrap();
        assert!(memory.read(0, &mut [0; 8]).is_err());
        let sealed = File::from(memfd(PAGE_BYTES, SealFlags::SHRINK));
        assert!(ftruncate(&sealed, 0).is_err(), "the other kind cannot");
    }

    #[test]
    fn memory_for_one_direction_is_not_for_the_other() {
        let mut memory = GuestMemory::default();
        for (page, flags) in [(0, DmaMap::READ), (1, DmaMap::WRITE), (2, 0)] {
            let file = memfd(PAGE_BYTES, SealFlags::SHRINK);
            memory.map(&wanted(page * PAGE_BYTES, 1, 0, flags), Some(file)).unwrap();
            let at = page * PAGE_BYTES;
            assert_eq!(memory.write(at, &[1]).is_ok(), flags & DmaMap::WRITE != 0);
            assert_eq!(memory.publish(at, 1).is_ok(), flags & DmaMap::WRITE != 0);
            assert_eq!(memory.read(at, &mut [0]).is_ok(), flags & DmaMap::READ != 0);
        }
    }
}
