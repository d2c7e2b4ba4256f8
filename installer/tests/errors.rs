//! What users do wrong, and what they read of it: the cause in one sentence, no names of types,
//! nothing twice, and what to type.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use assert_cmd::Command;
use tenon::errors::ExpectedError;
use tenon::printer::ErrorReport;
use tenon_installer_core::apply::StepError;
use tenon_installer_core::kubernetes::client::failed;

/// The program where nothing answers, in an environment that has nothing of this machine.
fn tenon(directory: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tenon"));
    command
        .env_clear()
        .env("HOME", directory)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_MAX_ATTEMPTS", "1")
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        .current_dir(directory);
    command
}

/// Everything that the program needs to begin: a cluster, a profile and a kubeconfig.
fn home() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("written");
    };
    std::fs::create_dir(directory.path().join(".aws")).expect("created");
    write(
        ".aws/config",
        "[default]\n[profile prod]\nregion = eu-west-1\n[profile sso]\nsso_session = x\n\
         sso_account_id = 111122223333\nsso_role_name = a\n[sso-session x]\n\
         sso_start_url = https://x.example\nsso_region = eu-west-1\n\
         [profile old-sso]\nsso_start_url = https://x.example\nsso_region = eu-west-1\n\
         sso_account_id = 111122223333\nsso_role_name = a\n\
         [profile login]\nlogin_session = x\n[profile broken]\ncredential_process = /bin/false\n",
    );
    write(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: test\ncontexts:\n\
         - {name: test, context: {cluster: x, user: x}}\n\
         - {name: prod, context: {cluster: x, user: x}}\n\
         clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n\
         users: [{name: x, user: {token: x}}]\n",
    );
    write("list", "[]\n");
    write("empty.yaml", "");
    write("syntax.yaml", "a: [\n");
    write(
        "unknown.yaml",
        "repilcas: 2\nsettings:\n  clusterNmae: x\ntolerations: [{key: a, efect: NoSchedule}]\n",
    );
    write(
        "unfit.yaml",
        "settings:\n  batchMaxDuration: '{{ .Values.global.batch }}'\n  awsFeatureGates: {nodeClassCEL: true}\n\
         controller:\n  image:\n    repository: public.ecr.aws/karpenter/controller\n",
    );
    directory
}

/// The names of types and variants as Rust prints them: `DispatchFailure(`, `Error {`,
/// `kube::Error`, ….
fn types_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split_inclusive([' ', '(', '{', ',', '\n']) {
        let name = word.trim_end_matches([' ', '(', '{', ',', '\n']);
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().any(|c| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric());
        let is_path = name.contains("::") && !name.starts_with("arn:");
        if is_type && word.ends_with('(') || is_path {
            found.push(word.to_owned());
        }
    }
    for phrase in ["Error {", "struct ", "Some(", "None,", "Err(", "Os {", "kind: ", "ServiceError"]
    {
        if text.contains(phrase) && !text.contains("kind: Installation") {
            found.push(phrase.to_owned());
        }
    }
    found
}

/// The parts of a sentence that occur more than once.
fn repeated(text: &str) -> Vec<&str> {
    let parts = text.split([':', ';', '\n']).map(str::trim).filter(|part| part.len() > 12);
    let parts = parts.collect::<Vec<_>>();
    let again = |(i, part): (usize, &&str)| parts[..i].contains(part);
    parts.iter().enumerate().filter(|(i, part)| again((*i, *part))).map(|(_, part)| *part).collect()
}

fn reads_well(text: &str) {
    assert_eq!(types_in(text), [""; 0], "{text}");
    for line in text.lines() {
        assert_eq!(repeated(line), [""; 0], "{text}");
    }
    assert_eq!(text.matches("error: ").count(), 1, "{text}");
    assert!(text.contains("\nhint: "), "no hint:\n{text}");
}

/// What a command prints where something is wrong.
fn said(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let directory = home();
    let mut command = tenon(directory.path());
    let output = command.args(arguments).envs(variables.iter().copied()).output();
    let output = output.expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr = stderr.replace(&directory.path().display().to_string(), "[HOME]");
    format!("exit code {}\n{stderr}", output.status.code().expect("it ended by itself"))
}

