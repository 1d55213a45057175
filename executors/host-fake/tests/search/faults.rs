//! What can go wrong in a search: with a call, with a reading, with an operator, with the world.

use executor_api::host::{EvictionSetting, HostName, InterfaceName, ResourceName, VmName};
use executor_host_fake::{CallKind, Fault, Incident, MigrationFate};
use reconciler_core::maintenance::{Effect, LockAction};

/// The call that carries an effect.
pub(crate) fn call_of(effect: &Effect) -> CallKind {
    match effect {
        Effect::Host(operation) => CallKind::of_host(&operation.action),
        Effect::Vm(operation) => CallKind::of_vm(&operation.action),
        Effect::Settle { operation, .. } => match **operation {
            Effect::Vm(_) => CallKind::SettleVm,
            Effect::Host(_) | Effect::Settle { .. } | Effect::Lock { .. } => CallKind::SettleHost,
        },
        Effect::Lock { action, .. } => match action {
            LockAction::AcquireLease { .. } => CallKind::Acquire,
            LockAction::PlaceHold => CallKind::PlaceHold,
            LockAction::LiftHold => CallKind::LiftHold,
            LockAction::ReleaseLease => CallKind::Release,
        },
    }
}

/// The faults that a call is tried with.
pub(crate) fn of_call(call: CallKind) -> Vec<Fault> {
    let tried = [
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::Fails,
        Fault::DoneNothing,
        Fault::FailsAfter { steps: 3 },
        Fault::MemberMissing,
        Fault::NotPersisted,
        Fault::EndsEarly,
        Fault::NotPropagated,
        Fault::NoShield,
        Fault::RestoresNone,
    ];
    tried.into_iter().filter(|fault| fault.suits(call)).collect()
}

/// The readings that fail, and how.
pub(crate) fn of_readings() -> Vec<(CallKind, Option<HostName>, Fault)> {
    vec![
        (CallKind::ReadStorage, Some(w(2)), Fault::Unreadable),
        (CallKind::ReadStorage, Some(w(1)), Fault::NoIdentifiers),
        (CallKind::ReadStorage, Some(w(1)), Fault::Torn),
        (CallKind::ReadBond, Some(w(1)), Fault::Unreadable),
        (CallKind::ReadVms, None, Fault::Unreadable),
        (CallKind::ReadLock, None, Fault::Unreadable),
    ]
}

/// What befalls the world.
pub(crate) fn incidents() -> Vec<Incident> {
    let (r1, v1) = (ResourceName::new("r1").unwrap(), VmName::new("v1").unwrap());
    let interface = InterfaceName::new("s1").unwrap();
    vec![
        Incident::HoldDeleted,
        Incident::PodReturns { host: w(1) },
        Incident::StandAlone { resource: r1.clone(), host: w(2) },
        Incident::Reconnects { resource: r1.clone(), host: w(1) },
        Incident::BitsAppear { resource: r1.clone(), host: w(2), blocks: 1 },
        Incident::Diverges { resource: r1.clone(), host: w(2), writes: 1 },
        Incident::DiskFails { resource: r1, host: w(2) },
        Incident::CarrierLost { host: w(2), interface: interface.clone() },
        Incident::MemberLeaves { host: w(1), interface: interface.clone() },
        Incident::MemberLeaves { host: w(2), interface },
        Incident::WireLoses { wire: 0, every: 4 },
        Incident::BondSet { host: w(1), mode: None },
        Incident::AgentRestarts { host: w(2) },
        Incident::HostReboots { host: w(2) },
        Incident::Migrates {
            vm: v1.clone(),
            to: w(2),
            fate: MigrationFate::WinsTheRace,
            past_the_shield: false,
        },
        Incident::EvacuationMark { vm: v1.clone(), marked: true },
        Incident::ShieldDeleted { vm: v1.clone() },
        Incident::EffectiveChanged { vm: v1, setting: EvictionSetting::Unset },
    ]
}

pub(crate) fn w(number: u8) -> HostName {
    HostName::new(format!("w{number}")).unwrap()
}
