//! The PCI configuration space of a function: 256 bytes, and which of their bits a host can write.
//!
//! ```text
//!   00h  vendor, device, command, status, class 010802h (NVM Express), BAR 0 of 64 bits, interrupt pin A
//!   40h  power management    50h  MSI-X: table at 2000h, pending bits at 3000h of BAR 0
//!   60h  PCI Express endpoint, which can be reset by itself (FLR)
//! ```
//!
//! Vendor and device are numbers that PCI-SIG has not assigned. Hosts know an NVMe controller by its class.

use super::interrupts::VECTORS;

/// Size of the configuration space.
pub const CONFIG_BYTES: usize = 256;
/// Size of BAR 0.
pub const BAR0_BYTES: u64 = 0x4000;
/// Where the MSI-X table begins in BAR 0.
pub const VECTORS_AT: u64 = 0x2000;

const VENDOR: u16 = 0x4B56;
const DEVICE: u16 = 0x0001;
const COMMAND_AT: usize = 0x04;
/// Memory, bus master, parity, system errors, interrupts disabled.
const COMMAND_WRITABLE: u16 = 0x0546;
const INTERRUPTS_DISABLED: u16 = 1 << 10;
const STATUS_AT: usize = 0x06;
/// Status: there is a list of capabilities; an interrupt is up.
const HAS_CAPABILITIES: u16 = 1 << 4;
const INTERRUPT_STATUS: u16 = 1 << 3;
const BAR0_AT: usize = 0x10;
const POWER_AT: usize = 0x40;
const MSIX_AT: usize = 0x50;
const EXPRESS_AT: usize = 0x60;
/// Device control of PCI Express: bit 15 resets the function.
const DEVICE_CONTROL_AT: usize = EXPRESS_AT + 8;
const RESET_FUNCTION: u16 = 1 << 15;
/// BAR 0: in memory, with 64 bits.
const BAR_64_BITS: u32 = 0b100;

/// See the module.
pub struct ConfigSpace {
    bytes: [u8; CONFIG_BYTES],
    writable: [u8; CONFIG_BYTES],
}

impl Default for ConfigSpace {
    fn default() -> ConfigSpace {
        let mut space = ConfigSpace { bytes: [0; CONFIG_BYTES], writable: [0; CONFIG_BYTES] };
        space.put(0x00, &VENDOR.to_le_bytes(), &[0; 2]);
        space.put(0x02, &DEVICE.to_le_bytes(), &[0; 2]);
        space.put(COMMAND_AT, &[0; 2], &COMMAND_WRITABLE.to_le_bytes());
        space.put(STATUS_AT, &HAS_CAPABILITIES.to_le_bytes(), &[0; 2]);
        // Revision, then the class from its lowest byte on.
        space.put(0x08, &[0, 0x02, 0x08, 0x01], &[0; 4]);
        let bar = !(BAR0_BYTES - 1);
        space.put(BAR0_AT, &BAR_64_BITS.to_le_bytes(), &(bar as u32).to_le_bytes());
        space.put(BAR0_AT + 4, &[0; 4], &((bar >> 32) as u32).to_le_bytes());
        space.put(0x2C, &VENDOR.to_le_bytes(), &[0; 2]);
        space.put(0x2E, &DEVICE.to_le_bytes(), &[0; 2]);
        space.put(0x34, &[POWER_AT as u8], &[0]);
        // Interrupt line, which software keeps, and pin A.
        space.put(0x3C, &[0, 1], &[0xFF, 0]);
        // Version 3; D0 and D3hot; no soft reset of its own.
        space.put(POWER_AT, &[0x01, MSIX_AT as u8, 0x03, 0x00, 0x08, 0, 0, 0], &[0, 0, 0, 0, 0x03, 0, 0, 0]);
        let control = (VECTORS - 1).to_le_bytes();
        space.put(MSIX_AT, &[0x11, EXPRESS_AT as u8, control[0], control[1]], &[0, 0, 0, 0xC0]);
        space.put(MSIX_AT + 4, &(VECTORS_AT as u32).to_le_bytes(), &[0; 4]);
        space.put(MSIX_AT + 8, &(VECTORS_AT as u32 + 0x1000).to_le_bytes(), &[0; 4]);
        // Version 2, endpoint; role-based errors, and reset of the function.
        space.put(EXPRESS_AT, &[0x10, 0x00, 0x02, 0x00], &[0; 4]);
        space.put(EXPRESS_AT + 4, &(1_u32 << 15 | 1 << 28).to_le_bytes(), &[0; 4]);
        space.put(DEVICE_CONTROL_AT, &[0; 2], &0x7FFF_u16.to_le_bytes());
        // One lane of 2.5 GT/s. The real speed is that of the memory.
        space.put(EXPRESS_AT + 12, &[0x11, 0, 0, 0], &[0; 4]);
        space.put(EXPRESS_AT + 18, &[0x11, 0], &[0; 2]);
        space
    }
}

