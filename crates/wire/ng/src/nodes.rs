//! Which paths are answered, and the drive of each.
//!
//! ```text
//!   KVDRIVE_NG="/dev/ng0n1=tcp://127.0.0.1:4420;/dev/ng1n1=kvdrive:cosmos-plus,file=/tmp/drive.img"
//!   KVDRIVE_NG=nodes.toml         # the same as a file:
//!
//!   [[node]]
//!   path = "/dev/ng0n1"
//!   drive = "tcp://127.0.0.1:4420,nsid=1"
//! ```
//!
//! A path that ends in `ngXnY`, or in a name that is none of Linux's, is a character device of a namespace; `nvmeXnY`
//! is its block device, and brings `ngXnY` in the same folder; both bring the character device `nvmeX` of their
//! controller, as Linux does. (Linux has no block device for pairs. Older programs look for such a device, so a node
//! can have its name.)

use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::CWD;
use serde::Deserialize;

use crate::drive::Drive;
use crate::in_process;

/// The variable that names the nodes.
pub const VARIABLE: &str = "KVDRIVE_NG";

/// Longest chain of links that is followed, as Linux has it.
const LINKS_MAX: usize = 40;
/// Longest path that is followed through links, bytes; longer ones go to the system.
const LINK_MAX_BYTES: usize = 1024;
/// Longest path of a node: it has to fit the name of a memory file.
const PATH_MAX_BYTES: usize = 200;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `ngXnY`: a character device of a namespace.
    Generic,
    /// `nvmeXnY`: a block device of a namespace.
    Block,
    /// `nvmeX`: the character device of a controller.
    Controller,
}

/// One path of a node.
#[derive(Clone)]
pub struct Node {
    /// The path.
    pub path: String,
    /// Its kind of device.
    pub kind: Kind,
    /// Its drive.
    pub drive: Arc<Drive>,
    /// Is every program treated as one with CAP_SYS_ADMIN?
    pub privileged: bool,
    /// X and Y of its name, for sysfs; a name without numbers gets free ones.
    pub instance: (u32, u32),
}

/// Why there are no nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct NodesError {
    place: String,
    problem: String,
}

fn error(place: impl Into<String>, problem: impl Into<String>) -> NodesError {
    NodesError { place: place.into(), problem: problem.into() }
}

/// All paths that are answered.
#[derive(Default)]
pub struct Nodes {
    all: Vec<Node>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    path: String,
    drive: String,
    #[serde(default = "yes")]
    privileged: bool,
}

fn yes() -> bool {
    true
}

/// X and Y of `PREFIXxnY`, or X of `PREFIXx`.
fn numbers(name: &str, prefix: &str) -> Option<(u32, Option<u32>)> {
    let rest = name.strip_prefix(prefix)?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    match rest.split_once('n') {
        Some((x, y)) => Some((number(x)?, Some(number(y)?))),
        None => Some((number(rest)?, None)),
    }
}

impl Nodes {
    /// The nodes in the value of the variable, or, if it has no `=`, in the file that it names.
    ///
    /// # Errors
    /// A line with the place and the flaw.
    pub fn of(value: &str) -> Result<Nodes, NodesError> {
        if !value.contains('=') {
            let read = std::fs::read_to_string(value);
            let text = read.map_err(|problem| error(format!("{VARIABLE}={value}"), problem.to_string()))?;
            return Nodes::of_toml(value, &text);
        }
        Nodes::of_entries(VARIABLE, value)
    }

