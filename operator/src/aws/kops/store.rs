//! kOps' state store in S3, and what EC2 knows of the images of InstanceGroups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::Region;
use parking_lot::Mutex;
use tenon_kops::Location;
use tenon_kops::read::{Cloud, Files, FoundImage, LONGEST_FILE, Unfit};

use super::FollowError;
use crate::aws::ec2::{self, filter};
use crate::aws::error::Error;
use crate::aws::ssm::Purpose;
use crate::aws::ttl::TtlMap;
use crate::aws::{AwsProvider, ec2::Image};

/// How long an image is known that was found. Its architecture and its root device never change;
/// which one is the newest of a name does.
const IMAGES: Duration = Duration::from_secs(10 * 60);

/// Where S3 says in which region a bucket is.
const REGION_HEADER: &str = "x-amz-bucket-region";

/// Reads state stores with the operator's clients.
pub(super) struct StateStore {
    provider: Arc<AwsProvider>,
    /// Clients in the regions of buckets, by name of the bucket.
    buckets: Mutex<BTreeMap<String, Client>>,
    images: TtlMap<String, FoundImage>,
}

/// A folder of a state store.
pub(super) struct Folder {
    client: Client,
    bucket: String,
    /// With a slash at its end, or empty.
    prefix: String,
}

impl StateStore {
    pub(super) fn new(provider: Arc<AwsProvider>) -> Self {
        Self { provider, buckets: Mutex::default(), images: TtlMap::new(IMAGES) }
    }

    /// Looks buckets up again next time: one that was deleted may be created in another region.
    pub(super) fn forget_buckets(&self) {
        self.buckets.lock().clear();
    }

    async fn client(&self, bucket: &str) -> Result<Client, Error> {
        if let Some(client) = self.buckets.lock().get(bucket) {
            return Ok(client.clone());
        }
        let config = &self.provider.clients.s3;
        let here = Client::from_conf(config.clone());
        let client = match region(&here, bucket).await? {
            Some(region) => Client::from_conf(config.to_builder().region(region).build()),
            None => here,
        };
        self.buckets.lock().insert(bucket.to_owned(), client.clone());
        Ok(client)
    }

    async fn find(
        &self,
        key: String,
        filters: &[ec2::Filter],
        owners: &[String],
    ) -> Result<Option<FoundImage>, FollowError> {
        if let Some(known) = self.images.get(&key) {
            return Ok(Some(known));
        }
        let images = ec2::images(&self.provider.clients.ec2, filters, owners).await?;
        let newest = images.into_iter().max_by(|a, b| a.created.cmp(&b.created));
        let found = newest.map(|Image { architecture, root_device, .. }| FoundImage {
            architecture: Some(architecture),
            root_device,
        });
        if let Some(found) = &found {
            self.images.insert(key, found.clone());
        }
        Ok(found)
    }
}

/// The region of a bucket; `None` where S3 does not name it and answers for the bucket.
async fn region(client: &Client, bucket: &str) -> Result<Option<Region>, Error> {
    const OPERATION: &str = "HeadBucket";
    // Of all calls, only this one says where the bucket is when it is asked in another region
    // (301), or by a caller who may not list it (403).
    let error = match client.head_bucket().bucket(bucket).send().await {
        Ok(found) => return Ok(found.bucket_region.map(Region::new)),
        Err(error) => error,
    };
    let response = error.raw_response();
    let region = response.and_then(|response| response.headers().get(REGION_HEADER));
    if let Some(region) = region {
        return Ok(Some(Region::new(region.to_owned())));
    }
    if response.is_some_and(|response| response.status().as_u16() == 404) {
        let message = format!("there is no bucket {bucket}");
        return Err(Error::from_code(OPERATION, "NoSuchBucket", &message));
    }
    Err(Error::from_sdk(OPERATION, &error))
}

impl Cloud for StateStore {
    type Error = FollowError;
    type Files = Folder;

