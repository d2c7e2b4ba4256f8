//! What only an uninstall asks for, beside what every command looks at: nodes and what the operator
//! made for them, and what an earlier run made under settings that were different.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject};
use tenon_installer_core::apply::Context;
use tenon_installer_core::aws::AwsError;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::lease::Place;
use tenon_installer_core::kubernetes::object::{Object, label};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_installer_core::{journal, observe};

use super::former;
use crate::adopt::karpenter::Operator;
use crate::errors::ExpectedError;

/// How many access entries are read at once.
const AT_ONCE: usize = 8;

/// What makes nodes, the nodes, and what was made for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes {
    /// All NodePools.
    pub pools: Vec<DynamicObject>,
    /// All NodeClaims.
    pub claims: Vec<DynamicObject>,
    /// All EC2NodeClasses.
    pub classes: Vec<DynamicObject>,
    /// All NodeOverlays.
    pub overlays: Vec<DynamicObject>,
    /// Ids of the instances of the cluster's NodePools.
    pub instances: Vec<String>,
    /// Ids of the launch templates that the operator made.
    pub launch_templates: Vec<String>,
    /// Names of the instance profiles that the operator made.
    pub instance_profiles: Vec<String>,
}

impl Nodes {
    /// How many NodePools, NodeClaims, EC2NodeClasses and NodeOverlays there are.
    pub(crate) fn objects(&self) -> usize {
        self.pools.len() + self.claims.len() + self.classes.len() + self.overlays.len()
    }

    /// There is something with a finalizer of the operator.
    pub(crate) fn need_operator(&self) -> bool {
        !(self.pools.is_empty() && self.claims.is_empty() && self.classes.is_empty())
    }

    /// There are nodes, or claims to some.
    pub(crate) fn has_any(&self) -> bool {
        !(self.claims.is_empty() && self.instances.is_empty())
    }
}

/// What an earlier look keeps for a later one of the same uninstall.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Where the operator's Leases are, or would be made.
    pub lease_places: BTreeSet<Place>,
    /// Principals of access entries of others.
    pub others: BTreeSet<String>,
}

/// What was found beside the [`Actual`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Discovered {
    /// Nodes, whoever's they are.
    pub nodes: Nodes,
    /// The Leases that the operator's replicas hold or may have held in turn, without those that a
    /// Karpenter holds as well.
    pub leases: Vec<Object>,
    /// Id of the installation that is recorded in the namespace.
    pub record: Option<String>,
    /// ARN of the identity provider, if we made it; or why it stays all the same.
    pub provider: Option<Result<String, String>>,
    /// Roles of ours that the settings no longer ask for.
    pub former_roles: Vec<String>,
    /// Principals of access entries of ours that the settings no longer ask for.
    pub former_entries: Vec<String>,
    /// What the next look needs of this one.
    pub known: Known,
}

impl Discovered {
    /// Looks for it. From what was found `before`, access entries of others are not described
    /// again, as a cluster may have hundreds; and Leases stay known by whose names the Deployment
    /// went by that has gone since.
    pub(crate) async fn read(
        context: &Context,
        desired: &Desired,
        actual: &Actual,
        namespace: &str,
        before: &Known,
    ) -> Result<Self, ExpectedError> {
        let mut lease_places = lease_places(desired, actual, namespace);
        lease_places.extend(before.lease_places.iter().cloned());
        let kubernetes_side = async {
            let (pools, claims) = (resources::node_pools(), resources::node_claims());
            let (classes, overlays) = (resources::node_classes(), resources::node_overlays());
            tokio::try_join!(
                context.cluster.list(&pools),
                context.cluster.list(&claims),
                context.cluster.list(&classes),
                context.cluster.list(&overlays),
                journal::read_cluster(&context.cluster, namespace),
            )
            .map_err(|error| ExpectedError::Observe(error.into()))
        };
        let profile_path = desired.scope.instance_profile_path();
        let aws_side = async {
            tokio::try_join!(
                observe::ec2::instances(&context.aws, &desired.scope),
                observe::ec2::launch_templates(&context.aws, &desired.scope),
                observe::iam::instance_profiles(&context.aws, &profile_path),
                provider(context, desired, actual),
                former_roles(context, desired),
                entries(context, desired, &before.others),
            )
            .map_err(|error| ExpectedError::Observe(error.into()))
        };
        let (
            (pools, claims, classes, overlays, record),
            (
                instances,
                launch_templates,
                instance_profiles,
                provider,
                former_roles,
                (former_entries, others),
            ),
            leases,
        ) = tokio::try_join!(
            kubernetes_side,
            aws_side,
            own_leases(&context.cluster, &lease_places)
        )?;
        Ok(Self {
            nodes: Nodes {
                pools,
                claims,
                classes,
                overlays,
                instances,
                launch_templates,
                instance_profiles,
            },
            leases,
            record: record.map(|(id, _)| id),
            provider,
            former_roles,
            former_entries,
            known: Known { lease_places, others },
        })
    }
}

