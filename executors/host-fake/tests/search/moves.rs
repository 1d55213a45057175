//! Everything that can happen next in a state, and what it leads to.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use executor_api::host::{
    ClusterLock, Fingerprint, HostError, HostErrorKind, HostExecutor, HostFailure, HostName, LockError,
    PlanHold, Takeover, VirtualMachines,
};
use executor_host_fake::{CallKind, Fault, Incident, Letter, Rule};
use reconciler_core::maintenance::gate::Look;
use reconciler_core::maintenance::{
    Act, Answer, Applied, BondFlipPlan, Effect, EffectDone, Folded, LockAction, Observed, Phase,
    PlanObservation, PlanState, Reply, ReplyRefused, Step, StepRefused,
};

use crate::clock::run;
use crate::faults::{call_of, incidents, of_call, of_readings};
use crate::model::{Flight, Model};

/// The deciding functions: the real ones, or one of them broken.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) advance: fn(&BondFlipPlan, &PlanState, &Observed, SystemTime) -> Step,
    pub(crate) apply: fn(&BondFlipPlan, &mut PlanState, &Step, SystemTime) -> Result<Applied, StepRefused>,
    pub(crate) fold: fn(&BondFlipPlan, &mut PlanState, PlanObservation, SystemTime) -> Folded,
    pub(crate) respond: fn(Look<'_>, Reply) -> Result<Step, ReplyRefused>,
}

/// What is searched.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) rules: Rules,
    /// What an agent does besides what it is told.
    pub(crate) agent: Option<fn(&Model, &Effect)>,
    /// Every step is judged by itself.
    pub(crate) watchful: bool,
    /// From every fault the plan must come to rest.
    pub(crate) restful: bool,
    pub(crate) retry_cap: u32,
    pub(crate) quiesce: bool,
    /// For how long I/O may stand still.
    pub(crate) suspend_for: Duration,
    pub(crate) resources: usize,
    pub(crate) blocks: u32,
    /// Along one path, crashes, sleeps and lost locks included.
    pub(crate) faults: u32,
    /// The phase from which on anything goes wrong.
    pub(crate) from: Phase,
    /// What goes wrong, by name; where none is named, everything does.
    pub(crate) only: &'static [&'static str],
    /// Replies of a person along one path.
    pub(crate) replies: u32,
    /// How many of the faults may be the world's own: incidents, and readings that fail.
    pub(crate) incidents: u32,
    pub(crate) limit: usize,
}

pub(crate) enum Move {
    /// An operator looks, decides and stores: the step, and the state in which it has looked.
    Pass {
        which: usize,
        step: Box<Step>,
        looked: Option<Box<Model>>,
    },
    /// The same, and one of its readings fails.
    BlindPass {
        which: usize,
        call: CallKind,
        host: Option<HostName>,
        fault: Fault,
    },
    /// A process that is behind ends, and another takes up what is stored.
    TakeUp {
        which: usize,
    },
    /// The recorded operation leaves, under a renewed lease, and its answer is stored.
    Send {
        which: usize,
        fault: Option<Fault>,
    },
    /// The renewal before it fails.
    RenewalLost {
        which: usize,
    },
    /// It leaves, nobody hears of it, and it arrives at any time or never.
    SendLate {
        which: usize,
    },
    /// The operator stands still right before it leaves.
    Sleep {
        which: usize,
    },
    Wake {
        which: usize,
    },
    Crash {
        which: usize,
        sent: bool,
    },
    /// A letter arrives.
    Lands {
        letter: usize,
    },
    Befalls {
        incident: Box<Incident>,
    },
    Replies {
        which: usize,
        answer: Answer,
    },
    /// Nobody has anything to do.
    Time {
        until: SystemTime,
    },
}

impl Move {
    /// The fault that it costs.
    pub(crate) fn fault(&self) -> Option<String> {
        match self {
            Self::BlindPass { call, fault, .. } => Some(format!("{call:?} {}", fault.name())),
            Self::Send { fault: Some(fault), .. } => Some(fault.name().to_owned()),
            Self::RenewalLost { .. } => Some("renewal-lost".to_owned()),
            Self::SendLate { .. } => Some("lands-late".to_owned()),
            Self::Sleep { .. } => Some("operator-sleeps".to_owned()),
            Self::Crash { sent, .. } => Some(if *sent { "crash-after-send" } else { "crash" }.to_owned()),
            Self::Befalls { incident } => Some(incident.name().to_owned()),
            Self::Pass { .. }
            | Self::TakeUp { .. }
            | Self::Send { fault: None, .. }
            | Self::Wake { .. }
            | Self::Lands { .. }
            | Self::Replies { .. }
            | Self::Time { .. } => None,
        }
    }
}

