//! What durability costs: a cluster brought up with its state in memory, the same with it on disk, and the rows and
//! transactions of the latter written to SQLite by hand. `cargo bench -p reconciler-driver --bench durable`; the
//! number of nodes may be given.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use executor_api::{
    BootSpec, GroupId, GroupPolicy, IdError, JoinSpec, NodeRole, NodeTemplate, ProviderName, RunId,
    RunNodeGroupSpec, UpdatePolicy,
};
use executor_fake::{FakeBehaviour, FakeWorld};
use reconciler_core::{ClusterShape, RetryPolicy};
use reconciler_driver::runner::Settled;
use reconciler_driver::{
    Changeset, ExecutorTable, MemoryStore, Rules, Runner, SqliteStore, StateImage, StateStore, StoreError,
    VirtualTimer,
};
use rusqlite::{Connection, params};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let given = std::env::args().find_map(|argument| argument.parse().ok());
    let size: u32 = given.unwrap_or(10_000);
    let dir = std::env::temp_dir().join(format!("reconciler-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let measured = measure(size, &dir);
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(size: u32, dir: &Path) -> Result<(), Failure> {
    let memory = converge(size, Box::new(MemoryStore::new()))?;
    let spent = Arc::new(Mutex::new(Duration::ZERO));
    let store = SqliteStore::open(&dir.join("state.db"))?;
    let durable = converge(size, Box::new(Timed { inner: store, spent: Arc::clone(&spent) }))?;
    let store = *spent.lock().unwrap_or_else(PoisonError::into_inner);

    let kept = Arc::new(Mutex::new(Vec::new()));
    converge(size, Box::new(Keeping { inner: MemoryStore::new(), kept: Arc::clone(&kept) }))?;
    let kept = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    let rows: usize = kept.iter().map(|rows| rows.slots.len()).sum();
    let by_hand = write_by_hand(&kept, &dir.join("hand.db"))?;

    println!("{size} nodes, {} transactions, {rows} slot rows", kept.len());
    println!("  state in memory      {memory:>10.2?}  whole run");
    println!("  state on disk        {durable:>10.2?}  whole run, {store:.2?} of it in the store");
    println!("  rows by hand         {by_hand:>10.2?}  SQLite alone");
    let ratio = |of: Duration, to: Duration| of.as_secs_f64() / to.as_secs_f64();
    println!(
        "  store / by hand {:.2}   on disk / in memory {:.2}   (on disk - in memory) / by hand {:.2}",
        ratio(store, by_hand),
        ratio(durable, memory),
        ratio(durable.saturating_sub(memory), by_hand)
    );
    Ok(())
}

/// Brings a cluster up from nothing.
fn converge(size: u32, store: Box<dyn StateStore>) -> Result<Duration, Failure> {
    let timer = VirtualTimer::new(SystemTime::UNIX_EPOCH);
    let world = FakeWorld::new(Arc::new(timer.clone()), FakeBehaviour::instant());
    let executors = ExecutorTable::new().with_executor(world.executor());
    let mut policy = RetryPolicy::default();
    policy.extra.create_share = 1_000;
    policy.extra.observe_every = Duration::from_hours(1);
    let started = Instant::now();
    let mut runner = Runner::open(store, declared(size)?, policy, executors, timer, Rules::default())?;
    assert_eq!(runner.run_until_settled(Duration::from_hours(1))?, Settled::Converged);
    Ok(started.elapsed())
}

/// Measures a store.
#[derive(Debug)]
struct Timed {
    inner: SqliteStore,
    spent: Arc<Mutex<Duration>>,
}

impl StateStore for Timed {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let started = Instant::now();
        let done = self.inner.commit(changes);
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) += started.elapsed();
        done
    }
}

/// The rows of one transaction.
#[derive(Debug)]
struct Rows {
    slots: Vec<(String, i64, String)>,
    meta: Vec<(&'static str, String)>,
}

/// Keeps what is stored as the rows that it becomes.
#[derive(Debug)]
struct Keeping {
    inner: MemoryStore,
    kept: Arc<Mutex<Vec<Rows>>>,
}

impl StateStore for Keeping {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        self.inner.load()
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        let text = |value: Result<String, serde_json::Error>| {
            value.map_err(|error| StoreError::Other(error.to_string()))
        };
        let mut slots = Vec::new();
        for (slot, node) in &changes.upserted {
            let attempt = i64::try_from(node.attempt.0).unwrap_or(i64::MAX);
            slots.push((slot.to_string(), attempt, text(serde_json::to_string(node))?));
        }
        let meta = vec![
            ("observed_generation", changes.meta.observed_generation.to_string()),
            ("next_attempt_id", changes.meta.next_attempt_id.to_string()),
        ];
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Rows { slots, meta });
        self.inner.commit(changes)
    }
}

fn write_by_hand(kept: &[Rows], path: &Path) -> Result<Duration, Failure> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
         CREATE TABLE slots (slot TEXT PRIMARY KEY, attempt INTEGER NOT NULL, value TEXT NOT NULL) STRICT;
         PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
    )?;
    let started = Instant::now();
    for rows in kept {
        let transaction = connection.transaction()?;
        {
            let mut slot = transaction.prepare_cached("INSERT OR REPLACE INTO slots VALUES (?1, ?2, ?3)")?;
            for (name, attempt, value) in &rows.slots {
                slot.execute(params![name, attempt, value])?;
            }
            let mut meta = transaction.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?;
            for (key, value) in &rows.meta {
                meta.execute(params![key, value])?;
            }
        }
        transaction.commit()?;
    }
    Ok(started.elapsed())
}

fn declared(count: u32) -> Result<ClusterShape, IdError> {
    let run_id = RunId::new("bench", "u1")?;
    let group = RunNodeGroupSpec {
        run_id: run_id.clone(),
        group_id: GroupId::new("web")?,
        count,
        template: Arc::new(NodeTemplate {
            role: NodeRole("worker".to_owned()),
            provider: ProviderName::new("fake")?,
            shape: serde_json::Value::Null,
            boot: BootSpec::default(),
            join: JoinSpec::default(),
        }),
        policy: GroupPolicy::default(),
        update: UpdatePolicy::default(),
    };
    Ok(ClusterShape { run_id, generation: 1, groups: vec![group] })
}
