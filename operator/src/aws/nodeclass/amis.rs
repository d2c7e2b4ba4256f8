//! Which images an EC2NodeClass may use, and for which machines each is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_crds::ec2nodeclass::{Alias, Ami, AmiFamily, AmiSelectorTerm};
use tenon_crds::labels::{self, aws};
use tenon_crds::{EC2NodeClassSpec, Operator, Requirement};
use tenon_state::ec2::family::Family as _;

use crate::aws::ec2::{self, Filter, Image, filter, tag_filters};
use crate::aws::error::Error;
use crate::aws::ssm::{Parameters, Purpose};

/// Why there are no images.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AmiError {
    /// The alias has no images for this version of Kubernetes.
    #[error("{0}")]
    UnsupportedAlias(String),
    /// None of the alias' parameters exists in this region.
    #[error("failed to discover any AMIs for alias {0}")]
    NothingForAlias(String),
    /// A call failed.
    #[error(transparent)]
    Aws(#[from] Error),
}

/// The kinds of machines that an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    Standard,
    Nvidia,
    Neuron,
    /// Of this build.
    Windows(&'static str),
}

/// A parameter that holds the image of an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AliasParameter {
    name: String,
    variants: Vec<Variant>,
}

/// The first minor version of Kubernetes with images of Windows Server 2025.
const FIRST_WITH_WINDOWS_2025: u32 = 35;

/// Image id → the sets of requirements that its machines meet. An image without an entry is for all
/// machines of its architecture.
type Uses = BTreeMap<String, Vec<Vec<Requirement>>>;

/// The images of a NodeClass, newest first.
pub(crate) async fn resolve(
    client: &ec2::Ec2,
    parameters: &Parameters,
    spec: &EC2NodeClassSpec,
    kubernetes: &str,
    now: Timestamp,
) -> Result<Vec<Ami>, AmiError> {
    let (queries, uses) = match spec.alias() {
        Some(alias) => {
            let uses = resolve_alias(parameters, &alias, kubernetes).await?;
            let query = Query {
                filters: vec![filter("image-id", uses.keys().cloned())],
                owners: Vec::new(),
            };
            (vec![query], uses)
        }
        None => (queries(parameters, &spec.ami_selector_terms).await?, Uses::new()),
    };
    let mut images = BTreeMap::new();
    for Query { filters, owners } in &queries {
        for image in ec2::images(client, filters, owners).await? {
            images.insert(image.id.clone(), image);
        }
    }
    Ok(best(images.into_values().collect(), &uses, now))
}

async fn resolve_alias(
    parameters: &Parameters,
    alias: &Alias,
    kubernetes: &str,
) -> Result<Uses, AmiError> {
    let mut uses = Uses::new();
    for parameter in alias_parameters(alias, kubernetes)? {
        let purpose = if alias.version == "latest" { Purpose::Latest } else { Purpose::Pinned };
        match parameters.get(&parameter.name, purpose).await {
            Ok(Some(id)) => {
                let sets = parameter.variants.iter().map(|variant| variant.requirements());
                uses.entry(id).or_default().extend(sets);
            }
            Ok(None) => {}
            // Without an answer the variant may exist: machines for which there is an image must
            // not lose it.
            Err(error) if error.is_retryable() => return Err(error.into()),
            // A region may lack a variant; that one parameter can't be read must not take the
            // others away.
            Err(error) => {
                tracing::warn!(parameter = parameter.name, %error, "failed to read ssm parameter");
            }
        }
    }
    if uses.is_empty() {
        let alias = format!("{}@{}", alias.family.as_str().to_lowercase(), alias.version);
        return Err(AmiError::NothingForAlias(alias));
    }
    Ok(uses)
}

