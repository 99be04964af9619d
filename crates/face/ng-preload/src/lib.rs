//! A library to preload: a program's calls to device nodes that `KVDRIVE_NG` names are answered by crate `ng`.
//!
//! ```text
//! KVDRIVE_NG="/dev/ng0n1=tcp://127.0.0.1:4420" LD_PRELOAD=target/release/libkvdrive_ng_preload.so nvme id-ctrl /dev/ng0n1
//! ```
//!
//! | module | what |
//! |---|---|
//! | `hooks` | the functions of the C library that are replaced, and nothing else |
//! | `library` | which path and which descriptor is a node; what `stat` says of it |
//! | `apart` | signals, cancellation and the stack while a call about a node runs |
//!
//! Only calls through the C library's dynamic symbols come here. Static programs, Go, and programs that a file's
//! set-user-ID bit runs as another user do not: `kvdrive ng` serves them another way. A child that `_Fork` or a raw `clone`
//! makes has no connections of its own, since no handler of `fork` ran in it; its commands are refused (ENODEV).

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod apart;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod hooks;
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
mod library;
