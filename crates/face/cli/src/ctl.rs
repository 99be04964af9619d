//! `kvdrive ctl`: looks at a drive that is served, makes it fail, cuts its power.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use kvdrive_flash::faults::{self, FAULTS};
use kvdrive_text::scaled::{bytes, time};
use kvdrive_text::{grouped, number_of};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::output;
use crate::serve::FIRST;
use crate::serve::control::{self, Request};
use crate::serve::seen::{Seen, SeenDrive, SeenFault, SeenHost};
use crate::settings::{Known, count};

/// Options of `ctl`.
#[derive(Args)]
pub struct Ctl {
    #[command(subcommand)]
    verb: Verb,
    /// The control socket of the server [default: kvdrive.sock in the user's runtime folder]
    #[arg(long, global = true, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Namespace of the drive; comes before the verb
    #[arg(long, value_name = "N", default_value = "1")]
    nsid: u32,
    /// Prints the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows what the drive and its hosts have done so far
    Status,
    /// Shows the connected hosts
    Hosts,
    /// Makes the drive fail: `inject read-error --key user42 --times 3`
    ///
    /// After the kind of the fault come the keys of a rule as options: what it matches (--opcode --key --keys
    /// FIRST,LAST --namespace; --purpose --die --block), when it strikes (--nth --after --every --probability 1%
    /// --times), and keys of that kind (--status 81h, --delay 10ms, ...). `kvdrive list faults` prints the kinds. A key
    /// that a kind does not have is refused with a list of its keys.
    Inject(Inject),
    /// Shows every fault rule and how often it matched and struck; `faults clear` removes them
    Faults(Faults),
    /// Cuts the drive's power, or powers it on
    #[command(subcommand)]
    Power(Power),
    /// Erases the namespace: every pair is deleted, commands that arrive meanwhile are answered 84h. Hosts may do the same
    /// (Format NVM) only if the server has --allow-format
    Format,
    /// Takes no more commands, finishes those in flight, and ends the server
    Drain,
    /// Ends the server at once
    Shutdown,
}

#[derive(Args)]
struct Inject {
    /// Kind of the fault
    #[arg(value_parser = Known(|| FAULTS.iter().map(|row| row.name).collect()), hide_possible_values = true)]
    kind: String,
    /// Keys of the rule
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "--KEY VALUE")]
    keys: Vec<String>,
}

#[derive(Args)]
struct Faults {
    #[command(subcommand)]
    clear: Option<FaultsVerb>,
}

#[derive(Subcommand)]
enum FaultsVerb {
    /// Removes a rule, or all
    Clear {
        /// Name of the rule
        name: Option<String>,
    },
}

#[derive(Subcommand)]
enum Power {
    /// Cuts the power now, or later with --after: the drive vanishes for hosts, and acknowledged pairs survive
    Cut {
        /// Pages that are being programmed may be left torn
        #[arg(long)]
        torn: bool,
        /// After this many more commands, at the one that follows them; with 0, at the next command
        #[arg(long, value_name = "COMMANDS", value_parser = count)]
        after: Option<u64>,
    },
    /// The drive recovers, and hosts can connect again
    On,
}

impl Ctl {
    /// Asks the server, and prints its answer.
    pub fn run(&self) -> anyhow::Result<()> {
        let path = self.control.clone().unwrap_or_else(control::default_path);
        let request = self.request()?;
        let answer = control::ask(&path, self.nsid, &request);
        let answer = match &self.verb {
            Verb::Inject(inject) => {
                answer.map_err(|error| anyhow::anyhow!(inject.as_options(&error.to_string())))
            }
            _ => answer,
        }?;
        if self.json {
            return output::write_json("-", &answer);
        }
        let text = match &request {
            Request::Status => status(&from(answer)?),
            Request::Hosts => hosts(&from::<Vec<SeenHost>>(answer)?),
            Request::Faults => fault_table(&from::<Vec<SeenFault>>(answer)?),
            Request::Inject { .. } => {
                let answer = from::<String>(answer)?;
                let (notes, names): (Vec<_>, Vec<_>) =
                    answer.lines().partition(|line| line.starts_with("note: "));
                notes.iter().for_each(|note| output::tell(&format!("kvdrive: {note}")));
                names.iter().map(|name| format!("{name}\n")).collect()
            }
            Request::Clear { .. } => format!("{} cleared", number_of(from(answer)?, "rule")),
            Request::Format => "the namespace is empty".to_owned(),
            Request::PowerCut { .. } => {
                format!("the power is off; `{} power on` switches it on", self.again())
            }
            Request::PowerOn => {
                format!("recovered in {} of model time", time(from::<u64>(answer)? as f64))
            }
            Request::Drain | Request::Shutdown => return Ok(()),
        };
        output::print(&text);
        Ok(())
    }

