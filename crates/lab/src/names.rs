//! Names that somebody gave and that are not there: which of those that are may have been meant.

/// That there is nothing of that name, what there is, and which of it is the nearest.
pub(crate) fn no_such(key: &str, what: &str, name: &str, names: &[&str]) -> String {
    format!("{key}: no {what} {name:?}{}; there are {}", meant(name, names), names.join(", "))
}

/// Which of `names` may have been meant, for the end of a message; nothing if none is near.
pub(crate) fn meant(name: &str, names: &[&str]) -> String {
    nearest(name, names).map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

/// That of `names` which is so near to `name` that it may have been meant.
pub(crate) fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    // Of short words, one slip of the hand is all that can be told from another word.
    let is_slip = |known: &str| name.len() > 2 && strsim::damerau_levenshtein(&name, known) == 1;
    let likeness =
        |known: &str| strsim::jaro_winkler(&name, known).max(if is_slip(known) { 0.9 } else { 0.0 });
    let nearest = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(nearest) > 0.8).then_some(nearest)
}
