//! The real binary against real processes, from the outside: what its user sees.

#[cfg(feature = "host-fake")]
mod arbiter;
mod disks;
mod doors;
mod durability;
mod etcd;
mod examples;
mod failures;
mod far;
mod far_refusals;
mod kills;
mod lab;
mod life;
mod plan;
mod refusals;
mod secrets;
mod watch;
