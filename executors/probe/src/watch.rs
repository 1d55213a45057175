//! Many tries: until a node is ready, and whether it can still be seen after that.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::probe::{Probe, ProbeFailure};
use crate::tell::Teller;

/// How many failed tries in a row make a node that was ready one that cannot be seen.
const SILENT_AFTER: u32 = 3;

/// Tries until the probe passes. `failed` hears of every try that did not. Never ends by itself.
pub async fn until_ready(probe: &Probe, mut failed: impl FnMut(&ProbeFailure)) {
    let mut beat = beat(probe.every);
    loop {
        beat.tick().await;
        match probe.once().await {
            Ok(()) => return,
            Err(failure) => failed(&failure),
        }
    }
}

/// Looks at a ready node for ever and tells when it cannot be seen, and when it can again. That a probe fails is
/// silence, never proof of death.
pub async fn stay(probe: &Probe, teller: &Teller) {
    let mut beat = beat(probe.every.max(Duration::from_secs(1)));
    let mut failures = 0_u32;
    loop {
        beat.tick().await;
        match probe.once().await {
            Ok(()) => {
                if failures >= SILENT_AFTER {
                    teller.seen_alive();
                }
                failures = 0;
            }
            Err(failure) => {
                failures = failures.saturating_add(1);
                if failures == SILENT_AFTER {
                    teller.suspected(&format!("{SILENT_AFTER} tries in a row failed: {failure}"));
                }
            }
        }
    }
}

/// Ticks at once and then evenly; a late tick is not made up for.
fn beat(every: Duration) -> tokio::time::Interval {
    let mut beat = interval_at(Instant::now(), every.max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}