const TARGET: [&str; 4] = ["--cluster", "prod", "--region", "eu-west-1"];
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];

fn plan(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let text = said(&[&["plan"], &TARGET[..], arguments].concat(), variables);
    reads_well(&text);
    text
}

#[test]
fn credentials_that_are_missing_or_unusable() {
    insta::assert_snapshot!(plan(&[], &[]), @"
    exit code 3
    error: no AWS credentials are configured
    hint: select a profile with --profile or AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `aws sts get-caller-identity` shows whether AWS accepts them
    ");
    insta::assert_snapshot!(plan(&["--profile", "prd"], &[]), @r#"
    exit code 2
    error: the AWS configuration has no profile "prd"
      profiles: broken, default, login, old-sso, prod, sso
    hint: did you mean --profile prod?
    "#);
    insta::assert_snapshot!(plan(&["--profile", "other"], &[]), @r#"
    exit code 2
    error: the AWS configuration has no profile "other"
      profiles: broken, default, login, old-sso, prod, sso
    hint: select another one with --profile or AWS_PROFILE (`aws configure list-profiles` lists them), or create it: `aws configure --profile other`
    "#);
    for profile in ["sso", "old-sso"] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(plan(&["--profile", profile], &[]), @"
            exit code 3
            error: the profile has no AWS SSO session, or its session has expired
            hint: log in with `aws sso login` (and the same --profile), then run the same command again
            ");
        }
    }
    insta::assert_snapshot!(plan(&["--profile", "login"], &[]), @r#"
    exit code 3
    error: the profile's kind of AWS credentials (such as `aws login`) is not supported
    hint: let the AWS CLI put them into the environment: eval "$(aws configure export-credentials --format env)", without --profile and AWS_PROFILE
    "#);
    insta::assert_snapshot!(plan(&["--profile", "broken"], &[]), @"
    exit code 3
    error: the AWS credentials can't be loaded: Error retrieving credentials: external process exited with code exit status: 1
    hint: fix the profile, or select another one with --profile; `aws sts get-caller-identity` shows whether AWS accepts it
    ");
}

#[test]
fn a_region_that_does_not_exist_is_refused_before_the_first_call() {
    // The region is wrong before the credentials are, and there are none.
    insta::assert_snapshot!(said(&["plan", "--cluster", "prod", "--region", "eu-wst-1"], &[]), @r#"
    exit code 2
    error: the settings have 1 problem
      cluster.region: "eu-wst-1" is not a known AWS region (did you mean eu-west-1?); if it is a new one, add --allow-unknown-region
    hint: `tenon config schema` prints the allowed fields and values
    "#);
    let new = ["plan", "--cluster", "prod", "--region", "eu-wst-1", "--allow-unknown-region"];
    let text = said(&new, &[]);
    assert!(text.starts_with("exit code 3\nerror: no AWS credentials"), "{text}");
}

#[test]
fn an_aws_that_does_not_answer() {
    let text = plan(&[], &KEYS);
    assert!(text.contains("AWS can't be reached: Connection refused"), "{text}");
    assert!(text.starts_with("exit code 1\n"), "{text}");
}

#[test]
fn kubeconfigs_that_are_not_usable() {
    for file in ["kubeconfig", "list", "syntax.yaml", "none"] {
        let text = plan(&["--kubeconfig", file, "--context", "prdo"], &KEYS);
        assert!(text.starts_with("exit code 2\n"), "{text}");
        insta::assert_snapshot!(format!("kubeconfig_{}", file.replace('.', "_")), text);
    }
    let text = said(&["simulate", "--live", "--kubeconfig", "kubeconfig"], &[]);
    reads_well(&text);
    // All types are listed at once, and any of them may be the first to fail.
    let listed =
        text.split_once(": list ").and_then(|(_, rest)| rest.split_once(": the API server"));
    let (listed, _) = listed.expect("the error names what was listed");
    let text = text.replace(&format!(": list {listed}: "), ": list …: ");
    insta::assert_snapshot!(text, @"
    exit code 1
    error: can't inspect the cluster and the account: list …: the API server can't be reached: Connection refused (os error 111)
    hint: check the server's address in the kubeconfig (`kubectl cluster-info`), VPN, proxy and firewalls; a private endpoint is reached only from the VPC or a network that is connected to it
    ");
}

#[test]
fn settings_files_that_are_none() {
    for file in ["empty.yaml", "list", "syntax.yaml", "none.yaml"] {
        let text = said(&["plan", "-f", file], &[]);
        reads_well(&text);
        assert!(text.starts_with("exit code 2\n"), "{text}");
        insta::assert_snapshot!(format!("settings_{}", file.replace('.', "_")), text);
    }
}

#[test]
fn values_that_the_api_server_would_refuse_are_refused_before_the_first_call() {
    let arguments = [
        "--replicas=-1",
        "--cpu-limit=2000000",
        "--image=Registry/A b",
        "--image-tag=.x",
        "--set=controller.resources.requests.cpu=1x",
        "--set=controller.resources.limits.memory=-1Gi",
        "--set=podLabels.team=a/b",
        "--set=serviceAccount.name=A",
        "--set=imagePullPolicy=always",
        "--set=revisionHistoryLimit=-1",
    ];
    insta::assert_snapshot!(plan(&arguments, &[]));
    insta::assert_snapshot!(
        "values_of_the_wrong_type",
        plan(&["--set=controller=5", "--set=foo=1"], &[])
    );
    // As Karpenter's chart has them, and as people write them for Helm.
    let allowed = ["--set=initContainers={}", "--set=controller.resources.requests.cpu=1"];
    let text = plan(&allowed, &[]);
    assert!(text.starts_with("exit code 3\nerror: no AWS credentials"), "{text}");
}

#[test]
fn a_values_file_that_can_not_work_is_refused_with_all_that_is_wrong_and_what_to_do() {
    let text = plan(&["--values", "unknown.yaml"], &[]);
    // Without the lists of all keys.
    let lines = text.lines().map(|line| line.split("; allowed: nam").next().unwrap_or_default());
    let lines = lines.map(|line| line.split("; allowed: batch").next().unwrap_or_default());
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @"
    exit code 2
    error: the settings have 3 problems
      deploy.values.repilcas: unknown field (did you mean replicas?)
      deploy.values.settings.clusterNmae: unknown field (did you mean clusterName?)
      deploy.values.tolerations[0].efect: unknown field (did you mean effect?); allowed: effect, key, operator, tolerationSeconds, value
    hint: `tenon config schema` prints the allowed fields and values
    ");
    insta::assert_snapshot!(plan(&["--values", "unfit.yaml"], &[]), @r#"
    exit code 2
    error: the settings have 3 problems
      deploy.values.controller.image.repository: "public.ecr.aws/karpenter/controller" is not allowed; allowed: the image of Tenon, such as REGISTRY/tenon-operator; this one is Karpenter's, and so are a tag and a digest that were set with it
      deploy.values.settings.batchMaxDuration: "{{ .Values.global.batch }}" is not allowed; allowed: the value itself, because only Helm renders templates
      deploy.values.settings.awsFeatureGates.nodeClassCEL: "true" is not allowed; allowed: false, because Tenon does not evaluate CEL expressions in spec.kubelet; write maxPods, kubeReserved and systemReserved of EC2NodeClasses as values
    hint: `tenon config schema` prints the allowed fields and values
    "#);
}

fn as_text(report: &ErrorReport) -> String {
    let mut text = format!("exit code {}\nerror: {}\n", report.exit_code, report.message);
    for detail in &report.details {
        text = format!("{text}  {detail}\n");
    }
    for hint in &report.hints {
        text = format!("{text}hint: {hint}\n");
    }
    text
}

#[test]
fn an_object_that_the_api_server_refuses() {
    let message = "Deployment.apps \"karpenter\" is invalid: spec.replicas: Invalid value: -1: must be \
                   greater than or equal to 0";
    let status = kube::core::Status::failure(message, "Invalid").with_code(422);
    let source = failed("patch", "Deployment a/b".into(), kube::Error::Api(status.boxed())).into();
    let error = ExpectedError::from(StepError { step: "operator".into(), done: 3, source });
    let text = as_text(&error.report());
    reads_well(&text);
    insta::assert_snapshot!(text, @r#"
    exit code 4
    error: step operator failed (3 steps done): patch Deployment a/b: Deployment.apps "karpenter" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0
    hint: change the setting behind the field that the message names (`tenon config explain` lists all), then run the same command again to resume from here
    "#);
}

/// AWS as far as a command gets with it: who calls, and the answer about the cluster. It is there
/// until the test ends.
fn aws(caller: (u16, &'static str), cluster: (u16, &'static str)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = answer(stream, caller, cluster);
        }
    });
    format!("http://{address}")
}

/// Answers one request.
fn answer(mut stream: TcpStream, caller: (u16, &str), cluster: (u16, &str)) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    // EKS is asked by path, STS by a form.
    let (status, body) = if first.starts_with("GET /clusters") { cluster } else { caller };
    let kind = body.split('|').next().unwrap_or_default();
    let body = body.split_once('|').map_or(body, |(_, body)| body);
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nx-amzn-errortype: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

const CALLER: (u16, &str) = (
    200,
    "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
     <GetCallerIdentityResult><Arn>arn:aws:iam::111122223333:user/dev</Arn><UserId>X</UserId>\
     <Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>",
);

/// What `plan` prints with that AWS.
fn plan_at(endpoint: &str) -> String {
    plan(&[], &[&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint)]].concat())
}

#[test]
fn a_call_that_is_denied() {
    let denied = "AccessDeniedException|{\"message\": \"User: arn:aws:iam::111122223333:user/dev is not \
                  authorized to perform: eks:DescribeCluster on resource: prod\"}";
    let text = plan_at(&aws(CALLER, (403, denied)));
    assert!(text.starts_with("exit code 1\n"), "{text}");
    assert!(text.contains("is not authorized to perform: eks:DescribeCluster"), "{text}");
    assert!(text.contains("\nhint: the caller needs eks:DescribeCluster"), "{text}");
}

#[test]
fn credentials_that_have_expired() {
    let caller = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredToken</Code><Message>The security \
                  token included in the request is expired</Message></Error></ErrorResponse>";
    let cluster = "ExpiredTokenException|{\"message\": \"The security token included in the request is \
                   expired\"}";
    let text = plan_at(&aws((403, caller), (403, cluster)));
    assert!(text.starts_with("exit code 3\n"), "{text}");
    assert!(text.contains("The security token included in the request is expired"), "{text}");
}

#[test]
fn a_cluster_that_does_not_exist() {
    let missing = "ResourceNotFoundException|{\"message\": \"No cluster found for name: prod.\"}";
    let text = plan_at(&aws(CALLER, (404, missing)));
    assert!(text.contains("No cluster found for name: prod"), "{text}");
    assert!(text.contains("\nhint: "), "{text}");
    assert!(text.starts_with("exit code 2\n") || text.starts_with("exit code 1\n"), "{text}");
}

#[test]
fn an_api_server_that_stays_silent() {
    let silence = std::io::Error::from(std::io::ErrorKind::TimedOut);
    let source = failed("list", "nodes".into(), kube::Error::Service(silence.into()));
    let text = as_text(&ExpectedError::Observe(source.into()).report());
    reads_well(&text);
    assert!(text.starts_with("exit code 1\n"), "{text}");
    assert!(text.contains("the API server did not answer within 60 s"), "{text}");
}

#[test]
fn a_plan_that_the_cluster_would_refuse() {
    let field = "NodePool default: spec.limits.cpu: must be an integer or a string".to_owned();
    let text = as_text(&ExpectedError::Rejected { refusals: vec![field] }.report());
    reads_well(&text);
    assert!(text.starts_with("exit code 3\n"), "{text}");
    assert!(text.contains("would refuse 1 part of the plan"), "{text}");
}

#[test]
fn the_check_finds_what_it_is_for() {
    for text in [
        "io error (DispatchFailure(DispatchFailure { source: x",
        "invalid type: null, expected struct Config",
        "ApiError: x (Status { code: Some(422)",
        "Os { code: 111, kind: ConnectionRefused",
    ] {
        assert!(!types_in(text).is_empty(), "{text}");
    }
    assert_eq!(types_in("patch Deployment a/b: Invalid value (os error 111)"), [""; 0]);
    assert_eq!(repeated("a: tcp connect error: x: tcp connect error"), ["tcp connect error"]);
}
