//! Units of settings.

/// The unit in which a setting is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Nanoseconds for 1024 bytes.
    NsPerKib,
    /// Picoseconds.
    Ps,
    /// Bytes.
    Bytes,
    /// Bytes a second.
    BytesPerSecond,
    /// Mebibytes a second.
    MibPerSecond,
    /// So many a second.
    PerSecond,
    /// A number of things that the key names, a word, a switch.
    None,
}

/// Ends of keys that say a unit; the first that fits.
const ENDS: &[(&str, Unit)] = &[
    ("_ns", Unit::Ns),
    ("_ns_per_kib", Unit::NsPerKib),
    ("_ps", Unit::Ps),
    ("_bytes", Unit::Bytes),
    ("_size", Unit::Bytes),
    ("_mib_s", Unit::MibPerSecond),
    ("_per_s", Unit::PerSecond),
];

impl Unit {
    /// The unit that the end of a key says.
    pub const fn of(key: &str) -> Unit {
        let mut row = 0;
        while row < ENDS.len() {
            if ends_with(key.as_bytes(), ENDS[row].0.as_bytes()) {
                return ENDS[row].1;
            }
            row += 1;
        }
        Unit::None
    }

    /// As tables print it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::NsPerKib => "ns/KiB",
            Unit::Ps => "ps",
            Unit::Bytes => "B",
            Unit::BytesPerSecond => "B/s",
            Unit::MibPerSecond => "MiB/s",
            Unit::PerSecond => "1/s",
            Unit::None => "",
        }
    }
}

const fn ends_with(text: &[u8], end: &[u8]) -> bool {
    if text.len() < end.len() {
        return false;
    }
    let mut at = 0;
    while at < end.len() {
        if text[text.len() - end.len() + at] != end[at] {
            return false;
        }
        at += 1;
    }
    true
}
