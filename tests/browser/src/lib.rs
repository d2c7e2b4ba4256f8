//! A headless Chromium behind ChromeDriver: the few calls of WebDriver that the tests need.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How long a condition may take; the first plan of a debug build takes seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// Keys as WebDriver names them.
pub mod keys {
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
    /// Arrow to the left.
    pub const LEFT: &str = "\u{e012}";
    /// Arrow to the right.
    pub const RIGHT: &str = "\u{e014}";
    /// Arrow down.
    pub const DOWN: &str = "\u{e015}";
}

/// `prefers-color-scheme`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Dark text on a light ground.
    Light,
    /// The other way round.
    Dark,
}

/// A browser with one tab. It ends with the value, also if a test fails.
#[derive(Debug)]
pub struct Browser {
    /// Where screenshots go.
    pictures: PathBuf,
    client: Client<HttpConnector, Full<Bytes>>,
    session: String,
    /// Ends after the browser: without its driver a browser would run on.
    _driver: Child,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let rest = self.session.trim_start_matches("http://");
        let (address, path) = rest.split_once('/').expect("a path");
        let request =
            format!("DELETE /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        // The answer comes when the browser has ended. What fails here has no test to fail.
        if let Ok(mut stream) = std::net::TcpStream::connect(address) {
            let _ = stream.set_read_timeout(Some(LIMIT));
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read(&mut [0; 64]);
        }
    }
}

/// ChromeDriver, and the port that it listens on.
///
/// It takes any port that is free for IPv4, and then the same one for IPv6: where another process
/// has that, it ends, and is to be started anew. Nothing else that ends it is forgiven.
async fn driver() -> (Child, String) {
    for _ in 0..20 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is installed");
        let mut lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.expect("readable") {
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                return (driver, port.trim_end_matches('.').to_owned());
            }
            said += &line;
            said.push('\n');
        }
        assert!(said.contains("port not available"), "chromedriver does not start:\n{said}");
    }
    panic!("chromedriver finds no port that is free for IPv4 and IPv6")
}

impl Browser {
    /// Starts ChromeDriver, and with it a browser whose screenshots are written to a folder.
    ///
    /// # Panics
    /// If one of them can't be started.
    pub async fn start(scheme: Scheme, pictures: &Path) -> Self {
        let (driver, port) = driver().await;
        let mut args = vec!["--headless=new", "--no-sandbox", "--disable-gpu"];
        args.extend(["--window-size=1400,900", "--enable-precise-memory-info"]);
        if scheme == Scheme::Dark {
            args.push("--blink-settings=preferredColorScheme=0");
        }
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": 60_000 },
        } } });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let root = format!("http://127.0.0.1:{port}/session");
        let mut browser =
            Self { pictures: pictures.to_owned(), client, session: root, _driver: driver };
        let begun = browser.call(Method::POST, "", capabilities).await;
        let id = begun["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {begun}"));
        browser.session = format!("{}/{id}", browser.session);
        browser
    }

    /// Calls the driver; answers its value, or the error as it is.
    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let body = if method == Method::GET { String::new() } else { body.to_string() };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.session))
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let answer = self.client.request(request).await.expect("chromedriver answers");
        let body = answer.into_body().collect().await.expect("an answer").to_bytes();
        let mut answer: Value = serde_json::from_slice(&body).expect("JSON");
        answer["value"].take()
    }

    /// Goes to a page.
    ///
    /// # Panics
    /// If the browser is gone.
    pub async fn open(&self, url: &str) {
        self.call(Method::POST, "/url", json!({ "url": url })).await;
    }

    /// Runs a script, and waits for its promise. An exception is answered by its name.
    ///
    /// # Panics
    /// If the browser is gone.
    pub async fn run(&self, script: &str) -> Value {
        let guarded = format!("try {{ {script} }} catch (error) {{ return error.name }}");
        let body = json!({ "script": guarded, "args": [] });
        let answer = self.call(Method::POST, "/execute/sync", body).await;
        assert!(answer.get("error").is_none(), "{script}: {answer}");
        answer
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it is not true within 90 seconds.
    pub async fn until(&self, condition: &str) {
        let look = format!("return Boolean({condition})");
        let waiting = async {
            while self.run(&look).await != true {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(LIMIT, waiting).await.is_err() {
            self.screenshot("timeout").await;
            let shown = self.run("return document.body.innerText").await;
            panic!("never true: {condition}; the page says {shown}");
        }
    }

    /// Presses and releases keys, one after the other.
    ///
    /// # Panics
    /// If the browser is gone.
    pub async fn press(&self, keys: &[&str]) {
        let actions = keys
            .iter()
            .flat_map(|key| ["keyDown", "keyUp"].map(|what| json!({ "type": what, "value": key })));
        let actions = actions.collect::<Vec<_>>();
        let body = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        let answer = self.call(Method::POST, "/actions", body).await;
        assert!(answer.is_null(), "{answer}");
    }

    /// The text of an element, as it is shown.
    ///
    /// # Panics
    /// If the browser is gone.
    pub async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({}).innerText", json!(selector));
        self.run(&script).await.as_str().unwrap_or_default().to_owned()
    }

    /// What the browser wrote to its console: errors, and what the content policy refused.
    ///
    /// # Panics
    /// If the browser is gone.
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.call(Method::POST, "/se/log", json!({ "type": "browser" })).await;
        let entries = log.as_array().expect("a log").iter();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Writes a picture of the page.
    ///
    /// # Panics
    /// If the browser is gone, or the picture can't be written.
    pub async fn screenshot(&self, name: &str) {
        use base64::Engine as _;
        let picture = self.call(Method::GET, "/screenshot", Value::Null).await;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(picture.as_str().expect("a picture"))
            .expect("base64");
        assert!(bytes.starts_with(b"\x89PNG"), "{name} is no picture");
        std::fs::create_dir_all(&self.pictures).expect("a folder");
        std::fs::write(self.pictures.join(format!("{name}.png")), bytes).expect("written");
    }
}
