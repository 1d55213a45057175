//! Identifiers drawn by chance: a run's uid, minted once, and a lock holder's nonce.

use std::fs::File;
use std::io::Read;

use crate::cli::failure::Failure;

/// Sixteen lowercase hexadecimal digits from the kernel's random source.
pub(crate) fn mint() -> Result<String, Failure> {
    let mut bytes = [0_u8; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::while_doing("reading random bytes from /dev/urandom", &error))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}
