//! Objects of an S3 bucket.

use aws_config::Region;
use aws_sdk_s3::types::BucketLocationConstraint;

use crate::aws::{Aws, AwsError, Calling, IfThere};

/// Longest object that is read, in bytes.
const LONGEST: usize = 4 * 1024 * 1024;

/// A bucket, in whichever region it is.
#[derive(Debug, Clone)]
pub struct Bucket {
    client: aws_sdk_s3::Client,
    name: String,
}

impl Bucket {
    /// Finds the region of a bucket.
    ///
    /// # Errors
    /// If there is no such bucket, or the caller may not ask for it.
    pub async fn open(aws: &Aws, name: &str) -> Result<Self, AwsError> {
        let call = aws.s3.get_bucket_location().bucket(name).send().await;
        let found = call.calling("s3:GetBucketLocation", arn(name, ""))?;
        // S3 has no word for its first region, and an old one for another.
        let region = match found.location_constraint.as_ref().map(BucketLocationConstraint::as_str)
        {
            None | Some("") => "us-east-1",
            Some("EU") => "eu-west-1",
            Some(region) => region,
        };
        let config = aws.s3.config().to_builder().region(Region::new(region.to_owned())).build();
        let client = aws_sdk_s3::Client::from_conf(config);
        Ok(Self { client, name: name.to_owned() })
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
