//! Declares a cluster, gets it, keeps it: everything an application needs, in one crate.
//!
//! ```text
//!   file ──► ClusterShape ──► driver ──► executors of the providers built in
//! ```
//!
//! The parts are re-exported under their own names: [`api`] (vocabulary and the two author traits), [`core`]
//! (pure decisions), [`driver`] (what runs them). [`providers`] is the table of providers behind Cargo features,
//! [`mod@file`] reads cluster files. The `reconciler` program is made of exactly these.
//!
//! ```
//! use std::{collections::BTreeMap, path::Path, sync::Arc};
//! use reconciler::{api::RunId, driver, file, providers};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let home = std::env::temp_dir();
//! let text = "
//! run: demo
//! groups:
//!   - { name: web, count: 2, provider: fake, shape: { create: 1ms, endpoint: at-once }, boot: { join: 5ms } }
//! ";
//! let declared = file::parse(Path::new("cluster.yaml"), text)?.declared;
//! let run = RunId::new("demo", "0001")?; // keep the uid together with the state
//! let shape = declared.shape(&run, 1, &BTreeMap::new());
//!
//! let clock = driver::TokioTimer::new();
//! let executors = providers::executors(&providers::Site {
//!     nodes: home.join("nodes"),
//!     sessions: home.join("sessions"),
//!     ports: home.join("ports"),
//!     program: std::env::current_exe()?,
//!     timer: Arc::new(clock.clone()),
//! });
//! let store = Box::new(driver::MemoryStore::new());
//! let config = driver::ShellConfig::new(shape, executors, store);
//! let handle = driver::start(driver::ShellConfig { policy: declared.policy.clone(), clock, ..config }).await?;
//! handle.converged().await?;
//! assert!(handle.snapshot().await?.converged);
//! # Ok(())
//! # }
//! ```

pub mod file;
pub mod providers;
pub mod schema;

pub use executor_api as api;
pub use reconciler_core as core;
pub use reconciler_driver as driver;
