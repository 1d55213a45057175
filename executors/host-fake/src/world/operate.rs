//! Operations: how an agent lets one in, how long it takes, and what it does to hosts and storage.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use executor_api::host::{
    BondMode, BondOriginal, FenceValue, HostAction, HostError, HostErrorKind, HostName, HostOperation,
    HostReport, Settled,
};

use super::agent::{Admission, Agent, Key, Operation, Outcome, error};
use super::bond::BondStep;
use super::judge::{Known, Subject};
use super::link::probe;
use super::records::Place;
use super::replica::{Cause, Suspension};
use super::state::{Due, Flip, State, later};
use crate::faults::Fault;

impl State {
    /// An operation arrives at its agent.
    pub(crate) fn submit(
        &mut self,
        operation: &Operation,
        seat: &str,
        fault: Option<Fault>,
        known: &Known,
        deadline: SystemTime,
    ) -> Admission {
        if let Some(refused) = self.out_of_reach(operation) {
            return refused;
        }
        if let Operation::Host(host) = operation
            && let Some(gates) = host.action.gates()
            && !self.judge_gates(host, gates)
        {
            let what = format!("{} carries gates of another plan or lease", operation.words());
            return Admission::No(HostErrorKind::Refused, what);
        }
        let takes = self.takes(operation, fault);
        let (until, late) = (later(self.now, takes), self.now > deadline);
        let Some(agent) = self.agent_mut(operation) else { return unknown(operation) };
        let admission = agent.admit(operation, until, late);
        if admission == Admission::Begin {
            self.judge(operation, known);
            self.begin(operation, seat, fault, takes, known);
        }
        admission
    }

    /// An operation arrives for which nobody waits. An agent that is busy takes it when it is done.
    pub(crate) fn arrive_late(
        &mut self,
        operation: Operation,
        seat: String,
        known: Known,
        deadline: SystemTime,
    ) {
        if let Admission::Wait(until) = self.submit(&operation, &seat, None, &known, deadline) {
            let at = until.max(later(self.now, Duration::from_millis(100)));
            self.at(at, Due::Arrives { operation, seat, known, deadline });
        }
    }

    /// Somebody wants to know for certain.
    pub(crate) fn settle_operation(
        &mut self,
        operation: &Operation,
        fence: FenceValue,
    ) -> Result<Settled, Admission> {
        if let Some(refused) = self.out_of_reach(operation) {
            return Err(refused);
        }
        match self.agent_mut(operation) {
            Some(agent) => agent.settle(operation, fence),
            None => Err(unknown(operation)),
        }
    }

    fn agent_mut(&mut self, operation: &Operation) -> Option<&mut Agent> {
        match operation {
            Operation::Host(operation) => self.hosts.get_mut(&operation.node).map(|host| &mut host.agent),
            Operation::Vm(_) => Some(&mut self.vm_agent),
        }
    }

    fn out_of_reach(&self, operation: &Operation) -> Option<Admission> {
        let Operation::Host(operation) = operation else { return None };
        let host = self.hosts.get(&operation.node)?;
        (!host.alive || host.agent.down_until.is_some()).then(|| {
            let what = format!("the agent on {} does not answer; try again later", operation.node);
            Admission::No(HostErrorKind::Unavailable, what)
        })
    }

    fn takes(&self, operation: &Operation, fault: Option<Fault>) -> Duration {
        let pace = &self.pace;
        let usual = match operation {
            Operation::Vm(_) => pace.operation,
            Operation::Host(operation) => match &operation.action {
                HostAction::DrainSatellite | HostAction::UndrainSatellite { .. } => pace.pods,
                HostAction::ProbeLink { .. } => pace.probe,
                HostAction::SetBondMode { mode, original, .. } => {
                    let steps =
                        self.hosts.get(&operation.node).map(|host| host.bond.steps_to(mode, original).len());
                    pace.flip_step.saturating_mul(u32::try_from(steps.unwrap_or(0)).unwrap_or(1))
                }
                HostAction::SuspendIo { .. }
                | HostAction::ResumeIo { .. }
                | HostAction::DisconnectResource { .. }
                | HostAction::ConnectResource { .. } => pace.operation,
            },
        };
        match fault {
            Some(Fault::Slow { times }) => usual.saturating_mul(times),
            _ => usual,
        }
    }

    fn begin(
        &mut self,
        operation: &Operation,
        seat: &str,
        fault: Option<Fault>,
        takes: Duration,
        known: &Known,
    ) {
        if let Operation::Host(HostOperation {
            node,
            action: HostAction::SetBondMode { mode, original, .. },
            ..
        }) = operation
            && !matches!(fault, Some(Fault::DoneNothing | Fault::Fails))
        {
            let (node, key) = (node.clone(), operation.key());
            self.begin_flip(&node, key, mode, original, fault);
            return;
        }
        // What moved after the caller's last look it could not know of, whether that was before the operation began or
        // later.
        let looks = known.iter().filter(|(subject, _)| matches!(subject, Subject::Storage(_)));
        let since = looks.map(|(_, looked)| looked.order).min().unwrap_or_else(|| self.next());
        self.after(takes, Due::Ends { operation: operation.clone(), seat: seat.to_owned(), fault, since });
    }

