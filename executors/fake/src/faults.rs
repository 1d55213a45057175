//! How the world misbehaves: the faults, the rules that script them and the weather that draws them.
//! A fault is chosen when a call arrives and counted when it has really happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use executor_api::{AttemptKey, LogicalNodeId, NodeAttemptId, RejectReason};

use crate::chance::Dice;

/// The calls that a fault can befall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// `LeaseProvider::create`
    Create,
    /// `LeaseProvider::lookup_endpoint`
    Lookup,
    /// `LeaseProvider::destroy`
    Destroy,
    /// `LeaseProvider::find`, and the lookup that a create begins with
    FindLease,
    /// `LeaseProvider::list`
    List,
    /// `Bootstrapper::start`
    Start,
    /// `Bootstrapper::complete`
    Complete,
    /// `Bootstrapper::cancel`
    Cancel,
    /// `Bootstrapper::find`, and the lookup that a start begins with
    FindSession,
    /// `Bootstrapper::attach`
    Attach,
}

/// What a caller hears when it does not hear the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing: the call hangs until its future is dropped.
    Hangs,
    /// An error that proves nothing.
    Ambiguous,
}

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It happens, and the caller is not told.
    AnswerLost(Silence),
    /// It does not happen, and the caller is not told.
    NotActed(Silence),
    /// It happens this long after the call was given up or had answered, capped by the declared late landing.
    LandsLate {
        /// How long after.
        after: Duration,
        /// What the caller hears.
        silence: Silence,
    },
    /// The create makes two leases under one identity and tells of the second.
    MadeTwice,
    /// Refused for a proved reason.
    Rejected(RejectReason),
    /// Refused for being too many.
    Throttled {
        /// How long to wait, if the provider says.
        retry_after: Option<Duration>,
    },
    /// The caller's credentials have expired: refused before anything is looked at. Scripted only.
    Expired,
    /// The call never arrives.
    Unavailable,
    /// The attempt is declared over.
    Gone,
    /// The executor's own code panics.
    Panics,
    /// Takes this many times as long.
    Slow(u32),
    /// Success, with an empty id.
    WithoutId,
    /// Nothing can be read.
    Unknown,
    /// The answer describes an earlier moment, and says so.
    Stale {
        /// How much earlier.
        by: Duration,
    },
    /// Only the first half of a listing arrives, and it says so.
    Incomplete,
    /// A listing arrives that is empty and claims to be complete.
    Empty,
    /// The new lease stays hidden from lookups and listings for this long, capped by the declared lag.
    Hidden(Duration),
    /// The new lease dies this long after it was made and is listed as dead.
    Dies(Duration),
    /// The new lease disappears without a trace this long after it was made.
    Vanishes(Duration),
    /// The new lease changes its address this long after it was made.
    Moves(Duration),
    /// The new lease never gets an endpoint.
    NoEndpoint,
    /// The new session's program exits this long after the start, before joining.
    Exits {
        /// How long after.
        after: Duration,
        /// With which status.
        status: i32,
    },
    /// The new session's node never joins.
    NeverJoins,
    /// The new session's node joins with a nonce that is not its attempt's.
    WrongNonce,
    /// Every observation is delivered twice.
    Repeats,
    /// Behind every observation comes an outdated one, and one of a session that never was.
    Outdated,
}

impl Fault {
    /// The name under which it is counted.
    pub fn name(&self) -> &'static str {
        match self {
            Self::AnswerLost(_) => "answer-lost",
            Self::NotActed(_) => "not-acted",
            Self::LandsLate { .. } => "lands-late",
            Self::MadeTwice => "made-twice",
            Self::Rejected(_) => "rejected",
            Self::Throttled { .. } => "throttled",
            Self::Expired => "expired",
            Self::Unavailable => "unavailable",
            Self::Gone => "gone",
            Self::Panics => "panics",
            Self::Slow(_) => "slow",
            Self::WithoutId => "without-id",
            Self::Unknown => "unknown",
            Self::Stale { .. } => "stale",
            Self::Incomplete => "incomplete",
            Self::Empty => "empty",
            Self::Hidden(_) => "hidden",
            Self::Dies(_) => "dies",
            Self::Vanishes(_) => "vanishes",
            Self::Moves(_) => "moves",
            Self::NoEndpoint => "no-endpoint",
            Self::Exits { .. } => "exits",
            Self::NeverJoins => "never-joins",
            Self::WrongNonce => "wrong-nonce",
            Self::Repeats => "repeats",
            Self::Outdated => "outdated",
        }
    }

    /// Whether it can befall this call.
    pub fn suits(&self, call: CallKind) -> bool {
        use CallKind::{
            Attach, Cancel, Complete, Create, Destroy, FindLease, FindSession, List, Lookup, Start,
        };
        match self {
            Self::AnswerLost(_) | Self::LandsLate { .. } => {
                matches!(call, Create | Destroy | Start | Complete | Cancel)
            }
            Self::NotActed(_)
            | Self::Rejected(_)
            | Self::Throttled { .. }
            | Self::Unavailable
            | Self::Gone => matches!(call, Create | Lookup | Destroy | Start | Complete | Cancel),
            Self::Expired => call != Attach,
            Self::Panics => call != FindLease && call != FindSession,
            Self::Slow(_) => matches!(call, Create | Lookup | Destroy | List | Start | Complete | Cancel),
            Self::MadeTwice
            | Self::Hidden(_)
            | Self::Dies(_)
            | Self::Vanishes(_)
            | Self::Moves(_)
            | Self::NoEndpoint => call == Create,
            Self::WithoutId => matches!(call, Create | Start),
            Self::Unknown => matches!(call, FindLease | FindSession | List | Lookup),
            Self::Stale { .. } => matches!(call, FindLease | List),
            Self::Incomplete | Self::Empty => call == List,
            Self::Exits { .. } | Self::NeverJoins | Self::WrongNonce => call == Start,
            Self::Repeats | Self::Outdated => call == Attach,
        }
    }
}

