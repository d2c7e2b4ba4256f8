//! Buckets in other regions than the caller asks: S3 sends the caller there, where moto would
//! answer.

use axum::http::Method;

use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};

/// Sends callers to the region of a bucket; all else is moto's.
#[derive(Debug)]
pub(super) struct Buckets;

impl Service for Buckets {
    fn handles(&self, request: &AwsRequest) -> bool {
        let creates = request.method == Method::PUT && request.segments().len() == 1;
        request.service == "s3" && !request.segments().is_empty() && !creates
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let moto = aws_state.moto();
        let bucket = request.segments().swap_remove(0);
        match moto.bucket_region(&bucket).await? {
            Some(region) if region != request.region => Ok(elsewhere(request, &region)),
            _ => moto.forward(request).await,
        }
    }
}

/// As S3 answers for a bucket of another region. Nearly all calls are told where it is by a header;
/// the call whose purpose that is fails because of the region in its signature.
fn elsewhere(request: &AwsRequest, region: &str) -> AwsResponse {
    if request.action == "GetBucketLocation" {
        let message = format!(
            "The authorization header is malformed; the region '{}' is wrong; expecting '{region}'",
            request.region
        );
        return AwsError::new("AuthorizationHeaderMalformed", message).render(request);
    }
    let message = "The bucket you are attempting to access must be addressed using the specified \
                   endpoint. Please send all future requests to this endpoint.";
    let mut response = AwsError::new("PermanentRedirect", message).with_status(301).render(request);
    response.headers.push(("x-amz-bucket-region".to_owned(), region.to_owned()));
    response
}
