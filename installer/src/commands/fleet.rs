//! The nodes and pods of the cluster, as `tenon status` and `tenon top` show them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use tenon_installer_core::aws::Aws;
use tenon_installer_core::clock;
use tenon_installer_core::observe::ec2;
use tenon_simulate::{Fleet, Options, read};
use tenon_state::options::FeatureGates;
use tokio::time::{Instant, timeout};

use crate::errors::ExpectedError;

/// For how long spot prices are used. They change a few times a day.
const FRESH: Duration = Duration::from_mins(1);

/// For how long EC2 is not asked again after it gave no prices.
const REST: Duration = Duration::from_mins(5);

/// How long EC2, and whatever gives the credentials for it, may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prices in USD per hour, by instance type and zone.
type Prices = BTreeMap<(String, String), f64>;

/// What was read, and what was assumed about it.
pub(super) struct Seen {
    pub(super) fleet: Fleet,
    pub(super) notes: Vec<String>,
    /// What could not be read, and why.
    pub(super) warnings: Vec<String>,
    /// Whether spot nodes have EC2's prices, and not those of on-demand nodes.
    pub(super) has_spot_prices: bool,
}

/// What spot nodes cost, asked for again when it is old or lacks an instance type.
pub(super) struct SpotPrices {
    /// None where there is no region to ask in.
    aws: Option<Aws>,
    asked: BTreeSet<String>,
    /// When it was asked, and what was answered.
    answer: Option<(Instant, Result<Prices, String>)>,
}

impl SpotPrices {
    /// Nothing was asked yet. Without AWS, spot nodes are priced as on-demand ones.
    pub(super) fn new(aws: Option<Aws>) -> Self {
        Self { aws, asked: BTreeSet::new(), answer: None }
    }

    /// The prices of these instance types; `None` where they are not asked for.
    async fn of(&mut self, types: BTreeSet<String>) -> Option<&Result<Prices, String>> {
        let aws = self.aws.as_ref()?;
        let is_old = match &self.answer {
            None => true,
            Some((at, Ok(_))) => at.elapsed() >= FRESH || !types.is_subset(&self.asked),
            Some((at, Err(_))) => at.elapsed() >= REST,
        };
        if is_old {
            let asked = timeout(PATIENCE, ec2::spot_prices(aws, types.iter().cloned().collect()));
            let answer = match asked.await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("EC2 gave no spot prices in {} s", PATIENCE.as_secs())),
            };
            self.answer = Some((Instant::now(), answer));
            self.asked = types;
        }
        self.answer.as_ref().map(|(_, answer)| answer)
    }
}

/// Lists nodes and pods and what says something about them, and asks EC2 what spot nodes cost.
pub(super) async fn observe(client: &Client, spot: &mut SpotPrices) -> Result<Seen, ExpectedError> {
    // Which gates are on makes no difference to what is there.
    let options = Options::live(clock::now(), FeatureGates::default());
    let mut simulation = read(options, Some(client), &|_| ()).await?;
    let types = simulation.unpriced_spot_types().into_iter().map(str::to_owned).collect();
    let (events, prices) = tokio::join!(simulation.observe_nodes(client), spot.of(types));
    let mut warnings = Vec::new();
    if let Err(error) = events {
        let why = ExpectedError::from(error).message();
        warnings.push(format!("{why}; what keeps nodes from disruption is not shown"));
    }
    let has_spot_prices = matches!(prices, Some(Ok(_)));
    match prices {
        Some(Ok(prices)) => simulation.price_spot(prices),
        Some(Err(why)) => warnings.push(format!("{why}; spot nodes are priced as on-demand ones")),
        None => {}
    }
    let fleet = simulation.fleet();
    Ok(Seen { fleet, notes: simulation.notes().to_vec(), warnings, has_spot_prices })
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_ec2::config::{BehaviorVersion, Region};
    use aws_sdk_ec2::error::ErrorMetadata;
    use aws_sdk_ec2::operation::describe_spot_price_history::{
        DescribeSpotPriceHistoryError, DescribeSpotPriceHistoryOutput,
    };
    use aws_sdk_ec2::types::{InstanceType, SpotPrice};
    use aws_smithy_mocks::{
        MockResponseInterceptor, Rule, RuleMode, create_mock_http_client, mock,
    };

    use super::*;

    fn spot(rule: &Rule) -> SpotPrices {
        let answers = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny);
        let config = aws_sdk_ec2::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .http_client(create_mock_http_client())
            .interceptor(answers.with_rule(rule));
        let ec2 = aws_sdk_ec2::Client::from_conf(config.build());
        SpotPrices::new(Some(Aws { ec2, ..Aws::nowhere() }))
    }

    fn types(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[tokio::test]
    async fn prices_are_asked_for_again_only_when_a_type_is_new() {
        let rule = mock!(aws_sdk_ec2::Client::describe_spot_price_history).then_output(|| {
            let price = SpotPrice::builder()
                .instance_type(InstanceType::from("m7i.large"))
                .availability_zone("eu-central-1a")
                .spot_price("0.04");
            DescribeSpotPriceHistoryOutput::builder().spot_price_history(price.build()).build()
        });
        let mut spot = spot(&rule);
        let large = types(&["m7i.large"]);
        let key = ("m7i.large".to_owned(), "eu-central-1a".to_owned());
        for _ in 0..3 {
            let prices = spot.of(large.clone()).await.expect("it is asked");
            assert_eq!(prices.as_ref().ok().and_then(|prices| prices.get(&key)), Some(&0.04));
            assert_eq!(rule.num_calls(), 1);
        }
        spot.of(types(&["m7i.large", "m7i.xlarge"])).await;
        assert_eq!(rule.num_calls(), 2);
        // Fewer types are among those that were asked for.
        spot.of(large).await;
        assert_eq!(rule.num_calls(), 2);
    }

    #[tokio::test]
    async fn an_account_that_denies_prices_is_left_alone() {
        let rule = mock!(aws_sdk_ec2::Client::describe_spot_price_history).then_error(|| {
            let denied = ErrorMetadata::builder().code("UnauthorizedOperation");
            DescribeSpotPriceHistoryError::generic(denied.build())
        });
        let mut spot = spot(&rule);
        for kind in ["m7i.large", "m7i.xlarge"] {
            let answer = spot.of(types(&[kind])).await.expect("it is asked");
            let why = answer.as_ref().expect_err("it is denied");
            assert!(why.contains("ec2:DescribeSpotPriceHistory"), "{why}");
        }
        assert_eq!(rule.num_calls(), 1);
        assert!(SpotPrices::new(None).of(types(&["m7i.large"])).await.is_none());
    }
}
