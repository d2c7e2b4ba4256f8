//! What spot instances cost, for everything that shows or compares prices of a running cluster:
//! `tenon status`, `top`, `dashboard`, `explain` and `simulate` have the same prices from here.

use std::collections::BTreeSet;
use std::time::Duration;

use tenon_installer_core::aws::Aws;
use tenon_installer_core::observe::ec2;
use tenon_simulate::{Simulation, SpotPrices as Prices};
use tokio::time::{Instant, timeout};

/// For how long the prices of some types are used. They change a few times a day.
const FRESH: Duration = Duration::from_mins(1);

/// For how long the prices of all types are used: they are some thousands.
const ALL_FRESH: Duration = Duration::from_mins(10);

/// For how long EC2 is not asked again after it gave no prices.
const REST: Duration = Duration::from_mins(5);

/// How long EC2, and whatever gives the credentials for it, may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where a user waits for one answer, which is of use without prices, too.
const BRIEF: Duration = Duration::from_secs(3);

/// Which instance types were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Types(BTreeSet<String>),
    All,
}

impl Asked {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Types(_), Self::All) => false,
            (Self::Types(asked), Self::Types(types)) => types.is_subset(asked),
        }
    }

    fn is_fresh_for(&self) -> Duration {
        match self {
            Self::Types(_) => FRESH,
            Self::All => ALL_FRESH,
        }
    }
}

/// What spot instances cost, asked for again when it is old or lacks an instance type.
#[derive(Debug)]
pub(crate) struct SpotPrices {
    /// None where there is no region to ask in.
    aws: Option<Aws>,
    patience: Duration,
    /// When what was asked, and what was answered.
    answer: Option<(Instant, Asked, Result<Prices, String>)>,
}

/// How a simulation was priced.
#[derive(Debug)]
pub(crate) struct Pricing {
    /// Whether spot instances have EC2's prices, and not those of on-demand ones.
    pub(crate) has_spot_prices: bool,
    /// Why they have not, where EC2 was asked.
    pub(crate) warning: Option<String>,
}

impl SpotPrices {
    /// Nothing was asked yet. Without AWS, spot instances are priced as on-demand ones.
    pub(crate) fn new(aws: Option<Aws>) -> Self {
        Self { aws, patience: PATIENCE, answer: None }
    }

    /// For one answer that a user waits for.
    pub(crate) fn briefly(self) -> Self {
        Self { patience: BRIEF, ..self }
    }

    /// Asks for the prices of these types: enough for what the nodes of a cluster cost.
    pub(crate) async fn ask(&mut self, types: BTreeSet<String>) {
        self.ask_for(Asked::Types(types)).await;
    }

    /// Asks for the prices of all types: plans compare what could be launched, too.
    pub(crate) async fn ask_all(&mut self) {
        self.ask_for(Asked::All).await;
    }

