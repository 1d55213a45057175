//! What somebody may have meant: the known word that is nearest to an unknown one. Reads the parser's own complaint, which
//! names both.

/// A complaint about an unknown word, with the known word that is likely meant.
pub(super) fn hinted(message: String) -> String {
    let Some((complaint, known)) =
        message.split_once(", known here: ").or_else(|| message.split_once(", expected "))
    else {
        return message;
    };
    let Some(unknown) = complaint.strip_prefix("unknown ").and_then(|rest| rest.split('`').nth(1)) else {
        return message;
    };
    let known = known.split(", ").map(|word| word.trim_matches('`'));
    // A word with more wrong than right in it was not meant.
    let near = known
        .map(|word| (distance(unknown, word), word))
        .filter(|(distance, word)| *distance <= 2 && distance * 2 <= word.chars().count())
        .min();
    match near {
        Some((_, word)) => format!("{complaint}; do you mean `{word}`? Known here: {}", words(&message)),
        None => message,
    }
}

fn words(message: &str) -> &str {
    let known = message.split_once(", known here: ").or_else(|| message.split_once(", expected "));
    known.map_or("", |(_, known)| known)
}

/// How many letters must be put in, left out, replaced, or swapped with their neighbour to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let swapped = i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b;
            let mut least = (rows[i][j + 1] + 1).min(row[j] + 1).min(rows[i][j] + usize::from(a != b));
            if swapped {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_nearly_right_is_named() {
        let hint =
            |unknown: &str| hinted(format!("unknown field `{unknown}`, known here: bond, nodes, resources"));
        assert_eq!(
            hint("bnd"),
            "unknown field `bnd`; do you mean `bond`? Known here: bond, nodes, resources"
        );
        assert!(hint("ndoes").contains("do you mean `nodes`?"));
        assert!(!hint("hosts").contains("mean"), "{}", hint("hosts"));
        assert_eq!(hinted("expected a list".to_owned()), "expected a list");
        let one = hinted("unknown variant `on`, expected `of`".to_owned());
        assert!(one.contains("do you mean `of`?"), "{one}");
    }
}
