//! The question to a person, and the reply. A question shows the world it was asked about; a reply quotes the
//! fingerprint of that world and is void once anything in it has moved.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::SystemTime;

use executor_api::host::{Evidence, Fingerprint, HostName, Read, ResourceReading, StorageReading};
use serde::{Deserialize, Serialize};

use crate::maintenance::advance::open_outcome;
use crate::maintenance::gate::Look;
use crate::maintenance::state::{Person, Phase, Recovery};
use crate::maintenance::step::{Act, HaltReason, Move, Step, Why};
use crate::maintenance::verdict::FindingKind;

/// What a person may answer. None of them skips a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Look again, as after a halt: settle, then whatever can be proved.
    LookAgain,
    /// One more try of the phase.
    RetryStep,
    /// Go back.
    RollBack,
    /// The person takes the cluster over as it is: hold and lease are given up, machines stay pinned, and the
    /// plan does nothing more.
    HandOver,
}

impl Answer {
    /// As it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LookAgain => "look-again",
            Self::RetryStep => "retry-step",
            Self::RollBack => "roll-back",
            Self::HandOver => "hand-over",
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An open question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// Counts the plan's escalations, from one. A question that is asked anew has a new number.
    pub sequence: u64,
    /// Over plan, sequence, phase and world. A reply quotes it whole.
    pub fingerprint: Fingerprint,
    /// Why a person is asked.
    pub reason: HaltReason,
    /// The world as it was read, a line for each thing. Counters and times are left out: they move by themselves.
    pub world: BTreeMap<String, String>,
    /// What may be answered.
    pub answers: BTreeSet<Answer>,
    /// When it was asked.
    pub raised_at: SystemTime,
}

/// A reply as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The fingerprint of the question.
    pub fingerprint: Fingerprint,
    /// The answer.
    pub answer: Answer,
    /// Who gives it.
    pub who: String,
}

/// Why a reply is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyRefused {
    /// Nothing was asked.
    #[error("plan {plan} asks nothing: it is {label}")]
    NothingAsked {
        /// The plan.
        plan: String,
        /// How far it is.
        label: String,
    },
    /// The reply is to another question.
    #[error("the reply quotes {quoted}, the open question is {open}; read it and answer that one")]
    OtherQuestion {
        /// What the reply quotes.
        quoted: Fingerprint,
        /// What is asked.
        open: Fingerprint,
    },
    /// The answer was not offered.
    #[error("{answer} is not offered for this question; offered: {offered}")]
    NotOffered {
        /// The answer.
        answer: Answer,
        /// What is.
        offered: String,
    },
    /// The world is not the one that the question shows.
    #[error("the world has moved since the question was asked ({what}); wait for the new question")]
    Moved {
        /// Where.
        what: String,
    },
    /// Part of the world could not be compared.
    #[error("{what} was not read just now; read the world and reply again")]
    NotRead {
        /// What.
        what: String,
    },
    /// Nobody said it.
    #[error("the reply names nobody; say who replies")]
    Nobody,
}

/// Checks a reply against the open question and the world as it is now. On success the step takes it.
pub fn respond(look: Look<'_>, reply: Reply) -> Result<Step, ReplyRefused> {
    let state = look.state;
    let open = match (&state.recovery, &state.escalation) {
        (Recovery::Escalated, Some(escalation)) if !state.handed_over => escalation,
        (_, _) => {
            return Err(ReplyRefused::NothingAsked { plan: state.plan.to_string(), label: state.label() });
        }
    };
    if reply.who.trim().is_empty() {
        return Err(ReplyRefused::Nobody);
    }
    if reply.fingerprint != open.fingerprint {
        let open = open.fingerprint.clone();
        return Err(ReplyRefused::OtherQuestion { quoted: reply.fingerprint, open });
    }
    if !open.answers.contains(&reply.answer) {
        let offered = open.answers.iter().map(|answer| answer.as_str()).collect::<Vec<_>>().join(", ");
        return Err(ReplyRefused::NotOffered { answer: reply.answer, offered });
    }
    if let Some(what) = not_read(look) {
        return Err(ReplyRefused::NotRead { what });
    }
    if let Some(what) = moved(&open.world, &world(look)) {
        return Err(ReplyRefused::Moved { what });
    }
    let by = Person { who: reply.who.clone(), at: look.now };
    let why = format!("{} replied to question {}", by.who, open.sequence);
    Ok(Step::go(Move::TakeReply { reply, by }, why))
}

