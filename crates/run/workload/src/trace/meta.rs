//! Meta's cache traces (CacheLib's documentation, cache traces): CSV with a heading, of which the columns
//! `key`, `op`, `size`, `op_time` (s) and `op_count` are read, in any order. A line with an `op_count` stands
//! for that many operations, one after the other.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, Head, number, of_cache, of_heading, seconds, shortened};

/// Most repetitions that one line may ask for.
const COUNT_MAX: u64 = 1 << 32;

/// The index of each column in a line.
#[derive(Default)]
struct Columns {
    key: usize,
    op: usize,
    size: Option<usize>,
    time: Option<usize>,
    count: Option<usize>,
    /// Columns of the heading.
    all: usize,
}

#[derive(Default)]
pub(super) struct Meta(Option<Columns>);

fn columns(heading: &[u8]) -> Option<Columns> {
    let names: Vec<Vec<u8>> = heading.split(|byte| *byte == b',').map(of_heading).collect();
    let at = |name: &[u8]| names.iter().position(|known| known == name);
    Some(Columns {
        key: at(b"key")?,
        op: at(b"op")?,
        size: at(b"size"),
        time: at(b"op_time"),
        count: at(b"op_count"),
        all: names.len(),
    })
}

/// kvdrive's own format, which is asked before, has the same two words in its heading.
pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    head.first_line(|line| columns(line).is_some())
}

impl Format for Meta {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        // A key may begin as a comment does; below the heading, a line with all fields is none.
        let fields = self.0.as_ref().map_or(0, |columns| columns.all);
        let commas = |line: &[u8]| line.iter().filter(|byte| **byte == b',').count();
        let is_comment = |line: &[u8]| line.starts_with(b"#") && (fields == 0 || commas(line) + 1 < fields);
        let Some(line) = source.line_unless(is_comment)? else { return Ok(false) };
        let Some(columns) = &self.0 else {
            self.0 = columns(&line);
            let found = shortened(&line);
            source.give_back(line);
            return self
                .0
                .is_some()
                .then_some(true)
                .ok_or(format!("expected a heading that contains key and op, got {found:?}"));
        };
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
        if fields.len() < columns.all {
            let (found, all) = (fields.len(), columns.all);
            return Err(format!("{found} of {all} fields, {:?}", shortened(&line)));
        }
        let field = |column: usize| fields[column];
        let asked = of_cache(field(columns.op), || {
            columns.size.map_or(Err("the heading has no size".to_owned()), |at| number("size", field(at)))
        })?;
        let at_ns = columns.time.map(|at| seconds(field(at))).transpose()?;
        let times: u64 = columns.count.map_or(Ok(1), |at| number("op_count", field(at)))?;
        if !(1..=COUNT_MAX).contains(&times) {
            return Err(format!("op_count: {times}; allowed: 1 to {COUNT_MAX}"));
        }
        let key = source.key(field(columns.key))?;
        drop(fields);
        source.give_back(line);
        entries.push_back(Entry { at_ns, key, asked, times });
        Ok(true)
    }
}
