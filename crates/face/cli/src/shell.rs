//! `kvdrive completions` and `kvdrive man`: completions for a shell, and manual pages.

use clap::Args;
use clap_complete::Shell;

use crate::output;

/// Options of `completions`.
#[derive(Args)]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

/// Options of `man`.
#[derive(Args)]
pub struct Man {
    /// Page of this subcommand, as run [default: that of kvdrive]
    subcommand: Option<String>,
    /// Lists the subcommands that have a page
    #[arg(long, conflicts_with = "subcommand")]
    list: bool,
}

impl Completions {
    /// Prints a script that the shell reads.
    pub fn run(&self, mut command: clap::Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "kvdrive", &mut script);
        output::print(&String::from_utf8(script)?);
        Ok(())
    }
}

impl Man {
    /// Prints a page as `man` takes it.
    pub fn run(&self, mut command: clap::Command) -> anyhow::Result<()> {
        command.build();
        if self.list {
            let names =
                command.get_subcommands().filter(|known| !known.is_hide_set() && known.get_name() != "help");
            output::print(&names.map(|known| format!("{}\n", known.get_name())).collect::<String>());
            return Ok(());
        }
        if let Some(name) = &self.subcommand {
            let known: Vec<_> = command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
            let found = command.find_subcommand(name).cloned();
            let Some(found) = found else {
                anyhow::bail!("no subcommand {name:?}; there are {}", known.join(", "));
            };
            command = found.display_name(format!("kvdrive-{name}"));
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        output::print(&String::from_utf8(page)?);
        Ok(())
    }
}
