//! What EKS' identity webhooks add to a pod: the variables and the token by which an AWS SDK finds
//! the pod's role.
//!
//! In EKS these are added when the pod is admitted; here when it starts on a system node, moments
//! later. As there, a variable that the container sets itself stays, and an association or
//! annotation that comes later needs new pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EnvVar, PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount,
    VolumeProjection,
};

/// How a service account gets its AWS role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// By Pod Identity: the agent's credentials endpoint.
    PodIdentity {
        /// Its URL.
        credentials_url: String,
    },
    /// By IAM roles for service accounts.
    WebIdentity {
        /// The role.
        role_arn: String,
        /// The token's audience.
        audience: String,
        /// Whether the region's own STS endpoint is asked for.
        regional_endpoints: Option<bool>,
    },
    /// It has none.
    None,
}

/// The audience of Pod Identity's tokens.
pub(crate) const POD_IDENTITY_AUDIENCE: &str = "pods.eks.amazonaws.com";

impl Identity {
    /// The identity of a service account, by its annotations and by whether it has a Pod Identity
    /// association. If it has both, both webhooks would act; an SDK prefers the web identity, and
    /// so do we.
    pub fn of(
        annotations: &BTreeMap<String, String>,
        associated: bool,
        credentials_url: &str,
    ) -> Self {
        let annotation =
            |name: &str| annotations.get(&format!("eks.amazonaws.com/{name}")).cloned();
        match annotation("role-arn") {
            Some(role_arn) => Self::WebIdentity {
                role_arn,
                audience: annotation("audience").unwrap_or_else(|| "sts.amazonaws.com".to_owned()),
                regional_endpoints: annotation("sts-regional-endpoints")
                    .map(|value| value == "true"),
            },
            None if associated => Self::PodIdentity { credentials_url: credentials_url.to_owned() },
            None => Self::None,
        }
    }

    /// Adds the variables, the token volume and its mounts to all containers of a pod.
    pub fn inject(&self, spec: &mut PodSpec, region: &str) {
        let (volume, directory, file, audience, mut variables) = match self {
            Self::None => return,
            Self::PodIdentity { credentials_url } => (
                "eks-pod-identity-token",
                "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount",
                "eks-pod-identity-token",
                POD_IDENTITY_AUDIENCE,
                vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", credentials_url.clone())],
            ),
            Self::WebIdentity { role_arn, audience, regional_endpoints } => {
                let mut variables = vec![("AWS_ROLE_ARN", role_arn.clone())];
                if let Some(regional) = regional_endpoints {
                    let value = if *regional { "regional" } else { "legacy" };
                    variables.push(("AWS_STS_REGIONAL_ENDPOINTS", value.to_owned()));
                }
                let directory = "/var/run/secrets/eks.amazonaws.com/serviceaccount";
                ("aws-iam-token", directory, "token", audience.as_str(), variables)
            }
        };
        let token_variable = match self {
            Self::WebIdentity { .. } => "AWS_WEB_IDENTITY_TOKEN_FILE",
            Self::PodIdentity { .. } | Self::None => "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        };
        variables.push((token_variable, format!("{directory}/{file}")));
        variables.push(("AWS_REGION", region.to_owned()));
        variables.push(("AWS_DEFAULT_REGION", region.to_owned()));
        let token = ServiceAccountTokenProjection {
            audience: Some(audience.to_owned()),
            expiration_seconds: Some(86_400),
            path: file.to_owned(),
            ..Default::default()
        };
        spec.volumes.get_or_insert_default().push(Volume {
            name: volume.to_owned(),
            projected: Some(ProjectedVolumeSource {
                sources: Some(vec![VolumeProjection {
                    service_account_token: Some(token),
                    ..Default::default()
                }]),
                ..Default::default()
            }),
            ..Default::default()
        });
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        for container in containers {
            let env = container.env.get_or_insert_default();
            for (name, value) in &variables {
                if !env.iter().any(|variable| variable.name == *name) {
                    env.push(EnvVar {
                        name: (*name).to_owned(),
                        value: Some(value.clone()),
                        value_from: None,
                    });
                }
            }
            container.volume_mounts.get_or_insert_default().push(VolumeMount {
                name: volume.to_owned(),
                mount_path: directory.to_owned(),
                read_only: Some(true),
                ..Default::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;

    use super::*;

    fn injected(identity: &Identity) -> PodSpec {
        let own = EnvVar {
            name: "AWS_REGION".to_owned(),
            value: Some("own".to_owned()),
            value_from: None,
        };
        let container =
            Container { name: "main".to_owned(), env: Some(vec![own]), ..Default::default() };
        let mut spec = PodSpec { containers: vec![container], ..Default::default() };
        identity.inject(&mut spec, "eu-central-1");
        spec
    }

    fn value<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a str> {
        let env = spec.containers[0].env.as_ref()?;
        env.iter().find(|variable| variable.name == name)?.value.as_deref()
    }

    #[test]
    fn pod_identity_gives_the_agents_endpoint_and_a_token_for_it() {
        let identity = Identity::of(&BTreeMap::new(), true, "http://127.0.0.1:1/v1/credentials");
        let spec = injected(&identity);
        assert_eq!(
            value(&spec, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            Some("http://127.0.0.1:1/v1/credentials")
        );
        let file = value(&spec, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").expect("a file");
        assert!(file.starts_with(
            &spec.containers[0].volume_mounts.as_ref().expect("a mount")[0].mount_path
        ));
        assert_eq!(value(&spec, "AWS_REGION"), Some("own"), "the container's own value stays");
    }

    #[test]
    fn an_annotated_service_account_gets_a_web_identity_even_if_it_is_associated() {
        let annotations = BTreeMap::from([(
            "eks.amazonaws.com/role-arn".to_owned(),
            "arn:aws:iam::1:role/r".to_owned(),
        )]);
        let spec = injected(&Identity::of(&annotations, true, "http://127.0.0.1:1/"));
        assert_eq!(value(&spec, "AWS_ROLE_ARN"), Some("arn:aws:iam::1:role/r"));
        assert_eq!(value(&spec, "AWS_CONTAINER_CREDENTIALS_FULL_URI"), None);
        let volume = &spec.volumes.as_ref().expect("a volume")[0];
        let sources =
            volume.projected.as_ref().and_then(|it| it.sources.as_ref()).expect("sources");
        let token = sources[0].service_account_token.as_ref().expect("a token");
        assert_eq!(token.audience.as_deref(), Some("sts.amazonaws.com"));
    }

    #[test]
    fn without_identity_nothing_is_added() {
        assert_eq!(injected(&Identity::of(&BTreeMap::new(), false, "")).volumes, None);
    }
}
