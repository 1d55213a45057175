//! Stories: a script and what it led to, in one file each. `UPDATE_EXPECT=1` rewrites the answers.
//!
//! One command a line, `#` for a comment, `----` before the answer:
//!
//! ```text
//! world create=2s join=never     how the fake world behaves; it is instant otherwise
//! policy stable=10s join=60s     timing other than that of the scenarios
//! shape gen=2 web=1 db=2 spec=b  what is declared
//! fault create quota node=web-0 times=2 until=30s
//! kill web-0 | vanish web-0 | hold web-0 | release web-0 | replace web-0 | crash
//! at 5s                          lets time pass until then
//! run until settled
//! ```
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a story that cannot be read should say where")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::{
    BootSpec, GroupId, GroupPolicy, JoinSpec, LogicalNodeId, NodeRole, NodeTemplate, ProviderName,
    RejectReason, RunId, RunNodeGroupSpec, Timer as _, UpdatePolicy, Visibility,
};
use executor_fake::{
    CallKind, EndpointTiming, FakeBehaviour, FakeWorld, Fault, Incident, Joining, Rule, Silence,
};
use reconciler_core::{ClusterShape, Hold, HoldBy, RetryPolicy, check};
use reconciler_driver::runner::Settled;
use reconciler_driver::{DriverInput, ExecutorTable, Runner, VirtualTimer};

const START: SystemTime = SystemTime::UNIX_EPOCH;

datatest_stable::harness! { { test = story, root = "tests/stories", pattern = r"\.trace$" } }

fn story(path: &Path) -> datatest_stable::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let (script, expected) = text.split_once("----\n").ok_or("no ---- between script and answer")?;
    let answer = play(script)?;
    if answer == expected {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, format!("{script}----\n{answer}"))?;
        return Ok(());
    }
    Err(format!("expected:\n{expected}\nfound:\n{answer}\nUPDATE_EXPECT=1 accepts it").into())
}

struct Stage {
    timer: VirtualTimer,
    world: FakeWorld,
    policy: RetryPolicy,
    runner: Option<Runner>,
    ending: String,
}

fn play(script: &str) -> Result<String, String> {
    let timer = VirtualTimer::new(START);
    let world = FakeWorld::new(Arc::new(timer.clone()), FakeBehaviour::instant());
    let mut policy = RetryPolicy::default();
    policy.extra.join_within = Duration::from_mins(1);
    let mut stage = Stage { timer, world, policy, runner: None, ending: String::new() };
    for line in script.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            command(&mut stage, line).map_err(|error| format!("{line:?}: {error}"))?;
        }
    }
    let runner = stage.runner.ok_or("the story declares nothing")?;
    assert_eq!(check::violations(runner.driver().state()), []);
    assert_eq!(stage.world.breaches(), []);
    let mut lines = runner.trace();
    lines.push(stage.ending);
    Ok(lines.join("\n") + "\n")
}

fn command(stage: &mut Stage, line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let rest: Vec<_> = words.collect();
    let settings: BTreeMap<_, _> = rest.iter().filter_map(|word| word.split_once('=')).collect();
    let now = stage.timer.now();
    let node = || LogicalNodeId::parse(rest.first().copied().unwrap_or_default()).map_err(|e| e.to_string());
    let told = match verb {
        "kill" => {
            stage.world.befall(&node()?, &Incident::Dies("killed".to_owned()));
            return Ok(());
        }
        "vanish" => {
            stage.world.befall(&node()?, &Incident::Vanishes);
            return Ok(());
        }
        "hold" => {
            let hold = Hold { by: HoldBy::Operator, reason: "a look inside".to_owned(), since: now };
            Some(DriverInput::Hold { slot: Some(node()?), hold })
        }
        "release" => Some(DriverInput::Release { slot: Some(node()?), by: HoldBy::Operator }),
        "replace" => Some(DriverInput::Replace { slot: node()? }),
        _ => None,
    };
    if let Some(input) = told {
        runner(stage)?.tell(input);
        return Ok(());
    }
    match verb {
        "world" => world(stage, &settings),
        "policy" => policy(stage, &settings),
        "shape" => declare(stage, &settings),
        "fault" => fault(stage, &rest, &settings),
        "crash" => runner(stage)?.crash().map_err(|error| error.to_string()),
        "at" => {
            let until = START + duration(rest.first().ok_or("at when?")?)?;
            let left = until.duration_since(now).map_err(|_| "that time has passed")?;
            runner(stage)?.run_for(left).map_err(|error| error.to_string())
        }
        "run" => {
            let settled =
                runner(stage)?.run_until_settled(Duration::from_mins(10)).map_err(|e| e.to_string())?;
            let at = stage.timer.now().duration_since(START).unwrap();
            let left = stage.world.existing_leases().len();
            stage.ending = match settled {
                Settled::Converged => format!("= converged at +{}, {left} lease(s)", seconds(at)),
                Settled::Stuck => format!("= nothing more to do at +{}, {left} lease(s)", seconds(at)),
                Settled::Limit => "= not settled".to_owned(),
            };
            Ok(())
        }
        _ => Err("no such command".to_owned()),
    }
}

fn runner(stage: &mut Stage) -> Result<&mut Runner, String> {
    stage.runner.as_mut().ok_or_else(|| "declare a shape first".to_owned())
}

