//! `kvdrive ng` on systems other than Linux: it says that it needs Linux, whose device nodes it answers.

use std::ffi::OsString;

use clap::Args;

/// Options of `ng`, which no system but Linux has.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Ng {
    /// Any arguments: they are not looked at
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    given: Vec<OsString>,
}

impl Ng {
    /// Says that there are no such nodes here.
    pub fn run(&self) -> anyhow::Result<()> {
        let given = self.given.len();
        anyhow::bail!(
            "ng needs Linux, whose device nodes it answers ({given} arguments were not looked at): a program reaches a drive \
             here by NVMe/TCP (kvdrive serve) or by a library (docs/programs.md)"
        )
    }
}
