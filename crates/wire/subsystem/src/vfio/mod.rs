//! vfio-user: the drive as a PCI function of virtual machines, or of any program that brings a driver of its own.
//!
//! ```text
//!   client ── UNIX socket ─► messages: regions of memory, registers, interrupts, resets
//!          ── its memory ──► rings, lists, data        mapped here, copied at each access
//!          ◄─ doorbells ───► a page of ours             which the client may map
//! ```
//!
//! Each socket is one function with one client at a time; it becomes a controller of the subsystem that network hosts
//! reach, too. All of it runs on the thread of the sockets, so that no access to a client's memory is under way while a
//! message is answered.
//!
//! | module | what |
//! |---|---|
//! | [`functions`] | all of them, as the server calls them |
//! | [`function`] | one: its client, registers, commands |
//! | `message` | structures of the protocol |
//! | `socket` | messages with descriptors, without waiting |
//! | `memory` | the client's memory |
//! | [`faults`] | what happens when a client makes a file of its memory shorter |
//! | `doorbells` | the page of doorbells that guests write to |
//! | `interrupts` | eventfds of the client |
//! | `config_space` | PCI configuration |
//! | `rings` | submission and completion queues |
//! | `data` | PRPs and SGLs of a command |

mod config_space;
mod data;
mod doorbells;
pub mod faults;
pub mod function;
pub mod functions;
mod interrupts;
mod memory;
mod message;
mod rings;
mod socket;
