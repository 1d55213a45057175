//! What a failed call proves. The one table that turns EC2's codes into the kinds that the driver branches on;
//! whatever it does not know proves nothing.

use executor_api::{ExecutorError, ExecutorErrorKind, OperationKind, RejectReason};

use crate::api::{CallError, Reached};

/// What a call would have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing: whatever went wrong, nothing was made.
    Read,
    /// It launches.
    Launch,
    /// It ends something.
    End,
}

/// Special answers that the flow of a create branches on before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// An earlier launch with this token was accepted, with other parameters.
    TokenMismatch,
    /// The instance behind this token is dead.
    TokenSpent,
    /// There is no such instance, as far as EC2 sees at present.
    NoSuchInstance,
    /// No instance can have this id.
    Malformed,
    /// Termination protection is on.
    Protected,
}

/// What the code of an answer tells beyond its kind.
pub(crate) fn telling(error: &CallError) -> Option<Telling> {
    if error.reached != Reached::Answered {
        return None;
    }
    match error.code.as_deref()? {
        "IdempotentParameterMismatch" => Some(Telling::TokenMismatch),
        "IdempotentInstanceTerminated" => Some(Telling::TokenSpent),
        "InvalidInstanceID.NotFound" => Some(Telling::NoSuchInstance),
        "InvalidInstanceID.Malformed" => Some(Telling::Malformed),
        "OperationNotPermitted" => Some(Telling::Protected),
        _ => None,
    }
}

/// What a failed call proves.
pub(crate) fn classify(purpose: Purpose, error: &CallError) -> ExecutorErrorKind {
    let kind = match error.reached {
        // Without a signature nothing leaves the machine.
        Reached::NoCredentials => ExecutorErrorKind::Rejected(RejectReason::Authorisation),
        Reached::NotBuilt => ExecutorErrorKind::Rejected(RejectReason::Validation),
        Reached::NotSent => ExecutorErrorKind::Unavailable,
        Reached::NoAnswer | Reached::BrokenAnswer => ExecutorErrorKind::Ambiguous,
        Reached::Answered => error.code.as_deref().map_or(ExecutorErrorKind::Ambiguous, by_code),
    };
    match (purpose, kind) {
        (Purpose::Read, ExecutorErrorKind::Ambiguous) => ExecutorErrorKind::Unavailable,
        (_, ExecutorErrorKind::Throttled { .. }) => {
            ExecutorErrorKind::Throttled { retry_after: error.retry_after }
        }
        (_, kind) => kind,
    }
}

/// The kind of an error code, by the code's meaning and whatever the HTTP status: EC2 sends capacity errors with
/// 500 as well as with 400.
fn by_code(code: &str) -> ExecutorErrorKind {
    use RejectReason::{Authorisation, Capacity, Quota, Validation};
    match code {
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "EC2ThrottledException"
        | "TooManyRequestsException"
        | "BandwidthLimitExceeded"
        | "SlowDown" => ExecutorErrorKind::Throttled { retry_after: None },

        "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "InsufficientReservedInstanceCapacity"
        | "InsufficientCapacityOnHost"
        | "InsufficientCapacity"
        | "InsufficientAddressCapacity"
        | "InsufficientVolumeCapacity"
        | "InsufficientFreeAddressesInSubnet"
        | "SpotMaxPriceTooLow"
        // This type does not exist in this zone: another candidate may.
        | "Unsupported" => ExecutorErrorKind::Rejected(Capacity),

        "InstanceLimitExceeded"
        | "VcpuLimitExceeded"
        | "MaxSpotInstanceCountExceeded"
        | "VolumeLimitExceeded"
        | "MaxIOPSLimitExceeded"
        | "NetworkInterfaceLimitExceeded"
        | "AddressLimitExceeded"
        | "PrivateIpAddressLimitExceeded"
        | "SecurityGroupsPerInstanceLimitExceeded"
        | "SecurityGroupsPerInterfaceLimitExceeded" => ExecutorErrorKind::Rejected(Quota),

        "UnauthorizedOperation"
        | "AuthFailure"
        | "AccessDenied"
        | "AccessDeniedException"
        | "Blocked"
        | "OptInRequired"
        | "PendingVerification"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "IncompleteSignature"
        | "InvalidClientTokenId"
        | "InvalidSecurityToken"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "SignatureDoesNotMatch"
        | "SignatureDoesNotMatchException"
        | "UnrecognizedClientException"
        | "OperationNotPermitted" => ExecutorErrorKind::Rejected(Authorisation),

        "IdempotentInstanceTerminated" => ExecutorErrorKind::Gone,
        // An earlier launch was accepted: neither a refusal nor proof of anything about that one.
        "IdempotentParameterMismatch" => ExecutorErrorKind::Ambiguous,

        // Checked before anything is made. Tags are not in this list on purpose: a tag may fail after the launch.
        code if ["Invalid", "Missing", "Malformed", "Unknown", "UnsupportedOperation", "UnsupportedInstance"]
            .iter()
            .any(|prefix| code.starts_with(prefix)) =>
        {
            ExecutorErrorKind::Rejected(Validation)
        }
        _ => ExecutorErrorKind::Ambiguous,
    }
}

