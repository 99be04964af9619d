//! The clauses against drives of this program by every way to them, and against planted deviations.

mod deviations;
mod drives;
mod rig;
