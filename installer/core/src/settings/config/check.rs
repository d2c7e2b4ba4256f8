//! What the schema can't say about a settings file.

use super::{Config, Switch};

impl Config {
    /// What the schema can't say: path and message of each problem.
    pub fn check(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut expect = |holds: bool, path: &str, value: &str, allowed: &str| {
            if !holds {
                problems.push((
                    path.to_owned(),
                    format!("{value:?} is not allowed; allowed: {allowed}"),
                ));
            }
        };
        if let Some(name) = &self.cluster.name {
            let fits = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
                && name.len() <= 100
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            expect(
                fits,
                "cluster.name",
                name,
                "1 to 100 letters, digits, dashes and underscores, a letter or digit first",
            );
        }
        if let Some(region) = &self.cluster.region {
            let fits = region.split('-').count() >= 3
                && region.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            expect(fits, "cluster.region", region, "a region such as eu-central-1");
        }
        if let Some(account) = &self.cluster.account_id {
            expect(
                account.len() == 12 && account.chars().all(|c| c.is_ascii_digit()),
                "cluster.accountId",
                account,
                "12 digits in quotes",
            );
        }
        let arn = |text: &str, service: &str| text.starts_with("arn:aws") && text.contains(service);
        if let Some(role) = &self.identity.controller_role_arn {
            expect(
                arn(role, ":role/"),
                "identity.controllerRoleArn",
                role,
                "the ARN of an IAM role",
            );
        }
        if let Some(boundary) = &self.identity.boundary {
            expect(
                arn(boundary, ":policy/"),
                "identity.boundary",
                boundary,
                "the ARN of an IAM policy",
            );
        }
        if let Some(path) = &self.identity.role_path {
            expect(
                path.starts_with('/') && path.ends_with('/') && path.len() <= 512,
                "identity.rolePath",
                path,
                "a path with slashes at both ends",
            );
        }
        if let Some(prefix) = &self.identity.name_prefix {
            let fits = (1..=20).contains(&prefix.len())
                && prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            expect(fits, "identity.namePrefix", prefix, "1 to 20 letters, digits and dashes");
        }
        if let Some(role) = &self.nodes.role_name {
            let fits = (1..=64).contains(&role.len())
                && role.chars().all(|c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c));
            expect(
                fits,
                "nodes.roleName",
                role,
                "the name of an IAM role without its path: 1 to 64 letters, digits and _+=,.@-",
            );
        }
        for (i, policy) in self.nodes.extra_policies.iter().enumerate() {
            expect(
                arn(policy, ":policy/"),
                &format!("nodes.extraPolicies[{i}]"),
                policy,
                "the ARN of an IAM policy",
            );
        }
        if let Some(key) = &self.interruption.kms_key {
            expect(
                arn(key, ":kms:") && key.contains(":key/"),
                "interruption.kmsKey",
                key,
                "the ARN of a customer managed KMS key (EventBridge can't use AWS's own alias/aws/sqs)",
            );
        }
        if let Some(queue) = &self.interruption.queue_name {
            let fits = (1..=80).contains(&queue.len())
                && queue.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
            expect(
                fits,
                "interruption.queueName",
                queue,
                "the queue's name, not its ARN or URL: 1 to 80 letters, digits, dashes and underscores",
            );
        }
        let nameless = self.interruption.manage == Some(Switch::Skip)
            && self.interruption.enabled != Some(false)
            && self.interruption.queue_name.is_none();
        expect(
            !nameless,
            "interruption.manage",
            "skip",
            "manage, or skip with queueName: the name of an existing queue",
        );
        for (i, subnet) in self.network.subnet_ids.iter().enumerate() {
            expect(
                subnet.starts_with("subnet-"),
                &format!("network.subnetIds[{i}]"),
                subnet,
                "a subnet's id such as subnet-0123456789abcdef0",
            );
        }
        for (i, group) in self.network.security_group_ids.iter().enumerate() {
            expect(
                group.starts_with("sg-"),
                &format!("network.securityGroupIds[{i}]"),
                group,
                "a security group's id such as sg-0123456789abcdef0",
            );
        }
        if let Some(namespace) = &self.deploy.namespace {
            let fits = (1..=63).contains(&namespace.len())
                && namespace
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                && !namespace.starts_with('-')
                && !namespace.ends_with('-');
            expect(
                fits,
                "deploy.namespace",
                namespace,
                "a DNS label: at most 63 lower-case letters, digits and dashes",
            );
        }
        if let Some(alias) = &self.defaults.ami_alias {
            let fits = alias.split_once('@').is_some_and(|(family, version)| {
                matches!(family, "al2" | "al2023" | "bottlerocket")
                    && (version == "latest"
                        || version.starts_with('v')
                        || version.starts_with(|c: char| c.is_ascii_digit()))
            });
            expect(fits, "defaults.amiAlias", alias, "<al2023|al2|bottlerocket>@<latest|version>");
        }
        for key in self.tags.keys() {
            let reserved = ["aws:", "tenon.sh/", "karpenter", "kubernetes.io/"]
                .iter()
                .any(|prefix| key.starts_with(prefix));
            expect(
                !reserved && !key.is_empty() && key.len() <= 128,
                "tags",
                key,
                "keys that don't start with aws:, tenon.sh/, karpenter or kubernetes.io/",
            );
        }
        problems
    }
}
