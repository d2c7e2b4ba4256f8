//! A line in parts, and how it is broken where a terminal ends.

/// What a part of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// Begins a part of the plan.
    Heading,
    /// Something that is there afterwards.
    Added,
    /// Something that becomes another.
    Changed,
    /// Something that is gone afterwards.
    Removed,
    /// Something to take note of.
    Mark,
}

/// A line in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Columns before its first part.
    indent: usize,
    /// Columns before what is continued on the next line.
    hang: usize,
    parts: Vec<(Tone, String)>,
}

/// The narrowest room in which a text is broken: where less is left, lines get longer than the
/// terminal.
const LEAST: usize = 20;

impl Line {
    /// An empty line, indented, and further where it is continued.
    pub fn new(indent: usize, hang: usize) -> Self {
        Self { indent, hang, parts: Vec::new() }
    }

    /// A line without parts of its own, indented as it begins.
    pub fn plain(text: &str) -> Self {
        let trimmed = text.trim_start();
        let indent = text.len() - trimmed.len();
        Self::new(indent, indent + 4).with(Tone::Plain, trimmed)
    }

    /// And then this.
    #[must_use]
    pub fn with(mut self, tone: Tone, text: &str) -> Self {
        self.parts.push((tone, text.to_owned()));
        self
    }

    /// What is printed, part by part.
    pub fn parts(&self) -> impl Iterator<Item = (Tone, &str)> {
        self.parts.iter().map(|(tone, text)| (*tone, text.as_str()))
    }

    /// The columns before its first part.
    pub fn indentation(&self) -> String {
        " ".repeat(self.indent)
    }

    /// The line as a plain text.
    pub fn text(&self) -> String {
        let text = self.parts.iter().map(|(_, text)| text.as_str()).collect::<String>();
        format!("{}{text}", self.indentation()).trim_end().to_owned()
    }

    fn columns(&self) -> usize {
        self.indent + self.parts.iter().map(|(_, text)| text.chars().count()).sum::<usize>()
    }

    /// The same in lines of at most so many columns: broken at spaces, and within words that are
    /// too long for a line of their own.
    pub fn wrapped(&self, width: Option<usize>) -> Vec<Self> {
        let Some(width) = width.filter(|width| self.columns() > *width) else {
            return vec![self.clone()];
        };
        let width = width.max(self.hang + LEAST);
        let mut lines = vec![Self::new(self.indent, self.hang)];
        for (tone, text) in self.parts() {
            // Spaces belong to the word before them, so that columns that were filled up stay so.
            for word in text.split_inclusive(' ') {
                place(&mut lines, self.hang, width, tone, word);
            }
        }
        lines
    }
}

fn place(lines: &mut Vec<Line>, hang: usize, width: usize, tone: Tone, word: &str) {
    let mut rest = word.to_owned();
    loop {
        let line = lines.last_mut().expect("there is a first line");
        let room = width.saturating_sub(line.columns());
        let length = rest.trim_end().chars().count();
        if length <= room {
            match line.parts.last_mut() {
                Some((last, text)) if *last == tone => text.push_str(&rest),
                _ => line.parts.push((tone, rest)),
            }
            return;
        }
        let is_fresh = line.parts.iter().all(|(_, text)| text.trim().is_empty());
        if length > width - hang && (is_fresh || room >= LEAST) {
            let cut = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
            let later = rest.split_off(cut);
            line.parts.push((tone, std::mem::replace(&mut rest, later)));
        }
        lines.push(Line::new(hang, hang));
    }
}
