//! What a plain YAML scalar means.
//!
//! As Go has it (`sigs.k8s.io/yaml`), which is what Meshery and Kubernetes read YAML with: `0644` is octal, `1_000` is a
//! number, and what fits neither 64 bits nor a double is text. Decided otherwise (`docs/yaml.md`): `yes`, `no`, `on` and `off`
//! are text, and decimal numbers keep their digits. Dates stay text, as Kubernetes wants them.

use std::borrow::Cow;

use super::tree::{Node, Value};
use crate::text::Text;

/// Why a scalar has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoJson;

/// The value of a plain scalar without a tag. Infinities and `.nan` have none, as JSON cannot say them.
pub(super) fn plain(text: Cow<'_, str>) -> Result<Value<'_>, NoJson> {
    let value = match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" | ".nan" | ".NaN"
        | ".NAN" => return Err(NoJson),
        other => match number(other) {
            Some(Number::AsWritten) => Value::Number(text),
            Some(Number::As(number)) => Value::Number(Cow::Owned(number)),
            None => Value::String(text),
        },
    };
    Ok(value)
}

/// A number as JSON writes it.
enum Number {
    /// The scalar is one already.
    AsWritten,
    /// It has to be written like this.
    As(String),
}

fn number(text: &str) -> Option<Number> {
    // Cheap, and turns away nearly everything that is text.
    let first = *text.as_bytes().first()?;
    if !matches!(first, b'0'..=b'9' | b'+' | b'-' | b'.') {
        return None;
    }
    if text.contains('_') {
        let text: String = text.chars().filter(|&c| c != '_').collect();
        return match number(&text)? {
            Number::AsWritten => Some(Number::As(text)),
            other => Some(other),
        };
    }
    let (negative, digits) = match first {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = if negative { "-" } else { "" };
    if let Some(value) = other_base(negative, digits) {
        return Some(Number::As(format!("{sign}{value}")));
    }
    let parts = Decimal::parse(digits)?;
    // A double holds less than 310 digits before the point; what is beyond it is text.
    if (parts.exponent.is_some() || digits.len() > 300) && digits.parse::<f64>().is_ok_and(f64::is_infinite) {
        return None;
    }
    if first != b'+' && parts.is_json(digits) {
        return Some(Number::AsWritten);
    }
    Some(Number::As(format!("{sign}{}", parts.to_json())))
}

/// Hexadecimal, binary and octal, the last also with nothing but a leading zero. Only what fits 64 bits is a number: a trace
/// id of 32 hexadecimal digits is text.
fn other_base(negative: bool, digits: &str) -> Option<u64> {
    let rest = digits.strip_prefix('0')?;
    let (radix, rest) = match rest.as_bytes().first()? {
        b'x' | b'X' => (16, &rest[1..]),
        b'b' | b'B' => (2, &rest[1..]),
        b'o' | b'O' => (8, &rest[1..]),
        _ => (8, rest),
    };
    // The standard library would take a sign here.
    if !rest.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let most = if negative { 1 << 63 } else { u64::MAX };
    u64::from_str_radix(rest, radix).ok().filter(|value| *value <= most)
}

/// A decimal number in its parts.
struct Decimal<'a> {
    whole: &'a str,
    fraction: Option<&'a str>,
    exponent: Option<&'a str>,
}

impl<'a> Decimal<'a> {
    fn parse(digits: &'a str) -> Option<Self> {
        let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (digits, None),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let exponent_ok = exponent.is_none_or(|exponent| {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !digits.is_empty() && all_digits(digits)
        });
        let some = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
        (all_digits(whole) && fraction.is_none_or(all_digits) && exponent_ok && some).then_some(Self {
            whole,
            fraction,
            exponent,
        })
    }

    fn is_json(&self, digits: &str) -> bool {
        let plain_whole = !self.whole.is_empty() && (self.whole.len() == 1 || !self.whole.starts_with('0'));
        plain_whole && self.fraction != Some("") && !digits.is_empty()
    }

    fn to_json(&self) -> String {
        let whole = self.whole.trim_start_matches('0');
        let mut out = String::from(if whole.is_empty() { "0" } else { whole });
        if let Some(fraction) = self.fraction.filter(|fraction| !fraction.is_empty()) {
            out.push('.');
            out.push_str(fraction);
        }
        if let Some(exponent) = self.exponent {
            out.push('e');
            out.push_str(exponent);
        }
        out
    }
}

/// How a number or boolean is written in the text it was read from; none when it is not written there as it stands.
pub fn written<'t>(text: Text<'t>, node: &Node<'_>) -> Option<&'t str> {
    let rest = text.as_str().get(node.at.offset()..)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')));
    let written = &rest[..end.unwrap_or(rest.len())];
    plain(written.into()).is_ok_and(|value| value == node.value).then_some(written)
}

