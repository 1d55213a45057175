//! All that a driver knows, at one moment: what a tape that moved on to a new file begins with.

use serde::{Deserialize, Serialize};

use super::ClusterDriver;
use crate::error::DriverError;
use crate::executors::ExecutorTable;
use crate::rules::Rules;

/// What a driver knew when its tape moved on to a new file. Only for a playback: its form belongs to the version
/// that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The version of the program.
    pub version: String,
    /// What it knew.
    driver: serde_json::Value,
}

impl Checkpoint {
    /// The driver that knows this.
    pub fn driver(self, executors: ExecutorTable, rules: Rules) -> Result<ClusterDriver, DriverError> {
        let Self { version, driver } = self;
        let mut driver: ClusterDriver = serde_json::from_value(driver)
            .map_err(|error| DriverError::Checkpoint { version, reason: error.to_string() })?;
        driver.rebuild_group_policies();
        // What is settled when executors are introduced was settled before the checkpoint.
        (driver.executors, driver.rules) = (executors, rules);
        Ok(driver)
    }
}

impl ClusterDriver {
    /// What this driver knows now. Of a driver that keeps a tape: after [`take_tape`](Self::take_tape).
    pub fn checkpoint(&self) -> serde_json::Result<Checkpoint> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Checkpoint { version, driver: serde_json::to_value(self)? })
    }
}

/// Maps whose keys are no strings, as lists of pairs.
pub(super) mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::driver) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(in crate::driver) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}
