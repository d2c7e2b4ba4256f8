//! Why a simulation could not be made.

use std::path::{Path, PathBuf};

use tenon_state::catalog::CatalogError;

use super::problem::{Problem, TYPED};
use super::words::counted;

/// How many problems are printed; a wrong template repeats its mistake in every object.
const SHOWN: usize = 20;

/// What is wrong with the input.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// Manifests that can't be read; all of them.
    #[error("the manifests have {n}", n = counted(problems.len(), "problem"))]
    Manifests {
        /// What is wrong, in the order of the files.
        problems: Vec<Problem>,
    },
    /// A file can't be read.
    #[error("can't read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file can't be written.
    #[error("can't write {path}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The cluster did not list its objects.
    #[error("list {resource}")]
    List {
        /// Plural name of the kind.
        resource: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The file with instance types.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A file with Savings Plans or reserved instances.
    #[error("can't use {path}: {problem}", path = path.display())]
    Commitments {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The instance type of a node group that no NodePool could launch.
    #[error("no NodeClass of a NodePool offers the instance type {name}")]
    UnknownType {
        /// As it was typed.
        name: String,
    },
    /// Neither files nor a cluster.
    #[error("nothing to plan: no input is specified")]
    NoInput,
    /// A snapshot together with other input.
    #[error("a saved snapshot is the complete input, including catalogs")]
    SnapshotAlone,
    /// A saved snapshot where objects are needed.
    #[error("a saved snapshot has no NodePools that could be changed")]
    SnapshotUnchangeable,
    /// A saved snapshot whose nodes are to be drained.
    #[error("a saved snapshot has no nodes and pods that could be drained")]
    SnapshotUndrainable,
    /// No node has the labels of those that are to be drained.
    #[error("no node matches --drain {selector}")]
    NothingToDrain {
        /// As it was typed.
        selector: String,
    },
    /// A saved snapshot where labels or owners of pods are needed.
    #[error("a saved snapshot has neither labels nor owners of all pods")]
    SnapshotWithoutOwners,
    /// Standard input where input is read again and again.
    #[error("standard input can be read only once")]
    ReadOnce,
    /// The object to explain is not there.
    #[error("there is no {what} in the input")]
    NotFound {
        /// Kind and name.
        what: String,
        /// Names that are there and look like it.
        similar: Vec<String>,
    },
}

impl SimulateError {
    /// A short word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Read { .. } | Self::Write { .. } => "file",
            Self::List { .. } => "observe",
            Self::Manifests { .. } => "manifests",
            Self::Catalog(_) => "catalog",
            Self::Commitments { .. } => "commitments",
            Self::NoInput
            | Self::SnapshotAlone
            | Self::SnapshotUnchangeable
            | Self::SnapshotUndrainable
            | Self::SnapshotWithoutOwners
            | Self::ReadOnce => "input",
            Self::NotFound { .. } | Self::NothingToDrain { .. } | Self::UnknownType { .. } => {
                "not-found"
            }
        }
    }

    /// The same about manifests that were taken as a text, and come from this file.
    #[must_use]
    pub fn of_file(mut self, file: &Path) -> Self {
        if let Self::Manifests { problems } = &mut self {
            let typed = problems.iter_mut().filter(|problem| problem.file == Path::new(TYPED));
            typed.for_each(|problem| file.clone_into(&mut problem.file));
        }
        self
    }

    /// The single facts behind the error, one per line.
    pub fn details(&self) -> Vec<String> {
        match self {
            Self::Manifests { problems } => {
                let mut lines: Vec<String> =
                    problems.iter().take(SHOWN).map(ToString::to_string).collect();
                if problems.len() > SHOWN {
                    lines.push(format!("and {} more", problems.len() - SHOWN));
                }
                lines
            }
            _ => Vec::new(),
        }
    }

    /// What to do next.
    pub fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Manifests { .. } | Self::Read { .. } | Self::Write { .. } | Self::List { .. } => {
                return Vec::new();
            }
            Self::Catalog(_) => "--catalog expects a JSON list in the format of the kwok \
                 provider's instance-types file (objects with name, architecture, \
                 operatingSystems, resources and offerings), or the output of `aws ec2 \
                 describe-instance-types`"
                .to_owned(),
            Self::Commitments { .. } => "--commitments expects the output of `aws ec2 \
                 describe-reserved-instances`, of `aws savingsplans describe-savings-plans` and, \
                 for each Savings Plan, of `aws savingsplans describe-savings-plan-rates \
                 --savings-plan-id ID --max-results 1000 --filters name=region,values=REGION` (all \
                 its pages)"
                .to_owned(),
            Self::UnknownType { .. } => {
                "check the spelling; a type that EC2 has, but this version \
                 has no price for, needs --catalog"
                    .to_owned()
            }
            Self::NoInput => {
                "specify manifests with -f, or read the cluster of the current kubeconfig with \
                 --live"
                    .to_owned()
            }
            Self::SnapshotAlone => "omit --live, --catalog and other files".to_owned(),
            Self::NothingToDrain { .. } => {
                "see the labels with `kubectl get nodes --show-labels`".to_owned()
            }
            Self::SnapshotUnchangeable | Self::SnapshotUndrainable => {
                "use the manifests or the cluster that the snapshot was made from".to_owned()
            }
            Self::SnapshotWithoutOwners => "use the manifests or the cluster that the snapshot \
                 was made from, or another --by"
                .to_owned(),
            Self::ReadOnce => "write it to a file, and name that with -f".to_owned(),
            Self::NotFound { similar, .. } if similar.is_empty() => return Vec::new(),
            Self::NotFound { similar, .. } => format!("there is {}", similar.join(", ")),
        };
        vec![hint]
    }
}
