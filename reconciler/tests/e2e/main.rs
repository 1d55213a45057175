//! The real binary against real processes, from the outside: what its user sees.

mod disks;
#[cfg(feature = "host-fake")]
mod arbiter;
mod durability;
mod etcd;
mod failures;
mod kills;
mod lab;
mod life;
mod plan;
mod refusals;
mod secrets;
mod watch;
