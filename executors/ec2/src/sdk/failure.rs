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
    let no_credentials = chain(error).any(|cause| cause.is::<CredentialsError>());
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
