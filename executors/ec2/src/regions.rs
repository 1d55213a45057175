//! The regions that were known when this was written. Only to tell a misspelt region from one that is out of reach:
//! a region that is not listed here and answers is as good as any other.

/// Every region of every partition, in order of name.
const KNOWN: [&str; 46] = [
    "af-south-1",
    "ap-east-1",
    "ap-east-2",
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-northeast-3",
    "ap-south-1",
    "ap-south-2",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-southeast-3",
    "ap-southeast-4",
    "ap-southeast-5",
    "ap-southeast-6",
    "ap-southeast-7",
    "ca-central-1",
    "ca-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "eu-central-1",
    "eu-central-2",
    "eu-isoe-west-1",
    "eu-north-1",
    "eu-south-1",
    "eu-south-2",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eusc-de-east-1",
    "il-central-1",
    "me-central-1",
    "me-south-1",
    "mx-central-1",
    "sa-east-1",
    "us-east-1",
    "us-east-2",
    "us-gov-east-1",
    "us-gov-west-1",
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-east-1",
    "us-isof-south-1",
    "us-west-1",
    "us-west-2",
];

/// What to say of a region that nobody answers for: nothing if it is a known one, which then is out of reach.
pub(crate) fn unheard_of(region: &str) -> Option<String> {
    if KNOWN.contains(&region) {
        return None;
    }
    let near = KNOWN.iter().map(|known| (distance(region, known), *known)).min();
    let hint = match near {
        Some((distance, known)) if distance <= 2 => format!("; did you mean {known}?"),
        Some(_) | None => "; `aws account list-regions` names them all".to_owned(),
    };
    Some(format!("nobody answers for {region:?}, and no such region is known{hint}"))
}

/// How many letters have to be added, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.bytes().collect(), b.bytes().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let shorter = (table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { table[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(shorter).min(swapped)
            };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_region_is_told_with_the_one_that_was_meant() {
        for (wrong, meant) in [("eu-cental-1", "eu-central-1"), ("us-eats-1", "us-east-1")] {
            let said = unheard_of(wrong).unwrap();
            assert!(said.ends_with(&format!("did you mean {meant}?")), "{said}");
        }
        let said = unheard_of("mars-north-1").unwrap();
        assert!(said.ends_with("`aws account list-regions` names them all"), "{said}");
    }

    #[test]
    fn a_known_region_that_does_not_answer_is_out_of_reach_and_not_misspelt() {
        assert_eq!(unheard_of("eu-central-1"), None);
        assert!(KNOWN.is_sorted());
    }
}
