//! A length of time as a user writes it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, written as a text: `200ms`, `5s`, `1m 30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// That many milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// That many seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|span| Duration::try_from(span).ok())
            .map(Self)
            .ok_or_else(|| {
                serde::de::Error::custom(format!("{text:?} is no length of time; write 200ms, 5s or 1m"))
            })
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A length of time: 200ms, 5s, 1m 30s.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_survives_a_round_trip_and_nothing_else_is_one() {
        let span: Span = serde_json::from_str("\"1m 30s\"").unwrap();
        assert_eq!(span, Span::secs(90));
        let text = serde_json::to_string(&span).unwrap();
        assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), span);
        for bad in ["\"5\"", "\"-1s\"", "\"soon\"", "\"\"", "5"] {
            assert!(serde_json::from_str::<Span>(bad).is_err(), "{bad} was taken");
        }
    }
}
