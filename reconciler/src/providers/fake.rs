//! The row of the fake provider: nodes in a world of its own that ends with this process. For trying things out.

use std::sync::Arc;

use executor_api::Executor;
use executor_fake::{FakeBehaviour, FakeWorld};
use schemars::{SchemaGenerator, json_schema};

use super::{Provider, Settings, Site};

pub(super) const PROVIDER: Provider = Provider {
    name: "fake",
    about: "an imaginary world that ends with the driving process; for trying things out",
    build,
    settings,
};

fn build(site: &Site) -> Executor {
    FakeWorld::new(Arc::clone(&site.timer), FakeBehaviour::default()).executor()
}

fn settings(_: &mut SchemaGenerator) -> Settings {
    let duration = |about: &str| serde_json::json!({ "type": "string", "description": about });
    Settings {
        shape: json_schema!({
            "type": ["object", "null"],
            "additionalProperties": false,
            "properties": {
                "create": duration("How long making a lease takes."),
                "endpoint": duration("When it can be reached: a duration, at-once or never."),
                "destroy": duration("How long giving it back takes."),
                "dies_after": duration("It dies by itself this long after it was made."),
                "labels": {
                    "type": "object",
                    "description": "Labels beside those of its identity.",
                    "additionalProperties": { "type": "string" },
                },
            },
        }),
        boot: json_schema!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "start": duration("How long starting the session takes."),
                "join": duration("When the node joins: a duration, or never."),
                "complete": duration("How long closing the session takes."),
                "cancel": duration("How long cancelling it takes."),
                "secret": {
                    "type": "object",
                    "description": "A secret by reference, read at the start: from_env or from_file.",
                },
                "exit": {
                    "type": "object",
                    "description": "It exits instead of joining.",
                    "additionalProperties": false,
                    "properties": { "after": duration("This long after its start."), "status": { "type": "integer" } },
                },
            },
        }),
    }
}