    /// The nodes in a list of PATH=DRIVE with `;` between; messages refer to it as `name`.
    ///
    /// # Errors
    /// As [`Nodes::of`].
    pub fn of_entries(name: &str, value: &str) -> Result<Nodes, NodesError> {
        let mut rows = Vec::new();
        for entry in value.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let wrong =
                || error(name, format!("{entry:?}; allowed: PATH=DRIVE, as /dev/ng0n1=tcp://127.0.0.1:4420"));
            let (path, drive) = entry.split_once('=').ok_or_else(wrong)?;
            rows.push(Row { path: path.to_owned(), drive: drive.to_owned(), privileged: true });
        }
        Nodes::of_rows(name, rows)
    }

    /// The nodes in a TOML text; messages refer to it as `name`.
    ///
    /// # Errors
    /// As [`Nodes::of`].
    pub fn of_toml(name: &str, text: &str) -> Result<Nodes, NodesError> {
        let file: File =
            toml_edit::de::from_str(text).map_err(|problem| error(name, problem.to_string().trim_end()))?;
        Nodes::of_rows(name, file.node)
    }

    fn of_rows(place: &str, rows: Vec<Row>) -> Result<Nodes, NodesError> {
        let mut nodes = Nodes::default();
        for row in rows {
            let place = format!("{place}: {}", row.path);
            if !row.path.starts_with('/') || normal(&row.path) != row.path || row.path.len() > PATH_MAX_BYTES
            {
                return Err(error(place, "a path that begins at the root, without . and .., is needed"));
            }
            let drive = Drive::of(&row.drive).map_err(|problem| error(&place, problem))?;
            let drive = nodes
                .all
                .iter()
                .map(|node| &node.drive)
                .find(|other| other.is_same(&drive))
                .cloned()
                .unwrap_or_else(|| Arc::new(drive));
            nodes.add(&row, drive).map_err(|problem| error(place, problem))?;
        }
        Ok(nodes)
    }

    fn add(&mut self, row: &Row, drive: Arc<Drive>) -> Result<(), String> {
        let (folder, name) = row.path.rsplit_once('/').expect("it begins with one");
        let mut add = |name: &str, kind, instance, named| {
            let path = format!("{folder}/{name}");
            match self.all.iter().find(|node| node.path == path) {
                Some(node) if named || !Arc::ptr_eq(&node.drive, &drive) => {
                    Err(format!("{path} is there twice"))
                }
                Some(_) => Ok(()),
                None => {
                    let drive = drive.clone();
                    self.all.push(Node { path, kind, drive, privileged: row.privileged, instance });
                    Ok(())
                }
            }
        };
        let generic = |(x, y)| format!("ng{x}n{y}");
        let controller = |(x, _)| format!("nvme{x}");
        match (numbers(name, "ng"), numbers(name, "nvme")) {
            (Some((x, Some(y))), _) => {
                add(name, Kind::Generic, (x, y), true)?;
                add(&controller((x, y)), Kind::Controller, (x, y), false)
            }
            (_, Some((x, Some(y)))) => {
                add(name, Kind::Block, (x, y), true)?;
                add(&generic((x, y)), Kind::Generic, (x, y), false)?;
                add(&controller((x, y)), Kind::Controller, (x, y), false)
            }
            (_, Some((x, None))) => add(name, Kind::Controller, (x, 1), true),
            _ => {
                let x = (0..).find(|x| self.all.iter().all(|node| node.instance.0 != *x)).unwrap_or(0);
                let drive = drive.clone();
                self.all.push(Node {
                    path: row.path.clone(),
                    kind: Kind::Generic,
                    drive,
                    privileged: row.privileged,
                    instance: (x, 1),
                });
                Ok(())
            }
        }
    }

    /// The same nodes for a child that `fork` made, with connections of their own. Takes no lock.
    pub fn of_child(&self) -> Nodes {
        in_process::forked();
        let mut drives: Vec<(&Arc<Drive>, Arc<Drive>)> = Vec::new();
        let mut all = Vec::new();
        for node in &self.all {
            let known =
                drives.iter().find(|(before, _)| Arc::ptr_eq(before, &node.drive)).map(|it| it.1.clone());
            let drive = known.unwrap_or_else(|| {
                let drive = Arc::new(node.drive.of_child());
                drives.push((&node.drive, drive.clone()));
                drive
            });
            all.push(Node { drive, ..node.clone() });
        }
        Nodes { all }
    }

    /// Every node.
    pub fn all(&self) -> &[Node] {
        &self.all
    }

    /// The number of the node that `path` leads to. `folder` is the folder at which a relative path begins. `follows`: a
    /// link at the end of the path is followed. Allocates nothing on the way to `None`, except for a path of many bytes:
    /// the handler of a signal may have called.
    pub fn at(&self, path: &str, folder: fmt::Arguments<'_>, follows: bool) -> Option<usize> {
        let mut from = PathText::new();
        match path.starts_with('/') {
            true => write!(from, "{path}").ok()?,
            false => write!(from, "{folder}/{path}").ok()?,
        }
        for _ in 0..LINKS_MAX {
            let (parent, name) = divided(from.as_str());
            if let Some(node) = self.all.iter().position(|node| leads(parent, name, &node.path)) {
                return Some(node);
            }
            if !follows {
                return None;
            }
            let mut link = [MaybeUninit::uninit(); LINK_MAX_BYTES];
            let (link, _) = rustix::fs::readlinkat_raw(CWD, from.as_str(), &mut link).ok()?;
            let link = std::str::from_utf8(link).ok().filter(|link| link.len() < LINK_MAX_BYTES)?;
            let mut to = PathText::new();
            match link.starts_with('/') {
                true => write!(to, "{link}").ok()?,
                false => write!(to, "{parent}/{link}").ok()?,
            }
            from = to;
        }
        None
    }

    /// The number of the node at this path.
    pub fn find(&self, path: &str) -> Option<usize> {
        self.all.iter().position(|node| node.path == path)
    }
}

/// A path's folder and its last part.
fn divided(path: &str) -> (&str, &str) {
    let (folder, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
    (if folder.is_empty() { "/" } else { folder }, name)
}

/// Does a path lead to the node at `node`? Its last part has to be the node's name; its folder may be written in another
/// way, through links too, and be the same one.
fn leads(folder: &str, name: &str, node: &str) -> bool {
    let (node_folder, node_name) = divided(node);
    let file = |path: &str| rustix::fs::stat(path).ok().map(|file| (file.st_dev, file.st_ino));
    name == node_name
        && (folder == node_folder
            || normal(folder) == node_folder
            || file(folder).is_some_and(|is| Some(is) == file(node_folder)))
}

/// The bytes of a path, on the stack.
struct PathText {
    bytes: [u8; LINK_MAX_BYTES],
    length: usize,
}

impl PathText {
    fn new() -> PathText {
        PathText { bytes: [0; LINK_MAX_BYTES], length: 0 }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("only text was written")
    }
}

impl fmt::Write for PathText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// A path without `//`, `/./` and `/` at its end. What `..` leads to, links decide, so it stays.
pub fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let root = if Path::new(path).is_absolute() { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}
