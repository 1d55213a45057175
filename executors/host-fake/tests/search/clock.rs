//! A clock that shows what it is set to, and a way to run calls in it that hardly ever wait.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use executor_api::Timer;

#[derive(Debug)]
pub(crate) struct StillTimer {
    me: Weak<Self>,
    times: Mutex<Times>,
}

#[derive(Debug)]
struct Times {
    now: SystemTime,
    /// When the one call that runs wants to be asked again.
    alarm: Option<SystemTime>,
}

impl StillTimer {
    pub(crate) fn at(now: SystemTime) -> Arc<Self> {
        let times = Mutex::new(Times { now, alarm: None });
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), times })
    }

    /// Shows this from now on, if it is later.
    pub(crate) fn advance_to(&self, at: SystemTime) {
        let mut times = self.times.lock().unwrap();
        times.now = at.max(times.now);
    }
}

impl Timer for StillTimer {
    fn now(&self) -> SystemTime {
        self.times.lock().unwrap().now
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let clock = self.me.upgrade().unwrap();
        Box::pin(std::future::poll_fn(move |_| {
            let mut times = clock.times.lock().unwrap();
            if times.now >= at {
                return Poll::Ready(());
            }
            times.alarm = Some(times.alarm.map_or(at, |other| other.min(at)));
            Poll::Pending
        }))
    }
}

/// Runs a call, and moves the clock where it waits.
pub(crate) fn run<T>(timer: &StillTimer, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        let alarm = timer.times.lock().unwrap().alarm.take();
        timer.advance_to(alarm.expect("a call that waits for nothing never ends"));
    }
}
