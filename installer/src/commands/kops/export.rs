//! `tenon kops export`: what the operator needs in a kOps cluster.

use tenon_installer_core::observe::facts;

use super::super::session::observe_failed;
use super::{Source, failed, unfit};
use crate::cli::GlobalArgs;
use crate::cli::kops::{ExportArgs, KopsExport};
use crate::errors::ExpectedError;
use crate::kops::caller::{Purpose, caller_policy};
use crate::kops::operator::{Place, cluster_spec, values};
use crate::kops::read;
use crate::printer::Printer;

pub(super) async fn run(
    global: &GlobalArgs,
    args: &ExportArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let source = Source::read(global, &args.store, &[]).await?;
    let caller = facts::read_caller(&source.aws).await.map_err(observe_failed)?;
    // Only the permissions name them.
    let node_roles = match args.what {
        KopsExport::Cluster | KopsExport::Caller => {
            read::node_roles(&source.aws, &source.state).await.map_err(failed)?
        }
        KopsExport::Values | KopsExport::AugmentCaller => Vec::new(),
    };
    let folder = source.location.join(&source.state.cluster.name);
    let config_base = source.state.config_base(&folder).map_err(|error| failed(error.into()))?;
    let place = Place {
        store: source.location.clone(),
        config_base,
        cluster: source.state.cluster.name.clone(),
        region: source.region.clone(),
        account: caller.account,
        control_planes: source.state.control_planes,
        node_roles,
    };
    let policy = |purpose| {
        let profiles = read::node_profiles(&source.state).into_iter().collect::<Vec<_>>();
        let document = caller_policy(&place, &profiles, purpose);
        printer.json(&document);
        printer.text(document.to_json_pretty().trim_end());
        Ok(0)
    };
    let document = match args.what {
        KopsExport::Cluster => {
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
