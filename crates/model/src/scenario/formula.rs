//! A field that holds an expression, and what the field wants of it.
//!
//! Problem   `buffer: 450Mbit` must be refused with its line, and `0.2 * 450Mbit` is a whole rate.
//! Approach  Parsed once, evaluated per point of a sweep; each getter names the kind it wants.
//! Promises  Quantities are not negative and finite; reals round to the nearest bit, octet,
//!           nanosecond.

use super::error::{Error, Place};
use super::expr::{self, Dim, Expr, Fault, Scope, Value};
use super::yaml::Field;
use weir_units::{Bytes, Rate, Span};

/// An expression with its place.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    expr: Expr,
    text: String,
    inset: Option<u32>,
    pub(crate) place: Place,
    pub(crate) path: String,
}

/// Counts in a scenario are bounded: a world builds as many things.
pub(crate) const MOST: u32 = 10_000;

impl Formula {
    /// Parses the field's text.
    pub(crate) fn read(field: Field<'_>) -> Result<Self, Error> {
        let text = field.text()?;
        let (place, inset) = (field.node.place.clone(), field.node.inset);
        let path = field.path.clone();
        match expr::parse(text) {
            Ok(expr) => Ok(Self { expr, text: text.into(), inset, place, path }),
            Err(fault) => Err(located(fault, text, inset, &place, &path)),
        }
    }

    /// As it is written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// An error about this field.
    pub(crate) fn error(&self, message: impl Into<String>, help: impl Into<String>) -> Error {
        Error::new(&self.place, self.path.clone(), message, help)
    }

    /// The value, whatever it measures, as long as it is not a comparison.
    pub(crate) fn value(&self, scope: &Scope) -> Result<Value, Error> {
        let value = self.eval(scope)?;
        if value.dim == Dim::Truth {
            return Err(self.error(format!("`{}` is a comparison", self.text), "write a number"));
        }
        Ok(value)
    }

    /// A rate; zero is allowed and needs no unit.
    pub(crate) fn rate(&self, scope: &Scope) -> Result<Rate, Error> {
        self.quantity(scope, Dim::Rate, "450Mbit").map(Rate::from_bps_f64)
    }

    /// A rate that is not zero.
    pub(crate) fn positive_rate(&self, scope: &Scope, what: &str) -> Result<Rate, Error> {
        let rate = self.rate(scope)?;
        if rate.is_zero() {
            return Err(self.error(
                format!("{what} has a rate of zero"),
                "write a rate above zero, for instance 450Mbit, or leave the entry out",
            ));
        }
        Ok(rate)
    }

    /// A size in octets.
    pub(crate) fn size(&self, scope: &Scope) -> Result<Bytes, Error> {
        let octets = self.quantity(scope, Dim::Size, "128kB")?;
        Ok(Bytes::new(octets.round() as u64))
    }

    /// A span of time.
    pub(crate) fn span(&self, scope: &Scope) -> Result<Span, Error> {
        self.quantity(scope, Dim::Span, "30s").map(Span::from_secs_f64)
    }

    /// A whole number of things, `least` or more.
    pub(crate) fn count(&self, scope: &Scope, least: u32) -> Result<u32, Error> {
        self.count_to(scope, least, MOST)
    }

    /// The same with another bound.
    pub(crate) fn count_to(&self, scope: &Scope, least: u32, most: u32) -> Result<u32, Error> {
        let number = self.number(scope)?;
        if number.fract() != 0.0 || number < f64::from(least) || number > f64::from(most) {
            return Err(self.error(
                format!("{} is {number}", self.quoted()),
                format!("write a whole number from {least} to {most}; ceil() and floor() round"),
            ));
        }
        Ok(number as u32)
    }

    /// A plain number.
    pub(crate) fn number(&self, scope: &Scope) -> Result<f64, Error> {
        let value = self.eval(scope)?;
        match value.dim {
            Dim::Number | Dim::Multiple => Ok(value.number),
            dim => Err(self.error(
                format!("{} is {dim}, not a plain number", self.quoted()),
                "write a number without a unit",
            )),
        }
    }

    /// Whether the condition holds.
    pub(crate) fn holds(&self, scope: &Scope) -> Result<bool, Error> {
        let value = self.eval(scope)?;
        if value.dim != Dim::Truth {
            let message = format!("{} is {}, not a condition", self.quoted(), value.dim);
            return Err(self.error(message, "write a comparison: senders >= 1"));
        }
        Ok(value.number != 0.0)
    }

    fn quantity(&self, scope: &Scope, wanted: Dim, example: &str) -> Result<f64, Error> {
        let Value { number, dim } = self.eval(scope)?;
        let multiple = dim == Dim::Multiple && wanted != Dim::Span;
        let unitless = dim == Dim::Number;
        if unitless && number != 0.0 {
            let message = format!("{} has no unit: {wanted} is wanted", self.quoted());
            return Err(self.error(message, format!("write a unit: {example}")));
        }
        if dim != wanted && !multiple && !unitless {
            let message = format!("{} is {dim}, not {wanted}", self.quoted());
            return Err(self.error(message, format!("write it as {example}")));
        }
        if !(0.0..=1e18).contains(&number) {
            let message = format!("{} is out of range: {number}", self.quoted());
            return Err(self.error(message, "write a quantity that is not negative"));
        }
        Ok(number)
    }

    fn eval(&self, scope: &Scope) -> Result<Value, Error> {
        let fault = match self.expr.eval(scope) {
            Ok(value) if value.number.is_finite() => return Ok(value),
            Ok(_) => Fault { at: 0, message: "is not finite".into(), help: String::new() },
            Err(fault) => fault,
        };
        Err(located(fault, &self.text, self.inset, &self.place, &self.path))
    }

    fn quoted(&self) -> String {
        format!("`{}`", self.text)
    }
}

/// Moves the place to the character that is at fault, where that character can be pointed at.
fn located(fault: Fault, text: &str, inset: Option<u32>, place: &Place, path: &str) -> Error {
    let offset = u32::try_from(fault.at).unwrap_or(u32::MAX);
    let place = match (place, inset) {
        (Place::File { line, column }, Some(inset)) => {
            Place::File { line: *line, column: column.saturating_add(inset).saturating_add(offset) }
        }
        _ => place.clone(),
    };
    Error::new(&place, path, format!("`{text}`: {}", fault.message), fault.help)
}
