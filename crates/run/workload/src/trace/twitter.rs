//! Twitter's cache traces (Yang et al., OSDI'20; described on GitHub, twitter/cache-trace): `time in
//! s,key,key size,value size,client,operation,TTL`. A key may contain commas.

use std::collections::VecDeque;

use super::source::Source;
use super::{Entry, Format, Head, number, of_cache, seconds, shortened};

/// Fields after the key.
const AFTER_KEY: usize = 5;

pub(super) struct Twitter;

/// Fields of a line.
struct Fields<'a> {
    time: &'a [u8],
    key: &'a [u8],
    after_key: [&'a [u8]; AFTER_KEY],
}

/// The fields of a line; `None` if it has fewer.
fn fields(line: &[u8]) -> Option<Fields<'_>> {
    let comma = line.iter().position(|byte| *byte == b',')?;
    let (time, rest) = (&line[..comma], &line[comma + 1..]);
    let mut from_end = rest.rsplitn(AFTER_KEY + 1, |byte| *byte == b',');
    let mut after_key = [&[][..]; AFTER_KEY];
    for field in after_key.iter_mut().rev() {
        *field = from_end.next()?;
    }
    Some(Fields { time, key: from_end.next()?, after_key })
}

pub(super) fn is_it(head: Head<'_>) -> Option<bool> {
    head.first_line(|line| {
        fields(line).is_some_and(|Fields { time, after_key: [.., operation, ttl], .. }| {
            seconds(time).is_ok() && of_cache(operation, || Ok(0)).is_ok() && number::<f64>("", ttl).is_ok()
        })
    })
}

impl Format for Twitter {
    fn read(&mut self, source: &mut Source, entries: &mut VecDeque<Entry>) -> Result<bool, String> {
        let Some(line) = source.line()? else { return Ok(false) };
        let Some(Fields { time, key, after_key: [_, value_size, _, operation, _] }) = fields(&line) else {
            let expected = "expected time,key,key size,value size,client,operation,TTL";
            return Err(format!("{expected}, got {:?}", shortened(&line)));
        };
        let asked = of_cache(operation, || number("value size", value_size))?;
        let (at_ns, key) = (Some(seconds(time)?), source.key(key)?);
        source.give_back(line);
        entries.push_back(Entry { at_ns, key, asked, times: 1 });
        Ok(true)
    }
}
