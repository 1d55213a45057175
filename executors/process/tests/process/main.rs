//! The process executor against real processes, in one test program.

mod lifecycle;
mod scenarios;
mod slots;
mod support;
