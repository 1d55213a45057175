//! A node to try things with, built into the binary: a web server that answers `/healthz`, and that can be told
//! to become ready late or to exit. Hidden from `--help`; the examples and the tests use it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use reconciler::file::DurationText;

use super::args::duration;

/// `reconciler demo-node`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port to serve on, at 127.0.0.1.
    #[arg(long)]
    port: u16,
    /// Answer 503 until this much time has passed.
    #[arg(long, value_parser = duration)]
    ready_after: Option<DurationText>,
    /// Exit by itself after this much time.
    #[arg(long, value_parser = duration)]
    exit_after: Option<DurationText>,
    /// The status to exit with.
    #[arg(long, default_value_t = 0)]
    exit_status: u8,
}

/// Serves until it is killed, or exits when told to.
pub(crate) fn run(args: &Args) -> ExitCode {
    let started = Instant::now();
    println!("demo node {} starts", std::env::var("RECONCILER_NODE").unwrap_or_default());
    if let Some(after) = args.exit_after {
        let status = args.exit_status;
        std::thread::spawn(move || {
            std::thread::sleep(after.0);
            println!("demo node exits with status {status}");
            std::process::exit(i32::from(status));
        });
    }
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("demo node cannot listen on 127.0.0.1:{}: {error}", args.port);
            return ExitCode::FAILURE;
        }
    };
    println!("demo node listens on 127.0.0.1:{}", args.port);
    for stream in listener.incoming().flatten() {
        let ready = args.ready_after.is_none_or(|after| started.elapsed() >= after.0);
        // A client that breaks off is no concern of the server.
        let _ = answer(stream, ready);
    }
    ExitCode::SUCCESS
}

fn answer(mut stream: TcpStream, ready: bool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 8192 {
        match stream.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let path = request.split(|b| *b == b' ').nth(1).unwrap_or_default();
    let (status, body) = match path {
        b"/healthz" if ready => ("200 OK", "ok\n".to_owned()),
        b"/healthz" => ("503 Service Unavailable", "not ready yet\n".to_owned()),
        b"/" => {
            let name = |key| std::env::var(key).unwrap_or_else(|_| "?".to_owned());
            ("200 OK", format!("{} a{}\n", name("RECONCILER_NODE"), name("RECONCILER_ATTEMPT")))
        }
        _ => ("404 Not Found", "try /healthz\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}
