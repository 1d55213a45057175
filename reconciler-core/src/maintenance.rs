//! Gated plans: dangerous work on hosts that already exist, one proved step at a time. The first plan flips a
//! storage bond under replicated storage and running virtual machines.
//!
//! ```text
//!   plan + state + observed + now ──advance──► step ──apply──► effect ──► hosts, machines, lock
//!                  ▲                                                          │
//!                  └────────────────────── fold ◄──────── outcome ◄───────────┘
//! ```
//!
//! Reading order: [`plan`] (what was approved), [`state`] (how far it is), [`observed`] (what was read this
//! time), [`verdict`] and [`gate`] (evidence to "pass" or "no"), [`step`] and [`mod@advance`] (the one next step),
//! [`mod@apply`] and [`mod@fold`] (the two transitions), [`restart`] (what a new process makes of stored times),
//! [`escalation`] (the question to a person, and the reply), [`check`] (what must always be true).
//!
//! Nothing here trusts a success: phases move on what was read back, and on nothing else.

pub mod advance;
pub mod apply;
pub mod check;
pub mod escalation;
pub mod fold;
pub mod gate;
pub mod observed;
pub mod plan;
pub mod restart;
pub mod state;
pub mod step;
pub mod verdict;

pub use advance::advance;
pub use apply::{Applied, StepRefused, apply};
pub use escalation::{Answer, Escalation, Reply, ReplyRefused, respond};
pub use fold::{Dropped, EffectDone, Folded, PlanObservation, fold};
pub use observed::Observed;
pub use plan::{BondFlipPlan, IoPolicy, Pace, PlanProblem};
pub use restart::restarted;
pub use state::{
    AgentName, EndedOperation, PendingOperation, Person, Phase, PlanState, PreConnect, Recorded, Recovery,
    RollbackStage,
};
pub use step::{Act, Effect, HaltReason, LinkFailures, LockAction, Move, Step, Why};
pub use verdict::{Finding, FindingKind, Proof, Subject, Verdict};
