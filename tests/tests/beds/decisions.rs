//! The decision ledger as people read it: through a port that the API server forwards to the pod
//! that leads, by whom the API server lets.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig};
use tenon_bed::installation::Installation;
use tenon_bed::user::{LIMIT, User, one_of};
use tenon_bed::wait::{eventually, must};

const APP: &str = "decided";

/// Runs `tenon decisions` with these arguments; answers the decisions.
async fn decisions(bed: &Bed, args: &[&str]) -> Vec<Value> {
    let finished = must(bed.run_tenon(&[&["decisions", "-o", "json"], args].concat()).await);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let answer: Value = serde_json::from_str(&finished.stdout).expect("an answer in JSON");
    answer["decisions"].as_array().expect("a list").clone()
}

/// Waits for a decision of which all of this holds.
async fn decided(bed: &Bed, args: &[&str], expected: &[(&str, &str)]) -> Value {
    let fits = |decision: &Value| {
        expected
            .iter()
            .all(|(pointer, text)| decision.pointer(pointer).and_then(Value::as_str) == Some(*text))
    };
    let found = async || {
        let all = decisions(bed, args).await;
        if all.iter().any(fits) { Ok(true) } else { Err(format!("{all:#?}").into()) }
    };
    must(eventually(&format!("a decision with {expected:?}"), LIMIT, found).await);
    decisions(bed, args).await.into_iter().find(fits).expect("it was there before")
}

/// What `tenon cost` says.
async fn costs(bed: &Bed, args: &[&str]) -> Value {
    let finished = must(bed.run_tenon(&[&["cost", "-o", "json"], args].concat()).await);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("an answer in JSON")
}

/// A Savings Plan that halves what on-demand nodes cost, and what `tenon cost` makes of it.
async fn half_price(bed: &Bed) {
    let on_demand = async |args: &[&str]| {
        let cost = costs(bed, &[&["--by", "capacity-type"], args].concat()).await;
        let rows = cost["rows"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["name"] == "on-demand").expect("the bed's own nodes");
        (row["pricePerHour"].as_f64().expect("a price"), cost)
    };
    let by_type = costs(bed, &["--by", "instance-type"]).await;
    let rates: Vec<Value> = by_type["rows"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| {
            let each = row["pricePerHour"].as_f64().expect("a price")
                / row["nodes"].as_f64().expect("a number");
            json!({
                "rate": format!("{:.6}", each / 2.0), "currency": "USD", "unit": "Hrs",
                "productType": "EC2", "serviceCode": "AmazonEC2", "operation": "RunInstances",
                "usageType": "EUC1-BoxUsage",
                "properties": [
                    { "name": "region", "value": bed.region() },
                    { "name": "instanceType", "value": row["name"] },
                    { "name": "productDescription", "value": "Linux/UNIX" },
                    { "name": "tenancy", "value": "shared" },
                ],
            })
        })
        .collect();
    let plan = json!({ "savingsPlans": [{
        "savingsPlanId": "11111111-2222-4333-8444-555555555555", "savingsPlanType": "Compute",
        "state": "active", "currency": "USD", "commitment": "100.0",
        "start": "2020-01-01T00:00:00.000Z", "end": "2120-01-01T00:00:00.000Z",
    }]});
    let rates = json!({
        "savingsPlanId": "11111111-2222-4333-8444-555555555555", "searchResults": rates,
    });
    let files = [("plan.json", plan), ("rates.json", rates)].map(|(name, content)| {
        let file = bed.dir().join(name);
        must(std::fs::write(&file, content.to_string()));
        file.to_string_lossy().into_owned()
    });
    let (before, _) = on_demand(&[]).await;
    let named = ["--commitments", &files[0], "--commitments", &files[1]];
    let (after, cost) = on_demand(&named).await;
    assert!((before - 2.0 * after).abs() < 1e-5, "{before}: {cost:#}");
    assert_eq!(cost["committed"]["committedPerHour"], 100.0, "{cost:#}");
    // A plan without its rates is refused before anything is read.
    let refused = must(bed.run_tenon(&["cost", "--commitments", &files[0]]).await);
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("no file has the rates"), "{}", refused.stderr);
}

/// A ServiceAccount and a kubeconfig with its token.
async fn person(bed: &Bed, name: &str) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), "default");
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    must(accounts.create(&PostParams::default(), &account).await);
    let spec = Some(TokenRequestSpec::default());
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = must(accounts.create_token_request(name, &PostParams::default(), &request).await);
    let token = answer.status.and_then(|status| status.token).expect("a token");
    let config = std::fs::read_to_string(bed.control_plane().kubeconfig()).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["users"][0]["user"] = json!({ "token": token });
    let file = bed.dir().join(format!("{name}.kubeconfig"));
    must(std::fs::write(&file, config.to_string()));
    file
}

/// Types a command of a hint.
async fn type_in(bed: &Bed, command: &str) {
    let ended = must(bed.command("sh".as_ref()).args(["-c", command]).output().await);
    assert!(ended.status.success(), "{command}: {}", String::from_utf8_lossy(&ended.stderr));
}

