//! Two doors to "another machine", both on loopback: OpenSSH's server, and `reconciler agent` as its users start it.
//! Each with keys of its own in a directory of its own, in which the sessions live too.
#![expect(clippy::unwrap_used, reason = "a test that cannot open its door has failed")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::lab::wait;

pub(crate) const TOKEN: &str = "the-token-of-the-agent-Tk7pQ2-never-to-be-seen";

/// A way in.
pub(crate) struct Door {
    dir: TempDir,
    server: Option<Child>,
    port: u16,
    via: &'static str,
    /// What follows `connect:`, without its port.
    connect: String,
}

impl Door {
    /// Both of them, by turns.
    pub(crate) fn all() -> Vec<Self> {
        [Self::ssh(), Some(Self::agent())].into_iter().flatten().collect()
    }

    /// An SSH server that takes one key. `None`, and a loud word, where there is no sshd; in CI that is a failure.
    pub(crate) fn ssh() -> Option<Self> {
        Self::ssh_at(&[])
    }

    /// The same, which listens at these addresses, too: every one of them is a machine of its own to whoever calls.
    pub(crate) fn ssh_at(addresses: &[String]) -> Option<Self> {
        if !Path::new("/usr/sbin/sshd").exists() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "CI needs the package openssh-server");
            eprintln!("SKIPPED, NOT RUN: /usr/sbin/sshd is missing; install openssh-server");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for name in ["host_key", "user_key", "stranger"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-N", "", "-t", "ed25519", "-f", &at(name)]).status();
            assert!(made.unwrap().success());
        }
        fs::copy(at("user_key.pub"), at("authorized")).unwrap();
        fs::create_dir(at("host")).unwrap();
        let port = free_port();
        let addresses = [&["127.0.0.1".to_owned()], addresses].concat().join("\nListenAddress ");
        // A shell below another one does not run what its user keeps for logins, which may take any time.
        let config = format!(
            "ListenAddress {addresses}\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nMaxStartups 100\nMaxSessions 100\nPermitRootLogin yes\nSetEnv SHLVL=2\n\
             ForceCommand cd {} && exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            at("host_key"),
            at("authorized"),
            at("host"),
        );
        fs::write(at("config"), config).unwrap();
        // The server insists on its directory for the separation of privileges.
        let _ = fs::create_dir_all("/run/sshd");
        let connect = format!("user: {}, key: {{ from_file: {} }}", account(), at("user_key"));
        let mut door = Self { server: None, port, via: "ssh", connect, dir };
        door.open();
        Some(door)
    }

    /// An agent on a token, without TLS.
    pub(crate) fn agent() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let connect = format!("token: {{ from_file: {} }}, plain: true", token.display());
        let mut door = Self { dir, server: None, port: free_port(), via: "agent", connect };
        door.open();
        door
    }

    /// An agent with a certificate of its own that is good until the end of this year.
    pub(crate) fn agent_until(year: i32) -> Self {
        let mut door = Self::agent();
        door.close();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["agent.test".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        fs::write(door.path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(door.path("key.pem"), key.serialize_pem()).unwrap();
        let (token, ca) = (door.path("token"), door.path("cert.pem"));
        door.connect = format!(
            "token: {{ from_file: {} }}, ca: {}, server_name: agent.test",
            token.display(),
            ca.display()
        );
        door.open();
        door
    }

    /// Starts the server, and waits until it listens.
    pub(crate) fn open(&mut self) {
        let mut command = if self.via == "ssh" {
            let mut command = Command::new("/usr/sbin/sshd");
            command.args(["-D", "-e", "-f"]).arg(self.path("config"));
            command
        } else {
            let mut command = Command::new(env!("CARGO_BIN_EXE_reconciler"));
            command.args(["agent", "--listen", &format!("127.0.0.1:{}", self.port)]);
            command.arg("--dir").arg(self.path("host")).arg("--token-file").arg(self.path("token"));
            if self.path("cert.pem").exists() {
                command
                    .arg("--certificate")
                    .arg(self.path("cert.pem"))
                    .arg("--key")
                    .arg(self.path("key.pem"));
            }
            command
        };
        let log = fs::File::create(self.path("log")).unwrap();
        let server = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn();
        self.server = Some(server.unwrap());
        wait("the server to listen", 20, || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Kills the server. Its sessions are not its children, and live on.
    pub(crate) fn close(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// The server's process.
    pub(crate) fn server(&mut self) -> &mut Child {
        self.server.as_mut().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn name(&self) -> &'static str {
        self.via
    }

    /// What the server said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// `via` and `connect`, to be put below `boot`.
    pub(crate) fn way(&self) -> String {
        self.way_with(&self.connect)
    }

    /// The same with other words for `connect`.
    pub(crate) fn way_with(&self, connect: &str) -> String {
        format!("via: {}\n      connect: {{ port: {}, {connect} }}", self.via, self.port)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// The account that runs the tests.
pub(crate) fn account() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A real `ssh-agent` that holds one key.
pub(crate) struct KeyAgent {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl KeyAgent {
    pub(crate) fn holding(key: &Path) -> Self {
        let socket = key.with_extension("sock");
        let mut child =
            Command::new("ssh-agent").args(["-D", "-a"]).arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
        let added = Command::new("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &socket).status();
        assert!(added.unwrap().success());
        Self { child, socket }
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A group of demo nodes that are leased here and bootstrapped through a door. `more` goes below `boot`.
pub(crate) fn far(run: &str, count: u32, way: &str, more: &str) -> String {
    format!(
        r#"run: {run}
groups:
  - name: far
    count: {count}
    provider: process
    shape: {{ ports: [http] }}
    boot:
      {way}
      start: ["{}", demo-node, --port, "{{port.http}}"]
      ready: {{ http: "http://{{host}}:{{port.http}}/healthz", every: 100ms }}
      stop: {{ grace: 2s }}
{more}
    join: {{ within: 60s }}
retry: {{ stable_after: 0s, initial: 200ms, cap: 1s, operation_timeout: 20s }}
"#,
        env!("CARGO_BIN_EXE_reconciler")
    )
}

/// The name of a test's run, which no other test on this machine has at the same time.
pub(crate) fn run_of(test: &str, door: &Door) -> String {
    format!("{test}-{}-{}", door.name(), std::process::id())
}

/// What is left of a run's sessions: programs, runners and whatever else.
pub(crate) fn left_of(run: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| {
            String::from_utf8_lossy(&fs::read(entry.path().join(file)).unwrap_or_default()).replace('\0', " ")
        };
        if read("environ").contains(&format!("RECONCILER_SESSION={run}-")) {
            found.push(format!("{}: {}", entry.file_name().to_string_lossy(), read("cmdline")));
        }
    }
    found
}
