//! Service Quotas: what the account may have of each kind. moto has no quotas of EC2.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::json;

use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};

/// Quotas by code. Clones share them.
#[derive(Clone, Debug)]
pub struct Quotas {
    values: std::sync::Arc<Mutex<BTreeMap<String, f64>>>,
}

impl Default for Quotas {
    /// Those of EC2's and EBS' quotas that tools ask for, as a grown account has them.
    fn default() -> Self {
        let values = [
            // vCPUs of standard on-demand instances, and of spot ones.
            ("L-1216C47A", 5000.0),
            ("L-34B43A08", 5000.0),
            // TiB of gp3 volumes.
            ("L-7A658B76", 50.0),
        ];
        let values = values.map(|(code, value)| (code.to_owned(), value));
        Self { values: std::sync::Arc::new(Mutex::new(values.into())) }
    }
}

impl Quotas {
    /// Changes a quota, by its code.
    pub fn set(&self, code: &str, value: f64) {
        self.values.lock().insert(code.to_owned(), value);
    }
}

impl Service for Quotas {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "servicequotas"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        _aws: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        if request.action != "GetServiceQuota" {
            return Err(AwsError::not_implemented(request));
        }
        let code = request.json["QuotaCode"].as_str().unwrap_or_default();
        let value = self.values.lock().get(code).copied().ok_or_else(|| {
            let message = "The request failed because the specified quota does not exist.";
            AwsError::new("NoSuchResourceException", message)
        })?;
        let quota = json!({
            "ServiceCode": request.json["ServiceCode"], "QuotaCode": code, "Value": value,
            "Adjustable": true, "GlobalQuota": false,
        });
        Ok(AwsResponse::json(request, &json!({ "Quota": quota })))
    }
}
