//! `tenon dashboard` in a real browser: a headless Chromium, driven through ChromeDriver, on
//! generated files and a ledger that answers like the operator's.
//!
//! These tests need `chromium`, `chromedriver` and `npm` (for axe-core), so `cargo test` ignores
//! them; `.ci/run` runs them where the three are installed, and says so where they are not.
//! Screenshots are written to the folder `dashboard` of cargo's directory for temporary files.

#[path = "browser/data.rs"]
mod data;
#[path = "browser/server.rs"]
mod server;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use server::Server;
use tenon_browser::{Browser, Scheme, keys};

/// Waits in the page until this is true.
const READY: &str = "document.documentElement.dataset.ready === 'true'";

/// Where screenshots are written.
fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard")
}

/// A browser that shows the dashboard of so many nodes.
async fn shown(nodes: usize) -> (Server, Browser) {
    let server = Server::start(nodes).await;
    let browser = Browser::start(Scheme::Light, &pictures()).await;
    browser.open(&server.url).await;
    browser.until(READY).await;
    (server, browser)
}

fn text<'a>(value: &'a Value, what: &str) -> &'a str {
    value.as_str().unwrap_or_else(|| panic!("{what} is no text: {value}"))
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn everything_is_reached_by_keyboard() {
    let (_server, browser) = shown(60).await;

    // The token is not left in the address bar, and the tab can be loaded again.
    let address = browser.run("return location.href").await;
    assert!(!text(&address, "the address").contains("token"), "{address}");
    browser.run("location.reload()").await;
    browser.until(READY).await;

    // Tab reaches the map; arrow keys select a node, which is announced; Enter explains it.
    for _ in 0..40 {
        browser.press(&[keys::TAB]).await;
        if browser.run("return document.activeElement.id").await == "map" {
            break;
        }
    }
    assert_eq!(browser.run("return document.activeElement.id").await, "map");
    browser.press(&[keys::RIGHT, keys::RIGHT, keys::DOWN, keys::LEFT]).await;
    let said = browser.run("return document.getElementById('map-selected').textContent").await;
    assert!(text(&said, "what is announced").contains("NodePool default"), "{said}");
    browser.screenshot("map").await;
    browser.press(&[keys::ENTER]).await;
    browser.until("document.querySelector('#details pre')").await;
    let details = browser.text("#details").await;
    assert!(details.contains("What to do:") && details.contains("Instance type"), "{details}");
    browser.screenshot("details").await;

    // Tabs move with arrow keys.
    browser.run("document.getElementById('tab-details').focus()").await;
    browser.press(&[keys::RIGHT, keys::RIGHT]).await;
    assert_eq!(browser.run("return document.activeElement.id").await, "tab-pending");
    let pending = browser.text("#pending").await;
    assert!(pending.contains("3 pods: no instance type is large enough"), "{pending}");
    assert!(pending.contains("spot as expensive as on-demand"), "{pending}");
    browser.screenshot("pending").await;
    browser.press(&[keys::TAB, keys::TAB, keys::ENTER]).await;
    browser.until("document.querySelector('#details pre')?.textContent.includes('huge-0')").await;

    // A slash goes to the filter, which the table obeys; Escape clears it.
    browser.press(&["/"]).await;
    browser.press(&["b", "a", "t", "c", "h"]).await;
    browser.run("document.querySelector('[name=view][value=table]').click()").await;
    let pools = "return [...new Set([...document.querySelectorAll('#rows td:nth-child(2)')]\
                 .map((cell) => cell.textContent))]";
    assert_eq!(browser.run(pools).await, json!(["batch"]));
    browser.screenshot("table").await;
    browser.run("document.getElementById('filter').focus()").await;
    browser.press(&[keys::ESCAPE]).await;
    assert_eq!(browser.run("return document.querySelectorAll('#rows tr').length").await, 60);

    // Sorting keeps the focus where it was, and says how it is sorted.
    browser.run("document.querySelectorAll('#columns button')[5].focus()").await;
    browser.press(&[keys::ENTER]).await;
    browser.press(&[keys::ENTER]).await;
    let sorted = "return [document.activeElement.textContent, \
                  document.activeElement.parentElement.getAttribute('aria-sort'), \
                  document.querySelector('#rows td:nth-child(3)').textContent]";
    assert_eq!(browser.run(sorted).await, json!(["Price", "descending", "r7i.8xlarge"]));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn a_nodepool_is_edited_and_the_answer_has_prices() {
    let (_server, browser) = shown(60).await;
    browser.run("document.getElementById('tab-what-if').click()").await;
    browser.run("document.getElementById('pool').value = 'default'").await;
    browser.run("document.getElementById('load').click()").await;
    browser.until("document.getElementById('manifest').value.includes('kind: NodePool')").await;

    // Without a change there is no difference.
    browser.run("document.querySelector('#what-if .primary').click()").await;
    browser.until("document.querySelector('.verdict')").await;
    assert_eq!(browser.text(".verdict").await, "The price would be the same");
    assert!(!browser.text("#answer").await.contains("drift"));

    // A budget of nothing keeps nodes that would be removed.
    let edit = "const manifest = document.getElementById('manifest'); \
                manifest.value = manifest.value.replace('10%', '0'); \
                document.getElementById('answer').replaceChildren(); \
                document.querySelector('#what-if .primary').click()";
    browser.run(edit).await;
    browser.until("document.querySelector('.verdict')").await;
    let verdict = browser.text(".verdict").await;
    assert!(verdict.starts_with("+$") && verdict.ends_with("compared with no change"), "{verdict}");
    browser.screenshot("what-if").await;

    // A mistake is answered with where it is, and what is allowed there.
    let wrong = "document.getElementById('manifest').value = 'apiVersion: v1\\nkind: Secret'; \
                 document.getElementById('answer').replaceChildren(); \
                 document.querySelector('#what-if .primary').click()";
    browser.run(wrong).await;
    browser.until("document.querySelector('#answer .failure')").await;
    let failure = browser.text("#answer").await;
    assert!(failure.contains("this is no NodePool; allowed: NodePools"), "{failure}");
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn decisions_lead_to_what_they_are_about() {
    let (server, browser) = shown(60).await;
    browser.run("document.getElementById('tab-decisions').click()").await;
    browser.until("document.querySelectorAll('.decision').length === 3").await;
    // Rows have no text until a frame has found them in view (`content-visibility`).
    browser.until("document.getElementById('decisions').innerText.includes('done after')").await;
    let shown = browser.text("#decisions").await;
    for expected in [
        "consolidation: replace node ip-10-0-0-1.ec2.internal of NodePool default with a new one",
        "−$0.1000/h",
        "Why: its 4 pods fit on other nodes and a cheaper one",
        "Instead: delete it without a replacement",
        "done after 54 s",
        "launches +$0.2000/h, disruptions −$0.1000/h",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in:\n{shown}");
    }
    let picture = "return [...document.querySelectorAll('#decisions svg')]\
                   .map((it) => [it.getAttribute('aria-label'), it.childElementCount])";
    let expected = json!([["3 decisions from 2026-11-25 12:31 to 2026-11-25 12:33", 3]]);
    assert_eq!(browser.run(picture).await, expected);
    browser.screenshot("decisions").await;

    // What comes later is added.
    server.decide();
    browser.until("document.querySelectorAll('.decision').length === 4").await;
    let kinds = "const kind = document.getElementById('kind'); kind.value = 'drift'; \
                 kind.dispatchEvent(new Event('change'))";
    browser.run(kinds).await;
    browser.until("document.querySelectorAll('.decision').length === 1").await;
    browser.run("document.querySelector('.decision button').click()").await;
    browser.until("document.querySelector('#details h3')?.textContent.startsWith('ip-10')").await;
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn names_that_are_markup_stay_text() {
    let (_server, browser) = shown(60).await;
    let node = "ip-10-0-0-0.ec2.internal";
    // By hand, by table and by map: wherever names occur.
    browser.run("document.querySelector('[name=view][value=table]').click()").await;
    for color in ["zone", "instanceType", "capacityType", "disruption", "nodePool"] {
        let choose = format!(
            "const color = document.getElementById('color'); color.value = '{color}'; \
             color.dispatchEvent(new Event('input', {{ bubbles: true }}))"
        );
        browser.run(&choose).await;
    }
    let open = format!(
        "[...document.querySelectorAll('#rows button')].find((it) => it.textContent === '{node}')\
         .click()"
    );
    browser.run(&open).await;
    browser.until("document.querySelector('#details ul button')").await;
    let details = browser.text("#details").await;
    assert!(details.contains(data::MARKUP), "{details}");
    browser.run("document.querySelector('#details ul button').click()").await;
    browser.until("document.querySelector('#details pre')").await;
    for tab in ["decisions", "pending", "what-if"] {
        browser.run(&format!("document.getElementById('tab-{tab}').click()")).await;
    }
    browser.until("document.querySelectorAll('.decision').length === 3").await;
    let shown = browser.run("return document.body.textContent").await;
    assert!(text(&shown, "the page").contains("<script>window.owned = 2</script>"));
    assert_eq!(browser.run("return window.owned ?? null").await, Value::Null);
    let made = "return document.querySelectorAll('img, iframe, object, script:not([src])').length";
    assert_eq!(browser.run(made).await, 0);
    // The browser would refuse what the page does not even try.
    let refused = browser.run("document.body.innerHTML = '<img>'; return 'made'").await;
    assert_eq!(refused, "TypeError", "Trusted Types are not enforced");
    browser
        .run(
            "const it = document.createElement('script'); it.src = 'data:,window.owned=3'; \
                 document.body.append(it)",
        )
        .await;
    assert_eq!(browser.run("return window.owned ?? null").await, Value::Null);
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn every_tab_is_accessible_in_light_and_dark() {
    let axe = server::axe();
    let server = Server::start(60).await;
    for scheme in [Scheme::Light, Scheme::Dark] {
        let browser = Browser::start(scheme, &pictures()).await;
        browser.open(&server.url).await;
        browser.until(READY).await;
        let is_dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
        assert_eq!(browser.run(is_dark).await, scheme == Scheme::Dark);
        browser.run(&axe).await;
        for prepare in [
            "",
            "document.querySelector('[name=view][value=table]').click()",
            "document.querySelector('#rows button').click()",
            "document.getElementById('tab-decisions').click()",
            "document.getElementById('tab-pending').click()",
            "document.getElementById('tab-what-if').click(); \
             document.getElementById('load').click()",
        ] {
            browser.run(prepare).await;
            browser.until("!document.querySelector('[aria-busy=true]')").await;
            let check = "return axe.run(document).then((found) => found.violations.map((it) => \
                         [it.id, it.nodes.map((node) => node.html)]))";
            let violations = browser.run(check).await;
            assert_eq!(violations, json!([]), "{scheme:?} after {prepare:?}");
            let shown = browser.run("return document.body.innerText").await;
            for slip in ["[object ", "undefined", "NaN", "null", "false"] {
                let shown = text(&shown, "the page");
                assert!(!shown.contains(slip), "{slip:?} after {prepare:?}:\n{shown}");
            }
        }
        let name = if scheme == Scheme::Dark { "dark" } else { "light" };
        browser.screenshot(name).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    }
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn a_frame_draws_what_is_in_view_however_many_nodes_there_are() {
    let mut drawn = Vec::new();
    for nodes in [1000, 3000] {
        let (_server, browser) = shown(nodes).await;
        let count = "window.rects = 0; const fill = CanvasRenderingContext2D.prototype.fillRect; \
                     CanvasRenderingContext2D.prototype.fillRect = function (...args) { \
                     window.rects += 1; return fill.apply(this, args); }";
        browser.run(count).await;
        let scroll = "const map = document.getElementById('map'); \
                      return new Promise((done) => { map.scrollTop = 400; \
                      requestAnimationFrame(() => requestAnimationFrame(() => \
                      requestAnimationFrame(() => done([window.rects, map.scrollHeight])))); })";
        let answer = browser.run(scroll).await;
        let [rects, height] = [0, 1].map(|at| answer[at].as_u64().expect("a number"));
        assert!(height > 1000, "{height}");
        assert!(rects > 100, "{rects}");
        drawn.push(rects);
    }
    // Two for a square. Many more nodes, and as many in view.
    assert!(drawn[1] < 2 * drawn[0], "{drawn:?}");
}

#[tokio::test]
#[ignore = "needs chromium, chromedriver and npm"]
async fn a_server_that_has_ended_is_reported() {
    let (mut server, browser) = shown(60).await;
    assert_eq!(server.interrupt().await, Some(130));
    browser.until("document.querySelector('#trouble .failure')").await;
    let trouble = browser.text("#trouble").await;
    assert!(trouble.contains("the dashboard does not answer"), "{trouble}");
    assert!(trouble.contains("start tenon dashboard"), "{trouble}");
    // What was read is still there.
    assert!(browser.text("#totals").await.contains("60"));
}

/// Prints what `docs/src/reference/measurements.md` lists; nothing is judged.
#[tokio::test]
#[ignore = "a measurement: run it alone, on an idle machine"]
async fn measure() {
    for nodes in [1000, 10_000] {
        let (server, browser) = shown(nodes).await;
        let figures = browser
            .run(
                "const map = document.getElementById('map'); \
                 const paint = performance.getEntriesByName('first-contentful-paint')[0]; \
                 const state = performance.getEntriesByType('resource')\
                   .find((it) => it.name.endsWith('/api/state')); \
                 return new Promise((done) => { const frames = []; let last = null; \
                   const step = (now) => { if (last !== null) frames.push(now - last); last = now; \
                     map.scrollTop += 30; \
                     if (frames.length < 300) requestAnimationFrame(step); \
                     else { frames.sort((a, b) => a - b); done({ \
                       firstPaint: Math.round(paint.startTime), \
                       stateRead: Math.round(state.responseEnd), \
                       stateBytes: state.decodedBodySize, \
                       heapMB: Math.round(performance.memory.usedJSHeapSize / 1e5) / 10, \
                       elements: document.querySelectorAll('*').length, \
                       frameMedian: frames[150], frameP95: frames[285], \
                       framesOver20ms: frames.filter((it) => it > 20).length }); } }; \
                   requestAnimationFrame(step); })",
            )
            .await;
        println!("{nodes} nodes: {figures} server: {} MiB", server.memory());
    }
}