/// The parameters of an alias for a minor version of Kubernetes (`1.33`).
fn alias_parameters(alias: &Alias, kubernetes: &str) -> Result<Vec<AliasParameter>, AmiError> {
    use Variant::{Neuron, Nvidia, Standard};
    let minor: u32 = kubernetes.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    let version = alias.version.as_str();
    let release = |pinned: String| {
        if version == "latest" { "recommended".to_owned() } else { format!("{pinned}-{version}") }
    };
    let eks = |path: String, variants: &[Variant]| AliasParameter {
        name: format!("/aws/service/eks/optimized-ami/{kubernetes}/{path}/image_id"),
        variants: variants.to_vec(),
    };
    match alias.family {
        AmiFamily::Al2 if minor >= 33 => Err(AmiError::UnsupportedAlias(format!(
            "AMI Family AL2 is not supported on Kubernetes {kubernetes}: use al2023 or another alias",
        ))),
        AmiFamily::Al2 => Ok([
            ("amazon-linux-2", "amazon-eks-node", &[Standard][..]),
            ("amazon-linux-2-arm64", "amazon-eks-arm64-node", &[Standard]),
            ("amazon-linux-2-gpu", "amazon-eks-gpu-node", &[Neuron, Nvidia]),
        ]
        .into_iter()
        .map(|(folder, name, variants)| {
            eks(format!("{folder}/{}", release(format!("{name}-{kubernetes}"))), variants)
        })
        .collect()),
        AmiFamily::Al2023 => Ok([
            ("x86_64", "standard", &[Standard][..]),
            ("arm64", "standard", &[Standard]),
            ("x86_64", "nvidia", &[Nvidia]),
            ("arm64", "nvidia", &[Nvidia]),
            ("x86_64", "neuron", &[Neuron]),
        ]
        .into_iter()
        .map(|(arch, variant, variants)| {
            let pinned = format!("amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}");
            eks(format!("amazon-linux-2023/{arch}/{variant}/{}", release(pinned)), variants)
        })
        .collect()),
        AmiFamily::Bottlerocket => {
            let version = version.trim_start_matches('v');
            Ok([
                ("", "x86_64", &[Standard, Neuron][..]),
                ("", "arm64", &[Standard]),
                ("-nvidia", "x86_64", &[Nvidia]),
                ("-nvidia", "arm64", &[Nvidia]),
            ]
            .into_iter()
            .map(|(flavour, arch, variants)| AliasParameter {
                name: format!(
                    "/aws/service/bottlerocket/aws-k8s-{kubernetes}{flavour}/{arch}/{version}/image_id"
                ),
                variants: variants.to_vec(),
            })
            .collect())
        }
        AmiFamily::Windows2025 if minor < FIRST_WITH_WINDOWS_2025 => {
            Err(AmiError::UnsupportedAlias(format!(
                "AMI Family Windows2025 is not supported on Kubernetes {kubernetes}: use windows2022 or \
                 another alias, or upgrade the cluster to 1.{FIRST_WITH_WINDOWS_2025}",
            )))
        }
        family @ (AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025) => {
            let year = family.as_str().trim_start_matches("Windows");
            let name = format!(
                "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
            );
            let build = family.windows_build().unwrap_or_default();
            Ok(vec![AliasParameter { name, variants: vec![Variant::Windows(build)] }])
        }
        AmiFamily::Custom => {
            Err(AmiError::UnsupportedAlias("AMI family Custom has no aliases".to_owned()))
        }
    }
}

