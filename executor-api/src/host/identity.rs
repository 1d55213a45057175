//! Who is meant in maintenance: plans, hosts, operations, fences, lease holders, and the fingerprint of evidence.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::identity::text_form;

/// Why a text is not an identifier of maintenance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} must have 1 to 253 printable characters and no blanks")]
pub struct HostIdError {
    /// Which identifier was being read.
    pub what: &'static str,
    /// The text as given.
    pub value: String,
}

/// Defines a newtype over a name that somebody else chose.
macro_rules! outside_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and wraps a name.
            pub fn new(value: impl Into<String>) -> Result<Self, HostIdError> {
                let value = value.into();
                let printable = value.chars().all(|c| !c.is_whitespace() && !c.is_control());
                if value.is_empty() || value.len() > 253 || !printable {
                    return Err(HostIdError { what: $what, value });
                }
                Ok(Self(value))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_form!($name, Self::new, HostIdError);
    };
}

outside_name!(
    /// One plan. Minted once when the plan is accepted; a plan that is filed again has another.
    PlanUid,
    "plan uid"
);
outside_name!(
    /// A host as the cluster calls it.
    HostName,
    "host name"
);
outside_name!(
    /// A bond device.
    BondName,
    "bond name"
);
outside_name!(
    /// A network interface of a host.
    InterfaceName,
    "interface name"
);
outside_name!(
    /// A replicated storage resource.
    ResourceName,
    "resource name"
);
outside_name!(
    /// A virtual machine, with its namespace where there is one.
    VmName,
    "virtual machine name"
);
outside_name!(
    /// One migration of a virtual machine.
    MigrationName,
    "migration name"
);
outside_name!(
    /// Who holds the cluster lock. Unique to one start of one process: a restarted process is another holder.
    LeaseHolder,
    "lease holder"
);

/// One operation of a plan. Counts up through the plan's life and is never reused, across restarts included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostOperationId(pub u64);

impl fmt::Display for HostOperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op-{}", self.0)
    }
}

/// The order of lease holders. Each acquisition of the lease has a higher one than all before, also when the
/// record was deleted and made again. An agent refuses whatever is below the highest it has durably seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FenceValue(pub u64);

impl fmt::Display for FenceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fence {}", self.0)
    }
}

/// A digest of evidence: 64 lowercase hexadecimal digits. Equal evidence has equal fingerprints, in any process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub String);

impl Fingerprint {
    /// The fingerprint of a value for one purpose. The purpose is part of it, so that a fingerprint made for
    /// one thing never stands for another.
    pub fn of<T: Serialize + ?Sized>(purpose: &str, value: &T) -> Self {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(b"reconciler-evidence-1");
        field(purpose.as_bytes());
        match serde_json::to_vec(value) {
            Ok(bytes) => field(&bytes),
            // Not reached by plain data. An error still gives a fingerprint that no evidence has.
            Err(error) => field(format!("unserialisable: {error}").as_bytes()),
        }
        Self(hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            use fmt::Write as _;
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }

    /// The first twelve digits, for people to read. Compare whole fingerprints only.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_blanks_and_are_not_empty() {
        for bad in ["", "a b", "a\n", &"x".repeat(254)] {
            assert!(HostName::new(bad).is_err(), "{bad:?} was taken");
        }
        assert!(VmName::new("default/v1").is_ok());
    }

    #[test]
    fn a_fingerprint_covers_purpose_and_value() {
        assert_eq!(Fingerprint::of("a", &1), Fingerprint::of("a", &1));
        assert_ne!(Fingerprint::of("a", &1), Fingerprint::of("b", &1));
        assert_ne!(Fingerprint::of("a", &1), Fingerprint::of("a", &2));
        assert_eq!(Fingerprint::of("a", &1).0.len(), 64);
    }
}
