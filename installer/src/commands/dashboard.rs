//! `tenon dashboard`: the fleet, the operator's decisions and what-ifs in a browser on this
//! machine.

use serde_json::json;
use tenon_installer_core::target;
use tenon_simulate::Freshness;

use super::simulate::{options, spot_prices};
use crate::cli::GlobalArgs;
use crate::cli::dashboard::DashboardArgs;
use crate::dashboard::{Dashboard, Source};
use crate::errors::ExpectedError;
use crate::ledger::Ledger;
use crate::printer::Printer;

/// Serves the page until it is interrupted.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &DashboardArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let live = args.source.live || args.source.files.is_empty();
    let options = options(&args.source, Freshness::Cached);
    options.check_repeatable()?;
    let url = args.reach.url.as_deref();
    let (client, ledger) = if live || url.is_some() {
        let (client, bearer) = target::client_and_bearer(&global.kubeconfig()).await?;
        (live.then(|| client.clone()), Some(Ledger::new(client, bearer, url)?))
    } else {
        (None, None)
    };
    let spot = spot_prices(global, &args.source, client.as_ref()).await?;
    let source = Source::new(options, args.source.now, client, spot);
    let dashboard = Dashboard::open(args.port, source, ledger).await?;
    let url = dashboard.url();
    printer.json(&json!({ "schema": "tenon.sh/dashboard/v1alpha1", "url": url }));
    printer.text(&url);
    printer.note(
        "Open this URL in a browser on this machine. It contains a token: anyone with it \
                  reads with your rights while this command runs. Ctrl-C ends it.",
    );
    dashboard.serve().await;
    Ok(0)
}
