//! A provider for something real, written after `docs/write-a-provider.md` alone: a lease is a directory, a session a
//! file in it. It shows what the guide calls an exclusive rename, and that real files pass the suite.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod harness;
mod leases;
mod sessions;
mod site;

conformance::suite!(harness::DirectoryHarness::new);
