//! Text for terminals: broken at spaces to a width, with what users copy left as it is.

/// Lines of an answer.
#[derive(Debug)]
pub(super) struct Page {
    /// Columns of the terminal; `None` never breaks a line.
    width: Option<usize>,
    lines: Vec<String>,
}

impl Page {
    pub(super) fn new(width: Option<usize>) -> Self {
        Self { width, lines: Vec::new() }
    }

    /// A sentence. What does not fit into its first line is indented by two more.
    pub(super) fn say(&mut self, indent: usize, text: &str) {
        let width = self.width.unwrap_or(usize::MAX);
        let mut line = " ".repeat(indent);
        let mut is_empty = true;
        for word in text.split_whitespace() {
            let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
            if !is_empty && length > width {
                let next = " ".repeat(indent + 2);
                self.lines.push(std::mem::replace(&mut line, next));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        if !is_empty {
            self.lines.push(line);
        }
    }

    /// Text to copy: a command or YAML, never broken.
    pub(super) fn copy(&mut self, indent: usize, text: &str) {
        let indent = " ".repeat(indent);
        self.lines.extend(text.lines().map(|line| format!("{indent}{line}").trim_end().to_owned()));
    }

    pub(super) fn blank(&mut self) {
        self.lines.push(String::new());
    }

    pub(super) fn text(self) -> String {
        self.lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_at_spaces_and_copied_text_is_not() {
        let mut page = Page::new(Some(20));
        page.say(2, "one two three four five six");
        page.copy(4, "kubectl get nodeclaims --watch\n  - b");
        assert_eq!(
            page.text(),
            "  one two three four\n    five six\n    kubectl get nodeclaims --watch\n      - b"
        );
        let mut page = Page::new(None);
        page.say(0, &"word ".repeat(100));
        page.say(0, " ");
        assert_eq!(page.text().lines().count(), 1);
    }
}
