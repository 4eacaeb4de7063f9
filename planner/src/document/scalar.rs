//! What a plain YAML scalar means.
//!
//! As gopkg.in/yaml.v3, which is what Meshery reads designs with: `yes` and `on` are text, `0644` is octal, `1_000` is a
//! number. Dates stay text, as Kubernetes wants them. Decimal numbers keep their digits.

use std::borrow::Cow;

use super::tree::Value;

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
    let (negative, digits) = match first {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = if negative { "-" } else { "" };
    if let Some(value) = other_base(digits) {
        return Some(Number::As(format!("{sign}{value}")));
    }
    let parts = Decimal::parse(digits)?;
    if first != b'+' && parts.is_json(digits) {
        return Some(Number::AsWritten);
    }
    Some(Number::As(format!("{sign}{}", parts.to_json())))
}

/// Hexadecimal, binary and octal, the last also with nothing but a leading zero.
fn other_base(digits: &str) -> Option<u128> {
    let rest = digits.strip_prefix('0')?;
    let (radix, rest) = match rest.as_bytes().first()? {
        b'x' | b'X' => (16, &rest[1..]),
        b'b' | b'B' => (2, &rest[1..]),
        b'o' | b'O' => (8, &rest[1..]),
        _ => (8, rest),
    };
    if !rest.starts_with(|c: char| c.is_digit(radix)) || rest.ends_with('_') {
        return None;
    }
    // Longer than any number there is: text.
    let digits: String = rest.chars().filter(|&c| c != '_').take(130).collect();
    u128::from_str_radix(&digits, radix).ok()
}

/// A decimal number in its parts; only the first may hold underscores.
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
        let whole_ok =
            whole.bytes().all(|b| b.is_ascii_digit() || b == b'_') && !whole.starts_with('_') && !whole.ends_with('_');
        let exponent_ok = exponent.is_none_or(|exponent| {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !digits.is_empty() && all_digits(digits)
        });
        let some = !whole.is_empty() || fraction.is_some_and(|fraction| !fraction.is_empty());
        (whole_ok && fraction.is_none_or(all_digits) && exponent_ok && some).then_some(Self {
            whole,
            fraction,
            exponent,
        })
    }

    fn is_json(&self, digits: &str) -> bool {
        let plain_whole = !self.whole.is_empty()
            && !self.whole.contains('_')
            && (self.whole.len() == 1 || !self.whole.starts_with('0'));
        plain_whole && self.fraction != Some("") && !digits.is_empty()
    }

    fn to_json(&self) -> String {
        let whole: String = self.whole.chars().filter(|&c| c != '_').collect();
        let whole = whole.trim_start_matches('0');
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
            ("1_", "'1_'"),
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
}
