//! What one file imports from its own crate.

use crate::tokens::{Token, tokens};

/// A module and what was read of it.
pub(crate) struct Module {
    /// Its path within the crate; empty for the root.
    pub(crate) path: Vec<String>,
    /// What stands in its file.
    pub(crate) read: Imports,
}

/// What a file says of other modules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// The first names of paths from the crate's root: `a` for `crate::a::B`, and for `super::a::B`
    /// below the root.
    pub(crate) imported: Vec<String>,
    /// Modules that are compiled for tests only.
    pub(crate) test_modules: Vec<Vec<String>>,
    /// Names that are re-exported, each with the first name of where it is from.
    pub(crate) reexports: Vec<(String, String)>,
}

/// Reads a file of the module `path`.
pub(crate) fn imports(path: &[String], text: &str) -> Imports {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        path: path.to_vec(),
        ends: Vec::new(),
        found: Imports::default(),
    };
    reader.read();
    reader.found
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    /// The module that is being read, with inline modules.
    path: Vec<String>,
    /// How deep in braces each inline module begins.
    ends: Vec<usize>,
    found: Imports,
}

impl Reader<'_> {
    fn read(&mut self) {
        let mut depth = 0_usize;
        let mut is_public = false;
        while let Some(token) = self.tokens.get(self.at) {
            if self.is_for_tests() {
                self.skip_item();
                continue;
            }
            self.at += 1;
            match token {
                Token::Word(word) => match word.as_str() {
                    "pub" => {
                        is_public = true;
                        continue;
                    }
                    "mod" if self.peek(1).is_some_and(|next| next.is('{')) => {
                        if let Some(Token::Word(name)) = self.peek(0) {
                            self.path.push(name.clone());
                            self.ends.push(depth);
                        }
                    }
                    "use" => {
                        self.tree(&mut Vec::new(), is_public);
                    }
                    "crate" | "super" | "self" if self.peek(0) == Some(&Token::Path) => {
                        self.at -= 1;
                        let path = self.plain_path();
                        self.import(&path);
                    }
                    _ => {}
                },
                // `pub(crate) use`
                Token::Sign('(' | ')') if is_public => continue,
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => {
                    depth = depth.saturating_sub(1);
                    if self.ends.last() == Some(&depth) {
                        self.ends.pop();
                        self.path.pop();
                    }
                }
                _ => {}
            }
            is_public = is_public
                && matches!(token, Token::Word(word) if matches!(word.as_str(), "crate" | "super" | "self" | "in"));
        }
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead)
    }

    /// Here begins `#[cfg(test)]`.
    fn is_for_tests(&self) -> bool {
        let Some(ahead) = self.tokens.get(self.at..self.at + 7) else { return false };
        ahead[0].is('#')
            && ahead[1].is('[')
            && ahead[2].is_word("cfg")
            && ahead[3].is('(')
            && ahead[4].is_word("test")
            && ahead[5].is(')')
            && ahead[6].is(']')
    }

    /// Skips an item with its attributes; a module in a file of its own is noted.
    fn skip_item(&mut self) {
        let mut name = None;
        while self.peek(0).is_some_and(|token| token.is('#')) {
            self.at += 1;
            self.skip_group('[', ']');
        }
        while let Some(token) = self.peek(0) {
            if token.is('{') {
                self.skip_group('{', '}');
                return;
            }
            if token.is('(') {
                self.skip_group('(', ')');
                continue;
            }
            if token.is(';') {
                if let Some(name) = name {
                    self.found.test_modules.push([self.path.clone(), vec![name]].concat());
                }
                self.at += 1;
                return;
            }
            if token.is_word("mod") {
                name = match self.peek(1) {
                    Some(Token::Word(name)) => Some(name.clone()),
                    _ => None,
                };
            }
            self.at += 1;
        }
    }

    fn skip_group(&mut self, open: char, close: char) {
        let mut depth = 0_usize;
        while self.at < self.tokens.len() {
            self.at += 1;
            if token_is(self.tokens, self.at - 1, open) {
                depth += 1;
            } else if token_is(self.tokens, self.at - 1, close) {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return;
                }
            }
        }
    }

    /// `a::b::c`
    fn plain_path(&mut self) -> Vec<String> {
        let mut path = Vec::new();
        while let Some(Token::Word(word)) = self.peek(0) {
            path.push(word.clone());
            self.at += 1;
            if self.peek(0) != Some(&Token::Path) {
                break;
            }
            self.at += 1;
        }
        path
    }

    /// The tree of a `use`, up to what ends it.
    fn tree(&mut self, prefix: &mut Vec<String>, is_public: bool) {
        let begun = prefix.len();
        prefix.extend(self.plain_path());
        if self.peek(0).is_some_and(|token| token.is('{')) {
            self.at += 1;
            while self.peek(0).is_some_and(|token| !token.is('}')) {
                self.tree(prefix, is_public);
                if self.peek(0).is_some_and(|token| token.is(',')) {
                    self.at += 1;
                }
            }
            self.at += 1;
        } else {
            let mut name = prefix.last().cloned();
            // `*`, or the new name of an `as` that the path ended at.
            while let Some(token) = self.peek(0)
                && !token.is(',')
                && !token.is('}')
                && !token.is(';')
            {
                if let Token::Word(word) = token {
                    name = Some(word.clone());
                }
                self.at += 1;
            }
            self.import(prefix);
            if is_public
                && let (Some(name), Some(first)) =
                    (name, prefix.iter().find(|word| *word != "self" && *word != "crate"))
            {
                self.found.reexports.push((name, first.clone()));
            }
        }
        prefix.truncate(begun);
    }

    /// Notes the first name below the root of a path that begins with `crate`, `self` or `super`.
    fn import(&mut self, path: &[String]) {
        let mut from = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.path.clone(),
            _ => return,
        };
        for word in path {
            match word.as_str() {
                "crate" | "self" => {}
                "super" => {
                    from.pop();
                }
                name => {
                    from.push(name.to_owned());
                    break;
                }
            }
        }
        if let Some(first) = from.into_iter().next() {
            self.found.imported.push(first);
        }
    }
}

