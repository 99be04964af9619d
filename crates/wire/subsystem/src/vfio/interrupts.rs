//! Interrupts of a function: MSI-X vectors and the pin, each an eventfd of the client's.
//!
//! A vector is signalled for each batch of completions. The pin is a level: it is up as long as a completion queue has
//! entries that the host has not taken. The client is notified once, and again after it has unmasked the pin.
//!
//! Writes to an eventfd do not wait: a descriptor of another kind is refused, and each is made non-blocking. (A client
//! that undoes this and fills the counter could hold the thread; the mode of the socket's file says which users may
//! open it.)

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlink};
use rustix::io::Errno;

use super::message::{IrqInfo, IrqSet, irq};

/// MSI-X vectors: one for each queue that a controller may have.
pub const VECTORS: u16 = 65;

/// See the module.
pub struct Interrupts {
    pin: Option<OwnedFd>,
    /// The client was notified that the pin is up, and has not unmasked it.
    is_pin_masked: bool,
    vectors: Vec<Option<OwnedFd>>,
}

impl Default for Interrupts {
    fn default() -> Interrupts {
        let vectors = (0..VECTORS).map(|_| None).collect();
        Interrupts { pin: None, is_pin_masked: false, vectors }
    }
}

/// What GET_IRQ_INFO says: number and flags.
pub fn info(index: u32) -> Option<(u32, u32)> {
    match index {
        irq::INTX => Some((1, IrqInfo::EVENTFD | IrqInfo::MASKABLE | IrqInfo::AUTOMASKED)),
        irq::MSIX => Some((u32::from(VECTORS), IrqInfo::EVENTFD)),
        index if index < irq::COUNT => Some((0, 0)),
        _ => None,
    }
}

