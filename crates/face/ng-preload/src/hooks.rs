//! The functions of the C library that are replaced. Each asks `library` whether its path or its descriptor is a
//! node's, and calls the next library's function of its name if not. Nothing is decided here.

#![allow(
    unsafe_code,
    reason = "the C library's functions take pointers, and have names that others must not have"
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "they are as safe as the functions of the C library they replace"
)]
#![allow(clippy::disallowed_methods, reason = "a preloaded library is configured by a variable alone")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use kvdrive_ng::abi;
use kvdrive_ng::nodes::{Node, Nodes, VARIABLE};
use kvdrive_text::output::tell;
use libc::mode_t;
use rustix::io::Errno;

use crate::library::Library;

/// This process's nodes; null: there are none, and every call goes to the C library.
static LIBRARY: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Reads the variable, when the library is loaded: before `main`, and before there are threads.
extern "C" fn at_load() {
    let _ = catch_unwind(|| {
        let Some(value) = std::env::var_os(VARIABLE) else { return };
        match Nodes::of(&value.to_string_lossy()) {
            Ok(nodes) => {
                LIBRARY.store(Box::into_raw(Box::new(Library::new(nodes))), Ordering::Release);
                // SAFETY: the handler is a function of this library, which is never unloaded: it was preloaded.
                unsafe {
                    libc::pthread_atfork(None, None, Some(in_child));
                    libc::atexit(at_exit);
                }
            }
            Err(error) => tell(&format!("kvdrive-ng: {error}")),
        }
    });
}

/// The nodes of a child have connections of their own. The parent's state stays in memory, unused: its locks may be
/// held by threads that are not in the child.
extern "C" fn in_child() {
    let _ = catch_unwind(|| {
        if let Some(library) = library() {
            LIBRARY.store(Box::into_raw(Box::new(library.of_child())), Ordering::Release);
        }
    });
}

/// Removes temporary files.
extern "C" fn at_exit() {
    let _ = catch_unwind(|| library().map(Library::end));
}

fn library() -> Option<&'static Library> {
    // SAFETY: it is null, or was leaked by `at_load` or `in_child`.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }
}

fn errno() -> c_int {
    // SAFETY: the C library has a place for each thread.
    unsafe { *libc::__errno_location() }
}

fn fail(errno: Errno) -> c_int {
    // SAFETY: the C library has a place for each thread.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
    -1
}

/// Runs one of our functions; `None`: the call does not concern a node. A panic, which would be a defect, does not
/// cross into C. A call that succeeds leaves `errno` unchanged, as the system does, because libnvme checks it instead
/// of the return value of `ioctl`.
fn ours<T>(answer: impl FnOnce(&'static Library) -> Option<Result<T, Errno>>) -> Option<Result<T, Errno>> {
    let library = library()?;
    // SAFETY: the C library has a place for each thread.
    let errno = unsafe { libc::__errno_location() };
    let before = unsafe { *errno };
    let answered = catch_unwind(AssertUnwindSafe(|| answer(library))).unwrap_or(Some(Err(Errno::IO)));
    // SAFETY: it is still this thread.
    unsafe { *errno = before };
    answered
}

/// The path of a call, if it is text.
unsafe fn text<'a>(path: *const c_char) -> Option<&'a str> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller passes a string of C's, as the C library demands.
    unsafe { CStr::from_ptr(path) }.to_str().ok()
}

/// The node that a path leads to; `follows`: a link at its end is followed.
unsafe fn node_at(library: &Library, directory: c_int, path: *const c_char, follows: bool) -> Option<usize> {
    // SAFETY: as the caller's.
    let path = unsafe { text(path) }?;
    match directory {
        libc::AT_FDCWD => library.nodes().at(path, format_args!("/proc/self/cwd"), follows),
        directory => library.nodes().at(path, format_args!("/proc/self/fd/{directory}"), follows),
    }
}