/// More steps than any plan takes from any fault to its end.
const MANY: usize = 600;

/// How long an operator waits that does not know for what.
const TICK: Duration = Duration::from_secs(1);

impl Model {
    /// Everything that can happen now. What needs no fault comes first.
    pub(crate) fn moves(&self, setting: &Setting) -> Vec<Move> {
        if let Some(step) = self.void() {
            return vec![step];
        }
        let mut moves = Vec::new();
        let mut faults = Vec::new();
        let mut wakeup = self.world.next_due();
        let mut earlier = |at: SystemTime| wakeup = Some(wakeup.map_or(at, |other| other.min(at)));
        for which in [0, 1] {
            let operator = &self.operators[which];
            if operator.asleep {
                moves.push(Move::Wake { which });
                continue;
            }
            if let Some(flight) = &operator.flight {
                moves.push(Move::Send { which, fault: None });
                self.flight_faults(which, flight, &mut faults);
                continue;
            }
            if operator.seq != self.seq {
                let takeover = self.fork().watch(which);
                match takeover {
                    Takeover::Free | Takeover::Expired { .. } if !self.is_settled() => {
                        moves.push(Move::TakeUp { which });
                    }
                    Takeover::Held { remaining } => earlier(self.now() + remaining),
                    Takeover::Free | Takeover::Expired { .. } => {}
                }
                continue;
            }
            if self.is_settled() {
                self.replies(which, &mut moves);
                if self.state.is_over() {
                    continue;
                }
            }
            let mut looked = Box::new(self.fork());
            let step = Box::new(looked.decide(setting, which));
            if let Act::Wait { until } = &step.act {
                earlier(until.filter(|at| *at > self.now()).unwrap_or_else(|| self.now() + TICK));
            } else if !matches!(step.act, Act::Over) {
                moves.push(Move::Pass { which, step, looked: Some(looked) });
            }
            if !self.is_settled() {
                self.pass_faults(which, &mut faults);
            }
        }
        faults.extend((0..self.letters.len()).map(|letter| Move::Lands { letter }));
        if self.faults > 0 && !self.is_settled() {
            faults.push(Move::Befalls { incident: Box::new(Incident::LeaseDeleted) });
            if self.incidents > 0 {
                let befall = incidents().into_iter().map(Box::new);
                faults.extend(befall.map(|incident| Move::Befalls { incident }));
            }
        }
        let idle = moves.iter().all(|step| matches!(step, Move::Wake { .. } | Move::Replies { .. }));
        if idle
            && !self.is_settled()
            && let Some(until) = wakeup
        {
            // A holder renews meanwhile, and a candidate looks.
            let until = until.min(self.now() + self.plan.pace.lease_ttl / 3).max(self.now());
            moves.push(Move::Time { until });
        }
        faults.retain(|step| {
            let named = |fault: &String| setting.only.is_empty() || setting.only.contains(&fault.as_str());
            step.fault().as_ref().is_none_or(|fault| self.state.phase >= setting.from && named(fault))
        });
        moves.extend(faults);
        moves
    }

    /// What can do nothing any more arrives at once: whenever it came, nothing else would notice.
    fn void(&self) -> Option<Move> {
        if let Some(letter) = self.letters.iter().position(|letter| self.world.is_void(letter)) {
            return Some(Move::Lands { letter });
        }
        let which = [0, 1].into_iter().find(|which| {
            let operator = &self.operators[*which];
            operator.asleep
                && operator.flight.as_ref().is_some_and(|flight| {
                    flight.seq != self.seq
                        && self.post(*which, &flight.effect).is_some_and(|letter| self.world.is_void(&letter))
                })
        })?;
        Some(Move::Wake { which })
    }

