//! Settings that a run does not read. They are refused if a user sets one by an option or makes it an axis of
//! a sweep, since the user expects an effect.

use kvdrive_declare::Values;

use super::{Config, rules};

impl Config {
    /// The reason why a run of this configuration ignores `key`, and the condition under which it would read the key;
    /// `None` if it reads it.
    pub fn ignores(&self, key: &str) -> Option<String> {
        let values = self.values();
        let values = Values::new(&values);
        rules::conditions(key).iter().find_map(|condition| condition.fails(key, &values, &rules::rule))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Document};
    use kvdrive_workload::{self as workload, Op, WORKLOADS, WorkloadParams};

    thread_local!(static PROFILE: Document = Document::profile("cosmos-plus").unwrap());

    fn config_of(workload: &str, set: &[&str]) -> Config {
        let mut document = PROFILE.with(Document::clone);
        let common = [&format!("workload.name={workload}"), "workload.num=1000", "workload.ops=1000"];
        for set in common.iter().chain(set) {
            document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        }
        document.config().unwrap()
    }

    #[test]
    fn what_a_workload_looks_at_is_a_key_of_the_configuration() {
        for row in WORKLOADS {
            for setting in row.looks_at {
                assert!(crate::knows_key(&format!("workload.{setting}")), "{}: {setting}", row.name);
            }
        }
    }

    /// The first operations of a workload, and some of the pairs that are loaded before them.
    fn begin(params: &WorkloadParams) -> Vec<Op> {
        let mut workload = workload::build(params, 1).unwrap();
        let step = 1 + workload.preload() as usize / 1000;
        let load = (0..workload.preload()).step_by(step).map(|index| {
            let (key, value) = workload.preload_pair(index);
            Op::Store { key, value }
        });
        let mut operations: Vec<Op> = load.collect();
        operations.extend((0..200).map(|_| workload.next()));
        operations
    }

    #[test]
    fn what_a_workload_ignores_alters_nothing_it_asks_for() {
        let settings = [
            "value_size=33",
            "num=999",
            "key_size=8",
            "distribution=uniform",
            "large_ratio=8:1",
            "read_fraction=0.25",
            "delete_fraction=0.25",
            "exist_fraction=0.25",
            "seek_fraction=0.25",
            "list_fraction=0.25",
            "seek_nexts=3",
            "key_dist_a=0.002312",
            "keyrange_num=30",
            "value_k=0.3",
            "value_floor_bytes=10",
            "mix_max_value_size=512",
            "iter_sigma=10.0",
            "mix_max_scan_len=3",
            "mix_get_ratio=0.5",
            "scramble=false",
            "zipf_theta=0.5",
            "overwrites=10",
            "scan_length_max=3",
        ];
        let distributions = ["uniform", "zipfian", "latest"];
        for (row, distribution) in WORKLOADS.iter().flat_map(|row| distributions.map(|named| (row, named))) {
            let distribution = format!("workload.distribution={distribution}");
            let usual = begin(&config_of(row.name, &[&distribution]).workload);
            for setting in settings {
                let setting = format!("workload.{setting}");
                let (key, _) = setting.split_once('=').unwrap();
                let config = config_of(row.name, &[&distribution, &setting]);
                if let Some(why) = config.ignores(key) {
                    assert!(why.starts_with("workload."), "{why}");
                    assert_eq!(begin(&config.workload), usual, "{setting}: {why}");
                }
            }
        }
    }

    /// A key of a distribution has an effect exactly if the run draws by that distribution.
    #[test]
    fn what_shapes_a_distribution_matters_under_that_one() {
        for (distribution, theta, scramble) in
            [("uniform", false, false), ("zipfian", true, true), ("latest", true, false)]
        {
            let distribution = format!("workload.distribution={distribution}");
            let usual = config_of("ycsb-a", &[&distribution]);
            for (setting, is_taken) in
                [("workload.zipf_theta=0.5", theta), ("workload.scramble=false", scramble)]
            {
                let (key, _) = setting.split_once('=').unwrap();
                assert_eq!(usual.ignores(key).is_none(), is_taken, "{key} under {distribution}");
                let other = config_of("ycsb-a", &[&distribution, setting]);
                let differs = begin(&other.workload) != begin(&usual.workload);
                assert_eq!(differs, is_taken, "{setting} under {distribution}");
            }
        }
    }

    /// A setting of a workload that is accepted changes the operations of the workload.
    #[test]
    fn what_a_workload_does_not_ignore_alters_what_it_asks_for() {
        for row in WORKLOADS {
            let differs = |one: &str, other: &str| {
                let [one, other] = [one, other].map(|set| begin(&config_of(row.name, &[set]).workload));
                one != other
            };
            let config = config_of(row.name, &[]);
            let is_taken = |key: &str| config.ignores(key).is_none();
            let sizes = differs("workload.value_size=32", "workload.value_size=33");
            assert_eq!(sizes, is_taken("workload.value_size"), "value_size for {}", row.name);
            let pairs = differs("workload.num=1000", "workload.num=1001");
            assert_eq!(pairs, is_taken("workload.num"), "num for {}", row.name);
            // A workload with a distribution of its own is compared with that one.
            if row.own_distribution().is_none() {
                let keys = differs("workload.distribution=uniform", "workload.distribution=zipfian");
                assert_eq!(keys, is_taken("workload.distribution"), "distribution for {}", row.name);
            }
        }
    }
}
