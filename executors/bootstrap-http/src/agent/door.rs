//! Who may come in. The token itself is forgotten at once; what is kept and compared is its digest.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use bootstrap_hosted::host::local::LocalRunner;
use bootstrap_hosted::host::script::ScriptHost;
use executor_api::Secret;
use sha2::{Digest as _, Sha256};

/// The door and what is behind it.
pub(super) struct Door {
    digest: [u8; 32],
    pub(super) host: ScriptHost<LocalRunner>,
}

impl Door {
    pub(super) fn new(token: &Secret, host: ScriptHost<LocalRunner>) -> Self {
        Self { digest: digest(token.expose()), host }
    }

    /// Whether these headers bring the token. Takes the same time however much of it is right.
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let brought = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        brought.is_some_and(|token| same(&digest(token), &self.digest))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("host", &self.host).finish_non_exhaustive()
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares all of both, whatever is found on the way.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_same_only_if_the_tokens_are() {
        assert!(same(&digest("a token"), &digest("a token")));
        for other in ["", "a toke", "a token ", "A token"] {
            assert!(!same(&digest("a token"), &digest(other)), "{other:?} opens");
        }
    }
}
