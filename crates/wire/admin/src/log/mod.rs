//! The data that Get Log Page returns, and the state that a controller keeps for it. A page is a file here and a row of
//! [`LOG_PAGES`]; what only a port, a drive or a namespace knows is asked from them.

mod changed;
mod effects;
mod errors;
mod firmware;
mod supported;

use std::collections::{BTreeSet, VecDeque};

use kvdrive_nvme::log::{Health, LogRequest, lid};
use kvdrive_nvme::{Cqe, Status, write_protection};
use zerocopy::IntoBytes;

use crate::{Controller, ControllerKind, ERRORS_MAX};

/// Reported temperature: the drive has no sensor, and hosts that show a temperature show 20 degrees Celsius.
pub const TEMPERATURE_K: u16 = 293;

/// Most bytes of a log page that one command reads; longer pages are read in parts.
pub const ASKED_MAX_BYTES: u64 = 1 << 20;

/// A log page.
pub struct LogRow {
    /// Its identifier.
    pub id: u8,
    /// The type of controllers that have it; `None`: all.
    kind: Option<ControllerKind>,
    page: fn(&Asked<'_>) -> Result<LogAnswer, Status>,
}

impl LogRow {
    /// Do controllers of this type have it?
    pub fn is_of(&self, kind: ControllerKind) -> bool {
        self.kind.is_none_or(|only| only == kind)
    }
}

const fn row(
    id: u8,
    kind: Option<ControllerKind>,
    page: fn(&Asked<'_>) -> Result<LogAnswer, Status>,
) -> LogRow {
    LogRow { id, kind, page }
}

const IO: Option<ControllerKind> = Some(ControllerKind::Io);

/// All log pages, which every port answers.
pub static LOG_PAGES: &[LogRow] = &[
    row(lid::SUPPORTED, None, supported::page),
    row(lid::ERRORS, None, errors::page),
    row(lid::HEALTH, IO, |asked| Ok(LogAnswer::Page(asked.sources.health().as_bytes().to_vec()))),
    row(lid::FIRMWARE, IO, firmware::page),
    row(lid::CHANGED_NAMESPACES, IO, changed::page),
    row(lid::EFFECTS, IO, effects::page),
    row(lid::DISCOVERY, Some(ControllerKind::Discovery), |asked| {
        Ok(LogAnswer::Page(asked.sources.discovery()))
    }),
    row(write_protection::LOG_PAGE, IO, |_| Ok(LogAnswer::OfNamespace)),
];

/// What only a port, or the drives behind it, know.
pub trait Sources {
    /// Health of the drives.
    fn health(&self) -> Health;

    /// The discovery log; a port without a discovery controller has none.
    fn discovery(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// The answer to a Get Log Page.
pub enum LogAnswer {
    /// The whole page.
    Page(Vec<u8>),
    /// The namespace that the command names must answer: page C0h, which says whether it is read-only and why.
    OfNamespace,
}

/// A request, and what a page is made of.
struct Asked<'a> {
    logs: &'a Logs,
    of: &'a Controller<'a>,
    request: &'a LogRequest,
    sources: &'a dyn Sources,
}

/// A failed command of a host.
#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u64,
    queue: u16,
    cid: u16,
    status: Status,
}

impl Failure {
    /// The status in the format of a completion entry.
    fn status_field(&self) -> u16 {
        let bytes = *Cqe::new(self.cid, self.status).as_bytes();
        u16::from_le_bytes([bytes[14], bytes[15]])
    }
}

/// State of one controller for its log pages.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Newest first.
    failures: VecDeque<Failure>,
    errors: u64,
    /// Namespaces that have changed since the host last read the list.
    pub changed_namespaces: BTreeSet<u32>,
}

impl Logs {
    /// Number of failed commands of the host.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Adds a failure to the error log.
    pub fn note_error(&mut self, queue: u16, cid: u16, status: Status) {
        self.errors += 1;
        self.failures.push_front(Failure { count: self.errors, queue, cid, status });
        self.failures.truncate(ERRORS_MAX);
    }

    /// The page that `request` names.
    ///
    /// # Errors
    /// The page does not exist.
    pub fn page(
        &self,
        of: &Controller<'_>,
        request: &LogRequest,
        sources: &dyn Sources,
    ) -> Result<LogAnswer, Status> {
        let row = LOG_PAGES.iter().find(|row| row.id == request.page && row.is_of(of.kind));
        let row = row.ok_or(Status::INVALID_LOG_PAGE)?;
        (row.page)(&Asked { logs: self, of, request, sources })
    }
}

/// As many bytes as `request` asks for, from its offset on; bytes after the end of `page` are zeros.
///
/// # Errors
/// It begins after the end or not at a multiple of 4, or asks for more than [`ASKED_MAX_BYTES`].
pub fn part(page: &[u8], request: &LogRequest) -> Result<Vec<u8>, Status> {
    let at = usize::try_from(request.offset).map_err(|_| Status::INVALID_FIELD)?;
    if !at.is_multiple_of(4) || at > page.len() || request.bytes > ASKED_MAX_BYTES {
        return Err(Status::INVALID_FIELD);
    }
    let bytes = request.bytes as usize;
    let mut part = page[at..page.len().min(at + bytes)].to_vec();
    part.resize(bytes, 0);
    Ok(part)
}
