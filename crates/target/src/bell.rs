//! How another thread tells the one with the sockets that it has something, waking it only if it sleeps.

pub use kvdrive_sim::wall::Bell;
