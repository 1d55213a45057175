//! The scenario file: a world, and what happens to it when. Plain data; whoever reads the file brings the parser.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::faults::rules::{Rule, Unsuited, Weather};
use crate::incident::Incident;
use crate::span;
use crate::spec::{SpecProblem, WorldSpec};

/// A world and its troubles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is about, for people.
    #[serde(default)]
    pub about: String,
    /// The world at its beginning.
    pub world: WorldSpec,
    /// What befalls it, in any order.
    #[serde(default)]
    pub incidents: Vec<TimedIncident>,
    /// Which calls go wrong.
    #[serde(default)]
    pub faults: Vec<Rule>,
    /// Seeded misbehaviour.
    #[serde(default)]
    pub weather: Option<Weather>,
}

/// One incident and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedIncident {
    /// How long after the world's beginning.
    #[serde(with = "span")]
    pub at: Duration,
    /// What.
    pub what: Incident,
}

impl Scenario {
    /// A world to which nothing happens.
    pub fn calm(world: WorldSpec) -> Self {
        Self { about: String::new(), world, incidents: Vec::new(), faults: Vec::new(), weather: None }
    }
}

/// Why a scenario cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The world makes no sense.
    #[error(transparent)]
    World(#[from] SpecProblem),
    /// A rule makes no sense.
    #[error(transparent)]
    Rule(#[from] Unsuited),
}
