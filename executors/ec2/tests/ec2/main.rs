//! The provider against a world that answers the real EC2 API. Every test asks the world itself what exists, and
//! has a region of it to itself.

mod bench;
mod world;

mod adoption;
mod killed;
mod lifecycle;
mod many;
mod preflight;
mod scenarios;
