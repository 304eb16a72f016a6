//! Expressions over a scenario's parameters: `min(450Mbit, 9Gbit / senders)`.
//!
//! Problem   A floor of 1/N of a link is written for every N of a sweep, and 10Mbit + 3ms is
//!           nonsense.
//! Approach  Recursive descent over the text; a value carries what it measures, and operators check
//!           it.
//! Promises  Errors give the column. Depth is bounded; nothing panics on any text.
//! Not here  Rounding to whole bits: see `formula`.

use super::error::did_you_mean;
use crate::text::{self, Quantity};
use std::fmt;

/// What a number measures. The bases are bit/s, octets and seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dim {
    /// A plain number.
    Number,
    /// `450M`: a number, a rate or a size, whichever is asked for.
    Multiple,
    Rate,
    Size,
    Span,
    /// The outcome of a comparison.
    Truth,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number | Self::Multiple => "a plain number",
            Self::Rate => "a rate",
            Self::Size => "a size",
            Self::Span => "a time",
            Self::Truth => "a comparison",
        })
    }
}

/// A number that knows what it measures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Value {
    pub(crate) number: f64,
    pub(crate) dim: Dim,
}

/// What is wrong with an expression, and at which character (from 0).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) message: String,
    pub(crate) help: String,
}

fn fault<T>(at: usize, message: impl Into<String>, help: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, message: message.into(), help: help.into() })
}

/// Names and their values.
#[derive(Clone, Default, Debug)]
pub(crate) struct Scope(Vec<(String, Value)>);

