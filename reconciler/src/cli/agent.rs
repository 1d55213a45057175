//! `reconciler agent`: the small authenticated server on a node through which `boot: { via: agent }` bootstraps it.
//! Arguments and signals only; what it answers is in the crate `bootstrap-http`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bootstrap_http::{Agent, AgentConfig, AgentTls};
use executor_api::SecretRef;

use super::failure::{Code, Failure};
use super::follow::Interrupt;
use super::output::{line, remark};

/// How long requests that are being answered may take after the agent was told to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// `reconciler agent`
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("token").required(true))]
pub(crate) struct Args {
    /// Where to listen. Port 0 takes any; the one taken is printed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7272")]
    listen: SocketAddr,
    /// Where sessions live. An agent that is started again must be given the same directory.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The file with the token that every request must bring, 16 bytes at least.
    #[arg(long, value_name = "FILE", group = "token")]
    token_file: Option<PathBuf>,
    /// The environment variable with the token.
    #[arg(long, value_name = "NAME", group = "token")]
    token_env: Option<String>,
    /// PEM file with the agent's certificate, and whatever leads from it to its authority.
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Listen without TLS where others can listen too: the token and every secret cross the network as they are.
    #[arg(long, conflicts_with = "certificate")]
    plain: bool,
}

/// Serves until Ctrl-C or SIGTERM. Sessions go on, and the next agent finds them.
pub(super) async fn run(args: &Args) -> Result<Code, Failure> {
    let doing = format!("starting the agent on {}", args.listen);
    let mut interrupt = Interrupt::new()?;
    let agent = Agent::bind(args.config()).await.map_err(|error| Failure::while_doing(&doing, &error))?;
    line(format!("listening on {}", agent.address()))?;
    let mut stopping = false;
    let stop = async {
        interrupt.wait().await;
        stopping = true;
    };
    let served = agent.run_until(stop, LAST_ANSWERS).await;
    served.map_err(|error| Failure::while_doing("serving", &error))?;
    if stopping {
        remark("the agent stops; its sessions go on, and the next agent on this directory finds them");
    }
    Ok(Code::Done)
}

impl Args {
    fn config(&self) -> AgentConfig {
        let from_env = || SecretRef::FromEnv(self.token_env.clone().unwrap_or_default());
        let certificate = self.certificate.clone().zip(self.key.clone());
        AgentConfig {
            listen: self.listen,
            dir: self.dir.clone(),
            token: self.token_file.clone().map_or_else(from_env, SecretRef::FromFile),
            tls: certificate.map(|(certificate, key)| AgentTls { certificate, key }),
            plain: self.plain,
        }
    }
}
