//! A run on this machine: its directory, its lock, its state, and the process that drives it.
//!
//! [`dir`] and [`lock`] say where it is and who drives it, [`state`] what is stored, [`intent`] what comes next;
//! [`plans`] is what maintenance holds of it; [`live`] is a run that this process drives, [`server`] and [`client`] are the two ends of its socket.

pub(crate) mod adopt;
pub(crate) mod client;
pub(crate) mod dir;
pub(crate) mod holder;
pub(crate) mod intent;
pub(crate) mod live;
pub(crate) mod lock;
pub(crate) mod plans;
pub(crate) mod protocol;
pub(crate) mod remove;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod uid;