/// Freezes the plan and asks.
pub(crate) fn escalate(look: Look<'_>, reason: HaltReason) -> Step {
    let sequence = look.state.escalations.saturating_add(1);
    let world = world(look);
    let fingerprint = Fingerprint::of("escalation", &(&look.plan.uid, sequence, look.state.phase, &world));
    let answers = offered(look, &reason);
    let why = Why::Plain(reason.to_string());
    let raised_at = look.now;
    Step { act: Act::Escalate(Escalation { sequence, fingerprint, reason, world, answers, raised_at }), why }
}

/// A frozen plan's step: none, unless the world has moved under the question. Then the question is asked anew,
/// so that a reply is always about the world as it is.
pub(crate) fn frozen(look: Look<'_>, open: &Escalation) -> Step {
    if not_read(look).is_none() && moved(&open.world, &world(look)).is_some() {
        return escalate(look, open.reason.clone());
    }
    Step::wait(None, format!("frozen: a person must reply to question {} ({})", open.sequence, open.reason))
}

/// What may be answered. Going forward or back is not offered where copies have diverged: both end in a
/// reconnect, and a person has to settle first which copy counts. On the way back there is no step to try again, however
/// often the question is asked anew.
fn offered(look: Look<'_>, reason: &HaltReason) -> BTreeSet<Answer> {
    let mut answers = BTreeSet::from([Answer::LookAgain, Answer::HandOver]);
    if !diverged(reason) {
        if !look.state.going_back {
            answers.insert(Answer::RetryStep);
        }
        if look.state.phase < Phase::RestoreMigration {
            answers.insert(Answer::RollBack);
        }
    }
    answers
}

fn diverged(reason: &HaltReason) -> bool {
    match reason {
        HaltReason::Gate { findings, .. }
        | HaltReason::NothingProvable(findings)
        | HaltReason::World(findings) => findings.iter().any(|finding| finding.kind == FindingKind::Diverged),
        HaltReason::LeaseLost(_)
        | HaltReason::OperationFailed { .. }
        | HaltReason::NotSeen { .. }
        | HaltReason::SuspensionExceeded
        | HaltReason::NotConnected(_)
        | HaltReason::Aborted { .. }
        | HaltReason::Refused(_)
        | HaltReason::Replied(_)
        | HaltReason::OutcomeUnknown { .. } => false,
    }
}

/// The first thing that differs.
fn moved(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Option<String> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    keys.into_iter().find(|key| before.get(*key) != after.get(*key)).cloned()
}

/// The first thing that this pass has no fresh reading of.
fn not_read(look: Look<'_>) -> Option<String> {
    fn stale<T>(look: Look<'_>, evidence: Option<&Evidence<T>>) -> bool {
        evidence.is_none_or(|evidence| !evidence.is_fresh(look.now, look.plan.pace.evidence_max_age))
    }
    let observed = look.observed;
    let per_node = look.plan.nodes.iter().flat_map(|node| {
        [
            (stale(look, observed.bonds.get(node)), format!("the bond of {node}")),
            (stale(look, observed.storage.get(node)), format!("the storage of {node}")),
            (stale(look, observed.satellites.get(node)), format!("the storage pods of {node}")),
        ]
    });
    let cluster = [
        (stale(look, observed.lock.as_ref()), "the lock".to_owned()),
        (stale(look, observed.vms.as_ref()), "the virtual machines".to_owned()),
    ];
    per_node.chain(cluster).find_map(|(missing, what)| missing.then_some(what))
}

