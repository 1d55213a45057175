//! An agent's durable table: the highest fence it has met, and what became of every operation. Written before the
//! agent acts, so that it survives a crash at any instant.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use executor_api::host::{
    FenceValue, HostError, HostErrorKind, HostOperation, HostOperationId, HostReport, PlanUid, Settled,
    VmOperation,
};

/// An operation, whoever carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Host(HostOperation),
    Vm(VmOperation),
}

/// How an operation is known.
pub(crate) type Key = (PlanUid, HostOperationId);

impl Operation {
    pub(crate) fn key(&self) -> Key {
        match self {
            Self::Host(operation) => (operation.plan.clone(), operation.id),
            Self::Vm(operation) => (operation.plan.clone(), operation.id),
        }
    }

    pub(crate) fn fence(&self) -> FenceValue {
        match self {
            Self::Host(operation) => operation.fence,
            Self::Vm(operation) => operation.fence,
        }
    }

    pub(crate) fn mutates(&self) -> bool {
        match self {
            Self::Host(operation) => operation.action.mutates(),
            Self::Vm(_) => true,
        }
    }

    /// The same deed, whoever holds the lease by now.
    fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host(one), Self::Host(two)) => one.node == two.node && one.action == two.action,
            (Self::Vm(one), Self::Vm(two)) => one.vm == two.vm && one.action == two.action,
            (Self::Host(_), Self::Vm(_)) | (Self::Vm(_), Self::Host(_)) => false,
        }
    }

    /// In words, for a log or an error.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Host(operation) => format!("{} on {}", operation.action, operation.node),
            Self::Vm(operation) => format!("{} {}", operation.action, operation.vm),
        }
    }
}

/// How an operation ended.
pub(crate) type Outcome = Result<HostReport, (HostErrorKind, String)>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// `None` where it was barred before it ever came.
    content: Option<Operation>,
    state: EntryState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EntryState {
    Begun,
    Over(Outcome),
    /// It never acted and never will.
    Barred,
}

/// One agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agent {
    highest: u64,
    table: BTreeMap<Key, Entry>,
    /// What it works on, and when that should be over.
    working: Option<(Key, SystemTime)>,
    /// It is down until then.
    pub(crate) down_until: Option<SystemTime>,
}

/// What an agent answers to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Let through: it is to be carried out now.
    Begin,
    /// Something is under way until then; ask again.
    Wait(SystemTime),
    /// It is over.
    Over(Outcome),
    /// Not let through.
    No(HostErrorKind, String),
}

impl Agent {
    /// An operation arrives, `late` where its deadline is over.
    pub(crate) fn admit(&mut self, operation: &Operation, until: SystemTime, late: bool) -> Admission {
        if let Some(refused) = self.fence_out(operation.fence(), &operation.words()) {
            return refused;
        }
        let key = operation.key();
        if let Some(busy) = self.busy() {
            return busy;
        }
        // Nothing is under way, so a higher fence may come in; it is kept before anything is done.
        self.highest = self.highest.max(operation.fence().0);
        if let Some(entry) = self.table.get(&key) {
            if entry.content.as_ref().is_some_and(|content| !content.same_content(operation)) {
                let what = format!("{} has the id of another operation; mint a new one", operation.words());
                return Admission::No(HostErrorKind::Refused, what);
            }
            return match &entry.state {
                EntryState::Over(outcome) => Admission::Over(outcome.clone()),
                EntryState::Barred => {
                    let what = format!("{} was settled as never begun and will not act", operation.words());
                    Admission::No(HostErrorKind::Refused, what)
                }
                // Not reached while somebody works on it; an entry without a worker is closed at a restart.
                EntryState::Begun => Admission::Wait(until),
            };
        }
        if late {
            let what =
                format!("{} comes after its deadline; read what is there and decide anew", operation.words());
            return Admission::No(HostErrorKind::Refused, what);
        }
        self.table.insert(key.clone(), Entry { content: Some(operation.clone()), state: EntryState::Begun });
        self.working = Some((key, until));
        Admission::Begin
    }

