//! The door by raw HTTP, on drives of this program.

mod hostile;
mod objects;
mod power;
mod signed;
mod support;
mod uploads;
