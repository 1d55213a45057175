//! One pass of one plan: read, decide, store, send, fold, store. At most one operation is out, because a pass ends
//! only when its operation has.

use std::fmt;
use std::time::{Duration, SystemTime};

use executor_api::host::{LeaseHolder, LeaseRecord};
use reconciler_core::maintenance::gate::{self, Look};
use reconciler_core::maintenance::{
    Act, Applied, BondFlipPlan, Folded, Observed, Person, PlanObservation, PlanProblem, PlanState, Recovery,
    Reply, ReplyRefused, Step, StepRefused, Verdict, advance, apply, fold, respond, restarted,
};

use super::hands::Hands;
use super::keeper::Keeper;
use super::look::look;
use super::send::{Terms, send};
use super::store::{LogLine, PlanRecord, PlanStore, PlanStoreError};

/// How often the world is looked at while there is nothing to do.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The deciding functions, so that a test may put a broken one in.
#[derive(Clone, Copy)]
pub struct PlanRules {
    /// Decides.
    pub advance: fn(&BondFlipPlan, &PlanState, &Observed, SystemTime) -> Step,
    /// Applies a step.
    pub apply: fn(&BondFlipPlan, &mut PlanState, &Step, SystemTime) -> Result<Applied, StepRefused>,
    /// Folds a fact.
    pub fold: fn(&BondFlipPlan, &mut PlanState, PlanObservation, SystemTime) -> Folded,
}

impl Default for PlanRules {
    fn default() -> Self {
        Self { advance, apply, fold }
    }
}

impl fmt::Debug for PlanRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanRules")
    }
}

/// Why a plan cannot be driven (any further).
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The plan makes no sense.
    #[error("plan {uid} is refused: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Problems {
        /// The plan.
        uid: String,
        /// What is wrong with it.
        problems: Vec<PlanProblem>,
    },
    /// The store holds a plan already.
    #[error("the store holds plan {stored} already; drive or finish that one first")]
    AlreadyFiled {
        /// Which.
        stored: String,
    },
    /// The store holds no plan.
    #[error("the store holds no plan; file one first")]
    NotFiled,
    /// The record could not be stored. Nothing was sent for it, and nothing will be.
    #[error("the record of plan {uid} cannot be stored; nothing more is sent: restart once the store works")]
    Store {
        /// The plan.
        uid: String,
        /// Why.
        source: Box<PlanStoreError>,
    },
    /// The store could not be read.
    #[error("the plan cannot be read from its store")]
    Load(#[source] Box<PlanStoreError>),
}