async fn launch(user: &User) -> String {
    let requirements =
        json!([one_of("node.kubernetes.io/instance-type", &["m5.large", "m5n.large"])]);
    let empty =
        json!({ "disruption": { "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty" } });
    must(user.pool(APP, &requirements, &empty).await);
    must(user.scale(APP, 2, &json!({ "scenario": APP })).await);
    must(user.runs(APP, 2).await);
    must(user.claims(APP).await).first().expect("a NodeClaim").name_any()
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_read_through_the_api_server_by_those_who_may() {
    let bed = Arc::new(must(Bed::start(BedConfig::default()).await));
    let tenon = must(Installation::ensure(&bed, &json!({})).await);
    let claim = launch(tenon.user()).await;

    // What, why, for whom, for how much, and what became of it.
    let of_pool = ["--nodepool", APP];
    let launched = [("/kind", "launch"), ("/result/state", "done")];
    let decision = decided(&bed, &of_pool, &launched).await;
    assert_eq!(decision["nodeClaims"]["names"], json!([claim]));
    assert_eq!(decision["reason"], "2 pending pods fit on no existing node");
    assert_eq!(decision["pods"]["count"], 2);
    assert!(decision["price"]["after"].as_f64().is_some_and(|price| price > 0.0), "{decision}");
    let pod = decision["pods"]["names"][0].as_str().expect("a pod");
    assert_eq!(decisions(&bed, &["--pod", pod]).await.len(), 1);
    assert_eq!(decisions(&bed, &["--node", &claim]).await.len(), 1);
    assert_eq!(decisions(&bed, &["--node", "another"]).await, Vec::<Value>::new());

    // The node is paid for by those who use it.
    let cost = costs(&bed, &["--by", "namespace"]).await;
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    assert!(number(&cost["total"]["pricePerHour"]) > 0.0, "{cost}");
    // The bed's own nodes have no NodePool, and a price all the same.
    assert_eq!((&cost["total"]["nodes"], &cost["withoutPrice"]), (&json!(3), &json!(0)), "{cost}");
    let rows = cost["rows"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["name"] == "default").expect("the namespace of the pods");
    assert_eq!((&row["pods"], &row["nodes"]), (&json!(2), &json!(1)), "{cost}");
    assert_eq!(cost["savings"]["commands"], 0, "{cost}");
    half_price(&bed).await;
    // The same pods on a node group.
    let cost = costs(&bed, &["--node-group", "m5.4xlarge"]).await;
    let on = &cost["nodeGroups"];
    let counts = ["nodes", "currentNodes", "podsWithoutPlace"].map(|name| &on[name]);
    assert_eq!(counts, [&json!(1), &json!(1), &json!(0)], "{cost}");
    assert!(number(&on["pricePerHour"]) > number(&on["currentPricePerHour"]), "{cost}");

    // An empty node goes, and the decision ends with its NodeClaim.
    must(tenon.user().scale(APP, 0, &json!({ "scenario": APP })).await);
    let deleted = [("/kind", "consolidation"), ("/action", "delete"), ("/result/state", "done")];
    let decision = decided(&bed, &of_pool, &deleted).await;
    assert_eq!(decision["nodeClaims"]["names"], json!([claim]));
    assert_eq!(decision["price"]["after"], 0.0);

    // That is what consolidation has saved.
    let cost = costs(&bed, &[]).await;
    assert_eq!(cost["savings"]["commands"], 1, "{cost}");
    assert_eq!(cost["savings"]["savedPerHour"], decision["price"]["before"], "{cost}");
    assert_eq!(cost["savings"]["byReason"][0]["reason"], decision["reason"], "{cost}");

    // Text is for people.
    let finished = must(bed.run_tenon(&["decisions"]).await);
    let text = finished.stdout;
    assert!(text.contains("launch a node in NodePool decided for 2 pods, +$"), "{text}");
    assert!(text.contains("consolidation: delete node "), "{text}");

    // Who may not read is told what to bind, and may when that is typed.
    let file = person(&bed, "reader").await;
    let as_reader = [("KUBECONFIG", file.to_str().expect("UTF-8"))];
    let refused = must(bed.run_tenon_with(&["decisions"], &as_reader).await);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(!refused.stdout.contains("launch"), "{}", refused.stdout);
    let hint = refused.stderr.split("bind the reader's roles: ").nth(1).expect("a hint");
    let command = hint.lines().next().unwrap_or_default();
    let user = "system:serviceaccount:default:reader";
    type_in(&bed, &command.replace("--user=NAME", &format!("--user={user}"))).await;
    let reads = async || {
        let read = bed.run_tenon_with(&["decisions"], &as_reader).await?;
        if read.code == 0 { Ok(true) } else { Err(read.stderr.into()) }
    };
    must(eventually("the reader may read", LIMIT, reads).await);

    // Another leader has a ledger of its own.
    must(tenon.kill_leader().await);
    drop(tenon);
    let empty = async || {
        let read = bed.run_tenon(&["decisions"]).await?;
        Ok(read.stdout.starts_with("No decisions since ") || !read.stdout.contains("for 2 pods"))
    };
    must(eventually("the new leader answers", LIMIT, empty).await);
    must(Arc::into_inner(bed).expect("no other").stop().await);
}
