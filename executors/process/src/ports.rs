//! Port reservations. They belong to slots, not to attempts, and are claimed in a directory that all runs of
//! the machine share, so that two runs never pick the same port. The claim file is the truth; one lock file
//! serialises all changes, each of which takes milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use executor_api::{LogicalNodeId, RunId};
use serde::{Deserialize, Serialize};

use crate::layout;

const PORTS: &str = "ports.json";
/// How long another run may hold the registry before a call gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ports of a slot by name.
pub type SlotPorts = BTreeMap<String, u16>;

/// Why ports could not be reserved. Nothing was taken that is not accounted for to its slot.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The registry or a slot's record cannot be read or written.
    #[error("cannot use the port reservations in {path}")]
    Registry {
        /// The directory or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the registry for too long.
    #[error("the port reservations in {path} stayed locked for {} s by another process; try again", PATIENCE.as_secs())]
    Locked {
        /// The registry.
        path: PathBuf,
    },
    /// None is left.
    #[error("no free port is left in {first}-{last} for slot {slot}; free some, or widen the port range")]
    Exhausted {
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
        /// The slot that went without.
        slot: LogicalNodeId,
    },
}

/// Who holds a port: the content of a claim file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    root: PathBuf,
    run: RunId,
    slot: LogicalNodeId,
    name: String,
}

/// The reservations of one run, in the registry that it shares with all others.
#[derive(Clone, Debug)]
pub struct Ports {
    registry: PathBuf,
    range: RangeInclusive<u16>,
    root: PathBuf,
}

impl Ports {
    /// Reservations for nodes below `root`, claimed in `registry` within `range`.
    pub fn new(registry: PathBuf, range: RangeInclusive<u16>, root: PathBuf) -> Self {
        Self { registry, range, root }
    }

    /// Reserves the named ports for each of the slots; what a slot holds already it keeps. Blocks for a few
    /// milliseconds. A port that a stranger listens on is passed over.
    pub fn reserve(
        &self,
        run: &RunId,
        slots: &[LogicalNodeId],
        names: &[String],
    ) -> Result<BTreeMap<LogicalNodeId, SlotPorts>, PortError> {
        let mut all = BTreeMap::new();
        let mut missing = Vec::new();
        for slot in slots {
            let held = self.recorded(run, slot)?;
            if names.iter().all(|name| held.contains_key(name)) {
                all.insert(slot.clone(), held);
            } else {
                missing.push(slot);
            }
        }
        if missing.is_empty() {
            return Ok(all);
        }
        let _lock = self.lock()?;
        let mut claims = self.claims()?;
        let mut candidates = self.range.clone();
        for slot in missing {
            let keep = layout::keep_dir(&self.root, run, slot);
            // The directory comes first: a claim without it counts as abandoned.
            layout::make_dir(&keep).map_err(|source| registry_error(&keep, source))?;
            let mut held: SlotPorts = claims
                .iter()
                .filter(|(_, claim)| self.is_of(claim, run, slot))
                .map(|(port, claim)| (claim.name.clone(), *port))
                .collect();
            for name in names {
                if held.contains_key(name) {
                    continue;
                }
                let port =
                    candidates.find(|port| is_free(*port, &claims)).ok_or_else(|| self.exhausted(slot))?;
                let claim = Claim {
                    root: self.root.clone(),
                    run: run.clone(),
                    slot: slot.clone(),
                    name: name.clone(),
                };
                layout::write_record(&self.registry, &port.to_string(), &claim)
                    .map_err(|source| registry_error(&self.registry, source))?;
                claims.insert(port, claim);
                held.insert(name.clone(), port);
            }
            layout::write_record(&keep, PORTS, &held).map_err(|source| registry_error(&keep, source))?;
            all.insert(slot.clone(), held);
        }
        Ok(all)
    }