/// Whether the credentials were refused because they are for another region than the one that was asked. EC2 has no
/// code of its own for it; only advice may hang on its words.
pub(crate) fn speaks_of_region(error: &CallError) -> bool {
    let code = matches!(error.code.as_deref(), Some("AuthFailure" | "SignatureDoesNotMatch"));
    code && error.message.as_deref().is_some_and(|text| text.contains("valid region"))
}

/// What an operator can do about a code, where that is known.
pub(crate) fn advice(error: &CallError) -> Option<&'static str> {
    match error.reached {
        Reached::NoCredentials => {
            return Some(
                "set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where an instance role is",
            );
        }
        Reached::NotSent => {
            return Some("check the region's name, the endpoint_url and the network");
        }
        Reached::NotBuilt | Reached::NoAnswer | Reached::BrokenAnswer | Reached::Answered => {}
    }
    if speaks_of_region(error) {
        return Some("correct shape.region; `aws account list-regions` names them all");
    }
    Some(match error.code.as_deref()? {
        "InvalidAMIID.NotFound" | "InvalidAMIID.Malformed" | "InvalidAMIID.Unavailable" => {
            "write an image of this very region into shape.image"
        }
        "InvalidInstanceType" | "InvalidInstanceType.NotFound" => "correct shape.instance_types",
        "InvalidSubnetID.NotFound" | "InvalidSubnet" => {
            "write subnets of this very region into shape.subnets"
        }
        "InvalidGroup.NotFound" | "InvalidGroupId.Malformed" | "InvalidSecurityGroupID.NotFound" => {
            "write security groups of the subnet's network into shape.security_groups"
        }
        "InvalidKeyPair.NotFound" => "create the key pair in this region or correct shape.key_pair",
        "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => {
            "grant the rights listed in executors/ec2/README.md"
        }
        "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" => {
            "renew the credentials; nothing has to be restarted"
        }
        "AuthFailure" | "InvalidClientTokenId" | "SignatureDoesNotMatch" | "UnrecognizedClientException" => {
            "correct the credentials or the clock of this machine"
        }
        "OptInRequired" | "PendingVerification" | "Blocked" => "settle the state of the AWS account",
        "VcpuLimitExceeded" | "InstanceLimitExceeded" | "MaxSpotInstanceCountExceeded" => {
            "raise the quota or name further instance types"
        }
        "InsufficientInstanceCapacity" | "Unsupported" => "name further instance types, subnets or zones",
        "InsufficientFreeAddressesInSubnet" => "name further subnets",
        "SpotMaxPriceTooLow" => "raise shape.spot_max_price or leave it out",
        _ => return None,
    })
}

