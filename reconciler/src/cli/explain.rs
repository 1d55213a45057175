//! `reconciler explain NODE`: what a node does, why, what it waits for, and how it came there. The reasons are
//! the decider's own.

use executor_api::LogicalNodeId;

use super::args::{Format, Global, node_id};
use super::drive::driver_of;
use super::failure::{Code, Failure};
use super::output::{document, reason};
use super::view::{Explained, Node};
use crate::run::protocol::{Answer, Request};
use crate::run::state::Stored;
use crate::run::status::explain_stored;

/// `reconciler explain`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node, such as web-1.
    #[arg(value_parser = node_id)]
    node: LogicalNodeId,
    /// How to write it.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) async fn run(global: &Global, args: &Args) -> Result<Code, Failure> {
    let dir = global.dir()?;
    let explained = match driver_of(&dir).await? {
        None => explain_stored(&Stored::expect(&dir)?, &args.node)?,
        Some(mut client) => match client.call(Request::Explain { node: args.node.clone() }).await? {
            Answer::Explained(explained) => *explained,
            other => {
                return Err(Failure::error(format!(
                    "the driver answered something else than was asked: {other:?}"
                )));
            }
        },
    };
    document(args.output, &explained, || text(&explained))?;
    Ok(Code::Done)
}

fn text(explained: &Explained) -> String {
    let node = &explained.node;
    let attempt =
        node.attempt.map_or_else(|| "no attempt yet".to_owned(), |attempt| format!("attempt a{attempt}"));
    let mut lines = vec![format!("{}  group {}, provider {}, {attempt}", node.id, node.group, node.provider)];
    let mut say = |what: &str, text: String| lines.push(format!("  {what:10} {text}"));
    say("stage", format!("{}{}", node.stage, if node.intent == "deleting" { ", being removed" } else { "" }));
    say("ready", if node.ready { "yes" } else { "no" }.to_owned());
    say("next", if explained.step == "none" { "nothing to do".to_owned() } else { explained.step.clone() });
    say("why", reason(node));
    if let Some(until) = &node.until {
        say("until", until.clone());
    }
    if node.failures > 0 {
        say("failures", format!("{} in a row", node.failures));
    }
    if let Some(text) = waits_for_endpoint(node) {
        say("endpoint", text);
    }
    // What a session was at last is of interest until its node is ready.
    let phase = node.phase.clone().filter(|_| !node.ready);
    let facts = [
        ("last error", &node.last_error),
        ("since", &node.since),
        ("endpoint", &node.endpoint),
        ("lease", &node.lease),
        ("session", &node.session),
        ("phase", &phase),
    ];
    for (what, value) in facts {
        if let Some(value) = value {
            say(what, value.clone());
        }
    }
    if !explained.history.is_empty() {
        lines.push("  lately".to_owned());
        lines.extend(explained.history.iter().map(|event| format!("    {event}")));
    }
    lines.join("\n") + "\n"
}

/// A lease without an endpoint is looked at for as long as it lives: only its provider can say that it never gets one.
/// So nothing ends that wait by itself, and a person is told how long it has been and what can be done.
fn waits_for_endpoint(node: &Node) -> Option<String> {
    let waits = node.lease.is_some() && node.endpoint.is_none() && node.intent == "active";
    let since = node.since.as_ref().filter(|_| waits && node.stage == "lease-created")?;
    Some(format!(
        "none yet, of an attempt made at {since}; it is looked for until the lease ends. If {} never gives it one, \
         `reconciler replace {}` begins anew",
        node.provider, node.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(stage: &str, endpoint: Option<&str>) -> String {
        let node = serde_json::json!({
            "id": "web-0", "group": "web", "attempt": 3, "stage": stage, "intent": "active", "ready": false,
            "converged": false, "since": "2026-01-02T03:04:05.000Z", "endpoint": endpoint, "why": "waiting to look again",
            "until": null, "failures": 0, "last_error": null, "provider": "ec2", "lease": "i-1", "session": null,
            "phase": null,
        });
        let node: Node = serde_json::from_value(node).unwrap();
        text(&Explained { node, step: "wait".to_owned(), history: Vec::new() })
    }

    #[test]
    fn a_node_without_an_endpoint_says_since_when_and_what_can_be_done() {
        let said = explained("lease-created", None);
        assert!(said.contains("2026-01-02T03:04:05.000Z; it is looked for"), "{said}");
        assert!(said.contains("`reconciler replace web-0`"), "{said}");
        assert!(!explained("endpoint-known", Some("10.0.0.1:22")).contains("looked for"));
    }
}
