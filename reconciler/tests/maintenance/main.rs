//! `reconciler maintenance` as a person uses it, on simulated hosts.

mod desk;
mod files;
mod frozen;
mod replies;
mod runs;
