//! What a collection that gained nothing says of the next one: fuller victims would gain nothing either.

/// The last evacuation that gained nothing, because the moved values took as much room elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Futile {
    /// Live bytes of that victim.
    pub victim_bytes: u64,
    /// Live bytes of the whole log at that time; 0 before the first such evacuation.
    pub live_bytes: u64,
}

impl Futile {
    /// Would the evacuation of a victim with `victim_bytes` live bytes be futile, too? Only while no fewer bytes live
    /// in the whole log than at that time.
    pub fn rules_out(&self, victim_bytes: u64, live_bytes: u64) -> bool {
        self.live_bytes > 0 && victim_bytes >= self.victim_bytes && live_bytes >= self.live_bytes
    }
}
