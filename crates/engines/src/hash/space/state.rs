//! What a superblock can be, and what its pages can hold.

/// Kind of a page of pairs, in its header.
pub const KIND_DATA: u8 = 1;
/// Kind of a page of sections and invalid records.
pub const KIND_MAP: u8 = 2;

/// What a superblock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased.
    Free,
    /// A stream appends to it.
    Open,
    /// Written to its end, or as far as its stream got.
    Full,
    /// Being collected.
    Victim,
    /// Holds what can neither be read nor moved; never erased, so that it is not mistaken for anything else.
    Lost,
}

/// The states by the numbers that stand for them in images and records.
const STATES: [State; 5] = [State::Free, State::Open, State::Full, State::Victim, State::Lost];

impl State {
    /// The number that stands for it.
    pub fn code(self) -> u8 {
        STATES.iter().position(|known| *known == self).expect("every state is listed") as u8
    }

    /// The state that a number stands for.
    pub fn of_code(code: u8) -> Option<State> {
        STATES.get(usize::from(code)).copied()
    }
}