    /// Somebody wants to know for certain.
    pub(crate) fn settle(&mut self, operation: &Operation, fence: FenceValue) -> Result<Settled, Admission> {
        if let Some(refused) = self.fence_out(fence, &format!("settle {}", operation.words())) {
            return Err(refused);
        }
        if let Some(busy) = self.busy() {
            return Err(busy);
        }
        self.highest = self.highest.max(fence.0);
        let barred = Entry { content: Some(operation.clone()), state: EntryState::Barred };
        let entry = self.table.entry(operation.key()).or_insert(barred);
        Ok(match &entry.state {
            EntryState::Over(Ok(report)) => Settled::Done(report.clone()),
            EntryState::Over(Err((_, message))) => Settled::Failed(message.clone()),
            EntryState::Barred => Settled::NeverBegun,
            EntryState::Begun => Settled::Failed("the agent stopped in the middle of it".to_owned()),
        })
    }

    /// What it worked on is over.
    pub(crate) fn finish(&mut self, key: &Key, outcome: Outcome) {
        if self.working.as_ref().is_some_and(|(working, _)| working == key) {
            self.working = None;
        }
        if let Some(entry) = self.table.get_mut(key)
            && entry.state == EntryState::Begun
        {
            entry.state = EntryState::Over(outcome);
        }
    }

    /// The agent crashes: what was under way is closed as failed, and stays half done.
    pub(crate) fn crash(&mut self, back: SystemTime) -> Option<Key> {
        self.down_until = Some(back);
        let (key, _) = self.working.take()?;
        let what = "the agent stopped in the middle of it; read what is there".to_owned();
        self.finish(&key, Err((HostErrorKind::Failed, what)));
        Some(key)
    }

    pub(crate) fn works_on(&self, key: &Key) -> bool {
        self.working.as_ref().is_some_and(|(working, _)| working == key)
    }

    /// What it works on, if it changes anything.
    pub(crate) fn mutating(&self) -> Option<&Operation> {
        let (key, _) = self.working.as_ref()?;
        self.table.get(key)?.content.as_ref().filter(|operation| operation.mutates())
    }

    /// Forgets every operation but these and the one under way.
    pub(crate) fn forget_all_but(&mut self, open: &BTreeSet<HostOperationId>) {
        let working = self.working.as_ref().map(|(key, _)| key.clone());
        self.table.retain(|key, _| open.contains(&key.1) || working.as_ref() == Some(key));
    }

    /// Whether something is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.working.is_some()
    }

    /// What it remembers of an operation, in a word.
    pub(crate) fn remembers(&self, id: HostOperationId) -> &'static str {
        let entry = self.table.iter().find(|((_, other), _)| *other == id);
        match entry.map(|(_, entry)| &entry.state) {
            None => "nothing",
            Some(EntryState::Begun) => "begun",
            Some(EntryState::Over(Ok(_))) => "done",
            Some(EntryState::Over(Err(_))) => "failed",
            Some(EntryState::Barred) => "barred",
        }
    }

    /// The highest fence it has met.
    pub(crate) fn highest(&self) -> FenceValue {
        FenceValue(self.highest)
    }

    fn fence_out(&self, fence: FenceValue, what: &str) -> Option<Admission> {
        let highest = self.highest();
        (fence < highest).then(|| {
            let what = format!("{what} comes from a former holder of the lock; stop and read the lock");
            Admission::No(HostErrorKind::StaleFence { highest }, what)
        })
    }

    fn busy(&self) -> Option<Admission> {
        self.working.as_ref().map(|(_, until)| Admission::Wait(*until))
    }
}

/// An error of an agent, as its caller gets it.
pub(crate) fn error((kind, what): (HostErrorKind, String)) -> HostError {
    HostError::new(kind, what)
}
