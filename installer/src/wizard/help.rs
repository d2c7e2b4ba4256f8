//! What `?` explains about each question.

use super::step::Step;

/// What `?` explains.
pub(super) fn help(step: Step) -> &'static str {
    match step {
        Step::Context => {
            "The clusters of your kubeconfig's contexts, the current one first. To choose from all \
             clusters of a region instead, choose the last entry."
        }
        Step::Region => {
            "The AWS region of the cluster, such as eu-central-1. All resources are created \
             there; IAM roles belong to the whole account. For a region that is newer than this \
             version of tenon, start again with --allow-unknown-region."
        }
        Step::Cluster => {
            "The name as shown by `aws eks list-clusters`. If you have permission to list the \
             clusters of the region, you can choose one of them."
        }
        Step::Account => {
            "Everything is created in this account, by this user or role. The account's id is \
             written to the settings file, so that the file is refused with credentials of any \
             other account. If it is the wrong account, answer no and use another --profile."
        }
        Step::Karpenter => {
            "Two controllers with the same CRDs fight over the same nodes. `tenon adopt` replaces \
             the running Karpenter with Tenon in one step, keeps NodePools, nodes, role and queue, \
             and can be undone."
        }
        Step::ClusterAutoscaler => {
            "The Cluster Autoscaler scales node groups; Tenon launches nodes for NodePools. Both \
             react to the same pending pods. Usually both run until the workloads have moved to \
             nodes of Tenon; then you scale the Cluster Autoscaler down. tenon does not change it."
        }
        Step::Recommended => {
            "The settings that follow from the cluster. Nothing is final: you see the plan before \
             anything changes, and `tenon install` starts from these settings when you run it \
             again."
        }
        Step::Host => {
            "The operator can't run on nodes that it launches itself. Two replicas need two nodes, \
             preferably in two zones. Choosing a node group sets a node selector and tolerations. \
             Fargate runs each replica on a machine of its own and needs private subnets."
        }
        Step::Identity => {
            "Pod Identity needs no identity provider in IAM and survives the replacement of the \
             cluster; its add-on runs a small DaemonSet. IRSA works without the add-on, and is the \
             only mechanism on Fargate."
        }
        Step::Agent => {
            "EKS Pod Identity provides the operator's pods with the credentials of an IAM \
             role, through a small DaemonSet that EKS installs as a free add-on. Other pods \
             are not affected. tenon never removes the add-on, because other workloads may use \
             it too."
        }
        Step::Discovery => {
            "An EC2NodeClass selects subnets and security groups by a tag or by id. With the \
             tag you can add a subnet later without changing Kubernetes objects. A subnet that \
             several clusters share can carry the tag of only one of them: choose ids in that \
             case."
        }
        Step::Subnets => {
            "Nodes are launched into these subnets, in the zone with available capacity at the \
             best price. Private subnets are the usual choice. Every pod uses an address, so \
             small subnets fill up."
        }
        Step::SecurityGroups => {
            "Nodes get these security groups. The cluster's own group lets nodes and control plane \
             reach each other. The nodes of your node groups also have other groups, to which the \
             rules of databases or load balancers may refer."
        }
        Step::Interruption => {
            "AWS announces a spot interruption two minutes in advance, and maintenance \
             earlier. One SQS queue and five EventBridge rules deliver these messages to the \
             operator, which replaces the node in time. They cost next to nothing."
        }
        Step::Defaults => {
            "A NodePool defines the instances that may be launched, and an EC2NodeClass their AWS \
             settings. Without them, nothing is launched. You can change or delete both later."
        }
        Step::Image => {
            "The image of the nodes that Tenon launches, always in its newest version for the \
             cluster's version of Kubernetes. The node groups of this cluster use Bottlerocket."
        }
        Step::Capacity => {
            "Spot instances cost a fraction of the on-demand price and can be interrupted with \
             two minutes' notice. With both, spot is tried first, and workloads that must not \
             be interrupted can require on-demand."
        }
        Step::Architectures => {
            "arm64 is cheaper for the same work, if all your images support it. With both, a \
             pod whose image lacks one architecture may be scheduled on the wrong one, unless \
             it requires the right one."
        }
        Step::CpuLimit => {
            "A safeguard against mistakes: the NodePool launches nothing beyond this limit. \
             Existing nodes stay."
        }
        Step::Delivery => {
            "The settings file is written in any case. With GitOps, Flux or Argo CD installs the \
             operator from its charts, and Terraform, CloudFormation or tenon creates the AWS \
             resources."
        }
        Step::Charts => {
            "The location of the charts tenon and tenon-crds of your release, without their \
             names. To check it, append /tenon and pass it to `helm show chart`."
        }
        Step::Repository => {
            "Argo CD reads the NodePools from this repository; the files that are written here have \
             to be committed to it."
        }
        Step::Folder => {
            "The files are written to a folder of this name below the current one, and their \
             references to each other contain the name. Commit the folder to the repository under \
             the same name."
        }
    }
}