/// An identity provider that we made goes only when no role but ours trusts it.
async fn provider(
    context: &Context,
    desired: &Desired,
    actual: &Actual,
) -> Result<Option<Result<String, String>>, AwsError> {
    let Some(arn) = &desired.provider_arn else { return Ok(None) };
    let state = match (desired.provider(), &actual.provider) {
        (Some(_), state) => state.clone(),
        // An earlier run may have made it, when the operator had its role by IRSA.
        (None, _) => readable(observe::iam::provider(&context.aws, arn).await)?.flatten(),
    };
    if !state.is_some_and(|found| former::is_our_provider(desired, &found)) {
        return Ok(None);
    }
    let users = match observe::iam::roles_trusting(&context.aws, arn).await {
        Ok(users) => users,
        Err(error) if error.is_denied() => {
            return Ok(Some(Err(format!("{arn}: its other users can't be determined ({error})"))));
        }
        Err(error) => return Err(error),
    };
    Ok(Some(former::provider(desired, arn, users)))
}

/// Whoever installs without a role of ours may lack the permission to look for one: then there is
/// none to find.
fn readable<T>(result: Result<T, AwsError>) -> Result<Option<T>, AwsError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_denied() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn former_roles(context: &Context, desired: &Desired) -> Result<Vec<String>, AwsError> {
    let names = former::role_names(desired);
    let found = readable(observe::iam::roles(&context.aws, &names).await)?;
    Ok(former::roles(desired, found.iter().flatten()))
}

/// Principals of the access entries beside the nodes', ours and others'.
async fn entries(
    context: &Context,
    desired: &Desired,
    known: &BTreeSet<String>,
) -> Result<(Vec<String>, BTreeSet<String>), AwsError> {
    let (aws, cluster) = (&context.aws, &desired.scope.cluster);
    let principals = readable(observe::eks::principals(aws, cluster).await)?.unwrap_or_default();
    let principals = principals.into_iter().filter(|arn| former::is_other_entry(desired, arn));
    let (known, unknown): (Vec<_>, Vec<_>) = principals.partition(|arn| known.contains(arn));
    let mut others = BTreeSet::from_iter(known);
    let looks = unknown.into_iter().map(|arn| async move {
        let entry = readable(observe::eks::access_entry(aws, cluster, &arn).await)?.flatten();
        let is_ours = entry.is_some_and(|entry| former::is_our_entry(desired, &entry));
        Ok::<_, AwsError>((arn, is_ours))
    });
    let mut ours = Vec::new();
    for (arn, is_ours) in stream::iter(looks).buffered(AT_ONCE).try_collect::<Vec<_>>().await? {
        if is_ours {
            ours.push(arn);
        } else {
            others.insert(arn);
        }
    }
    Ok((ours, others))
}

/// Where the operator's replicas hold a Lease: the usual one of the namespace, the one that the
/// settings name, and those that Deployments of ours name by now.
fn lease_places(desired: &Desired, actual: &Actual, namespace: &str) -> BTreeSet<Place> {
    let id = Some(desired.installation.id.as_str());
    let wanted = desired.deployment();
    let live = wanted.and_then(|wanted| actual.objects.get(&wanted.key()));
    let live = live.filter(|live| label(live, INSTALL_ID) == id);
    let labelled = actual.labelled.iter().filter(|object| object.is_deployment());
    let bodies = wanted.into_iter().chain(labelled).map(|object| &object.body).chain(live);
    bodies.map(Place::of).chain([Place::usual(namespace)]).collect()
}

