//! A small XML tree: enough to read moto's answers, change them, and write our own.

use std::fmt;

use quick_xml::Reader;
use quick_xml::events::Event;

/// One element: its name without namespace prefix, its text (of leaves) and its children in order.
/// Attributes are dropped, except `xmlns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Local name.
    pub name: String,
    /// The default namespace, when declared here.
    pub namespace: Option<String>,
    /// Text content, unescaped; empty for elements with children.
    pub text: String,
    /// Children in order.
    pub children: Vec<Self>,
}

/// A body that is not XML.
#[derive(Debug, thiserror::Error)]
#[error("not an XML document: {reason}; it starts with {start:?}")]
pub struct NotXml {
    reason: String,
    start: String,
}

impl Element {
    /// An element with text.
    pub(crate) fn leaf(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), ..Self::default() }
    }

    /// An element with children.
    pub fn node(name: impl Into<String>, children: Vec<Self>) -> Self {
        Self { name: name.into(), children, ..Self::default() }
    }

    /// EC2's lists: `<name><item>…</item>…</name>`.
    pub fn list(name: impl Into<String>, items: impl IntoIterator<Item = Vec<Self>>) -> Self {
        Self::node(name, items.into_iter().map(|children| Self::node("item", children)).collect())
    }

    /// EC2's tag set.
    pub(crate) fn tag_set<'a>(tags: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        Self::list(
            "tagSet",
            tags.into_iter()
                .map(|(key, value)| vec![Self::leaf("key", key), Self::leaf("value", value)]),
        )
    }

    /// Reads a document.
    pub fn parse(document: &str) -> Result<Self, NotXml> {
        let fail = |reason: String| NotXml { reason, start: document.chars().take(80).collect() };
        let mut reader = Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        let mut open: Vec<Self> = Vec::new();
        loop {
            match reader.read_event().map_err(|error| fail(error.to_string()))? {
                Event::Start(start) => {
                    let name = start.local_name().as_ref().to_owned();
                    let namespace = start
                        .try_get_attribute("xmlns")
                        .ok()
                        .flatten()
                        .map(|attribute| attribute.value.into_owned());
                    open.push(Self { name, namespace, ..Self::default() });
                }
                Event::Text(text) => {
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&text);
                    }
                }
                Event::CData(text) => {
                    if let Some(element) = open.last_mut() {
                        element.text.push_str(&text);
                    }
                }
                Event::GeneralRef(reference) => {
                    if let Some(element) = open.last_mut() {
                        if let Ok(Some(character)) = reference.resolve_char_ref() {
                            element.text.push(character);
                        } else if let Some(text) =
                            quick_xml::escape::resolve_predefined_entity(&reference)
                        {
                            element.text.push_str(text);
                        }
                    }
                }
                Event::End(_) => {
                    let mut closed = open
                        .pop()
                        .ok_or_else(|| fail("an end tag without a start tag".to_owned()))?;
                    if !closed.children.is_empty() {
                        closed.text.clear();
                    }
                    match open.last_mut() {
                        Some(parent) => parent.children.push(closed),
                        None => return Ok(closed),
                    }
                }
                Event::Eof => return Err(fail("it ends before its root element does".to_owned())),
                _ => {}
            }
        }
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The first child of this name, to change it.
    pub(crate) fn child_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// The descendant at a path of names, the first match at each step.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The text of the first child of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }

    /// The items of a list child: `<name><item/>…</name>` of EC2, `<name><member/>…</name>` of IAM.
    pub fn items(&self, name: &str) -> &[Self] {
        self.child(name).map_or(&[], |list| list.children.as_slice())
    }

    /// Sets the text of the first child of this name, adding it at the end when there is none.
    pub fn set(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into();
        match self.child_mut(name) {
            Some(child) => child.text = text,
            None => self.children.push(Self::leaf(name, text)),
        }
    }

    /// Tags of an EC2 `tagSet` child.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.items("tagSet")
            .iter()
            .filter_map(|tag| Some((tag.get("key")?, tag.get("value").unwrap_or_default())))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " xmlns=\"{}\"", escape(namespace))?;
        }
        if self.text.is_empty() && self.children.is_empty() {
            return f.write_str("/>");
        }
        write!(f, ">{}", escape(&self.text))?;
        for child in &self.children {
            write!(f, "{child}")?;
        }
        write!(f, "</{}>", self.name)
    }
}

/// Elements one after the other.
pub(crate) fn render(elements: &[Element]) -> String {
    elements.iter().map(Element::to_string).collect()
}

/// Text with XML's special characters replaced.
pub(crate) fn escape(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}
