//! OpenSSH's server on loopback, a process of its own with keys and configuration in a temporary directory, and a
//! cable in front of it that can be cut.

#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    reason = "test code, of which each test crate uses its own part"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bootstrap_hosted::{HostedBootstrapper, HostedConfig};
use bootstrap_ssh::{SshConnect, SshTransport};
use executor_api::{Bootstrapper, Endpoint, EndpointAuth, SecretRef};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::{PATIENCE, World, until};

/// Whether sshd can be used here. Says so loudly if not; with `CI=true` that is a failure.
pub fn is_there() -> bool {
    let there = Path::new("/usr/sbin/sshd").exists() && which("ssh-keygen");
    assert!(there || std::env::var("CI").as_deref() != Ok("true"), "CI needs the package openssh-server");
    if !there {
        eprintln!("SKIPPED, NOT RUN: /usr/sbin/sshd or ssh-keygen is missing; install openssh-server");
    }
    there
}

fn which(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().unwrap().success()
}

fn keygen(path: &Path, kind: &str) {
    let made = Command::new("ssh-keygen").args(["-q", "-N", "", "-t", kind, "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

pub struct SshWorld {
    pub dir: tempfile::TempDir,
    pub port: u16,
    pub server: Option<Child>,
    cable: Option<Cable>,
    /// Added to every `connect`.
    pub connect: Value,
    pub denied_for: Duration,
    /// The account to log in to.
    pub account: String,
    /// Whether the lease's endpoint names a key.
    pub with_key: bool,
    /// An account that was made for this world alone.
    scratch: Option<Scratch>,
}

/// An account of the machine that ends with its world.
struct Scratch(String);

impl Scratch {
    fn new(home: &Path) -> Self {
        let name = format!("scratch{}", std::process::id());
        // `*` is no password and, unlike `!`, no lock.
        let mut useradd = Command::new("useradd");
        useradd.args(["-M", "-N", "-s", "/bin/sh", "-p", "*", "-d"]).arg(home).arg(&name);
        assert!(useradd.status().unwrap().success());
        Self(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Command::new("userdel").args(["-f", &self.0]).stderr(Stdio::null()).status();
    }
}

/// The account that runs the tests.
fn own_account() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl SshWorld {
    pub async fn new() -> Option<Self> {
        Self::with("").await
    }

    /// A server with further lines of configuration.
    pub async fn with(configuration: &str) -> Option<Self> {
        if !is_there() {
            return None;
        }
        let mut world = Self::prepared(configuration);
        world.cable = Some(Cable::to(world.port).await);
        world.serve().await;
        Some(world)
    }

    /// A server that lets in an account without rights: one made for this world, or whoever runs the tests if that is
    /// nobody special.
    pub async fn unprivileged() -> Option<Self> {
        let mut world = Self::new().await?;
        if world.account == "root" {
            let host = world.dir.path().join("host");
            let scratch = Scratch::new(&host);
            world.account.clone_from(&scratch.0);
            // The server reads the list of keys as the account, which must get at its own directory too.
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
            std::fs::set_permissions(world.dir.path(), open).unwrap();
            let given = Command::new("chown").arg(&scratch.0).arg(&host).status();
            assert!(given.unwrap().success());
            world.scratch = Some(scratch);
        }
        Some(world)
    }

    /// A server whose lease names no key, so that the agent's are used.
    pub async fn by_agent() -> Option<Self> {
        let mut world = Self::new().await?;
        world.with_key = false;
        world.connect = json!({ "user": world.account, "agent": true });
        Some(world)
    }

    /// How to get in, as the bootstrapper reads it.
    pub fn connect_settings(&self) -> SshConnect {
        serde_json::from_value(self.connect.clone()).unwrap()
    }

    /// A server that is reached directly. Blocks until it answers.
    pub fn without_cable() -> Self {
        let mut world = Self::prepared("");
        world.spawn();
        let end = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", world.port)).is_err() {
            assert!(Instant::now() < end, "{}", world.log());
            std::thread::yield_now();
        }
        world
    }

    /// Keys and configuration, and no server yet.
    fn prepared(configuration: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("host")).unwrap();
        keygen(&at("host_key"), "ed25519");
        keygen(&at("user_key"), "ed25519");
        std::fs::copy(at("user_key.pub"), at("authorized")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // A shell below another one does not run what its user keeps for logins, which may take any time.
        let text = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nMaxStartups 100\nMaxSessions 100\nPermitRootLogin yes\nPasswordAuthentication yes\n\
             SetEnv SHLVL=2\nForceCommand cd {} && exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n{configuration}\n",
            at("host_key").display(),
            at("authorized").display(),
            at("host").display(),
        );
        std::fs::write(at("config"), text).unwrap();
        // The server insists on its directory for the separation of privileges.
        let _ = std::fs::create_dir_all("/run/sshd");
        Self {
            dir,
            port,
            server: None,
            cable: None,
            connect: json!({}),
            denied_for: Duration::from_secs(90),
            account: own_account(),
            with_key: true,
            scratch: None,
        }
    }

    /// Starts the server, and waits until it answers.
    pub async fn serve(&mut self) {
        self.spawn();
        let up = until(|| std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()).await;
        assert!(up.is_some(), "{}", self.log());
    }

    fn spawn(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(self.dir.path().join("config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.server = Some(server);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Breaks every connection there is.
    pub fn cut(&self) {
        self.cable.as_ref().expect("this world has a cable").cut();
    }

    /// Lets so many bytes through to the host, and then breaks.
    pub fn break_after(&self, bytes: u64) {
        self.cable.as_ref().expect("this world has a cable").bytes.store(bytes, Ordering::SeqCst);
    }

    /// Stops the server itself; its connections live on, as with any restart of the service.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Gives the host another key.
    pub fn change_host_key(&self) {
        for file in ["host_key", "host_key.pub"] {
            std::fs::remove_file(self.dir.path().join(file)).unwrap();
        }
        keygen(&self.dir.path().join("host_key"), "ed25519");
    }

    pub fn public_host_key(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("host_key.pub")).unwrap()
    }

    pub fn key(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        if !path.exists() {
            keygen(&path, if name.contains("rsa") { "rsa" } else { "ed25519" });
        }
        path
    }
}

impl World for SshWorld {
    fn instance(&self) -> Arc<dyn Bootstrapper> {
        let config = HostedConfig {
            poll: Duration::from_millis(100),
            watch: Duration::from_millis(300),
            denied_for: self.denied_for,
            late_landing: Duration::from_secs(2),
            ..HostedConfig::new(self.dir.path().join("records"))
        };
        Arc::new(HostedBootstrapper::new(SshTransport::default(), config))
    }

    fn endpoint(&self) -> Endpoint {
        let key = SecretRef::FromFile(self.dir.path().join("user_key"));
        let auth = EndpointAuth::Key { user: self.account.clone(), key };
        Endpoint {
            host: "127.0.0.1".into(),
            port: self.cable.as_ref().map_or(self.port, |cable| cable.port),
            auth: if self.with_key { auth } else { EndpointAuth::None },
            ports: [].into(),
        }
    }

    fn settings(&self, mut boot: Value) -> Value {
        boot["connect"] = self.connect.clone();
        boot
    }
}

impl Drop for SshWorld {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a test of this file anew in a process that knows an agent without keys; `true` in that process itself. Nothing
/// is run without a server.
pub fn has_agent(test: &str) -> bool {
    const MARK: &str = "TEST_HAS_AGENT";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    if !is_there() {
        return false;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent");
    let mut agent = Command::new("ssh-agent");
    agent.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null());
    let mut agent = agent.spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while !socket.exists() && Instant::now() < end {
        std::thread::yield_now();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture", test]).env("SSH_AUTH_SOCK", &socket).env(MARK, "1");
    let ended = again.status();
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert!(ended.unwrap().success(), "{test} failed in the process that has an agent");
    false
}

/// Gives a key to the agent of this process.
pub fn add_to_agent(key: &Path) {
    assert!(Command::new("ssh-add").arg("-q").arg(key).status().unwrap().success());
}

/// Carries connections to a port until it is cut; new ones are carried again.
struct Cable {
    port: u16,
    cut: watch::Sender<u64>,
    /// How many bytes every connection carries to the host.
    bytes: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Cable {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (cut, cuts) = watch::channel(0);
        let bytes = Arc::new(AtomicU64::new(u64::MAX));
        let limit = Arc::clone(&bytes);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                let limit = limit.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let (from_near, mut to_near) = near.split();
                    let (mut from_far, mut to_far) = far.split();
                    let mut from_near = from_near.take(limit);
                    tokio::select! {
                        _ = tokio::io::copy(&mut from_near, &mut to_far) => {}
                        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Self { port: own, cut, bytes, task }
    }

    fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}