fn token_is(tokens: &[Token], at: usize, sign: char) -> bool {
    tokens.get(at).is_some_and(|token| token.is(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Imports {
        let path = path.split("::").filter(|part| !part.is_empty()).map(str::to_owned);
        imports(&path.collect::<Vec<_>>(), text)
    }

    fn imported(path: &str, text: &str) -> String {
        of(path, text).imported.join(" ")
    }

    #[test]
    fn every_form_of_a_path_is_read() {
        assert_eq!(imported("a", "use crate::b::C;"), "b");
        assert_eq!(imported("a", "pub(crate) use crate::{b::{self, C}, d as e, f::*};"), "b b d f");
        assert_eq!(imported("a::b", "use super::c; use super::super::d::E;"), "a d");
        assert_eq!(imported("a::b", "use self::c::D;"), "a");
        assert_eq!(imported("a", "fn f() -> crate::b::C { super::d::e(self.x) }"), "b d");
        assert_eq!(imported("a", "use std::io; use other::thing;"), "");
    }

    #[test]
    fn an_inline_module_has_a_parent_of_its_own() {
        let text = "mod inner { use super::Thing; use super::super::b::C; } use super::d::E;";
        assert_eq!(imported("a", text), "a b d");
    }

    #[test]
    fn what_is_for_tests_does_not_count() {
        let text = "#[cfg(test)] mod tests { use crate::b::C; } use crate::d::E;";
        assert_eq!(imported("a", text), "d");
        let text =
            "#[cfg(test)]\n#[expect(x, reason = \"y\")]\npub(crate) mod double;\nuse crate::d::E;";
        assert_eq!(imported("a", text), "d");
        assert_eq!(of("a", text).test_modules, [["a", "double"].map(str::to_owned).to_vec()]);
        assert_eq!(
            imported("a", "#[cfg(test)] fn f(x: T) -> crate::b::C { g() } use crate::d::E;"),
            "d"
        );
        assert_eq!(imported("a", "#[cfg(not(test))] use crate::b::C;"), "b");
    }

    #[test]
    fn the_roots_reexports_are_known() {
        let found = of("", "pub use b::{C, d::E as F}; pub use self::g::H; use i::J;").reexports;
        let found = found.iter().map(|(name, top)| format!("{name}={top}")).collect::<Vec<_>>();
        assert_eq!(found, ["C=b", "F=b", "H=g"]);
    }
}
