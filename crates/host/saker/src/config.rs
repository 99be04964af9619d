//! Settings of SAKER, with the paper's values as defaults where it states them.

use kvdrive_nvme::Key;
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BATCH_REQUESTS_MAX, request_bytes};

use crate::cache::{CacheConfig, Charge, EVICTIONS};

/// When a container is closed and sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchSize {
    /// With this many requests; 1 sends every request on its own.
    Fixed(u32),
    /// At once if no batch of its sequence is under way; else when the last of these is answered, or when the
    /// container has `container_bytes` bytes.
    Adaptive,
}

/// Which clients fill a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Containers {
    /// Each client fills its own (section 3.3 of the paper).
    Own,
    /// All clients fill one, which the paper advises against.
    Shared,
}

/// Settings of SAKER.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SakerConfig {
    /// Most requests of a batch.
    pub batch: BatchSize,
    /// Most bytes of a structured value, head included. A larger request is a bypass.
    pub container_bytes: u32,
    /// Whether clients share containers.
    pub containers: Containers,
    /// Closed batches that a sequence may have unanswered.
    pub in_flight: u32,
    /// Buckets of the pending table, rounded up to a power of two; many more than clients.
    pub buckets: u32,
    /// How long a request may wait in an open container, in ns; 0: without a limit.
    pub max_age_ns: u64,
    /// The read cache.
    pub cache: CacheConfig,
}

impl Default for SakerConfig {
    fn default() -> SakerConfig {
        SakerConfig {
            batch: BatchSize::Fixed(64),
            container_bytes: 4096,
            containers: Containers::Own,
            in_flight: 32,
            buckets: 4096,
            max_age_ns: 0,
            cache: CacheConfig {
                bytes: 0,
                charge: Charge::Memory,
                admit_bytes: 1024,
                eviction: "lru".into(),
                shards: 1,
            },
        }
    }
}

/// A setting is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SakerConfigError {
    /// A number is outside its range.
    #[error("saker.{key} is {found}; it may be {least} to {most}")]
    Range {
        /// The setting.
        key: &'static str,
        /// Its value.
        found: u64,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// There is no such eviction policy.
    #[error("saker.cache_eviction is {found:?}; there are {known}")]
    Eviction {
        /// The name that was given.
        found: String,
        /// The names of all policies.
        known: String,
    },
}

impl SakerConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), SakerConfigError> {
        let batch = match self.batch {
            BatchSize::Fixed(requests) => requests,
            BatchSize::Adaptive => BATCH_REQUESTS_MAX,
        };
        let least_bytes = u64::from(BATCH_HEAD_BYTES) + request_bytes(Key::IDENTITY_BYTES, 0);
        let ranges = [
            ("batch", u64::from(batch), 1, u64::from(BATCH_REQUESTS_MAX)),
            ("container_bytes", u64::from(self.container_bytes), least_bytes, 2 << 20),
            ("in_flight", u64::from(self.in_flight), 1, 1 << 16),
            ("buckets", u64::from(self.buckets), 1, 1 << 24),
            ("cache_shards", u64::from(self.cache.shards), 1, 1 << 10),
        ];
        for (key, found, least, most) in ranges {
            if !(least..=most).contains(&found) {
                return Err(SakerConfigError::Range { key, found, least, most });
            }
        }
        if !EVICTIONS.iter().any(|row| row.name == self.cache.eviction) {
            let known: Vec<&str> = EVICTIONS.iter().map(|row| row.name).collect();
            return Err(SakerConfigError::Eviction {
                found: self.cache.eviction.clone(),
                known: known.join(", "),
            });
        }
        Ok(())
    }

    /// Most requests of a container.
    pub(crate) fn most_requests(&self) -> u32 {
        match self.batch {
            BatchSize::Fixed(requests) => requests,
            BatchSize::Adaptive => BATCH_REQUESTS_MAX,
        }
    }
}
