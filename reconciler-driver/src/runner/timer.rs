//! A clock that goes where it is told, and its alarms in order of time and then of setting.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use executor_api::Timer;

/// A virtual clock. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct VirtualTimer(Arc<Mutex<Clock>>);

#[derive(Debug)]
struct Clock {
    now: SystemTime,
    alarms: BTreeMap<(SystemTime, u64), Waker>,
    set: u64,
}

impl VirtualTimer {
    /// A clock that stands at `now`.
    pub fn new(now: SystemTime) -> Self {
        Self(Arc::new(Mutex::new(Clock { now, alarms: BTreeMap::new(), set: 0 })))
    }

    /// Goes forward to `at` and wakes whoever waited for it. Never goes back.
    pub fn advance_to(&self, at: SystemTime) {
        let mut due = Vec::new();
        {
            let mut clock = self.clock();
            clock.now = clock.now.max(at);
            while clock.alarms.first_key_value().is_some_and(|((at, _), _)| *at <= clock.now) {
                due.extend(clock.alarms.pop_first());
            }
        }
        for (_, waker) in due {
            waker.wake();
        }
    }

    /// The earliest alarm.
    pub fn next(&self) -> Option<SystemTime> {
        self.clock().alarms.keys().next().map(|(at, _)| *at)
    }

    /// Runs one future to its end and moves the clock whenever it waits. `None` if it waits for something that is no
    /// alarm of this clock.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return Some(value);
            }
            self.advance_to(self.next()?);
        }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timer for VirtualTimer {
    fn now(&self) -> SystemTime {
        self.clock().now
    }

    fn sleep_until(&self, at: SystemTime) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Alarm { timer: self.clone(), at, set: None })
    }
}

struct Alarm {
    timer: VirtualTimer,
    at: SystemTime,
    set: Option<u64>,
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.clone();
        let mut clock = timer.clock();
        if self.at <= clock.now {
            return Poll::Ready(());
        }
        let set = *self.set.get_or_insert_with(|| {
            clock.set += 1;
            clock.set
        });
        clock.alarms.insert((self.at, set), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(set) = self.set {
            // The waker is dropped after the lock is free: its task may set alarms of its own.
            let waker = self.timer.clock().alarms.remove(&(self.at, set));
            drop(waker);
        }
    }
}
