//! Provider ids: `aws:///<zone>/<instance id>`.

/// The provider id of an instance.
pub(super) fn provider_id(zone: &str, id: &str) -> String {
    format!("aws:///{zone}/{id}")
}

/// The instance's id.
pub(super) fn instance_id(provider_id: &str) -> Option<&str> {
    let (_, rest) = provider_id.split_once(":///")?;
    let (_, id) = rest.rsplit_once('/')?;
    (!id.is_empty()).then_some(id)
}

/// The name of the instance's zone.
pub(super) fn zone(provider_id: &str) -> Option<&str> {
    let (_, rest) = provider_id.split_once(":///")?;
    let (zone, _) = rest.rsplit_once('/')?;
    (!zone.is_empty()).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_name_zone_and_instance() {
        let known = provider_id("eu-central-1a", "i-1");
        assert_eq!((zone(&known), instance_id(&known)), (Some("eu-central-1a"), Some("i-1")));
        for bad in ["", "i-1", "aws:///i-1", "aws:///a/", "kwok://node"] {
            assert_eq!(instance_id(bad), None, "{bad}");
        }
    }
}
