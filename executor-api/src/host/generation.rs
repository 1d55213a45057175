//! Generation identifiers of replicated data, and how they compare. The lowest bit says "was primary" and is
//! masked in every comparison.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One generation identifier as the kernel prints it, lowest bit included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Generation(pub u64);

impl Generation {
    /// No generation: the bitmap's identifier when both sides are connected and in sync.
    pub const NONE: Self = Self(0);
    /// A device that was just created and never held data.
    pub const JUST_CREATED: Self = Self(4);

    /// The identifier without the bit that says "was primary".
    pub fn masked(self) -> u64 {
        self.0 & !1
    }

    /// Whether both name one generation.
    pub fn same(self, other: Self) -> bool {
        self.masked() == other.masked()
    }

    /// Whether nothing is named.
    pub fn is_none(self) -> bool {
        self.masked() == 0
    }

    /// Whether it proves nothing even when it is equal on both sides: nothing named, or just created.
    pub fn is_trivial(self) -> bool {
        self.is_none() || self.same(Self::JUST_CREATED)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

/// Why a text is no generation identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no generation identifier: it must be 16 hexadecimal digits")]
pub struct GenerationError(String);

impl TryFrom<String> for Generation {
    type Error = GenerationError;
    fn try_from(text: String) -> Result<Self, GenerationError> {
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u64::from_str_radix(&text, 16) {
            Ok(value) if digits => Ok(Self(value)),
            Ok(_) | Err(_) => Err(GenerationError(text)),
        }
    }
}

impl From<Generation> for String {
    fn from(value: Generation) -> Self {
        value.to_string()
    }
}

/// The identifiers of one volume toward one peer, as one node reports them. A flag that the node does not
/// report is `None`, which no gate accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationIds {
    /// The generation of the data on this node.
    pub current: Generation,
    /// The generation from which this node counts what the peer lacks; none when it counts nothing.
    pub bitmap: Generation,
    /// The two newest former generations. The kernel holds more: absence here disproves nothing.
    pub history: [Generation; 2],
    /// The data is a consistent image.
    pub consistent: Option<bool>,
    /// The data was up to date when last known.
    pub was_up_to_date: Option<bool>,
    /// This node is primary.
    pub primary: Option<bool>,
    /// This node went down while primary: blocks may differ under equal identifiers.
    pub crashed_primary: Option<bool>,
    /// This node lost quorum while primary.
    pub primary_lost_quorum: Option<bool>,
    /// The peer is connected.
    pub peer_connected: Option<bool>,
    /// The peer is known to be outdated.
    pub peer_outdated: Option<bool>,
    /// The peer needs everything copied.
    pub peer_full_sync: Option<bool>,
}

impl GenerationIds {
    /// Whether the identifiers were never rotated: what a device has that was given its first identifier by
    /// fiat and never copied anything. Equal on both sides, they prove nothing.
    pub fn never_rotated(&self) -> bool {
        self.bitmap.is_none() && self.history.iter().all(|former| former.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_bit_never_matters() {
        assert!(Generation(0xBE97_E037).same(Generation(0xBE97_E036)));
        assert!(!Generation(0xBE97_E037).same(Generation(0xBE97_E034)));
        assert!([0, 1, 4, 5].into_iter().all(|value| Generation(value).is_trivial()));
        assert!(!Generation(6).is_trivial());
    }

    #[test]
    fn an_identifier_is_sixteen_digits() {
        let read = |text: &str| Generation::try_from(text.to_owned());
        assert_eq!(read("00000000BE97E037"), Ok(Generation(0xBE97_E037)));
        for bad in ["", "BE97E037", "+0000000BE97E037", "00000000BE97E03G", "?"] {
            assert!(read(bad).is_err(), "{bad:?} was taken");
        }
    }
}
