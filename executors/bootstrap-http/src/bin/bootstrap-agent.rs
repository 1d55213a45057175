//! The node agent by itself, for machines without the reconciler's own binary, and for the tests:
//! `bootstrap-agent LISTEN DIR TOKEN_FILE [CERTIFICATE KEY]`.

use std::path::PathBuf;
use std::process::ExitCode;

use bootstrap_http::{Agent, AgentConfig, AgentError, AgentTls};
use executor_api::SecretRef;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(config) = config(&arguments) else {
        eprintln!("usage: bootstrap-agent ADDRESS:PORT DIR TOKEN_FILE [CERTIFICATE KEY]");
        return ExitCode::from(64);
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            eprintln!("{error}{}", cause.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

fn config(arguments: &[String]) -> Option<AgentConfig> {
    let (listen, dir, token, tls) = match arguments {
        [listen, dir, token] => (listen, dir, token, None),
        [listen, dir, token, certificate, key] => {
            let tls = AgentTls { certificate: PathBuf::from(certificate), key: PathBuf::from(key) };
            (listen, dir, token, Some(tls))
        }
        _ => return None,
    };
    Some(AgentConfig {
        listen: listen.parse().ok()?,
        dir: PathBuf::from(dir),
        token: SecretRef::FromFile(PathBuf::from(token)),
        tls,
        plain: false,
    })
}

async fn run(config: AgentConfig) -> Result<(), AgentError> {
    let agent = Agent::bind(config).await?;
    println!("listening on {}", agent.address());
    agent.run().await
}
