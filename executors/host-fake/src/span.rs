//! Durations as people write them: `250ms`, `30s`, `5m`, `1h`. Used by the scenario file.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Reads a whole number with one of the units `ms`, `s`, `m`, `h`.
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

/// Writes a duration so that [`parse`] reads the same. Anything finer than a millisecond is dropped.
pub fn text(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

pub(crate) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(*duration))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let read = String::deserialize(from)?;
    parse(&read).ok_or_else(|| {
        D::Error::custom(format!("{read:?} is no duration; write it like 250ms, 30s, 5m or 1h"))
    })
}

/// The same for a duration that may be left out.
pub(crate) mod maybe {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::ref_option, reason = "serde's with-modules take a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let Some(read) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let what =
            || D::Error::custom(format!("{read:?} is no duration; write it like 250ms, 30s, 5m or 1h"));
        super::parse(&read).map(Some).ok_or_else(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (written, meant) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse(written), Some(Duration::from_millis(meant)));
            assert_eq!(parse(&text(Duration::from_millis(meant))), Some(Duration::from_millis(meant)));
        }
        for bad in ["", "5", "s", "5 s", "-1s", "1d", "1.5s", "99999999999999999999s"] {
            assert_eq!(parse(bad), None, "{bad:?} was taken");
        }
    }
}