/// A number that may be a descriptor, borrowed for the duration of a call.
fn borrowed(descriptor: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: only -1 is forbidden; the system answers EBADF for other invalid values.
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

fn node_of(library: &Library, descriptor: c_int) -> Option<usize> {
    library.of(borrowed(descriptor)?)
}

/// Calls the next library's function of this name; without one, evaluates to `$absent`.
macro_rules! next {
    ($name:ident($($argument:expr => $type:ty),*) -> $result:ty, $absent:expr) => {{
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let mut next = NEXT.load(Ordering::Relaxed);
        if next.is_null() {
            // SAFETY: the name ends with a zero.
            next = unsafe { libc::dlsym(libc::RTLD_NEXT, concat!(stringify!($name), "\0").as_ptr().cast()) };
            NEXT.store(next, Ordering::Relaxed);
        }
        if next.is_null() {
            $absent
        } else {
            // SAFETY: the function of this name has this type in every C library; it gets the caller's arguments.
            unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(next)($($argument),*)
            }
        }
    }};
}

fn absent() -> c_int {
    fail(Errno::NOSYS)
}

fn returned(answer: Result<c_int, Errno>) -> c_int {
    answer.unwrap_or_else(fail)
}

unsafe fn open_node(directory: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    ours(|library| {
        let follows = flags & libc::O_NOFOLLOW == 0;
        // SAFETY: as the caller's.
        Some(library.open(unsafe { node_at(library, directory, path, follows) }?, flags))
    })
    .map(returned)
}

/// The path to use instead, if `path` is a file of a node in `/sys`.
unsafe fn instead(path: *const c_char) -> Option<CString> {
    let library = library()?;
    // SAFETY: as the caller's.
    let path = unsafe { text(path) }?;
    let file = catch_unwind(AssertUnwindSafe(|| library.sysfs(path))).ok()??;
    CString::new(file.into_os_string().into_encoded_bytes()).ok()
}

/// Defines functions that answer calls about nodes and pass all others to the next library. The argument in brackets is
/// a path, which may be replaced.
macro_rules! hooks {
    ($($name:ident $([$path:ident])? ($($argument:ident: $type:ty),*) -> $result:ty = $ours:expr, $absent:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            $(
                // SAFETY: the caller passes a string of C's.
                let instead = unsafe { instead($path) };
                let $path = instead.as_ref().map_or($path, |path| path.as_ptr());
            )?
            // SAFETY: the caller passes the arguments of the C library's function of this name.
            let ours: Option<$result> = unsafe { $ours };
            ours.unwrap_or_else(|| next!($name($($argument => $type),*) -> $result, $absent))
        }
    )*};
}

/// Such functions that return an `int`.
macro_rules! int_hooks {
    ($($name:ident $([$path:ident])? ($($argument:ident: $type:ty),*) = $ours:expr;)*) => {
        hooks! { $($name $([$path])? ($($argument: $type),*) -> c_int = $ours, absent();)* }
    };
}

/// Such functions that are called first, and whose answer for a node may be another one.
macro_rules! through_hooks {
    ($($name:ident ($descriptor:ident: c_int, $($argument:ident: $type:ty),*) -> $result:ty = $seen:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($descriptor: c_int, $($argument: $type),*) -> $result {
            let answer = next!($name($descriptor => c_int, $($argument => $type),*) -> $result, -1);
            $seen($descriptor, answer)
        }
    )*};
}

/// No answer of our own: the next library's function is called, with the path in the tree of nodes.
unsafe fn none<T>() -> Option<T> {
    None
}

