//! One try of one probe: a connection, or one request and the beginning of its answer. Never retries, never
//! takes longer than it may, never holds more than 64 KiB.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How much of an answer is looked at.
const ANSWER_LIMIT: usize = 64 * 1024;

/// A probe of one attempt, ready to be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is tried.
    pub check: Check,
    /// Time between two tries.
    pub every: Duration,
    /// How long one try may take.
    pub timeout: Duration,
}

/// What a probe tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A connection is accepted.
    Tcp(TcpTarget),
    /// A request is answered with a status from 200 to 399, and with this text if there is one.
    Http {
        /// What is asked.
        target: HttpTarget,
        /// What the answer must hold.
        contains: Option<String>,
    },
}

/// Where a connection is made to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTarget {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// What is asked of a web server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTarget {
    /// Where it is.
    pub server: TcpTarget,
    /// Path and query, beginning with a slash.
    pub path: String,
}

/// Why a try did not pass, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure(pub String);

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Probe {
    /// Tries once, within [`Probe::timeout`].
    pub async fn once(&self) -> Result<(), ProbeFailure> {
        match timeout(self.timeout, self.check.once()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(ProbeFailure(format!("{}: {reason}", self.check))),
            Err(_) => Err(ProbeFailure(format!("{}: no answer within {:?}", self.check, self.timeout))),
        }
    }
}

impl Check {
    async fn once(&self) -> Result<(), String> {
        match self {
            Self::Tcp(target) => target.accepts().await,
            Self::Http { target, contains } => target.answers(contains.as_deref()).await,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(target) => write!(f, "tcp {target}"),
            Self::Http { target, .. } => write!(f, "http://{}{}", target.server, target.path),
        }
    }
}

impl fmt::Display for TcpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TcpTarget {
    /// Reads `HOST:PORT`; an IPv6 address may stand in brackets.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| wrong())?;
        let blank = |c: char| c.is_whitespace() || c.is_control() || c == '/';
        if host.is_empty() || host.contains(blank) || port == 0 {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Whether a connection is accepted; why not. Takes as long as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why not, for an operator.
    pub async fn accepts(&self) -> Result<(), String> {
        self.connect().await.map(drop)
    }

    async fn connect(&self) -> Result<TcpStream, String> {
        TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())
    }
}

impl HttpTarget {
    /// Reads `http://HOST[:PORT][/PATH]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").ok_or_else(|| {
            format!("{text:?} does not begin with http://; use a tcp probe for what speaks TLS")
        })?;
        let (server, path) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('/') => (&rest[..at], rest[at..].to_owned()),
            Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
            None => (rest, "/".to_owned()),
        };
        let named = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let server = if named { server.to_owned() } else { format!("{server}:80") };
        if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(format!("the path of {text:?} holds a blank; write %20"));
        }
        Ok(Self { server: TcpTarget::parse(&server)?, path })
    }

    /// Whether a request is answered with a status from 200 to 399, and with this text if there is one. Takes as long
    /// as it takes: the caller sets the limit.
    ///
    /// # Errors
    /// Why not, for an operator.
    pub async fn answers(&self, contains: Option<&str>) -> Result<(), String> {
        let mut stream = self.server.connect().await?;
        // Version 1.0 asks for an answer in one piece that ends with the connection.
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: reconciler\r\nConnection: close\r\n\r\n",
            self.path, self.server
        );
        let wrong = |error: std::io::Error| error.to_string();
        stream.write_all(request.as_bytes()).await.map_err(wrong)?;
        let mut answer = Vec::new();
        loop {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).await.map_err(wrong)?;
            answer.extend_from_slice(&part[..n]);
            let ended = n == 0 || answer.len() >= ANSWER_LIMIT;
            if let Some(verdict) = judge(&answer, ended, contains) {
                return verdict;
            }
        }
    }
}

/// What the beginning of an answer says; `None` while more of it is needed.
fn judge(answer: &[u8], ended: bool, contains: Option<&str>) -> Option<Result<(), String>> {
    let Some(line_end) = answer.windows(2).position(|two| two == b"\r\n") else {
        return ended.then(|| Err("the answer is not HTTP".to_owned()));
    };
    let line = String::from_utf8_lossy(&answer[..line_end]);
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|code| code.parse::<u16>().ok());
    let Some(status) = status else { return Some(Err("the answer is not HTTP".to_owned())) };
    if !(200..400).contains(&status) {
        return Some(Err(format!("answered {status}")));
    }
    let Some(wanted) = contains else { return Some(Ok(())) };
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| &answer[at + 4..]);
    if body.is_some_and(|body| body.windows(wanted.len().max(1)).any(|part| part == wanted.as_bytes())) {
        return Some(Ok(()));
    }
    ended.then(|| Err(format!("answered {status} without the text {wanted:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Serves one answer to the first who asks.
    async fn serve(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
        });
        port
    }

    async fn http(answer: &'static [u8], contains: Option<&str>) -> Result<(), String> {
        let port = serve(answer).await;
        let target = HttpTarget::parse(&format!("http://127.0.0.1:{port}/healthz")).unwrap();
        let check = Check::Http { target, contains: contains.map(str::to_owned) };
        let probe = Probe { check, every: Duration::from_secs(1), timeout: Duration::from_secs(5) };
        probe.once().await.map_err(|failure| failure.0.split_once(": ").unwrap().1.to_owned())
    }

    #[test]
    fn targets_are_read_or_refused() {
        let target = TcpTarget::parse("[::1]:80").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.to_string().as_str()), ("::1", 80, "[::1]:80"));
        for bad in ["host", "host:", ":80", "host:x", "host:0", "a b:1", "host:70000"] {
            assert!(TcpTarget::parse(bad).is_err(), "{bad:?} was taken");
        }
        let target = HttpTarget::parse("http://h?x=1").unwrap();
        assert_eq!((target.server.port, target.path.as_str()), (80, "/?x=1"));
        for bad in ["https://h/", "h:80/", "http:///x", "http://h/a b", "http://h/a\r\nX: y"] {
            assert!(HttpTarget::parse(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[tokio::test]
    async fn a_status_from_200_to_399_passes() {
        assert_eq!(http(b"HTTP/1.1 204 No Content\r\n\r\n", None).await, Ok(()));
        assert_eq!(http(b"HTTP/1.1 503 Busy\r\n\r\n", None).await, Err("answered 503".into()));
        assert_eq!(http(b"SSH-2.0-x\r\n", None).await, Err("the answer is not HTTP".into()));
    }

    #[tokio::test]
    async fn a_text_is_looked_for_in_the_body_alone() {
        let answer = b"HTTP/1.1 200 OK\r\nX: secret\r\n\r\nhello nonce-1";
        assert_eq!(http(answer, Some("nonce-1")).await, Ok(()));
        let without = http(answer, Some("secret")).await.unwrap_err();
        assert!(without.contains("without the text"), "{without}");
    }

    #[tokio::test]
    async fn nobody_there_is_a_failure_that_names_the_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = TcpTarget { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let place = target.to_string();
        let probe =
            Probe { check: Check::Tcp(target), every: Duration::ZERO, timeout: Duration::from_secs(5) };
        assert_eq!(probe.once().await, Ok(()));
        drop(listener);
        assert!(probe.once().await.unwrap_err().0.contains(&place));
    }
}
