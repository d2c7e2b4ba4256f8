//! All NodePools stand still, or go on: for `tenon freeze`, and while an uninstall works on some of
//! them.

use kube::ResourceExt;
use serde_json::Value;
use tenon_installer_core::apply::wait;
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::{freeze, resources};

use super::objects::key;

/// What NodePools are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Motion {
    /// Launch and disrupt nothing.
    Still,
    /// What they did before.
    Free,
}

impl Motion {
    fn patch(self, pool: &Value) -> Option<Value> {
        match self {
            Self::Still => freeze::freeze(pool),
            Self::Free => freeze::thaw(pool),
        }
    }
}

/// Freezes all NodePools, or thaws them, and adds the names of those that were changed.
pub(crate) async fn set_motion(
    cluster: &Cluster,
    motion: Motion,
    changed: &mut Vec<String>,
) -> Result<(), KubeError> {
    let pools = cluster.list(&resources::node_pools()).await?;
    let names = pools.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    set_motion_of(cluster, motion, &names, changed).await
}

/// The same for NodePools with these names; one that does not exist any more is left out.
pub(crate) async fn set_motion_of(
    cluster: &Cluster,
    motion: Motion,
    names: &[String],
    changed: &mut Vec<String>,
) -> Result<(), KubeError> {
    let resource = resources::node_pools();
    for name in names {
        let key = key(&resource, name);
        // Read anew each time: the patch holds only for the version that it was made from.
        let patched = wait::transient(wait::Tries::seconds(30), || async {
            let live = cluster.get(&resource, &key).await?;
            let Some(patch) = live.as_ref().and_then(|live| motion.patch(live)) else {
                return Ok(false);
            };
            cluster.merge(&resource, &key, &patch).await.map(|()| true)
        });
        if patched.await? {
            changed.push(name.clone());
        }
    }
    Ok(())
}

/// What to do if what froze NodePools does not come to its end; nothing if none was frozen.
pub(crate) fn frozen_in_words(frozen: &[String]) -> Option<String> {
    let (names, it) = (frozen.join(", "), if frozen.len() == 1 { "it" } else { "them" });
    let stay = if frozen.len() == 1 { "stays" } else { "stay" };
    (!frozen.is_empty()).then(|| {
        format!(
            " {names} {stay} paused from now on; if you abort this uninstall, resume {it} with \
             `tenon unfreeze`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_is_told_how_pools_go_on() {
        assert_eq!(frozen_in_words(&[]), None);
        let text = frozen_in_words(&["a".to_owned(), "b".to_owned()]).expect("words");
        assert!(text.contains("a, b stay paused") && text.contains("`tenon unfreeze`"), "{text}");
    }
}
