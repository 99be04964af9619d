//! Memory of a guest that its function reaches by DMA: regions that the client maps and unmaps at any moment.
//!
//! Every access looks up its address again, and copies: only the copy of the bytes is examined, since the guest may
//! change its own meanwhile. An access to memory that is not mapped, or not for that direction, fails and copies
//! nothing.
//!
//! A region is a part of a file whose descriptor the client sends, and which the client may make shorter at any moment:
//!
//! | file | reached by | if it becomes shorter |
//! |---|---|---|
//! | memfd, file in tmpfs or hugetlbfs, in a process that handles faults ([`super::faults`]) | a mapping | its pages have zeros, and [`GuestMemory::has_lost_pages`] says so: nothing that was read since counts |
//! | elsewhere: memfd that is sealed against shrinking (QEMU's memfd backend seals) | a mapping | it cannot |
//! | elsewhere: other memfd, file in tmpfs | `pread`, `pwrite` | they fail |
//!
//! Access to other files may block the thread without a time limit, so they are refused; so is hugetlbfs where faults are
//! not handled, since it cannot be written. A region without a descriptor is known, and no access to it succeeds. No system
//! call is given an address of a mapping: bytes are copied first.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use kvdrive_link::BadAddress;
use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use rustix::io::Errno;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

use super::faults::{self, Watch};
use super::message::DmaMap;

/// Regions are of whole pages.
const PAGE_BYTES: u64 = 4096;
/// Most regions of a client.
pub const REGIONS_MAX: usize = 256;
/// Most bytes in regions of a client: guests are smaller, and the process needs addresses of its own.
const BYTES_MAX: u64 = 1 << 40;
/// The types that `statfs` reports for tmpfs and most memfds, and for huge pages.
const TMPFS: u32 = 0x0102_1994;
const HUGETLBFS: u32 = 0x9584_58F6;

/// See the module.
#[derive(Default)]
pub struct GuestMemory {
    /// By address; they do not overlap.
    regions: Vec<Region>,
    /// [`faults::count`] when regions were last looked at.
    faults_seen: Cell<u64>,
    has_lost_pages: Cell<bool>,
}

/// Why a region is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// For the client.
    pub errno: Errno,
    /// For the operator.
    pub why: &'static str,
}

fn refused<T>(errno: Errno, why: &'static str) -> Result<T, Refused> {
    Err(Refused { errno, why })
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused { errno, why: "a system call failed for its file" }
    }
}

struct Region {
    address: u64,
    bytes: u64,
    may_read: bool,
    may_write: bool,
    backing: Backing,
}

enum Backing {
    /// Part of a file that keeps its length, or whose pages are replaced where it does not.
    Mapped(Mapping),
    /// Part of another file, from this offset on.
    File(File, u64),
    /// No file: the client keeps it to itself.
    Nothing,
}

/// Whole pages of a file.
struct Mapping {
    /// Ends before the mapping does.
    watch: Option<Watch>,
    pages: MmapRegion,
    /// Where the region begins in them.
    from: u64,
}