/// Where Karpenters hold their Leases: their pods make them anew.
async fn places_of_others(cluster: &Cluster) -> Result<BTreeSet<Place>, Failure> {
    let deployments = match cluster.all::<Deployment>().await {
        Ok(deployments) => deployments,
        Err(error) if error.is_denied() => return Ok(BTreeSet::new()),
        Err(error) => return Err(error.into()),
    };
    let operators = deployments.iter().filter_map(|it| Operator::of(Object::new(it).body));
    let mut places = BTreeSet::new();
    for operator in operators {
        places.insert(operator.lease());
        // A ConfigMap may name another one. Where it can't be read, what the Deployment says
        // counts.
        if let Ok(operator) = operator.with_sources(cluster).await {
            places.insert(operator.lease());
        }
    }
    Ok(places)
}

/// The Leases that are there, without those that a Karpenter holds as well.
pub(crate) async fn own_leases(
    cluster: &Cluster,
    places: &BTreeSet<Place>,
) -> Result<Vec<Object>, ExpectedError> {
    let leases = places.iter().map(|place| async move {
        let found = lease(cluster.client(), place).await;
        Ok::<_, ExpectedError>((
            place,
            found.map_err(|error| ExpectedError::Observe(error.into()))?,
        ))
    });
    let others = async { places_of_others(cluster).await.map_err(ExpectedError::Observe) };
    let (leases, others) = tokio::try_join!(futures::future::try_join_all(leases), others)?;
    let own = leases.into_iter().filter(|(place, _)| !others.contains(place));
    Ok(own.filter_map(|(_, lease)| lease).collect())
}