// Functions that open have `mode` where C has `...`, which is in the same place on this machine.
int_hooks! {
    open[path](path: *const c_char, flags: c_int, mode: mode_t) = open_node(libc::AT_FDCWD, path, flags);
    open64[path](path: *const c_char, flags: c_int, mode: mode_t) = open_node(libc::AT_FDCWD, path, flags);
    openat[path](directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) = open_node(directory, path, flags);
    openat64[path](directory: c_int, path: *const c_char, flags: c_int, mode: mode_t)
        = open_node(directory, path, flags);
    __open_2[path](path: *const c_char, flags: c_int) = open_node(libc::AT_FDCWD, path, flags);
    __open64_2[path](path: *const c_char, flags: c_int) = open_node(libc::AT_FDCWD, path, flags);
    __openat_2[path](directory: c_int, path: *const c_char, flags: c_int) = open_node(directory, path, flags);
    __openat64_2[path](directory: c_int, path: *const c_char, flags: c_int) = open_node(directory, path, flags);
    creat(path: *const c_char, mode: mode_t) = open_node(libc::AT_FDCWD, path, libc::O_WRONLY);
    creat64(path: *const c_char, mode: mode_t) = open_node(libc::AT_FDCWD, path, libc::O_WRONLY);
    ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) = ioctl_of_node(descriptor, request, argument);
    access[path](path: *const c_char, mode: c_int) = may_access(libc::AT_FDCWD, path, mode, 0);
    euidaccess[path](path: *const c_char, mode: c_int) = may_access(libc::AT_FDCWD, path, mode, 0);
    eaccess[path](path: *const c_char, mode: c_int) = may_access(libc::AT_FDCWD, path, mode, 0);
    faccessat[path](directory: c_int, path: *const c_char, mode: c_int, flags: c_int)
        = may_access(directory, path, mode, flags);
    stat[path](path: *const c_char, into: *mut libc::stat) = stat_path(libc::AT_FDCWD, path, 0, into);
    stat64[path](path: *const c_char, into: *mut libc::stat) = stat_path(libc::AT_FDCWD, path, 0, into);
    lstat[path](path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, into);
    lstat64[path](path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, into);
    fstatat[path](directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int)
        = stat_path(directory, path, flags, into);
    fstatat64[path](directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int)
        = stat_path(directory, path, flags, into);
    fstat(descriptor: c_int, into: *mut libc::stat) = stat_descriptor(descriptor, into);
    fstat64(descriptor: c_int, into: *mut libc::stat) = stat_descriptor(descriptor, into);
    statx[path](directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx)
        = statx_path(directory, path, flags, into);
    scandir[path](path: *const c_char, names: *mut c_void, filter: *mut c_void, order: *mut c_void) = none();
    scandir64[path](path: *const c_char, names: *mut c_void, filter: *mut c_void, order: *mut c_void) = none();
}

// Functions that return something else. Those that read a folder are needed only for `/sys`.
hooks! {
    fopen[path](path: *const c_char, mode: *const c_char) -> *mut c_void = open_stream(path, mode), ptr::null_mut();
    fopen64[path](path: *const c_char, mode: *const c_char) -> *mut c_void = open_stream(path, mode), ptr::null_mut();
    opendir[path](path: *const c_char) -> *mut c_void = none(), ptr::null_mut();
    realpath[path](path: *const c_char, into: *mut c_char) -> *mut c_char = real_path(path, into), ptr::null_mut();
    __realpath_chk[path](path: *const c_char, into: *mut c_char, bytes: usize) -> *mut c_char
        = real_path(path, into), ptr::null_mut();
    canonicalize_file_name[path](path: *const c_char) -> *mut c_char
        = real_path(path, ptr::null_mut()), ptr::null_mut();
    readlink[path](path: *const c_char, into: *mut c_char, bytes: usize) -> isize
        = no_link(libc::AT_FDCWD, path), -1;
    readlinkat[path](directory: c_int, path: *const c_char, into: *mut c_char, bytes: usize) -> isize
        = no_link(directory, path), -1;
}

// A node has no bytes and cannot be mapped. The file of its descriptor is empty and sealed, so only the answers that such
// a file gives need be looked at, and reading of other files costs nothing more.
through_hooks! {
    read(descriptor: c_int, into: *mut c_void, bytes: usize) -> isize = no_bytes;
    __read_chk(descriptor: c_int, into: *mut c_void, bytes: usize, room: usize) -> isize = no_bytes;
    pread(descriptor: c_int, into: *mut c_void, bytes: usize, offset: i64) -> isize = no_bytes;
    pread64(descriptor: c_int, into: *mut c_void, bytes: usize, offset: i64) -> isize = no_bytes;
    readv(descriptor: c_int, into: *mut c_void, count: c_int) -> isize = no_bytes;
    write(descriptor: c_int, from: *const c_void, bytes: usize) -> isize = sealed;
    pwrite(descriptor: c_int, from: *const c_void, bytes: usize, offset: i64) -> isize = sealed;
    pwrite64(descriptor: c_int, from: *const c_void, bytes: usize, offset: i64) -> isize = sealed;
    writev(descriptor: c_int, from: *const c_void, count: c_int) -> isize = sealed;
}

