//! How a drive unpacks a structured value: it checks the whole value, and decodes its requests one by one.
//! Copying the values to the engine is charged by bytes.

use std::hint::black_box;

use kvdrive_content::Region;
use kvdrive_nvme::batch::{BatchBuilder, BatchReader, RequestKind};

use super::exercise::{Exercise, Sample, Steps, WorkingSet, random_keys};

/// Bytes of a structured value, and the most requests in it, as SAKER sends it.
const CONTAINER_BYTES: usize = 4096;
const MOST_REQUESTS: u64 = 64;

/// The one exercise.
pub(super) fn exercises(set: &WorkingSet) -> Vec<Exercise> {
    let request_bytes = 16 + set.value_bytes as usize;
    let requests = ((CONTAINER_BYTES - 16) / request_bytes).clamp(1, MOST_REQUESTS as usize) as u64;
    let batches: Vec<Region> = random_keys(set.calls() / requests + 1, 0, set.pairs)
        .iter()
        .map(|first| {
            let (mut writer, mut bytes) = (BatchBuilder::default(), vec![0; 16]);
            let value = vec![7; set.value_bytes as usize];
            for _ in 0..requests {
                writer.append(&mut bytes, RequestKind::Store, *first, &value);
            }
            bytes[..16].copy_from_slice(&writer.head(false));
            Region::from_bytes(bytes)
        })
        .collect();
    let working_set = format!("batches of {requests} stores of {} B", set.value_bytes);
    let repeat = move || {
        let count = batches.len() as u64 * requests;
        let unpack = |number: u64| {
            let content = &batches[number as usize];
            let bytes = content.written_end();
            let read = |at: u32, out: &mut [u8]| content.copy_to(at, out);
            let mut reader = BatchReader::new(bytes, read).expect("it was packed here");
            reader.check().expect("it was packed here");
            for member in reader {
                black_box(&member.expect("all of it was checked"));
            }
        };
        let steps = || Steps::from([("controller.unpack_ns", count as f64)]);
        Sample::of(batches.len() as u64, unpack, steps)
    };
    vec![Exercise::new("controller.unpack_ns", working_set, repeat)]
}
