//! A real process that is killed between a launch and its answer. Tags and token alone must be enough for the next
//! one: nothing else of the first is left.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::{key, persist, provider, shape, try_create};
use crate::world::Region;

/// How often; half a minute on a busy machine. `EC2_KILLS` changes it.
fn kills() -> u64 {
    std::env::var("EC2_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(50)
}

const VICTIM: &str = "EC2_TEST_VICTIM";

/// Ends the process that it holds, whatever becomes of the test.
struct Victim(Child);

impl Victim {
    /// This very test program, running only the test below.
    fn start(node: &str, shape: &Value) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_process_that_is_killed", "--ignored", "--nocapture"])
            .env(VICTIM, json!({ "node": node, "shape": shape }).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_between_launch_and_answer_leaves_nothing_that_the_next_does_not_adopt() {
    let Some(region) = Region::take() else { return };
    let shape = shape(&region, &json!({}));
    for round in 0..kills() {
        region.faults(&json!([{ "action": "RunInstances", "when": "after", "kind": "delay", "s": 1.0 }]));
        let key = key(&format!("n-{round}"), 1);
        let mine =
            || region.living().into_iter().filter(|one| one.owner.as_ref() == Some(&key)).collect::<Vec<_>>();
        let victim = Victim::start(key.node.as_str(), &shape);
        let begun = Instant::now();
        while mine().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the victim launched nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // It is made, and its answer is on its way for another second.
        drop(victim);
        let lease = persist(&provider(), &key, &shape).await;
        let left = mine();
        assert_eq!(left.iter().map(|one| &one.id).collect::<Vec<_>>(), [&lease.lease_id.0], "round {round}");
    }
    assert_eq!(region.living().len() as u64, kills());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by the test above, in a process of its own"]
async fn the_process_that_is_killed() {
    let Ok(task) = std::env::var(VICTIM) else { return };
    let task: Value = serde_json::from_str(&task).unwrap();
    let _ = try_create(&provider(), &key(task["node"].as_str().unwrap(), 1), &task["shape"]).await;
}