impl Interrupts {
    /// Carries out SET_IRQS; `data` are its bytes after the structure.
    ///
    /// # Errors
    /// `EINVAL`: it names an index, vectors or an action that do not exist, or its descriptors are not eventfds or not
    /// as many as it says. Nothing has changed then.
    pub fn set(&mut self, set: &IrqSet, data: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), Errno> {
        let (index, flags) = (set.index.get(), set.flags.get());
        let (start, count) = (set.start.get() as usize, set.count.get() as usize);
        let (most, _) = info(index).ok_or(Errno::INVAL)?;
        let end = start.checked_add(count).filter(|end| *end <= most as usize).ok_or(Errno::INVAL)?;
        const DATA: u32 = IrqSet::DATA_NONE | IrqSet::DATA_BOOL | IrqSet::DATA_EVENTFD;
        let bools = |at: usize| data.get(at).is_some_and(|is| *is != 0);
        match (flags & DATA, flags & !DATA) {
            (IrqSet::DATA_NONE, IrqSet::TRIGGER) if count == 0 => self.take_away(index, 0, most as usize),
            (IrqSet::DATA_NONE, IrqSet::TRIGGER) => (start..end).for_each(|at| self.trigger(index, at)),
            (IrqSet::DATA_BOOL, IrqSet::TRIGGER) if data.len() >= count => {
                (start..end).filter(|at| bools(at - start)).for_each(|at| self.trigger(index, at));
            }
            (IrqSet::DATA_EVENTFD, IrqSet::TRIGGER) if descriptors.is_empty() => {
                self.take_away(index, start, end);
            }
            (IrqSet::DATA_EVENTFD, IrqSet::TRIGGER) if descriptors.len() == count => {
                descriptors.iter().try_for_each(check)?;
                for (at, descriptor) in (start..end).zip(descriptors) {
                    *self.place(index, at) = Some(descriptor);
                }
                self.is_pin_masked &= index != irq::INTX;
            }
            (IrqSet::DATA_NONE, IrqSet::MASK) if index == irq::INTX => self.is_pin_masked |= count > 0,
            (IrqSet::DATA_NONE, IrqSet::UNMASK) if index == irq::INTX => self.is_pin_masked &= count == 0,
            (IrqSet::DATA_BOOL, IrqSet::MASK) if index == irq::INTX => self.is_pin_masked |= bools(0),
            (IrqSet::DATA_BOOL, IrqSet::UNMASK) if index == irq::INTX => self.is_pin_masked &= !bools(0),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn place(&mut self, index: u32, at: usize) -> &mut Option<OwnedFd> {
        if index == irq::INTX { &mut self.pin } else { &mut self.vectors[at] }
    }

    fn take_away(&mut self, index: u32, start: usize, end: usize) {
        (start..end).for_each(|at| *self.place(index, at) = None);
    }

    fn trigger(&mut self, index: u32, at: usize) {
        if let Some(eventfd) = self.place(index, at) {
            signal(eventfd);
        }
    }

    /// Signals a vector; `false` if the client has no eventfd for it.
    pub fn signal_vector(&self, vector: u16) -> bool {
        let eventfd = self.vectors.get(usize::from(vector)).and_then(Option::as_ref);
        eventfd.map(signal).is_some()
    }

    /// Has the client eventfds for MSI-X? Then the pin is not used.
    pub fn has_vectors(&self) -> bool {
        self.vectors.iter().any(Option::is_some)
    }

    /// The pin is asserted: signals the client, unless it was signalled and has not unmasked the pin since.
    pub fn raise_pin(&mut self) {
        if let (Some(eventfd), false) = (&self.pin, self.is_pin_masked) {
            signal(eventfd);
            self.is_pin_masked = true;
        }
    }
}

fn signal(eventfd: &OwnedFd) {
    // EAGAIN: the counter is full, so the client has been notified already.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}

/// Is this an eventfd? Makes it non-blocking.
fn check(descriptor: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let link = readlink(format!("/proc/self/fd/{}", descriptor.as_raw_fd()), Vec::new())?;
    if std::ffi::OsStr::from_bytes(link.as_bytes()) != "anon_inode:[eventfd]" {
        return Err(Errno::INVAL);
    }
    fcntl_setfl(descriptor.as_fd(), fcntl_getfl(descriptor)? | OFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn set(flags: u32, index: u32, start: u32, count: u32) -> IrqSet {
        let [argsz, flags, index, start, count] = [20, flags, index, start, count].map(Into::into);
        IrqSet { argsz, flags, index, start, count }
    }

    fn new() -> (OwnedFd, OwnedFd) {
        let ours = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        (ours.try_clone().unwrap(), ours)
    }

    fn count(eventfd: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(eventfd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    const USE: u32 = IrqSet::DATA_EVENTFD | IrqSet::TRIGGER;

    #[test]
    fn vectors_are_set_in_parts_signalled_and_taken_away() {
        let mut interrupts = Interrupts::default();
        let (first, to_first) = new();
        let (last, to_last) = new();
        interrupts.set(&set(USE, irq::MSIX, 0, 1), &[], vec![to_first]).unwrap();
        interrupts.set(&set(USE, irq::MSIX, 64, 1), &[], vec![to_last]).unwrap();
        assert!(interrupts.signal_vector(0) && interrupts.signal_vector(64));
        assert!(!interrupts.signal_vector(1) && !interrupts.signal_vector(u16::MAX));
        let loopback = set(IrqSet::DATA_BOOL | IrqSet::TRIGGER, irq::MSIX, 0, 2);
        interrupts.set(&loopback, &[1, 1], Vec::new()).unwrap();
        assert_eq!((count(&first), count(&last)), (2, 1));
        interrupts.set(&set(USE, irq::MSIX, 0, 1), &[], Vec::new()).unwrap();
        assert!(!interrupts.signal_vector(0) && interrupts.has_vectors());
        interrupts.set(&set(0x21, irq::MSIX, 0, 0), &[], Vec::new()).unwrap();
        assert!(!interrupts.has_vectors());
    }

    #[test]
    fn the_pin_is_told_of_once_until_it_is_unmasked() {
        let mut interrupts = Interrupts::default();
        let (pin, to_pin) = new();
        interrupts.set(&set(USE, irq::INTX, 0, 1), &[], vec![to_pin]).unwrap();
        interrupts.raise_pin();
        interrupts.raise_pin();
        assert_eq!(count(&pin), 1);
        interrupts.set(&set(IrqSet::DATA_NONE | IrqSet::UNMASK, irq::INTX, 0, 1), &[], Vec::new()).unwrap();
        interrupts.raise_pin();
        assert_eq!(count(&pin), 1);
    }

    #[test]
    fn what_is_no_eventfd_or_not_there_is_refused_and_changes_nothing() {
        let mut interrupts = Interrupts::default();
        let (pipe, other) = std::io::pipe().unwrap();
        let (pipe, other): (OwnedFd, OwnedFd) = (pipe.into(), other.into());
        let wrong = [
            (set(USE, irq::MSIX, 0, 1), vec![other]),
            (set(USE, irq::MSIX, 0, 2), vec![new().1]),
            (set(USE, irq::MSIX, 0, 2), vec![new().1, pipe]),
            (set(USE, irq::MSIX, 64, 2), vec![new().1, new().1]),
            (set(USE, irq::MSIX, u32::MAX, 2), vec![new().1, new().1]),
            (set(USE, 1, 0, 1), vec![new().1]),
            (set(USE, 9, 0, 1), vec![new().1]),
            (set(IrqSet::DATA_NONE | IrqSet::MASK, irq::MSIX, 0, 1), Vec::new()),
            (set(IrqSet::DATA_BOOL | IrqSet::TRIGGER, irq::MSIX, 0, 1), Vec::new()),
            (set(u32::MAX, irq::INTX, 0, 1), Vec::new()),
        ];
        for (set, descriptors) in wrong {
            assert_eq!(interrupts.set(&set, &[], descriptors), Err(Errno::INVAL));
        }
        assert!(!interrupts.has_vectors());
    }
}
