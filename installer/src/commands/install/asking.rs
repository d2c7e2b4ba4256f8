//! The wizard's part of `tenon install`: what it starts from, and what becomes of its answers.

use std::path::{Path, PathBuf};

use tenon_checks::observe::RivalKind;
use tenon_installer_core::aws::AwsError;
use tenon_installer_core::files::FileError;
use tenon_installer_core::observe::{eks, facts};
use tenon_installer_core::settings::{Settings, SettingsError, Source};
use tenon_installer_core::target::{self, Target};

use crate::cli::GlobalArgs;
use crate::cli::export::{ArgocdArgs, ChartArgs, ExportArgs, ExportForm, FluxArgs};
use crate::cli::install::InstallArgs;
use crate::cli::overlay::{overlay, resolve};
use crate::cli::settings::InstallationArgs;
use crate::commands::export;
use crate::commands::session::{self, observe_failed};
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::wizard::known::Known;
use crate::wizard::step::{Answers, Delivery};
use crate::wizard::{self, Unanswered, ask};

/// Where the answers are written, unless something else is there.
const FILE: &str = "tenon.yaml";

/// What was answered, and what was known meanwhile.
pub(super) struct Answered {
    pub(super) answers: Answers,
    /// The command line, with the context that was chosen.
    pub(super) global: GlobalArgs,
    known: Known,
}

impl Answered {
    /// What is left to do by hand once Tenon is installed.
    pub(super) fn reminders(&self) -> Vec<String> {
        let rivals = self.known.survey.rivals.iter();
        let autoscalers = rivals.filter(|rival| rival.kind == RivalKind::ClusterAutoscaler);
        let reminders = autoscalers.map(|rival| {
            format!(
                "The Cluster Autoscaler still runs. Once NodePools cover its workloads:\n    \
                 kubectl --namespace={} scale deployment {} --replicas=0",
                rival.namespace, rival.name
            )
        });
        reminders.collect()
    }
}

/// Asks.
pub(super) async fn ask(
    global: &GlobalArgs,
    args: &InstallArgs,
    printer: &Printer,
) -> Result<Answered, ExpectedError> {
    let mut questions = ask::Terminal::default();
    printer.note(
        "Press Enter to accept the default in brackets, ? to explain a question, < to go \
         back. Nothing is changed before you have seen the plan.\n",
    );
    let (mut config, problems) = overlay(Source::default().config, global, &args.settings);
    if !problems.is_empty() {
        return Err(ExpectedError::Settings(SettingsError { problems }));
    }
    config.cluster.region = config.cluster.region.or_else(|| global.default_region.clone());
    let mut known = Known {
        given: config.clone(),
        inferred: target::infer(&global.kubeconfig()),
        contexts: target::contexts(&global.kubeconfig()),
        may_be_unknown_region: global.allow_unknown_region,
        only_plans: args.execution.dry_run,
        ..Known::default()
    };
    let mut answers = Answers { config, ..Answers::default() };
    let list = async |region: &str| clusters(global, region).await;
    let asked = wizard::ask_target(&mut questions, &mut answers, &mut known, list).await;
    asked.map_err(unanswered)?;
    let global = with_context(global, answers.context.clone());
    let inferred = target::infer(&global.kubeconfig());
    let recorded = Source::recorded(answers.config.clone());
    let settings = resolve(recorded, &global, &args.settings, &inferred)?;
    let aws = global.connect(&settings).await?;
    let facts = facts::read(&aws, &settings.cluster, &settings.region, None)
        .await
        .map_err(observe_failed)?;
    let target = Target::connect(&global.kubeconfig(), &aws, &facts.cluster).await?;
    let (survey, unread) = Box::pin(wizard::survey::survey(&aws, &target.cluster, &facts)).await;
    for why in unread {
        printer.note(&format!("some values can't be read, and the questions omit them: {why}"));
    }
    known.survey = survey;
    if let Some(record) = session::recorded(&target, &facts, &settings).await? {
        printer
            .note("The defaults are the settings with which Tenon was installed in this cluster.");
        let target = std::mem::take(&mut answers.config.cluster);
        (answers.config, _) = overlay(record.config, &global, &args.settings);
        // What was answered, which may be no option.
        answers.config.cluster.name = target.name;
        answers.config.cluster.region = target.region;
    }
    known.defaults_enabled = answers.config.defaults.enabled;
    let asked = wizard::ask_rest(&mut questions, &mut answers, &mut known).await;
    asked.map_err(unanswered)?;
    Ok(Answered { answers, global, known })
}