hooks! {
    mmap(at: *mut c_void, bytes: usize, rights: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void
        = no_map(descriptor), libc::MAP_FAILED;
    mmap64(at: *mut c_void, bytes: usize, rights: c_int, flags: c_int, descriptor: c_int, offset: i64) -> *mut c_void
        = no_map(descriptor), libc::MAP_FAILED;
}

// Functions that programs built for C libraries before 2.33 call; `version` is of the structure.
int_hooks! {
    __xstat[path](version: c_int, path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, 0, into);
    __xstat64[path](version: c_int, path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, 0, into);
    __lxstat[path](version: c_int, path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, into);
    __lxstat64[path](version: c_int, path: *const c_char, into: *mut libc::stat)
        = stat_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, into);
    __fxstat(version: c_int, descriptor: c_int, into: *mut libc::stat) = stat_descriptor(descriptor, into);
    __fxstat64(version: c_int, descriptor: c_int, into: *mut libc::stat) = stat_descriptor(descriptor, into);
    __fxstatat[path](version: c_int, directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int)
        = stat_path(directory, path, flags, into);
    __fxstatat64[path](version: c_int, directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int)
        = stat_path(directory, path, flags, into);
}

// The functions of liburing that make a ring fail as on a system without rings, so that programs use ioctls instead: a
// command on a ring could not be answered.
int_hooks! {
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) = no_ring();
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) = no_ring();
    io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, bytes: usize)
        = no_ring();
}

/// `fopen` of a node.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> Option<*mut c_void> {
    // SAFETY: the caller passes strings of C's.
    let letters = unsafe { text(mode) }?;
    let access = if letters.contains('+') {
        libc::O_RDWR
    } else if letters.starts_with('r') {
        libc::O_RDONLY
    } else {
        libc::O_WRONLY
    };
    let closes = if letters.contains('e') { libc::O_CLOEXEC } else { 0 };
    // SAFETY: as above; the descriptor is a new one.
    let descriptor = unsafe { open_node(libc::AT_FDCWD, path, access | closes) }?;
    if descriptor < 0 {
        return Some(ptr::null_mut());
    }
    // SAFETY: the descriptor is open, and the stream's from here on.
    Some(unsafe { libc::fdopen(descriptor, mode) }.cast())
}

/// `realpath` of a node.
unsafe fn real_path(path: *const c_char, into: *mut c_char) -> Option<*mut c_char> {
    let found = ours(|library| {
        // SAFETY: as the caller's.
        let number = unsafe { node_at(library, libc::AT_FDCWD, path, true) }?;
        Some(CString::new(node(library, number).path.as_str()).map_err(|_| Errno::NOENT))
    });
    let found = found?.ok()?;
    // SAFETY: the caller's room is PATH_MAX, and a node's path is shorter; `strdup` returns memory for `free`.
    Some(unsafe {
        if into.is_null() { libc::strdup(found.as_ptr()) } else { libc::strcpy(into, found.as_ptr()) }
    })
}

/// `readlink` of a node, which is no link.
unsafe fn no_link(directory: c_int, path: *const c_char) -> Option<isize> {
    // SAFETY: as the caller's.
    let node = ours(|library| unsafe { node_at(library, directory, path, false) }.map(Ok));
    node.map(|_| fail(Errno::INVAL) as isize)
}

/// Is this descriptor a node's?
fn is_node(descriptor: c_int) -> bool {
    ours(|library| node_of(library, descriptor).map(Ok)).is_some()
}

/// The answer to a read that returned `answer`.
fn no_bytes(descriptor: c_int, answer: isize) -> isize {
    if answer == 0 && is_node(descriptor) { fail(Errno::INVAL) as isize } else { answer }
}

/// The answer to a write that returned `answer`.
fn sealed(descriptor: c_int, answer: isize) -> isize {
    if answer < 0 && errno() == libc::EPERM && is_node(descriptor) {
        fail(Errno::INVAL) as isize
    } else {
        answer
    }
}

unsafe fn no_map(descriptor: c_int) -> Option<*mut c_void> {
    (descriptor >= 0 && is_node(descriptor)).then(|| {
        fail(Errno::NODEV);
        libc::MAP_FAILED
    })
}

unsafe fn no_ring() -> Option<c_int> {
    library().map(|_| -libc::ENOSYS)
}