/// A key as text, as Go writes numbers and booleans that are keys; none for what can be no key.
pub(super) fn key(value: Value<'_>) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text),
        Value::Bool(value) => Some(Cow::Borrowed(if value { "true" } else { "false" })),
        Value::Number(text) => number_key(text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

fn number_key(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.to_string().into());
    }
    // Go has no keys of 64 bits.
    if text.parse::<u64>().is_ok() {
        return None;
    }
    // A double, of which Go writes the digits of a float.
    let number = text.parse::<f32>().ok()?;
    if number.is_infinite() {
        return Some(Cow::Borrowed(if number > 0.0 { ".inf" } else { "-.inf" }));
    }
    // The shortest digits, and an exponent of two digits below -4 and from 6 on.
    let digits = format!("{number:e}");
    let (mantissa, exponent) = digits.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    Some(if (-4..6).contains(&exponent) {
        number.to_string().into()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs()).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match plain(text.into()) {
            Ok(Value::Null) => "null".into(),
            Ok(Value::Bool(value)) => value.to_string(),
            Ok(Value::Number(text)) => text.into_owned(),
            Ok(Value::String(text)) => format!("'{text}'"),
            _ => "none".into(),
        }
    }

    #[test]
    fn scalars_mean_what_they_mean_to_meshery() {
        let table = [
            ("yes", "'yes'"),
            ("on", "'on'"),
            ("NO", "'NO'"),
            ("y", "'y'"),
            ("true", "true"),
            ("~", "null"),
            ("", "null"),
            ("0", "0"),
            ("-0", "-0"),
            ("42", "42"),
            ("+42", "42"),
            ("1_000", "1000"),
            ("0777", "511"),
            ("0o777", "511"),
            ("-0644", "-420"),
            ("0xB", "11"),
            ("0b11", "3"),
            ("08", "8"),
            ("1.10", "1.10"),
            (".5", "0.5"),
            ("1.", "1"),
            ("1e3", "1e3"),
            ("1.5E+3", "1.5E+3"),
            ("00.5", "0.5"),
            ("18446744073709551616", "18446744073709551616"),
            ("12:30:45", "'12:30:45'"),
            ("2026-11-29", "'2026-11-29'"),
            ("100m", "'100m'"),
            ("1Gi", "'1Gi'"),
            ("1.2.3", "'1.2.3'"),
            ("v1", "'v1'"),
            ("-", "'-'"),
            (".", "'.'"),
            ("..", "'..'"),
            ("1e", "'1e'"),
            ("0x", "'0x'"),
            ("_1", "'_1'"),
            ("1_", "1"),
            ("1__0", "10"),
            ("-_1", "-1"),
            ("0x_1F", "31"),
            ("0_7", "7"),
            ("0_8", "8"),
            (".5_0", "0.50"),
            ("1e400", "'1e400'"),
            ("-1e400", "'-1e400'"),
            ("1e-400", "1e-400"),
            ("0x4bf92f3577b34da6a3ce929d0e0e4736", "'0x4bf92f3577b34da6a3ce929d0e0e4736'"),
            ("0xFFFFFFFFFFFFFFFF", "18446744073709551615"),
            ("0x10000000000000000", "'0x10000000000000000'"),
            ("-0x8000000000000000", "-9223372036854775808"),
            ("-0x8000000000000001", "'-0x8000000000000001'"),
            ("0x+1", "'0x+1'"),
            ("0777777777777777777777777", "777777777777777777777777"),
            ("+", "'+'"),
            ("--1", "'--1'"),
            (".inf", "none"),
            (".NaN", "none"),
            ("10.0.0.1", "'10.0.0.1'"),
            ("0.0.1", "'0.0.1'"),
        ];
        for (text, expected) in table {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn keys_are_written_as_go_writes_them() {
        let table = [
            ("a", "a"),
            ("0x1F", "31"),
            ("010", "8"),
            ("1.0", "1"),
            ("1.1", "1.1"),
            ("1e3", "1000"),
            ("1234567.5", "1.2345675e+06"),
            ("0.00001", "1e-05"),
            ("-0", "0"),
            ("1e39", ".inf"),
            ("-1e39", "-.inf"),
            ("1_000", "1000"),
            ("18446744073709551616", "1.8446744e+19"),
            ("True", "true"),
            ("yes", "yes"),
            ("2001-01-01", "2001-01-01"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text.into()).ok().and_then(key).as_deref(), Some(expected), "{text}");
        }
        for none in ["~", "9223372036854775808", "18446744073709551615"] {
            assert_eq!(plain(none.into()).ok().and_then(key), None, "{none}");
        }
    }
}
