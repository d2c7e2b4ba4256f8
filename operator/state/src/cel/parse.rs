//! From tokens to an expression.

use super::functions;
use super::lex::{Token, tokens};
use super::value::Value;
use super::{CelError, Reads};

/// How deep expressions may be nested.
pub(super) const DEEPEST: usize = 64;

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Literal(Value),
    Ident(String),
    /// `base.name`
    Field(Box<Self>, String),
    /// `base[key]`
    Index(Box<Self>, Box<Self>),
    /// `has(base.name)`
    Has(Box<Self>, String),
    /// `name(arguments)`
    Call(String, Vec<Self>),
    /// `base.name(arguments)`
    Method(Box<Self>, String, Vec<Self>),
    Not(Box<Self>),
    Minus(Box<Self>),
    Binary(&'static str, Box<Self>, Box<Self>),
    /// Condition, then, else.
    Choice(Box<[Self; 3]>),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// `over.all(variable, body)` and its like.
    Each(Macro, Box<Self>, String, Box<Self>),
    /// `cel.bind(variable, value, body)`
    Bind(String, Box<Self>, Box<Self>),
}

/// The macros over lists and maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    next: usize,
    /// How deep the parser itself is.
    depth: usize,
}

/// An expression, and how deep it is.
type Deep = (Expr, usize);

pub(super) fn parse(text: &str) -> Result<Expr, CelError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let (expr, _) = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected()),
    }
}

/// Binary operators by how tightly they bind, the loosest first.
static BINARY: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];

