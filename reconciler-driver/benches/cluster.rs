//! How the driver's cost grows with the cluster: 1k, 10k and 100k nodes on the fake executor, in virtual
//! time, with the store in memory. `cargo bench -p reconciler-driver`; sizes may be given as arguments.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use executor_api::{
    BootSpec, GroupId, GroupPolicy, IdError, JoinSpec, LogicalNodeId, NodeRole, NodeTemplate, ProviderName,
    RunId, RunNodeGroupSpec, UpdatePolicy,
};
use executor_fake::{FakeBehaviour, FakeWorld};
use reconciler_core::{ClusterShape, RetryPolicy};
use reconciler_driver::runner::{Settled, Step};
use reconciler_driver::{DriverInput, ExecutorTable, Runner, VirtualTimer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sizes: Vec<u32> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000, 100_000] } else { sizes };
    println!(
        "   nodes  empty to converged  per node  steady pass  one replaced  status snapshot  memory/node"
    );
    for size in sizes {
        println!("{}", measure(size)?);
    }
    Ok(())
}

fn measure(size: u32) -> Result<String, Box<dyn std::error::Error>> {
    let before = resident();
    let timer = VirtualTimer::new(SystemTime::UNIX_EPOCH);
    let world = FakeWorld::new(Arc::new(timer.clone()), FakeBehaviour::instant());
    let executors = ExecutorTable::new().with_executor(world.executor());
    let mut policy = RetryPolicy::default();
    policy.extra.create_share = 1_000;
    policy.extra.observe_every = Duration::from_hours(1);
    let mut runner = Runner::new(declared(size)?, policy, executors, timer)?;

    let started = Instant::now();
    let settled = runner.run_until_settled(Duration::from_hours(1))?;
    let converging = started.elapsed();
    assert_eq!(settled, Settled::Converged);
    runner.take_events();
    let memory = resident().saturating_sub(before) / u64::from(size);

    // A pass that nothing asked for: the safety tick.
    let started = Instant::now();
    let rounds = 100;
    for _ in 0..rounds {
        runner.tell(DriverInput::Tick);
        work_off(&mut runner)?;
    }
    let steady = started.elapsed() / rounds;

    let middle = LogicalNodeId::of(&GroupId::new("web")?, size / 2);
    let started = Instant::now();
    for _ in 0..rounds {
        runner.tell(DriverInput::Replace { slot: middle.clone() });
        runner.run_until_settled(Duration::from_hours(1))?;
    }
    let replaced = started.elapsed() / rounds;

    let started = Instant::now();
    black_box(runner.driver().snapshot());
    let snapshot = started.elapsed();
    Ok(format!(
        "{size:>8}  {:>18}  {:>8}  {:>11}  {:>12}  {:>15}  {:>8.1} KiB",
        format!("{converging:.2?}"),
        format!("{:.1?}", converging / size),
        format!("{steady:.1?}"),
        format!("{replaced:.1?}"),
        format!("{snapshot:.1?}"),
        f64::from(u32::try_from(memory).unwrap_or(u32::MAX)) / 1024.0,
    ))
}

/// Does everything that can be done without time passing.
fn work_off(runner: &mut Runner) -> Result<(), Box<dyn std::error::Error>> {
    while runner.driver().needs_pass() || runner.driver().next_wakeup() <= Some(runner.driver().now()) {
        if runner.step()? != Step::Happened {
            break;
        }
    }
    Ok(())
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

/// Resident memory of this process in bytes, world included; zero where it cannot be read.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4096
}
