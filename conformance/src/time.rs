//! The suite's time: tokio's, so that a paused runtime makes a virtual clock and a running one a real clock.

use std::pin::Pin;
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use tokio::time::Instant;

/// Tokio's clock as an executor sees it. Anchored once; a jump of the wall clock moves nothing.
#[derive(Clone, Copy, Debug)]
pub struct TokioTimer {
    anchor: SystemTime,
    origin: Instant,
}

impl TokioTimer {
    /// Says that it is `anchor` now.
    pub fn starting_at(anchor: SystemTime) -> Self {
        Self { anchor, origin: Instant::now() }
    }
}

impl TokioTimer {
    /// Starts at the same time in every run, for a world whose time is virtual.
    pub fn fixed() -> Self {
        Self::starting_at(SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365))
    }
}

impl Timer for TokioTimer {
    fn now(&self) -> SystemTime {
        self.anchor + self.origin.elapsed()
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let timer = *self;
        Box::pin(async move {
            // Tokio counts in milliseconds and may wake a little early: look again.
            while let Ok(rest) = at.duration_since(timer.now()) {
                if rest.is_zero() {
                    break;
                }
                tokio::time::sleep(rest.max(Duration::from_millis(1))).await;
            }
        })
    }
}
