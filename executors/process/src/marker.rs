//! The environment entries that every process of a node carries, and how they are recognised. The nonce is
//! derived from run, uid, slot and attempt, so that this one entry is proof of all four.

use executor_api::AttemptKey;

/// The run's name.
pub const RUN: &str = "RECONCILER_RUN";
/// The run's uid.
pub const RUN_UID: &str = "RECONCILER_RUN_UID";
/// The slot.
pub const NODE: &str = "RECONCILER_NODE";
/// The attempt, as a decimal number.
pub const ATTEMPT: &str = "RECONCILER_ATTEMPT";
/// The attempt's nonce: what a search for the processes of an attempt looks for.
pub const NONCE: &str = "RECONCILER_NONCE";

/// The nonce of an attempt.
pub fn nonce(key: &AttemptKey) -> String {
    key.identity().nonce
}

/// The entries that mark a process as belonging to an attempt.
pub fn environment(key: &AttemptKey) -> [(&'static str, String); 5] {
    [
        (RUN, key.run.name().to_owned()),
        (RUN_UID, key.run.uid().to_owned()),
        (NODE, key.node.to_string()),
        (ATTEMPT, key.attempt.0.to_string()),
        (NONCE, nonce(key)),
    ]
}

/// Whether a key is one of the marker's, which no declared environment may set.
pub fn is_reserved(key: &str) -> bool {
    [RUN, RUN_UID, NODE, ATTEMPT, NONCE].contains(&key)
}

/// Whether the raw environment of a process (`/proc/PID/environ`) carries the nonce.
pub fn is_carried(environ: &[u8], nonce: &str) -> bool {
    environ.split(|byte| *byte == 0).any(|entry| {
        entry
            .strip_prefix(NONCE.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|value| value == nonce.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_entry_of_the_environment_is_a_marker() {
        assert!(is_carried(b"A=1\0RECONCILER_NONCE=abc\0B=2\0", "abc"));
        assert!(!is_carried(b"A=1\0RECONCILER_NONCE=abcd\0", "abc"));
        assert!(!is_carried(b"X=RECONCILER_NONCE=abc\0", "abc"));
        assert!(!is_carried(b"XRECONCILER_NONCE=abc\0", "abc"));
        assert!(!is_carried(b"", "abc"));
    }
}
