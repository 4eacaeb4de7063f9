//! Quantities of Kubernetes by value: `1Gi` is `1024Mi`, `0.5` is `500m`. Pure.
//!
//! The syntax is that of `k8s.io/apimachinery/pkg/api/resource`: a decimal number with a binary suffix, a decimal suffix or an
//! exponent.

/// Exponents beyond this are no quantity that an API server would take.
const LARGEST_EXPONENT: i32 = 1000;

/// A quantity as `mantissa * 2^twos * 5^fives`, in lowest terms: two quantities have the same value if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    mantissa: i128,
    twos: i32,
    fives: i32,
}

impl Quantity {
    /// Reads a quantity. None if the text is not one, or has more digits than fit.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (tens, twos) = scale(suffix)?;
        let mut mantissa = 0_i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa.checked_mul(10)?.checked_add((digit - b'0').into())?;
        }
        let tens = tens - i32::try_from(fraction.len()).ok()?;
        let sign = if text.starts_with('-') { -1 } else { 1 };
        Some(Self { mantissa: sign * mantissa, twos: twos + tens, fives: tens }.in_lowest_terms())
    }

    fn in_lowest_terms(mut self) -> Self {
        if self.mantissa == 0 {
            return Self { mantissa: 0, twos: 0, fives: 0 };
        }
        while self.mantissa % 2 == 0 {
            self.mantissa /= 2;
            self.twos += 1;
        }
        while self.mantissa % 5 == 0 {
            self.mantissa /= 5;
            self.fives += 1;
        }
        self
    }
}

/// The suffix as powers of ten and of two.
fn scale(suffix: &str) -> Option<(i32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-LARGEST_EXPONENT..=LARGEST_EXPONENT).contains(&exponent).then_some((exponent, 0))?
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_value_are_equal() {
        for (a, b) in [
            ("1Gi", "1024Mi"),
            ("0.5", "500m"),
            (".5", "5e-1"),
            ("1", "1000m"),
            ("1k", "1e3"),
            ("1E", "1E18"),
            ("+1.50", "1500m"),
            ("-1", "-1000m"),
            ("0", "-0Gi"),
            ("2.", "2"),
            ("1.5Gi", "1536Mi"),
        ] {
            let (first, second) = (Quantity::parse(a), Quantity::parse(b));
            assert!(first.is_some() && first == second, "{a} {b}: {first:?} {second:?}");
        }
    }

    #[test]
    fn other_values_and_other_texts_are_not() {
        for (a, b) in [("1G", "1Gi"), ("1", "1m"), ("1", "-1"), ("10", "1")] {
            assert_ne!(Quantity::parse(a), Quantity::parse(b), "{a} {b}");
        }
        for text in ["", ".", "-", "1.2.3", "1gi", "1 Gi", "Gi", "1e", "1e99999", "0x10", "one", "1e1e1"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::parse(&"9".repeat(60)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = Quantity::parse(&text);
        }

        #[test]
        fn a_shift_of_the_point_and_of_the_suffix_cancel_out(number in 0_u64..u64::MAX, thousands in 0_usize..3) {
            let suffixes = ["", "k", "M", "G", "T", "P", "E"];
            let plain = Quantity::parse(&format!("{number}{}", suffixes[thousands + 1]));
            prop_assert_eq!(Quantity::parse(&format!("{number}000{}", suffixes[thousands])), plain);
            prop_assert_eq!(Quantity::parse(&format!("{number}.0{}", suffixes[thousands + 1])), plain);
            let binary = Quantity::parse(&format!("{number}Gi"));
            prop_assert_eq!(Quantity::parse(&format!("{}Mi", u128::from(number) * 1024)), binary);
        }
    }
}
