//! What is read before it is compared with what should be there: everything that bears, or would
//! bear, a name of ours.

use super::Desired;
use crate::observe::actual::Lookup;

impl Desired {
    /// What to look for.
    pub fn lookup(&self) -> Lookup {
        let roles = [&self.node_role, &self.controller_role, &self.fargate_role];
        let ours = roles.into_iter().filter(|role| role.spec.is_some());
        let canary = self.canary();
        let objects = self.objects().chain(&canary);
        Lookup {
            cluster: self.scope.cluster.clone(),
            install_id: self.installation.id.clone(),
            roles: ours.map(|role| role.name.clone()).collect(),
            node_role_arn: self.node_role.arn.clone(),
            service_account: self.service_account.clone(),
            provider_arn: self.provider().map(|provider| provider.arn.clone()),
            profile: self.profile_name.clone(),
            spot_role: self.spot_role,
            fargate: self.fargate_name.clone(),
            queue: self.queue_name.clone(),
            rules: self.rule_names.clone(),
            network: self.discovery.clone(),
            objects: objects.map(|object| (object.resource.clone(), object.key())).collect(),
            helm_record: self.helm.is_some(),
        }
    }
}