    async fn open(&self, folder: &Location) -> Result<Folder, FollowError> {
        let Location::Bucket { bucket, prefix } = folder else {
            let why = format!("{folder} is not in S3, and the operator reads nothing else");
            return Err(Unfit(vec![why]).into());
        };
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Folder { client: self.client(bucket).await?, bucket: bucket.clone(), prefix })
    }

    async fn parameter(&self, name: &str) -> Result<Option<String>, FollowError> {
        Ok(self.provider.parameters.get(name, Purpose::User).await?)
    }

    async fn image(&self, id: &str) -> Result<Option<FoundImage>, FollowError> {
        self.find(id.to_owned(), &[filter("image-id", [id])], &[]).await
    }

    async fn newest_image(
        &self,
        owner: &str,
        name: &str,
    ) -> Result<Option<FoundImage>, FollowError> {
        let owners = [owner.to_owned()];
        self.find(format!("{owner}/{name}"), &[filter("name", [name])], &owners).await
    }

    async fn instance_types(&self) -> Result<Vec<String>, FollowError> {
        Ok(self.provider.catalogs.type_names())
    }
}

impl Files for Folder {
    type Error = FollowError;

    async fn read(&self, name: &str) -> Result<Option<String>, FollowError> {
        const OPERATION: &str = "GetObject";
        let key = format!("{}{name}", self.prefix);
        let object = self.client.get_object().bucket(&self.bucket).key(&key).send().await;
        let object = match object.map_err(|error| Error::from_sdk(OPERATION, &error)) {
            Err(error) if error.is_missing_object() => return Ok(None),
            object => object?,
        };
        let unread = |why: &str| {
            let file = format!("s3://{}/{key}", self.bucket);
            Error::unexpected(OPERATION, format!("{file} {why}"))
        };
        let length = object.content_length.and_then(|length| usize::try_from(length).ok());
        if length.is_none_or(|length| length > LONGEST_FILE) {
            return Err(unread(&format!("has more than {LONGEST_FILE} bytes")).into());
        }
        let body = object.body.collect().await;
        let body = body.map_err(|_| Error::interrupted(OPERATION))?;
        let text = String::from_utf8(body.to_vec());
        Ok(Some(text.map_err(|_| unread("is not text"))?))
    }

    async fn names(&self, folder: &str) -> Result<Vec<String>, FollowError> {
        let prefix = format!("{}{folder}", self.prefix);
        let call = self.client.list_objects_v2().bucket(&self.bucket);
        let mut pages = call.prefix(&prefix).delimiter("/").into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| Error::from_sdk("ListObjectsV2", &error))?;
            let folders = page.common_prefixes().iter().filter_map(|folder| folder.prefix());
            let keys = page.contents().iter().filter_map(|object| object.key());
            let below = folders.chain(keys).filter_map(|key| key.strip_prefix(&prefix));
            names.extend(below.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::operation::head_bucket::HeadBucketOutput;
    use aws_smithy_mocks::{Rule, mock};
    use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
    use aws_smithy_types::body::SdkBody;

    use super::*;
    use crate::aws::error::Kind;
    use crate::aws::tests::mock_s3;

    /// S3's answer to `HeadBucket`, which has no body.
    fn answering(status: u16, located: Option<&'static str>) -> Rule {
        mock!(Client::head_bucket).then_http_response(move || {
            let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::empty());
            if let Some(region) = located {
                response.headers_mut().insert(REGION_HEADER, region);
            }
            response
        })
    }

    async fn found(rule: &Rule) -> Result<Option<String>, Error> {
        let found = region(&mock_s3(&[rule]), "states").await?;
        Ok(found.map(|region| region.to_string()))
    }

    #[tokio::test]
    async fn a_bucket_is_found_in_whichever_region_it_is() {
        for (status, located) in [
            (200, Some("eu-central-1")),
            (301, Some("us-east-1")),
            (400, Some("eu-south-2")),
            (403, Some("us-east-1")),
        ] {
            let region = found(&answering(status, located)).await.unwrap();
            assert_eq!(region.as_deref(), located, "{status}");
        }
        let unnamed =
            mock!(Client::head_bucket).then_output(|| HeadBucketOutput::builder().build());
        assert_eq!(found(&unnamed).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_bucket_that_does_not_exist_is_named() {
        let error = found(&answering(404, None)).await.unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
        assert_eq!(
            error.to_string(),
            "HeadBucket failed with NoSuchBucket: there is no bucket states"
        );
        let error = found(&answering(403, None)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unauthorized, "{error}");
        let error = found(&answering(503, None)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Transient, "{error}");
    }
}