    /// How this server and drive are asked again.
    fn again(&self) -> String {
        let mut line = "kvdrive ctl".to_owned();
        if let Some(path) = &self.control {
            line += &format!(" --control {}", path.display());
        }
        if self.nsid != FIRST {
            line += &format!(" --nsid {}", self.nsid);
        }
        line
    }

    fn request(&self) -> anyhow::Result<Request> {
        Ok(match &self.verb {
            Verb::Status => Request::Status,
            Verb::Hosts => Request::Hosts,
            Verb::Inject(inject) => Request::Inject { rules: inject.rule()? },
            Verb::Faults(Faults { clear: None }) => Request::Faults,
            Verb::Faults(Faults { clear: Some(FaultsVerb::Clear { name }) }) => {
                Request::Clear { name: name.clone() }
            }
            Verb::Power(Power::Cut { torn, after: None }) => Request::PowerCut { torn: *torn },
            Verb::Power(Power::Cut { torn, after: Some(after) }) => Request::Inject {
                rules: format!(
                    "[[rule]]\nfault = \"power-cut\"\nat = \"command\"\nafter = {after}\ntimes = 1\ntorn = {torn}\n"
                ),
            },
            Verb::Power(Power::On) => Request::PowerOn,
            Verb::Format => Request::Format,
            Verb::Drain => Request::Drain,
            Verb::Shutdown => Request::Shutdown,
        })
    }
}

fn from<T: DeserializeOwned>(answer: Value) -> anyhow::Result<T> {
    serde_json::from_value(answer).context("the server is another version of this program")
}

impl Inject {
    /// The rule as a file of rules has it.
    fn rule(&self) -> anyhow::Result<String> {
        let Some(kind) = faults::kind(&self.kind) else {
            let names: Vec<_> = FAULTS.iter().map(|kind| kind.name).collect();
            anyhow::bail!("{:?}: no such fault; there are {}", self.kind, names.join(", "));
        };
        let mut rule = format!("[[rule]]\nfault = {}\n", quoted(kind.name));
        let mut keys = self.keys.iter().peekable();
        while let Some(option) = keys.next() {
            let name = option.strip_prefix("--").filter(|name| !name.is_empty());
            let name = name.with_context(|| format!("{option:?}: expected --KEY VALUE"))?;
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (name, keys.next_if(|next| !next.starts_with("--")).map(String::as_str)),
            };
            let key = name.replace('-', "_");
            // A time is `delay_ns = "10ms"` in a file, and --delay 10ms here.
            let in_ns = format!("{key}_ns");
            let key = if kind.keys.contains(&&*in_ns) { in_ns } else { key };
            let value = value.map_or_else(|| "true".to_owned(), in_toml);
            rule += &format!("{key} = {value}\n");
        }
        Ok(rule)
    }

    /// A server's message about a rule. It names a place in the text that [`Inject::rule`] made, for which the option
    /// with that key is given here, as it was written: a time may have its unit in the name.
    fn as_options(&self, error: &str) -> String {
        let key_and_problem = || {
            let (_line, rest) = error.strip_prefix("rules:")?.split_once(':')?;
            let (_column, rest) = rest.split_once(": ")?;
            rest.split_once(": ")
        };
        let Some((key, problem)) = key_and_problem() else { return error.to_owned() };
        let option = |key: &str| format!("--{}", key.replace('_', "-"));
        let (whole, short) = (option(key), option(key.trim_end_matches("_ns")));
        let is_whole = self.keys.iter().any(|given| given.split('=').next() == Some(&*whole));
        format!("{}: {problem}", if is_whole { whole } else { short })
    }
}

