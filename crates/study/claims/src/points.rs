//! The result of a claim at each of its points: a range over them does not say which point has which value.

use std::fmt;

use serde::Serialize;

/// The result at one point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AtPoint {
    /// The point.
    pub point: String,
    /// Our value there, as text, the mean if there are several seeds; of an order its smallest margin.
    pub ours: String,
    /// Whether the claim holds there.
    pub holds: bool,
}

impl fmt::Display for AtPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.point, self.ours)?;
        if self.holds { Ok(()) } else { f.write_str(" (fails)") }
    }
}

/// The points, if a range over them leaves something open: values that differ, or an order that fails at some
/// points only.
pub(super) fn differing(points: &[AtPoint], is_order: bool) -> &[AtPoint] {
    let differ = |pair: &[AtPoint]| match is_order {
        true => pair[0].holds != pair[1].holds,
        false => pair[0].ours != pair[1].ours,
    };
    if points.windows(2).any(differ) { points } else { &[] }
}

/// `16: 0.984 x, 4K: 1.435 x (fails)`.
pub(super) fn listed(points: &[AtPoint]) -> String {
    points.iter().map(AtPoint::to_string).collect::<Vec<_>>().join(", ")
}
