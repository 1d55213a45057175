//! Which calls go wrong: rules that script faults, and weather that draws them. A fault is chosen when a call
//! arrives, and counted when it really happened.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use executor_api::host::{HostName, VmName};
use serde::{Deserialize, Serialize};

use crate::chance::Dice;
use crate::faults::{CallKind, Fault};
use crate::span;

/// A scripted fault: which calls, how often, when. Rules are tried in order; the first that matches is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The call.
    pub call: CallKind,
    /// The fault.
    pub fault: Fault,
    /// Only calls to this host.
    #[serde(default)]
    pub host: Option<HostName>,
    /// Only calls about this machine.
    #[serde(default)]
    pub vm: Option<VmName>,
    /// Only calls of this operator.
    #[serde(default)]
    pub seat: Option<String>,
    /// So many matching calls pass first.
    #[serde(default)]
    pub skip: u64,
    /// So many matching calls suffer it; left out: every one.
    #[serde(default = "once")]
    pub times: Option<u64>,
    /// Only from this long after the world's beginning on.
    #[serde(default, with = "span")]
    pub from: Duration,
    /// Only until then; left out: for ever.
    #[serde(default, with = "span::maybe")]
    pub until: Option<Duration>,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
fn once() -> Option<u64> {
    Some(1)
}

impl Rule {
    /// The next such call suffers this fault, once.
    pub fn new(call: CallKind, fault: Fault) -> Self {
        Self {
            call,
            fault,
            host: None,
            vm: None,
            seat: None,
            skip: 0,
            times: once(),
            from: Duration::ZERO,
            until: None,
        }
    }

    /// Only calls to this host.
    #[must_use]
    pub fn host(mut self, host: &HostName) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// Only calls about this machine.
    #[must_use]
    pub fn vm(mut self, vm: &VmName) -> Self {
        self.vm = Some(vm.clone());
        self
    }

    /// Only calls of this operator.
    #[must_use]
    pub fn seat(mut self, seat: &str) -> Self {
        self.seat = Some(seat.to_owned());
        self
    }

    /// Lets so many matching calls pass first.
    #[must_use]
    pub fn after_calls(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// So many matching calls.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Every matching call.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Whether the rule takes this call; counts it if it matches.
    fn takes(&mut self, whose: &Whose<'_>, age: Duration) -> bool {
        let matches = self.call == whose.call
            && self.times != Some(0)
            && self.host.as_ref().is_none_or(|host| whose.host == Some(host))
            && self.vm.as_ref().is_none_or(|vm| whose.vm == Some(vm))
            && self.seat.as_ref().is_none_or(|seat| whose.seat == seat)
            && self.from <= age
            && self.until.is_none_or(|until| age < until);
        if !matches {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}

/// A call that arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub(crate) call: CallKind,
    pub(crate) host: Option<&'a HostName>,
    pub(crate) vm: Option<&'a VmName>,
    pub(crate) seat: &'a str,
}

/// How likely a fault is for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// The call.
    pub call: CallKind,
    /// The fault.
    pub fault: Fault,
    /// How often in a thousand calls.
    pub per_mille: u32,
}

/// Seeded misbehaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weather {
    /// Decides every draw.
    pub seed: u64,
    /// Tried in order; the first that hits is used.
    pub chances: Vec<Chance>,
    /// From this long after the world's beginning on the sky is clear; left out: never.
    #[serde(default, with = "span::maybe")]
    pub until: Option<Duration>,
}

impl Weather {
    /// Every fault for every call that it can befall, each with this likelihood.
    pub fn everything(seed: u64, per_mille: u32, until: Option<Duration>) -> Self {
        let chances = CallKind::ALL.into_iter().flat_map(|call| {
            Fault::ALL.into_iter().filter(move |fault| fault.suits(call)).map(move |fault| Chance {
                call,
                fault,
                per_mille,
            })
        });
        Self { seed, chances: chances.collect(), until }
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

/// The rules, the weather, and how often each fault really happened.
#[derive(Clone, Debug, Default)]
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

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.weather = None;
    }

    /// The fault of a call that arrives, if it suffers one.
    pub(crate) fn draw(&mut self, whose: &Whose<'_>, start: SystemTime, now: SystemTime) -> Option<Fault> {
        let age = now.duration_since(start).unwrap_or_default();
        if let Some(rule) =
            self.rules.iter_mut().find_map(|rule| rule.takes(whose, age).then_some(rule.fault))
        {
            return Some(rule);
        }
        let (weather, dice) = self.weather.as_mut()?;
        if weather.until.is_some_and(|until| age >= until) {
            return None;
        }
        let chances = weather.chances.iter();
        let mut suited =
            chances.filter(|chance| chance.call == whose.call && chance.fault.suits(chance.call));
        suited.find_map(|chance| dice.hits(chance.per_mille).then_some(chance.fault))
    }

    pub(crate) fn fire(&mut self, name: &'static str) {
        *self.fired.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_skips_then_counts_down() {
        let mut plan = FaultPlan::default();
        let rule = Rule::new(CallKind::Renew, Fault::AnswerLost).seat("a").after_calls(1).times(2);
        plan.script(rule).unwrap();
        let now = SystemTime::UNIX_EPOCH;
        let mut draw =
            |seat| plan.draw(&Whose { call: CallKind::Renew, host: None, vm: None, seat }, now, now);
        let drawn: Vec<_> = ["a", "b", "a", "a", "a"].into_iter().map(|seat| draw(seat).is_some()).collect();
        assert_eq!(drawn, [false, false, true, true, false]);
        assert!(plan.script(Rule::new(CallKind::Renew, Fault::MemberMissing)).is_err());
    }
}
