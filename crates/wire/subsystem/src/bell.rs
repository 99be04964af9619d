//! A bell by which another thread reports work to the thread that owns the sockets. It wakes that thread only
//! if it sleeps.

pub use kvdrive_sim::wall::Bell;
