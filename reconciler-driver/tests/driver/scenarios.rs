//! Things that have happened to people who run such systems, each with the right behaviour. The letters are
//! those of the list of field scenarios; time is virtual, and the world is asked what is true.

mod clocks;
mod creates;
mod outages;
mod teardown;
