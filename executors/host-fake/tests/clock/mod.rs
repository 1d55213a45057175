//! A clock that only waiting moves. Shared by the test programs.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use executor_api::Timer;

/// A clock that stands still unless somebody waits for it.
#[derive(Debug)]
pub(crate) struct VirtualTimer {
    me: Weak<Self>,
    now: Mutex<SystemTime>,
    alarms: Mutex<BTreeMap<SystemTime, Vec<Waker>>>,
}

impl VirtualTimer {
    pub(crate) fn new() -> Arc<Self> {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), now: Mutex::new(start), alarms: Mutex::default() })
    }

    /// Moves to the earliest alarm.
    fn advance(&self) -> bool {
        let Some((at, wakers)) = self.alarms.lock().unwrap().pop_first() else { return false };
        let mut now = self.now.lock().unwrap();
        *now = at.max(*now);
        drop(now);
        wakers.into_iter().for_each(Waker::wake);
        true
    }
}

impl Timer for VirtualTimer {
    fn now(&self) -> SystemTime {
        *self.now.lock().unwrap()
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Alarm { at, timer: self.me.upgrade().unwrap() })
    }
}

struct Alarm {
    at: SystemTime,
    timer: Arc<VirtualTimer>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.now() >= self.at {
            return Poll::Ready(());
        }
        self.timer.alarms.lock().unwrap().entry(self.at).or_default().push(cx.waker().clone());
        Poll::Pending
    }
}

/// Runs a future, and moves the clock whenever it waits.
pub(crate) fn run<T>(timer: &VirtualTimer, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        assert!(timer.advance(), "nothing moves any more, and the call is not done");
    }
}
