//! The parts of this build: experiments and claims may need one that it lacks.

use kvdrive_device::engines::ENGINES;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_link::transfer::METHODS;

use kvdrive_config::{Document, PROFILES};

/// Does this build have a part of that name?
type Has = fn(&str) -> bool;

/// Kinds of parts.
const PARTS: &[(&str, Has)] = &[
    ("transfer", |name| METHODS.iter().any(|row| row.name == name)),
    ("engine", |name| ENGINES.iter().any(|row| row.name == name)),
    ("packing", |name| PACKINGS.iter().any(|row| row.name == name)),
    ("profile", |name| PROFILES.iter().any(|row| row.name == name)),
    ("key", |name| {
        Document::profile(PROFILES[0].name).is_ok_and(|d| d.origins().iter().any(|(key, _)| key == name))
    }),
];

/// The first of `needs` that this build lacks. A need is a kind of part and a name: `transfer:cxl`,
/// `engine:plus`, `packing:blend`, `profile:gen5-cxl`, or a key of the configuration, `key:link.lanes`.
pub fn missing(needs: &[String]) -> Option<&str> {
    needs.iter().map(String::as_str).find(|need| !is_here(need))
}

/// Has the need a form that can be looked up?
pub fn is_need(need: &str) -> bool {
    need.split_once(':').is_some_and(|(part, _)| PARTS.iter().any(|(known, _)| *known == part))
}

fn is_here(need: &str) -> bool {
    need.split_once(':')
        .is_some_and(|(part, name)| PARTS.iter().any(|(known, has)| *known == part && has(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_looked_up_in_the_tables() {
        let needs = |list: &[&str]| list.iter().map(|need| need.to_string()).collect::<Vec<_>>();
        let here =
            needs(&["transfer:prp", "engine:plus", "packing:all", "profile:cosmos-plus", "key:link.lanes"]);
        assert_eq!(missing(&here), None);
        for absent in ["transfer:pigeon", "packing:", "profile:x", "key:link.lane", "prp", "engine:btrfs"] {
            let all = [here.clone(), needs(&[absent])].concat();
            assert_eq!(missing(&all), Some(absent));
        }
        assert!(is_need("transfer:pigeon") && !is_need("pigeon:transfer") && !is_need("transfer"));
    }
}
