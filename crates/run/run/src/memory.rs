//! Memory of this machine: how much this program may use, how much of that is left, and what it has taken. From Linux's
//! `/proc` and the limits of its control groups; other systems report nothing.
//!
//! | what | from |
//! |---|---|
//! | [`share`] | `MemTotal`; limits of the control groups of the program and of those that contain them, versions 1 and 2; `RLIMIT_AS` |
//! | [`left`] | `MemAvailable`; of each limited group, the limit without what its programs use, page cache aside |
//! | [`ProcessMemory`] | `/proc/self/status`, `stat`, `smaps_rollup` |
//!
//! A drive in memory is as large as its flash once it has been filled. The kernel ends a program that needs more than there
//! is, without a word. [`Spending`] notices before, as often as a run has stored a few MiB.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvdrive_config::{Config, ConfigError, Document, binary};
use kvdrive_declare::Counters;
use kvdrive_flash::media::file::cache::kept_bytes;
use kvdrive_text::scaled::bytes;
use serde::{Deserialize, Serialize};

/// Limits of control groups from this number of bytes on mean that there is none.
const UNLIMITED: u64 = 1 << 60;
/// A run looks at the memory that is left whenever it has stored this many bytes.
const STEP_BYTES: u64 = 32 << 20;
/// What a stored value can take beside its bytes: a page of which it uses a part, and its place in the index.
const BESIDE_BYTES: u64 = 4096;
/// A run ends while this part of the memory is left, but at least and at most these bytes.
const RESERVE_PART: u64 = 32;
const RESERVE_BYTES: (u64, u64) = (96 << 20, 1 << 30);

/// The memory that a drive in memory takes if its user does not say how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its size, bytes.
    pub bytes: u64,
    /// The same in words: `a quarter of this machine's memory`.
    pub words: &'static str,
}

/// A quarter of the memory that this program may use, or half of what is left of it if that is less; `None`: the system does
/// not report it.
///
/// The quarter is the same whenever a program is started on a machine. Beside the drive's pages there are its index, its
/// buffers and other programs.
pub fn share() -> Option<Share> {
    share_below(Path::new("/"))
}

/// Bytes that this program can still take; `None`: the system does not report it.
pub fn left() -> Option<u64> {
    Machine::below(Path::new("/")).left()
}

/// A control group with a limit, as its files name limit and use.
#[derive(Clone, Debug)]
struct Group {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// The line of `memory.stat` with the page cache that can be dropped.
    cache: &'static str,
}

impl Group {
    fn limit(&self) -> Option<u64> {
        number(&read_to_string(self.folder.join(self.limit)).ok()?).filter(|limit| *limit < UNLIMITED)
    }

    fn left(&self) -> Option<u64> {
        let used = number(&read_to_string(self.folder.join(self.usage)).ok()?)?;
        let statistics = read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let cache = statistics.lines().find_map(|line| line.strip_prefix(self.cache)).and_then(number);
        Some(self.limit()?.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
    }
}

/// What limits the memory of this program. `root` is `/`, except in tests.
#[derive(Clone, Debug)]
struct Machine {
    meminfo: PathBuf,
    groups: Vec<Group>,
}

impl Machine {
    fn below(root: &Path) -> Machine {
        let memberships = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let groups = memberships.lines().flat_map(|line| groups_of(root, line)).collect();
        Machine { meminfo: root.join("proc/meminfo"), groups }
    }

    fn line(&self, name: &str) -> Option<u64> {
        kib(&read_to_string(&self.meminfo).ok()?, name)
    }

    fn left(&self) -> Option<u64> {
        let of_groups = self.groups.iter().filter_map(Group::left);
        self.line("MemAvailable:").into_iter().chain(of_groups).min()
    }
}

/// The groups with a limit of one line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`, from the program's own to the root:
/// inside a container the path may not be visible, and its root is then the container's.
fn groups_of(root: &Path, line: &str) -> Vec<Group> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mounts, [limit, usage, cache]): (&[&str], _) = match controllers {
        "" => {
            (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], ["memory.max", "memory.current", "inactive_file "])
        }
        _ if controllers.split(',').any(|controller| controller == "memory") => (
            &["sys/fs/cgroup/memory"],
            ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
        ),
        _ => return Vec::new(),
    };
    let path = Path::new(path.trim_start_matches('/'));
    let group = |folder| Group { folder, limit, usage, cache };
    let of_mount = |mount: &&str| {
        let mount = root.join(mount);
        path.ancestors().map(|part| group(mount.join(part))).collect::<Vec<_>>()
    };
    mounts.iter().flat_map(of_mount).filter(|group| group.limit().is_some()).collect()
}

/// The memory that this program may use, in bytes, and a quarter of it in words.
fn allowed(root: &Path) -> Option<(u64, &'static str)> {
    let machine = Machine::below(root);
    let limits = read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    let address_space = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    let of_process = address_space.and_then(|rest| number(rest.split_whitespace().next()?));
    let of_groups = machine.groups.iter().filter_map(Group::limit).min();
    let found = [
        (machine.line("MemTotal:"), "a quarter of this machine's memory"),
        (of_groups, "a quarter of this control group's memory"),
        (of_process, "a quarter of this program's address space"),
    ];
    found.into_iter().filter_map(|(bytes, words)| Some((bytes?, words))).min_by_key(|(bytes, _)| *bytes)
}

