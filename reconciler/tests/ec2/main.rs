//! The real binary against a world of EC2 on loopback, from the outside. After each step the world itself says what
//! exists, and it is exactly what should be there.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

#[path = "../e2e/doors.rs"]
#[expect(dead_code, reason = "the tests of local processes use the rest of it")]
mod doors;
mod fleet;
#[path = "../e2e/lab.rs"]
#[expect(dead_code, reason = "the tests of local processes use the rest of it")]
mod lab;

mod bad_input;
mod driven;
mod example;
mod kills;
mod lost_state;
mod mixed;
mod orphans;
mod over_ssh;
