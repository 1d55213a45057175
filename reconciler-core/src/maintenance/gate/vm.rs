//! Is every machine pinned, where it was, with nothing under way that would move it. What runs counts, not what
//! is declared.

use executor_api::host::{EvictionSetting, Source, VmPicture, VmReading};

use crate::maintenance::gate::{Gathering, Look};
use crate::maintenance::verdict::{FindingKind, Subject, Verdict};

/// Every machine on the plan's resources is pinned in effect, runs where it was recorded, and nothing is about
/// to move it. A machine that was not recorded is a breach, and so is one that vanished.
pub fn pinned(look: Look<'_>) -> Verdict {
    let mut gathering = Gathering::new(look);
    let Some(picture) = picture(&mut gathering) else {
        return gathering.verdict("pin gate");
    };
    let mut no = |what: String| gathering.no(FindingKind::Negative, Subject::Vm, what);
    for (name, vm) in &picture.vms {
        let Some(original) = look.state.vm_originals.get(name) else {
            no(format!("{name} appeared after the machines were recorded"));
            continue;
        };
        if let Some(what) = pin_fault(vm) {
            no(format!("{name}: {what}"));
        }
        let place = vm.running.as_ref().map(|running| (running.node.clone(), running.pod_uid.clone()));
        if look.state.placed && place != original.placement {
            no(format!("{name} does not run where it was recorded"));
        }
        if let Some(node) = vm.running.as_ref().and_then(|running| running.evacuating_from.as_ref()) {
            no(format!("{name} is to be moved away from {node}"));
        }
    }
    for name in look.state.vm_originals.keys().filter(|name| !picture.vms.contains_key(*name)) {
        no(format!("{name} is gone"));
    }
    for (name, migration) in picture.unfinished() {
        no(format!("migration {name} of {} is not over ({})", migration.vm, migration.phase));
    }
    gathering.verdict("pin gate")
}

/// What keeps a machine from being pinned in effect.
pub(crate) fn pin_fault(vm: &VmReading) -> Option<String> {
    if vm.declared != EvictionSetting::PINNED {
        return Some(format!("declared {}", vm.declared));
    }
    if let Some(running) = &vm.running
        && running.effective != EvictionSetting::PINNED
    {
        return Some(format!("running with {}", running.effective));
    }
    if !vm.shield.is_up() {
        return Some("not shielded from eviction and migration".to_owned());
    }
    None
}

/// What keeps a machine from being as it was before it was pinned.
pub(crate) fn restore_fault(vm: &VmReading, original: &EvictionSetting) -> Option<String> {
    if vm.declared != *original {
        return Some(format!("declared {}, was {original}", vm.declared));
    }
    if let Some(running) = &vm.running
        && running.effective != *original
    {
        return Some(format!("running with {}, was {original}", running.effective));
    }
    if !vm.shield.is_down() {
        return Some("still shielded".to_owned());
    }
    None
}

/// The picture, or a finding.
pub(crate) fn picture<'a>(gathering: &mut Gathering<'a>) -> Option<&'a VmPicture> {
    let evidence = gathering.look.observed.vms.as_ref();
    gathering.take(Subject::Vm, &Source::Cluster, evidence)
}
