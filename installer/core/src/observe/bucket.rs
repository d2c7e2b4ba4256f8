//! Objects of an S3 bucket.

use aws_config::Region;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::SdkError;

use crate::aws::{Aws, AwsError, Calling, IfThere};

/// Longest object that is read, in bytes.
const LONGEST: usize = 4 * 1024 * 1024;

/// Where S3 says in which region a bucket is.
const REGION_HEADER: &str = "x-amz-bucket-region";

/// A bucket, in whichever region it is.
#[derive(Debug, Clone)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    /// Finds the region of a bucket; `None` if there is no such bucket.
    ///
    /// # Errors
    /// If S3 does not say where the bucket is.
    pub async fn open(aws: &Aws, name: &str) -> Result<Option<Self>, AwsError> {
        // Of all calls, only this one says where the bucket is when it is asked in another region
        // (301), or by a caller who may not list it (403).
        let answer = aws.s3.head_bucket().bucket(name).send().await;
        let refused = answer.as_ref().err().and_then(SdkError::raw_response);
        let is_denied = refused.is_some_and(|response| response.status().as_u16() == 403);
        let region = refused.and_then(|response| response.headers().get(REGION_HEADER));
        let region = region.map(|region| Region::new(region.to_owned()));
        let region = match (region, answer.calling("s3:ListBucket", arn(name, ""))) {
            (Some(region), _) => Some(region),
            (None, Ok(found)) => found.bucket_region.map(Region::new),
            (None, Err(error)) if error.has_code(&["NotFound", "NoSuchBucket"]) => return Ok(None),
            // No answer to a HEAD request has a body that would say why.
            (None, Err(error)) if is_denied => {
                let code = Some("AccessDenied".to_owned());
                let message = "S3 refuses to say where the bucket is".to_owned();
                return Err(AwsError { code, message, no_answer: None, ..error });
            }
            (None, Err(error)) => return Err(error),
        };
        let client = match region {
            Some(region) => Client::from_conf(aws.s3.config().to_builder().region(region).build()),
            None => aws.s3.clone(),
        };
        Ok(Some(Self { client, name: name.to_owned() }))
    }

    /// The text of an object; `None` if there is none with this key.
    ///
    /// # Errors
    /// If it cannot be read, or is no text of a few MiB.
    pub async fn read(&self, key: &str) -> Result<Option<String>, AwsError> {
        let resource = arn(&self.name, key);
        let action = "s3:GetObject";
        let call = self.client.get_object().bucket(&self.name).key(key).send().await;
        let Some(object) = call.calling(action, resource.as_str()).if_there()? else {
            return Ok(None);
        };
        let unread = |message: String| AwsError {
            action,
            resource: resource.clone(),
            code: None,
            message,
            no_answer: None,
        };
        let length = object.content_length.and_then(|length| usize::try_from(length).ok());
        if length.is_none_or(|length| length > LONGEST) {
            return Err(unread(format!("the object has more than {LONGEST} bytes")));
        }
        let body = object.body.collect().await;
        let body = body.map_err(|_| unread("the connection broke while it was read".to_owned()))?;
        let text = String::from_utf8(body.to_vec());
        text.map(Some).map_err(|_| unread("the object is not text".to_owned()))
    }

    /// Names directly below a prefix that ends with a slash: of objects, and of folders with a
    /// slash.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub async fn names(&self, prefix: &str) -> Result<Vec<String>, AwsError> {
        let call = self.client.list_objects_v2().bucket(&self.name).prefix(prefix).delimiter("/");
        let mut pages = call.into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.calling("s3:ListBucket", arn(&self.name, ""))?;
            let folders = page.common_prefixes().iter().filter_map(|folder| folder.prefix());
            let keys = page.contents().iter().filter_map(|object| object.key());
            let below = folders.chain(keys).filter_map(|key| key.strip_prefix(prefix));
            names.extend(below.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        Ok(names)
    }
}

fn arn(bucket: &str, key: &str) -> String {
    let separator = if key.is_empty() { "" } else { "/" };
    format!("arn:aws:s3:::{bucket}{separator}{key}")
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_s3::config::BehaviorVersion;
    use aws_sdk_s3::config::retry::RetryConfig;
    use aws_sdk_s3::operation::head_bucket::HeadBucketOutput;
    use aws_smithy_mocks::{
        MockResponseInterceptor, Rule, RuleMode, create_mock_http_client, mock,
    };
    use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
    use aws_smithy_types::body::SdkBody;

    use super::*;

    /// S3's answer to `HeadBucket`, which has no body.
    fn answering(status: u16, located: Option<&'static str>) -> Rule {
        mock!(Client::head_bucket).then_http_response(move || {
            let status = status.try_into().expect("a status");
            let mut response = HttpResponse::new(status, SdkBody::empty());
            if let Some(region) = located {
                response.headers_mut().insert(REGION_HEADER, region);
            }
            response
        })
    }

    /// The region that objects are read in, for a client of `eu-central-1`.
    async fn found(rule: &Rule) -> Result<Option<String>, AwsError> {
        let mocked = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny).with_rule(rule);
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .http_client(create_mock_http_client())
            .interceptor(mocked)
            .build();
        let aws = Aws { s3: Client::from_conf(config), ..Aws::nowhere() };
        let bucket = Bucket::open(&aws, "states").await?;
        let region = |bucket: Bucket| bucket.client.config().region().map(ToString::to_string);
        Ok(bucket.and_then(region))
    }

    #[tokio::test]
    async fn a_bucket_is_read_in_whichever_region_it_is() {
        for (status, located) in
            [(200, "eu-central-1"), (301, "us-east-1"), (400, "eu-south-2"), (403, "us-east-1")]
        {
            let region = found(&answering(status, Some(located))).await.expect("a bucket");
            assert_eq!(region.as_deref(), Some(located), "{status}");
        }
        let unnamed =
            mock!(Client::head_bucket).then_output(|| HeadBucketOutput::builder().build());
        assert_eq!(found(&unnamed).await.expect("a bucket").as_deref(), Some("eu-central-1"));
    }

    #[tokio::test]
    async fn no_bucket_is_not_an_error_and_no_answer_is() {
        assert!(found(&answering(404, None)).await.expect("an answer").is_none());
        let refused = found(&answering(403, None)).await.expect_err("a refusal");
        assert_eq!(refused.action, "s3:ListBucket");
        assert_eq!(refused.code.as_deref(), Some("AccessDenied"));
    }
}