unsafe fn ioctl_of_node(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> Option<c_int> {
    let number = request as u32;
    let answer = ours(|library| {
        let descriptor = borrowed(descriptor).filter(|_| abi::is_nvme(number))?;
        let node = library.of(descriptor)?;
        Some(library.ioctl(node, descriptor, number, argument as u64))
    });
    answer.map(returned)
}

/// Number of the file that a node is.
fn inode(node: usize) -> u64 {
    1 + node as u64
}

fn node(library: &Library, node: usize) -> &Node {
    &library.nodes().all()[node]
}

/// Fills what `stat` fills.
fn describe(library: &Library, number: usize, into: &mut libc::stat) {
    let looks = node(library, number).looks();
    // SAFETY: a structure of numbers.
    *into = unsafe { std::mem::zeroed() };
    into.st_mode = looks.mode;
    into.st_nlink = 1;
    into.st_ino = inode(number);
    into.st_rdev = libc::makedev(looks.device.0, looks.device.1);
    into.st_blksize = 4096;
    into.st_uid = rustix::process::geteuid().as_raw();
    into.st_gid = rustix::process::getegid().as_raw();
}

unsafe fn stat_path(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    into: *mut libc::stat,
) -> Option<c_int> {
    let answer = ours(|library| {
        // SAFETY: as the caller's.
        let node = match unsafe { text(path) }? {
            "" if flags & libc::AT_EMPTY_PATH != 0 => node_of(library, directory)?,
            _ => unsafe { node_at(library, directory, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) }?,
        };
        // SAFETY: the caller passes a structure to fill.
        describe(library, node, unsafe { into.as_mut() }?);
        Some(Ok(0))
    });
    answer.map(returned)
}

unsafe fn stat_descriptor(descriptor: c_int, into: *mut libc::stat) -> Option<c_int> {
    let answer = ours(|library| {
        let node = node_of(library, descriptor)?;
        // SAFETY: the caller passes a structure to fill.
        describe(library, node, unsafe { into.as_mut() }?);
        Some(Ok(0))
    });
    answer.map(returned)
}

unsafe fn statx_path(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    into: *mut libc::statx,
) -> Option<c_int> {
    let answer = ours(|library| {
        // SAFETY: as the caller's; a null path means the descriptor, as an empty one does.
        let node = match unsafe { text(path) } {
            None | Some("") if flags & libc::AT_EMPTY_PATH != 0 => node_of(library, directory)?,
            _ => unsafe { node_at(library, directory, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) }?,
        };
        let looks = library.nodes().all()[node].looks();
        // SAFETY: the caller passes a structure to fill, which is one of numbers.
        let into = unsafe { into.as_mut() }?;
        *into = unsafe { std::mem::zeroed() };
        into.stx_mask = libc::STATX_BASIC_STATS;
        into.stx_mode = looks.mode as u16;
        into.stx_nlink = 1;
        into.stx_ino = inode(node);
        (into.stx_rdev_major, into.stx_rdev_minor) = looks.device;
        into.stx_blksize = 4096;
        into.stx_uid = rustix::process::geteuid().as_raw();
        into.stx_gid = rustix::process::getegid().as_raw();
        Some(Ok(0))
    });
    answer.map(returned)
}

unsafe fn may_access(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> Option<c_int> {
    let answer = ours(|library| {
        // SAFETY: as the caller's.
        unsafe { node_at(library, directory, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0) }?;
        Some(if mode & libc::X_OK != 0 { Err(Errno::ACCESS) } else { Ok(0) })
    });
    answer.map(returned)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if library().is_some() {
        let (directory, path) = (a as c_int, b as *const c_char);
        // SAFETY: as the caller's: the arguments are those of the function that is called for the number.
        let answer = unsafe {
            match number {
                libc::SYS_io_uring_setup => Some(fail(Errno::NOSYS)),
                libc::SYS_ioctl => Some(ioctl(a as c_int, b as c_ulong, c as *mut c_void)),
                libc::SYS_openat => Some(openat(directory, path, c as c_int, d as mode_t)),
                // Only a node's: other files know more than the flags.
                libc::SYS_openat2 => {
                    (c as *const u64).as_ref().and_then(|how| open_node(directory, path, *how as c_int))
                }
                libc::SYS_newfstatat => Some(fstatat(directory, path, c as *mut libc::stat, d as c_int)),
                libc::SYS_statx => {
                    Some(statx(directory, path, c as c_int, d as c_uint, e as *mut libc::statx))
                }
                libc::SYS_faccessat => Some(faccessat(directory, path, c as c_int, 0)),
                libc::SYS_faccessat2 => Some(faccessat(directory, path, c as c_int, d as c_int)),
                _ => None,
            }
        };
        if let Some(answer) = answer {
            return answer.into();
        }
    }
    next!(syscall(number => c_long, a => c_long, b => c_long, c => c_long, d => c_long, e => c_long, f => c_long)
        -> c_long, c_long::from(absent()))
}
