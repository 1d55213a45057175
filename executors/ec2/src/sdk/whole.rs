//! Refuses answers that end in the middle. The SDK reads as much of an XML document as there is and calls it a
//! success: a cut listing would read as a short one, and half an instance id as a whole one.

use aws_sdk_ec2::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;

/// Looks at the end of each successful answer.
#[derive(Debug)]
pub(super) struct WholeAnswers;

impl Intercept for WholeAnswers {
    fn name(&self) -> &'static str {
        "WholeAnswers"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let answer = context.response();
        // An error is read by its code, and an error without one proves nothing anyway.
        let cut = answer.status().is_success() && answer.body().bytes().is_some_and(|body| !is_whole(body));
        if cut { Err("the answer ends in the middle of its document".into()) } else { Ok(()) }
    }
}

/// Whether a document ends with the end of its outermost element, which EC2 names after the operation.
fn is_whole(document: &[u8]) -> bool {
    document.trim_ascii_end().ends_with(b"Response>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_whole_when_its_outermost_element_ends() {
        assert!(is_whole(b"<RunInstancesResponse><x/></RunInstancesResponse>\n"));
        for cut in [&b""[..], b"<RunInstancesResponse><instanceId>i-", b"<RunInstancesResponse><x></x>"] {
            assert!(!is_whole(cut), "{cut:?}");
        }
    }
}
