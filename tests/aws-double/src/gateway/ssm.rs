//! SSM's public parameters for EKS, Bottlerocket and Windows images, from the table of
//! [`amis`](super::amis). Other parameters are moto's.

use serde_json::{Value, json};

use super::amis::{Ami, amis, by_parameter};
use super::aws_state::AwsState;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};

const OURS: [&str; 3] = [
    "/aws/service/eks/optimized-ami/",
    "/aws/service/bottlerocket/",
    "/aws/service/ami-windows-latest/",
];

/// Most parameters that one page may hold; also the default.
const PAGE: usize = 10;

/// Answers for the image parameters.
#[derive(Debug)]
pub(crate) struct Ssm {
    amis: Vec<Ami>,
}

impl Ssm {
    /// A service over the table of images.
    pub(crate) fn new() -> Self {
        Self { amis: amis() }
    }

    fn get_parameter(&self, request: &AwsRequest, aws_state: &AwsState) -> Result<Value, AwsError> {
        let name = request.json["Name"].as_str().unwrap_or_default();
        let parameter = self.parameter(name, aws_state).ok_or_else(|| {
            // As SSM does: the code says everything, there is no message.
            AwsError::new("ParameterNotFound", "")
        })?;
        Ok(json!({ "Parameter": parameter }))
    }

    fn get_parameters(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<Value, AwsError> {
        let names: Vec<&str> = request.json["Names"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if names.is_empty() || names.len() > PAGE {
            let message = format!(
                "1 validation error detected: Value '{names:?}' at 'names' failed to satisfy constraint: Member must have length less than or equal to {PAGE}"
            );
            return Err(AwsError::new("ValidationException", message));
        }
        let (mut found, mut invalid) = (Vec::new(), Vec::new());
        for name in names {
            match self.parameter(name, aws_state) {
                Some(parameter) => found.push(parameter),
                None => invalid.push(name),
            }
        }
        Ok(json!({ "Parameters": found, "InvalidParameters": invalid }))
    }

    fn get_parameters_by_path(
        &self,
        request: &AwsRequest,
        aws_state: &AwsState,
    ) -> Result<Value, AwsError> {
        let path = request.json["Path"].as_str().unwrap_or_default();
        let below = format!("{}/", path.trim_end_matches('/'));
        let recursive = request.json["Recursive"].as_bool().unwrap_or(false);
        let mut names: Vec<&str> = self
            .amis
            .iter()
            .flat_map(|ami| ami.parameters.iter().map(String::as_str))
            .filter(|name| {
                name.strip_prefix(&below).is_some_and(|rest| recursive || !rest.contains('/'))
            })
            .collect();
        names.sort_unstable();
        let size = request.json["MaxResults"]
            .as_u64()
            .and_then(|size| usize::try_from(size).ok())
            .map_or(PAGE, |size| size.clamp(1, PAGE));
        let start = match request.json["NextToken"].as_str() {
            None | Some("") => 0,
            Some(token) => token.parse().map_err(|_| {
                AwsError::new("InvalidNextToken", "The specified token isn't valid.")
            })?,
        };
        let page: Vec<Value> = names
            .iter()
            .skip(start)
            .take(size)
            .filter_map(|name| self.parameter(name, aws_state))
            .collect();
        let mut answer = json!({ "Parameters": page });
        if start + size < names.len() {
            answer["NextToken"] = json!((start + size).to_string());
        }
        Ok(answer)
    }

    /// A parameter by name or ARN.
    fn parameter(&self, name: &str, aws_state: &AwsState) -> Option<Value> {
        let name = name.split_once(":parameter").map_or(name, |(_, name)| name);
        let ami = by_parameter(&self.amis, name)?;
        Some(json!({
            "ARN": format!("arn:{}:ssm:{}::parameter{name}", aws_state.partition(), aws_state.region()),
            "DataType": "text",
            "LastModifiedDate": seconds(&ami.created),
            "Name": name,
            "Type": "String",
            "Value": ami.id,
            "Version": 1,
        }))
    }
}

impl Default for Ssm {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Ssm {
    fn handles(&self, request: &AwsRequest) -> bool {
        if request.service != "ssm" {
            return false;
        }
        let ours = |name: &Value| {
            name.as_str().is_some_and(|name| {
                let name = name.split_once(":parameter").map_or(name, |(_, name)| name);
                OURS.iter().any(|prefix| format!("{name}/").starts_with(prefix))
            })
        };
        match request.action.as_str() {
            "GetParameter" => ours(&request.json["Name"]),
            "GetParameters" => {
                request.json["Names"].as_array().is_some_and(|names| names.iter().any(ours))
            }
            "GetParametersByPath" => ours(&request.json["Path"]),
            _ => false,
        }
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let answer = match request.action.as_str() {
            "GetParameter" => self.get_parameter(request, aws_state),
            "GetParameters" => self.get_parameters(request, aws_state),
            "GetParametersByPath" => self.get_parameters_by_path(request, aws_state),
            _ => Err(AwsError::not_implemented(request)),
        }?;
        Ok(AwsResponse::json(request, &answer))
    }
}

fn seconds(timestamp: &str) -> i64 {
    timestamp.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

#[cfg(test)]
mod tests;
