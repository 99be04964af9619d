//! What `/sys` says of the nodes' controllers, as files in a folder. Programs that look for drives, such as
//! `nvme list`, read them; paths are rewritten by their beginning.
//!
//! ```text
//!  class/nvme/nvme0 ─────────────► devices/virtual/nvme-fabrics/ctl/nvme0/          one for each controller
//!                                    address, cntlid, model, serial, state, ...
//!                                    nvme0c0n1/    ana_state, ana_grpid
//!  class/nvme-subsystem/nvme-subsys0 ► devices/virtual/nvme-subsystem/nvme-subsys0/
//!                                    subsysnqn, iopolicy, ...; nvme0 ─► its controller
//!                                    nvme0n1/      nsid, csi, nguid, ..., queue/logical_block_size
//!                                    ng0n1/
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvdrive_nvme::identify::CSI_KV;

use crate::drive::{Facts, Session};
use crate::nodes::Nodes;

/// Beginnings of the paths that are rewritten.
const ROOTS: [&str; 4] = [
    "/sys/class/nvme",
    "/sys/class/nvme-subsystem",
    "/sys/devices/virtual/nvme-fabrics",
    "/sys/devices/virtual/nvme-subsystem",
];

/// Is this path one of those that are rewritten?
pub fn is_inside(path: &str) -> bool {
    let is_of =
        |root: &&str| path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path.starts_with("/sys/") && ROOTS.iter().any(is_of)
}

/// The folder, which is removed when this is dropped.
#[derive(Debug)]
pub struct Tree {
    folder: PathBuf,
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.remove();
    }
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim_end_matches('\0').to_owned()
}

fn file(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    fs::write(folder.join(name), format!("{content}\n"))
}

impl Tree {
    /// Removes the files.
    pub fn remove(&self) {
        // At most some kilobytes of temporary files are left.
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Writes the files of these nodes' controllers. A controller that cannot be reached has none.
    ///
    /// # Errors
    /// No folder can be made among temporary files.
    pub fn new(nodes: &Nodes) -> io::Result<Tree> {
        let folder = tempfile::Builder::new().prefix("kvdrive-ng.").tempdir()?.keep();
        let tree = Tree { folder };
        for root in ROOTS {
            fs::create_dir_all(tree.path(root))?;
        }
        let mut done = Vec::new();
        for node in nodes.all() {
            if done.contains(&node.instance.0) {
                continue;
            }
            if let Ok(session) = node.drive.session() {
                done.push(node.instance.0);
                tree.add(node.instance, &session)?;
            }
        }
        Ok(tree)
    }

    /// Where a path that is inside lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    fn add(&self, (x, y): (u32, u32), session: &Arc<Session>) -> io::Result<()> {
        let controller = format!("nvme{x}");
        let devices = self.path("/sys/devices/virtual");
        let of_controller = devices.join("nvme-fabrics/ctl").join(&controller);
        let path = of_controller.join(format!("nvme{x}c{x}n{y}"));
        fs::create_dir_all(&path)?;
        for (name, content) in controller_files(&session.facts, x) {
            file(&of_controller, name, &content)?;
        }
        file(&path, "ana_state", "optimized")?;
        file(&path, "ana_grpid", "0")?;
        symlink(
            format!("../../devices/virtual/nvme-fabrics/ctl/{controller}"),
            self.path(ROOTS[0]).join(&controller),
        )?;

        let subsystem = format!("nvme-subsys{x}");
        let of_subsystem = devices.join("nvme-subsystem").join(&subsystem);
        let namespace = of_subsystem.join(format!("nvme{x}n{y}"));
        fs::create_dir_all(namespace.join("queue"))?;
        fs::create_dir_all(of_subsystem.join(format!("ng{x}n{y}")))?;
        for (name, content) in subsystem_files(&session.facts) {
            file(&of_subsystem, name, &content)?;
        }
        for (name, content) in namespace_files(session) {
            file(&namespace, name, &content)?;
        }
        symlink(format!("../../nvme-fabrics/ctl/{controller}"), of_subsystem.join(&controller))?;
        symlink(
            format!("../../devices/virtual/nvme-subsystem/{subsystem}"),
            self.path(ROOTS[1]).join(&subsystem),
        )
    }
}

fn controller_files(facts: &Facts, x: u32) -> Vec<(&'static str, String)> {
    let (host, port) = facts.address.rsplit_once(':').expect("an address of a drive has a port");
    let own = |text: &str| text.to_owned();
    vec![
        ("address", format!("traddr={},trsvcid={port}", host.trim_matches(['[', ']']))),
        ("cntlid", facts.controller_id.to_string()),
        ("cntrltype", own("io")),
        ("dctype", own("none")),
        ("dev", format!("245:{x}")),
        ("firmware_rev", text(&facts.controller.firmware)),
        ("hostid", facts.host_id.clone()),
        ("hostnqn", facts.host_nqn.clone()),
        ("kato", own("0")),
        ("model", text(&facts.controller.model)),
        ("serial", text(&facts.controller.serial)),
        ("numa_node", own("-1")),
        ("queue_count", own("2")),
        ("sqsize", own("15")),
        ("state", own("live")),
        ("subsysnqn", facts.nqn.clone()),
        ("transport", own("tcp")),
        ("dhchap_secret", own("none")),
        ("dhchap_ctrl_secret", own("none")),
    ]
}

fn subsystem_files(facts: &Facts) -> Vec<(&'static str, String)> {
    vec![
        ("model", text(&facts.controller.model)),
        ("serial", text(&facts.controller.serial)),
        ("firmware_rev", text(&facts.controller.firmware)),
        ("subsysnqn", facts.nqn.clone()),
        ("subsystype", "nvm".to_owned()),
        ("iopolicy", "numa".to_owned()),
    ]
}

fn namespace_files(session: &Session) -> Vec<(&'static str, String)> {
    let facts = &session.facts;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut files = vec![
        ("nsid", facts.nsid.to_string()),
        ("csi", facts.csi.to_string()),
        ("nuse", facts.used_bytes.to_string()),
        ("metadata_bytes", "0".to_owned()),
        ("size", "0".to_owned()),
        ("hidden", if facts.csi == CSI_KV { "1" } else { "0" }.to_owned()),
        ("queue/logical_block_size", "512".to_owned()),
    ];
    if facts.nguid != [0; 16] {
        let nguid = hex(&facts.nguid);
        let dashed = |ends: [usize; 4]| {
            let [a, b, c, d] = ends;
            [&nguid[..a], &nguid[a..b], &nguid[b..c], &nguid[c..d], &nguid[d..]].join("-")
        };
        files.push(("nguid", dashed([8, 12, 16, 20])));
        files.push(("wwid", format!("eui.{nguid}")));
    }
    files
}
