//! Which names the sources of a crate mention, and which of them are its public functions: enough
//! to find functions without a caller and dependencies without a use.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::imports::{imports, without_tests};
use crate::tokens::{Token, tokens};
use crate::{collect, is_below};

/// How often each name is mentioned.
pub type Mentions = BTreeMap<String, usize>;

/// The names in the sources of a crate, except where they are declared as functions.
#[derive(Debug, Default)]
pub struct Names {
    /// Mentioned in what users run: `src` without what is compiled for tests only, and `build.rs`.
    pub product: Mentions,
    /// Mentioned in tests and benchmarks.
    pub tests: Mentions,
    /// Public functions of the product, without those in modules that are called `testing`.
    pub functions: BTreeSet<String>,
}

/// Reads the names in the sources of a crate.
///
/// # Errors
/// A file can't be read.
pub fn names(folder: &Path) -> io::Result<Names> {
    let mut names = Names::default();
    let mut product = Vec::new();
    if folder.join("src").is_dir() {
        collect(&folder.join("src"), &[], &mut product)?;
    }
    let test_modules = product
        .iter()
        .flat_map(|(path, text)| imports(path, text).test_modules)
        .collect::<BTreeSet<_>>();
    // Programs for `cargo fuzz`.
    if folder.join("fuzz_targets").is_dir() {
        collect(&folder.join("fuzz_targets"), &[], &mut product)?;
    }
    if let Ok(build) = std::fs::read_to_string(folder.join("build.rs")) {
        product.push((vec!["build".to_owned()], build));
    }
    for (path, text) in &product {
        let all = tokens(text);
        if is_below(&test_modules, path) {
            names.tests.extend_by(mentions(&all));
            continue;
        }
        let own = without_tests(&all);
        let (all, own_mentions) = (mentions(&all), mentions(&own));
        let of_tests = all.into_iter().map(|(name, times)| {
            let own = own_mentions.get(&name).copied().unwrap_or_default();
            (name, times - own)
        });
        names.tests.extend_by(of_tests.filter(|(_, times)| *times > 0).collect());
        names.product.extend_by(own_mentions);
        if !path.iter().any(|module| module == "testing") {
            names.functions.extend(public_functions(&own));
        }
    }
    for tests in ["tests", "benches"] {
        let mut files = Vec::new();
        // Below the folder `tests` of the workspace lie crates, which are read for themselves.
        if folder.join(tests).is_dir() {
            collect(&folder.join(tests), &[], &mut files)?;
        }
        for (_, text) in files {
            names.tests.extend_by(mentions(&tokens(&text)));
        }
    }
    Ok(names)
}

trait ExtendBy {
    fn extend_by(&mut self, more: Mentions);
}

impl ExtendBy for Mentions {
    fn extend_by(&mut self, more: Mentions) {
        for (name, times) in more {
            *self.entry(name).or_default() += times;
        }
    }
}

/// How often each name is mentioned, without declarations of functions.
fn mentions(tokens: &[Token]) -> Mentions {
    let mut mentions = Mentions::new();
    let mut after_fn = false;
    for token in tokens {
        if let Token::Word(word) = token
            && !after_fn
        {
            *mentions.entry(word.clone()).or_default() += 1;
        }
        after_fn = token.is_word("fn");
    }
    mentions
}

/// The functions that are visible beyond their module.
fn public_functions(tokens: &[Token]) -> impl Iterator<Item = String> {
    tokens.iter().enumerate().filter_map(|(at, token)| {
        let mut ahead = tokens[at + 1..].iter();
        let mut next = ahead.next().filter(|_| token.is_word("pub"))?;
        if next.is('(') {
            next = ahead.by_ref().skip_while(|token| !token.is(')')).nth(1)?;
        }
        while ["async", "const", "unsafe"].iter().any(|word| next.is_word(word)) {
            next = ahead.next()?;
        }
        match (next.is_word("fn"), ahead.next()) {
            (true, Some(Token::Word(name))) => Some(name.clone()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_functions_are_found_however_they_are_declared() {
        let text = "pub fn a() {} pub(crate) fn b() {} pub(in crate::c) const fn d() {} fn e() {}
            pub async fn f() {} pub const G: fn(u8) = a; pub struct H; impl H { pub fn i(&self) {} }";
        let found = public_functions(&tokens(text)).collect::<Vec<_>>();
        assert_eq!(found, ["a", "b", "d", "f", "i"]);
    }

    #[test]
    fn a_declaration_is_no_mention() {
        let found = mentions(&tokens("fn a() { b(\"c\"); b() } // d"));
        assert_eq!(found, Mentions::from([("b".to_owned(), 2), ("fn".to_owned(), 1)]));
    }
}
