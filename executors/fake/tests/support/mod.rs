//! Virtual time for the tests of the fake: a timer that only the poller moves, and a poller that moves it to
//! the earliest alarm once no task can go on.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use executor_api::{
    AttemptKey, BootSpec, CandidateIndex, GroupId, JoinSpec, LogicalNodeId, LogicalNodeSpec, NodeAttemptId,
    NodeRole, NodeTemplate, OperationContext, OperationId, ProviderName, RunId, SlotGroup, Timer,
};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A clock that stands still unless told otherwise.
#[derive(Debug)]
pub(crate) struct VirtualTimer {
    me: Weak<Self>,
    inner: Mutex<Clock>,
}

#[derive(Debug)]
struct Clock {
    now: SystemTime,
    alarms: BTreeMap<(SystemTime, u64), Waker>,
    count: u64,
}

impl VirtualTimer {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Clock { now: epoch(), alarms: BTreeMap::new(), count: 0 };
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), inner: Mutex::new(clock) })
    }

    /// Moves to the earliest alarm at or before `limit`. Answers whether there was one.
    fn advance(&self, limit: SystemTime) -> bool {
        let mut clock = self.inner.lock().unwrap();
        let Some((&(at, _), _)) = clock.alarms.first_key_value() else {
            return false;
        };
        if at > limit {
            return false;
        }
        clock.now = clock.now.max(at);
        let later = clock.alarms.split_off(&(at + Duration::from_nanos(1), 0));
        let due = std::mem::replace(&mut clock.alarms, later);
        drop(clock);
        due.into_values().for_each(Waker::wake);
        true
    }

    fn set(&self, now: SystemTime) {
        let mut clock = self.inner.lock().unwrap();
        clock.now = clock.now.max(now);
    }
}

impl Timer for VirtualTimer {
    fn now(&self) -> SystemTime {
        self.inner.lock().unwrap().now
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
        let mut clock = self.timer.inner.lock().unwrap();
        if clock.now >= self.at {
            return Poll::Ready(());
        }
        clock.count += 1;
        let key = (self.at, clock.count);
        clock.alarms.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The poller: tasks in the order in which they were spawned.
pub(crate) struct Time {
    pub(crate) timer: Arc<VirtualTimer>,
    tasks: Vec<Option<(Task, Arc<Flag>)>>,
}

impl Time {
    pub(crate) fn new() -> Self {
        let timer = VirtualTimer::new();
        Self { timer, tasks: Vec::new() }
    }

    /// Starts a task; its number is good for `drop_task`.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + 'static) -> usize {
        self.tasks.push(Some((Box::pin(task), Arc::new(Flag(AtomicBool::new(true))))));
        self.tasks.len() - 1
    }

    /// Drops a task's future, as a driver does at a deadline.
    pub(crate) fn drop_task(&mut self, number: usize) {
        self.tasks[number] = None;
    }

    /// Runs everything until `at`, and stands there.
    pub(crate) fn run_until(&mut self, at: SystemTime) {
        loop {
            while self.poll_once() {}
            if !self.timer.advance(at) {
                break;
            }
        }
        self.timer.set(at);
        while self.poll_once() {}
    }

    /// Runs everything until `future` is done, for at most an hour of the world's time.
    pub(crate) fn block_on<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let limit = self.timer.now() + Duration::from_hours(1);
        let result = std::rc::Rc::new(std::cell::RefCell::new(None));
        let slot = std::rc::Rc::clone(&result);
        self.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        while result.borrow().is_none() {
            let moved = self.poll_once() || self.timer.advance(limit);
            assert!(moved, "nothing moves any more, and the future is not done");
        }
        result.borrow_mut().take().unwrap()
    }

    fn poll_once(&mut self) -> bool {
        let mut moved = false;
        for slot in &mut self.tasks {
            let Some((task, flag)) = slot else { continue };
            if !flag.0.swap(false, Ordering::SeqCst) {
                continue;
            }
            moved = true;
            let waker = Waker::from(Arc::clone(flag));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *slot = None;
            }
        }
        moved
    }
}

pub(crate) fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn key(node: &str, attempt: u64) -> AttemptKey {
    AttemptKey {
        run: RunId::new("demo", "u1").unwrap(),
        node: LogicalNodeId::parse(node).unwrap(),
        attempt: NodeAttemptId(attempt),
    }
}

/// The context of the attempt's operation with this number, given up 30 s from `now`.
pub(crate) fn ctx(key: &AttemptKey, sequence: u64, now: SystemTime) -> OperationContext {
    OperationContext {
        attempt: key.clone(),
        operation: OperationId { attempt: key.attempt, sequence },
        candidate: CandidateIndex(0),
        deadline: now + secs(30),
        group: SlotGroup { group: GroupId::new("web").unwrap(), slots: Arc::new([key.node.clone()]) },
    }
}

pub(crate) fn spec(key: &AttemptKey, shape: serde_json::Value, boot: serde_json::Value) -> LogicalNodeSpec {
    let group = GroupId::new("web").unwrap();
    LogicalNodeSpec {
        id: key.node.clone(),
        group,
        index: 0,
        template: Arc::new(NodeTemplate {
            role: NodeRole::default(),
            provider: ProviderName::new("fake").unwrap(),
            shape,
            boot: BootSpec { via: None, settings: boot },
            join: JoinSpec::default(),
        }),
    }
}
