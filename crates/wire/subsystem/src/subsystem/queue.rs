//! A queue of a controller, and the place that it has in the subsystem.

use std::net::IpAddr;

use super::arbitration::{HostIndex, UnderWay};
use super::authentication::Authentication;
use crate::namespace::Session;

pub(super) struct Queue {
    /// Index of its controller.
    pub controller: usize,
    /// QID; 0 is the admin queue.
    pub number: u16,
    pub entries: u32,
    /// Address of its host; `None`: the transport has no addresses.
    pub from: Option<IpAddr>,
    pub sessions: Vec<(u32, Session)>,
    /// Set if the host has to authenticate first: the time of the request, ms.
    pub locked_since_ms: Option<u64>,
    pub authentication: Option<Box<Authentication>>,
}

#[derive(Default)]
pub(super) struct QueueSlot {
    pub generation: u32,
    pub queue: Option<Queue>,
    /// For an I/O queue: its host, and the number of its commands in namespaces. The place of a deleted queue is free
    /// when all of these have completed.
    pub host: Option<HostIndex>,
    pub under_way: u32,
    /// These commands by the transport's slot.
    pub works: Vec<UnderWay>,
}