fn world(stage: &Stage, settings: &BTreeMap<&str, &str>) -> Result<(), String> {
    let mut change = Vec::new();
    for (key, value) in settings {
        change.push((*key, *value, if *value == "never" { Duration::ZERO } else { duration(value)? }));
    }
    stage.world.set_behaviour(|behaviour| {
        for (key, value, time) in change {
            let node = &mut behaviour.node;
            match key {
                "create" => node.create = time,
                "endpoint" => {
                    node.endpoint =
                        if value == "never" { EndpointTiming::Never } else { EndpointTiming::After(time) };
                }
                "start" => node.start = time,
                "join" => node.join = if value == "never" { Joining::Never } else { Joining::After(time) },
                "complete" => node.complete = time,
                "cancel" => node.cancel = time,
                "destroy" => node.destroy = time,
                "lag" => behaviour.visibility = Visibility { listing_lag: time, ..behaviour.visibility },
                "late" => behaviour.visibility = Visibility { late_landing: time, ..behaviour.visibility },
                other => panic!("the world knows no {other}"),
            }
        }
    });
    Ok(())
}

fn policy(stage: &mut Stage, settings: &BTreeMap<&str, &str>) -> Result<(), String> {
    for (key, value) in settings {
        let extra = &mut stage.policy.extra;
        match *key {
            "stable" => extra.stable_after = duration(value)?,
            "join" => extra.join_within = duration(value)?,
            "loss" => extra.loss_timeout = Some(duration(value)?),
            other => return Err(format!("no policy {other}")),
        }
    }
    Ok(())
}

fn declare(stage: &mut Stage, settings: &BTreeMap<&str, &str>) -> Result<(), String> {
    let run_id = RunId::new("demo", "u1").expect("a legal name");
    let generation = settings.get("gen").ok_or("gen is missing")?.parse().map_err(|_| "gen is no number")?;
    let mut groups = Vec::new();
    for (name, count) in settings.iter().filter(|(key, _)| !matches!(**key, "gen" | "spec" | "limit")) {
        groups.push(RunNodeGroupSpec {
            run_id: run_id.clone(),
            group_id: GroupId::new(*name).map_err(|error| error.to_string())?,
            count: count.parse().map_err(|_| format!("{count} is no number"))?,
            template: Arc::new(NodeTemplate {
                role: NodeRole((*settings.get("spec").unwrap_or(&"a")).to_owned()),
                provider: ProviderName::new("fake").expect("a legal name"),
                shape: serde_json::Value::Null,
                boot: BootSpec::default(),
                join: JoinSpec::default(),
            }),
            policy: GroupPolicy::default(),
            update: UpdatePolicy { max_unavailable: settings.get("limit").map(|n| n.parse().unwrap()) },
        });
    }
    let desired = ClusterShape { run_id, generation, groups };
    if let Some(runner) = &mut stage.runner {
        return runner.set_desired(desired).map(drop).map_err(|error| error.to_string());
    }
    let executors = ExecutorTable::new().with_executor(stage.world.executor());
    let runner = Runner::new(desired, stage.policy.clone(), executors, stage.timer.clone());
    stage.runner = Some(runner.map_err(|error| error.to_string())?);
    Ok(())
}

fn fault(stage: &Stage, words: &[&str], settings: &BTreeMap<&str, &str>) -> Result<(), String> {
    let [call, name, ..] = words else { return Err("fault CALL WHAT".to_owned()) };
    let call = match *call {
        "create" => CallKind::Create,
        "lookup" => CallKind::Lookup,
        "start" => CallKind::Start,
        "complete" => CallKind::Complete,
        "cancel" => CallKind::Cancel,
        "destroy" => CallKind::Destroy,
        "list" => CallKind::List,
        other => return Err(format!("no call {other}")),
    };
    let fault = match *name {
        "quota" => Fault::Rejected(RejectReason::Quota),
        "throttled" => Fault::Throttled { retry_after: None },
        "unavailable" => Fault::Unavailable,
        "gone" => Fault::Gone,
        "panics" => Fault::Panics,
        "answer-lost" => Fault::AnswerLost(Silence::Hangs),
        "hangs" => Fault::NotActed(Silence::Hangs),
        "lands-late" => Fault::LandsLate { after: Duration::from_secs(5), silence: Silence::Hangs },
        "dies" => Fault::Dies(Duration::from_secs(3)),
        "exits" => Fault::Exits { after: Duration::from_secs(1), status: 0 },
        "never-joins" => Fault::NeverJoins,
        "wrong-nonce" => Fault::WrongNonce,
        other => return Err(format!("no fault {other}")),
    };
    let mut rule = Rule::new(call, fault);
    if let Some(node) = settings.get("node") {
        rule = rule.node(&LogicalNodeId::parse(*node).map_err(|error| error.to_string())?);
    }
    if let Some(times) = settings.get("times") {
        rule = rule.times(times.parse().map_err(|_| "times is no number")?);
    }
    if let Some(until) = settings.get("until") {
        rule = rule.always().until(START + duration(until)?);
    }
    stage.world.script(rule).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    number.map(Duration::from_secs_f64).ok_or_else(|| format!("{text:?} is no time; write 5s"))
}

fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}
