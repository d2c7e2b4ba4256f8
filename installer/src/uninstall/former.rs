//! What of an account is an earlier run's, under settings that were different, and may go. Pure:
//! who asks AWS is [`super::discovery`].

use tenon_installer_core::desired::Desired;
use tenon_installer_core::observe::state::{AccessEntryState, ProviderState, RoleState};

/// Names of the roles that the settings no longer ask for, if they exist.
pub(crate) fn role_names(desired: &Desired) -> Vec<String> {
    let wanted = [&desired.node_role, &desired.controller_role];
    let is_wanted = |name: &String| {
        wanted.iter().any(|role| role.spec.as_ref().is_some_and(|spec| spec.name == *name))
    };
    let names = desired.own_roles.names().into_iter().filter(|name| !is_wanted(name));
    names.cloned().collect()
}

/// Those of these roles that are ours.
pub(crate) fn roles<'a>(
    desired: &Desired,
    roles: impl IntoIterator<Item = (&'a String, &'a RoleState)>,
) -> Vec<String> {
    let ours = roles.into_iter().filter(|(_, role)| desired.installation.owns(&role.tags));
    ours.map(|(name, _)| name.clone()).collect()
}

/// Whether an access entry may be one that the settings no longer ask for, by its principal.
pub(crate) fn is_other_entry(desired: &Desired, arn: &str) -> bool {
    arn != desired.node_role.arn
}

/// Whether an access entry is ours.
pub(crate) fn is_our_entry(desired: &Desired, entry: &AccessEntryState) -> bool {
    desired.installation.owns(&entry.tags)
}

/// Whether the identity provider is ours.
pub(crate) fn is_our_provider(desired: &Desired, provider: &ProviderState) -> bool {
    desired.installation.owns(&provider.tags)
}

/// The ARN of an identity provider of ours, if no role but ours trusts it; or why it stays. `users`
/// are the names of the roles that trust it.
pub(crate) fn provider(desired: &Desired, arn: &str, users: Vec<String>) -> Result<String, String> {
    let own = desired.own_roles.names();
    let is_own = |role: &String| *role == desired.controller_role.name || own.contains(&role);
    let others = users.into_iter().filter(|role| !is_own(role)).collect::<Vec<_>>();
    if others.is_empty() {
        Ok(arn.to_owned())
    } else {
        Err(format!("{arn}: {} trust it", others.join(", ")))
    }
}
