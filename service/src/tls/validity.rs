//! Until when a certificate is valid (RFC 5280, section 4.1): all that is read of one here; the rest is rustls'.

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate in DER form expires, in seconds since 1970. None of what is no certificate.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let mut certificate = Reader(Reader(certificate).take(SEQUENCE)?);
    let mut signed = Reader(certificate.take(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.take(VERSION)?;
    }
    // Serial number, algorithm, issuer.
    signed.take(INTEGER)?;
    signed.take(SEQUENCE)?;
    signed.take(SEQUENCE)?;
    let mut validity = Reader(signed.take(SEQUENCE)?);
    validity.take_any()?;
    let (tag, text) = validity.take_any()?;
    seconds(tag, str::from_utf8(text).ok()?)
}

/// Elements of DER, one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.take_any().filter(|(tag, _)| *tag == wanted).map(|(_, contents)| contents)
    }

    fn take_any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.len() > 4 {
                return None;
            }
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }
}

/// Reads `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    Some(days(year, month, day) * 86_400 + part(4)? * 3600 + part(6)? * 60 + part(8)?)
}

/// Days since 1970 of a date of the Gregorian calendar. Years begin in March here, so that a leap day is a year's last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(seconds(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, "240229123456Z"), Some(1_709_210_096));
        assert_eq!(seconds(GENERALIZED_TIME, "40960101000000Z"), Some(67_090_118_400));
        for odd in ["", "Z", "2402291234Z", "24022912345xZ", "240229123456"] {
            assert_eq!(seconds(UTC_TIME, odd), None, "{odd}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for odd in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x02\x30\x00"] {
            assert_eq!(not_after(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn end_of_a_certificate_is_found() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(not_after(certificate.der()), Some(1_927_843_200));
    }
}