/// A fault was scripted for a call that it cannot befall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fault {fault:?} cannot befall the call {call:?}; see Fault::suits")]
pub struct Unsuited {
    /// The fault.
    pub fault: Fault,
    /// The call.
    pub call: CallKind,
}

/// A scripted fault: which calls, how often, when. Rules are tried in the order in which they were given; the
/// first that matches is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    call: CallKind,
    fault: Fault,
    node: Option<LogicalNodeId>,
    attempt: Option<NodeAttemptId>,
    from: Option<SystemTime>,
    until: Option<SystemTime>,
    skip: u64,
    left: Option<u64>,
}

impl Rule {
    /// The next such call suffers this fault, once.
    pub fn new(call: CallKind, fault: Fault) -> Self {
        Self { call, fault, node: None, attempt: None, from: None, until: None, skip: 0, left: Some(1) }
    }

    /// Only calls for this slot.
    #[must_use]
    pub fn node(mut self, node: &LogicalNodeId) -> Self {
        self.node = Some(node.clone());
        self
    }

    /// Only calls for this attempt.
    #[must_use]
    pub fn attempt(mut self, attempt: NodeAttemptId) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Lets this many matching calls pass first.
    #[must_use]
    pub fn after_calls(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// This many matching calls.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.left = Some(times);
        self
    }

    /// Every matching call.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.left = None;
        self
    }

    /// Only calls that arrive from this moment on.
    #[must_use]
    pub fn from(mut self, from: SystemTime) -> Self {
        self.from = Some(from);
        self
    }

    /// Only calls that arrive before this moment.
    #[must_use]
    pub fn until(mut self, until: SystemTime) -> Self {
        self.until = Some(until);
        self
    }

    /// Whether the rule takes this call; counts it if it matches.
    fn takes(&mut self, call: CallKind, whose: Option<&AttemptKey>, now: SystemTime) -> bool {
        let matches = self.call == call
            && self.left != Some(0)
            && self.node.as_ref().is_none_or(|node| whose.is_some_and(|key| key.node == *node))
            && self.attempt.is_none_or(|attempt| whose.is_some_and(|key| key.attempt == attempt))
            && self.from.is_none_or(|from| from <= now)
            && self.until.is_none_or(|until| now < until);
        if !matches {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        true
    }
}

/// How likely a fault is for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// The call.
    pub call: CallKind,
    /// The fault.
    pub fault: Fault,
    /// How often in a thousand calls.
    pub per_mille: u32,
}

/// Seeded misbehaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Decides every draw.
    pub seed: u64,
    /// Tried in order; the first that hits is used.
    pub chances: Vec<Chance>,
    /// From then on the sky is clear. `None`: never.
    pub until: Option<SystemTime>,
}

