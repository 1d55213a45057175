//! The ordered fallbacks of a shape: instance types, each in every place before the next type. A pure function of
//! the shape, so that an index means the same whenever and wherever it is looked up.

use executor_api::CandidateIndex;

use crate::api::Place;
use crate::settings::Ec2Shape;

/// One fallback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) instance_type: String,
    pub(crate) place: Place,
}

/// All fallbacks, the preferred one first. Empty only for a shape that names no instance type.
pub(crate) fn candidates(shape: &Ec2Shape) -> Vec<Candidate> {
    let places: Vec<Place> = if !shape.subnets.is_empty() {
        shape.subnets.iter().cloned().map(Place::Subnet).collect()
    } else if !shape.zones.is_empty() {
        shape.zones.iter().cloned().map(Place::Zone).collect()
    } else {
        vec![Place::Anywhere]
    };
    let of_type = |name: &String| {
        let name = name.clone();
        places.iter().map(move |place| Candidate { instance_type: name.clone(), place: place.clone() })
    };
    shape.instance_types.iter().flat_map(of_type).collect()
}

/// The fallback of this index. After the last comes the first again: capacity returns where it was missing.
/// `None` only for a shape that names no instance type.
pub(crate) fn candidate(shape: &Ec2Shape, index: CandidateIndex) -> Option<Candidate> {
    let mut all = candidates(shape);
    if all.is_empty() {
        return None;
    }
    let place = usize::try_from(index.0).unwrap_or(usize::MAX) % all.len();
    Some(all.swap_remove(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(value: &serde_json::Value) -> Ec2Shape {
        crate::settings::read(value).unwrap()
    }

    fn names(shape: &Ec2Shape, indices: impl Iterator<Item = u32>) -> Vec<String> {
        indices
            .map(|index| {
                let found = candidate(shape, CandidateIndex(index)).unwrap();
                match found.place {
                    Place::Subnet(place) | Place::Zone(place) => format!("{}@{place}", found.instance_type),
                    Place::Anywhere => found.instance_type,
                }
            })
            .collect()
    }

    #[test]
    fn a_type_is_tried_in_every_place_before_the_next_type_and_then_all_over_again() {
        let two = shape(&json!({ "image": "ami-1", "instance_types": ["a", "b"], "subnets": ["s1", "s2"] }));
        assert_eq!(names(&two, 0..5), ["a@s1", "a@s2", "b@s1", "b@s2", "a@s1"]);
        let zones = shape(&json!({ "image": "ami-1", "instance_types": ["a"], "zones": ["z1", "z2"] }));
        assert_eq!(names(&zones, 0..3), ["a@z1", "a@z2", "a@z1"]);
        let anywhere = shape(&json!({ "image": "ami-1", "instance_types": ["a"] }));
        assert_eq!(names(&anywhere, [0, 7, u32::MAX].into_iter()), ["a", "a", "a"]);
    }
}
