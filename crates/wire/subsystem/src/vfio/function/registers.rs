//! BAR 0 of a function: registers, doorbells, and room for the MSI-X table, which the client keeps itself.

use kvdrive_nvme::property::{self, Configuration};

use super::Function;
use crate::shared::Core;
use crate::vfio::config_space::{BAR0_BYTES, ConfigSpace, VECTORS_AT};
use crate::vfio::doorbells::{DOORBELLS_AT, DOORBELLS_BYTES};
use crate::vfio::rings::{CompletionQueue, SubmissionQueue};

/// Registers that the subsystem does not implement.
const INTERRUPT_MASK_SET: u32 = 0x0C;
const INTERRUPT_MASK_CLEAR: u32 = 0x10;
const ADMIN_ENTRIES: u32 = 0x24;
const ADMIN_SUBMISSION: u32 = 0x28;
const ADMIN_COMPLETION: u32 = 0x30;
const ADMIN_SUBMISSION_UPPER: u32 = 0x2C;
const ADMIN_COMPLETION_UPPER: u32 = 0x34;
/// The registers that are not always zero.
const REGISTERS_BYTES: usize = 0x38;
/// AQA: bits that are not reserved.
const ADMIN_ENTRIES_BITS: u32 = 0x0FFF_0FFF;
/// Rings begin at pages.
const PAGE_BITS: u64 = 0xFFF;

/// Registers whose values the function keeps.
pub struct Registers {
    /// INTMS, INTMC: vectors whose pin is masked.
    pub masked_vectors: u32,
    /// AQA: entries of the admin queues, 0's based: submission in 11:0, completion in 27:16.
    admin_entries_z: u32,
    admin_submission: u64,
    admin_completion: u64,
    /// MSI-X table and pending bits.
    vectors: Vec<u8>,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers {
            masked_vectors: 0,
            admin_entries_z: 0,
            admin_submission: 0,
            admin_completion: 0,
            vectors: vec![0; (BAR0_BYTES - VECTORS_AT) as usize],
        }
    }
}

impl Function {
    /// Reads BAR 0; the range lies in it.
    pub(super) fn read_bar(&self, core: &Core, at: u64, count: usize) -> Vec<u8> {
        // Doorbells read as zero.
        let mut bytes = vec![0; count];
        let end = at + count as u64;
        let registers = self.registers_now(core);
        for (begin, part) in [(0, &registers[..]), (VECTORS_AT, &self.registers.vectors)] {
            let (from, to) = (at.max(begin), end.min(begin + part.len() as u64));
            if from < to {
                let part = &part[(from - begin) as usize..(to - begin) as usize];
                bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
            }
        }
        bytes
    }

    fn registers_now(&self, core: &Core) -> [u8; REGISTERS_BYTES] {
        let mut bytes = [0; REGISTERS_BYTES];
        let Some(admin) = self.admin else { return [0xFF; REGISTERS_BYTES] };
        for (offset, is_wide) in
            [(property::CAP, true), (property::VS, false), (property::CC, false), (property::CSTS, false)]
        {
            let value = core.subsystem.register(admin, offset, is_wide).unwrap_or(u64::MAX);
            put(&mut bytes, offset, value, if is_wide { 8 } else { 4 });
        }
        let own = &self.registers;
        put(&mut bytes, INTERRUPT_MASK_SET, own.masked_vectors.into(), 4);
        put(&mut bytes, INTERRUPT_MASK_CLEAR, own.masked_vectors.into(), 4);
        put(&mut bytes, ADMIN_ENTRIES, own.admin_entries_z.into(), 4);
        put(&mut bytes, ADMIN_SUBMISSION, own.admin_submission, 8);
        put(&mut bytes, ADMIN_COMPLETION, own.admin_completion, 8);
        bytes
    }

