//! vfio-user on systems other than Linux: there is none. Its clients bring memory as files that the kernel seals, and are woken
//! by eventfds, which only Linux has.

/// All functions of a server: none.
pub mod functions {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use mio::{Registry, Token};

    use crate::shared::Core;
    use crate::subsystem::Event;

    /// No functions.
    #[derive(Default)]
    pub struct Functions(());

    impl Functions {
        /// There can be none here.
        ///
        /// # Errors
        /// Always.
        pub fn listen(&mut self, _registry: &Registry, _path: &Path) -> io::Result<()> {
            Err(super::needs_linux())
        }

        /// Takes no memory.
        pub fn join(&mut self, _core: &mut Core) {}

        /// No sockets.
        pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
            std::iter::empty()
        }

        /// No clients.
        pub fn accepted(&self) -> u64 {
            0
        }

        /// `false`.
        pub fn have_clients(&self) -> bool {
            false
        }

        /// No socket belongs to a function.
        pub fn note(&mut self, _core: &mut Core, _token: Token) -> bool {
            false
        }

        /// There are no messages.
        pub fn look(&mut self, _core: &mut Core) -> bool {
            false
        }

        /// No event concerns a function.
        pub fn take(&mut self, _core: &mut Core, event: Event) -> Option<Event> {
            Some(event)
        }

        /// There is nothing to signal.
        pub fn interrupt(&mut self) {}

        /// The thread may sleep as long as it likes.
        pub fn rest(&self, _now_ns: u64) -> Duration {
            Duration::MAX
        }

        /// There are no clients to end.
        pub fn end(&mut self, _core: &mut Core) {}
    }
}

/// Faults of clients' memory: there is none.
pub mod faults {
    use std::io;

    /// There is nothing to handle.
    ///
    /// # Errors
    /// Always, since a caller wants functions.
    pub fn handle() -> io::Result<()> {
        Err(super::needs_linux())
    }
}

fn needs_linux() -> std::io::Error {
    std::io::Error::other(
        "vfio-user needs Linux; hosts reach this drive by NVMe/TCP (--listen tcp://127.0.0.1:4420)",
    )
}
