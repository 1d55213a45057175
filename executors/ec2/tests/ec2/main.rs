//! The provider against a world that answers the real EC2 API. Every test asks the world itself what exists, and
//! has a region of it to itself.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed, and says where")]

mod bench;

use executor_ec2::conformance::world;

mod adoption;
mod driven;
mod killed;
mod lifecycle;
mod many;
mod preflight;
mod rights;
mod scenarios;
mod suite;