impl Mapping {
    /// The place of a byte of the region.
    fn place(&self, at: u64) -> Option<usize> {
        usize::try_from(self.from + at).ok()
    }
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
    pub fn map(&mut self, wanted: &DmaMap, descriptor: Option<OwnedFd>) -> Result<(), Refused> {
        let (address, bytes, flags) = (wanted.address.get(), wanted.bytes.get(), wanted.flags.get());
        let are_pages = [address, bytes, wanted.offset.get()].iter().all(|of| of.is_multiple_of(PAGE_BYTES));
        let end = address.checked_add(bytes);
        let (true, Some(end), 1..) = (are_pages, end, bytes) else {
            return refused(Errno::INVAL, "addresses, offset and length have to be of whole pages of 4096 B");
        };
        if flags & !(DmaMap::READ | DmaMap::WRITE) != 0 {
            return refused(Errno::INVAL, "it has unknown flags");
        }
        let at = self.regions.partition_point(|region| region.address < address);
        let overlaps_before = at > 0 && self.regions[at - 1].end() > address;
        let overlaps_after = self.regions.get(at).is_some_and(|region| region.address < end);
        if overlaps_before || overlaps_after {
            return refused(Errno::EXIST, "it overlaps another region");
        }
        let may_write = flags & DmaMap::WRITE != 0;
        let mapped_bytes: u64 = self.regions.iter().map(Region::mapped_bytes).sum();
        if self.regions.len() >= REGIONS_MAX {
            return refused(Errno::NOMEM, "there are as many regions as a client may have");
        }
        let backing = match descriptor {
            None => Backing::Nothing,
            Some(_) if mapped_bytes.checked_add(bytes).is_none_or(|sum| sum > BYTES_MAX) => {
                return refused(Errno::NOMEM, "its regions would have more bytes than a client may have");
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
        self.look_for_lost_pages();
        Ok(())
    }

    /// Unmaps all regions.
    pub fn unmap_all(&mut self) {
        self.regions.clear();
        self.look_for_lost_pages();
    }

    /// Was memory touched that its file no longer has, in a region that is still mapped? Then what was read from it since,
    /// zeros, is nothing that the guest wrote.
    pub fn has_lost_pages(&self) -> bool {
        if faults::count() != self.faults_seen.get() {
            self.look_for_lost_pages();
        }
        self.has_lost_pages.get()
    }

    fn look_for_lost_pages(&self) {
        self.faults_seen.set(faults::count());
        self.has_lost_pages.set(self.regions.iter().any(Region::has_lost_pages));
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
            Backing::Mapped(mapping) => {
                let word = mapping.pages.get_atomic_ref::<AtomicU32>(mapping.place(at)?).ok()?;
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

    fn has_lost_pages(&self) -> bool {
        let Backing::Mapped(mapping) = &self.backing else { return false };
        mapping.watch.as_ref().is_some_and(Watch::has_faulted)
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
            Backing::Mapped(mapping) => {
                mapping.pages.get_slice(mapping.place(at)?, into.len()).ok()?.copy_to(into);
                Some(())
            }
            Backing::File(file, offset) => file.read_exact_at(into, offset + at).ok(),
            Backing::Nothing => None,
        }
    }

    fn write(&self, at: u64, from: &[u8]) -> Option<()> {
        match &self.backing {
            Backing::Mapped(mapping) => {
                mapping.pages.get_slice(mapping.place(at)?, from.len()).ok()?.copy_from(from);
                Some(())
            }
            Backing::File(file, offset) => file.write_all_at(from, offset + at).ok(),
            Backing::Nothing => None,
        }
    }
}

/// How a part of a file is reached.
fn back(descriptor: OwnedFd, offset: u64, bytes: u64, may_write: bool) -> Result<Backing, Refused> {
    let system = fstatfs(&descriptor)?;
    let is_handled = faults::are_handled();
    let page_bytes = match system.f_type as u32 {
        TMPFS => rustix::param::page_size() as u64,
        HUGETLBFS if is_handled => system.f_bsize as u64,
        HUGETLBFS => {
            return refused(Errno::INVAL, "its file is of huge pages, and faults are not handled here");
        }
        _ => return refused(Errno::INVAL, "its file is no memfd, and in neither tmpfs nor hugetlbfs"),
    };
    let is_sealed = fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let file = File::from(descriptor);
    // A sealed file's length cannot shrink any more when it is read.
    let length = file.metadata().map_err(|_| Errno::INVAL)?.len();
    let Some(end) = offset.checked_add(bytes).filter(|end| *end <= length) else {
        return refused(Errno::INVAL, "its file is shorter");
    };
    if !(is_sealed || is_handled) {
        return Ok(Backing::File(file, offset));
    }
    // Pages are mapped whole, and huge ones are larger than what regions are multiples of.
    let start = offset - offset % page_bytes;
    let whole = end.checked_next_multiple_of(page_bytes).and_then(|end| usize::try_from(end - start).ok());
    let Some(whole) = whole else { return refused(Errno::NOMEM, "it is too long") };
    let protection = if may_write { PROT_READ | PROT_WRITE } else { PROT_READ };
    let mapped = MmapRegion::build(Some(FileOffset::new(file, start)), whole, protection, MAP_SHARED);
    let Ok(pages) = mapped else { return refused(Errno::NOMEM, "its file cannot be mapped") };
    let watch = faults::watch(pages.as_ptr().addr(), whole, page_bytes as usize);
    if watch.is_none() && is_handled {
        return refused(Errno::NOMEM, "there are as many mappings as can be watched");
    }
    Ok(Backing::Mapped(Mapping { watch, pages, from: offset - start }))
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

    fn errno(mapped: Result<(), Refused>) -> Errno {
        mapped.unwrap_err().errno
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
        assert_eq!(errno(memory.map(&wanted(0x3000, 1, 0, BOTH), file())), Errno::EXIST);
        assert_eq!(errno(memory.map(&wanted(0x1000, 2, 0, BOTH), file())), Errno::EXIST);
        assert_eq!(errno(memory.map(&wanted(0x5000, 3, 0, BOTH), file())), Errno::INVAL, "a shorter file");
        assert_eq!(errno(memory.map(&wanted(0x5000, 1, u64::MAX - 0xFFF, BOTH), file())), Errno::INVAL);
        assert_eq!(errno(memory.map(&wanted(0x5001, 1, 0, BOTH), file())), Errno::INVAL, "no page");
        assert_eq!(errno(memory.map(&wanted(0x5000, 0, 0, BOTH), file())), Errno::INVAL);
        assert_eq!(errno(memory.map(&wanted(u64::MAX - 0xFFF, 1, 0, BOTH), file())), Errno::INVAL);
        let on_disk = File::open("/proc/version").unwrap();
        assert_eq!(errno(memory.map(&wanted(0x5000, 1, 0, BOTH), Some(on_disk.into()))), Errno::INVAL);
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(errno(memory.map(&wanted(0x5000, 1, 0, BOTH), Some(pipe.into()))), Errno::INVAL);
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