    /// Frees the ports of every slot of the run for which `is_wanted` says no, and whatever else belongs to
    /// such a slot. Ports of slots whose directory is gone are freed too.
    pub fn retain(&self, run: &RunId, is_wanted: impl Fn(&LogicalNodeId) -> bool) -> Result<(), PortError> {
        if !self.registry.is_dir() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut dropped = BTreeSet::new();
        for (port, claim) in self.claims()? {
            if claim.root == self.root && claim.run == *run && !is_wanted(&claim.slot) {
                let path = self.registry.join(port.to_string());
                fs::remove_file(&path).map_err(|source| registry_error(&path, source))?;
                dropped.insert(claim.slot);
            }
        }
        for slot in dropped {
            let path = layout::keep_dir(&self.root, run, &slot).join(PORTS);
            match fs::remove_file(&path) {
                Err(error) if !layout::is_absent(&error) => return Err(registry_error(&path, error)),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The ports that a slot's own record names and the registry confirms.
    pub fn recorded(&self, run: &RunId, slot: &LogicalNodeId) -> Result<SlotPorts, PortError> {
        let keep = layout::keep_dir(&self.root, run, slot);
        let mut held: SlotPorts = layout::read_record(&keep, PORTS)
            .map_err(|source| registry_error(&keep, source))?
            .unwrap_or_default();
        held.retain(|name, port| {
            let claim: io::Result<Option<Claim>> = layout::read_record(&self.registry, &port.to_string());
            claim.ok().flatten().is_some_and(|claim| self.is_of(&claim, run, slot) && claim.name == *name)
        });
        Ok(held)
    }

    fn is_of(&self, claim: &Claim, run: &RunId, slot: &LogicalNodeId) -> bool {
        claim.root == self.root && claim.run == *run && claim.slot == *slot
    }

    fn claims(&self) -> Result<BTreeMap<u16, Claim>, PortError> {
        let read = || -> io::Result<BTreeMap<u16, Claim>> {
            let mut claims = BTreeMap::new();
            for entry in fs::read_dir(&self.registry)? {
                let name = entry?.file_name();
                let Some((name, port)) = name.to_str().and_then(|n| Some((n, n.parse().ok()?))) else {
                    continue;
                };
                if let Some(claim) = layout::read_record(&self.registry, name)? {
                    claims.insert(port, claim);
                }
            }
            Ok(claims)
        };
        read().map_err(|source| registry_error(&self.registry, source))
    }

    fn lock(&self) -> Result<File, PortError> {
        let open = || -> io::Result<File> {
            layout::make_dir(&self.registry)?;
            File::options().create(true).truncate(false).write(true).open(self.registry.join(".lock"))
        };
        let file = open().map_err(|source| registry_error(&self.registry, source))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(registry_error(&self.registry, source)),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    return Err(PortError::Locked { path: self.registry.clone() });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    fn exhausted(&self, slot: &LogicalNodeId) -> PortError {
        PortError::Exhausted { first: *self.range.start(), last: *self.range.end(), slot: slot.clone() }
    }
}

fn registry_error(path: &Path, source: io::Error) -> PortError {
    PortError::Registry { path: path.to_owned(), source }
}

fn is_free(port: u16, claims: &BTreeMap<u16, Claim>) -> bool {
    let claimed = claims.get(&port).is_some_and(|claim| {
        // A claim outlives its owner only if someone removed the owner's directory by hand.
        layout::keep_dir(&claim.root, &claim.run, &claim.slot).is_dir()
    });
    !claimed && is_bindable(port)
}

/// Whether nobody listens on the port now.
pub fn is_bindable(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        dir: tempfile::TempDir,
        range: RangeInclusive<u16>,
    }

    impl World {
        fn new(first: u16) -> Self {
            Self { dir: tempfile::tempdir().unwrap(), range: first..=first + 19 }
        }
        fn ports(&self, root: &str) -> Ports {
            let root = self.dir.path().join(root);
            fs::create_dir_all(&root).unwrap();
            Ports::new(self.dir.path().join("registry"), self.range.clone(), root)
        }
        fn claimed(&self) -> usize {
            let names = fs::read_dir(self.dir.path().join("registry")).unwrap();
            names.filter(|n| n.as_ref().unwrap().file_name().to_str().unwrap().parse::<u16>().is_ok()).count()
        }
    }

    fn run(uid: &str) -> RunId {
        RunId::new("demo", uid).unwrap()
    }

    fn slots(names: &[&str]) -> Vec<LogicalNodeId> {
        names.iter().map(|name| LogicalNodeId::parse(*name).unwrap()).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn all_ports(of: &BTreeMap<LogicalNodeId, SlotPorts>) -> BTreeSet<u16> {
        of.values().flat_map(BTreeMap::values).copied().collect()
    }

    #[test]
    fn a_slot_keeps_its_ports_and_later_slots_and_names_are_added() {
        let world = World::new(30_000);
        let ports = world.ports("a");
        let first = ports.reserve(&run("u"), &slots(&["n-0", "n-1"]), &names(&["x"])).unwrap();
        let again = ports.reserve(&run("u"), &slots(&["n-0", "n-1", "n-2"]), &names(&["x", "y"])).unwrap();
        for slot in slots(&["n-0", "n-1"]) {
            assert_eq!(first[&slot]["x"], again[&slot]["x"]);
        }
        assert_eq!(all_ports(&again).len(), 6);
        assert_eq!(again, ports.reserve(&run("u"), &slots(&["n-0", "n-1", "n-2"]), &names(&["y"])).unwrap());
    }

    #[test]
    fn two_runs_from_two_roots_never_share_a_port() {
        let world = World::new(30_020);
        let mine = world.ports("a").reserve(&run("u"), &slots(&["n-0", "n-1"]), &names(&["x"])).unwrap();
        let theirs = world.ports("b").reserve(&run("v"), &slots(&["n-0", "n-1"]), &names(&["x"])).unwrap();
        assert!(all_ports(&mine).is_disjoint(&all_ports(&theirs)));
    }

    #[test]
    fn ports_are_freed_with_their_slot_and_with_a_root_that_is_gone() {
        let world = World::new(30_040);
        let ports = world.ports("a");
        ports.reserve(&run("u"), &slots(&["n-0", "n-1"]), &names(&["x"])).unwrap();
        ports.retain(&run("other"), |_| false).unwrap();
        assert_eq!(world.claimed(), 2, "another run's uid frees nothing");
        ports.retain(&run("u"), |slot| slot.as_str() == "n-1").unwrap();
        assert_eq!(world.claimed(), 1);

        fs::remove_dir_all(world.dir.path().join("a")).unwrap();
        let other = world.ports("b");
        let all =
            other.reserve(&run("v"), &slots(&["n-0"]), &(0..20).map(|i| format!("p{i}")).collect::<Vec<_>>());
        assert_eq!(all_ports(&all.unwrap()).len(), 20, "the abandoned port is used again");
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_passed_over() {
        let world = World::new(30_060);
        let _stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 30_060)).unwrap();
        let ports = world.ports("a").reserve(&run("u"), &slots(&["n-0"]), &names(&["x"])).unwrap();
        assert_eq!(all_ports(&ports), BTreeSet::from([30_061]));
    }

    #[test]
    fn when_none_is_left_the_error_names_slot_and_range() {
        let world = World::new(30_080);
        let many: Vec<String> = (0..21).map(|i| format!("p{i}")).collect();
        let error = world.ports("a").reserve(&run("u"), &slots(&["n-0"]), &many).unwrap_err();
        assert!(error.to_string().contains("30080-30099 for slot n-0"), "{error}");
    }

    #[test]
    fn a_lost_registry_is_claimed_anew() {
        let world = World::new(30_100);
        let ports = world.ports("a");
        ports.reserve(&run("u"), &slots(&["n-0"]), &names(&["x"])).unwrap();
        fs::remove_dir_all(world.dir.path().join("registry")).unwrap();
        ports.reserve(&run("u"), &slots(&["n-0"]), &names(&["x"])).unwrap();
        assert_eq!(world.claimed(), 1);
    }
}
