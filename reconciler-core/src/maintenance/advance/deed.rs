//! How operations are sent: each deed once in a try of a phase. What was reported done and is not there is a
//! halt, never another go.

use std::time::SystemTime;

use executor_api::host::{FenceValue, HostAction, HostName, HostOperation, VmAction, VmName, VmOperation};

use crate::maintenance::advance::Next;
use crate::maintenance::gate::Look;
use crate::maintenance::step::{Effect, HaltReason, Step};

/// How long the effect of an operation may stay unseen after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all: the operation's end is the effect.
    None,
    /// Until the state's settling time.
    Settle,
}

/// Sends an operation to a host. Called only while its effect is not seen; `unseen` says what is seen instead.
pub(crate) fn host(
    look: Look<'_>,
    node: &HostName,
    action: HostAction,
    patience: Patience,
    unseen: impl Into<String>,
) -> Next {
    let operation = HostOperation {
        id: look.state.next_id(),
        plan: look.plan.uid.clone(),
        node: node.clone(),
        fence: fence(look)?,
        action,
    };
    Ok(once(look, Effect::Host(operation), patience, unseen.into()))
}

/// Sends an operation to a virtual machine, likewise.
pub(crate) fn vm(
    look: Look<'_>,
    vm: &VmName,
    action: VmAction,
    patience: Patience,
    unseen: impl Into<String>,
) -> Next {
    let operation = VmOperation {
        id: look.state.next_id(),
        plan: look.plan.uid.clone(),
        vm: vm.clone(),
        fence: fence(look)?,
        action,
    };
    Ok(once(look, Effect::Vm(operation), patience, unseen.into()))
}

fn fence(look: Look<'_>) -> Result<FenceValue, Box<Step>> {
    match &look.state.lease {
        Some(lease) => Ok(lease.fence),
        None => Err(Box::new(Step::wait(None, "the lease is not ours"))),
    }
}

fn once(look: Look<'_>, effect: Effect, patience: Patience, unseen: String) -> Step {
    let Some(ended) = look.state.ended.iter().find(|ended| ended.effect.same_deed(&effect)) else {
        return Step::send(effect, unseen);
    };
    let deed = effect.to_string();
    if let Some(failure) = &ended.failure {
        return Step::halt(HaltReason::OperationFailed { deed, message: failure.message.clone() });
    }
    match patience {
        Patience::Settle if look.now < look.state.settle_until => {
            Step::wait(Some(look.state.settle_until), format!("{deed}: done, but {unseen}"))
        }
        Patience::Settle | Patience::None => Step::halt(HaltReason::NotSeen { deed, observed: unseen }),
    }
}

/// Waits for something until the settling time, then halts.
pub(crate) fn await_until(look: Look<'_>, until: SystemTime, what: String) -> Step {
    if look.now < until {
        return Step::wait(Some(until), what);
    }
    Step::halt(HaltReason::NotSeen { deed: "waiting".to_owned(), observed: what })
}
