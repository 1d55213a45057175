//! Reads one settings value. What is wrong with it is a problem at its place, as a JSON pointer.

pub use executor_api::spec::pointer_key;
use executor_api::{ExecutorError, ExecutorErrorKind, OperationKind, RejectReason, SpecProblem};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// Reads settings; a pointer in the answer begins with `pointer`. Nothing at all reads as an empty mapping.
pub fn read<T: DeserializeOwned>(pointer: &str, value: &Value) -> Result<T, SpecProblem> {
    let empty = Value::Object(serde_json::Map::new());
    let value = if value.is_null() { &empty } else { value };
    serde_path_to_error::deserialize(value).map_err(|error| {
        let pointer = format!("{pointer}{}", json_pointer(error.path()));
        SpecProblem::new(pointer, error.into_inner().to_string())
    })
}

/// Problems that only a call found, as the refusal of that call.
pub fn refused(effect: OperationKind, problems: &[SpecProblem]) -> ExecutorError {
    let list: Vec<_> = problems.iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect();
    let context = format!("the boot settings do not hold: {}; correct them", list.join("; "));
    ExecutorError::new(ExecutorErrorKind::Rejected(RejectReason::Validation), effect, context)
}

fn json_pointer(path: &Path) -> String {
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => pointer_key(key),
            // An enum's tag is a key of the document; an unknown segment has no name.
            Segment::Enum { variant } => pointer_key(variant),
            Segment::Unknown => String::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ProbeSettings;
    use serde_json::json;

    #[test]
    fn an_unknown_key_is_named_at_its_place() {
        let problem = read::<ProbeSettings>("/boot/ready", &json!({ "tpc": "h:1" })).unwrap_err();
        assert_eq!(problem.pointer, "/boot/ready/tpc");
        assert!(problem.message.contains("unknown field `tpc`"), "{}", problem.message);
    }

    #[test]
    fn keys_are_escaped_in_pointers() {
        assert_eq!(pointer_key("a/b~c"), "/a~1b~0c");
    }
}
