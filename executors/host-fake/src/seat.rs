//! One operator's place: hosts, storage, machines and the lock as it reaches them. Everything goes through calls
//! that arrive, may go wrong, take their time and are answered, or are not.

mod hosts;
mod lock;
mod machines;
mod reads;

use std::time::{Duration, SystemTime};

use executor_api::host::{FenceValue, HostError, HostErrorKind, HostName, HostReport, Settled, VmName};

use crate::faults::rules::Whose;
use crate::faults::{CallKind, Fault};
use crate::world::{Admission, Due, HostWorld, Known, Operation, later, refusal};

/// All traits of maintenance, for one operator. A second seat is a second operator; a seat made anew under the same
/// name is the same operator after a restart.
#[derive(Clone, Debug)]
pub struct Seat {
    world: HostWorld,
    name: String,
}

impl Seat {
    pub(crate) fn new(world: HostWorld, name: &str) -> Self {
        Self { world, name: name.to_owned() }
    }

    /// The operator's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its next operation leaves it now, all checks done, although the call is made later: for whoever puts an operator
    /// to sleep in between. What it looked at is judged as of now.
    pub fn sets_out(&self) {
        self.world.enter(|state| {
            state.set_out.insert(self.name.clone(), state.now);
        });
    }

    /// The world that it looks at.
    pub fn world(&self) -> &HostWorld {
        &self.world
    }

    fn arrive(&self, call: CallKind, host: Option<&HostName>, vm: Option<&VmName>) -> Option<Fault> {
        self.world.arrive(&Whose { call, host, vm, seat: &self.name })
    }

    fn arrive_with(&self, call: CallKind, operation: &Operation) -> Option<Fault> {
        match operation {
            Operation::Host(operation) => self.arrive(call, Some(&operation.node), None),
            Operation::Vm(operation) => self.arrive(call, None, Some(&operation.vm)),
        }
    }

    /// Carries an operation to its agent and waits for what comes of it.
    async fn carry(
        &self,
        call: CallKind,
        operation: Operation,
        deadline: SystemTime,
    ) -> Result<HostReport, HostError> {
        let fault = self.arrive_with(call, &operation);
        let known = self.world.enter(|state| state.knowledge(&self.name));
        self.lost_on_the_way(fault, &operation, &known, deadline).await?;
        let mut begun = false;
        loop {
            let admission =
                self.world.enter(|state| state.submit(&operation, &self.name, fault, &known, deadline));
            match admission {
                Admission::Begin => begun = true,
                Admission::Wait(until) => self.wait(until, deadline, &operation.words()).await?,
                Admission::Over(outcome) => {
                    if fault == Some(Fault::AnswerLost) {
                        self.world.fire(Fault::AnswerLost);
                        return Err(ambiguous(&operation.words(), "the answer was lost; settle it"));
                    }
                    return outcome.map_err(|(kind, what)| refusal(kind, what));
                }
                // The agent died under it, or somebody else came first once it was over: it was begun all the same.
                Admission::No(_, what) if begun => return Err(ambiguous(&operation.words(), &what)),
                Admission::No(kind, what) => return Err(refusal(kind, what)),
            }
        }
    }

    /// The faults that keep a call from arriving as it should.
    async fn lost_on_the_way(
        &self,
        fault: Option<Fault>,
        operation: &Operation,
        known: &Known,
        deadline: SystemTime,
    ) -> Result<(), HostError> {
        let Some(fault) = fault else { return Ok(()) };
        let words = operation.words();
        let arrives = |after: Duration| {
            let (operation, seat, known) = (operation.clone(), self.name.clone(), known.clone());
            let due = Due::Arrives { operation, seat, known, deadline };
            self.world.enter(|state| state.after(after, due));
        };
        match fault {
            Fault::Unavailable => {
                self.world.fire(fault);
                let what = format!("{words}: the agent cannot be reached; try again");
                Err(HostError::new(HostErrorKind::Unavailable, what))
            }
            Fault::Refused => {
                self.world.fire(fault);
                Err(HostError::new(HostErrorKind::Refused, format!("{words}: refused, as scripted")))
            }
            Fault::RequestLost => {
                self.world.fire(fault);
                Err(ambiguous(&words, "the connection was lost; settle it"))
            }
            Fault::Hangs => {
                self.world.fire(fault);
                self.world.timer().sleep_until(deadline).await;
                Err(ambiguous(&words, "no answer by the deadline; settle it"))
            }
            Fault::LandsLate { after } => {
                self.world.fire(fault);
                arrives(after);
                Err(ambiguous(&words, "the connection was lost; settle it"))
            }
            Fault::Repeats { after } => {
                self.world.fire(fault);
                arrives(after);
                Ok(())
            }
            Fault::Slow { .. } => {
                self.world.fire(fault);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes the outcome of an operation certain.
    async fn certain(
        &self,
        call: CallKind,
        operation: Operation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        let fault = self.arrive_with(call, &operation);
        self.lost_on_the_way(fault, &operation, &Known::new(), deadline).await?;
        let doing = format!("settle {}", operation.words());
        loop {
            match self.world.enter(|state| state.settle_operation(&operation, fence)) {
                Ok(settled) => {
                    if fault == Some(Fault::AnswerLost) {
                        self.world.fire(Fault::AnswerLost);
                        return Err(ambiguous(&doing, "the answer was lost; settle it again"));
                    }
                    return Ok(settled);
                }
                Err(Admission::Wait(until)) => self.wait(until, deadline, &doing).await?,
                Err(Admission::No(kind, what)) => return Err(refusal(kind, what)),
                Err(Admission::Begin | Admission::Over(_)) => {
                    return Err(ambiguous(&doing, "the agent made no sense; settle it again"));
                }
            }
        }
    }

    async fn wait(&self, until: SystemTime, deadline: SystemTime, doing: &str) -> Result<(), HostError> {
        let now = self.world.now();
        // What should be over and is not is looked at again soon.
        let until = if until > now { until } else { later(now, Duration::from_millis(100)) };
        if now < deadline {
            self.world.timer().sleep_until(until.min(deadline)).await;
        }
        if until > deadline {
            return Err(ambiguous(doing, "no answer by the deadline; settle it"));
        }
        Ok(())
    }

    /// Lets a call that is no operation take its time.
    async fn spend(&self, takes: Duration, fault: Option<Fault>) {
        let takes = match fault {
            Some(fault @ Fault::Slow { times }) => {
                self.world.fire(fault);
                takes.saturating_mul(times)
            }
            _ => takes,
        };
        if !takes.is_zero() {
            let until = later(self.world.now(), takes);
            self.world.timer().sleep_until(until).await;
        }
    }
}

fn ambiguous(doing: &str, what: &str) -> HostError {
    HostError::new(HostErrorKind::Ambiguous, format!("{doing}: {what}"))
}
