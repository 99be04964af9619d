//! Clients of `serve --vfio-user` that make the files of their memory shorter while commands run: memfd, tmpfs and
//! hugetlbfs. Their function fails; the server, other functions and what is stored go on.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use kvdrive_nvme::{Status, opcode};
use kvdrive_sim::wall::Stopwatch;
use rustix::fs::{fstatfs, ftruncate};

use super::serve::{Served, serve_by};
use kvdrive_rigs::guest::{BASE, DATA_AT, Doorbell, Guest, MEMORY_BYTES, PAGE, Rings, keyed, memory_file};

/// Data that are taken away are in the second half of the memory, which is one huge page.
const LOST_AT: u64 = MEMORY_BYTES / 2;
const VALUE: u8 = 0x51;
const VALUE_BYTES: u32 = 4096;
/// Huge pages of 2 MiB that a guest needs, and some.
const HUGE_PAGES: u32 = 8;
const HUGE_PAGES_FILE: &str = "/proc/sys/vm/nr_hugepages";

/// A server with two functions, and its standard error.
struct Server {
    served: Served,
    paths: [PathBuf; 2],
    log: File,
    _folder: tempfile::TempDir,
}

fn server() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    let log = tempfile::tempfile().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"));
    program.stderr(log.try_clone().unwrap());
    let options: Vec<&str> = paths.iter().flat_map(|path| ["--vfio-user", path.to_str().unwrap()]).collect();
    let served = serve_by(program, &options);
    Server { served, paths, log, _folder: folder }
}

impl Server {
    fn log(&mut self) -> String {
        let mut text = String::new();
        self.log.rewind().unwrap();
        self.log.read_to_string(&mut text).unwrap();
        text
    }
}

/// Huge pages of the system, given back when this is dropped.
struct HugePages {
    before: String,
    folder: tempfile::TempDir,
}

impl HugePages {
    /// `None`, with a line: this user cannot have any.
    fn new() -> Option<HugePages> {
        let number = || std::fs::read_to_string(HUGE_PAGES_FILE).ok()?.trim().parse::<u32>().ok();
        let before = number()?;
        let asked = std::fs::write(HUGE_PAGES_FILE, (before + HUGE_PAGES).to_string()).is_ok();
        let huge = HugePages { before: before.to_string(), folder: tempfile::tempdir().unwrap() };
        let has_pages = asked && number()? >= before + HUGE_PAGES;
        let mount = ["-t", "hugetlbfs", "none"];
        let is_mounted = has_pages
            && Command::new("mount")
                .args(mount)
                .arg(huge.folder.path())
                .status()
                .is_ok_and(|it| it.success());
        if !is_mounted {
            println!("no huge pages (vm.nr_hugepages), or no right to mount hugetlbfs: not tested with them");
        }
        is_mounted.then_some(huge)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // A server that was killed may not have ended yet.
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).output();
        let _ = std::fs::write(HUGE_PAGES_FILE, &self.before);
    }
}

