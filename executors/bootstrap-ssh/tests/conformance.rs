//! The shared suite's cases of sessions, over a real SSH server.

mod sshd;
#[path = "../../bootstrap-hosted/tests/support/suite.rs"]
mod suite;
#[path = "../../bootstrap-hosted/tests/support/mod.rs"]
mod support;

#[test]
fn sessions_over_ssh_pass_the_suite() {
    if sshd::is_there() {
        suite::run(sshd::SshWorld::without_cable);
    }
}