impl Scope {
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.push((name.into(), value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }
}

/// A parsed expression.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Expr {
    at: usize,
    kind: Kind,
}

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Literal(Value),
    Name(String),
    Negative(Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Call(&'static str, Vec<Expr>),
}

const FUNCTIONS: [&str; 4] = ["min", "max", "ceil", "floor"];
/// Parentheses and signs within each other: more is a mistake, and would exhaust the stack.
const DEPTH: usize = 50;
/// Characters: a chain of operators nests, too.
const LENGTH: usize = 500;
/// Binary operators, loosest first.
const LEVELS: [&[&str]; 5] =
    [&["or"], &["and"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/"]];

/// Whether `text` can be the name of a parameter. `floor` can: a function has a parenthesis.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !["and", "or"].contains(&text)
}

/// Parses a whole expression.
pub(crate) fn parse(text: &str) -> Result<Expr, Fault> {
    let mut parser = Parser { text: text.chars().collect(), at: 0, depth: 0 };
    if parser.text.len() > LENGTH {
        return fault(
            LENGTH,
            format!("more than {LENGTH} characters"),
            "name parts of it in params",
        );
    }
    let expr = parser.level(0)?;
    parser.space();
    match parser.peek() {
        None => Ok(expr),
        Some(c) => fault(
            parser.at,
            format!("unexpected `{c}`"),
            "an expression is like min(450Mbit, 9Gbit / senders)",
        ),
    }
}

struct Parser {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
        self.text[start..self.at].iter().collect()
    }

    /// Skips `token` if it comes next; a word must end where it ends.
    fn accept(&mut self, token: &str) -> bool {
        self.space();
        let end = self.at + token.chars().count();
        let here = self.text.get(self.at..end).is_some_and(|t| t.iter().copied().eq(token.chars()));
        let word = token.starts_with(char::is_alphabetic);
        let goes_on = self.text.get(end).is_some_and(|c| c.is_alphanumeric() || *c == '_');
        if here && !(word && goes_on) {
            self.at = end;
            return true;
        }
        false
    }

    fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.accept(token) {
            return Ok(());
        }
        fault(self.at, format!("`{token}` is missing here"), "")
    }

    fn level(&mut self, level: usize) -> Result<Expr, Fault> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        loop {
            self.space();
            let at = self.at;
            let Some(operator) = operators.iter().copied().find(|o| self.accept(o)) else {
                return Ok(left);
            };
            let right = self.level(level + 1)?;
            left = Expr { at, kind: Kind::Binary(operator, Box::new(left), Box::new(right)) };
        }
    }

    fn unary(&mut self) -> Result<Expr, Fault> {
        self.space();
        let at = self.at;
        self.depth += 1;
        if self.depth > DEPTH {
            return fault(at, "too deeply nested", "");
        }
        let expr = if self.accept("-") {
            Expr { at, kind: Kind::Negative(Box::new(self.unary()?)) }
        } else if self.accept("(") {
            let inner = self.level(0)?;
            self.expect(")")?;
            inner
        } else {
            self.atom()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn atom(&mut self) -> Result<Expr, Fault> {
        let at = self.at;
        match self.peek() {
            Some(c) if c.is_ascii_digit() || c == '.' => self.literal(),
            Some(c) if c.is_alphabetic() || c == '_' => {
                let name = self.take(|c| c.is_alphanumeric() || c == '_');
                if !self.accept("(") {
                    return Ok(Expr { at, kind: Kind::Name(name) });
                }
                let Some(function) = FUNCTIONS.iter().copied().find(|f| *f == name) else {
                    let help = did_you_mean(&name, FUNCTIONS);
                    return fault(at, format!("`{name}` is not a function"), help);
                };
                let mut arguments = vec![self.level(0)?];
                while self.accept(",") {
                    arguments.push(self.level(0)?);
                }
                self.expect(")")?;
                Ok(Expr { at, kind: Kind::Call(function, arguments) })
            }
            Some(c) => fault(at, format!("unexpected `{c}`"), "a number or a name belongs here"),
            None => fault(at, "ends too early", "a number or a name belongs here"),
        }
    }

    fn literal(&mut self) -> Result<Expr, Fault> {
        let at = self.at;
        let digits = self.take(|c| c.is_ascii_digit() || c == '.');
        let Ok(number) = digits.parse::<f64>() else {
            return fault(at, format!("`{digits}` is not a number"), "");
        };
        let name_at = self.at;
        let name = self.take(char::is_alphabetic);
        let (factor, dim) = if name.is_empty() {
            (1.0, Dim::Number)
        } else {
            match text::unit(&name) {
                Ok((Quantity::Rate, factor)) => (factor as f64, Dim::Rate),
                Ok((Quantity::Size, factor)) => (factor as f64, Dim::Size),
                Ok((Quantity::Multiple, factor)) => (factor as f64, Dim::Multiple),
                Ok((Quantity::Span, factor)) => (factor as f64 / 1e9, Dim::Span),
                Err(message) => return fault(name_at, message, ""),
            }
        };
        Ok(Expr { at, kind: Kind::Literal(Value { number: number * factor, dim }) })
    }
}

impl Expr {
    /// Its value where names mean what `scope` says.
    pub(crate) fn eval(&self, scope: &Scope) -> Result<Value, Fault> {
        match &self.kind {
            Kind::Literal(value) => Ok(*value),
            Kind::Name(name) => scope.get(name).map_or_else(
                || {
                    let help = did_you_mean(name, scope.0.iter().map(|(n, _)| n.as_str()));
                    fault(self.at, format!("`{name}` is not a parameter"), help)
                },
                Ok,
            ),
            Kind::Negative(inner) => {
                let value = inner.eval(scope)?;
                Ok(Value { number: -value.number, dim: value.dim })
            }
            Kind::Call(function, arguments) => self.call(function, arguments, scope),
            Kind::Binary(operator, left, right) => {
                let (a, b) = (left.eval(scope)?, right.eval(scope)?);
                self.binary(operator, a, b, right)
            }
        }
    }

    fn call(&self, function: &str, arguments: &[Expr], scope: &Scope) -> Result<Value, Fault> {
        let first = arguments[0].eval(scope)?;
        if matches!(function, "ceil" | "floor") {
            if arguments.len() != 1 || first.dim != Dim::Number {
                let message = format!("{function}() takes one plain number");
                return fault(self.at, message, "divide by a quantity first");
            }
            let whole = if function == "ceil" { first.number.ceil() } else { first.number.floor() };
            return Ok(Value { number: whole, dim: Dim::Number });
        }
        arguments[1..].iter().try_fold(first, |best, argument| {
            let next = argument.eval(scope)?;
            let dim = common(best.dim, next.dim).filter(|dim| *dim != Dim::Truth);
            let Some(dim) = dim else {
                let message = format!("{function}() of {} and {}", best.dim, next.dim);
                return fault(argument.at, message, "both must measure the same");
            };
            let (a, b) = (best.number, next.number);
            Ok(Value { number: if function == "min" { a.min(b) } else { a.max(b) }, dim })
        })
    }

    fn binary(&self, operator: &str, a: Value, b: Value, right: &Expr) -> Result<Value, Fault> {
        let nonsense = || fault(self.at, format!("{} {operator} {}", a.dim, b.dim), MEASURES);
        let (x, y) = (a.number, b.number);
        let truth = |t: bool| Ok(Value { number: f64::from(u8::from(t)), dim: Dim::Truth });
        match operator {
            "or" | "and" if a.dim != Dim::Truth || b.dim != Dim::Truth => nonsense(),
            "or" => truth(x != 0.0 || y != 0.0),
            "and" => truth(x != 0.0 && y != 0.0),
            "*" => {
                product(a.dim, b.dim).map_or_else(nonsense, |dim| Ok(Value { number: x * y, dim }))
            }
            "/" if y == 0.0 => {
                let help = "keep the divisor above zero: max(senders, 1)";
                fault(right.at, "division by zero", help)
            }
            "/" => {
                quotient(a.dim, b.dim).map_or_else(nonsense, |dim| Ok(Value { number: x / y, dim }))
            }
            _ => match common(a.dim, b.dim).filter(|dim| *dim != Dim::Truth) {
                None => nonsense(),
                Some(dim) if operator == "+" => Ok(Value { number: x + y, dim }),
                Some(dim) if operator == "-" => Ok(Value { number: x - y, dim }),
                Some(_) => truth(match operator {
                    "==" => x == y,
                    "!=" => x != y,
                    "<=" => x <= y,
                    ">=" => x >= y,
                    "<" => x < y,
                    _ => x > y,
                }),
            },
        }
    }
}

const MEASURES: &str = "quantities of the same kind are added and compared; a quantity is \
                        multiplied with and divided by plain numbers";

/// What two quantities measure that are added or compared.
fn common(a: Dim, b: Dim) -> Option<Dim> {
    match (a, b) {
        _ if a == b => Some(a),
        (Dim::Multiple, Dim::Number | Dim::Rate | Dim::Size) => Some(b),
        (Dim::Number | Dim::Rate | Dim::Size, Dim::Multiple) => Some(a),
        _ => None,
    }
}

fn product(a: Dim, b: Dim) -> Option<Dim> {
    match (a, b) {
        (Dim::Truth, _) | (_, Dim::Truth) => None,
        (Dim::Number, other) | (other, Dim::Number) => Some(other),
        _ => None,
    }
}

fn quotient(a: Dim, b: Dim) -> Option<Dim> {
    match (a, b) {
        (Dim::Truth, _) | (_, Dim::Truth) => None,
        (_, Dim::Number) => Some(a),
        _ => common(a, b).map(|_| Dim::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.set("senders", Value { number: 30.0, dim: Dim::Number });
        scope.set("core", Value { number: 1e9, dim: Dim::Rate });
        scope
    }

    fn value(text: &str) -> (f64, Dim) {
        let value = parse(text).unwrap().eval(&scope()).unwrap();
        (value.number, value.dim)
    }

    fn wrong(text: &str) -> (usize, String) {
        let fault = parse(text).and_then(|e| e.eval(&scope())).unwrap_err();
        (fault.at, fault.message)
    }

    #[test]
    fn quantities_are_divided_by_numbers_and_compared_with_their_like() {
        assert_eq!(value("min(450Mbit, 9Gbit / senders)"), (300e6, Dim::Rate));
        assert_eq!(value("max(450M, core)"), (1e9, Dim::Rate));
        assert_eq!(value("0.45 * core - 50Mbit"), (400e6, Dim::Rate));
        assert_eq!(value("900Mbit / ceil(senders / 7)"), (180e6, Dim::Rate));
        assert_eq!(value("core / 100M"), (10.0, Dim::Number));
        assert_eq!(value("15ms"), (0.015, Dim::Span));
        assert_eq!(value("2 + 3 * (4 - -1)"), (17.0, Dim::Number));
        assert_eq!(value("450M"), (450e6, Dim::Multiple));
    }

    #[test]
    fn conditions_compare_and_combine() {
        assert_eq!(value("senders >= 1 and senders < 100"), (1.0, Dim::Truth));
        assert_eq!(value("senders == 0 or core > 2Gbit"), (0.0, Dim::Truth));
    }

    #[test]
    fn a_fault_says_what_and_at_which_column() {
        assert_eq!(wrong("10Mbit + 3ms"), (7, "a rate + a time".into()));
        assert_eq!(wrong("9Gbit / (senders - 30)"), (17, "division by zero".into()));
        assert_eq!(wrong("9Gbit / sender"), (8, "`sender` is not a parameter".into()));
        assert_eq!(wrong("min(1, 2"), (8, "`)` is missing here".into()));
        assert_eq!(wrong("mim(1, 2)"), (0, "`mim` is not a function".into()));
        assert_eq!(wrong("1 +"), (3, "ends too early".into()));
        assert_eq!(wrong("1 2"), (2, "unexpected `2`".into()));
        assert_eq!(wrong("ceil(1Mbit)").1, "ceil() takes one plain number");
        assert_eq!(wrong("min(1Mbit, 3)"), (11, "min() of a rate and a plain number".into()));
        assert!(wrong("450Mbps").1.contains("octets to tc"));
        assert_eq!(wrong(&"(".repeat(100)).1, "too deeply nested");
        assert_eq!(wrong(&"1+".repeat(300)).1, "more than 500 characters");
        assert_eq!(wrong(&"1+".repeat(300)).1, "more than 500 characters");
    }

    #[test]
    fn a_misspelt_parameter_is_recognised() {
        let fault = parse("sender + 1").unwrap().eval(&scope()).unwrap_err();
        assert_eq!(fault.help, "did you mean `senders`? Known here: senders, core");
    }

    proptest! {
        #[test]
        fn any_text_is_an_answer_not_a_panic(text in "[-+*/()<>=! a-z0-9.,MGbit]{0,60}") {
            let _ = parse(&text).and_then(|e| e.eval(&scope()));
        }
    }
}