/// Gives the drives of `documents` a share of the memory together ([`share`]), as [`Document::fit_to_memory`] does. Returns
/// a line for each drive that became smaller.
///
/// # Errors
/// One of the documents is no configuration.
pub fn fit<'a>(
    documents: impl ExactSizeIterator<Item = &'a mut Document>,
    instead: &str,
) -> Result<Vec<String>, ConfigError> {
    let Some(Share { bytes, words }) = share() else { return Ok(Vec::new()) };
    let room = bytes / (documents.len() as u64).max(1);
    let lines = documents.map(|document| document.fit_to_memory(room, words, instead));
    Ok(lines.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn share_below(root: &Path) -> Option<Share> {
    let (bytes, words) = allowed(root)?;
    let quarter = Share { bytes: bytes / 4, words };
    let half = Machine::below(root)
        .left()
        .map(|left| Share { bytes: left / 2, words: "half of the memory that is left" });
    Some(half.filter(|half| half.bytes < quarter.bytes).unwrap_or(quarter))
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number of a line `NAME   123 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    number(line.trim().strip_suffix("kB")?).map(|kib| kib * 1024)
}

/// Memory of a process so far; what the system does not report is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Counters)]
pub struct ProcessMemory {
    /// Memory of the program in the machine's own.
    #[counter(measured, state)]
    pub resident_bytes: u64,
    /// The most that it was.
    #[counter(measured, state)]
    pub resident_peak_bytes: u64,
    /// The part of it that is in huge pages.
    #[counter(measured, state)]
    pub huge_page_bytes: u64,
    /// The part of it that is pages of drives in files, read and found whole (`media.cache_bytes`).
    #[counter(measured, state)]
    pub kept_page_bytes: u64,
    /// First touches of memory, each of which the kernel answers with a page.
    #[counter(measured)]
    pub page_faults: u64,
    /// Page faults that waited for storage.
    #[counter(measured)]
    pub major_page_faults: u64,
}

impl ProcessMemory {
    /// That of this process. The kernel looks at each of its pages for this: some milliseconds for some GB.
    pub fn now() -> ProcessMemory {
        ProcessMemory { kept_page_bytes: kept_bytes(), ..ProcessMemory::below("/proc/self") }
    }

    /// That of another process of the same user; which part of it is kept pages is not known.
    pub fn of(pid: u32) -> ProcessMemory {
        ProcessMemory::below(&format!("/proc/{pid}"))
    }

    /// The state of now, with the page faults since `before`.
    #[must_use]
    pub fn since(self, before: &ProcessMemory) -> ProcessMemory {
        ProcessMemory {
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            major_page_faults: self.major_page_faults.saturating_sub(before.major_page_faults),
            ..self
        }
    }

    fn below(folder: &str) -> ProcessMemory {
        let [status, rollup, statistics] = ["status", "smaps_rollup", "stat"]
            .map(|file| read_to_string(format!("{folder}/{file}")).unwrap_or_default());
        // The program's name, in brackets, may contain anything.
        let fields: Vec<&str> =
            statistics.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |index: usize| fields.get(index).copied().and_then(number).unwrap_or(0);
        let (minor, major) = (field(7), field(9));
        ProcessMemory {
            resident_bytes: kib(&status, "VmRSS:").unwrap_or(0),
            resident_peak_bytes: kib(&status, "VmHWM:").unwrap_or(0),
            huge_page_bytes: kib(&rollup, "AnonHugePages:").unwrap_or(0),
            kept_page_bytes: 0,
            page_faults: minor + major,
            major_page_faults: major,
        }
    }
}

/// The memory that a run spends: whether there is enough is asked whenever it has stored some MiB more.
pub(crate) struct Spending {
    /// Bytes that may be stored until the next look; `u64::MAX`: never looks.
    due_bytes: AtomicU64,
    spent_bytes: AtomicU64,
    reserve_bytes: u64,
    machine: Machine,
    /// The drive, for the message.
    what: String,
}

impl Spending {
    /// Of a run with the drive of `config` in this program.
    pub fn of(config: &Config) -> Spending {
        let (least, most) = RESERVE_BYTES;
        let allowed = allowed(Path::new("/")).filter(|_| !config.media.has_file());
        let Some((bytes, _)) = allowed else { return Spending::elsewhere() };
        let drive = binary(config.flash.geometry().data_bytes());
        Spending {
            due_bytes: AtomicU64::new(STEP_BYTES),
            spent_bytes: AtomicU64::new(0),
            reserve_bytes: (bytes / RESERVE_PART).clamp(least, most),
            machine: Machine::below(Path::new("/")),
            what: format!("the drive has {drive} of flash in memory"),
        }
    }

    /// Of a run whose drive is on a network, or in a file.
    pub fn elsewhere() -> Spending {
        let machine = Machine { meminfo: PathBuf::new(), groups: Vec::new() };
        let (due_bytes, spent_bytes) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Spending { due_bytes, spent_bytes, reserve_bytes: 0, machine, what: String::new() }
    }

    /// Notes that values with `bytes` bytes in all are going to be stored. Returns why the run should end, if memory runs
    /// short.
    #[inline]
    pub fn note(&self, values: u64, bytes: u64) -> Option<anyhow::Error> {
        let more = values * BESIDE_BYTES + bytes;
        let spent = self.spent_bytes.fetch_add(more, Relaxed) + more;
        if spent < self.due_bytes.load(Relaxed) { None } else { self.look(spent) }
    }

    #[cold]
    fn look(&self, spent: u64) -> Option<anyhow::Error> {
        self.due_bytes.store(spent.saturating_add(STEP_BYTES), Relaxed);
        let left = self.machine.left()?;
        let used = ProcessMemory::now().resident_bytes;
        (left < self.reserve_bytes).then(|| {
            anyhow::anyhow!(
                "memory runs short: this program uses {}, and {} are left; {}; set flash.capacity smaller, or media.kind to \
                 file",
                bytes(used as f64),
                bytes(left as f64),
                self.what
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine's files below a folder.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:  12582912 kB\n");

    fn of(files: &[(&str, &str)]) -> (Option<(u64, &'static str)>, Option<u64>) {
        let root = machine(files);
        let share = share_below(root.path()).map(|share| (share.bytes >> 20, share.words));
        (share, Machine::below(root.path()).left().map(|bytes| bytes >> 20))
    }

    #[test]
    fn the_machine_is_the_limit_where_no_group_has_one() {
        let whole = (Some((4096, "a quarter of this machine's memory")), Some(12288));
        assert_eq!(of(&[MEMINFO]), whole);
        let unlimited = [
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/a/b\n1:cpu:/\n0::/a\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            (
                "proc/self/limits",
                "Max address space         unlimited            unlimited            bytes     \n",
            ),
        ];
        assert_eq!(of(&unlimited), whole);
        assert_eq!(of(&[]), (None, None), "another system");
    }

    #[test]
    fn the_least_limit_of_a_group_or_of_one_above_it_counts() {
        let second = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "4294967296\n"),
            ("sys/fs/cgroup/a/memory.current", "3221225472\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 7\n"),
            ("sys/fs/cgroup/a/b/memory.max", "8589934592\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1073741824\n"),
        ];
        assert_eq!(of(&second), (Some((1024, "a quarter of this control group's memory")), Some(2048)));
        // A container, which does not see the path of its group.
        let first = [
            MEMINFO,
            ("proc/self/cgroup", "9:pids:/x\n4:memory:/docker/12ab\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 536870912\n"),
        ];
        assert_eq!(of(&first), (Some((512, "a quarter of this control group's memory")), Some(1536)));
    }

    #[test]
    fn other_programs_and_limits_of_the_process_count_too() {
        let full = [("proc/meminfo", "MemTotal:  16777216 kB\nMemAvailable:  2097152 kB\n")];
        assert_eq!(of(&full), (Some((1024, "half of the memory that is left")), Some(2048)));
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax address space         1073741824  unlimited  bytes\n";
        let limited = of(&[MEMINFO, ("proc/self/limits", limits)]);
        assert_eq!(limited, (Some((256, "a quarter of this program's address space")), Some(12288)));
    }

    /// A run that stores is stopped while there is a reserve, and looks once a step.
    #[test]
    fn a_run_ends_before_memory_does() {
        let root = machine(&[MEMINFO]);
        let spending = |reserve_bytes| Spending {
            due_bytes: AtomicU64::new(STEP_BYTES),
            spent_bytes: AtomicU64::new(0),
            reserve_bytes,
            machine: Machine::below(root.path()),
            what: "the drive has 64 GiB of flash in memory".to_owned(),
        };
        let stores_until = |spending: &Spending| (1..100_000).find(|_| spending.note(1, 4096).is_some());
        assert_eq!(stores_until(&spending(13 << 30)), Some(STEP_BYTES / 8192), "not before the first step");
        assert_eq!(stores_until(&spending(12 << 30)), None);
        let line = spending(13 << 30).note(1, STEP_BYTES).unwrap().to_string();
        assert!(line.contains("12.88 GB are left; the drive has 64 GiB of flash in memory; set "), "{line}");
        assert!(Spending::elsewhere().note(1 << 20, 1 << 50).is_none());
    }

    #[test]
    fn this_process_has_memory_and_touches_more() {
        let before = ProcessMemory::now();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = ProcessMemory::now();
        if before.resident_bytes > 0 {
            assert!(after.resident_bytes >= before.resident_bytes + (60 << 20), "{before:?} {after:?}");
            assert!(after.resident_peak_bytes >= after.resident_bytes - (1 << 20));
            assert!(after.page_faults > before.page_faults);
        }
        drop(touched);
    }
}
