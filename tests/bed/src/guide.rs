//! Files in the pages of the book: tests and stories use them as a reader does.

/// A file of a page: the code block that begins with its name in a comment.
///
/// # Panics
/// When the page has none with this name.
pub fn file(page: &'static str, name: &str) -> &'static str {
    let begin = format!("# {name}\n");
    let blocks = page.split("```").skip(1).step_by(2);
    let mut texts = blocks.filter_map(|block| Some(block.split_once('\n')?.1));
    let found = texts.find(|text| text.starts_with(&begin));
    found.unwrap_or_else(|| panic!("the page has no {name}"))
}

/// A command of a page, by its beginning.
///
/// # Panics
/// When the page has none that begins so.
pub fn command(page: &'static str, begin: &str) -> &'static str {
    let lines = page.split("```sh\n").skip(1).flat_map(|block| {
        let block = block.split("```").next().unwrap_or_default();
        block.lines()
    });
    let mut commands = lines.filter(|line| line.starts_with(begin));
    commands.next().unwrap_or_else(|| panic!("the page has no command {begin}"))
}