async fn lease(client: Client, place: &Place) -> Result<Option<Object>, KubeError> {
    let api: Api<Lease> = Api::namespaced(client, &place.namespace);
    let found = api.get_opt(&place.name).await;
    let found = found.map_err(|source| KubeError {
        verb: "get",
        resource: format!("Lease {place}"),
        cause: Box::new(source),
    })?;
    Ok(found.map(|lease| Object::new(&lease)))
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use aws_sdk_eks::config::{BehaviorVersion, Region};
    use aws_sdk_eks::operation::describe_access_entry::DescribeAccessEntryOutput;
    use aws_sdk_eks::operation::list_access_entries::ListAccessEntriesOutput;
    use aws_sdk_eks::types::AccessEntry;
    use aws_smithy_mocks::{MockResponseInterceptor, RuleMode, create_mock_http_client, mock};
    use serde_json::json;

    use super::*;
    use tenon_installer_core::aws::Aws;
    use tenon_installer_core::ownership::Tags;
    use tenon_installer_core::testing::Double;
    use tenon_installer_core::testing::desired;

    const OURS: &str = "arn:aws:iam::111122223333:role/former";
    const THEIRS: &str = "arn:aws:iam::111122223333:role/theirs";

    #[tokio::test]
    async fn an_access_entry_of_others_is_described_once() {
        let desired = desired("");
        let (nodes, tags) = (desired.node_role.arn.clone(), desired.installation.tags("entry", ""));
        let list = mock!(aws_sdk_eks::Client::list_access_entries).then_output(move || {
            let entries = ListAccessEntriesOutput::builder().access_entries(&nodes);
            entries.access_entries(OURS).access_entries(THEIRS).build()
        });
        let described = move |tags: Tags| {
            let entry = AccessEntry::builder().set_tags(Some(tags.into_iter().collect()));
            DescribeAccessEntryOutput::builder().access_entry(entry.build()).build()
        };
        let ours = mock!(aws_sdk_eks::Client::describe_access_entry)
            .match_requests(|request| request.principal_arn() == Some(OURS))
            .then_output(move || described(tags.clone()));
        let theirs = mock!(aws_sdk_eks::Client::describe_access_entry)
            .match_requests(|request| request.principal_arn() == Some(THEIRS))
            .then_output(move || described(Tags::new()));
        let answers = MockResponseInterceptor::new().rule_mode(RuleMode::MatchAny);
        let config = aws_sdk_eks::config::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
            .http_client(create_mock_http_client())
            .interceptor(answers.with_rule(&list).with_rule(&ours).with_rule(&theirs));
        let server = Double::start(&[]).await;
        let context = Context {
            aws: Aws { eks: aws_sdk_eks::Client::from_conf(config.build()), ..Aws::nowhere() },
            cluster: server.cluster(),
            cluster_name: "prod".to_owned(),
            install_id: desired.installation.id.clone(),
        };
        let mut others = BTreeSet::new();
        for _ in 0..3 {
            let found = entries(&context, &desired, &others).await.expect("it is answered");
            assert_eq!(found, (vec![OURS.to_owned()], [THEIRS.to_owned()].into()));
            others = found.1;
        }
        assert_eq!((theirs.num_calls(), ours.num_calls()), (1, 3));
    }

    fn lease_at(place: &Place) -> (String, serde_json::Value) {
        let Place { namespace, name } = place;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": namespace, "name": name },
        });
        (path, lease)
    }

    fn place(namespace: &str, name: &str) -> Place {
        Place { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_lease_is_looked_for_wherever_the_operator_was_told_to_hold_it() {
        let desired = desired(
            "deploy: {values: {controller: {env: [{name: LEADER_ELECTION_NAME, value: asked}]}}}",
        );
        let namespace = desired.service_account.namespace.clone();
        let mut live = desired.deployment().expect("a Deployment").clone();
        let variables = json!([
            { "name": "LEADER_ELECTION_NAME", "value": "by-hand" },
            { "name": "LEADER_ELECTION_NAMESPACE", "value": "leases" },
        ]);
        live.body["spec"]["template"]["spec"]["containers"][0]["env"] = variables;
        let actual =
            Actual { objects: [(live.key(), live.body.clone())].into(), ..Actual::default() };
        let usual = Place::usual(&namespace);
        let asked = place(&namespace, "asked");
        let expected = BTreeSet::from([usual, asked, place("leases", "by-hand")]);
        assert_eq!(lease_places(&desired, &actual, &namespace), expected);
        // A Deployment of that name that is another installation's says nothing of ours.
        live.body["metadata"]["labels"][INSTALL_ID] = "00000000".into();
        let actual = Actual { objects: [(live.key(), live.body)].into(), ..Actual::default() };
        assert_eq!(lease_places(&desired, &actual, &namespace).len(), 2);
    }

    #[tokio::test]
    async fn leases_of_any_name_are_found_unless_a_karpenter_holds_them() {
        let usual = Place::usual("kube-system");
        let (mine, gone) = (place("leases", "mine"), place("kube-system", "gone"));
        let karpenter = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "karpenter", "namespace": "kube-system" },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{
                "name": "controller", "image": "public.ecr.aws/karpenter/controller:1",
            }] } } },
        });
        let ((usual_path, usual_lease), (mine_path, mine_lease)) =
            (lease_at(&usual), lease_at(&mine));
        let both = [(usual_path.as_str(), usual_lease), (mine_path.as_str(), mine_lease)];
        let places = BTreeSet::from([usual.clone(), mine.clone(), gone]);
        let found = async |objects: &[(&str, serde_json::Value)]| {
            let server = Double::start(objects).await;
            let leases = own_leases(&server.cluster(), &places).await.expect("it is answered");
            let place = |it: &Object| place(it.namespace.as_deref().unwrap_or_default(), &it.name);
            leases.iter().map(place).collect::<BTreeSet<_>>()
        };
        assert_eq!(found(&both).await, BTreeSet::from([usual, mine.clone()]));
        let mut with_karpenter = both.to_vec();
        with_karpenter.push(("/apis/apps/v1/deployments/karpenter", karpenter));
        assert_eq!(found(&with_karpenter).await, BTreeSet::from([mine]));
    }
}