    /// Writes to BAR 0; the range lies in it. Registers and doorbells take whole dwords; any other write is ignored,
    /// since a write on a bus has no answer.
    pub(super) fn write_bar(&mut self, core: &mut Core, at: u64, bytes: &[u8]) {
        if at >= VECTORS_AT {
            let from = (at - VECTORS_AT) as usize;
            self.registers.vectors[from..from + bytes.len()].copy_from_slice(bytes);
            return;
        }
        if !at.is_multiple_of(4) {
            return;
        }
        for (at, dword) in (at..).step_by(4).zip(bytes.chunks_exact(4)) {
            let value = u32::from_le_bytes(dword.try_into().expect("four bytes"));
            if at < DOORBELLS_AT {
                self.write_register(core, at as u32, value);
            } else if at < DOORBELLS_AT + DOORBELLS_BYTES {
                self.doorbells.ring(at - DOORBELLS_AT, value);
            }
        }
    }

    fn write_register(&mut self, core: &mut Core, offset: u32, value: u32) {
        let is_enabled = self.configuration(core).is_some_and(|configuration| configuration.enable());
        let own = &mut self.registers;
        match offset {
            INTERRUPT_MASK_SET => own.masked_vectors |= value,
            INTERRUPT_MASK_CLEAR => own.masked_vectors &= !value,
            property::CC => self.configure(core, Configuration::from_bits(value)),
            // The others can be written while the controller is disabled.
            _ if is_enabled => {}
            ADMIN_ENTRIES => own.admin_entries_z = value & ADMIN_ENTRIES_BITS,
            ADMIN_SUBMISSION => put_half(&mut own.admin_submission, value, false),
            ADMIN_SUBMISSION_UPPER => put_half(&mut own.admin_submission, value, true),
            ADMIN_COMPLETION => put_half(&mut own.admin_completion, value, false),
            ADMIN_COMPLETION_UPPER => put_half(&mut own.admin_completion, value, true),
            _ => {}
        }
    }

    fn configuration(&self, core: &Core) -> Option<Configuration> {
        let bits = core.subsystem.register(self.admin?, property::CC, false)?;
        Some(Configuration::from_bits(bits as u32))
    }

    /// Writes CC.
    fn configure(&mut self, core: &mut Core, wanted: Configuration) {
        let (Some(admin), Some(before)) = (self.admin, self.configuration(core)) else { return };
        if before.enable() && !wanted.enable() {
            self.drop_rings();
        }
        self.admin = core.subsystem.configure(admin, wanted);
        if !before.enable() && wanted.enable() {
            self.make_admin_queues(core);
        }
    }

    fn make_admin_queues(&mut self, core: &mut Core) {
        let Some(admin) = self.admin else { return };
        let own = &self.registers;
        let submission_entries = (own.admin_entries_z & 0xFFF) + 1;
        let completion_entries = (own.admin_entries_z >> 16) + 1;
        // One entry of a ring always stays empty.
        if submission_entries < 2 || completion_entries < 2 {
            core.subsystem.fail_function(admin);
            return;
        }
        let (submission, completion) = (own.admin_submission, own.admin_completion);
        self.doorbells.clear_submission(0);
        self.doorbells.clear_completion(0);
        self.submissions = vec![Some(SubmissionQueue::new(0, 0, admin, submission, submission_entries))];
        self.completions = vec![Some(CompletionQueue::new(0, completion, completion_entries, Some(0)))];
    }

    /// Resets the whole function, as if its host disabled and enabled it; settings of the client are kept.
    pub(super) fn reset(&mut self, core: &mut Core) {
        self.drop_rings();
        self.registers = Registers::default();
        self.config = ConfigSpace::default();
        self.admin = self.admin.and_then(|admin| core.subsystem.reset_function(admin));
    }
}

fn put(bytes: &mut [u8], offset: u32, value: u64, count: usize) {
    let at = offset as usize;
    bytes[at..at + count].copy_from_slice(&value.to_le_bytes()[..count]);
}

/// Writes a half of the address of a ring.
fn put_half(address: &mut u64, value: u32, is_high: bool) {
    let shift = if is_high { 32 } else { 0 };
    let kept = *address & !(u64::from(u32::MAX) << shift);
    *address = (kept | u64::from(value) << shift) & !PAGE_BITS;
}