    async fn ask_for(&mut self, wanted: Asked) {
        let Some(aws) = &self.aws else { return };
        let is_old = match &self.answer {
            None => true,
            Some((at, asked, Ok(_))) => {
                at.elapsed() >= asked.is_fresh_for() || !asked.covers(&wanted)
            }
            Some((at, _, Err(_))) => at.elapsed() >= REST,
        };
        if !is_old {
            return;
        }
        let types = match &wanted {
            Asked::Types(types) => Some(types.iter().cloned().collect()),
            Asked::All => None,
        };
        let answer = match timeout(self.patience, ec2::spot_prices(aws, types)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("EC2 gave no spot prices in {} s", self.patience.as_secs())),
        };
        self.answer = Some((Instant::now(), wanted, answer));
    }

    /// The last answer, if there is one and it has prices.
    pub(crate) fn known(&self) -> Option<&Prices> {
        self.answer.as_ref()?.2.as_ref().ok()
    }

    /// Why there are no prices, where EC2 was asked.
    pub(crate) fn warning(&self) -> Option<String> {
        let why = self.answer.as_ref()?.2.as_ref().err()?;
        Some(format!("{why}; spot is priced as on-demand"))
    }

    /// Prices a simulation by the last answer.
    pub(crate) fn price(&self, simulation: &mut Simulation) -> Pricing {
        if let Some(prices) = self.known() {
            simulation.price_spot(prices);
        }
        Pricing { has_spot_prices: self.known().is_some(), warning: self.warning() }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Prices of an EC2 in memory.

    use aws_credential_types::Credentials;
    use aws_sdk_ec2::config::{BehaviorVersion, Region};
    use aws_sdk_ec2::operation::describe_spot_price_history::DescribeSpotPriceHistoryOutput;
    use aws_sdk_ec2::types::{InstanceType, SpotPrice};
    use aws_smithy_mocks::{
        MockResponseInterceptor, Rule, RuleMode, create_mock_http_client, mock,
    };
    use tenon_installer_core::aws::Aws;

    use super::SpotPrices;

    /// An EC2 that answers by one rule.
    pub(crate) fn spot(rule: &Rule) -> SpotPrices {
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

    /// An answer with these types, zones and prices.
    pub(crate) fn priced(prices: &'static [(&str, &str, &str)]) -> Rule {
        mock!(aws_sdk_ec2::Client::describe_spot_price_history).then_output(move || {
            let history = prices.iter().map(|&(kind, zone, price)| {
                SpotPrice::builder()
                    .instance_type(InstanceType::from(kind))
                    .availability_zone(zone)
                    .spot_price(price)
                    .build()
            });
            let history = Some(history.collect());
            DescribeSpotPriceHistoryOutput::builder().set_spot_price_history(history).build()
        })
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::error::ErrorMetadata;
    use aws_sdk_ec2::operation::describe_spot_price_history::DescribeSpotPriceHistoryError;
    use aws_smithy_mocks::mock;

    use super::testing::{priced, spot};
    use super::*;

    fn types(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[tokio::test]
    async fn prices_are_asked_for_again_only_when_a_type_is_new() {
        let rule = priced(&[("m7i.large", "eu-central-1a", "0.04")]);
        let mut spot = spot(&rule);
        let large = types(&["m7i.large"]);
        let key = ("m7i.large".to_owned(), "eu-central-1a".to_owned());
        for _ in 0..3 {
            spot.ask(large.clone()).await;
            assert_eq!(spot.known().and_then(|prices| prices.get(&key)), Some(&0.04));
            assert_eq!(rule.num_calls(), 1);
        }
        spot.ask(types(&["m7i.large", "m7i.xlarge"])).await;
        assert_eq!(rule.num_calls(), 2);
        // Fewer types are among those that were asked for, and so are all of them after all.
        spot.ask(large.clone()).await;
        assert_eq!(rule.num_calls(), 2);
        spot.ask_all().await;
        assert_eq!(rule.num_calls(), 3);
        spot.ask(large).await;
        spot.ask_all().await;
        assert_eq!(rule.num_calls(), 3);
    }

    #[tokio::test]
    async fn an_account_that_denies_prices_is_left_alone() {
        let rule = mock!(aws_sdk_ec2::Client::describe_spot_price_history).then_error(|| {
            let denied = ErrorMetadata::builder().code("UnauthorizedOperation");
            DescribeSpotPriceHistoryError::generic(denied.build())
        });
        let mut spot = spot(&rule);
        for kind in ["m7i.large", "m7i.xlarge"] {
            spot.ask(types(&[kind])).await;
            let why = spot.answer.as_ref().and_then(|(_, _, answer)| answer.as_ref().err());
            let why = why.expect("it is denied");
            assert!(why.contains("ec2:DescribeSpotPriceHistory"), "{why}");
        }
        assert_eq!(rule.num_calls(), 1);
        let mut nowhere = SpotPrices::new(None);
        nowhere.ask_all().await;
        assert!(nowhere.known().is_none());
    }
}
