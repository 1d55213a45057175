//! What a user writes below `boot` for a node that starts by itself.

use executor_api::SpecProblem;
use executor_probe::{ProbeSettings, read};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `boot:` of a group whose nodes start by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbeBoot {
    /// When the node counts as joined.
    pub ready: ProbeSettings,
}

impl ProbeBoot {
    /// Reads and checks the settings.
    ///
    /// # Errors
    /// What is wrong, each at its place below `/boot`.
    pub fn parse(settings: &Value) -> Result<Self, Vec<SpecProblem>> {
        let boot: Self = read::read("/boot", settings).map_err(|problem| vec![problem])?;
        let problems = boot.ready.problems("/boot/ready");
        if problems.is_empty() { Ok(boot) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_probe_is_all_there_is_and_must_be_there() {
        assert!(ProbeBoot::parse(&json!({ "ready": { "tcp": "{host}:22" } })).is_ok());
        for bad in
            [Value::Null, json!({}), json!({ "ready": {} }), json!({ "ready": { "tcp": "h:1" }, "x": 1 })]
        {
            let problems = ProbeBoot::parse(&bad).unwrap_err();
            assert!(problems.iter().all(|p| p.pointer.starts_with("/boot")), "{problems:?}");
        }
    }
}
