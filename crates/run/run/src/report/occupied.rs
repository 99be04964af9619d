//! What limited a run, and the controller's contexts and threads, as text.

use kvdrive_sim::Cause;
use kvdrive_text::wrap;

use super::table::{Table, percent};
use super::text::Text;

impl Text<'_> {
    /// One line, below the throughput; empty if nothing is known.
    pub(super) fn limited_by(&self) -> String {
        let Some(limit) = &self.limited_by else { return String::new() };
        wrap(&format!("  limited by {} = {}: {}", limit.key, limit.value, limit.because), self.room)
    }

    /// The time of contexts and threads by cause.
    pub(super) fn occupied(&self) -> String {
        if self.occupied.is_empty() {
            return String::new();
        }
        let spent = Cause::ALL.iter().map(|(_, cause)| *cause);
        let spent = spent.filter(|cause| self.occupied.iter().any(|(_, of)| of.spent.get(cause).is_some()));
        let headings: Vec<&str> = std::iter::once("occupied").chain(spent).collect();
        let mut table = Table::new("CONTROLLER", &headings, &self.model_kind());
        for (name, of) in self.occupied.iter() {
            let share = |cause| of.spent.get(cause).map_or_else(String::new, |share| percent(*share));
            let spent = headings[1..].iter().map(|cause| share(cause));
            let cells: Vec<_> = std::iter::once(percent(of.occupied_fraction)).chain(spent).collect();
            table.row(&format!("{name} ({})", of.tasks), &cells);
        }
        table.finish(self.room)
    }
}
