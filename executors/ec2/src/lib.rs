//! AWS EC2 instances as leases: one instance per attempt, found by its tags, made once by its token.
//!
//! ```text
//!   settings ─► validate ─► preflight            what a user writes, checked before anything is made
//!       │
//!       └─► candidate ─► map ─► create / destroy / provider ─► api ─► sdk ─► EC2
//!                         ▲                 │                   (plain types, four calls)
//!                         └──── error ◄─────┘
//! ```
//!
//! `map` and `error` are pure and hold what is to be known about EC2; `sdk` is thin and the only place that
//! names the AWS SDK; nothing of it leaves this crate. What keeps instances from being made twice, in this order:
//! the lookup by tags before each launch, the client token of attempt and candidate, tags set in the very call that
//! launches, and never calling an outcome proved that is not.
//!
//! A node is a booted instance; what runs on it is the business of a bootstrapper, and any pairs with this provider.
//!
//! Reading order: [`settings`], [`config`], `validate`, `candidate`, `map`, `error`, `api`, then the flows
//! in `provider`, `create` and `destroy`.

#![cfg_attr(not(feature = "sdk"), expect(dead_code, reason = "only the SDK side calls some of it"))]

mod api;
mod budget;
mod candidate;
pub mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod create;
mod destroy;
mod endpoint;
mod error;
mod map;
mod preflight;
mod provider;
mod regions;
#[cfg(feature = "sdk")]
mod sdk;
pub mod settings;
mod spacing;
mod targets;
#[cfg(test)]
mod testing;
mod validate;

pub use config::{Credentials, Ec2Config, Timeouts, Tokens};
pub use provider::Ec2Provider;
pub use targets::Target;
