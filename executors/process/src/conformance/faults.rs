//! What really goes wrong on a machine: a locked or broken port registry, ports used up, directories that cannot
//! be read, killed programs, directories removed by hand. What cannot happen here says why not.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use conformance::{CannotInject, Injection};
use executor_api::{ExecutorErrorKind, LeaseId, LogicalNodeId, RejectReason, RunId};
use rustix::process::geteuid;

use super::ProcessHarness;
use crate::executor::SessionLife;
use crate::layout::{self, SessionRecord, file};
use crate::ports::Ports;
use crate::processes;

/// What must be put right again.
#[derive(Debug, Default)]
pub(super) struct Disturbed {
    /// Holds the port registry.
    lock: Option<File>,
    /// Where the nodes directory was moved out of the way.
    away: Option<PathBuf>,
    /// A file stands in the place of the port registry.
    registry: bool,
    /// The nodes directory may not be written.
    mode: bool,
}

impl ProcessHarness {
    pub(super) async fn cause(&self, fault: Injection) -> Result<(), CannotInject> {
        if self.losses.cause(&fault) {
            return Ok(());
        }
        let caused = match fault {
            Injection::LoseCreateAnswer | Injection::SwallowCreate | Injection::LoseStartAnswer => Ok(()),
            Injection::SlowCreate => self.lock_registry(),
            Injection::RefuseCreate(kind) => self.refuse(kind)?,
            Injection::FailReads => self.loop_root(),
            Injection::RemoveByHand(lease) => fs::remove_dir_all(self.config.root.join(&lease.0)),
            Injection::Kill(lease) => self.kill(&lease).await,
            Injection::Heal => {
                self.heal();
                Ok(())
            }
            Injection::LandCreateLate => return cannot("a directory is there before its create has ended"),
            Injection::MakeTwice => {
                return cannot("an attempt's directory has one name, and a name is one place");
            }
            Injection::HalveListing => return cannot("a directory is read as a whole or not at all"),
            Injection::WithholdEndpoint => return cannot("a node's ports are reserved before it is made"),
            Injection::ExpireCredentials => return cannot("a machine asks its user for no credentials"),
            Injection::GarbleCreate => return cannot("the answers of a file system are all known"),
            Injection::ThrottleReads => return cannot("a file system refuses nobody for asking often"),
            Injection::SmallPages | Injection::EmptyPage | Injection::ShiftPages => {
                return cannot("a directory has no pages");
            }
            Injection::Move(_) => {
                return cannot("a local node stays on its machine, and its ports stay with the slot");
            }
            other => return cannot(&format!("a machine knows no such thing as {other:?}")),
        };
        caused.map_err(|error| CannotInject::because(format!("the machine does not let it happen: {error}")))
    }

    /// Puts everything right that was disturbed.
    pub(super) fn heal(&self) {
        self.losses.heal();
        let Disturbed { lock, away, registry, mode } = std::mem::take(&mut *self.disturbed());
        drop(lock);
        // What cannot be put right fails the case that needs it.
        if let Some(away) = away {
            let _ = fs::remove_file(&self.config.root).and_then(|()| fs::rename(away, &self.config.root));
        }
        if registry {
            let _ = fs::remove_file(&self.config.port_registry);
        }
        if mode {
            let _ = fs::set_permissions(&self.config.root, fs::Permissions::from_mode(0o700));
        }
    }

    fn disturbed(&self) -> std::sync::MutexGuard<'_, Disturbed> {
        self.disturbed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process sits on the port registry.
    fn lock_registry(&self) -> io::Result<()> {
        let registry = &self.config.port_registry;
        layout::make_dir(registry)?;
        let file = File::options().create(true).truncate(false).write(true).open(registry.join(".lock"))?;
        file.lock()?;
        self.disturbed().lock = Some(file);
        Ok(())
    }

    fn refuse(&self, kind: ExecutorErrorKind) -> Result<io::Result<()>, CannotInject> {
        Ok(match kind {
            ExecutorErrorKind::Unavailable => {
                self.disturbed().registry = true;
                fs::write(&self.config.port_registry, "not a directory")
            }
            ExecutorErrorKind::Rejected(RejectReason::Capacity) => self.use_up_ports(),
            ExecutorErrorKind::Rejected(RejectReason::Authorisation) if geteuid().is_root() => {
                return cannot("the suite runs as root, who may do everything");
            }
            ExecutorErrorKind::Rejected(RejectReason::Authorisation) => {
                self.disturbed().mode = true;
                layout::make_dir(&self.config.root)
                    .and_then(|()| fs::set_permissions(&self.config.root, fs::Permissions::from_mode(0o500)))
            }
            ExecutorErrorKind::Rejected(RejectReason::Quota) => {
                return cannot("a directory is not counted against anybody's quota here");
            }
            ExecutorErrorKind::Rejected(RejectReason::Validation) => {
                return cannot("a sound spec stays sound on the same machine");
            }
            ExecutorErrorKind::Throttled { .. } => return cannot("a machine does not throttle its user"),
            ExecutorErrorKind::Gone | ExecutorErrorKind::Ambiguous => {
                return cannot(&format!("{kind} is no refusal"));
            }
        })
    }

    /// Another run takes every port that there is.
    fn use_up_ports(&self) -> io::Result<()> {
        let crowd = self.dir.path().join("crowd");
        layout::make_dir(&crowd)?;
        let ports = Ports::new(self.config.port_registry.clone(), self.config.port_range.clone(), crowd);
        let run = RunId::new("crowd", self.uid.clone()).map_err(io::Error::other)?;
        let slot = LogicalNodeId::parse("crowd-0").map_err(io::Error::other)?;
        // One by one, so that a port that a stranger has does not matter.
        let mut name = 0;
        while ports.reserve(&run, std::slice::from_ref(&slot), &[format!("p{name}")]).is_ok() {
            name += 1;
        }
        Ok(())
    }

    /// The nodes directory leads to itself, as a broken mount might: it can neither be read nor called absent.
    fn loop_root(&self) -> io::Result<()> {
        let away = self.dir.path().join("nodes.away");
        layout::make_dir(&self.config.root)?;
        fs::rename(&self.config.root, &away)?;
        self.disturbed().away = Some(away);
        symlink(&self.config.root, &self.config.root)
    }

    /// Kills the node's program with SIGKILL and waits until its supervisor has seen it: not before is the lease
    /// dead in anybody's eyes.
    async fn kill(&self, lease: &LeaseId) -> io::Result<()> {
        let dir = self.config.root.join(&lease.0);
        let program = program_of(&dir)?;
        processes::kill(program)?;
        let until = Instant::now() + Duration::from_secs(20);
        while !matches!(SessionLife::read(&dir)?, SessionLife::Ended(_)) {
            if Instant::now() > until {
                return Err(io::Error::other("the program's end was not noticed"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

fn program_of(dir: &Path) -> io::Result<processes::ProcessId> {
    let session = layout::read_record::<SessionRecord>(dir, file::SESSION)?;
    session.and_then(|session| session.program).ok_or_else(|| io::Error::other("no program runs there"))
}

fn cannot<T>(why: &str) -> Result<T, CannotInject> {
    Err(CannotInject::because(why))
}
