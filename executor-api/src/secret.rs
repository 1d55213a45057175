//! Secrets by reference. Only the reference is ever stored, logged or compared; the value is read where it
//! is used and never printed.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a secret is. Written `{ from_env: NAME }` or `{ from_file: PATH }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretRef {
    /// An environment variable of the driving process.
    FromEnv(String),
    /// A file; one trailing line break is not part of the secret.
    FromFile(PathBuf),
}

/// A secret's value. Shown as `[secret]` everywhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a secret could not be read. Names the reference, never the value.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is unset or not UTF-8.
    #[error("environment variable {name} is not set to valid text; set it in the driving process")]
    Env {
        /// The variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the secret file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SecretRef {
    /// Reads the value now. Called by executors at the moment of use.
    pub fn resolve(&self) -> Result<Secret, SecretError> {
        match self {
            Self::FromEnv(name) => {
                std::env::var(name).map(Secret).map_err(|_| SecretError::Env { name: name.clone() })
            }
            Self::FromFile(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| SecretError::File { path: path.clone(), source })?;
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Ok(Secret(text.strip_suffix('\r').unwrap_or(text).to_owned()))
            }
        }
    }
}

impl Secret {
    /// The value itself, for the call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret("hunter2".into());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[secret] Some([secret])");
    }

    #[test]
    fn a_missing_variable_names_the_reference() {
        let error = SecretRef::FromEnv("RECONCILER_TEST_UNSET".into()).resolve().unwrap_err();
        assert!(error.to_string().contains("RECONCILER_TEST_UNSET"));
    }
}