    fn begin_flip(
        &mut self,
        node: &HostName,
        key: Key,
        mode: &BondMode,
        original: &BondOriginal,
        fault: Option<Fault>,
    ) {
        let step = self.flip_pace(fault);
        let Some(host) = self.hosts.get_mut(node) else { return };
        let mut steps: VecDeque<_> = host.bond.steps_to(mode, original).into();
        match fault {
            Some(Fault::MemberMissing) => {
                if let Some(last) = steps.iter().rposition(|step| matches!(step, BondStep::Join(_))) {
                    steps.remove(last);
                }
            }
            Some(Fault::RoutesLost) => steps.retain(|step| !matches!(step, BondStep::Routes(_))),
            Some(Fault::NotPersisted) => steps.retain(|step| !matches!(step, BondStep::Persist { .. })),
            Some(Fault::WrongFirst) => {
                let joins: Vec<_> =
                    (0..steps.len()).filter(|at| matches!(steps[*at], BondStep::Join(_))).collect();
                if let [first, .., last] = joins.as_slice() {
                    steps.swap(*first, *last);
                }
            }
            _ => {}
        }
        let was = host.bond.mode.clone();
        host.flip = Some(Flip { key, steps, done: 0, fault, was });
        self.after(step, Due::FlipStep(node.clone()));
    }

    fn flip_pace(&self, fault: Option<Fault>) -> Duration {
        match fault {
            Some(Fault::Slow { times }) => self.pace.flip_step.saturating_mul(times),
            _ => self.pace.flip_step,
        }
    }