/// A number or a flag as it is, a list of several, anything else in quotes.
fn in_toml(value: &str) -> String {
    let is_plain = |text: &str| text.parse::<f64>().is_ok() || ["true", "false"].contains(&text);
    let one = |text: &str| if is_plain(text) { text.to_owned() } else { quoted(text) };
    match value.split_once(',') {
        None => one(value),
        Some(_) => format!("[{}]", value.split(',').map(one).collect::<Vec<_>>().join(", ")),
    }
}

fn quoted(text: &str) -> String {
    // JSON's escapes are some of TOML's.
    Value::from(text).to_string()
}

fn status(seen: &Seen) -> String {
    let of = |path: &str| seen.counts.of(path);
    let number = |path: &str| grouped(of(path));
    let mut text = format!("subsystem   {}\n", seen.nqn);
    for at in &seen.listening {
        text += &format!("listening   {at}\n");
    }
    let power = if of("server.has_power") > 0 { "on" } else { "off" };
    text += &format!(
        "power       {power}, life {}; the server runs for {}\n",
        number("server.power_ons"),
        time(of("server.uptime_ns") as f64)
    );
    text += &format!(
        "hosts       {}, {}\n",
        number_of(of("hosts.controllers"), "controller"),
        number_of(of("hosts.admin_commands"), "admin command")
    );
    text += &format!(
        "            {} found nothing, {} failed\n",
        number_of(of("hosts.io_misses"), "I/O command"),
        number("hosts.io_errors")
    );
    let commands = seen.counts.labels("hosts.io_commands");
    let width = commands.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, count) in commands {
        text += &format!("            {name:<width$} {:>11}\n", grouped(count));
    }
    let amount = |path: &str| bytes(of(path) as f64);
    let (came, went) = (amount("hosts.written_bytes"), amount("hosts.read_bytes"));
    text += &format!("            {came} received, {went} sent\n");
    text += &format!(
        "buffers     {} of {} are given out\n",
        amount("hosts.buffer_used_bytes"),
        amount("hosts.buffer_limit_bytes")
    );
    let kept = match of("process.kept_page_bytes") {
        0 => String::new(),
        kept => format!(" and {} in kept pages of files", bytes(kept as f64)),
    };
    text += &format!(
        "memory      {} resident, {} of it in huge pages{kept}; at most {}; {} page faults: measured\n",
        amount("process.resident_bytes"),
        amount("process.huge_page_bytes"),
        amount("process.resident_peak_bytes"),
        number("process.page_faults")
    );
    text += &format!(
        "this look   took {} of the threads that serve: measured\n",
        time(of("server.snapshot_ns") as f64)
    );
    if let Some(drive) = &seen.drive {
        text += &drive_status(drive);
    }
    text
}

