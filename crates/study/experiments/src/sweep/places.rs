//! The places in a sweep's file of what a problem may begin with.

use std::collections::BTreeMap;

use toml_edit::{Item, Key, Table};

/// Offsets by name.
pub(super) type Places = BTreeMap<String, usize>;

/// The keys of the grid, with their sections, and `[grid]` itself.
pub(super) fn of_grid(toml: &Table) -> Places {
    let mut places = Places::new();
    let Some((grid, item)) = toml.get_key_value("grid") else { return places };
    note(&mut places, "[grid]".to_owned(), grid, item);
    for (key, item) in keys_of(item) {
        note(&mut places, key.get().to_owned(), key, item);
        for (name, named) in keys_of(item) {
            note(&mut places, format!("{}.{}", key.get(), name.get()), name, named);
        }
    }
    places
}

/// The keys of the file, and the settings of every row: as `set "KEY=VALUE"`, and by their keys.
pub(super) fn of_file(toml: &Table) -> Places {
    let mut places = Places::new();
    for (name, _) in toml {
        if let Some((key, item)) = toml.get_key_value(name) {
            note(&mut places, name.to_owned(), key, item);
        }
    }
    for setting in toml.get("set").and_then(Item::as_array).into_iter().flatten() {
        let (Some(text), Some(span)) = (setting.as_str(), setting.span()) else { continue };
        let key = text.split('=').next().unwrap_or_default();
        for name in [format!("set {text:?}"), key.trim().to_owned()] {
            places.entry(name).or_insert(span.start);
        }
    }
    places
}

fn note(places: &mut Places, name: String, key: &Key, item: &Item) {
    if let Some(span) = key.span().or(item.span()) {
        places.entry(name).or_insert(span.start);
    }
}

/// The keys of a table, in their order; none of another item.
fn keys_of(item: &Item) -> impl Iterator<Item = (&Key, &Item)> {
    let table = item.as_table_like();
    table.into_iter().flat_map(|table| table.iter().filter_map(|(name, _)| table.get_key_value(name)))
}
