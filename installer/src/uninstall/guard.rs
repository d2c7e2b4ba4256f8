//! What an uninstall refuses to begin with, because it could not end well.

use tenon_installer_core::desired::Desired;
use tenon_installer_core::kubernetes::object::label;
use tenon_installer_core::kubernetes::operator_deployment::gitops;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::ownership::INSTALL_ID;
use tenon_installer_core::words::count;

use super::{Inventory, Mode, Side};
use crate::errors::ExpectedError;

/// Refuses what would leave nodes without an operator, or an operator without its role.
pub(crate) fn guard(
    mode: Mode,
    inventory: &Inventory,
    desired: &Desired,
    actual: &Actual,
) -> Result<(), ExpectedError> {
    let live = desired.deployment().and_then(|object| {
        actual.objects.get(&object.key()).map(|live| (object.key().to_string(), live))
    });
    let id = desired.installation.id.as_str();
    let mut reasons = Vec::new();
    let mut hints = Vec::new();
    match (mode.side, live) {
        (Side::Aws, live) => {
            if inventory.nodes.has_any() {
                let instances = count(inventory.nodes.instances.len(), "EC2 instance");
                let claims = count(inventory.nodes.claims.len(), "NodeClaim");
                reasons.push(format!(
                    "{claims} and {instances} are left, and can't be removed \
                     without the operator's role"
                ));
                hints.push("delete the NodePools and wait until their nodes are gone".to_owned());
            }
            if let Some((name, live)) = live {
                reasons.push(format!(
                    "{name} still exists and uses the resources that would be \
                     removed"
                ));
                hints.push(match gitops(live) {
                    Some(owner) => format!("remove it through {owner}, then run the command again"),
                    None => "omit --aws-only to remove it as well".to_owned(),
                });
            }
        }
        (Side::Both | Side::Kubernetes, Some((name, live)))
            if label(live, INSTALL_ID) != Some(id) || gitops(live).is_some() =>
        {
            let owner = gitops(live);
            reasons.push(match &owner {
                Some(owner) => format!(
                    "{name} is managed by {owner}, which would restore it \
                     without its nodes and its role"
                ),
                None => format!(
                    "{name} does not belong to this installation, and would keep \
                     running without its role"
                ),
            });
            let by = owner.map_or_else(|| "the tool that installed it".to_owned(), str::to_owned);
            hints.push(format!(
                "delete the NodePools and wait until their nodes are gone, remove \
                 the operator through {by}, then run `tenon uninstall --aws-only`"
            ));
        }
        _ => {}
    }
    if reasons.is_empty() { Ok(()) } else { Err(ExpectedError::Refused { reasons, hints }) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::uninstall::Nodes;
    use tenon_installer_core::testing::desired;

    fn actual(desired: &Desired, labels: &Value) -> Actual {
        let deployment = desired.deployment().expect("there is one");
        let live = json!({"metadata": {"name": deployment.name, "labels": labels}});
        Actual { objects: [(deployment.key(), live)].into(), ..Actual::default() }
    }

    fn refusal(result: Result<(), ExpectedError>) -> String {
        let error = result.expect_err("it is refused");
        assert_eq!(error.exit_code(), crate::exit_codes::EXIT_REFUSED);
        [error.details(), error.hints()].concat().join("\n")
    }

    #[test]
    fn an_operator_of_ours_may_be_removed_and_one_of_git_ops_may_not() {
        let desired = desired("");
        let inventory = Inventory::default();
        let ours = actual(&desired, &json!({INSTALL_ID: desired.installation.id}));
        guard(Mode::default(), &inventory, &desired, &ours).expect("it is ours");
        let flux = actual(&desired, &json!({"helm.toolkit.fluxcd.io/name": "tenon"}));
        let mut taken_over = ours;
        for live in taken_over.objects.values_mut() {
            live["metadata"]["labels"]["helm.toolkit.fluxcd.io/name"] = json!("tenon");
        }
        for of_flux in [flux, taken_over] {
            let text = refusal(guard(Mode::default(), &inventory, &desired, &of_flux));
            assert!(text.contains("Flux") && text.contains("--aws-only"), "{text}");
        }
    }

    #[test]
    fn aws_alone_goes_only_when_nobody_needs_it_any_more() {
        let desired = desired("");
        let mode = Mode { side: Side::Aws, ..Mode::default() };
        guard(mode, &Inventory::default(), &desired, &Actual::default()).expect("nobody needs it");
        let there = actual(&desired, &json!({}));
        refusal(guard(mode, &Inventory::default(), &desired, &there));
        let nodes = Inventory {
            nodes: Nodes { instances: vec!["i-1".to_owned()], ..Nodes::default() },
            ..Inventory::default()
        };
        let text = refusal(guard(mode, &nodes, &desired, &Actual::default()));
        assert!(text.contains("1 EC2 instance"), "{text}");
    }
}
