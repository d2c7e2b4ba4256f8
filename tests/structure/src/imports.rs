//! What one file imports from its own crate.

use crate::tokens::{Token, tokens};

/// A module and what was read of it.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its path within the crate; empty for the root.
    pub(crate) path: Vec<String>,
    /// What stands in its file.
    pub(crate) read: Imports,
}

/// What a file says of other modules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Imports {
    /// Paths from the crate's root: `a::B` for `crate::a::B`, and for `super::a::B` below the root.
    pub(crate) imported: Vec<Vec<String>>,
    /// Modules that are compiled for tests only.
    pub(crate) test_modules: Vec<Vec<String>>,
    /// Names that the module uses and modules below it find in it, each with its path from the
    /// crate's root.
    pub(crate) used: Vec<(String, Vec<String>)>,
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

/// A file without its items that are compiled for tests only.
pub(crate) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut reader =
        Reader { tokens, at: 0, path: Vec::new(), ends: Vec::new(), found: Imports::default() };
    let mut kept = Vec::new();
    while let Some(token) = tokens.get(reader.at) {
        if reader.is_for_tests() || reader.is_for_tests_of_all_crates() {
            reader.skip_item();
        } else {
            kept.push(token.clone());
            reader.at += 1;
        }
    }
    kept
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
        while let Some(token) = self.tokens.get(self.at) {
            if self.is_for_tests() {
                self.skip_item();
                continue;
            }
            self.at += 1;
            match token {
                Token::Word(word) => match word.as_str() {
                    "mod" if self.peek(1).is_some_and(|next| next.is('{')) => {
                        if let Some(Token::Word(name)) = self.peek(0) {
                            self.path.push(name.clone());
                            self.ends.push(depth);
                        }
                    }
                    "use" => self.tree(&mut Vec::new()),
                    "crate" | "super" | "self" if self.peek(0) == Some(&Token::Path) => {
                        self.at -= 1;
                        let path = self.plain_path();
                        self.import(&path);
                    }
                    _ => {}
                },
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

    /// Here begins `#[cfg(any(test, …`, as what crates offer to the tests of others has it.
    fn is_for_tests_of_all_crates(&self) -> bool {
        let Some(ahead) = self.tokens.get(self.at..self.at + 7) else { return false };
        ahead[0].is('#')
            && ahead[1].is('[')
            && ahead[2].is_word("cfg")
            && ahead[3].is('(')
            && ahead[4].is_word("any")
            && ahead[5].is('(')
            && ahead[6].is_word("test")
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
    fn tree(&mut self, prefix: &mut Vec<String>) {
        let begun = prefix.len();
        prefix.extend(self.plain_path());
        if self.peek(0).is_some_and(|token| token.is('{')) {
            self.at += 1;
            while self.peek(0).is_some_and(|token| !token.is('}')) {
                self.tree(prefix);
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
            if let Some(name) = name {
                self.found.used.push((name, self.absolute(prefix)));
            }
        }
        prefix.truncate(begun);
    }

    /// Notes a path that begins with `crate`, `self` or `super`.
    fn import(&mut self, path: &[String]) {
        if path.first().is_some_and(|word| matches!(word.as_str(), "crate" | "self" | "super")) {
            let path = self.absolute(path);
            if !path.is_empty() {
                self.found.imported.push(path);
            }
        }
    }

    /// The path from the crate's root. One that begins with another word is taken to begin in the
    /// module itself.
    fn absolute(&self, path: &[String]) -> Vec<String> {
        let is_from_root = path.first().is_some_and(|word| word == "crate");
        let mut from = if is_from_root { Vec::new() } else { self.path.clone() };
        for word in path {
            match word.as_str() {
                "crate" | "self" => {}
                "super" => {
                    from.pop();
                }
                name => from.push(name.to_owned()),
            }
        }
        from
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
        let paths = of(path, text).imported;
        paths.iter().map(|path| path.join("::")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_form_of_a_path_is_read() {
        assert_eq!(imported("a", "use crate::b::C;"), "b::C");
        assert_eq!(
            imported("a", "pub(crate) use crate::{b::{self, C}, d as e, f::*};"),
            "b b::C d f"
        );
        assert_eq!(imported("a::b", "use super::c; use super::super::d::E;"), "a::c d::E");
        assert_eq!(imported("a::b", "use self::c::D;"), "a::b::c::D");
        assert_eq!(imported("a", "fn f() -> crate::b::C { super::d::e(self.x) }"), "b::C d::e");
        assert_eq!(imported("a", "use std::io; use other::thing;"), "");
    }

    #[test]
    fn an_inline_module_has_a_parent_of_its_own() {
        let text = "mod inner { use super::Thing; use super::super::b::C; } use super::d::E;";
        assert_eq!(imported("a", text), "a::Thing b::C d::E");
    }

    #[test]
    fn what_is_for_tests_does_not_count() {
        let text = "#[cfg(test)] mod tests { use crate::b::C; } use crate::d::E;";
        assert_eq!(imported("a", text), "d::E");
        let text =
            "#[cfg(test)]\n#[expect(x, reason = \"y\")]\npub(crate) mod double;\nuse crate::d::E;";
        assert_eq!(imported("a", text), "d::E");
        assert_eq!(of("a", text).test_modules, [["a", "double"].map(str::to_owned).to_vec()]);
        assert_eq!(
            imported("a", "#[cfg(test)] fn f(x: T) -> crate::b::C { g() } use crate::d::E;"),
            "d::E"
        );
        assert_eq!(imported("a", "#[cfg(not(test))] use crate::b::C;"), "b::C");
    }

    #[test]
    fn what_a_module_uses_is_known_by_its_name_there() {
        let found = of("a", "pub use b::{C, d::E as F}; use self::g::H; use super::i::J;").used;
        let found = found.iter().map(|(name, path)| format!("{name}={}", path.join("::")));
        assert_eq!(found.collect::<Vec<_>>(), ["C=a::b::C", "F=a::b::d::E", "H=a::g::H", "J=i::J"]);
    }
}
