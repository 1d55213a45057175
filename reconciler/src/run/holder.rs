//! Who holds a run's lock: what the lock's file says, so that people and other hosts know whom to ask. The lock
//! itself is the kernel's; nothing here decides whether it is held.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::cli::failure::Failure;
use crate::run::uid;

/// The kernel's ticks per second in `/proc`, the same on every Linux that this program is built for.
const TICKS: i64 = 100;

/// One process that drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Holder {
    /// The process.
    pub(crate) pid: u32,
    /// When the process started, RFC 3339: an id comes again, an id of that second hardly.
    pub(crate) started: String,
    /// Since when it holds the lock, RFC 3339.
    pub(crate) since: String,
    /// Its host.
    pub(crate) host: String,
    /// The host's boot: what held a lock before the last one holds nothing.
    pub(crate) boot: String,
    /// Drawn anew by each holder.
    pub(crate) nonce: String,
}

impl Holder {
    /// This process.
    pub(crate) fn me() -> Result<Self, Failure> {
        Ok(Self {
            pid: std::process::id(),
            started: started().map(|at| rfc3339(&at)).unwrap_or_default(),
            since: rfc3339(&jiff::Timestamp::now()),
            host: kernel("hostname"),
            boot: kernel("random/boot_id"),
            nonce: uid::mint()?,
        })
    }

    /// Whether it ran where its lock cannot be seen from here: on another host, under another kernel. Containers of
    /// one host share their kernel, and a host that was started anew has kept its name.
    pub(crate) fn is_elsewhere(&self) -> bool {
        let known = |text: &str| !text.is_empty();
        known(&self.host)
            && known(&self.boot)
            && self.host != kernel("hostname")
            && self.boot != kernel("random/boot_id")
    }
}

/// As it is named to people.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, started, since, host, nonce, .. } = self;
        write!(f, "process {pid}")?;
        if !host.is_empty() {
            write!(f, " on {host}")?;
        }
        if !started.is_empty() {
            write!(f, ", which started at {started}")?;
        }
        write!(f, " and holds the run since {since} (holder {nonce})")
    }
}

fn rfc3339(at: &jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What the kernel says of this host.
fn kernel(what: &str) -> String {
    fs::read_to_string(format!("/proc/sys/kernel/{what}")).unwrap_or_default().trim().to_owned()
}

/// When this process started, to the second.
fn started() -> Option<jiff::Timestamp> {
    let line = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = line.rsplit_once(')')?;
    let ticks: i64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    jiff::Timestamp::from_second(boot.checked_add(ticks / TICKS)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_elsewhere_only_under_another_kernel_of_another_name() {
        let me = Holder::me().unwrap();
        assert!(!me.is_elsewhere());
        assert!(
            !Holder { host: "other".to_owned(), ..me.clone() }.is_elsewhere(),
            "a container of this host"
        );
        assert!(
            !Holder { boot: "other".to_owned(), ..me.clone() }.is_elsewhere(),
            "before this host was restarted"
        );
        assert!(!Holder::default().is_elsewhere(), "nothing is known of it");
        assert!(Holder { host: "other".to_owned(), boot: "other".to_owned(), ..me }.is_elsewhere());
    }

    #[test]
    fn a_process_knows_when_it_started() {
        let ago = jiff::Timestamp::now().as_second() - started().unwrap().as_second();
        assert!((0..24 * 3600).contains(&ago), "{ago} s ago");
    }
}
