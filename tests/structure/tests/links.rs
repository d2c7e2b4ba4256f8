//! Links in the documentation lead to files and headings that exist, and the book lists all of its
//! pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

/// A page as far as links are concerned.
#[derive(Debug, Default, PartialEq)]
struct Page {
    /// Ids of headings, as mdBook and code hosts derive them from the text, and ids in HTML.
    anchors: BTreeSet<String>,
    /// Targets of links and images, by line.
    targets: Vec<(usize, String)>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
        // A label without a definition is a link that was meant, and would be printed as text.
        let mut undefined = |link: pulldown_cmark::BrokenLink<'_>| {
            (link.link_type != LinkType::Shortcut).then(|| ("".into(), "".into()))
        };
        let events = Parser::new_with_broken_link_callback(text, options, Some(&mut undefined));
        let mut heading: Option<String> = None;
        for (event, range) in events.into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.add_heading(&heading.take().unwrap_or_default());
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.targets.push((line, dest_url.into_string()));
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let ids = html.split(" id=\"").skip(1);
                    page.anchors
                        .extend(ids.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }

    fn add_heading(&mut self, text: &str) {
        let id = |c: char| match c {
            '_' | '-' => Some(c),
            c if c.is_whitespace() => Some('-'),
            c => c.is_alphanumeric().then_some(c),
        };
        let id = text.trim().to_lowercase().chars().filter_map(id).collect::<String>();
        let numbered = (1..).map(|n| format!("{id}-{n}"));
        let free =
            std::iter::once(id.clone()).chain(numbered).find(|id| !self.anchors.contains(id));
        self.anchors.extend(free);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The path without `.` and `..`; nothing where it leaves the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            other => normal.push(other),
        }
    }
    Some(normal)
}

/// What is wrong with one link of the page at `from`.
fn problem(
    from: &Path,
    target: &str,
    pages: &BTreeMap<PathBuf, Page>,
    exists: &dyn Fn(&Path) -> bool,
) -> Option<String> {
    if target.is_empty() {
        return Some("no target".to_owned());
    }
    if target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphabetic)) {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.to_owned()
    } else {
        let folder = from.parent().unwrap_or(Path::new(""));
        match normalized(&folder.join(path)) {
            Some(path) => path,
            None => return Some("leaves the repository".to_owned()),
        }
    };
    if from.starts_with(BOOK) && !path.starts_with(BOOK) {
        return Some("leaves the book, which is published alone".to_owned());
    }
    let Some(page) = pages.get(&path) else {
        return (!exists(&path)).then(|| "no such file".to_owned());
    };
    (!anchor.is_empty() && !page.anchors.contains(anchor)).then(|| "no such heading".to_owned())
}

const BOOK: &str = "docs/src";

/// The Markdown files in a folder, by path from the root of the repository.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) {
    for entry in std::fs::read_dir(root().join(folder)).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let path = folder.join(entry.file_name());
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(entry.path()).expect("a page");
            pages.insert(path, Page::read(&text));
        } else if entry.path().is_dir() && path.components().count() > 1 {
            collect(&path, pages);
        }
    }
}

/// The pages in the root of the repository, and those of the book and of the templates.
fn pages() -> BTreeMap<PathBuf, Page> {
    let mut pages = BTreeMap::new();
    for folder in ["", "docs", ".github"] {
        collect(Path::new(folder), &mut pages);
    }
    pages
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let pages = pages();
    let mut report = String::new();
    let mut links = 0;
    for (from, page) in &pages {
        for (line, target) in &page.targets {
            links += 1;
            if let Some(problem) = problem(from, target, &pages, &|path| root().join(path).exists())
            {
                let _ = writeln!(report, "{}:{line}: {target}: {problem}", from.display());
            }
        }
    }
    assert!(links > 100, "only {links} links were found");
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn the_summary_lists_every_page_of_the_book_once() {
    let pages = pages();
    let summary = Path::new(BOOK).join("SUMMARY.md");
    let listed = pages[&summary].targets.iter().map(|(_, target)| Path::new(BOOK).join(target));
    let mut listed = listed.collect::<Vec<_>>();
    listed.sort();
    let book = pages.keys().filter(|path| path.starts_with(BOOK) && **path != summary);
    assert_eq!(listed, book.cloned().collect::<Vec<_>>());
}

#[test]
fn headings_have_the_anchors_that_mdbook_gives_them() {
    let page = Page::read(
        "# `tenon iam`, and *why*\n## Limits\n## Limits\n<a id=\"here\"></a>\n\n```\n# no heading\n```",
    );
    let anchors = ["here", "limits", "limits-1", "tenon-iam-and-why"].map(str::to_owned);
    assert_eq!(page.anchors, anchors.into());
}

#[test]
fn broken_links_are_found() {
    let text = "# A\n[1](#a) [2](#b)\n[3](b.md#c) [4](../../x.md) [5][none]\n`[6](none.md)` [7](e.md)\n\
                [8](https://example.com/none.md) [9](../../../../x.md) [10](b.md)";
    let a = Path::new("docs/src/a.md");
    let pages = BTreeMap::from([
        (a.to_owned(), Page::read(text)),
        (PathBuf::from("docs/src/b.md"), Page::read("# B")),
    ]);
    let found = pages[a].targets.iter().filter_map(|(line, target)| {
        let problem = problem(a, target, &pages, &|path| path == Path::new("docs/src/f.md"))?;
        Some(format!("{line} {target}: {problem}"))
    });
    let expected = [
        "2 #b: no such heading",
        "3 b.md#c: no such heading",
        "3 ../../x.md: leaves the book, which is published alone",
        "3 : no target",
        "4 e.md: no such file",
        "5 ../../../../x.md: leaves the repository",
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
