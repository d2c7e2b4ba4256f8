//! Evaluation, with a budget.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::{Budget, wrong};
use super::parse::{Expr, Macro};
use super::value::{DeviceView, Value};
use super::{EvalError, functions};

/// What is known while an expression is evaluated.
struct Scope<'e> {
    device: &'e Value,
    variables: Vec<(&'e str, Value)>,
    budget: Budget,
}

type Result = std::result::Result<Value, EvalError>;

pub(super) fn evaluate(expr: &Expr, device: &DeviceView) -> Result {
    let mut scope =
        Scope { device: &device.value, variables: Vec::new(), budget: Budget::default() };
    scope.eval(expr)
}

impl<'e> Scope<'e> {
    fn eval(&mut self, expr: &'e Expr) -> Result {
        self.budget.spend(1)?;
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Ident(name) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                Ok(known.map_or(self.device, |(_, value)| value).clone())
            }
            Expr::Field(base, name) => field(&self.eval(base)?, name),
            Expr::Has(base, name) => match self.eval(base)? {
                Value::Map(map) | Value::Domains(map) => Ok(Value::Bool(map.contains_key(name))),
                other => wrong(format!("{} has no fields", other.kind())),
            },
            Expr::Index(base, key) => {
                let (base, key) = (self.eval(base)?, self.eval(key)?);
                index(&base, &key)
            }
            Expr::Call(name, arguments) => {
                let arguments = self.all(arguments)?;
                functions::call(&mut self.budget, name, &arguments)
            }
            Expr::Method(base, name, arguments) => {
                let base = self.eval(base)?;
                let arguments = self.all(arguments)?;
                functions::method(&mut self.budget, &base, name, &arguments)
            }
            Expr::Not(base) => match self.eval(base)? {
                Value::Bool(value) => Ok(Value::Bool(!value)),
                other => wrong(format!("! of {}", other.kind())),
            },
            Expr::Minus(base) => match self.eval(base)? {
                Value::Int(value) => int(value.checked_neg()),
                Value::Double(value) => Ok(Value::Double(-value)),
                other => wrong(format!("- of {}", other.kind())),
            },
            Expr::Binary("&&", left, right) => self.logic(left, right, false),
            Expr::Binary("||", left, right) => self.logic(left, right, true),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                self.binary(operator, &left, &right)
            }
            Expr::Choice(parts) => match self.eval(&parts[0])? {
                Value::Bool(true) => self.eval(&parts[1]),
                Value::Bool(false) => self.eval(&parts[2]),
                other => wrong(format!("{} is no condition", other.kind())),
            },
            Expr::List(list) => Ok(Value::List(self.all(list)?.into())),
            Expr::Map(entries) => {
                let mut map = BTreeMap::new();
                for (key, value) in entries {
                    let Value::Text(key) = self.eval(key)? else {
                        return wrong("keys of maps are strings");
                    };
                    map.insert(key.to_string(), self.eval(value)?);
                }
                Ok(Value::Map(Arc::new(map)))
            }
            Expr::Each(kind, over, variable, body) => {
                let over = self.eval(over)?;
                self.each(*kind, &over, variable, body)
            }
            Expr::Bind(variable, value, body) => {
                let value = self.eval(value)?;
                self.with(variable, value, body)
            }
        }
    }

    fn all(&mut self, list: &'e [Expr]) -> std::result::Result<Vec<Value>, EvalError> {
        list.iter().map(|expr| self.eval(expr)).collect()
    }

    fn with(&mut self, variable: &'e str, value: Value, body: &'e Expr) -> Result {
        self.variables.push((variable, value));
        let result = self.eval(body);
        self.variables.pop();
        result
    }

    /// `&&` and `||`: one side that decides makes an error of the other irrelevant.
    fn logic(&mut self, left: &'e Expr, right: &'e Expr, decides: bool) -> Result {
        let side = |result: Result| match result {
            Err(_) | Ok(Value::Bool(_)) => result,
            Ok(other) => wrong(format!("{} is no condition", other.kind())),
        };
        let left = side(self.eval(left));
        if left == Ok(Value::Bool(decides)) || left == Err(EvalError::Budget) {
            return left;
        }
        let right = side(self.eval(right));
        if right == Ok(Value::Bool(decides)) || left.is_ok() { right } else { left }
    }

    fn binary(&mut self, operator: &str, left: &Value, right: &Value) -> Result {
        self.budget.spend(left.weight().min(right.weight()))?;
        match operator {
            "==" => return Ok(Value::Bool(equal(left, right))),
            "!=" => return Ok(Value::Bool(!equal(left, right))),
            "in" => {
                self.budget.spend(right.weight())?;
                return contains(right, left);
            }
            "<" | "<=" | ">" | ">=" => {
                let Some(order) = order(left, right) else {
                    return wrong(format!("{} {operator} {}", left.kind(), right.kind()));
                };
                return Ok(Value::Bool(match operator {
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                }));
            }
            _ => {}
        }
        match (operator, left, right) {
            ("+", Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
            ("-", Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
            ("*", Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
            ("/", Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
            ("%", Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
            ("+", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
            ("-", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
            ("*", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
            ("/", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
            ("+", Value::Text(a), Value::Text(b)) => {
                self.budget.spend((a.len() + b.len()) / 16)?;
                Ok(Value::Text(format!("{a}{b}").into()))
            }
            ("+", Value::List(a), Value::List(b)) => {
                self.budget.spend(a.len() + b.len())?;
                Ok(Value::List(a.iter().chain(&**b).cloned().collect()))
            }
            _ => wrong(format!("{} {operator} {}", left.kind(), right.kind())),
        }
    }

    fn each(&mut self, kind: Macro, over: &Value, variable: &'e str, body: &'e Expr) -> Result {
        let elements: Vec<Value> = match over {
            Value::List(list) => list.to_vec(),
            Value::Map(map) | Value::Domains(map) => {
                map.keys().map(|key| Value::text(key)).collect()
            }
            other => return wrong(format!("{} has no elements", other.kind())),
        };
        self.budget.spend(elements.len())?;
        let mut made = Vec::new();
        let mut found = 0;
        // As with && and ||, one element that decides makes errors of others irrelevant.
        let mut error = None;
        for element in elements {
            let value = match self.with(variable, element.clone(), body) {
                Err(EvalError::Value(what)) if matches!(kind, Macro::All | Macro::Exists) => {
                    error = Some(what);
                    continue;
                }
                result => result?,
            };
            if kind == Macro::Map {
                made.push(value);
                continue;
            }
            let Value::Bool(holds) = value else {
                return wrong(format!("{} is no condition", value.kind()));
            };
            match kind {
                Macro::All if !holds => return Ok(Value::Bool(false)),
                Macro::Exists if holds => return Ok(Value::Bool(true)),
                Macro::Filter if holds => made.push(element),
                _ => found += usize::from(holds),
            }
        }
        match (kind, error) {
            (Macro::All | Macro::Exists, Some(what)) => wrong(what),
            (Macro::All | Macro::Exists, None) => Ok(Value::Bool(kind == Macro::All)),
            (Macro::ExistsOne, _) => Ok(Value::Bool(found == 1)),
            (Macro::Map | Macro::Filter, _) => Ok(Value::List(made.into())),
        }
    }
}

fn int(value: Option<i64>) -> Result {
    value.map_or_else(|| wrong("an integer is out of range"), |value| Ok(Value::Int(value)))
}

fn field(base: &Value, name: &str) -> Result {
    match base {
        Value::Map(map) => match map.get(name) {
            Some(value) => Ok(value.clone()),
            None => wrong(format!("no such key: {name}")),
        },
        Value::Domains(_) => index(base, &Value::text(name)),
        other => wrong(format!("{} has no field {name}", other.kind())),
    }
}

fn index(base: &Value, key: &Value) -> Result {
    match (base, key) {
        (Value::Map(_), Value::Text(name)) => field(base, name),
        (Value::Domains(domains), Value::Text(name)) => {
            let none = || Value::Map(Arc::new(BTreeMap::new()));
            Ok(domains.get(&**name).cloned().unwrap_or_else(none))
        }
        (Value::List(list), Value::Int(at)) => {
            let found = usize::try_from(*at).ok().and_then(|at| list.get(at));
            found.cloned().map_or_else(|| wrong(format!("no element {at}")), Ok)
        }
        _ => wrong(format!("{} is no index of {}", key.kind(), base.kind())),
    }
}

fn contains(within: &Value, value: &Value) -> Result {
    match (within, value) {
        (Value::List(list), _) => Ok(Value::Bool(list.iter().any(|it| equal(it, value)))),
        (Value::Map(map) | Value::Domains(map), Value::Text(key)) => {
            Ok(Value::Bool(map.contains_key(&**key)))
        }
        _ => wrong(format!("{} in {}", value.kind(), within.kind())),
    }
}

/// Values of different types are not equal; numbers are equal by what they are worth.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => {
            order(a, b) == Some(Ordering::Equal)
        }
        (Value::Quantity(a), Value::Quantity(b)) => a.nanos() == b.nanos(),
        _ => a == b,
    }
}

#[expect(clippy::cast_precision_loss, reason = "as CEL compares integers with doubles")]
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
