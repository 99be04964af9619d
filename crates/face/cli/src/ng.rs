//! `kvdrive ng`: runs a program that passes commands through Linux's NVMe device nodes, on drives of ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::{Args, ValueEnum};
use kvdrive_ng::nodes::{Nodes, NodesError, VARIABLE};
use kvdrive_ng::supervise::waiting::Waiting;
use kvdrive_ng::supervise::{self, choose};

use crate::output;

/// The preloaded library: in the folder of this program, as cargo and an archive place it, or in the folder for libraries
/// beside that of programs, as packages do.
const LIBRARY: &str = "libkvdrive_ng_preload.so";
const LIBRARY_OF_PACKAGES: &str = "../lib/kvdrive";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Auto,
    Preload,
    Seccomp,
}

/// Options of `ng`.
#[derive(Args)]
pub struct Ng {
    /// A device node and its drive, as /dev/ng0n1=tcp://127.0.0.1:4420 or
    /// /dev/ng0n1=kvdrive:cosmos-plus,file=drive.img; may be repeated [default: the nodes of the variable KVDRIVE_NG]
    #[arg(long, value_name = "PATH=DRIVE")]
    node: Vec<String>,
    /// The nodes of a TOML file: [[node]] with path, drive and privileged
    #[arg(long, value_name = "FILE", conflicts_with = "node")]
    nodes: Option<PathBuf>,
    /// How system calls of the program are intercepted: by the kernel (seccomp), which costs two switches of threads a
    /// command, or by a preloaded library, which costs less and reaches programs linked with glibc alone. `auto`: by the
    /// kernel from Linux 5.19 on; before, by the library where it reaches the program
    #[arg(long, value_name = "auto|preload|seccomp", default_value = "auto", hide_possible_values = true)]
    by: By,
    /// Prints on standard error which of the two is used
    #[arg(long)]
    say: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Ng {
    /// Runs the program; the status of this command is its own.
    pub fn run(&self) -> anyhow::Result<()> {
        let value = self.value()?;
        let nodes = self.nodes_of(&value)?;
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        let library = library(&std::env::current_exe()?);
        let (by, why) = self.served_by(&library)?;
        if self.say {
            output::tell(&format!("kvdrive: by {why}"));
        }
        if by == By::Preload {
            let mut preload = library.into_os_string();
            if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
                preload.push(":");
                preload.push(others);
            }
            let error = command.env(VARIABLE, value).env("LD_PRELOAD", preload).exec();
            return Err(self.not_run(error));
        }
        let ended =
            supervise::run(nodes, command, Waiting::of_system()).map_err(|error| self.not_run(error))?;
        // The exit status by which shells report a signal.
        std::process::exit(ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0)));
    }

    /// The program did not begin. If it is not there or may not be run, the status is that of shells.
    fn not_run(&self, error: io::Error) -> anyhow::Error {
        let name = self.program[0].to_string_lossy();
        let status = match error.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::PermissionDenied => 126,
            _ => return anyhow::Error::new(error).context(name.into_owned()),
        };
        output::tell(&format!("kvdrive: {name}: {error}"));
        std::process::exit(status)
    }

    /// The nodes as the variable has them.
    fn value(&self) -> anyhow::Result<String> {
        if let Some(file) = &self.nodes {
            let file = file.canonicalize().with_context(|| format!("--nodes {}", file.display()))?;
            return Ok(file.to_string_lossy().into_owned());
        }
        if let Some(node) = self.node.iter().find(|node| !node.contains('=')) {
            anyhow::bail!("--node {node}: expected PATH=DRIVE, as /dev/ng0n1=tcp://127.0.0.1:4420");
        }
        if !self.node.is_empty() {
            return Ok(self.node.join(";"));
        }
        let value = std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
        anyhow::ensure!(!value.is_empty(), "no nodes; give --node /dev/ng0n1=tcp://127.0.0.1:4420");
        Ok(value)
    }

    /// The nodes of the value, by which an error names what the user has given.
    fn nodes_of(&self, value: &str) -> Result<Nodes, NodesError> {
        if self.node.is_empty() { Nodes::of(value) } else { Nodes::of_entries("--node", value) }
    }

    /// How the program is served, and why.
    fn served_by(&self, library: &Path) -> anyhow::Result<(By, &'static str)> {
        let is_there = library.exists();
        match self.by {
            By::Seccomp => return Ok((By::Seccomp, "seccomp, as asked")),
            By::Preload => {
                let place = library.display();
                anyhow::ensure!(
                    is_there,
                    "--by preload: {place} is not there; `cargo build --release` makes it"
                );
                return Ok((By::Preload, "preloading, as asked"));
            }
            By::Auto if supervise::is_faithful() => {
                return Ok((By::Seccomp, "seccomp; `--by preload` costs less where it reaches the program"));
            }
            By::Auto if !is_there => {
                return Ok((By::Seccomp, "seccomp: the library is not beside this program"));
            }
            By::Auto => {}
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        let program = choose::find(&self.program[0], &search);
        Ok(match program.map_or(choose::ServedBy::Preload, |program| choose::served_by(&program)) {
            choose::ServedBy::Preload => (By::Preload, "preloading"),
            choose::ServedBy::NoLinker => {
                (By::Seccomp, "seccomp: a program without glibc's linker takes no library")
            }
            choose::ServedBy::Go => (By::Seccomp, "seccomp: Go calls the system itself"),
            choose::ServedBy::SetId => (By::Seccomp, "seccomp: a set-user-ID program takes no library"),
        })
    }
}

/// Where the preloaded library is, or would be, for the program at `program`.
fn library(program: &Path) -> PathBuf {
    let beside = program.with_file_name(LIBRARY);
    let of_package = program.with_file_name(LIBRARY_OF_PACKAGES).join(LIBRARY);
    match of_package.canonicalize() {
        Ok(found) if !beside.exists() => found,
        _ => beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_beside_the_program_and_where_packages_put_it() {
        let root = tempfile::tempdir().unwrap();
        let (programs, libraries) = (root.path().join("bin"), root.path().join("lib/kvdrive"));
        std::fs::create_dir(&programs).unwrap();
        std::fs::create_dir_all(&libraries).unwrap();
        let program = programs.join("kvdrive");
        assert_eq!(library(&program), programs.join(LIBRARY), "the place that messages name");
        std::fs::write(libraries.join(LIBRARY), "").unwrap();
        assert_eq!(library(&program), libraries.join(LIBRARY).canonicalize().unwrap());
        std::fs::write(programs.join(LIBRARY), "").unwrap();
        assert_eq!(library(&program), programs.join(LIBRARY));
    }

    #[test]
    fn a_node_without_a_drive_is_named_with_the_form_of_one() {
        let node = vec!["/dev/ng0n1=tcp://127.0.0.1:4420".to_owned(), "foo".to_owned()];
        let ng_of_true =
            || Ng { node: vec![], nodes: None, by: By::Auto, say: false, program: vec!["true".into()] };
        let ng = Ng { node, ..ng_of_true() };
        let error = ng.value().unwrap_err().to_string();
        assert!(error.starts_with("--node foo: expected PATH=DRIVE"), "{error}");
        // What only the drive's text tells is said of the option, and not of the variable.
        for (node, expected) in
            [("/dev/ng0n1=nvme:1", "--node: /dev/ng0n1: "), ("dev/ng0n1=kvdrive:pink", "--node: dev/ng0n1: ")]
        {
            let ng = Ng { node: vec![node.to_owned()], ..ng_of_true() };
            let error = ng.nodes_of(&ng.value().unwrap()).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains(VARIABLE), "{error}");
        }
    }
}
