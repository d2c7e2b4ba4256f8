//! The CRDs and the operator in a kOps cluster, and how far the cluster is from having them.
//!
//! What kOps' own Karpenter add-on has left behind has the same names. It is taken over, but for
//! its Deployment: that one has to go first, because its selector cannot change and two operators
//! must not run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenon_installer_core::apply::wait::deployment_lacks;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::helm;
use tenon_installer_core::kubernetes::object::{Key, Object, label};
use tenon_installer_core::kubernetes::operator_deployment::{self, OperatorDeployment, gitops};
use tenon_installer_core::kubernetes::release::Release;
use tenon_installer_core::kubernetes::{canary, crds, operator};
use tenon_installer_core::observe::labelled;
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_installer_core::plan::{Action, CANARY_GOES, Op, Plan, Step, object_step, step_id};
use tenon_installer_core::settings::values::Values;
use tenon_installer_core::words::{count, some};

use super::augment::is_of_add_on;
use super::operator::NAMESPACE;
use crate::upgrade::stages::{
    CANARY, ROLLOUT, goes, grants, has_other_pods, prove, rollout, widened_rules,
};

/// What should be there.
#[derive(Debug)]
pub(crate) struct Software {
    install_id: String,
    /// CRDs first.
    objects: Vec<Object>,
}

impl Software {
    /// With these values.
    pub(crate) fn new(values: &Values, install_id: &str) -> Self {
        let release = Release {
            name: "tenon".to_owned(),
            namespace: NAMESPACE.to_owned(),
            managed_by: "tenon".to_owned(),
        };
        let mut objects = crds::objects();
        objects.extend(operator::objects(values, &release));
        for object in &mut objects {
            object.stamp(install_id);
        }
        Self { install_id: install_id.to_owned(), objects }
    }

    /// One pod as those of its Deployment.
    fn canary(&self, deployment: &Object) -> Object {
        let mut canary = canary::of(deployment);
        canary.stamp(&self.install_id);
        canary
    }

    /// The operator's Deployment.
    pub(crate) fn deployment(&self) -> Option<&Object> {
        self.objects.iter().find(|object| object.is_deployment())
    }
}

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct Found {
    objects: BTreeMap<Key, Value>,
    /// Objects that bear the installation's label, wanted or not.
    labelled: Vec<Object>,
    /// An operator of Tenon's under another name, as `namespace/name`.
    other: Option<String>,
}

impl Found {
    /// Looks.
    pub(crate) async fn read(kube: &Cluster, software: &Software) -> Result<Self, Failure> {
        let objects = software.objects.iter();
        let wanted = objects.map(|object| (object.resource.clone(), object.key()));
        let wanted = wanted.collect::<Vec<_>>();
        let deployment = software.deployment().map(Object::key);
        let other = async {
            match &deployment {
                Some(key) => operator_deployment::find(kube, key).await,
                None => Ok(None),
            }
        };
        let labelled = labelled::read(kube, &software.install_id);
        let (objects, labelled, other) = tokio::try_join!(kube.get_all(&wanted), labelled, other)?;
        let is_other = |found: &OperatorDeployment| {
            deployment.as_ref().is_some_and(|key| {
                (key.namespace.as_deref(), key.name.as_str())
                    != (Some(found.namespace()), found.name())
            })
        };
        let other = other.filter(is_other);
        let other = other.map(|found| format!("{}/{}", found.namespace(), found.name()));
        Ok(Self { objects: objects.into_iter().collect(), labelled, other })
    }

    /// Why nothing must be installed over it, each with what to do.
    pub(crate) fn against(&self, software: &Software) -> Vec<String> {
        let mut reasons = Vec::new();
        let mut of_helm = Vec::new();
        for (key, live) in &self.objects {
            if label(live, INSTALL_ID) == Some(&software.install_id) {
                reasons.extend(gitops(live).map(|tool| {
                    format!("{key} is managed by {tool}, which would revert this: change it in git")
                }));
            } else if is_left_by_add_on(live) {
                if key.kind == "Deployment" {
                    reasons.push(format!(
                        "{key} is kOps' Karpenter: delete it (`kubectl -n {NAMESPACE} delete \
                         deployment {}`), its nodes stay",
                        key.name
                    ));
                }
            } else if label(live, "app.kubernetes.io/managed-by") == Some(helm::MANAGED_BY) {
                of_helm.push(key.to_string());
            } else {
                reasons.push(format!(
                    "{key} exists, and Tenon did not create it for this cluster: rename or remove \
                     it"
                ));
            }
        }
        if !of_helm.is_empty() {
            let objects = count(of_helm.len(), "object");
            reasons.push(format!(
                "Helm manages {objects} of the operator and its CRDs ({}): use `helm upgrade` with \
                 the output of `tenon kops export values`, or uninstall these releases first",
                some(&of_helm, 3)
            ));
        }
        reasons.extend(self.other.as_ref().map(|other| {
            format!("Deployment {other} is another operator of Tenon: remove it, two cannot run")
        }));
        reasons
    }