    fn flight_faults(&self, which: usize, flight: &Flight, faults: &mut Vec<Move>) {
        if self.faults == 0 {
            return;
        }
        for fault in of_call(call_of(&flight.effect)) {
            faults.push(Move::Send { which, fault: Some(fault) });
        }
        faults.push(Move::Crash { which, sent: false });
        if matches!(flight.effect, Effect::Host(_) | Effect::Vm(_)) {
            faults.push(Move::SendLate { which });
            faults.push(Move::Sleep { which });
            faults.push(Move::Crash { which, sent: true });
        }
        if !matches!(flight.effect, Effect::Lock { .. }) {
            faults.push(Move::RenewalLost { which });
        }
    }

    fn pass_faults(&self, which: usize, faults: &mut Vec<Move>) {
        if self.faults == 0 {
            return;
        }
        let holds = self.world.lock().lease.is_some_and(|lease| lease.holder == self.me(which));
        if holds {
            faults.push(Move::Crash { which, sent: false });
        }
        if self.incidents > 0 && holds {
            for (call, host, fault) in of_readings() {
                faults.push(Move::BlindPass { which, call, host, fault });
            }
        }
    }

    fn replies(&self, which: usize, moves: &mut Vec<Move>) {
        if self.replies == 0 || self.state.is_over() {
            return;
        }
        let open = self.state.escalation.iter().flat_map(|open| open.answers.iter().copied());
        moves.extend(open.map(|answer| Move::Replies { which, answer }));
    }

    /// The state to take a move in: a copy, unless the move has brought one.
    pub(crate) fn before(&self, step: &mut Move) -> Self {
        let brought = match step {
            Move::Pass { looked, .. } => looked.take(),
            _ => None,
        };
        brought.map_or_else(|| self.fork(), |looked| *looked)
    }

    /// Takes a move. Answers with its label, or with what must not be.
    pub(crate) fn take(&mut self, setting: &Setting, step: &Move) -> Result<String, String> {
        if step.fault().is_some() {
            self.faults -= 1;
        }
        let worlds_own = match step {
            Move::BlindPass { .. } => true,
            Move::Befalls { incident } => **incident != Incident::LeaseDeleted,
            _ => false,
        };
        self.incidents = (self.incidents - u32::from(worlds_own)).min(self.faults);
        let label = match step {
            Move::Pass { which, step, .. } => self.pass(setting, *which, step)?,
            Move::BlindPass { which, call, host, fault } => {
                let mut rule = Rule::new(*call, *fault);
                rule.host.clone_from(host);
                self.world.script(rule).unwrap();
                let step = self.decide(setting, *which);
                format!("{call:?} {}: {}", fault.name(), self.pass(setting, *which, &step)?)
            }
            Move::TakeUp { which } => {
                self.operators[*which].restart();
                self.take_up(setting, *which);
                "takes up what is stored".to_owned()
            }
            Move::Send { which, fault } => self.send(setting, *which, *fault),
            Move::RenewalLost { which } => {
                let flight = self.operators[*which].flight.take().unwrap();
                let reason = "the answer was lost".to_owned();
                let id = flight.effect.id();
                self.hear(setting, *which, flight.seq, PlanObservation::RenewalFailed { id, reason });
                format!("{}: renewal lost", flight.effect)
            }
            Move::SendLate { which } => {
                let flight = self.operators[*which].flight.take().unwrap();
                let id = flight.effect.id();
                if self.renew(*which).is_ok() {
                    self.letters.extend(self.post(*which, &flight.effect));
                    self.hear(setting, *which, flight.seq, PlanObservation::Lost { id });
                } else {
                    let reason = "moved".to_owned();
                    self.hear(setting, *which, flight.seq, PlanObservation::RenewalFailed { id, reason });
                }
                format!("{}: unheard of", flight.effect)
            }
            Move::Sleep { which } => {
                let _renewed = self.renew(*which);
                self.operators[*which].asleep = true;
                format!("asleep before {}", self.operators[*which].flight.as_ref().unwrap().effect)
            }
            Move::Wake { which } => {
                self.operators[*which].asleep = false;
                format!("wakes: {}", self.carry_out(setting, *which))
            }
            Move::Crash { which, sent } => {
                if let Some(flight) = self.operators[*which].flight.take()
                    && *sent
                    && self.renew(*which).is_ok()
                {
                    self.letters.extend(self.post(*which, &flight.effect));
                }
                self.operators[*which].restart();
                self.operators[*which].seq = 0;
                "crash".to_owned()
            }
            Move::Lands { letter } => {
                let letter: Letter = self.letters.remove(*letter);
                self.world.deliver(&letter);
                self.write();
                format!("lands: {}", letter.words())
            }
            Move::Befalls { incident } => {
                self.world.befall(incident);
                self.write();
                incident.name().to_owned()
            }
            Move::Replies { which, answer } => self.reply(setting, *which, *answer)?,
            Move::Time { until } => {
                self.timer.advance_to(*until);
                for which in [0, 1] {
                    let operator = &self.operators[which];
                    let awake = !operator.asleep && operator.seq == self.seq;
                    if awake && self.state.keeps_lease() {
                        let _renewed = self.renew(which);
                    }
                    self.watch(which);
                }
                "time passes".to_owned()
            }
        };
        self.world.forget_the_past(&self.open());
        self.check().map_err(|what| format!("{label}! {what}"))?;
        if setting.restful && step.fault().is_some() {
            self.comes_to_rest(setting)?;
        }
        Ok(format!("{:?}: {label} [{}]", step.which(), self.state.label()))
    }

