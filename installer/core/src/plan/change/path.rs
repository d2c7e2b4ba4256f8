//! Where a field is: `spec.template.spec.containers[name=controller].image`,
//! `metadata.labels["tenon.sh/install-id"]`.

use std::fmt;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// Into a field of a map.
    Field(String),
    /// To the element of a list whose key has this value.
    Element {
        /// The field that tells elements apart.
        key: &'static str,
        /// Its value in this element.
        name: String,
    },
}

/// A path from the top of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Path(pub Vec<Segment>);

impl Path {
    /// The path of a field below.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.with(Segment::Field(name.to_owned()))
    }

    /// The path of an element below.
    #[must_use]
    pub fn element(&self, key: &'static str, name: String) -> Self {
        self.with(Segment::Element { key, name })
    }

    fn with(&self, segment: Segment) -> Self {
        Self(self.0.iter().cloned().chain([segment]).collect())
    }

    /// It leads to an element of a list, and not to a field.
    pub(crate) fn is_element(&self) -> bool {
        matches!(self.0.last(), Some(Segment::Element { .. }))
    }

    /// Whether it leads through these fields first.
    pub fn starts_with(&self, fields: &[&str]) -> bool {
        self.0.len() >= fields.len()
            && self
                .0
                .iter()
                .zip(fields)
                .all(|(segment, field)| matches!(segment, Segment::Field(name) if name == field))
    }
}

fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.chars().all(plain)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if is_plain(name) && i == 0 => f.write_str(name)?,
                Segment::Field(name) if is_plain(name) => write!(f, ".{name}")?,
                Segment::Field(name) => write!(f, "[{name:?}]")?,
                Segment::Element { key, name } => {
                    // Names with slashes and dots read well without quotation marks; what would end
                    // the brackets does not.
                    let reads_well = !name.is_empty()
                        && !name.contains(|c: char| matches!(c, ']' | '"') || c.is_whitespace());
                    if reads_well {
                        write!(f, "[{key}={name}]")?;
                    } else {
                        write!(f, "[{key}={name:?}]")?;
                    }
                }
            }
        }
        Ok(())
    }
}
