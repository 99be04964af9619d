//! Measurements that run in a process of their own.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `command` to its end, or to that of the call: its process ends when `stop` is set. What it writes to pipes has to
/// fit into them, because it is read at the end.
///
/// # Errors
/// It cannot be run, or it was stopped.
pub fn output(mut command: Command, stop: &AtomicBool) -> anyhow::Result<Output> {
    let mut child = command.spawn()?;
    while child.try_wait()?.is_none() {
        if stop.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("stopped");
        }
        std::thread::sleep(LOOK);
    }
    Ok(child.wait_with_output()?)
}