impl Variant {
    fn requirements(self) -> Vec<Requirement> {
        let requirement = |key: &str, operator| Requirement::new(key, operator, [""; 0]);
        match self {
            Self::Standard => vec![
                requirement(aws::INSTANCE_ACCELERATOR_COUNT, Operator::DoesNotExist),
                requirement(aws::INSTANCE_GPU_COUNT, Operator::DoesNotExist),
            ],
            Self::Nvidia => vec![requirement(aws::INSTANCE_GPU_COUNT, Operator::Exists)],
            Self::Neuron => vec![requirement(aws::INSTANCE_ACCELERATOR_COUNT, Operator::Exists)],
            Self::Windows(build) => vec![
                Requirement::new(labels::OS, Operator::In, ["windows"]),
                Requirement::new(labels::WINDOWS_BUILD, Operator::In, [build]),
            ],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    filters: Vec<Filter>,
    owners: Vec<String>,
}

async fn queries(
    parameters: &Parameters,
    terms: &[AmiSelectorTerm],
) -> Result<Vec<Query>, AmiError> {
    let mut ids = Vec::new();
    let mut queries = Vec::new();
    for term in terms {
        if let Some(id) = &term.id {
            ids.push(id.clone());
        } else if let Some(name) = &term.ssm_parameter {
            match parameters.get(name, Purpose::User).await? {
                Some(id) if id.starts_with("ami-") => ids.push(id),
                Some(value) => {
                    tracing::error!(parameter = name, value, "ssm parameter holds no AMI id");
                }
                None => tracing::error!(parameter = name, "ssm parameter does not exist"),
            }
        } else {
            queries.push(term_query(term));
        }
    }
    if !ids.is_empty() {
        queries.push(Query { filters: vec![filter("image-id", ids)], owners: Vec::new() });
    }
    Ok(queries)
}

fn term_query(term: &AmiSelectorTerm) -> Query {
    let mut filters = tag_filters(&term.tags);
    let mut owners: Vec<String> = term.owner.iter().cloned().collect();
    if let Some(name) = &term.name {
        filters.push(filter("name", [name]));
        // Anybody may publish an image under any name.
        if owners.is_empty() {
            owners = vec!["self".to_owned(), "amazon".to_owned()];
        }
    }
    Query { filters, owners }
}

/// Per kind of machine the best image: not deprecated before deprecated, then the newest, then by
/// name. Sorted: newest first.
fn best(images: Vec<Image>, uses: &Uses, now: Timestamp) -> Vec<Ami> {
    let everything = vec![Vec::new()];
    let mut best: BTreeMap<Vec<Requirement>, Image> = BTreeMap::new();
    for image in images {
        let arch = match image.architecture.as_str() {
            "x86_64" => labels::ARCH_AMD64,
            "arm64" => labels::ARCH_ARM64,
            _ => continue,
        };
        for set in uses.get(&image.id).unwrap_or(&everything) {
            let mut requirements = set.clone();
            requirements.push(Requirement::new(labels::ARCH, Operator::In, [arch]));
            requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
            match best.get(&requirements) {
                Some(known) if rank(known, now) >= rank(&image, now) => {}
                _ => {
                    best.insert(requirements, image.clone());
                }
            }
        }
    }
    let mut amis: Vec<(String, Ami)> = best
        .into_iter()
        .map(|(requirements, image)| {
            let deprecated = is_deprecated(&image, now);
            let ami = Ami { deprecated, id: image.id, name: Some(image.name), requirements };
            (image.created, ami)
        })
        .collect();
    amis.sort_by(|(created_a, a), (created_b, b)| {
        created_b.cmp(created_a).then_with(|| a.id.cmp(&b.id))
    });
    amis.into_iter().map(|(_, ami)| ami).collect()
}

fn rank(image: &Image, now: Timestamp) -> (bool, &str, &str) {
    (!is_deprecated(image, now), &image.created, &image.name)
}

fn is_deprecated(image: &Image, now: Timestamp) -> bool {
    image
        .deprecated_at
        .as_deref()
        .and_then(|at| at.parse::<Timestamp>().ok())
        .is_some_and(|at| at <= now)
}

/// Ids of those images, among the given ones, that are deprecated or gone.
pub(crate) async fn outdated(
    client: &ec2::Ec2,
    ids: &[String],
    now: Timestamp,
) -> Result<Vec<String>, Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = ec2::images(client, &[filter("image-id", ids.iter().cloned())], &[]).await?;
    let current =
        |id: &String| found.iter().any(|image| image.id == *id && !is_deprecated(image, now));
    Ok(ids.iter().filter(|id| !current(id)).cloned().collect())
}

#[cfg(test)]
mod tests;
