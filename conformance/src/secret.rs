//! A secret for the suite: a file that holds it for as long as a harness lives.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use executor_api::SecretRef;

static FILES: AtomicU32 = AtomicU32::new(0);

/// A secret in a file of its own below the temporary directory; the file goes with this.
#[derive(Debug)]
pub struct SecretFile {
    path: PathBuf,
    value: String,
}

impl SecretFile {
    /// Writes a new secret.
    ///
    /// # Panics
    /// The temporary directory cannot be written.
    pub fn new() -> Self {
        let name = format!("{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("conformance-secret-{name}"));
        // Not a word that an error might hold for another reason.
        let value = format!("hunter2-{name}-swordfish");
        #[expect(clippy::expect_used, reason = "a suite without its secret has nothing to say")]
        std::fs::write(&path, format!("{value}\n")).expect("the suite writes a secret to a temporary file");
        Self { path, value }
    }

    /// How a spec refers to it.
    pub fn reference(&self) -> SecretRef {
        SecretRef::FromFile(self.path.clone())
    }

    /// The secret itself.
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl Default for SecretFile {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