    /// The version of the operator, if one of the installation is there.
    pub(crate) fn version(&self, software: &Software) -> Option<&str> {
        let deployment = software.deployment()?.key();
        let live = self.objects.get(&deployment)?;
        label(live, "app.kubernetes.io/version")
    }

    /// Makes it as it should be, after what the plan has already. Before the pods of the operator
    /// change, one of the new ones has to become ready, within so many seconds.
    pub(crate) fn ensure(&self, software: &Software, plan: &mut Plan, seconds: u64) {
        let deployment = software.deployment().map(Object::key);
        let step = |object: &Object| {
            let live = self.objects.get(&object.key());
            let step = object_step(object, live, &[])?;
            let taken = live.filter(|live| is_left_by_add_on(live));
            Some(step.because(taken.map(|_| "kOps' Karpenter add-on has left it")))
        };
        let is_deployment = |object: &&Object| Some(object.key()) == deployment;
        let first = software.objects.iter().filter(|object| !is_deployment(object));
        let old = software.deployment().is_some_and(|deployment| self.has_old_pods(deployment));
        let mut later = Vec::new();
        for object in first {
            match step(object) {
                // The pods that run need their rules until they are replaced.
                Some(step) if old && grants(object) => {
                    let live = self.objects.get(&object.key());
                    let (wide, narrow) = widened_rules(&step, object, live, &[]);
                    plan.steps.extend(wide);
                    later.extend(narrow);
                }
                step => plan.steps.extend(step),
            }
        }
        let done = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        let mut wanted = software.objects.iter().map(Object::key).collect::<BTreeSet<_>>();
        wanted.extend(software.deployment().map(|deployment| software.canary(deployment).key()));
        let unwanted = self.operator_objects().filter(|object| !wanted.contains(&object.key()));
        let unwanted = unwanted.map(|object| delete(object).because(["no longer in the values"]));
        later.extend(unwanted);
        let mut last = None;
        if let Some(deployment) = software.deployment() {
            let canary = software.canary(deployment);
            let changed = step(deployment).map(|step| step.after(done));
            let mut steps = self.move_pods(deployment, &canary, changed, seconds);
            let waits = steps.iter().any(|step| step.id == ROLLOUT);
            let goes = steps.iter().position(|step| step.id == CANARY_GOES);
            if old && !waits && (goes.is_some() || !later.is_empty()) {
                // A run that was killed has begun it, and may have left its canary.
                let at = goes.unwrap_or(steps.len());
                let before = steps[..at].iter().map(|step| step.id.clone()).collect::<Vec<_>>();
                for step in &mut steps[at..] {
                    step.depends_on.push(ROLLOUT.to_owned());
                }
                steps.insert(at, rollout(deployment, seconds).after(before));
            }
            last = steps.iter().rfind(|step| step.id != CANARY_GOES).map(|step| step.id.clone());
            plan.steps.extend(steps);
        }
        plan.steps.extend(later.into_iter().map(|step| step.after(last.clone())));
    }

    /// The Deployment runs, and its pods are others than those that are wanted.
    fn moves_pods(&self, deployment: &Object) -> bool {
        let live = self.objects.get(&deployment.key());
        live.is_some_and(|live| has_other_pods(deployment, live))
    }

    /// Pods of the Deployment run that are others than those that are wanted, or a rollout is not
    /// complete, so some may.
    fn has_old_pods(&self, deployment: &Object) -> bool {
        let live = self.objects.get(&deployment.key());
        live.is_some_and(|live| {
            has_other_pods(deployment, live) || deployment_lacks(Some(live)).is_some()
        })
    }

    /// The step that changes the Deployment, and what comes before and after it.
    fn move_pods(
        &self,
        deployment: &Object,
        canary: &Object,
        changed: Option<Step>,
        seconds: u64,
    ) -> Vec<Step> {
        if let Some(changed) = changed.clone().filter(|_| self.moves_pods(deployment)) {
            let first = prove(canary, &changed, seconds);
            let rollout = rollout(deployment, seconds).after([changed.id.clone()]);
            let gone = goes(canary).after([rollout.id.clone()]);
            return vec![first, changed.after([CANARY.to_owned()]), rollout, gone];
        }
        // A run that was killed has left it.
        let is_left = self.labelled.iter().any(|object| object.key() == canary.key());
        let applied = changed.as_ref().map(|step| step.id.clone());
        let gone = is_left.then(|| goes(canary).after(applied));
        changed.into_iter().chain(gone).collect()
    }