/// A new file of a guest's memory without a name.
fn file_in(folder: &Path, system: u32) -> OwnedFd {
    let path = folder.join(format!("guest-{}", std::process::id()));
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).to_owned();
    let file = OwnedFd::from(options.open(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    assert_eq!(fstatfs(&file).unwrap().f_type as u32, system, "{}", folder.display());
    ftruncate(&file, MEMORY_BYTES).unwrap();
    file
}

/// Every kind of file that a client's memory can be, with its name.
fn each_kind(mut test: impl FnMut(&str, &mut dyn FnMut() -> OwnedFd)) {
    test("memfd", &mut || memory_file(MEMORY_BYTES, false));
    test("tmpfs", &mut || file_in(Path::new("/dev/shm"), 0x0102_1994));
    if let Some(huge) = HugePages::new() {
        test("hugetlbfs", &mut || file_in(huge.folder.path(), 0x9584_58F6));
    }
}

fn booted(path: &Path, doorbell: Doorbell, file: OwnedFd) -> (Guest, Rings) {
    let mut guest = Guest::over(path, doorbell, file);
    guest.map();
    guest.enable();
    let rings = guest.create(1, 32, None);
    (guest, rings)
}

/// Waits until a function has failed.
fn await_failure(guest: &mut Guest, kind: &str) {
    let begin = Stopwatch::start();
    while !guest.status().fatal() {
        assert!(begin.seconds() < 20.0, "{kind}: the function goes on");
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number}").into_bytes()
}

/// What another function reads under a key: nothing, or the whole value.
fn is_stored(guest: &mut Guest, rings: &mut Rings, number: u32) -> bool {
    guest.put(DATA_AT, &[0xEE; VALUE_BYTES as usize]);
    let read = keyed(opcode::RETRIEVE, 7, &key(number), DATA_AT, VALUE_BYTES);
    let status = guest.run(rings, &read).status();
    if status == Status::KEY_NOT_FOUND {
        return false;
    }
    assert_eq!(status, Status::SUCCESS, "key {number}");
    let value = guest.get(DATA_AT, VALUE_BYTES as usize);
    assert!(value.iter().all(|byte| *byte == VALUE), "key {number} has bytes that were never stored");
    true
}

#[test]
fn data_that_are_taken_away_are_never_stored_as_zeros() {
    each_kind(|kind, file| {
        let mut server = server();
        let [path, other_path] = server.paths.clone();
        let (mut other, mut other_rings) =
            booted(&other_path, Doorbell::InMemory, memory_file(MEMORY_BYTES, true));
        let (mut guest, mut rings) = booted(&path, Doorbell::InMemory, file());
        guest.put(LOST_AT, &[VALUE; 16 * PAGE as usize]);
        let (mut asked, mut answered, mut stored) = (0_u32, 0, Vec::new());
        loop {
            // Stores, and retrieves whose answers go to the same half.
            while asked - answered < 16 {
                let at = LOST_AT + u64::from(asked % 8) * PAGE;
                let sqe = match asked % 4 {
                    3 => keyed(opcode::RETRIEVE, asked as u16, &key(0), at + 8 * PAGE, VALUE_BYTES),
                    _ => keyed(opcode::STORE, asked as u16, &key(asked), at, VALUE_BYTES),
                };
                guest.submit(&mut rings, &sqe);
                asked += 1;
            }
            if asked > 400 {
                ftruncate(&guest.file, LOST_AT).unwrap();
                break;
            }
            let cqe = guest.wait(&mut rings);
            assert_eq!(cqe.status(), Status::SUCCESS);
            stored.push(u32::from(cqe.cid.get()));
            answered += 1;
        }
        // The drive may have fetched the data of all others before they were taken away.
        guest.submit(&mut rings, &keyed(opcode::STORE, asked as u16, &key(asked), LOST_AT, VALUE_BYTES));
        asked += 1;
        await_failure(&mut guest, kind);
        while let Some(cqe) = guest.poll(&mut rings) {
            stored.push(u32::from(cqe.cid.get()));
        }
        assert!(stored.len() < asked as usize, "{kind}: a completion came for each command");
        for number in (0..asked).filter(|number| number % 4 != 3) {
            let is_there = is_stored(&mut other, &mut other_rings, number);
            assert!(is_there || !stored.contains(&number), "{kind}: key {number} was acknowledged");
        }
        let log = server.log();
        assert!(log.contains("its client made a file of its memory shorter"), "{kind}: {log}");
        // A client that comes anew finds a whole function.
        drop(guest);
        let (mut guest, mut rings) = booted(&path, Doorbell::InMemory, memory_file(MEMORY_BYTES, false));
        assert!(is_stored(&mut guest, &mut rings, 0), "{kind}");
        assert!(server.served.program.try_wait().unwrap().is_none(), "{kind}: the server has ended");
    });
}

#[test]
fn rings_that_are_taken_away_fail_their_function_alone() {
    each_kind(|kind, file| {
        let mut server = server();
        let [path, other_path] = server.paths.clone();
        let (mut other, mut other_rings) =
            booted(&other_path, Doorbell::InMemory, memory_file(MEMORY_BYTES, true));
        let (mut guest, mut rings) = booted(&path, Doorbell::ByMessage, file());
        guest.put(LOST_AT, &[VALUE; PAGE as usize]);
        for number in 0..8 {
            guest
                .submit(&mut rings, &keyed(opcode::STORE, number, &key(number.into()), LOST_AT, VALUE_BYTES));
        }
        // The guest touches none of its memory from here on.
        ftruncate(&guest.file, 0).unwrap();
        guest.ring(2, (rings.tail + 4) % rings.entries);
        await_failure(&mut guest, kind);
        (0..8).for_each(|number| _ = is_stored(&mut other, &mut other_rings, number));
        assert!(server.served.program.try_wait().unwrap().is_none(), "{kind}: the server has ended");
    });
}

#[test]
fn memory_that_is_refused_is_in_the_log_with_the_reason() {
    let mut server = server();
    let mut guest = Guest::connect(&server.paths[0], Doorbell::ByMessage, true);
    let file = File::open("/proc/version").unwrap();
    // The client waits for the reply, and does not look at its error.
    let _ = guest.client.dma_map(0, BASE, PAGE, file.as_fd().as_raw_fd());
    let log = server.log();
    let wanted = "memory of its client refused: 4096 B at 0x100000: its file is no memfd, and in neither tmpfs nor \
                  hugetlbfs";
    assert!(log.contains(wanted), "{log}");
}