    fn decide(&mut self, setting: &Setting, which: usize) -> Step {
        let observed = self.observe(which);
        (setting.rules.advance)(&self.plan, &self.state, &observed, self.now())
    }

    fn pass(&mut self, setting: &Setting, which: usize, step: &Step) -> Result<String, String> {
        if setting.watchful {
            self.judge(which, step).map_err(|what| format!("{step}! {what}"))?;
        }
        let now = self.now();
        match (setting.rules.apply)(&self.plan, &mut self.state, step, now) {
            Ok(Applied::Nothing) => {}
            Ok(Applied::Changed) => self.stored(which),
            Ok(Applied::Send { effect, deadline }) => {
                self.stored(which);
                let seq = self.seq;
                self.operators[which].flight = Some(Flight { effect: *effect, deadline, seq });
            }
            Err(refused) => return Err(format!("a fresh step is refused: {refused}")),
        }
        Ok(step.to_string())
    }

    fn stored(&mut self, which: usize) {
        self.seq += 1;
        self.operators[which].seq = self.seq;
    }

    /// A fresh process takes up the record. What was under way has an unknown outcome now.
    fn take_up(&mut self, setting: &Setting, which: usize) {
        self.operators[which].seq = self.seq;
        self.watch(which);
        if let Some(pending) = &self.state.pending {
            let fact = PlanObservation::Lost { id: pending.effect.id() };
            let now = self.now();
            (setting.rules.fold)(&self.plan, &mut self.state, fact, now);
            self.stored(which);
        }
    }

    /// Stores a fact, if the record is still the one that it belongs to. Otherwise the process ends.
    fn hear(&mut self, setting: &Setting, which: usize, seq: u64, fact: PlanObservation) {
        if seq != self.seq {
            self.operators[which].restart();
            self.operators[which].seq = 0;
            return;
        }
        let now = self.now();
        (setting.rules.fold)(&self.plan, &mut self.state, fact, now);
        self.stored(which);
    }

    fn send(&mut self, setting: &Setting, which: usize, fault: Option<Fault>) -> String {
        let flight = self.operators[which].flight.clone().unwrap();
        if !matches!(flight.effect, Effect::Lock { .. })
            && let Err(reason) = self.renew_for(which, &flight.effect)
        {
            self.operators[which].flight = None;
            let id = flight.effect.id();
            self.hear(setting, which, flight.seq, PlanObservation::RenewalFailed { id, reason });
            return format!("{}: not renewed", flight.effect);
        }
        if let Some(fault) = fault {
            self.world.script(Rule::new(call_of(&flight.effect), fault)).unwrap();
        }
        let carried = self.carry_out(setting, which);
        match fault {
            Some(fault) => format!("{}: {carried}", fault.name()),
            None => carried,
        }
    }

    /// The operation leaves its operator, and its outcome is heard.
    fn carry_out(&mut self, setting: &Setting, which: usize) -> String {
        let flight = self.operators[which].flight.take().unwrap();
        let outcome = self.carry(which, &flight);
        if let Some(agent) = setting.agent {
            agent(self, &flight.effect);
        }
        self.write();
        let said = match &outcome {
            Ok(_) => "done".to_owned(),
            Err(failure) => format!("{}: {}", failure.kind, failure.message),
        };
        let id = flight.effect.id();
        self.hear(setting, which, flight.seq, PlanObservation::Ended { id, outcome });
        format!("{}: {said}", flight.effect)
    }

