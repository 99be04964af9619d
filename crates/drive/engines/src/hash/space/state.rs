//! States of superblocks, and kinds of pages.

/// Kind of a page of pairs, in its header.
pub const KIND_DATA: u8 = 1;
/// Kind of a page of sections and invalid records.
pub const KIND_MAP: u8 = 2;

/// The state of a superblock.
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
    /// Holds items that can neither be read nor moved; never erased, so that other data are not mistaken for
    /// them.
    Lost,
}

/// The states, by their codes in images and records.
const STATES: [State; 5] = [State::Free, State::Open, State::Full, State::Victim, State::Lost];

impl State {
    /// The code of the state.
    pub fn code(self) -> u8 {
        STATES.iter().position(|known| *known == self).expect("every state is listed") as u8
    }

    /// The state with this code.
    pub fn of_code(code: u8) -> Option<State> {
        STATES.get(usize::from(code)).copied()
    }
}
