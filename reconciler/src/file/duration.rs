//! Durations as the cluster file and the command line write them: text with units, never a bare number.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration written as text: `200ms`, `20s`, `1m30s`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationText(pub Duration);

/// Reads `200ms`, `20s`, `1m30s`, `2h`. The error says what to write instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "{text:?} is no duration; write a number with its unit, such as \"200ms\", \"20s\" or \"1m30s\""
        )
    };
    // `1e3s`, ISO forms and signs are refused: one way to write a duration is enough.
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    parsed.try_into().map_err(|_| wrong())
}

/// Writes a duration the way it is read.
pub fn format_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, millis) {
        (0, millis) => format!("{millis}ms"),
        (1..60, 0) => format!("{seconds}s"),
        (1..60, millis) => format!("{seconds}.{}s", millis / 100),
        (60..3600, _) => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!(
            "{:#}",
            jiff::SignedDuration::try_from(self.0).unwrap_or(jiff::SignedDuration::MAX)
        ))
    }
}

impl JsonSchema for DurationText {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration with its unit.",
            "pattern": "^[0-9]",
            "examples": ["200ms", "20s", "1m30s"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        assert_eq!(parse_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        for bad in ["", "20", "-1s", "PT5S", "soon", "5 parsecs"] {
            assert!(parse_duration(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn durations_are_written_short() {
        let written =
            [0, 250, 1_000, 1_500, 61_000, 3_660_000].map(|ms| format_duration(Duration::from_millis(ms)));
        assert_eq!(written, ["0ms", "250ms", "1s", "1.5s", "1m01s", "1h01m"]);
    }
}
