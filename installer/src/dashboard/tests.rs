//! What the server refuses, what it sends, and what the endpoints answer about files.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderName, IF_NONE_MATCH, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::{Value, json};
use tenon_dashboard::assets::ASSETS;
use tenon_dashboard::{App, BODY};
use tenon_simulate::{CatalogOptions, Freshness, Options};
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::FeatureGates;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::token::Token;
use super::{Local, Source};
use crate::prices::SpotPrices;
use crate::prices::testing::{priced, spot};

const HERE: &str = "127.0.0.1:4242";
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("simulate/tests/fixtures").join(name)
}

/// A dashboard without its listener.
struct Page {
    local: Local,
    app: App<Local>,
}

impl Page {
    fn new(source: Source) -> Self {
        let local = Local::new(4242, Token::new().expect("randomness"), source, None);
        Self { app: App::new(local.clone()), local }
    }
}

fn app() -> Page {
    app_of(None)
}

fn app_of(client: Option<Client>) -> Page {
    let gates = FeatureGates::default();
    let now = "2026-01-01T12:00:00Z".parse().ok();
    let options = Options {
        files: vec![fixture("pool.yaml"), fixture("cluster.yaml")],
        catalog: CatalogOptions {
            files: vec![fixture("catalog.json")],
            vm_memory_overhead_percent: VM_MEMORY_OVERHEAD,
            reserved_enis: 0,
        },
        freshness: Freshness::Latest,
        drain: Vec::new(),
        ..Options::live(now.expect("a time"), gates)
    };
    let source = Source::new(options, now, client, SpotPrices::new(None));
    Page::new(source)
}

fn token(app: &Page) -> String {
    app.local.url().split_once("#token=").expect("a token").1.to_owned()
}

/// A request as the page sends it.
fn request(app: &Page, method: &Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, HERE)
        .header(SITE, "same-origin")
        .header(AUTHORIZATION, format!("Bearer {}", token(app)))
}

async fn send(app: &Page, request: http::request::Builder, body: &str) -> (StatusCode, Value) {
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let answer = app.app.answer(request).await;
    assert!(answer.headers().contains_key("content-security-policy"), "{answer:?}");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("in memory").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(app: &Page, path: &str) -> (StatusCode, Value) {
    send(app, request(app, &Method::GET, path), "").await
}

#[tokio::test]
async fn the_page_needs_no_token_and_has_no_data() {
    let app = app();
    for asset in ASSETS {
        let request = Request::get(asset.path).header(HOST, HERE);
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let answer = app.app.answer(request).await;
        assert_eq!(answer.status(), StatusCode::OK, "{}", asset.path);
        let policy = answer.headers()["content-security-policy"].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.headers()[name], value, "{}", asset.path);
        }
        let body = answer.into_body().collect().await.expect("in memory").to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains(&token(&app)));
    }
}

/// The page's prices are of all instance types, those of `status` and `top` of the nodes' types.
#[tokio::test]
async fn nodes_cost_the_same_on_the_page_in_explanations_and_in_the_status() {
    let rule = priced(&[
        ("m7i.large", "eu-west-1a", "0.02"),
        ("m7i.large", "eu-west-1b", "0.03"),
        ("m7i.2xlarge", "eu-west-1a", "0.11"),
        ("m7i.2xlarge", "eu-west-1b", "0.13"),
        ("m7i.4xlarge", "eu-west-1a", "0.19"),
    ]);
    let now = "2026-01-01T12:00:00Z".parse().ok();
    let options = Options {
        files: vec![fixture("fleet/cluster.yaml")],
        ..Options::live(now.expect("a time"), FeatureGates::default())
    };

    let mut status = tenon_simulate::read(options.clone(), None, &|_| ()).await.expect("readable");
    let on_demand = json!(status.fleet())["total"]["pricePerHour"].clone();
    let mut prices = spot(&rule);
    let types = status.unpriced_spot_types().into_iter().map(str::to_owned).collect();
    prices.ask(types).await;
    assert!(prices.price(&mut status).has_spot_prices);
    let status = json!(status.fleet());
    let total = status["total"]["pricePerHour"].as_f64().expect("a price");
    assert!(total < on_demand.as_f64().expect("a price"), "{total} {on_demand}");

    let source = Source::new(options, now, None, spot(&rule));
    let app = Page::new(source);
    let (code, state) = get(&app, "/api/state").await;
    assert_eq!(code, StatusCode::OK, "{state}");
    assert_eq!(state["fleet"], status);
    let notes = state["notes"].to_string();
    assert!(notes.contains("spot at EC2's current prices"), "{notes}");
    let nodes = state["nodes"].as_array().expect("nodes");
    let sum: f64 = nodes.iter().filter_map(|node| node["pricePerHour"].as_f64()).sum();
    assert!((sum - total).abs() < 1e-6, "{sum} {total}");

    let node = "/api/explain?kind=node&name=node-default-aaaaa";
    let (code, node) = get(&app, node).await;
    assert_eq!(code, StatusCode::OK, "{node}");
    assert_eq!(node["answer"]["pricePerHour"], 0.02, "{node}");
    let (code, pool) = get(&app, "/api/explain?kind=nodepool&name=default").await;
    assert_eq!(code, StatusCode::OK, "{pool}");
    let pools = status["nodePools"].as_array().expect("NodePools");
    let row = pools.iter().find(|row| row["name"] == "default").expect("the NodePool");
    assert_eq!(pool["answer"]["pricePerHour"], row["pricePerHour"], "{pool}");
}

