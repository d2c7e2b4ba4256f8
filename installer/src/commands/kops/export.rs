//! `tenon kops export`: what the operator needs in a kOps cluster.

use tenon_installer_core::observe::{granted, iam};

use super::super::session::observe_failed;
use super::{Source, role_of, unfit};
use crate::cli::GlobalArgs;
use crate::cli::kops::{ExportArgs, KopsExport};
use crate::errors::ExpectedError;
use crate::kops::caller::{Purpose, caller_policy};
use crate::kops::operator::{Identity, Place, values};
use crate::kops::permissions::{self, check_room, cluster_spec, is_of_kops};
use crate::kops::read;
use crate::printer::Printer;

pub(super) async fn run(
    global: &GlobalArgs,
    args: &ExportArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let source = Source::read(global, &args.store, &[]).await?;
    // Only the permissions name them.
    let with_roles = matches!(args.what, KopsExport::Cluster | KopsExport::Caller);
    let place = source.place(with_roles).await?;
    let policy = |purpose| {
        let mut profiles = read::node_profiles(&source.state);
        if matches!(place.identity, Identity::ControlPlane { .. }) {
            profiles.extend(source.state.control_plane_profiles.clone());
        }
        let profiles = profiles.into_iter().collect::<Vec<_>>();
        let document = caller_policy(&place, &profiles, purpose);
        printer.json(&document);
        printer.text(document.to_json_pretty().trim_end());
        Ok(0)
    };
    let document = match args.what {
        KopsExport::Cluster => {
            has_room(&source, &place).await?;
            source.say_identity(printer);
            cluster_spec(&place).map_err(|error| unfit(vec![error.to_string()]))?
        }
        KopsExport::Values => values(&place),
        KopsExport::Caller => return policy(Purpose::Sync),
        KopsExport::AugmentCaller => return policy(Purpose::Augment),
    };
    printer.json(&document);
    let text = serde_saphyr::to_string(&document).expect("JSON always goes into YAML");
    printer.text(text.trim_end());
    Ok(0)
}

/// Otherwise `kops update cluster` would fail halfway.
async fn has_room(source: &Source, place: &Place) -> Result<(), ExpectedError> {
    if matches!(place.identity, Identity::ServiceAccount) {
        return Ok(());
    }
    let roles = permissions::roles(place);
    for name in roles.iter().map(|arn| role_of(arn)).filter(|name| is_of_kops(place, name)) {
        let role = iam::role(&source.aws, name).await.map_err(observe_failed)?;
        let Some(role) = role else { continue };
        let inline = granted::inline(&role).map_err(observe_failed)?;
        check_room(place, name, &inline).map_err(|error| unfit(vec![error.to_string()]))?;
    }
    Ok(())
}