    fn carry(&self, which: usize, flight: &Flight) -> Result<EffectDone, HostFailure> {
        let (seat, timer, deadline) = (self.seat(which), Arc::clone(&self.timer), flight.deadline);
        match &flight.effect {
            Effect::Host(operation) => run(&timer, HostExecutor::apply(&seat, operation, deadline))
                .map(EffectDone::Host)
                .map_err(told),
            Effect::Vm(operation) => run(&timer, VirtualMachines::apply(&seat, operation, deadline))
                .map(EffectDone::Host)
                .map_err(told),
            Effect::Settle { operation, fence, .. } => {
                let settled = match &**operation {
                    Effect::Host(operation) => {
                        run(&timer, HostExecutor::settle(&seat, operation, *fence, deadline))
                    }
                    Effect::Vm(operation) => {
                        run(&timer, VirtualMachines::settle(&seat, operation, *fence, deadline))
                    }
                    Effect::Settle { .. } | Effect::Lock { .. } => panic!("only operations are settled"),
                };
                settled.map(EffectDone::Settled).map_err(told)
            }
            Effect::Lock { action, .. } => self.lock(which, action),
        }
    }

    fn lock(&self, which: usize, action: &LockAction) -> Result<EffectDone, HostFailure> {
        let (seat, timer) = (self.seat(which), &self.timer);
        let lease = || {
            let lease = self.world.lock().lease.filter(|lease| lease.holder == self.me(which));
            lease.ok_or_else(|| HostFailure {
                kind: HostErrorKind::Refused,
                message: "the lease is not ours".to_owned(),
            })
        };
        let written = match action {
            LockAction::AcquireLease { seen } => {
                let ttl = self.plan.pace.lease_ttl;
                let taken = run(timer, seat.acquire(&self.me(which), ttl, seen.as_ref()));
                return taken.map(EffectDone::LeaseAcquired).map_err(|error| refused(&error));
            }
            LockAction::PlaceHold => {
                let hold = PlanHold { plan: self.plan.uid.clone(), since: self.now() };
                run(timer, seat.place_hold(&lease()?, &hold))
            }
            LockAction::LiftHold => run(timer, seat.lift_hold(&lease()?, &self.plan.uid)),
            LockAction::ReleaseLease => run(timer, seat.release(&lease()?)),
        };
        written.map(|()| EffectDone::LockWritten).map_err(|error| refused(&error))
    }

    fn renew(&self, which: usize) -> Result<(), String> {
        let lease = self.world.lock().lease.filter(|lease| lease.holder == self.me(which));
        let lease = lease.ok_or("the lease is not ours")?;
        run(&self.timer, self.seat(which).renew(&lease)).map(|_| ()).map_err(|error| error.to_string())
    }

    fn renew_for(&self, which: usize, effect: &Effect) -> Result<(), String> {
        let fence = match effect {
            Effect::Host(operation) => operation.fence,
            Effect::Vm(operation) => operation.fence,
            Effect::Settle { fence, .. } => *fence,
            Effect::Lock { .. } => return Ok(()),
        };
        if self.world.lock().lease.is_some_and(|lease| lease.fence != fence) {
            return Err("the operation is under another fence".to_owned());
        }
        self.renew(which)
    }

    fn post(&self, which: usize, effect: &Effect) -> Option<Letter> {
        match effect {
            Effect::Host(operation) => Some(self.seat(which).post_host(operation)),
            Effect::Vm(operation) => Some(self.seat(which).post_vm(operation)),
            Effect::Settle { .. } | Effect::Lock { .. } => None,
        }
    }

    fn reply(&mut self, setting: &Setting, which: usize, answer: Answer) -> Result<String, String> {
        self.replies -= 1;
        let observed = self.observe(which);
        let Some(open) = &self.state.escalation else { return Ok("nothing is asked".to_owned()) };
        let reply = Reply { fingerprint: open.fingerprint.clone(), answer, who: "ann".to_owned() };
        let look = Look { plan: &self.plan, state: &self.state, observed: &observed, now: self.now() };
        let forged = Fingerprint::of("another question", &open.sequence);
        if (setting.rules.respond)(look, Reply { fingerprint: forged, ..reply.clone() }).is_ok() {
            return Err("! R7: a reply to another question is taken".to_owned());
        }
        let step = match (setting.rules.respond)(look, reply) {
            Ok(step) => step,
            Err(refused) => return Ok(refused.to_string()),
        };
        let now = self.now();
        (setting.rules.apply)(&self.plan, &mut self.state, &step, now)
            .map_err(|refused| refused.to_string())?;
        self.stored(which);
        Ok(step.to_string())
    }