/// The clusters of a region, or why they can't be listed.
async fn clusters(global: &GlobalArgs, region: &str) -> Result<Vec<String>, String> {
    let aws = global.connect_region(region).await.map_err(|error| error.message())?;
    let found = eks::clusters(&aws).await;
    found.map_err(|error: AwsError| error.to_string())
}

/// The chosen context counts where the cluster is reached by a kubeconfig that was named; otherwise
/// it only said which cluster is meant.
fn with_context(global: &GlobalArgs, context: Option<String>) -> GlobalArgs {
    let by_kubeconfig = target::has_kubeconfig(&global.kubeconfig());
    let context = context.filter(|_| by_kubeconfig).or_else(|| global.context.clone());
    GlobalArgs { context, ..global.clone() }
}

fn unanswered(error: Unanswered) -> ExpectedError {
    match error {
        Unanswered::Terminal(error) => ExpectedError::prompt(error),
        Unanswered::Declined(hint) => ExpectedError::NotConfirmed { hint },
    }
}

/// Writes the answers to a file that did not exist or says the same.
pub(super) fn write(
    answered: &Answered,
    settings: &Settings,
    printer: Printer,
) -> Result<PathBuf, ExpectedError> {
    let text = settings.config.to_yaml();
    let file = free_file(&settings.cluster, &text);
    std::fs::write(&file, &text).map_err(FileError::writing(&file))?;
    printer.note(&format!("\nYour answers as a settings file:\n\n{text}"));
    let context = answered.global.context.as_ref();
    let context = context.map_or_else(String::new, |context| format!(" --context {context}"));
    let command = Settings::equivalent_command(&file);
    let file_name = file.display();
    printer.note(&format!(
        "Written to {file_name}. The same command without prompts: {command}{context}\n"
    ));
    Ok(file)
}

/// The first of the file's possible names that is free or has this text.
fn free_file(cluster: &str, text: &str) -> PathBuf {
    let names = std::iter::once(FILE.to_owned())
        .chain(std::iter::once(format!("tenon-{cluster}.yaml")))
        .chain((2..).map(|n| format!("tenon-{cluster}-{n}.yaml")));
    let is_free = |file: &PathBuf| match std::fs::read_to_string(file) {
        Ok(found) => found == text,
        Err(_) => !file.exists(),
    };
    names.map(PathBuf::from).find(is_free).unwrap_or_else(|| PathBuf::from(FILE))
}

/// Does with the settings what was chosen, where that is not to apply them.
pub(super) async fn deliver(
    answered: &Answered,
    file: &Path,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let Answers { delivery, charts, repository, folder, .. } = &answered.answers;
    let installation =
        InstallationArgs { file: Some(file.to_owned()), ..InstallationArgs::default() };
    let settings = installation.settings();
    let charts = ChartArgs {
        charts: charts.clone(),
        chart_version: env!("CARGO_PKG_VERSION").to_owned(),
        path: folder.clone(),
        out: Some(PathBuf::from(folder)),
    };
    let form = match delivery {
        Delivery::Apply | Delivery::Write => return Ok(0),
        Delivery::Flux => {
            ExportForm::Flux(FluxArgs { settings, charts, source: "flux-system".to_owned() })
        }
        Delivery::Argocd => {
            ExportForm::Argocd(ArgocdArgs { settings, charts, repository: repository.clone() })
        }
    };
    export::run(&answered.global, &ExportArgs { form }, printer).await?;
    printer.note(&format!(
        "Commit these files. The AWS resources, by tenon, Terraform or CloudFormation:\n    \
         tenon install -f {file}\n    tenon export terraform -f {file}\n    \
         tenon export cfn -f {file}",
        file = file.display()
    ));
    Ok(0)
}