#[test]
fn the_page_has_nothing_from_elsewhere_and_no_way_from_text_to_markup() {
    for asset in ASSETS {
        let elsewhere = asset.text.match_indices("http").map(|(at, _)| &asset.text[at..]);
        for url in elsewhere.filter(|text| text.starts_with("http:") || text.starts_with("https:"))
        {
            assert!(url.starts_with("http://www.w3.org/2000/svg"), "{}: {url:.40}", asset.path);
        }
        for way in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style=\""]
        {
            assert!(!asset.text.contains(way), "{} has {way}", asset.path);
        }
        let inline = asset.text.matches("<script").count();
        let files = asset.text.matches("<script type=\"module\" src=").count();
        assert_eq!(inline, files, "{}", asset.path);
    }
}

#[tokio::test]
async fn data_needs_the_token() {
    let app = app();
    let right = token(&app);
    assert_eq!(right.len(), 32);
    let wrong = right.replace(|digit: char| digit != '0', "0");
    for given in [None, Some(String::new()), Some(wrong), Some(right[1..].to_owned())] {
        for path in ["/api/state", "/api/decisions", "/api/explain?kind=node&name=node-a"] {
            let mut request = Request::get(path).header(HOST, HERE);
            if let Some(given) = &given {
                request = request.header(AUTHORIZATION, format!("Bearer {given}"));
            }
            let (status, body) = send(&app, request, "").await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{path} with {given:?}");
            assert!(body.get("fleet").is_none());
        }
    }
    // In the query it would be in histories and logs.
    let path = format!("/api/state?token={right}");
    let (status, _) = send(&app, Request::get(path).header(HOST, HERE), "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&app, "/api/state").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_foreign_name_of_this_address_gets_nothing() {
    let app = app();
    let bearer = format!("Bearer {}", token(&app));
    let foreign = [
        "evil.example",
        "evil.example:4242",
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost.evil:4242",
        "",
    ];
    for host in foreign {
        for path in ["/", "/app.js", "/api/state"] {
            let request = Request::get(path).header(HOST, host).header(AUTHORIZATION, &bearer);
            let (status, _) = send(&app, request, "").await;
            assert_eq!(status, StatusCode::MISDIRECTED_REQUEST, "{path} of {host:?}");
        }
    }
    let twice = Request::get("/").header(HOST, HERE).header(HOST, "evil.example");
    assert_eq!(send(&app, twice, "").await.0, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(send(&app, Request::get("/"), "").await.0, StatusCode::MISDIRECTED_REQUEST);
    let named = Request::get("/api/state").header(HOST, "localhost:4242");
    let (status, _) = send(&app, named.header(AUTHORIZATION, &bearer), "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn other_pages_are_refused_even_with_the_token() {
    let app = app();
    for origin in ["http://evil.example", "http://127.0.0.1:80", "https://127.0.0.1:4242", "null"] {
        let from = request(&app, &Method::GET, "/api/state").header(ORIGIN, origin);
        assert_eq!(send(&app, from, "").await.0, StatusCode::FORBIDDEN, "{origin}");
    }
    for site in ["cross-site", "same-site", "x"] {
        let mut from = request(&app, &Method::GET, "/api/state");
        from.headers_mut().expect("no error").insert(SITE, site.parse().expect("a value"));
        assert_eq!(send(&app, from, "").await.0, StatusCode::FORBIDDEN, "{site}");
    }
    let own = request(&app, &Method::GET, "/api/state").header(ORIGIN, format!("http://{HERE}"));
    assert_eq!(send(&app, own, "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn nothing_can_be_changed() {
    let app = app();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        for path in ["/", "/api/state", "/api/decisions", "/api/explain", "/api/nodepool"] {
            let (status, _) = send(&app, request(&app, &method, path), "").await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
    assert_eq!(get(&app, "/api/what-if").await.0, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/api/", "/api/secrets", "/api/../etc/passwd"] {
        assert_eq!(get(&app, path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get(&app, "/page/app.js").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_state_is_sent_once_until_it_changes() {
    let app = app();
    let first = request(&app, &Method::GET, "/api/state").body(Full::<Bytes>::default());
    let first = app.app.answer(first.expect("a request")).await;
    let tag = first.headers()[ETAG].clone();
    let body = first.into_body().collect().await.expect("in memory").to_bytes();
    let state: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(state["source"], "files");
    assert_eq!(state["fleet"]["total"]["nodes"], 1);
    let node = &state["nodes"][0];
    assert_eq!(node["key"], "default-aaaaa");
    assert_eq!(node["node"], "node-a");
    assert_eq!(node["zone"], "zone-a");
    assert_eq!(node["cpu"], json!([1000, 7900]));
    assert_eq!(node["pods"], 1);
    let again = request(&app, &Method::GET, "/api/state").header(IF_NONE_MATCH, tag);
    assert_eq!(send(&app, again, "").await, (StatusCode::NOT_MODIFIED, Value::Null));
}

#[tokio::test]
async fn objects_are_explained_in_the_words_of_the_command_line() {
    let app = app();
    let (status, body) = get(&app, "/api/explain?kind=node&name=node-a").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let text = body["text"].as_str().expect("text");
    assert!(text.starts_with("Node node-a: it would be removed"), "{text}");
    assert_eq!(body["answer"]["kind"], "Node");
    let (status, body) = get(&app, "/api/explain?kind=pod&namespace=team&name=lonely").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (status, body) = get(&app, "/api/explain?kind=pod&name=%3Cimg%20src%3Dx%3E").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let message = body["error"]["message"].as_str().expect("a message");
    assert_eq!(message, "there is no pod default/<img src=x> that has not ended in the input");
    for path in ["/api/explain", "/api/explain?kind=secret&name=a", "/api/explain?kind=pod"] {
        assert_eq!(get(&app, path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    let (_, pods) = get(&app, "/api/pods?node=default-aaaaa").await;
    assert_eq!(pods["count"], 1);
    assert_eq!(pods["pods"][0]["name"], "lonely");
    assert_eq!(get(&app, "/api/pods?node=another").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_cluster_that_can_not_be_read_is_reported_in_the_words_of_a_terminal() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // Port 1 has no server.
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    let (status, body) = get(&app_of(Some(client)), "/api/state").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(message.contains("the API server can't be reached: Connection refused"), "{message}");
    assert!(
        body["error"]["hints"][0].as_str().is_some_and(|it| it.contains("kubeconfig")),
        "{body}"
    );
}

/// An API server with one Node and nothing else, which keeps the method and path of each request.
async fn api_server(asked: Arc<Mutex<Vec<String>>>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let asked = Arc::clone(&asked);
        connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let path = request.uri().path();
                asked.lock().expect("no panic").push(format!("{} {path}", request.method()));
                let node = json!({ "metadata": { "name": "another" }, "spec": {}, "status": {} });
                let items = if path == "/api/v1/nodes" { vec![node] } else { Vec::new() };
                let list =
                    json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
                async move {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(list.to_string()))))
                }
            });
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[tokio::test]
async fn a_cluster_is_only_read_whatever_is_asked() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let mut server = JoinSet::new();
    server.spawn(api_server(Arc::clone(&asked), listener));
    let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
    let app = app_of(Some(Client::try_from(config).expect("a client")));

    let (status, state) = get(&app, "/api/state").await;
    assert_eq!(status, StatusCode::OK, "{state}");
    assert_eq!(state["source"], "cluster");
    // That of the cluster and that of the files.
    assert_eq!(state["fleet"]["total"]["nodes"], 2, "{state}");
    let (status, body) = get(&app, "/api/explain?kind=pod&namespace=team&name=lonely").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (_, body) = get(&app, "/api/nodepool?name=default").await;
    let (status, body) = what_if(&app, body["yaml"].as_str().expect("a manifest")).await;
    assert_eq!(status, StatusCode::OK, "{body}");

    let asked = asked.lock().expect("no panic");
    assert!(asked.iter().filter(|it| *it == "GET /api/v1/nodes").count() >= 2, "{asked:?}");
    let writes = asked.iter().filter(|it| !it.starts_with("GET ")).collect::<Vec<_>>();
    assert_eq!(writes, Vec::<&String>::new());
}

#[tokio::test]
async fn without_a_cluster_there_are_no_decisions() {
    let (status, body) = get(&app(), "/api/decisions").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body["error"]["hints"][0].as_str().is_some_and(|it| it.contains("--url")), "{body}");
    let (status, _) = get(&app(), "/api/decisions?after=x").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

async fn what_if(app: &Page, manifest: &str) -> (StatusCode, Value) {
    let request = request(app, &Method::POST, "/api/what-if");
    send(app, request.header(CONTENT_TYPE, "application/yaml"), manifest).await
}

#[tokio::test]
async fn a_changed_nodepool_is_planned_and_compared() {
    let app = app();
    let (_, body) = get(&app, "/api/nodepool?name=default").await;
    let manifest = body["yaml"].as_str().expect("a manifest").to_owned();
    assert!(!manifest.contains("status:"), "{manifest}");

    // Unchanged, both sides are the same.
    let (status, same) = what_if(&app, &manifest).await;
    assert_eq!(status, StatusCode::OK, "{same}");
    assert_eq!(same["drift"], json!([]));
    assert_eq!(same["before"]["removed"], same["after"]["removed"]);
    assert_eq!(same["after"]["removed"], 1);

    // A budget of none keeps the node.
    let (_, kept) = what_if(&app, &manifest.replace("100%", "0")).await;
    assert_eq!(kept["before"]["removed"], 1, "{kept}");
    assert_eq!(kept["after"]["removed"], 0, "{kept}");
    let price = |side: &str| kept[side]["totals"]["pricePerHourAfter"].as_f64().expect("a price");
    assert!(price("after") > price("before"), "{kept}");

    // Another template drifts what is there.
    let labeled =
        manifest.replace("  template:\n", "  template:\n    metadata:\n      labels: {a: b}\n");
    assert_ne!(labeled, manifest);
    let (_, drifted) = what_if(&app, &labeled).await;
    assert_eq!(drifted["drift"][0]["nodeClaims"], 1, "{drifted}");
    assert_eq!(drifted["drift"][0]["reason"], "NodePoolDrifted");
    assert_eq!(drifted["after"]["disruptions"][0]["reason"], "Drifted", "{drifted}");
}

#[tokio::test]
async fn what_the_api_server_would_refuse_is_named() {
    let app = app();
    for (manifest, expected) in [
        ("kind: NodePool", "apiVersion: missing"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: a}", "this is no NodePool"),
        ("", "there is no NodePool in it"),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {limits: {cpu: lots}}",
            "spec.limits",
        ),
    ] {
        let (status, body) = what_if(&app, manifest).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{manifest}: {body}");
        let details = body["error"]["details"].to_string();
        assert!(details.contains(expected), "{manifest}: {details}");
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_no_form_can_send_one() {
    let app = app();
    let large = "#".repeat(BODY + 1);
    assert_eq!(what_if(&app, &large).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let from = request(&app, &Method::POST, "/api/what-if").header(CONTENT_TYPE, kind);
        assert_eq!(send(&app, from, "").await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
}