impl ConfigSpace {
    fn put(&mut self, at: usize, bytes: &[u8], writable: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.writable[at..at + writable.len()].copy_from_slice(writable);
    }

    /// Bytes from `at` on; `None` if they are not all in it. `is_interrupting` says whether the pin is up.
    pub fn read(&self, at: u64, count: usize, is_interrupting: bool) -> Option<Vec<u8>> {
        let at = usize::try_from(at).ok()?;
        let mut bytes = self.bytes;
        if is_interrupting {
            bytes[STATUS_AT] |= INTERRUPT_STATUS as u8;
        }
        Some(bytes.get(at..at.checked_add(count)?)?.to_vec())
    }

    /// Writes those of these bytes that are writable. `Some(true)`: the function is to be reset; `None`: they are not
    /// all in it.
    pub fn write(&mut self, at: u64, from: &[u8]) -> Option<bool> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(from.len()).filter(|end| *end <= CONFIG_BYTES)?;
        for (at, byte) in (at..end).zip(from) {
            let writable = self.writable[at];
            self.bytes[at] = self.bytes[at] & !writable | byte & writable;
        }
        let high = DEVICE_CONTROL_AT + 1;
        let is_reset = (at..end).contains(&high) && from[high - at] & (RESET_FUNCTION >> 8) as u8 != 0;
        Some(is_reset)
    }

    /// Has the host disabled the pin?
    pub fn is_pin_disabled(&self) -> bool {
        let command = u16::from_le_bytes([self.bytes[COMMAND_AT], self.bytes[COMMAND_AT + 1]]);
        command & INTERRUPTS_DISABLED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_finds_an_nvme_controller_with_its_capabilities() {
        let space = ConfigSpace::default();
        assert_eq!(space.read(0x09, 3, false).unwrap(), [0x02, 0x08, 0x01]);
        let (mut at, mut found) = (space.bytes[0x34], Vec::new());
        while at != 0 {
            found.push(space.bytes[usize::from(at)]);
            at = space.bytes[usize::from(at) + 1];
        }
        assert_eq!(found, [0x01, 0x11, 0x10], "power management, MSI-X, PCI Express");
        assert_eq!(space.read(0xFF, 2, false), None);
        assert_eq!(space.read(u64::MAX, 2, false), None);
    }

    #[test]
    fn a_bar_that_is_sized_says_how_large_it_is_and_fixed_bits_stay() {
        let mut space = ConfigSpace::default();
        space.write(0x10, &[0xFF; 8]);
        assert_eq!(space.read(0x10, 8, false).unwrap(), (!(BAR0_BYTES - 1) | 4).to_le_bytes());
        assert_eq!(space.write(0, &[0xFF; 4]), Some(false));
        assert_eq!(space.read(0, 2, false).unwrap(), VENDOR.to_le_bytes());
        assert_eq!(space.write(0xFE, &[0; 3]), None);
        assert_eq!(space.write(0x68, &[0, 0x80]), Some(true), "a reset of the function");
        assert_eq!(space.write(0x60, &[0; 8]), Some(false));
        space.write(4, &[0, 4]);
        assert!(space.is_pin_disabled());
    }
}
