//! A cluster in memory that behaves as Linux bonds, DRBD, KubeVirt and a lock do, the ways in which they mislead
//! included, and that knows the truth.
//!
//! ```text
//!   Seat (the five traits of maintenance, one per operator) ──► HostWorld
//!                     │                                          hosts: bonds, links, agents, storage pods
//!                  faults: scripted, seeded                      resources: blocks, bitmaps, identifiers
//!   incidents: scheduled, or now ─────────────────────────────►  machines, migrations · lease, hold
//!                                                                ledger of writes · deeds · breaches · log
//! ```
//!
//! Nothing here samples a clock or draws true randomness: time is the [`Timer`](executor_api::Timer) that the world
//! was built with, chance is a seed. Whatever is due happens, in order, the moment somebody looks. With
//! [`Pace::instant`] every call ends at its first poll, and [`HostWorld::fork`] copies a world as it stands: what a
//! search over schedules needs.
//!
//! Reading order: [`spec`] (what a world is made of), [`incident`] (what befalls it), [`faults`] (how calls go
//! wrong), [`scenario`] (all three in a file), [`troubles`] (incidents drawn from a seed), [`world`] (the truth), [`seat`] (what an operator reaches).
//! Deliberately absent: the storage manager's summary, which proves nothing and is asked by nobody.

pub mod faults;
pub mod incident;
pub mod scenario;
pub mod seat;
pub mod span;
pub mod spec;
pub mod troubles;
pub mod world;

mod chance;

pub use faults::rules::{Chance, Rule, Unsuited, Weather};
pub use faults::{CallKind, Fault};
pub use incident::{Incident, MigrationFate};
pub use scenario::{Scenario, ScenarioError, TimedIncident};
pub use seat::Seat;
pub use spec::{
    BondSpec, HostSpec, Pace, ResourceSpec, Rotation, SpecProblem, StorageManner, VmSpec, Wiring, WorldSpec,
};
pub use troubles::Troubles;
pub use world::{Breach, BreachKind, Deed, HostWorld, Letter, MissingWrite, Naming, Place, WorldEvent};
