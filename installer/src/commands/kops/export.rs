//! `tenon kops export`: what the operator needs in a kOps cluster.

use super::{Source, unfit};
use crate::cli::GlobalArgs;
use crate::cli::kops::{ExportArgs, KopsExport};
use crate::errors::ExpectedError;
use crate::kops::caller::{Purpose, caller_policy};
use crate::kops::operator::{cluster_spec, values};
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
