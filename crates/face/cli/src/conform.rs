//! `kvdrive conform`: is this a key-value namespace?

use clap::Args;
use kvdrive_conform::clauses::clauses;
use kvdrive_conform::in_process::InProcess;
use kvdrive_conform::node::Node;
use kvdrive_conform::report::Verdict;
use kvdrive_conform::target::{Lost, Target};
use kvdrive_conform::tcp::Tcp;
use kvdrive_conform::{Wanted, check};
use kvdrive_host::reach::{Remote, address};

use crate::as_host::AsHost;
use crate::nqn::name;
use crate::output;
use crate::settings::Settings;
use crate::verdict::judge;

/// Exit status if the target could not be checked.
const UNREACHED: i32 = 2;

/// What `kvdrive conform --help` says after the options.
pub const HELP: &str = "\
Each line is a clause: its verdict, the section of the NVMe Key Value Command Set 1.0d (B: base specification 2.0,
T: NVMe/TCP 1.0, -: not said anywhere, and hosts rely on it), its name, what it asks. A failed clause is followed by
the last commands: the entry in hexadecimal without identifier and data pointer, the data that went with it, status,
dword 0 and the data that came back (64 bytes of each). Where public implementations disagree, a line says who does what.

  pass         the target does what the clause asks
  fail         it does not
  not offered  it lacks something that it may lack, or the clause cannot be tried on this target

Pairs are stored only under keys that Exist says are absent, and are removed. Feature 20h is set and restored, which
other hosts of the namespace see for a moment. --destructive also fills the namespace and formats it.

Exit status: 0 no clause failed; 1 a clause failed; 2 the target cannot be reached or is no namespace of pairs.

  kvdrive conform                                        a drive of this program, default profile
  kvdrive conform --engine plus --destructive            another one, also Format and a full namespace
  kvdrive conform tcp://10.0.0.7:4420                    the namespace of pairs at that address
  sudo kvdrive conform /dev/ng0n1                        the one behind a device of Linux
  kvdrive conform tcp://10.0.0.7 --tls-psk @FILE --host-nqn NQN   the same by TLS
  kvdrive conform tcp://10.0.0.7 --only list,key-17-store --json result.json";

/// Options of `conform`.
#[derive(Args)]
pub struct Conform {
    /// tcp://HOST:PORT, a namespace of pairs on a network; /dev/ngXnY, one behind a device of Linux; without it: a drive of
    /// this program, in this process
    #[arg(group = "remote")]
    target: Option<String>,
    /// Name of the subsystem [default: the only one that discovery reports]
    #[arg(long, value_parser = name, requires = "target")]
    nqn: Option<String>,
    /// Number of the namespace [default: the first one that has pairs]
    #[arg(long, value_name = "N", requires = "target")]
    nsid: Option<u32>,
    #[command(flatten)]
    host: AsHost,
    /// Also clauses that erase the namespace or fill it: nothing in it may be needed
    #[arg(long)]
    destructive: bool,
    /// Only these clauses or groups, as list,key-17-store
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Lists the clauses instead
    #[arg(long, conflicts_with = "target")]
    list: bool,
    /// Writes the verdicts with all commands as JSON to a file, or to standard output (-) instead of the lines
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

impl Conform {
    /// Checks the target and prints a line a clause.
    pub fn run(&self) -> anyhow::Result<()> {
        if self.list {
            list();
            return Ok(());
        }
        let wanted = Wanted { destructive: self.destructive, only: self.only.clone() };
        wanted.check().map_err(|error| anyhow::anyhow!("--only: {error}"))?;
        output::check_json(self.json.as_ref())?;
        let mut target = self.reached()?.unwrap_or_else(|(name, lost)| unreached(&name, &lost));
        let is_quiet = self.json.as_deref() == Some("-");
        let checked = check(&mut *target, &wanted, &mut |judged| {
            if !is_quiet {
                output::print(&judged.text());
            }
        });
        let report = checked.unwrap_or_else(|lost| unreached(&target.name(), &lost));
        drop(target);
        if !is_quiet {
            output::print(&report.summary());
        }
        if let Some(path) = &self.json {
            output::write_json(path, &report.json())?;
        }
        let failed = report.count(Verdict::Fail);
        judge(failed == 0, || format!("{failed} clauses failed: {}", report.failed().join(", ")))
    }

    /// The target; or its name, and why it cannot be reached.
    ///
    /// # Errors
    /// An option that is wrong.
    fn reached(&self) -> anyhow::Result<Result<Box<dyn Target>, (String, Lost)>> {
        let Some(text) = &self.target else {
            let options = self.settings.options()?;
            let document = options.document_without_work("conform", "the clauses are the work")?;
            let config = document.config()?;
            let name = format!("a drive of this program, engine {}", config.engine.name);
            let drive = InProcess::power_on(&name, config).map(|drive| Box::new(drive) as Box<dyn Target>);
            return Ok(drive.map_err(|lost| (name, lost)));
        };
        let is_configured = "the drive of TARGET is configured by its server; leave it out";
        self.settings.options()?.refuse(|_| true, is_configured)?;
        let address = address(text).map_err(|error| anyhow::anyhow!("{text:?}: {error}"))?;
        let options = self.host.options()?;
        let remote = Remote { address, nqn: self.nqn.clone(), nsid: self.nsid, options };
        self.host.check(&remote)?;
        let reached = match remote.is_node() {
            true => Node::open(remote).map(|target| Box::new(target) as Box<dyn Target>),
            false => Tcp::connect(remote).map(|target| Box::new(target) as Box<dyn Target>),
        };
        Ok(reached.map_err(|lost| (text.clone(), lost)))
    }
}

fn unreached(name: &str, lost: &Lost) -> ! {
    output::tell(&format!("kvdrive: {name}: {lost}"));
    std::process::exit(UNREACHED);
}

fn list() {
    for clause in clauses() {
        let destructive = if clause.destructive { " (--destructive)" } else { "" };
        output::print(&format!(
            "{:<9} {:<9} {:<26} {}{destructive}",
            clause.group.name(),
            clause.section,
            clause.id,
            clause.asks
        ));
        if !clause.who.is_empty() {
            output::print(&format!("{:<46} {}", "", clause.who));
        }
    }
}
