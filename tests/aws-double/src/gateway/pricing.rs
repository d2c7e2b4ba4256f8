//! The price list: `pricing:GetProducts` from the gateway's one price table.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenon_iam_policies::Partition;

use super::aws_state::AwsState;
use super::catalog::InstanceType;
use super::request::AwsRequest;
use super::response::{AwsError, AwsResponse};
use super::service::{Principal, Service};

/// Most products on one page; also the default.
const PAGE: usize = 100;

/// Answers for on-demand prices of EC2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pricing;

impl Pricing {
    fn get_products(request: &AwsRequest, aws_state: &AwsState) -> Result<Value, AwsError> {
        let body = &request.json;
        match body["ServiceCode"].as_str() {
            Some("AmazonEC2") => {}
            Some(_) => return Ok(json!({ "FormatVersion": "aws_v1", "PriceList": [] })),
            None => {
                return Err(AwsError::new("InvalidParameterException", "ServiceCode is required"));
            }
        }
        let filters: Vec<(&str, &str)> = body["Filters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|filter| {
                match (filter["Type"].as_str(), filter["Field"].as_str(), filter["Value"].as_str())
                {
                    (Some("TERM_MATCH"), Some(field), Some(value)) => Ok((field, value)),
                    _ => Err(AwsError::new(
                        "InvalidParameterException",
                        format!("the filter {filter} is not valid"),
                    )),
                }
            })
            .collect::<Result<_, _>>()?;
        let size = match body["MaxResults"].as_u64() {
            None => PAGE,
            Some(size) => usize::try_from(size)
                .ok()
                .filter(|size| (1..=PAGE).contains(size))
                .ok_or_else(|| {
                    AwsError::new(
                        "InvalidParameterException",
                        format!("MaxResults must be 1 to {PAGE}"),
                    )
                })?,
        };
        let start: usize = match body["NextToken"].as_str() {
            None | Some("") => 0,
            Some(token) => token
                .parse()
                .map_err(|_| AwsError::new("InvalidNextTokenException", "Invalid token"))?,
        };
        let products: Vec<Product<'_>> = aws_state
            .catalog()
            .iter()
            .flat_map(|instance_type| {
                ["Shared", "Dedicated"].map(|tenancy| Product {
                    instance_type,
                    tenancy,
                    region: aws_state.region(),
                })
            })
            .filter(|product| {
                filters.iter().all(|(field, value)| product.attribute(field) == Some(*value))
            })
            .collect();
        let page: Vec<Value> = products
            .iter()
            .skip(start)
            .take(size)
            .map(|product| json!(product.json(aws_state).to_string()))
            .collect();
        let mut answer = json!({ "FormatVersion": "aws_v1", "PriceList": page });
        if start + size < products.len() {
            answer["NextToken"] = json!((start + size).to_string());
        }
        Ok(answer)
    }
}

impl Service for Pricing {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "pricing"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        _caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        match request.action.as_str() {
            "GetProducts" => {
                Ok(AwsResponse::json(request, &Self::get_products(request, aws_state)?))
            }
            _ => Err(AwsError::not_implemented(request)),
        }
    }
}

/// One type under one tenancy in the bed's region.
struct Product<'a> {
    instance_type: &'a InstanceType,
    tenancy: &'static str,
    region: &'a str,
}

impl Product<'_> {
    /// An attribute that can be filtered by; `None` for those that no product of ours has.
    fn attribute(&self, field: &str) -> Option<&str> {
        Some(match field {
            "instanceType" => &self.instance_type.name,
            "tenancy" => self.tenancy,
            "regionCode" => self.region,
            "productFamily" if self.instance_type.bare_metal => "Compute Instance (bare metal)",
            "productFamily" => "Compute Instance",
            "serviceCode" | "servicecode" => "AmazonEC2",
            "preInstalledSw" => "NA",
            "operatingSystem" => "Linux",
            "capacitystatus" => "Used",
            "marketoption" => "OnDemand",
            "locationType" => "AWS Region",
            _ => return None,
        })
    }

    fn json(&self, aws_state: &AwsState) -> Value {
        let sku =
            hex::encode(Sha256::digest(format!("{}/{}", self.instance_type.name, self.tenancy)))
                [..16]
                .to_ascii_uppercase();
        let names = [
            "instanceType",
            "tenancy",
            "regionCode",
            "servicecode",
            "preInstalledSw",
            "operatingSystem",
            "capacitystatus",
            "marketoption",
            "locationType",
        ];
        let mut attributes: serde_json::Map<String, Value> = names
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), json!(self.attribute(name)?))))
            .collect();
        attributes.insert("vcpu".to_owned(), json!(self.instance_type.vcpus.to_string()));
        let currency = if aws_state.partition() == Partition::AwsCn { "CNY" } else { "USD" };
        let price = aws_state.prices().on_demand(self.instance_type).to_string();
        let (term, rate) = (format!("{sku}.JRTCKXETXF"), format!("{sku}.JRTCKXETXF.6YS6EN2CT7"));
        json!({
            "product": { "productFamily": self.attribute("productFamily"), "attributes": attributes, "sku": sku },
            "serviceCode": "AmazonEC2",
            "terms": { "OnDemand": { term: {
                "sku": sku,
                "offerTermCode": "JRTCKXETXF",
                "termAttributes": {},
                "priceDimensions": { rate.clone(): {
                    "rateCode": rate,
                    "unit": "Hrs",
                    "beginRange": "0",
                    "endRange": "Inf",
                    "appliesTo": [],
                    "description": format!("{price} {currency} per On Demand Linux {} Instance Hour", self.instance_type.name),
                    "pricePerUnit": { currency: format!("{price}0000") },
                } },
            } } },
            "version": "1",
        })
    }
}
