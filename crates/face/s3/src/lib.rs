//! The objects of a drive over the protocol of S3: a door for programs that store objects. It is no object store: a bucket is
//! a namespace, there are no users, policies, versions and copies, and a lost server forgets uploads that were not completed.
//!
//! ```text
//!   connection (listener.rs) ─► request: who signed it (signature.rs), what it asks for (request.rs)
//!                                 ├─► object.rs, range.rs    one object
//!                                 ├─► upload.rs              one object in parts
//!                                 └─► list.rs                a bucket
//!   body (content.rs): aws-chunked, checksums ─► bucket.rs ─► kvdrive::objects ─► NVMe/TCP ─► the drive
//!   answer: answer.rs, xml.rs; what went wrong: failure.rs
//! ```
//!
//! What a bucket keeps of its uploads is in begun.rs, what the drive keeps of an object besides its bytes in description.rs.
//! The door is a host of the drive as any other, so a power cut, a fault rule and the drive's shares among hosts strike it as
//! they strike a program.
#![cfg(feature = "door")]

mod answer;
mod begun;
mod bucket;
mod content;
mod date;
mod description;
mod failure;
mod list;
mod listener;
mod object;
mod range;
mod request;
mod signature;
mod upload;
mod xml;

pub use bucket::{Bucket, Way};
pub use listener::{Door, listen};
pub use signature::Access;
