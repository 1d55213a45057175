//! A failure of the SDK, as a plain one: how far the call got, and what EC2 said. What that proves is decided in
//! [`error`](crate::error).

use std::error::Error;
use std::io;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::operation::RequestId;

use crate::api::{CallError, Reached};

/// Reads one failure.
pub(super) fn read<E>(error: SdkError<E, HttpResponse>) -> CallError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let response = error.raw_response();
    let mut read = CallError {
        status: response.map(|response| response.status().as_u16()),
        retry_after: response.and_then(|response| response.headers().get("retry-after")).and_then(seconds),
        request_id: error.request_id().map(str::to_owned),
        ..CallError::new(reached(&error))
    };
    if let SdkError::ServiceError(answer) = &error {
        read.code = answer.err().code().map(str::to_owned);
        read.message = answer.err().message().map(str::to_owned);
    } else {
        read.source = error.into_source().ok();
    }
    read
}

/// Which way a call was lost.
fn reached<E>(error: &SdkError<E, HttpResponse>) -> Reached
where
    E: Error + 'static,
{
    let no_credentials = chain(error).any(<dyn Error>::is::<CredentialsError>);
    match error {
        _ if no_credentials => Reached::NoCredentials,
        SdkError::ConstructionFailure(_) => Reached::NotBuilt,
        // A dispatch that failed may have been sent, unless it is proved that there was no connection to send on.
        SdkError::DispatchFailure(failure) if failure.is_io() && never_connected(error) => Reached::NotSent,
        SdkError::ResponseError(_) => Reached::BrokenAnswer,
        SdkError::ServiceError(_) => Reached::Answered,
        // Time-outs, other dispatch failures, and variants that do not exist yet.
        _ => Reached::NoAnswer,
    }
}

/// Whether the chain of causes shows that the connection was refused or never came about.
fn never_connected<E>(error: &SdkError<E, HttpResponse>) -> bool
where
    E: Error + 'static,
{
    chain(error).any(|cause| {
        let refused = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
            matches!(
                error.kind(),
                AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable
            )
        });
        // The HTTP client has no public type for the phase; its words are pinned by a test against a closed port.
        refused || cause.to_string() == "client error (Connect)"
    })
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_config::retry::RetryConfig;
    use aws_config::timeout::TimeoutConfig;
    use aws_config::{BehaviorVersion, Region};
    use aws_credential_types::provider::future;
    use aws_sdk_ec2::Client;
    use aws_sdk_ec2::config::{Credentials, ProvideCredentials};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A machine without credentials.
    #[derive(Debug)]
    struct Nobody;

    impl ProvideCredentials for Nobody {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("none here")))
        }
    }

    /// How a launch fails there.
    async fn launch(port: u16, credentials: impl ProvideCredentials + 'static) -> CallError {
        let limits = TimeoutConfig::builder()
            .connect_timeout(Duration::from_millis(500))
            .operation_attempt_timeout(Duration::from_millis(500));
        launch_within(limits.build(), port, credentials).await
    }

    async fn launch_within(
        limits: TimeoutConfig,
        port: u16,
        credentials: impl ProvideCredentials + 'static,
    ) -> CallError {
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .endpoint_url(format!("http://127.0.0.1:{port}"))
            .credentials_provider(credentials)
            .retry_config(RetryConfig::disabled())
            .timeout_config(limits)
            .build();
        let sent = Client::from_conf(config).run_instances().min_count(1).max_count(1).send().await;
        read(sent.expect_err("nobody launches anything here"))
    }

    fn keys() -> Credentials {
        Credentials::new("AKIATEST", "secret", None, None, "test")
    }

    /// A server that reads a request, writes this, and keeps the connection or closes it.
    async fn server(answer: &'static str, keep: bool) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 65536];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            if keep {
                std::future::pending::<()>().await;
            }
        });
        port
    }

    async fn answered(answer: &'static str, keep: bool) -> CallError {
        launch(server(answer, keep).await, keys()).await
    }

    #[tokio::test]
    async fn a_closed_port_is_never_reached() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        assert_eq!(launch(closed, keys()).await.reached, Reached::NotSent);
    }

    #[tokio::test]
    async fn without_credentials_nothing_is_sent() {
        let error = launch(server("", true).await, Nobody).await;
        assert_eq!(error.reached, Reached::NoCredentials);
    }

    #[tokio::test]
    async fn silence_and_a_closed_connection_are_no_answer() {
        assert_eq!(answered("", true).await.reached, Reached::NoAnswer);
        assert_eq!(answered("", false).await.reached, Reached::NoAnswer);
    }

    #[tokio::test]
    async fn silence_that_only_the_read_limit_ends_is_no_answer_either() {
        // The SDK calls this one a dispatch that failed, as it does a refused connection.
        let limits = TimeoutConfig::builder().read_timeout(Duration::from_millis(300)).build();
        let error = launch_within(limits, server("", true).await, keys()).await;
        assert_eq!(error.reached, Reached::NoAnswer);
    }

    #[tokio::test]
    async fn a_cut_body_is_a_broken_answer_and_a_stalled_one_none() {
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<RunInstancesResponse>";
        assert_eq!(answered(half, false).await.reached, Reached::BrokenAnswer);
        assert_eq!(answered(half, true).await.reached, Reached::NoAnswer);
    }

    #[tokio::test]
    async fn an_empty_or_garbled_success_and_an_error_page_carry_no_code() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ngarbage",
            "HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\n<html>",
        ] {
            let error = answered(answer, false).await;
            assert_eq!((error.reached, error.code), (Reached::Answered, None), "{answer}");
        }
    }

    #[tokio::test]
    async fn an_error_is_read_with_its_code_its_request_and_its_wish() {
        let error = answered(
            "HTTP/1.1 503 X\r\nx-amzn-requestid: r-1\r\nRetry-After: 7\r\nContent-Length: 140\r\n\r\n<Response><Errors><Error><Code>\
             RequestLimitExceeded</Code><Message>slow down</Message></Error></Errors><RequestID>r-1</RequestID></Response>",
            false,
        )
        .await;
        assert_eq!((error.reached, error.status), (Reached::Answered, Some(503)));
        assert_eq!(error.code.as_deref(), Some("RequestLimitExceeded"));
        assert_eq!(error.message.as_deref(), Some("slow down"));
        assert_eq!(error.request_id.as_deref(), Some("r-1"));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    }
}