fn drive_status(drive: &SeenDrive) -> String {
    let of = |path: &str| drive.counts.of(path);
    let by_purpose = |path: &str| {
        let named =
            drive.counts.labels(path).into_iter().map(|(name, count)| format!("{name} {}", grouped(count)));
        format!("{}  {}", grouped(of(path)), named.collect::<Vec<_>>().join(", "))
    };
    let mut text = format!(
        "drive       {}, {} of model time; power-on took {} of it\n",
        number_of(of("drive.commands"), "command"),
        time(of("drive.model_ns") as f64),
        time(of("drive.recovery_ns") as f64)
    );
    let [live, capacity] = ["drive.live_bytes", "drive.capacity_bytes"].map(|path| bytes(of(path) as f64));
    // Engine lsm learns that a value was overwritten when it merges.
    text += &format!("values      at most {live} of {capacity} live\n");
    for (what, path) in [("programs", "nand.programs"), ("reads", "nand.reads"), ("erases", "nand.erases")] {
        text += &format!("{what:<11} {}\n", by_purpose(path));
    }
    if let Some(late) = &drive.lateness {
        let [median, p99] = [late.p50_ns, late.p99_ns].map(|ns| time(ns as f64));
        text += &format!(
            "late        {median} (median), {p99} (p99) of {} later than the model: measured\n",
            number_of(late.count, "event")
        );
    }
    if let Some(why) = &drive.read_only {
        text += &format!("read-only   {why}\n");
    }
    if !drive.faults.is_empty() {
        text += &fault_table(&drive.faults);
    }
    text
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn hosts(hosts: &[SeenHost]) -> String {
    if hosts.is_empty() {
        return "no host is connected".to_owned();
    }
    let mut text = format!(
        "{:>10}  {:<9}  {:>6}  {:>8}  {:>10}  {:<13}  {:<3}  {:<21}  host\n",
        "controller", "kind", "queues", "failures", "silent ms", "authenticated", "tls", "reached at"
    );
    for host in hosts {
        text += &format!(
            "{:>10}  {:<9}  {:>6}  {:>8}  {:>10}  {:<13}  {:<3}  {:<21}  {}\n",
            host.controller,
            host.kind,
            host.io_queues,
            host.failures,
            host.silent_ms,
            yes(host.authenticated),
            yes(host.tls),
            host.reached_at,
            host.nqn.escape_debug()
        );
    }
    text
}

fn fault_table(faults: &[SeenFault]) -> String {
    if faults.is_empty() {
        return "there are no fault rules".to_owned();
    }
    let width = faults.iter().map(|fault| fault.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:<width$}  {:<15}  {:>10}  {:>10}\n", "rule", "fault", "matched", "struck");
    for SeenFault { name, kind, matched, struck } in faults {
        let [matched, struck] = [matched, struck].map(|count| grouped(*count));
        text += &format!("{name:<width$}  {kind:<15}  {matched:>10}  {struck:>10}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inject(kind: &str, keys: &[&str]) -> Inject {
        Inject { kind: kind.into(), keys: keys.iter().map(|key| (*key).to_owned()).collect() }
    }

    fn rule(kind: &str, keys: &[&str]) -> anyhow::Result<String> {
        inject(kind, keys).rule()
    }

    #[test]
    fn an_error_of_a_rule_names_the_option_as_it_was_given() {
        let (status, delay) = ("rules:1:1: status: missing", "rules:3:9: delay_ns: expected 0 to a day");
        assert_eq!(inject("status", &[]).as_options(status), "--status: missing");
        for (given, named) in [
            (&["--delay", "1h"][..], "--delay"),
            (&["--delay=1h"], "--delay"),
            (&["--delay-ns", "1h"], "--delay-ns"),
            (&["--delay-ns=1h"], "--delay-ns"),
            (&[], "--delay"),
        ] {
            assert_eq!(inject("delay", given).as_options(delay), format!("{named}: expected 0 to a day"));
        }
        let other = "there is no namespace 2";
        assert_eq!(inject("delay", &[]).as_options(other), other);
    }

    #[test]
    fn a_host_is_one_line_whatever_its_name_is() {
        let nqn = "nqn.\u{1b}[2J\n         2  io".to_owned();
        let text = hosts(&[SeenHost { nqn, ..SeenHost::default() }]);
        assert!(text.lines().count() == 2 && text.ends_with("nqn.\\u{1b}[2J\\n         2  io\n"), "{text}");
    }

    #[test]
    fn options_are_the_keys_of_a_rule() {
        assert_eq!(
            rule("read-error", &["--key", "user42", "--times", "3"]).unwrap(),
            "[[rule]]\nfault = \"read-error\"\nkey = \"user42\"\ntimes = 3\n"
        );
        assert_eq!(
            rule("delay", &["--delay=10ms", "--keys", "a,b"]).unwrap(),
            "[[rule]]\nfault = \"delay\"\ndelay_ns = \"10ms\"\nkeys = [\"a\", \"b\"]\n"
        );
        assert_eq!(
            rule("power-cut", &["--torn", "--probability", "1%"]).unwrap(),
            "[[rule]]\nfault = \"power-cut\"\ntorn = true\nprobability = \"1%\"\n"
        );
        let error = rule("red-error", &[]).unwrap_err().to_string();
        assert!(error.contains("there are read-error"), "{error}");
        assert!(rule("flip", &["die", "3"]).unwrap_err().to_string().contains("--KEY VALUE"));
    }
}