    /// Objects of the installation but CRDs, on which objects of others hang.
    fn operator_objects(&self) -> impl Iterator<Item = &Object> {
        let is_crd = |object: &Object| object.resource.kind == "CustomResourceDefinition";
        self.labelled.iter().filter(move |object| !is_crd(object))
    }
}

/// What removes an object of the installation.
fn delete(object: &Object) -> Step {
    let key = object.key();
    let id = format!("old/{}", step_id(object));
    Step::new(&id, &key.kind, &key.path(), Op::Delete, Action::Delete(object.clone()))
        .needs(&["delete"], &key.to_string())
}

/// It was applied by kOps' add-on.
fn is_left_by_add_on(live: &Value) -> bool {
    is_of_add_on(live) && label(live, INSTALL_ID).is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn software() -> Software {
        Software::new(&Values::default(), "0123abcd")
    }

    /// All of it is there, as it was applied.
    fn installed(software: &Software) -> Found {
        let objects = software.objects.iter();
        let objects = objects.map(|object| (object.key(), object.body.clone()));
        let mut objects = objects.collect::<BTreeMap<_, _>>();
        let deployment = software.deployment().expect("a Deployment").key();
        let live = objects.get_mut(&deployment).expect("it is there");
        let n = live["spec"]["replicas"].clone();
        live["status"] = json!({"replicas": n, "updatedReplicas": n, "availableReplicas": n});
        Found { objects, ..Found::default() }
    }

    fn plan(found: &Found, software: &Software) -> Plan {
        let mut plan = Plan::default();
        found.ensure(software, &mut plan, 60);
        plan
    }

    /// As another tool has applied it.
    fn by(live: &mut Value, key: &str, value: &str) {
        let labels = live["metadata"]["labels"].as_object_mut().expect("labels");
        labels.remove(INSTALL_ID);
        labels.insert(key.to_owned(), json!(value));
    }

    #[test]
    fn the_deployment_comes_after_all_that_it_needs() {
        let software = software();
        let created = plan(&Found::default(), &software);
        assert_eq!(created.steps.len(), software.objects.len());
        let is_deployment = |step: &&Step| step.kind == "Deployment";
        let deployment = created.steps.iter().find(is_deployment).expect("a Deployment");
        assert_eq!(deployment.depends_on.len(), created.steps.len() - 1);
        assert_eq!(plan(&installed(&software), &software).steps, []);
    }

    #[test]
    fn other_pods_come_after_one_of_them_is_ready() {
        let software = software();
        let mut found = installed(&software);
        let deployment = software.deployment().expect("a Deployment");
        let live = found.objects.get_mut(&deployment.key()).expect("it is there");
        live["spec"]["template"]["spec"]["containers"][0]["image"] = json!("old");
        live["metadata"]["annotations"]["tenon.sh/spec-hash"] = json!("old");
        let ids = |found: &Found| {
            let steps = plan(found, &software).steps;
            steps.into_iter().map(|step| (step.id, step.depends_on)).collect::<Vec<_>>()
        };
        let applied = "Deployment/kube-system/karpenter".to_owned();
        let expected = [
            ("canary".to_owned(), vec![]),
            (applied.clone(), vec!["canary".to_owned()]),
            ("rollout".to_owned(), vec![applied]),
            ("canary-goes".to_owned(), vec!["rollout".to_owned()]),
        ];
        assert_eq!(ids(&found), expected);
        // A run that was killed has left it.
        found.labelled = vec![software.canary(deployment)];
        assert_eq!(ids(&found), expected);
        // What only the old pods needed goes after they have gone.
        let is_role = |object: &&Object| object.resource.kind == "ClusterRole";
        let role = software.objects.iter().find(is_role).expect("a ClusterRole");
        let live = found.objects.get_mut(&role.key()).expect("it is there");
        let rule = json!({"apiGroups": ["old"], "resources": ["olds"], "verbs": ["get"]});
        live["rules"].as_array_mut().expect("rules").push(rule);
        live["metadata"]["annotations"]["tenon.sh/spec-hash"] = json!("old");
        let steps = ids(&found);
        let names = steps.iter().map(|(id, _)| id.rsplit('/').next().unwrap_or(id));
        let expected =
            ["karpenter-admin", "canary", "karpenter", "rollout", "canary-goes", "narrow"];
        assert_eq!(names.collect::<Vec<_>>(), expected, "{steps:?}");
        assert!(steps[5].1.contains(&"rollout".to_owned()), "{steps:?}");
        // The same while the pods are being replaced, in a run after one that was killed.
        let mut wide = found.objects[&role.key()].clone();
        wide["metadata"]["annotations"]["tenon.sh/spec-hash"] = json!("both-new");
        found.objects = installed(&software).objects;
        found.objects.insert(role.key(), wide);
        let live = found.objects.get_mut(&deployment.key()).expect("it is there");
        live["status"]["updatedReplicas"] = json!(1);
        let steps = ids(&found);
        let names = steps.iter().map(|(id, _)| id.rsplit('/').next().unwrap_or(id));
        assert_eq!(names.collect::<Vec<_>>(), ["rollout", "canary-goes", "narrow"], "{steps:?}");
        let waits = |(_, after): &(String, Vec<String>)| after.contains(&"rollout".to_owned());
        assert!(steps[1..].iter().all(waits), "{steps:?}");
        // Afterwards, only the canary is left.
        found.objects = installed(&software).objects;
        assert_eq!(ids(&found), [("canary-goes".to_owned(), vec![])]);
        // Another number of the same pods needs none.
        found.labelled.clear();
        let live = found.objects.get_mut(&deployment.key()).expect("it is there");
        live["spec"]["replicas"] = json!(7);
        live["metadata"]["annotations"]["tenon.sh/spec-hash"] = json!("old");
        assert_eq!(ids(&found).len(), 1);
    }

    #[test]
    fn what_the_values_no_longer_ask_for_is_deleted_after_the_deployment() {
        let software = software();
        let mut found = installed(&software);
        let account = software.objects.iter().find(|one| one.resource.kind == "ServiceAccount");
        let mut old = account.expect("a ServiceAccount").clone();
        "old".clone_into(&mut old.name);
        let crd = software.objects[0].clone();
        found.labelled = vec![old, crd, software.objects[5].clone()];
        let steps = plan(&found, &software).steps;
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].op, steps[0].resource.as_str()), (Op::Delete, "kube-system/old"));
        assert_eq!(steps[0].depends_on, Vec::<String>::new());
        let deployment = software.deployment().expect("a Deployment");
        found.objects.remove(&deployment.key());
        let steps = plan(&found, &software).steps;
        assert_eq!(steps[1].depends_on, [steps[0].id.clone()]);
    }

    #[test]
    fn what_the_add_on_has_left_is_taken_over_but_for_its_deployment() {
        let software = software();
        let mut found = installed(&software);
        for live in found.objects.values_mut() {
            by(live, "addon.kops.k8s.io/name", "karpenter.sh");
            live["metadata"]["annotations"] = json!({});
        }
        let reasons = found.against(&software);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("kubectl -n kube-system delete deployment"), "{reasons:?}");
        found.objects.retain(|key, _| key.kind != "Deployment");
        assert_eq!(found.against(&software), Vec::<String>::new());
        let steps = plan(&found, &software).steps;
        assert_eq!(steps.len(), software.objects.len());
        let taken = steps.iter().filter(|step| step.op == Op::Update);
        assert!(taken.clone().all(|step| step.reasons.concat().contains("add-on")), "{steps:?}");
        assert_eq!(taken.count(), software.objects.len() - 1);
    }

    #[test]
    fn what_others_manage_is_named_with_what_to_do() {
        let software = software();
        let mut found = installed(&software);
        for live in found.objects.values_mut() {
            by(live, "app.kubernetes.io/managed-by", helm::MANAGED_BY);
        }
        found.other = Some("karpenter/tenon".to_owned());
        let reasons = found.against(&software);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].contains("`helm upgrade`"), "{reasons:?}");
        assert!(reasons[1].contains("Deployment karpenter/tenon"), "{reasons:?}");
        let mut found = installed(&software);
        let (key, live) = found.objects.iter_mut().next_back().expect("an object");
        by(live, "app.kubernetes.io/managed-by", "terraform");
        let expected = format!("{key} exists, and Tenon did not create it for this cluster");
        let reasons = found.against(&software);
        assert!(reasons.len() == 1 && reasons[0].starts_with(&expected), "{reasons:?}");
        let mut found = installed(&software);
        let live = found.objects.values_mut().next_back().expect("an object");
        live["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("tenon");
        assert!(found.against(&software)[0].contains("managed by Flux"));
    }
}
