//! A forked child has handles of a drive, but not the drive's threads: its calls return that error and do not
//! wait.

#![cfg(unix)]
#![expect(unsafe_code, reason = "a process is forked off by the system's C library")]

use kvdrive::saker::SakerConfig;
use kvdrive::{Drive, Error};

/// Forks a child that does `work`; returns how many of its calls were refused because they were made there.
fn refused_in_child(work: impl FnOnce() -> Vec<Option<Error>>) -> i32 {
    // SAFETY: the child's calls are refused before they take a lock, and it ends without unwinding or
    // destructors of its own; other threads of the test process do not exist in it and are not waited for.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "no process can be made");
        if child == 0 {
            libc::alarm(20);
            let refused = work().into_iter().filter(|error| matches!(error, Some(Error::ForkedChild { .. })));
            libc::_exit(refused.count() as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(
            libc::WIFEXITED(status),
            "the child was ended by signal {}: it waited",
            libc::WTERMSIG(status)
        );
        libc::WEXITSTATUS(status)
    }
}

fn calls(drive: &Drive) -> Vec<Option<Error>> {
    vec![
        drive.store(b"child", b"1").err(),
        drive.get(b"key").err(),
        drive.remove(b"key").err(),
        drive.pairs().map(drop).err(),
        drive.keys().next().and_then(Result::err),
        drive.numbers().map(drop).err(),
        drive.client().map(drop).err(),
        drive.namespace().map(drop).err(),
    ]
}

#[test]
fn a_forked_child_is_told_that_the_drive_stayed_with_its_parent() {
    for described in [kvdrive::build(), kvdrive::build().in_this_thread()] {
        let drive = described.open().unwrap();
        drive.store(b"key", b"value").unwrap();
        assert_eq!(refused_in_child(|| calls(&drive)), 8);
        assert_eq!(drive.get(b"child").unwrap(), None, "nothing came of it");
        drive.store(b"key", b"again").unwrap();
        assert_eq!(drive.close().unwrap().unanswered, 0);
    }
}

#[test]
fn handles_that_a_forked_child_ends_leave_the_drive_of_its_parent_alone() {
    let folder = tempfile::tempdir().unwrap();
    for described in [kvdrive::build(), kvdrive::build().in_this_thread()] {
        let described = described.file(folder.path().join("drive"));
        let drive = described.open().unwrap();
        drive.store(b"key", b"value").unwrap();
        let mut client = drive.client().unwrap();
        let mut pipeline = client.pipeline().unwrap();
        pipeline.store(b"piped", b"value".to_vec()).unwrap();
        let mut left = Some(drive);
        let refused = refused_in_child(|| {
            let refused = vec![pipeline.next_ended().map(drop).err()];
            drop(left.take());
            refused
        });
        assert_eq!(refused, 1);
        assert!(pipeline.next_ended().unwrap().is_some());
        drop(pipeline);
        drop(client);
        let drive = left.take().unwrap();
        assert_eq!(drive.get(b"piped").unwrap().as_deref(), Some(&b"value"[..]));
        drive.close().unwrap();
        assert!(described.open().unwrap().get(b"key").unwrap().is_some());
    }
}

#[test]
fn saker_says_so_too() {
    let drive = kvdrive::open("cosmos-plus").unwrap();
    let saker = drive.saker(SakerConfig::default()).unwrap();
    let mut handle = saker.handle().unwrap();
    handle.store(b"key", b"value").unwrap();
    let refused = refused_in_child(|| {
        vec![handle.store(b"child", b"1").err(), handle.get(b"key").map(drop).err(), handle.sync().err()]
    });
    assert_eq!(refused, 3);
    handle.sync().unwrap();
    assert_eq!(drive.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
