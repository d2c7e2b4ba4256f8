//! The OpenMetrics text format, written while whatever it tells of is walked.
//!
//! A scrape of a large cluster is tens of megabytes long. It is never in memory as a whole: an
//! [`Exposition`] holds one piece, and hands it on when it is large enough ([`Exposition::rest`]),
//! which waits for the scraper. Whoever writes therefore calls `rest` only while it holds no lock.

use std::fmt::Write as _;

/// Pieces are about this large.
const PIECE: usize = 64 << 10;

/// The scraper has gone away, or does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scraper does not read on")]
pub struct Gone;

/// Something that is computed at each scrape.
pub trait Exposed: Send + Sync + std::fmt::Debug {
    /// Writes its families.
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone>;
}

/// What kind of thing a family tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Goes up; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
    /// Quantiles of observations.
    Summary,
}

impl Type {
    /// As the text format names it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Of a counter or a bucket.
    Count(u64),
    /// Anything else.
    Real(f64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Real(value) if value == f64::INFINITY => f.write_str("+Inf"),
            Self::Real(value) if value == f64::NEG_INFINITY => f.write_str("-Inf"),
            // With a point or an exponent: `1.0`, `NaN`, `1e16`.
            Self::Real(value) => write!(f, "{value:?}"),
        }
    }
}

/// Labels of a sample as text, without braces. Reused from sample to sample.
#[derive(Clone, Debug, Default)]
pub struct LabelText(String);

impl LabelText {
    /// Adds a label.
    pub fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
    }

    /// Takes all labels away.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How much there is, for [`Self::truncate`].
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes away what was added since there was only so much.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

/// A scrape that is being written.
pub struct Exposition<'a> {
    text: String,
    sink: &'a mut dyn FnMut(String) -> Result<(), Gone>,
}

impl std::fmt::Debug for Exposition<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exposition").field("piece", &self.text.len()).finish_non_exhaustive()
    }
}

impl<'a> Exposition<'a> {
    /// Hands pieces to `sink`.
    pub fn new(sink: &'a mut dyn FnMut(String) -> Result<(), Gone>) -> Self {
        Self { text: String::new(), sink }
    }

    /// Begins a family; `name` is that of its samples, for counters without `_total`.
    pub fn family(&mut self, name: &str, type_: Type, help: &str) {
        let type_ = type_.as_str();
        self.raw(format_args!("# HELP {name} {help}.\n# TYPE {name} {type_}\n"));
    }

    /// A sample of the family that was begun, its name being the family's with `suffix`.
    pub fn sample(&mut self, name: &str, suffix: &str, labels: &LabelText, value: Number) {
        let LabelText(labels) = labels;
        if labels.is_empty() {
            self.raw(format_args!("{name}{suffix} {value}\n"));
        } else {
            self.raw(format_args!("{name}{suffix}{{{labels}}} {value}\n"));
        }
    }

    /// Text that is in the format already.
    pub fn raw(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes everything");
    }

    /// Hands on what there is, if it is enough for a piece, and waits until the scraper has room
    /// for it. The caller holds no lock.
    pub fn rest(&mut self) -> Result<(), Gone> {
        if self.text.len() < PIECE { Ok(()) } else { self.flush() }
    }

    /// Ends the scrape.
    pub fn finish(mut self) -> Result<(), Gone> {
        self.raw(format_args!("# EOF\n"));
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Gone> {
        // What comes next is about as large.
        let next = String::with_capacity(PIECE + PIECE / 4);
        (self.sink)(std::mem::replace(&mut self.text, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_labels_are_written_as_scrapers_read_them() {
        let mut pieces = String::new();
        let mut sink = |piece: String| {
            pieces.push_str(&piece);
            Ok(())
        };
        let mut out = Exposition::new(&mut sink);
        out.family("a", Type::Gauge, "What it is");
        let mut labels = LabelText::default();
        out.sample("a", "", &labels, Number::Real(1.0));
        labels.push("x", "\"\\\n");
        labels.push("y", "ä");
        out.sample("a", "_total", &labels, Number::Count(3));
        out.sample("a", "", &labels, Number::Real(f64::INFINITY));
        out.finish().unwrap();
        let expected = "# HELP a What it is.\n# TYPE a gauge\na 1.0\na_total{x=\"\\\"\\\\\\n\",y=\"ä\"} 3\n\
            a{x=\"\\\"\\\\\\n\",y=\"ä\"} +Inf\n# EOF\n";
        assert_eq!(pieces, expected);
    }

    #[test]
    fn a_scraper_that_has_gone_away_ends_the_scrape() {
        let mut sink = |_| Err(Gone);
        let mut out = Exposition::new(&mut sink);
        out.raw(format_args!("{}", "x".repeat(PIECE - 1)));
        assert_eq!(out.rest(), Ok(()));
        out.raw(format_args!("x"));
        assert_eq!(out.rest(), Err(Gone));
    }
}
