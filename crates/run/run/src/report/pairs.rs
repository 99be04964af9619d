//! What a run was about: the pairs, the sizes of keys and values, and the drive.

use kvdrive_config::{Config, DEFAULT_PROFILE, PROFILES, Profile};
use kvdrive_text::grouped;
use kvdrive_workload::Keys;

use super::table::bytes;
use super::{Ops, Pairs, Report, ValueBytes};

impl Pairs {
    /// The pairs of the workload of `config`, which did `ops` after `loaded` pairs were loaded. `None`: it did nothing, as
    /// a drive whose hosts are others.
    pub(crate) fn of(
        config: &Config,
        loaded: u64,
        ops: &Ops,
        values: &ValueBytes,
        not_found: u64,
    ) -> Option<Pairs> {
        let params = &config.workload;
        let row = params.row().filter(|_| ops.answered() > 0)?;
        let begins_with_num = row.loads_num || matches!(row.keys, Keys::Asked | Keys::Latest);
        let (count, is_at_most) = match row.keys {
            Keys::Unique if loaded > 0 => (loaded, false),
            Keys::Unique => (ops.store, false),
            _ => (params.num, !begins_with_num),
        };
        let mean = |bytes: u64, count: u64| (count > 0).then(|| bytes as f64 / count as f64);
        let found = (ops.retrieve + ops.seek + ops.next).saturating_sub(not_found);
        let is_trace = row.ends && row.own_key_bytes.is_none();
        Some(Pairs {
            count,
            is_at_most,
            key_bytes: if is_trace { None } else { Some(row.own_key_bytes.unwrap_or(params.key_size)) },
            value_bytes: (!row.own_sizes).then_some(params.value_size),
            stored_mean_bytes: mean(values.stored, ops.store),
            retrieved_mean_bytes: mean(values.retrieved, found),
        })
    }

    /// As a line of a report.
    pub(super) fn in_words(&self) -> String {
        let most = if self.is_at_most { "at most " } else { "" };
        let keys = self.key_bytes.map_or("of the trace".to_owned(), |length| format!("{length} B"));
        let mean =
            |mean: Option<f64>, what: &str| mean.map(|mean| format!("{} {what} on average", bytes(mean)));
        let values = match self.value_bytes {
            Some(length) => format!("{} B", grouped(length.into())),
            None => {
                let means =
                    [mean(self.stored_mean_bytes, "stored"), mean(self.retrieved_mean_bytes, "returned")];
                let means: Vec<_> = means.into_iter().flatten().collect();
                if means.is_empty() { "of several sizes".to_owned() } else { means.join(", ") }
            }
        };
        format!("pairs {most}{}, keys {keys}, values {values}", grouped(self.count))
    }
}

impl Report {
    /// What drive it is, for readers who expect one of today; empty for a profile of the user.
    pub(super) fn drive_in_words(&self) -> String {
        let Some(profile) = PROFILES.iter().find(|profile| profile.name == self.profile) else {
            return String::new();
        };
        let Profile { name, device, .. } = profile;
        // A store on the host, and a hash engine, have contexts as well; one is worth a word.
        let contexts = match self.setting("controller", "contexts").as_str() {
            "1" => ", one context".to_owned(),
            many => format!(", {many} contexts"),
        };
        let other =
            if *name == DEFAULT_PROFILE { "; a drive of today: --profile nvmevirt-970pro" } else { "" };
        format!("{name}: {device}{contexts}{other}")
    }
}
