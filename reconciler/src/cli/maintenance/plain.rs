//! What programs read of a plan, written as every other command writes it: times in RFC 3339, durations as texts. The
//! record on disk keeps its own form.

use std::time::{Duration, SystemTime};

use reconciler::file::{DurationText, format_duration};
use serde::Serialize;
use serde_json::Value;

use crate::cli::failure::Failure;
use crate::cli::view::rfc3339;

/// A value in that form.
pub(super) fn plain(value: &impl Serialize) -> Result<Value, Failure> {
    let value =
        serde_json::to_value(value).map_err(|error| Failure::while_doing("writing what is known", &error))?;
    Ok(readable(value))
}

fn readable(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(readable).collect(),
        Value::Object(fields) => {
            let of = |whole: &str, part: &str| {
                let (whole, part) = (fields.get(whole)?.as_u64()?, fields.get(part)?.as_u64()?);
                let exact = Duration::new(whole, u32::try_from(part).ok()?);
                (fields.len() == 2).then_some(exact)
            };
            if let Some(at) = of("secs_since_epoch", "nanos_since_epoch") {
                return Value::String(rfc3339(SystemTime::UNIX_EPOCH + at));
            }
            if let Some(duration) = of("secs", "nanos") {
                return Value::String(exactly(duration));
            }
            fields.into_iter().map(|(key, value)| (key, readable(value))).collect()
        }
        plain => plain,
    }
}

/// The usual form where it says everything.
fn exactly(duration: Duration) -> String {
    let text = format_duration(duration);
    let said = serde_json::from_value::<DurationText>(Value::String(text.clone()));
    if said.is_ok_and(|said| said.0 == duration) { text } else { format!("{}ms", duration.as_millis()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_and_durations_are_texts_wherever_they_are() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_590_400_250);
        let waits = [Duration::from_secs(90), Duration::from_millis(1250), Duration::ZERO];
        let value = json!({ "log": [{ "at": at, "what": "x" }], "waits": waits, "secs": 3 });
        let expected = json!({
            "log": [{ "at": "2025-12-01T12:00:00.250Z", "what": "x" }], "waits": ["1m30s", "1250ms", "0ms"], "secs": 3,
        });
        assert_eq!(plain(&value).unwrap(), expected);
    }
}
