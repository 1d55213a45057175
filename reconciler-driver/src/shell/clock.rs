//! Wall time that only goes forward: anchored once, advanced by the monotonic clock. A jump of the wall
//! clock moves nothing; tokio's paused clock works.

use std::pin::Pin;
use std::time::{Duration, SystemTime};

use executor_api::Timer;
use tokio::time::Instant;

/// Farther than any deadline that is met: tokio's own bound on a sleep.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// The shell's clock.
#[derive(Clone, Debug)]
pub struct TokioTimer {
    wall: SystemTime,
    origin: Instant,
}

impl TokioTimer {
    /// A clock anchored to the wall time of now.
    pub fn new() -> Self {
        Self::anchored_at(SystemTime::now())
    }

    /// A clock for which it is `wall` now.
    pub fn anchored_at(wall: SystemTime) -> Self {
        Self { wall, origin: Instant::now() }
    }

    /// The instant at which this clock shows `at`; a year from now for what lies beyond the calendar.
    pub(super) fn instant_of(&self, at: SystemTime) -> Instant {
        let since = at.duration_since(self.wall).unwrap_or_default();
        let latest = Instant::now() + FOREVER;
        self.origin.checked_add(since).map_or(latest, |instant| instant.min(latest))
    }
}

impl Default for TokioTimer {
    fn default() -> Self {
        Self::new()
    }
}

impl Timer for TokioTimer {
    fn now(&self) -> SystemTime {
        self.wall.checked_add(self.origin.elapsed()).unwrap_or(self.wall)
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep_until(self.instant_of(at)))
    }
}
