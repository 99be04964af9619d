//! Which system calls of a program come to its supervisor, as a program of the kernel's filter machine.
//!
//! ```text
//!   another machine's calls ──► allowed
//!   a row of CALLS          ──► the supervisor is asked
//!   io_uring_setup          ──► ENOSYS
//!   mmap                    ──► the supervisor is asked if it maps a file
//!   ioctl                   ──► the supervisor is asked if the request has NVMe's letter
//!   all others              ──► allowed
//! ```

use libc::{c_long, sock_filter};

use super::calls::CALLS;
use crate::abi::LETTER;

#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xC000_00B7;

/// Where the structure that the filter looks at has them: number of the call, machine, low halves of arguments 1 and 3.
const NUMBER_AT: u32 = 0;
const MACHINE_AT: u32 = 4;
const REQUEST_AT: u32 = 24;
const MAP_FLAGS_AT: u32 = 40;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Where the filter continues after a comparison.
#[derive(Clone, Copy)]
enum To {
    Next,
    /// Beyond the two steps that follow.
    Past,
    Allow,
    Ask,
    Refuse,
}

/// The filter.
pub(super) fn filter() -> Vec<sock_filter> {
    let number = |call: c_long| u32::try_from(call).expect("numbers of calls are small");
    let mut steps = vec![(LOAD, MACHINE_AT, To::Next, To::Next), (EQUAL, MACHINE, To::Next, To::Allow)];
    steps.push((LOAD, NUMBER_AT, To::Next, To::Next));
    steps.extend(CALLS.iter().map(|row| (EQUAL, number(row.number), To::Ask, To::Next)));
    steps.push((EQUAL, number(libc::SYS_io_uring_setup), To::Refuse, To::Next));
    steps.push((EQUAL, number(libc::SYS_mmap), To::Next, To::Past));
    steps.push((LOAD, MAP_FLAGS_AT, To::Next, To::Next));
    steps.push((HAS, libc::MAP_ANONYMOUS as u32, To::Allow, To::Ask));
    steps.push((EQUAL, number(libc::SYS_ioctl), To::Next, To::Allow));
    steps.push((LOAD, REQUEST_AT, To::Next, To::Next));
    steps.push((AND, 0xFF00, To::Next, To::Next));
    steps.push((EQUAL, LETTER << 8, To::Ask, To::Allow));
    let ends = [
        libc::SECCOMP_RET_ALLOW,
        libc::SECCOMP_RET_USER_NOTIF,
        libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
    ];
    let count = steps.len();
    let place = |index: usize, to: To| match to {
        To::Next => 0,
        To::Past => 2,
        To::Allow => count - index - 1,
        To::Ask => count - index,
        To::Refuse => count - index + 1,
    } as u8;
    let steps = steps.into_iter().enumerate();
    let steps = steps.map(|(index, (code, k, yes, no))| sock_filter {
        code: code as u16,
        jt: place(index, yes),
        jf: place(index, no),
        k,
    });
    let ends = ends.map(|k| sock_filter { code: RETURN as u16, jt: 0, jf: 0, k });
    steps.chain(ends).collect()
}
