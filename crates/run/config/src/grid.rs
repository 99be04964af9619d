//! Grids: every combination of the values of some axes. Options with lists and files of sweeps are such grids. What a
//! value does to a run, and which combinations are refused or left out, is theirs.

/// An axis: what its values are of, and the values.
pub type Axis<K, V> = (K, Vec<V>);

/// `begin` with one value of each axis laid over it, for every combination; the last axis changes fastest.
///
/// # Errors
/// The first error of `lay_over`.
pub fn combine<S: Clone, K, V, E>(
    begin: S,
    axes: &[Axis<K, V>],
    lay_over: impl Fn(&mut S, &K, &V) -> Result<(), E>,
) -> Result<Vec<S>, E> {
    let mut all = vec![begin];
    for (key, values) in axes {
        let mut next = Vec::with_capacity(all.len() * values.len());
        for of in &all {
            for value in values {
                let mut with = of.clone();
                lay_over(&mut with, key, value)?;
                next.push(with);
            }
        }
        all = next;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_changes_fastest_and_the_first_error_ends_it() {
        let axes = [('a', vec![1, 2]), ('b', vec![3]), ('c', vec![4, 5])];
        let append = |text: &mut String, key: &char, value: &u32| {
            *text += &format!("{key}{value}");
            if *value > 5 { Err(*value) } else { Ok(()) }
        };
        let all = combine(String::new(), &axes, append).unwrap();
        assert_eq!(all, ["a1b3c4", "a1b3c5", "a2b3c4", "a2b3c5"]);
        assert_eq!(combine(String::new(), &[('a', vec![1, 7, 8])], append), Err(7));
        assert_eq!(combine(String::new(), &[], append).unwrap(), [""]);
    }
}