    /// The agent does the next step of a flip, or is done.
    pub(crate) fn flip_step(&mut self, node: &HostName) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        let Some(flip) = host.flip.as_mut() else { return };
        let fault = flip.fault;
        match fault {
            Some(Fault::FailsAfter { steps }) if flip.done >= steps => {
                let what = format!("set-bond-mode on {node} stopped after {steps} step(s); read the bond");
                self.end_flip(node, Err((HostErrorKind::Failed, what)));
                return;
            }
            Some(Fault::AgentDies { steps }) if flip.done >= steps => {
                self.faults.fire("agent-dies");
                self.crash_agent(node);
                return;
            }
            _ => {}
        }
        let Some(step) = flip.steps.pop_front() else {
            let was = flip.was.clone();
            if let Some(Fault::Reverts { after }) = fault {
                self.after(after, Due::BondReverts { host: node.clone(), mode: was });
            }
            self.end_flip(node, Ok(HostReport::Done));
            return;
        };
        flip.done += 1;
        let result = host.bond.step(&step);
        self.links_changed();
        match result {
            Ok(()) => {
                let next = self.flip_pace(fault);
                self.after(next, Due::FlipStep(node.clone()));
            }
            Err(refusal) => {
                let what = format!("set-bond-mode on {node}: {step:?}: {refusal}; read the bond");
                self.end_flip(node, Err((HostErrorKind::Failed, what)));
            }
        }
    }

    fn end_flip(&mut self, node: &HostName, outcome: Outcome) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        let Some(flip) = host.flip.take() else { return };
        let what = match &outcome {
            Ok(_) => format!("the agent is done with {}", host.bond.name),
            Err((_, what)) => what.clone(),
        };
        host.agent.finish(&flip.key, outcome);
        if let Some(fault) = flip.fault
            && !matches!(
                fault,
                Fault::Reverts { .. } | Fault::Slow { .. } | Fault::AnswerLost | Fault::AgentDies { .. }
            )
        {
            self.faults.fire(fault.name());
        }
        self.note(Place::Host(node.clone()), what);
    }

    /// The agent dies and comes back. What it was doing stays as it is.
    pub(crate) fn crash_agent(&mut self, node: &HostName) {
        let back = later(self.now, self.pace.agent_restart);
        let Some(host) = self.hosts.get_mut(node) else { return };
        host.agent.crash(back);
        host.flip = None;
        self.note(Place::Host(node.clone()), "the agent dies");
        self.at(back, Due::AgentBack(node.clone()));
    }

    /// The agent reaches the end of an operation.
    pub(crate) fn end(&mut self, operation: &Operation, seat: &str, fault: Option<Fault>, since: u64) {
        let key = operation.key();
        if !self.agent_mut(operation).is_some_and(|agent| agent.works_on(&key)) {
            return;
        }
        let outcome = match (fault, operation) {
            (Some(Fault::Fails), _) => {
                self.faults.fire("fails");
                Err((
                    HostErrorKind::Failed,
                    format!("{} did not succeed; read what is there", operation.words()),
                ))
            }
            (Some(Fault::DoneNothing), _) => {
                self.faults.fire("done-nothing");
                Ok(HostReport::Done)
            }
            (Some(Fault::AgentDies { steps }), Operation::Host(host)) => {
                self.faults.fire("agent-dies");
                if steps > 0 {
                    // It acted and died before it could say so.
                    let _ = self.perform(host, seat, None, since);
                }
                self.crash_agent(&host.node);
                return;
            }
            (_, Operation::Host(host)) => self.perform(host, seat, fault, since),
            (_, Operation::Vm(vm)) => self.perform_vm(vm, fault),
        };
        if let Some(agent) = self.agent_mut(operation) {
            agent.finish(&key, outcome);
        }
    }

    fn perform(
        &mut self,
        operation: &HostOperation,
        seat: &str,
        fault: Option<Fault>,
        since: u64,
    ) -> Outcome {
        let node = &operation.node;
        let cause = Cause::Caller { what: operation.action.to_string(), since };
        match &operation.action {
            HostAction::SuspendIo { resource, limit } => {
                self.must_have(resource, node)?;
                let mut limit = *limit;
                if fault == Some(Fault::EndsEarly) {
                    self.faults.fire("ends-early");
                    limit = Duration::ZERO;
                }
                let until = later(self.now, limit);
                self.suspend(resource, node, Suspension::Until(until));
            }
            HostAction::ResumeIo { resource } => {
                self.must_have(resource, node)?;
                self.resume(resource, node);
            }
            HostAction::DisconnectResource { resource, peer } => {
                self.must_have(resource, node)?;
                if let Some(resource) = self.resources.get_mut(resource) {
                    resource.apart_by_caller |= resource.connected(node, peer);
                }
                self.stand_alone(resource, node, peer);
            }
            HostAction::ConnectResource { resource, peer, .. } => {
                self.must_have(resource, node)?;
                self.connect(resource, node, peer, &cause);
            }
            HostAction::DrainSatellite => {
                self.drain(node);
                if fault == Some(Fault::EvictsMachines) {
                    self.delete_pods(node);
                }
            }
            HostAction::UndrainSatellite { .. } => self.undrain(node, &cause),
            // Only one that has nothing to do, or does nothing, comes here.
            HostAction::SetBondMode { .. } => {}
            HostAction::ProbeLink { peer, spec, .. } => {
                let Some(from) = self.hosts.get(node) else { return Ok(HostReport::Done) };
                let to = self.hosts.get(peer).filter(|host| host.alive).map(|host| &host.bond);
                let found = probe(&self.cabling, (node, &from.bond), (peer, to), *spec);
                let what = format!("{} of {} packets reached {peer}", found.received, found.sent);
                self.note(Place::Host(node.clone()), what);
                self.knows(seat, Subject::Link);
                return Ok(HostReport::Probed(found));
            }
        }
        Ok(HostReport::Done)
    }

    fn must_have(
        &self,
        resource: &executor_api::host::ResourceName,
        node: &HostName,
    ) -> Result<(), (HostErrorKind, String)> {
        let side = self.resources.get(resource).and_then(|resource| resource.sides.get(node));
        match side {
            Some(side) if side.configured => Ok(()),
            Some(_) | None => {
                let what = format!("{resource} is not configured on {node}; bring it up first");
                Err((HostErrorKind::Failed, what))
            }
        }
    }

    fn drain(&mut self, node: &HostName) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        host.kept_away = true;
        host.pods.clear();
        host.pod_round += 1;
        self.note(Place::Host(node.clone()), "storage pods are gone");
    }

    fn undrain(&mut self, node: &HostName, cause: &Cause) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        host.kept_away = false;
        let round = host.pod_round;
        self.pod_starts(node, cause, round);
    }

    /// A storage pod starts and brings every resource of its host up.
    pub(crate) fn pod_starts(&mut self, node: &HostName, cause: &Cause, round: u64) {
        let Some(host) = self.hosts.get_mut(node) else { return };
        if !host.alive || host.pod_round != round {
            return;
        }
        host.pods.insert(format!("satellite-{node}-{round}"));
        self.note(Place::Host(node.clone()), "a storage pod starts");
        self.adjust(node, cause);
    }
}

fn unknown(operation: &Operation) -> Admission {
    Admission::No(HostErrorKind::Refused, format!("{}: there is no such host", operation.words()))
}

/// What a caller hears of an admission that is an end.
pub(crate) fn refusal(kind: HostErrorKind, what: String) -> HostError {
    error((kind, what))
}