/// The world in lines, without what moves by itself.
fn world(look: Look<'_>) -> BTreeMap<String, String> {
    let observed = look.observed;
    let mut lines = BTreeMap::new();
    let locked = line(observed.lock.as_ref(), |lock| {
        let lease = lock
            .lease
            .as_ref()
            .map_or_else(|| "no lease".to_owned(), |l| format!("{} {}", l.holder, l.fence));
        let hold =
            lock.hold.as_ref().map_or_else(|| "no hold".to_owned(), |hold| format!("held for {}", hold.plan));
        format!("{lease}, {hold}")
    });
    lines.insert("lock".to_owned(), locked);
    for node in &look.plan.nodes {
        let bond = line(observed.bonds.get(node), |bond| {
            let members =
                bond.members.iter().map(|(name, member)| format!("{name} {}/{}", member.state, member.mii));
            let persisted = bond.persisted.as_ref().map_or("?", |persisted| persisted.mode.as_str());
            let members = members.collect::<Vec<_>>().join(", ");
            format!("{} ({members}), next boot {persisted}, boot {}", bond.mode, bond.boot_id)
        });
        lines.insert(format!("bond of {node}"), bond);
        let pods = line(observed.satellites.get(node), |pods| {
            let count =
                pods.pods.as_ref().map_or_else(|| "unknown".to_owned(), |pods| pods.len().to_string());
            let kept_away = pods.kept_away.map_or("?", |kept| if kept { "yes" } else { "no" });
            format!("{count}, kept away: {kept_away}")
        });
        lines.insert(format!("storage pods of {node}"), pods);
        storage_lines(look, node, observed.storage.get(node), &mut lines);
    }
    vm_lines(look, &mut lines);
    if let Some(outcome) = open_outcome(look.state) {
        lines.insert("last operation".to_owned(), outcome);
    }
    lines
}

fn line<T>(evidence: Option<&Evidence<T>>, words: impl FnOnce(&T) -> String) -> String {
    match evidence.map(|evidence| &evidence.read) {
        Some(Read::Seen(value)) => words(value),
        Some(Read::Unknown(_)) => "unreadable".to_owned(),
        None => "not read".to_owned(),
    }
}

fn storage_lines(
    look: Look<'_>,
    node: &HostName,
    evidence: Option<&Evidence<StorageReading>>,
    lines: &mut BTreeMap<String, String>,
) {
    let peer = look.plan.peer_of(node);
    for resource in &look.plan.resources {
        let text = line(evidence, |storage| {
            storage
                .resources
                .get(resource)
                .map_or_else(|| "not configured".to_owned(), |reading| words(reading, peer))
        });
        lines.insert(format!("{resource} on {node}"), text);
    }
    let announced = line(evidence, |storage| match &storage.split_brain_seen {
        Some(seen) if seen.is_empty() => "none".to_owned(),
        Some(seen) => seen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        None => "not known".to_owned(),
    });
    lines.insert(format!("split brain announced on {node}"), announced);
}

fn words(reading: &ResourceReading, peer: &HostName) -> String {
    let Some(connection) = reading.connections.get(peer) else {
        return format!("{}, nothing about {peer}", reading.role);
    };
    let mut text = format!("{} {}", reading.role, connection.state);
    for (number, volume) in &reading.volumes {
        let peer_volume = connection.volumes.get(number);
        let ids = peer_volume.and_then(|peer| peer.generation.as_ref()).map_or_else(
            || "?".to_owned(),
            |ids| format!("{:016X}:{:016X}", ids.current.masked(), ids.bitmap.masked()),
        );
        let behind = match peer_volume.and_then(|peer| peer.out_of_sync_kib) {
            Some(0) => "in sync",
            Some(_) => "out of sync",
            None => "sync unknown",
        };
        let disks = peer_volume
            .map_or_else(|| "?".to_owned(), |peer| format!("{} {}", peer.peer_disk, peer.replication));
        let part = format!("; volume {number} {}/{disks} {ids} {behind}", volume.disk);
        text.push_str(&part);
    }
    text
}

fn vm_lines(look: Look<'_>, lines: &mut BTreeMap<String, String>) {
    match look.observed.vms.as_ref().map(|evidence| &evidence.read) {
        Some(Read::Seen(picture)) => {
            for (name, vm) in &picture.vms {
                let running = vm.running.as_ref().map_or_else(
                    || "not running".to_owned(),
                    |running| format!("{} on {} in {}", running.effective, running.node, running.pod_uid),
                );
                let shield = if vm.shield.is_up() { "shielded" } else { "not shielded" };
                lines.insert(format!("machine {name}"), format!("{}, {running}, {shield}", vm.declared));
            }
            for (name, migration) in picture.unfinished() {
                lines.insert(format!("migration {name}"), format!("{} of {}", migration.phase, migration.vm));
            }
        }
        Some(Read::Unknown(_)) => {
            lines.insert("machines".to_owned(), "unreadable".to_owned());
        }
        None => {
            lines.insert("machines".to_owned(), "not read".to_owned());
        }
    }
}
