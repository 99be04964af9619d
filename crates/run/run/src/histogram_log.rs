//! Latencies as a log in the format of HdrHistogram, which its tools read: one line for each interval and
//! kind of operation, tagged with the kind. Values are in nanoseconds; times are in seconds after the start
//! of the measured operations.

use std::io::Write;
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use kvdrive_sim::{Histogram, Ns};

/// Largest values of a log are printed in ms, as its tools expect.
const MS: f64 = 1e6;

/// A log under construction.
pub struct HistogramLog<W: Write> {
    out: W,
}

impl<W: Write> HistogramLog<W> {
    /// Starts a log; `of` names the measured quantity.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut out: W, of: &str) -> std::io::Result<HistogramLog<W>> {
        writeln!(out, "#[Histogram log format version 1.3]")?;
        for line in of.lines() {
            writeln!(out, "#[{line}]")?;
        }
        writeln!(out, "#[Values are ns, maxima ms; the tag is the kind of operation]")?;
        writeln!(out, "#[StartTime: 0.000 (seconds since epoch), the begin of the run]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(HistogramLog { out })
    }

    /// Adds the lines of one interval.
    ///
    /// # Errors
    /// Writing failed.
    pub fn interval<'a>(
        &mut self,
        began_ns: Ns,
        ended_ns: Ns,
        latencies: impl IntoIterator<Item = (impl AsRef<str>, &'a Histogram)>,
    ) -> anyhow::Result<()> {
        let mut serializer = V2DeflateSerializer::new();
        let mut lines = IntervalLogWriterBuilder::new();
        lines.with_max_value_divisor(MS);
        // The head already has the lines that the serialiser writes first; a log may have comments anywhere.
        let mut text = Vec::new();
        let mut writer = lines.begin_log_with(&mut text, &mut serializer)?;
        for (kind, histogram) in latencies {
            let (start, length) = (Duration::from_nanos(began_ns), Duration::from_nanos(ended_ns - began_ns));
            let tag = Tag::new(kind.as_ref()).expect("a kind of operation is a word");
            writer
                .write_histogram(histogram.values(), start, length, Some(tag))
                .map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        let of_intervals = |line: &&[u8]| line.starts_with(b"Tag=");
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(of_intervals) {
            self.out.write_all(line)?;
        }
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram as Values;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn what_is_written_is_read_again_interval_by_interval() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|us| histogram.record(us * 1000));
        let mut out = Vec::new();
        let mut log = HistogramLog::new(&mut out, "kvdrive 0.1\nseed 1").unwrap();
        log.interval(0, 1_000_000_000, [("store", &histogram), ("retrieve", &Histogram::default())]).unwrap();
        log.interval(1_000_000_000, 1_500_000_000, [("store", &histogram)]).unwrap();
        let entries = IntervalLogIterator::new(&out).collect::<Result<Vec<_>, _>>();
        let entries = entries.unwrap_or_else(|error| panic!("{error:?}: {}", String::from_utf8_lossy(&out)));
        let intervals = entries.iter().filter_map(|entry| match entry {
            LogEntry::Interval(interval) => Some(interval),
            _ => None,
        });
        let mut found = Vec::new();
        for interval in intervals {
            let bytes = base64_of(interval.encoded_histogram());
            let values: Values<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
            let tag = interval.tag().unwrap().as_str().to_owned();
            found.push((
                tag,
                interval.start_timestamp().as_millis(),
                values.len(),
                values.value_at_quantile(0.5),
            ));
        }
        let half = histogram.summary().p50;
        let expected = [("store", 0, 1000, half), ("retrieve", 0, 0, 0), ("store", 1000, 1000, half)];
        assert_eq!(found, expected.map(|(tag, at, count, half)| (tag.to_owned(), at, count, half)));
    }

    /// Decodes base64 of the standard alphabet.
    fn base64_of(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = text.bytes().filter_map(|byte| ALPHABET.iter().position(|known| *known == byte));
        let bits: Vec<u8> =
            digits.flat_map(|digit| (0..6).rev().map(move |bit| (digit >> bit & 1) as u8)).collect();
        bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
    }
}
