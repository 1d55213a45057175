//! A world that holds leases and bootstrap sessions in memory, knows the truth about them, and can misbehave
//! in every way that real providers do.
//!
//! ```text
//!   FakeProvider ──► call ──► World: leases, sessions, agenda, log, breaches
//!   (two traits)      │          ▲
//!                     └─ faults ─┘   scripted rules, or seeded weather
//! ```
//!
//! Nothing here samples a clock or draws true randomness: time is the [`Timer`](executor_api::Timer) that the
//! world was built with, chance is a seed. Whatever is due happens, in order, the moment somebody looks.
//! Providers are handles: a second [`FakeProvider`] on the same [`FakeWorld`] is what a restart looks like.
//!
//! Reading order: [`behaviour`] (how a well-behaved world acts), [`settings`] (the same from a spec),
//! [`faults`] (how it misbehaves), [`world`] (the truth), then the two trait implementations.

pub mod behaviour;
pub mod faults;
pub mod settings;
pub mod world;

mod bootstrap;
mod call;
mod chance;
mod listing;
mod provider;

pub use behaviour::{EndpointTiming, FakeBehaviour, Joining, NodeBehaviour, Tokens};
pub use faults::{CallKind, Chance, Fault, Rule, Silence, Unsuited, Weather};
pub use listing::Page;
pub use provider::FakeProvider;
pub use world::{
    Breach, BreachKind, FakeWorld, Happened, Incident, LeaseTruth, SessionPhase, SessionTruth, WorldEvent,
};
