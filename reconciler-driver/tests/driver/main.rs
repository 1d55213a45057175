//! The driver against a fake world: scenarios, properties, stores, and the tokio shell.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod disks;
mod holds;
mod listings;
mod properties;
mod restarts;
mod routes;
mod scenarios;
mod shell;
mod stale;
mod stores;
mod support;
mod trust;