    /// With no further fault the plan comes to rest before long, whatever it takes. (R9)
    fn comes_to_rest(&self, setting: &Setting) -> Result<(), String> {
        let quiet = Setting { watchful: false, restful: false, ..setting.clone() };
        let mut model = self.fork();
        (model.faults, model.incidents, model.replies) = (0, 0, 0);
        for _ in 0..MANY {
            let mut moves = model.moves(&quiet);
            if moves.is_empty() || model.at_rest(&moves).is_some() {
                return Ok(());
            }
            let mut step = moves.swap_remove(0);
            let mut next = model.before(&mut step);
            // What it breaks on the way is found by the walk.
            if next.take(&quiet, &step).is_err() {
                return Ok(());
            }
            model = next;
        }
        Err(format!("! R9: no rest after {MANY} steps: {}", model.state.label()))
    }

    /// How the plan has come to rest, if nothing but a fault can move it.
    pub(crate) fn at_rest(&self, moves: &[Move]) -> Option<String> {
        let moving = moves.iter().any(|step| {
            step.fault().is_none()
                && !matches!(step, Move::Time { .. } | Move::Lands { .. } | Move::Replies { .. })
        });
        if moving {
            return None;
        }
        if self.is_settled() {
            return Some(self.state.label());
        }
        let mut later = self.fork();
        let until = moves.iter().find_map(|step| match step {
            Move::Time { until } => Some(*until),
            _ => None,
        });
        // What waits for nothing that time brings waits for ever, unless the world changes.
        later.timer.advance_to(until?);
        for which in [0, 1] {
            if self.operators[which].seq == self.seq && self.state.keeps_lease() {
                let _renewed = later.renew(which);
            }
            later.watch(which);
        }
        (later.key() == self.key()).then(|| format!("{}, waiting", self.state.label()))
    }
}

impl std::fmt::Debug for Move {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = self.which().map_or_else(|| "the world".to_owned(), |which| which.to_string());
        match self {
            Self::Pass { step, .. } => write!(f, "{who}: {step}"),
            Self::BlindPass { call, fault, .. } => write!(f, "{who}: looks, {call:?} {}", fault.name()),
            Self::TakeUp { .. } => write!(f, "{who}: takes up what is stored"),
            Self::Send { fault, .. } => write!(f, "{who}: sends, {}", fault.map_or("well", Fault::name)),
            Self::RenewalLost { .. } => write!(f, "{who}: renews, and nobody answers"),
            Self::SendLate { .. } => write!(f, "{who}: sends, and hears nothing"),
            Self::Sleep { .. } => write!(f, "{who}: falls asleep"),
            Self::Wake { .. } => write!(f, "{who}: wakes"),
            Self::Crash { sent, .. } => write!(f, "{who}: crashes, operation sent: {sent}"),
            Self::Lands { letter } => write!(f, "letter {letter} arrives"),
            Self::Befalls { incident } => write!(f, "{incident}"),
            Self::Replies { answer, .. } => write!(f, "a person replies {answer}"),
            Self::Time { .. } => f.write_str("time passes"),
        }
    }
}

impl Move {
    fn which(&self) -> Option<char> {
        match self {
            Self::Pass { which, .. }
            | Self::BlindPass { which, .. }
            | Self::TakeUp { which }
            | Self::Send { which, .. }
            | Self::RenewalLost { which }
            | Self::SendLate { which }
            | Self::Sleep { which }
            | Self::Wake { which }
            | Self::Crash { which, .. }
            | Self::Replies { which, .. } => Some(['a', 'b'][*which]),
            Self::Lands { .. } | Self::Befalls { .. } | Self::Time { .. } => None,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn told(error: HostError) -> HostFailure {
    error.failure()
}

fn refused(error: &LockError) -> HostFailure {
    let kind = match error {
        LockError::Moved { .. } | LockError::OtherPlan { .. } => HostErrorKind::Refused,
        LockError::Unavailable { .. } => HostErrorKind::Unavailable,
        LockError::Ambiguous { .. } => HostErrorKind::Ambiguous,
    };
    HostFailure { kind, message: error.to_string() }
}
