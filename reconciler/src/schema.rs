//! The JSON Schema of the cluster file: the file's own vocabulary, and under each provider's and each bootstrapper's
//! name the settings that it takes.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::file::{ClusterFile, DurationText};
use crate::providers::{BOOTSTRAPPERS, PROVIDERS};

/// The schema, for editors and other tools.
pub fn schema() -> Schema {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = ClusterFile::json_schema(&mut generator);
    let names: Vec<Value> = PROVIDERS.iter().map(|provider| json!(provider.name)).collect();
    let mut conditions: Vec<Value> =
        PROVIDERS.iter().map(|provider| condition(provider, &mut generator)).collect();
    conditions.extend(BOOTSTRAPPERS.iter().map(|row| via(row, &mut generator)));
    let join = join(&mut generator);
    let mut definitions = generator.take_definitions(true);
    if let Some(Value::Object(group)) = definitions.get_mut("GroupSettings") {
        group.insert("allOf".to_owned(), Value::Array(conditions));
        if let Some(properties) = group.get_mut("properties") {
            properties["provider"]["enum"] = Value::Array(names);
            properties["join"] = join;
        }
    }
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("Cluster file"));
    root.insert("$defs".to_owned(), Value::Object(definitions));
    root
}

/// If the group names this provider, its settings are this provider's.
fn condition(provider: &crate::providers::Provider, generator: &mut SchemaGenerator) -> Value {
    let settings = (provider.settings)(generator);
    json!({
        "if": { "properties": { "provider": { "const": provider.name } }, "required": ["provider"] },
        "then": { "properties": {
            "shape": settings.shape,
            // `via` is the file's own key; with another bootstrapper the settings are that one's.
            "boot": { "if": { "required": ["via"] }, "else": settings.boot },
        } },
    })
}

/// If the group names this bootstrapper, its boot settings are this one's, beside the name itself.
fn via(row: &crate::providers::BootstrapperRow, generator: &mut SchemaGenerator) -> Value {
    let mut settings = (row.boot)(generator).to_value();
    if let Some(Value::Object(properties)) = settings.get_mut("properties") {
        properties.insert("via".to_owned(), json!({ "const": row.name, "description": row.about }));
    }
    json!({
        "if": {
            "properties": { "boot": { "properties": { "via": { "const": row.name } }, "required": ["via"] } },
            "required": ["boot"],
        },
        "then": { "properties": { "boot": settings } },
    })
}

fn join(generator: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "description": "What a node is told about joining.",
        "properties": { "within": generator.subschema_for::<DurationText>() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_provider_and_resolves_every_reference() {
        let text = serde_json::to_value(schema()).unwrap();
        let group = &text["$defs"]["GroupSettings"];
        let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name).collect();
        assert_eq!(group["properties"]["provider"]["enum"], json!(names));
        for row in BOOTSTRAPPERS {
            let conditions = group["allOf"].as_array().expect("conditions");
            let boot = |condition: &&Value| {
                condition["then"]["properties"]["boot"]["properties"]["via"]["const"] == row.name
            };
            let settings = &conditions.iter().find(boot).expect(row.name)["then"]["properties"]["boot"];
            assert!(settings["properties"]["ready"].is_object(), "{}: {settings:#}", row.name);
        }
        assert_eq!(group["additionalProperties"], json!(false));
        let mut pending = vec![&text];
        while let Some(value) = pending.pop() {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let name = reference.strip_prefix("#/$defs/").expect("a local reference");
                        assert!(text["$defs"].get(name).is_some(), "{reference} leads nowhere");
                    }
                    pending.extend(map.values());
                }
                Value::Array(items) => pending.extend(items),
                _ => {}
            }
        }
    }
}
