//! Who the host must be. A host key is compared, never looked up: there is no list of known hosts, because an
//! address says nothing about who answers there tomorrow.

use std::borrow::Cow;

use russh::Preferred;
use russh::keys::{Algorithm, HashAlg, PublicKey};

/// The key that a host must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKey {
    /// This very key.
    Key(PublicKey),
    /// A key with this fingerprint: `SHA256:...`.
    Fingerprint(String),
}

impl HostKey {
    /// Reads a key as it stands in `known_hosts` or in a `.pub` file, or a SHA-256 fingerprint.
    ///
    /// # Errors
    /// It is neither; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(digest) = text.strip_prefix("SHA256:") {
            let plain = digest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
            if digest.len() == 43 && plain {
                return Ok(Self::Fingerprint(text.to_owned()));
            }
            return Err(format!("{text:?} is no SHA-256 fingerprint; `ssh-keygen -lf KEY.pub` prints one"));
        }
        PublicKey::from_openssh(text).map(Self::Key).map_err(|error| {
            format!("{text:?} is no host key ({error}); write `ssh-ed25519 AAAA...` or `SHA256:...`")
        })
    }

    /// Whether the host showed the key that it must show.
    pub fn matches(&self, shown: &PublicKey) -> bool {
        match self {
            // The comment is nobody's identity.
            Self::Key(key) => key.key_data() == shown.key_data(),
            Self::Fingerprint(fingerprint) => *fingerprint == fingerprint_of(shown),
        }
    }

    /// The algorithms to ask for, so that a host with several keys shows the one that is known.
    pub(crate) fn preferred(&self) -> Preferred {
        let all = Preferred::default();
        let Self::Key(key) = self else { return all };
        let same = |algorithm: &&Algorithm| match (key.algorithm(), algorithm) {
            (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
            (known, asked) => known == **asked,
        };
        let kept: Vec<Algorithm> = all.key.iter().filter(same).cloned().collect();
        if kept.is_empty() { all } else { Preferred { key: Cow::Owned(kept), ..all } }
    }
}

/// How a key is shown to people.
pub(crate) fn fingerprint_of(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// How a key is kept: without its comment.
pub(crate) fn pin_of(key: &PublicKey) -> Option<String> {
    let text = key.to_openssh().ok()?;
    Some(text.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    #[test]
    fn a_key_matches_itself_whatever_its_comment() {
        let known = HostKey::parse(&format!("{KEY} root@somewhere")).unwrap();
        assert!(known.matches(&key(KEY)));
        assert!(!known.matches(&key(OTHER)));
        assert_eq!(pin_of(&key(&format!("{KEY} a comment"))).as_deref(), Some(KEY));
    }

    #[test]
    fn a_fingerprint_matches_its_key_alone() {
        let known = HostKey::parse(&fingerprint_of(&key(KEY))).unwrap();
        assert!(known.matches(&key(KEY)) && !known.matches(&key(OTHER)));
    }

    #[test]
    fn a_host_with_several_keys_is_asked_for_the_one_that_is_known() {
        let preferred = HostKey::parse(KEY).unwrap().preferred();
        assert_eq!(&*preferred.key, [Algorithm::Ed25519].as_slice());
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "SHA256:short", "MD5:aa:bb", "ssh-ed25519", "AAAA"] {
            assert!(HostKey::parse(bad).is_err(), "{bad:?} was taken");
        }
    }
}
