//! Unknown names: which of the known ones may have been meant.

/// A message that `name` does not exist, which names do, and which of them is the nearest.
pub fn no_such(key: &str, what: &str, name: &str, names: &[&str]) -> String {
    format!("{key}: no {what} {name:?}{}; there are {}", meant(name, names), names.join(", "))
}

/// The end of a message: which of `names` may have been meant; empty if none is near.
pub fn meant(name: &str, names: &[&str]) -> String {
    nearest(name, names).map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

/// The nearest of `names`, if it is near enough to have been meant.
pub fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    // In short words, only a single typing error can be told from another word.
    let is_slip = |known: &str| name.len() > 2 && strsim::damerau_levenshtein(&name, known) == 1;
    let likeness =
        |known: &str| strsim::jaro_winkler(&name, known).max(if is_slip(known) { 0.9 } else { 0.0 });
    let nearest = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(nearest) > 0.8).then_some(nearest)
}