/// The error of one failed call, in words for an operator. `doing` says what was being done, and to what.
pub(crate) fn failed(
    purpose: Purpose,
    effect: OperationKind,
    doing: &str,
    error: CallError,
) -> ExecutorError {
    let kind = classify(purpose, &error);
    let context = match advice(&error) {
        Some(advice) => format!("{doing}; {advice}"),
        None => doing.to_owned(),
    };
    ExecutorError::new(kind, effect, context).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn answered(status: u16, code: Option<&str>) -> CallError {
        CallError { status: Some(status), code: code.map(str::to_owned), ..CallError::new(Reached::Answered) }
    }

    fn launch(error: &CallError) -> String {
        classify(Purpose::Launch, error).to_string()
    }

    #[test]
    fn a_refused_connection_never_left() {
        assert_eq!(launch(&CallError::new(Reached::NotSent)), "unavailable");
    }

    #[test]
    fn missing_credentials_never_left_and_are_told_apart() {
        assert_eq!(launch(&CallError::new(Reached::NoCredentials)), "rejected: not authorised");
    }

    #[test]
    fn a_request_that_could_not_be_built_is_invalid() {
        assert_eq!(launch(&CallError::new(Reached::NotBuilt)), "rejected as invalid");
    }

    #[test]
    fn silence_and_a_closed_connection_prove_nothing() {
        assert_eq!(launch(&CallError::new(Reached::NoAnswer)), "outcome unknown");
    }

    #[test]
    fn a_cut_or_stalled_body_proves_nothing() {
        assert_eq!(launch(&CallError::new(Reached::BrokenAnswer)), "outcome unknown");
    }

    #[test]
    fn garbage_with_a_success_status_proves_nothing() {
        assert_eq!(launch(&answered(200, None)), "outcome unknown");
    }

    #[test]
    fn an_error_page_without_a_code_proves_nothing() {
        assert_eq!(launch(&answered(500, None)), "outcome unknown");
        assert_eq!(launch(&answered(403, None)), "outcome unknown");
    }

    #[test]
    fn throttling_is_proof_by_its_meaning_whatever_the_status() {
        for status in [400, 503] {
            assert_eq!(launch(&answered(status, Some("RequestLimitExceeded"))), "throttled");
        }
        let mut error = answered(503, Some("RequestLimitExceeded"));
        error.retry_after = Some(Duration::from_secs(7));
        assert_eq!(launch(&error), "throttled, retry after 7s");
    }

    #[test]
    fn capacity_is_proof_by_its_meaning_whatever_the_status() {
        for status in [400, 500] {
            let error = answered(status, Some("InsufficientInstanceCapacity"));
            assert_eq!(launch(&error), "rejected: no capacity");
        }
        assert_eq!(launch(&answered(400, Some("Unsupported"))), "rejected: no capacity");
    }

    #[test]
    fn internal_errors_prove_nothing() {
        for code in ["InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable"] {
            assert_eq!(launch(&answered(500, Some(code))), "outcome unknown", "{code}");
        }
    }

    #[test]
    fn a_quota_and_a_missing_right_are_refusals() {
        assert_eq!(launch(&answered(400, Some("VcpuLimitExceeded"))), "rejected: quota used up");
        assert_eq!(launch(&answered(403, Some("UnauthorizedOperation"))), "rejected: not authorised");
        assert_eq!(launch(&answered(400, Some("RequestExpired"))), "rejected: not authorised");
    }

    #[test]
    fn a_wrong_parameter_is_a_refusal() {
        for code in
            ["InvalidAMIID.NotFound", "InvalidInstanceType.NotFound", "MissingParameter", "UnknownParameter"]
        {
            assert_eq!(launch(&answered(400, Some(code))), "rejected as invalid", "{code}");
        }
    }

    #[test]
    fn a_code_that_nobody_knows_or_a_failed_tag_proves_nothing() {
        for code in ["TagLimitExceeded", "TagPolicyViolation", "SomethingNew", "Client.Whatever"] {
            assert_eq!(launch(&answered(400, Some(code))), "outcome unknown", "{code}");
        }
    }

    #[test]
    fn the_two_answers_about_a_token_are_told_apart() {
        let mismatch = answered(400, Some("IdempotentParameterMismatch"));
        assert_eq!(telling(&mismatch), Some(Telling::TokenMismatch));
        assert_eq!(launch(&mismatch), "outcome unknown");
        let spent = answered(400, Some("IdempotentInstanceTerminated"));
        assert_eq!(telling(&spent), Some(Telling::TokenSpent));
        assert_eq!(launch(&spent), "gone");
    }

    #[test]
    fn a_missing_instance_is_told_apart_from_an_impossible_id() {
        assert_eq!(
            telling(&answered(400, Some("InvalidInstanceID.NotFound"))),
            Some(Telling::NoSuchInstance)
        );
        assert_eq!(telling(&answered(400, Some("InvalidInstanceID.Malformed"))), Some(Telling::Malformed));
    }

    #[test]
    fn a_failed_read_makes_nothing() {
        assert_eq!(
            classify(Purpose::Read, &CallError::new(Reached::NoAnswer)),
            ExecutorErrorKind::Unavailable
        );
        let expired = answered(400, Some("RequestExpired"));
        assert_eq!(
            classify(Purpose::Read, &expired),
            ExecutorErrorKind::Rejected(RejectReason::Authorisation)
        );
    }

    #[test]
    fn an_error_says_what_was_done_what_ec2_said_and_what_to_do() {
        let mut error = answered(400, Some("InvalidAMIID.NotFound"));
        error.message = Some("The image id '[ami-1]' does not exist".into());
        error.request_id = Some("r-1".into());
        let error = failed(Purpose::Launch, OperationKind::CreateLease, "launching for demo/web-1 a7", error);
        assert_eq!(
            error.summary(),
            "create-lease: launching for demo/web-1 a7; write an image of this very region into shape.image \
             (rejected as invalid): EC2 answered InvalidAMIID.NotFound: The image id '[ami-1]' does not exist \
             [HTTP 400, request r-1]"
        );
    }
}
