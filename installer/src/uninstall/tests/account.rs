//! An account and a cluster in memory. It holds things under any name; what an installation sees of
//! it is an [`Actual`].

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::aws_auth::{self, Removal as AuthRemoval};
use tenon_installer_core::kubernetes::helm::Revision;
use tenon_installer_core::kubernetes::merge_patch::merged;
use tenon_installer_core::kubernetes::object::{Key, Object, label};
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::labelled;
use tenon_installer_core::observe::state::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState, ProviderState,
    QueueState, RoleState, RuleState,
};
use tenon_installer_core::ownership::{DISCOVERY_MARK, INSTALL_ID, Tags};
use tenon_installer_core::plan::{Plan, diff};
use tenon_installer_core::testing::carry_out_some;

use crate::uninstall::discovery::Discovered;
use crate::uninstall::{Inventory, Mode, Removal, former};

/// Everything there is, whoever made it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Account {
    pub(super) roles: BTreeMap<String, RoleState>,
    pub(super) agent: AgentState,
    pub(super) spot_role: bool,
    /// By namespace and name of the service account.
    pub(super) associations: BTreeMap<(String, String), AssociationState>,
    pub(super) providers: BTreeMap<String, ProviderState>,
    pub(super) entries: BTreeMap<String, AccessEntryState>,
    pub(super) aws_auth: Option<Value>,
    pub(super) profiles: BTreeMap<String, ProfileState>,
    pub(super) fargates: BTreeMap<String, FargateState>,
    pub(super) queues: BTreeMap<String, QueueState>,
    pub(super) rules: BTreeMap<String, RuleState>,
    /// Tags of subnets and security groups.
    pub(super) network: BTreeMap<String, Tags>,
    pub(super) objects: BTreeMap<Key, Value>,
    /// By namespace.
    pub(super) releases: BTreeMap<String, Vec<Revision>>,
}

/// Takes out of a map what the predicate holds for.
fn split<K: Ord, V>(map: &mut BTreeMap<K, V>, of: impl Fn(&K) -> bool) -> BTreeMap<K, V> {
    let (out, rest) = std::mem::take(map).into_iter().partition(|(key, _)| of(key));
    *map = rest;
    out
}

impl Account {
    /// What the installation sees. It is moved out, and has to be put back.
    fn take(&mut self, desired: &Desired) -> Actual {
        let roles = [&desired.node_role, &desired.controller_role, &desired.fargate_role];
        let roles = roles.map(|role| role.spec.as_ref().map(|spec| spec.name.clone()));
        let id = &desired.installation.id;
        let canary = desired.canary();
        let wanted = desired.objects().chain(&canary).map(Object::key);
        let wanted = wanted.collect::<BTreeSet<_>>();
        let types = labelled::types();
        let is_labelled = |(key, live): &(&Key, &Value)| {
            label(live, INSTALL_ID) == Some(id) && types.iter().any(|it| it.kind == key.kind)
        };
        let objects = self.objects.iter().filter(is_labelled);
        let labelled = objects.map(|(key, _)| {
            let resource = types.iter().find(|it| it.kind == key.kind).expect("it is one of them");
            Object::at(resource, key)
        });
        let labelled = labelled.collect::<Vec<_>>();
        let seen =
            |key: &Key| wanted.contains(key) || labelled.iter().any(|object| object.key() == *key);
        let account = &desired.service_account;
        let has_mark = |tags: &Tags| tags.get(DISCOVERY_MARK) == Some(id);
        Actual {
            roles: split(&mut self.roles, |name| roles.contains(&Some(name.clone()))),
            agent: self.agent.clone(),
            association: self
                .associations
                .remove(&(account.namespace.clone(), account.name.clone())),
            provider: desired.provider().and_then(|it| self.providers.remove(&it.arn)),
            access_entry: self.entries.remove(&desired.node_role.arn),
            aws_auth: self.aws_auth.take(),
            profile: self.profiles.remove(&desired.profile_name),
            spot_role: self.spot_role,
            fargate: self.fargates.remove(&desired.fargate_name),
            queue: self.queues.remove(&desired.queue_name),
            rules: split(&mut self.rules, |name| desired.rule_names.contains(name)),
            marked: self
                .network
                .iter()
                .filter(|(_, tags)| has_mark(tags))
                .map(|(id, _)| id.clone())
                .collect(),
            network: std::mem::take(&mut self.network),
            objects: split(&mut self.objects, seen),
            labelled,
            releases: self.releases.remove(&account.namespace).unwrap_or_default(),
        }
    }

