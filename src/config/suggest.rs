//! "Did you mean …?"

/// Names longer than this are not compared.
const MAX_LEN: usize = 64;
/// How many names a help text lists at most.
const MAX_LISTED: usize = 12;

/// The closest of `known` as a question ("did you mean `mars`?"); else a list of what there is; else nothing.
pub fn did_you_mean<'k>(given: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    if let Some(close) = closest(given, known.clone()) {
        return format!("did you mean `{close}`?");
    }
    let listed: Vec<&str> = known.clone().take(MAX_LISTED).collect();
    match (listed.as_slice(), known.count()) {
        ([], _) => String::new(),
        ([only], _) => format!("expected {only}"),
        (_, all) if all > MAX_LISTED => format!("expected one of {}, …", listed.join(", ")),
        _ => format!("expected one of {}", listed.join(", ")),
    }
}

/// The closest name that a slip of the fingers could have turned into `given`: one edit per three letters, at least
/// one and at most three.
fn closest<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let given_len = given.chars().count();
    if given_len > MAX_LEN {
        return None;
    }
    known
        .filter(|name| name.len() <= MAX_LEN)
        .filter_map(|name| {
            let len = name.chars().count();
            let allowed = (len.max(given_len) / 3).clamp(1, 3);
            let distance =
                if len.abs_diff(given_len) > allowed { None } else { Some(distance(given, name)) }?;
            // A name of one or two letters is one edit away from any other.
            (distance <= allowed && distance < len).then_some((distance, name))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours, upper and lower case alike.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (lower(a), lower(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let cell = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (cell(&last, j + 1) + 1).min(cell(&row, j) + 1).min(cell(&last, j) + usize::from(x != y));
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(cell(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

fn lower(text: &str) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_fingers_are_found() {
        assert_eq!(distance("relanuch", "relaunch"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        let verbs = ["status", "relaunch", "hold"];
        assert_eq!(did_you_mean("relanch", verbs.into_iter()), "did you mean `relaunch`?");
        assert_eq!(did_you_mean("Hold", verbs.into_iter()), "did you mean `hold`?");
        assert_eq!(did_you_mean("reboot", verbs.into_iter()), "expected one of status, relaunch, hold");
        assert_eq!(did_you_mean("x", ["a"].into_iter()), "expected a");
        assert_eq!(did_you_mean("x", [].into_iter()), "");
    }
}
