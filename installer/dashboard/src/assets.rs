//! The page's files. They are part of the program, so there is nothing to install, and nothing that
//! another version could have left behind.

/// A file of the page.
pub struct Asset {
    /// Of its URL.
    pub path: &'static str,
    /// `Content-Type`
    pub kind: &'static str,
    /// What is in it.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset {
            path: concat!("/", $name),
            kind: SCRIPT,
            text: include_str!(concat!("page/", $name)),
        }
    };
}

/// All files.
pub const ASSETS: [Asset; 15] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    Asset {
        path: "/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("page/style.css"),
    },
    Asset { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    script!("api.js"),
    script!("app.js"),
    script!("details.js"),
    script!("dom.js"),
    script!("fleet.js"),
    script!("map.js"),
    script!("pending.js"),
    script!("strip.js"),
    script!("table.js"),
    script!("timeline.js"),
    script!("whatif.js"),
    script!("words.js"),
];

/// The file at a path.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