/// The depth of what stands around parts of these depths. What walks an expression later goes as
/// deep.
fn around(depths: &[usize]) -> Result<usize, CelError> {
    let depth = depths.iter().max().map_or(1, |deepest| deepest + 1);
    if depth > DEEPEST { Err(CelError::TooDeep) } else { Ok(depth) }
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].0.clone();
        // The last token is the end, which is never passed.
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn unexpected(&self) -> CelError {
        let what = match self.peek() {
            Token::End => "unexpected end".to_owned(),
            Token::Sign(sign) => format!("unexpected `{sign}`"),
            Token::Ident(name) => format!("unexpected `{name}`"),
            _ => "unexpected literal".to_owned(),
        };
        CelError::Syntax { what, at: self.at() }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(it) if *it == sign);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), CelError> {
        if self.takes(sign) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expr(&mut self) -> Result<Deep, CelError> {
        self.deeper(|parser| {
            let (condition, first) = parser.binary(0)?;
            if !parser.takes("?") {
                return Ok((condition, first));
            }
            let (then, second) = parser.binary(0)?;
            parser.expect(":")?;
            let (otherwise, third) = parser.expr()?;
            let depth = around(&[first, second, third])?;
            Ok((Expr::Choice(Box::new([condition, then, otherwise])), depth))
        })
    }

    fn deeper(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<Deep, CelError>,
    ) -> Result<Deep, CelError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(CelError::TooDeep);
        }
        let expr = parse(self);
        self.depth -= 1;
        expr
    }

    fn binary(&mut self, level: usize) -> Result<Deep, CelError> {
        let Some(operators) = BINARY.get(level) else { return self.unary() };
        let (mut left, mut depth) = self.binary(level + 1)?;
        loop {
            let found = match self.peek() {
                Token::Sign(sign) => operators.iter().copied().find(|it| it == sign),
                Token::Ident(name) if name == "in" => {
                    operators.iter().copied().find(|it| *it == "in")
                }
                _ => None,
            };
            let Some(operator) = found else { return Ok((left, depth)) };
            self.advance();
            let (right, other) = self.binary(level + 1)?;
            depth = around(&[depth, other])?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Deep, CelError> {
        let negates = self.takes("!");
        if negates || self.takes("-") {
            return self.deeper(|parser| {
                let (base, depth) = parser.unary()?;
                let base = Box::new(base);
                let expr = if negates { Expr::Not(base) } else { Expr::Minus(base) };
                Ok((expr, around(&[depth])?))
            });
        }
        let (mut expr, mut depth) = self.primary()?;
        loop {
            if self.takes("[") {
                let (key, other) = self.expr()?;
                self.expect("]")?;
                depth = around(&[depth, other])?;
                expr = Expr::Index(Box::new(expr), Box::new(key));
            } else if self.takes(".") {
                let Token::Ident(name) = self.peek().clone() else {
                    return Err(self.unexpected());
                };
                self.advance();
                if self.takes("(") {
                    let (arguments, other) = self.list(")")?;
                    depth = around(&[depth, other])?;
                    expr = method(expr, &name, arguments);
                } else {
                    depth = around(&[depth])?;
                    expr = Expr::Field(Box::new(expr), name);
                }
            } else {
                return Ok((expr, depth));
            }
        }
    }

    fn primary(&mut self) -> Result<Deep, CelError> {
        let start = self.next;
        let literal = |value| Ok((Expr::Literal(value), 1));
        match self.advance() {
            Token::Int(value) => literal(Value::Int(value)),
            Token::Double(value) => literal(Value::Double(value)),
            Token::Text(value) => literal(Value::text(&value)),
            Token::Sign("(") => {
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Sign("[") => {
                let (list, depth) = self.list("]")?;
                Ok((Expr::List(list), around(&[depth])?))
            }
            Token::Sign("{") => self.map(),
            Token::Ident(name) => match name.as_str() {
                "true" => literal(Value::Bool(true)),
                "false" => literal(Value::Bool(false)),
                "null" => literal(Value::Null),
                "has" if self.takes("(") => {
                    let at = self.at();
                    let argument = self.expr()?;
                    self.expect(")")?;
                    match argument {
                        (Expr::Field(base, name), depth) => Ok((Expr::Has(base, name), depth)),
                        _ => Err(CelError::Syntax { what: "has() takes a field".to_owned(), at }),
                    }
                }
                _ if self.takes("(") => {
                    let (arguments, depth) = self.list(")")?;
                    Ok((Expr::Call(name, arguments), around(&[depth])?))
                }
                _ => Ok((Expr::Ident(name), 1)),
            },
            _ => {
                self.next = start;
                Err(self.unexpected())
            }
        }
    }

    fn map(&mut self) -> Result<Deep, CelError> {
        let mut entries = Vec::new();
        let mut deepest = 0;
        while !self.takes("}") {
            let (key, first) = self.expr()?;
            self.expect(":")?;
            let (value, second) = self.expr()?;
            deepest = deepest.max(first).max(second);
            entries.push((key, value));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok((Expr::Map(entries), around(&[deepest])?))
    }

    /// Expressions up to a bracket, and how deep the deepest is.
    fn list(&mut self, end: &str) -> Result<(Vec<Expr>, usize), CelError> {
        let mut list = Vec::new();
        let mut deepest = 0;
        while !self.takes(end) {
            let (expr, depth) = self.expr()?;
            deepest = deepest.max(depth);
            list.push(expr);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok((list, deepest))
    }
}

/// A method, or the macro that is written like one.
fn method(base: Expr, name: &str, mut arguments: Vec<Expr>) -> Expr {
    let kind = match name {
        "all" => Some(Macro::All),
        "exists" => Some(Macro::Exists),
        "exists_one" | "existsOne" => Some(Macro::ExistsOne),
        "map" => Some(Macro::Map),
        "filter" => Some(Macro::Filter),
        _ => None,
    };
    if let (Some(kind), [Expr::Ident(_), _]) = (kind, arguments.as_slice()) {
        let body = Box::new(arguments.remove(1));
        if let Expr::Ident(variable) = arguments.remove(0) {
            return Expr::Each(kind, Box::new(base), variable, body);
        }
    }
    let cel = matches!(&base, Expr::Ident(base) if base == "cel");
    if let (true, "bind", [Expr::Ident(variable), _, _]) = (cel, name, arguments.as_slice()) {
        let variable = variable.clone();
        let body = Box::new(arguments.remove(2));
        return Expr::Bind(variable, Box::new(arguments.remove(1)), body);
    }
    Expr::Method(Box::new(base), name.to_owned(), arguments)
}

impl Expr {
    /// Whether all variables and functions are known. Notes what is read of the device.
    pub(super) fn check<'e>(
        &'e self,
        variables: &mut Vec<&'e str>,
        reads: &mut Reads,
    ) -> Result<(), CelError> {
        let arity = |known: bool, name: &str| {
            if known { Ok(()) } else { Err(CelError::Function(name.to_owned())) }
        };
        match self {
            Self::Literal(_) => Ok(()),
            Self::Ident(name) => {
                let known = variables.contains(&name.as_str());
                if known { Ok(()) } else { Err(CelError::Variable(name.clone())) }
            }
            Self::Field(base, name) | Self::Has(base, name) => {
                reads.names.insert(name.clone());
                base.check(variables, reads)
            }
            Self::Index(base, key) => {
                match &**key {
                    Self::Literal(Value::Text(name)) => {
                        reads.names.insert(name.to_string());
                    }
                    _ => reads.all = true,
                }
                base.check(variables, reads)?;
                key.check_whole(variables, reads)
            }
            Self::Call(name, arguments) => {
                arity(functions::is_function(name, arguments.len()), name)?;
                arguments.iter().try_for_each(|it| it.check_whole(variables, reads))
            }
            Self::Method(base, name, arguments) => {
                arity(functions::is_method(name, arguments.len()), name)?;
                base.check_whole(variables, reads)?;
                arguments.iter().try_for_each(|it| it.check_whole(variables, reads))
            }
            Self::Not(base) | Self::Minus(base) => base.check_whole(variables, reads),
            Self::Binary(_, left, right) => {
                left.check_whole(variables, reads)?;
                right.check_whole(variables, reads)
            }
            Self::Choice(parts) => {
                parts.iter().try_for_each(|part| part.check_whole(variables, reads))
            }
            Self::List(list) => list.iter().try_for_each(|it| it.check_whole(variables, reads)),
            Self::Map(entries) => entries.iter().try_for_each(|(key, value)| {
                key.check_whole(variables, reads)?;
                value.check_whole(variables, reads)
            }),
            Self::Each(_, over, variable, body) | Self::Bind(variable, over, body) => {
                over.check_whole(variables, reads)?;
                variables.push(variable);
                let checked = body.check_whole(variables, reads);
                variables.pop();
                checked
            }
        }
    }

    /// The same where the value is used as it is: if it is a part of the device with several
    /// attributes, all of them are read.
    fn check_whole<'e>(
        &'e self,
        variables: &mut Vec<&'e str>,
        reads: &mut Reads,
    ) -> Result<(), CelError> {
        reads.all |= self.is_part();
        self.check(variables, reads)
    }

    /// The device, its attributes or capacities, or those of one domain.
    fn is_part(&self) -> bool {
        match self {
            Self::Ident(name) => name == "device",
            Self::Field(base, name) => {
                matches!(&**base, Self::Ident(_)) && (name == "attributes" || name == "capacity")
            }
            Self::Index(base, _) => base.is_part(),
            _ => false,
        }
    }
}
