//! Linux's NVMe device nodes, answered in user space: programs that pass commands through `/dev/ngXnY` reach a drive
//! without a kernel's driver, without root, and without a device.
//!
//! ```text
//!   open("/dev/ng0n1") ─► nodes     is it one of ours? which drive?
//!   ioctl(fd, ...)     ─► ioctl     the structure, Linux's checks in Linux's order, the return value
//!                           memory  bytes of the program, or EFAULT
//!                           drive   a connection for each calling thread
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`abi`] | numbers of ioctls, and the structures that their arguments point at |
//! | [`nodes`] | paths, and the variable or file that names them |
//! | [`ioctl`](mod@ioctl) | one ioctl from its number to its return value |
//! | [`memory`] | memory that a program points at |
//! | [`drive`] | a drive as this process reaches it |
//! | `kept` | a connection whose descriptor the program may close |
//! | `in_process` | the drive in the program's own process |
//! | [`stand_in`] | the file of a node's descriptor |
//! | [`sysfs`] | the files of the nodes in `/sys` |
//! | [`supervise`] | programs that a preloaded library does not reach |
//! | `rights` | commands that a program without privileges may send |
//! | `kernel` | system calls that no safe library wraps |
//!
//! A program's calls come here in two ways: from crate `ng-preload`, a library that is preloaded into it, and by
//! supervision from another process.

pub mod abi;
pub mod drive;
mod in_process;
pub mod ioctl;
mod kept;
mod kernel;
pub mod memory;
pub mod nodes;
mod rights;
pub mod stand_in;
pub mod supervise;
pub mod sysfs;