/// Why a reply was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RespondError {
    /// The reply does not fit.
    #[error(transparent)]
    Refused(#[from] ReplyRefused),
    /// Another operation came between.
    #[error("the plan has moved on while the reply was judged; read the question again")]
    Stale(#[from] StepRefused),
    /// It could not be stored.
    #[error(transparent)]
    Driver(#[from] MaintenanceError),
}

/// Who drives, through what, and by which rules.
#[derive(Debug)]
pub struct Start {
    /// What outlives the process.
    pub store: Box<dyn PlanStore>,
    /// What the world is reached through.
    pub hands: Hands,
    /// This start of this process. Never one that was used before.
    pub me: LeaseHolder,
    /// Who decides.
    pub rules: PlanRules,
}

/// What one pass came to.
#[derive(Clone, Debug)]
pub struct Pass {
    /// When it decided.
    pub at: SystemTime,
    /// What was decided, and why.
    pub step: Step,
    /// What came of the effect that was sent, in words.
    pub outcome: Option<String>,
    /// When to look again: at once for a time that has passed.
    pub next: SystemTime,
}

/// Drives one plan.
#[derive(Debug)]
pub struct MaintenanceDriver {
    record: PlanRecord,
    store: Box<dyn PlanStore>,
    hands: Hands,
    keeper: Keeper,
    rules: PlanRules,
    observed: Observed,
    /// The record on disk may differ from the one in memory: nothing is sent any more.
    failed: bool,
}

impl MaintenanceDriver {
    /// Files a new plan.
    pub fn file(
        start: Start,
        plan: BondFlipPlan,
        approval: Option<Person>,
    ) -> Result<Self, MaintenanceError> {
        let problems = plan.problems();
        if !problems.is_empty() {
            return Err(MaintenanceError::Problems { uid: plan.uid.to_string(), problems });
        }
        let mut start = start;
        if let Some(stored) = start.store.load().map_err(|error| MaintenanceError::Load(Box::new(error)))? {
            return Err(MaintenanceError::AlreadyFiled { stored: stored.plan.uid.to_string() });
        }
        let now = start.hands.timer.now();
        let state = PlanState::new(plan.uid.clone(), approval, now);
        let mut driver = Self::new(start, PlanRecord { seq: 0, plan, state });
        driver.commit("plan filed".to_owned())?;
        Ok(driver)
    }

    /// Takes up what was stored. An operation that was under way has an unknown outcome now, and no stored wait is
    /// longer than its configured maximum from now on, wherever the clock was set meanwhile.
    pub fn resume(mut start: Start) -> Result<Self, MaintenanceError> {
        let record = start
            .store
            .load()
            .map_err(|error| MaintenanceError::Load(Box::new(error)))?
            .ok_or(MaintenanceError::NotFiled)?;
        let mut driver = Self::new(start, record);
        let now = driver.hands.timer.now();
        let PlanRecord { plan, state, .. } = &mut driver.record;
        restarted(plan, state, now);
        if let Some(pending) = &driver.record.state.pending {
            let id = pending.effect.id();
            let line = format!("taken up after a restart; what became of {id} is not known");
            driver.fold(PlanObservation::Lost { id }, line)?;
        }
        Ok(driver)
    }

    fn new(start: Start, record: PlanRecord) -> Self {
        let Start { store, hands, me, rules } = start;
        let keeper = Keeper::new(me.clone(), hands.timer.now());
        let observed = Observed::nothing(me, executor_api::host::Takeover::Held { remaining: Duration::MAX });
        Self { record, store, hands, keeper, rules, observed, failed: false }
    }

    /// One pass.
    pub async fn pass(&mut self) -> Result<Pass, MaintenanceError> {
        self.keep_lease().await;
        let looked = self.hands.timer.now();
        self.look().await;
        let now = self.hands.timer.now();
        let PlanRecord { plan, state, .. } = &mut self.record;
        let step = (self.rules.advance)(plan, state, &self.observed, now);
        let applied = (self.rules.apply)(plan, state, &step, now);
        let mut outcome = None;
        let next = match applied {
            Ok(Applied::Nothing) => look_again(&step, now),
            Ok(Applied::Changed) => {
                self.commit(step.to_string())?;
                now
            }
            Ok(Applied::Send { effect, deadline }) => {
                // Durable first: an effect that is not in the stored record was never sent.
                self.commit(step.to_string())?;
                let lease = self.lease();
                let plan = self.record.plan.clone();
                let terms = Terms { looked, deadline, lease };
                let fact = send(&self.hands, &mut self.keeper, &plan, &effect, terms).await;
                let words = told(&fact);
                self.fold(fact, format!("{}: {words}", effect.id()))?;
                outcome = Some(words);
                self.hands.timer.now()
            }
            // Something came between the look and the step. Look again.
            Err(refused) => {
                outcome = Some(refused.to_string());
                now.checked_add(LOOK_EVERY).unwrap_or(now)
            }
        };
        Ok(Pass { at: now, step, outcome, next })
    }

    /// Passes until the plan is over or frozen, or until `stop` says so after a pass.
    pub async fn drive(
        &mut self,
        mut stop: impl FnMut(&Self, &Pass) -> bool,
    ) -> Result<(), MaintenanceError> {
        loop {
            let pass = self.pass().await?;
            if stop(self, &pass) || self.is_settled() {
                return Ok(());
            }
            if pass.next > self.hands.timer.now() {
                self.hands.timer.sleep_until(pass.next).await;
            }
        }
    }

    /// Looks at the world without deciding anything.
    pub async fn look(&mut self) {
        let PlanRecord { plan, state, .. } = &self.record;
        self.observed = look(&self.hands, &mut self.keeper, plan, state).await;
    }

    /// Somebody lets the plan run.
    pub fn approve(&mut self, person: Person) -> Result<(), MaintenanceError> {
        let line = format!("approved by {}", person.who);
        self.fold(PlanObservation::Approved(person), line)
    }

    /// Somebody asks for the way back.
    pub fn abort(&mut self, person: Person) -> Result<(), MaintenanceError> {
        let line = format!("{} asked for the way back", person.who);
        self.fold(PlanObservation::AbortRequested(person), line)
    }

    /// Takes a reply, after a look at the world that it is about.
    pub async fn respond(&mut self, reply: Reply) -> Result<(), RespondError> {
        self.look().await;
        let now = self.hands.timer.now();
        let PlanRecord { plan, state, .. } = &mut self.record;
        let step = respond(Look { plan, state, observed: &self.observed, now }, reply)?;
        (self.rules.apply)(plan, state, &step, now)?;
        Ok(self.commit(step.to_string())?)
    }

    /// The plan.
    pub fn plan(&self) -> &BondFlipPlan {
        &self.record.plan
    }

    /// How far it is.
    pub fn state(&self) -> &PlanState {
        &self.record.state
    }

    /// What was read last.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// What would be done next, judged by the last look. Does nothing.
    pub fn next_step(&self) -> Step {
        (self.rules.advance)(self.plan(), self.state(), &self.observed, self.hands.timer.now())
    }

    /// What each gate says of the last look.
    pub fn survey(&self) -> Vec<(&'static str, Verdict)> {
        let now = self.hands.timer.now();
        gate::survey(Look { plan: self.plan(), state: self.state(), observed: &self.observed, now })
    }

    /// The plan is over, or waits for a person.
    pub fn is_settled(&self) -> bool {
        let state = self.state();
        state.is_over() || (state.recovery == Recovery::Escalated && !state.handed_over)
    }

    /// Renews the lease where that is due.
    async fn keep_lease(&mut self) {
        let due = self.keeper.due().is_some_and(|due| due <= self.hands.timer.now());
        if due && self.record.state.keeps_lease() {
            // A failure shows in the record that is read next.
            let _ = self.keeper.renew(&self.hands).await;
        }
    }

    fn lease(&self) -> Option<LeaseRecord> {
        self.observed.lock.as_ref()?.value()?.lease.clone()
    }

    fn fold(&mut self, fact: PlanObservation, line: String) -> Result<(), MaintenanceError> {
        let now = self.hands.timer.now();
        let PlanRecord { plan, state, .. } = &mut self.record;
        match (self.rules.fold)(plan, state, fact, now) {
            Folded::Applied => self.commit(line),
            Folded::Dropped(_) => Ok(()),
        }
    }

    fn commit(&mut self, line: String) -> Result<(), MaintenanceError> {
        let uid = || self.record.plan.uid.to_string();
        let at = self.hands.timer.now();
        let phase = self.record.state.label();
        if self.failed {
            let source = Box::new(PlanStoreError::Other("an earlier write failed".to_owned()));
            return Err(MaintenanceError::Store { uid: uid(), source });
        }
        self.record.seq = self.record.seq.saturating_add(1);
        if let Err(source) = self.store.commit(&self.record, &LogLine { at, phase, what: line }) {
            let uid = uid();
            self.failed = true;
            return Err(MaintenanceError::Store { uid, source: Box::new(source) });
        }
        Ok(())
    }
}

/// When to look again after a step that waits.
fn look_again(step: &Step, now: SystemTime) -> SystemTime {
    let soon = now.checked_add(LOOK_EVERY).unwrap_or(now);
    match &step.act {
        Act::Wait { until: Some(until) } if *until > now => soon.min(*until),
        _ => soon,
    }
}

/// A fact in words.
fn told(fact: &PlanObservation) -> String {
    match fact {
        PlanObservation::Ended { outcome: Ok(_), .. } => "reported done".to_owned(),
        PlanObservation::Ended { outcome: Err(failure), .. } => {
            format!("{}: {}", failure.kind, failure.message)
        }
        PlanObservation::Lost { .. } => "no answer by its deadline".to_owned(),
        PlanObservation::NotSent { reason, .. } => format!("not sent: {reason}"),
        PlanObservation::RenewalFailed { reason, .. } => {
            format!("not sent, the lease was not renewed: {reason}")
        }
        PlanObservation::Approved(_) | PlanObservation::AbortRequested(_) => "noted".to_owned(),
    }
}