    /// Puts it back as it is now.
    fn put(&mut self, desired: &Desired, actual: Actual) {
        let account = &desired.service_account;
        let Actual {
            roles,
            agent,
            association,
            provider,
            access_entry,
            aws_auth,
            profile,
            spot_role,
            fargate,
            queue,
            rules,
            network,
            marked: _,
            objects,
            labelled: _,
            releases,
        } = actual;
        self.roles.extend(roles);
        self.agent = agent;
        self.spot_role = spot_role;
        let key = (account.namespace.clone(), account.name.clone());
        self.associations.extend(association.map(|it| (key, it)));
        let arn = desired.provider().map(|it| it.arn.clone());
        self.providers.extend(arn.zip(provider));
        self.entries.extend(access_entry.map(|it| (desired.node_role.arn.clone(), it)));
        self.aws_auth = aws_auth;
        self.profiles.extend(profile.map(|it| (desired.profile_name.clone(), it)));
        self.fargates.extend(fargate.map(|it| (desired.fargate_name.clone(), it)));
        self.queues.extend(queue.map(|it| (desired.queue_name.clone(), it)));
        self.rules.extend(rules);
        self.network = network;
        self.objects.extend(objects);
        if !releases.is_empty() {
            self.releases.insert(account.namespace.clone(), releases);
        }
    }

    /// Lets something happen to what the installation sees.
    pub(super) fn seen<T>(&mut self, desired: &Desired, act: impl FnOnce(&mut Actual) -> T) -> T {
        let mut actual = self.take(desired);
        let result = act(&mut actual);
        self.put(desired, actual);
        result
    }

    /// What would be done now.
    pub(super) fn plan(&mut self, desired: &Desired) -> Result<Plan, Vec<String>> {
        self.seen(desired, |actual| diff(desired, actual))
    }

    /// Carries out a plan, or only so many steps of it, in one of the possible orders.
    pub(super) fn carry_out(&mut self, plan: &Plan, how: (usize, usize), desired: &Desired) {
        self.seen(desired, |actual| carry_out_some(plan, how, desired, actual));
    }

    /// What an uninstall finds.
    fn inventory(&mut self, desired: &Desired) -> Inventory {
        let named = former::role_names(desired);
        let named = named.iter().filter_map(|name| self.roles.get_key_value(name));
        let former_roles = former::roles(desired, named);
        let is_former = |(arn, entry): &(&String, &AccessEntryState)| {
            former::is_other_entry(desired, arn) && former::is_our_entry(desired, entry)
        };
        let entries = self.entries.iter().filter(is_former).map(|(arn, _)| arn.clone());
        let provider = desired.provider_arn.as_ref().and_then(|arn| {
            let is_ours = former::is_our_provider(desired, self.providers.get(arn)?);
            let trusts = |(_, role): &(&String, &RoleState)| role.trust.contains(arn);
            let users = self.roles.iter().filter(trusts).map(|(name, _)| name.clone());
            is_ours.then(|| former::provider(desired, arn, users.collect()))
        });
        let found = Discovered {
            record: Some(desired.installation.id.clone()),
            former_roles,
            former_entries: entries.collect(),
            provider,
            ..Discovered::default()
        };
        let mut inventory = self.seen(desired, |actual| Inventory::of(desired, actual, found));
        Mode::default().narrow(&mut inventory, desired);
        inventory
    }

    /// Uninstalls, or only as far as so many things. Answers how many were removed.
    pub(super) fn uninstall(&mut self, desired: &Desired, at_most: usize) -> usize {
        let inventory = self.inventory(desired);
        let crds = inventory.crds.iter().cloned().map(Removal::Object);
        let mut all = inventory.deployments();
        all.extend(crds);
        all.extend(inventory.free());
        all.extend(inventory.last());
        all.extend(inventory.namespace.iter().cloned().map(Removal::Object));
        let removed = all.len().min(at_most);
        for removal in &all[..removed] {
            self.remove(removal, desired);
        }
        removed
    }

    fn remove(&mut self, removal: &Removal, desired: &Desired) {
        match removal {
            Removal::Object(object) => drop(self.objects.remove(&object.key())),
            Removal::Release { namespace, secrets } => {
                if let Some(revisions) = self.releases.get_mut(namespace) {
                    revisions.retain(|revision| !secrets.contains(&revision.secret));
                    if revisions.is_empty() {
                        self.releases.remove(namespace);
                    }
                }
            }
            Removal::LaunchTemplate(_) => unreachable!("there are no nodes"),
            Removal::InstanceProfile(name) => drop(self.profiles.remove(name)),
            Removal::Association(id) => self.associations.retain(|_, it| it.id != *id),
            Removal::Fargate(name) => drop(self.fargates.remove(name)),
            Removal::AwsAuth(_) => {
                match aws_auth::without(self.aws_auth.as_ref(), &desired.installation.id) {
                    Ok(AuthRemoval::Delete) => self.aws_auth = None,
                    Ok(AuthRemoval::Patch(patch)) => {
                        self.aws_auth = self.aws_auth.take().map(|live| merged(live, &patch));
                    }
                    other => panic!("{other:?}"),
                }
            }
            Removal::AccessEntry(arn) => drop(self.entries.remove(arn)),
            Removal::Rule { name, .. } => drop(self.rules.remove(name)),
            Removal::DiscoveryTag { id, tags } => {
                if let Some(live) = self.network.get_mut(id) {
                    live.retain(|key, value| tags.get(key) != Some(value));
                }
            }
            Removal::Provider(arn) => drop(self.providers.remove(arn)),
            Removal::Queue { name, .. } => drop(self.queues.remove(name)),
            Removal::Role(name) => drop(self.roles.remove(name)),
        }
    }
}
