//! The node lifecycle: declared slots, their attempts, and the one next step of each.
//!
//! Reading order: [`shape`] and [`state`] (what is compared), [`why`] and [`plan`] (what is said about it),
//! [`node`] (one node's step), [`reconcile`] (all of them), [`apply`] and [`fold`] (the two transitions),
//! [`interrupt`] (what a driver that dies leaves), [`hold`] (what stops them), [`policy`] (how long to wait), [`check`] (what must always be true).

pub mod apply;
pub mod check;
pub mod fold;
pub mod hold;
pub mod interrupt;
pub mod node;
pub mod plan;
pub mod policy;
pub mod reconcile;
pub mod shape;
pub mod state;
pub mod why;