impl Weather {
    /// The names of the faults that it can bring: what a long run should have counted.
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.chances.iter().map(|chance| chance.fault.name()).collect()
    }

    /// Every fault for every call that it can befall, each with this likelihood.
    pub fn everything(seed: u64, per_mille: u32, until: Option<SystemTime>) -> Self {
        let second = Duration::from_secs(1);
        let mut faults = vec![
            Fault::MadeTwice,
            Fault::Throttled { retry_after: None },
            Fault::Throttled { retry_after: Some(5 * second) },
            Fault::Unavailable,
            Fault::Gone,
            Fault::Panics,
            Fault::Slow(20),
            Fault::WithoutId,
            Fault::Unknown,
            Fault::Stale { by: 10 * second },
            Fault::Incomplete,
            Fault::Hidden(20 * second),
            Fault::Dies(7 * second),
            Fault::Vanishes(7 * second),
            Fault::Moves(9 * second),
            Fault::NoEndpoint,
            Fault::Exits { after: second, status: 1 },
            Fault::Exits { after: second, status: 0 },
            Fault::NeverJoins,
            Fault::WrongNonce,
            Fault::Repeats,
            Fault::Outdated,
        ];
        for silence in [Silence::Hangs, Silence::Ambiguous] {
            faults.push(Fault::AnswerLost(silence));
            faults.push(Fault::NotActed(silence));
            faults.push(Fault::LandsLate { after: 5 * second, silence });
        }
        for reason in [
            RejectReason::Validation,
            RejectReason::Quota,
            RejectReason::Authorisation,
            RejectReason::Capacity,
        ] {
            faults.push(Fault::Rejected(reason));
        }
        let chances = ALL_CALLS
            .iter()
            .flat_map(|&call| {
                let suited = faults.iter().filter(move |fault| fault.suits(call));
                suited.map(move |&fault| Chance { call, fault, per_mille })
            })
            .collect();
        Self { seed, chances, until }
    }
}

const ALL_CALLS: [CallKind; 10] = [
    CallKind::Create,
    CallKind::Lookup,
    CallKind::Destroy,
    CallKind::FindLease,
    CallKind::List,
    CallKind::Start,
    CallKind::Complete,
    CallKind::Cancel,
    CallKind::FindSession,
    CallKind::Attach,
];

/// The rules and the weather of one world, and what has really happened.
#[derive(Debug, Default)]
pub(crate) struct FaultPlan {
    rules: Vec<Rule>,
    weather: Option<(Weather, Dice)>,
    pub(crate) fired: BTreeMap<&'static str, u64>,
}

impl FaultPlan {
    pub(crate) fn script(&mut self, rule: Rule) -> Result<(), Unsuited> {
        if !rule.fault.suits(rule.call) {
            return Err(Unsuited { fault: rule.fault, call: rule.call });
        }
        self.rules.push(rule);
        Ok(())
    }

    pub(crate) fn set_weather(&mut self, weather: Option<Weather>) {
        self.weather = weather.map(|weather| {
            let dice = Dice::new(weather.seed);
            (weather, dice)
        });
    }

    /// No more faults: rules and weather are dropped, counts are kept.
    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.weather = None;
    }

    /// The fault of a call that arrives now.
    pub(crate) fn draw(
        &mut self,
        call: CallKind,
        whose: Option<&AttemptKey>,
        now: SystemTime,
    ) -> Option<Fault> {
        if let Some(place) = self.rules.iter_mut().position(|rule| rule.takes(call, whose, now)) {
            let fault = self.rules[place].fault;
            if self.rules[place].left == Some(0) {
                self.rules.remove(place);
            }
            return Some(fault);
        }
        let (weather, dice) = self.weather.as_mut()?;
        if weather.until.is_some_and(|until| until <= now) {
            return None;
        }
        weather.chances.iter().find(|c| c.call == call && dice.hits(c.per_mille)).map(|c| c.fault)
    }

    pub(crate) fn fire(&mut self, name: &'static str) {
        *self.fired.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_api::RunId;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn key(node: &str) -> AttemptKey {
        AttemptKey {
            run: RunId::new("demo", "u1").unwrap(),
            node: LogicalNodeId::parse(node).unwrap(),
            attempt: NodeAttemptId(1),
        }
    }

    #[test]
    fn a_rule_counts_only_the_calls_that_match_it() {
        let mut plan = FaultPlan::default();
        let rule = Rule::new(CallKind::Create, Fault::Unavailable).node(&key("web-1").node).after_calls(1);
        plan.script(rule.times(2)).unwrap();
        let draws: Vec<_> = ["web-0", "web-1", "web-1", "web-0", "web-1", "web-1"]
            .iter()
            .map(|node| plan.draw(CallKind::Create, Some(&key(node)), NOW).is_some())
            .collect();
        assert_eq!(draws, [false, false, true, false, true, false]);
    }

    #[test]
    fn a_fault_for_the_wrong_call_is_refused() {
        let rule = Rule::new(CallKind::Destroy, Fault::MadeTwice);
        assert!(FaultPlan::default().script(rule).is_err());
    }

    #[test]
    fn weather_is_repeatable_and_ends() {
        let until = NOW + Duration::from_secs(10);
        let run = || {
            let mut plan = FaultPlan::default();
            plan.set_weather(Some(Weather::everything(3, 20, Some(until))));
            let draw = |plan: &mut FaultPlan| plan.draw(CallKind::Create, Some(&key("web-0")), NOW);
            let drawn: Vec<_> = (0..200).map(|_| draw(&mut plan)).collect();
            (drawn, plan.draw(CallKind::Create, None, until))
        };
        let (drawn, late) = run();
        assert_eq!(run().0, drawn);
        assert!(drawn.iter().any(Option::is_some));
        assert_eq!(late, None);
    }
}
