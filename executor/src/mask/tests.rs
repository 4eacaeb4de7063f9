use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn mask(manifest: &Value, text: &str) -> String {
    Secrets::of_value(manifest).mask(text)
}

fn secret(value: &str) -> Value {
    json!({"kind": "Secret", "stringData": {"key": value}})
}

/// Each character of `value` as `escape` spells it.
fn escaped(value: &str, escape: impl Fn(char) -> Option<String>) -> String {
    value.chars().map(|c| escape(c).unwrap_or_else(|| c.to_string())).collect()
}

fn json_string(value: &str) -> String {
    let text = Value::from(value).to_string();
    text[1..text.len() - 1].to_owned()
}

/// As Go's encoding/json writes it: what is special in HTML, and two line ends, are escaped.
fn go_json(value: &str) -> String {
    let special =
        |c: char| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}').then(|| format!("\\u{:04x}", c as u32));
    escaped(&json_string(value), special)
}

/// As Go's %q does.
fn go_quoted(value: &str) -> String {
    escaped(value, |c| match c {
        '"' | '\\' => Some(format!("\\{c}")),
        '\n' => Some("\\n".into()),
        '\t' => Some("\\t".into()),
        '\u{7}' => Some("\\a".into()),
        c if c.is_ascii_control() => Some(format!("\\x{:02x}", c as u32)),
        c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => Some(format!("\\u{:04x}", c as u32)),
        _ => None,
    })
}

fn wrapped(text: &str, width: usize) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(width).map(|line| String::from_utf8_lossy(line)).collect();
    lines.join("\n      ")
}

/// `value` in every spelling that is known, each with its name.
fn spellings(value: &str) -> Vec<(&'static str, String)> {
    let ascii = |c: char| {
        (!c.is_ascii()).then(|| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect())
    };
    let every = |c: char| Some(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect());
    let yaml = |c: char| match c {
        '"' | '\\' => Some(format!("\\{c}")),
        '\n' => Some("\\n".into()),
        c if (c as u32) < 0x100 && !c.is_ascii_graphic() && c != ' ' => Some(format!("\\x{:02x}", c as u32)),
        _ => None,
    };
    let shell = |c: char| (!c.is_ascii_alphanumeric() && c.is_ascii() && !c.is_control()).then(|| format!("\\{c}"));
    let ansi = |c: char| match c {
        '\'' | '\\' => Some(format!("\\{c}")),
        c if c.is_ascii_control() => Some(format!("\\{:03o}", c as u32)),
        _ => None,
    };
    let html = |c: char| match c {
        '&' => Some("&amp;".into()),
        '<' => Some("&lt;".into()),
        '"' => Some("&#34;".into()),
        '\'' => Some("&#x27;".into()),
        _ => None,
    };
    let mut all = vec![
        ("plain", value.to_owned()),
        ("JSON", json_string(value)),
        ("JSON in ASCII", escaped(&json_string(value), ascii)),
        ("JSON, all escaped", escaped(value, every)),
        ("JSON of Go", go_json(value)),
        ("JSON in JSON", json_string(&json_string(value))),
        ("JSON of Go in %q", go_quoted(&go_json(value))),
        ("JSON in JSON in JSON", json_string(&json_string(&go_json(value)))),
        ("%q", go_quoted(value)),
        ("YAML", escaped(value, yaml)),
        ("YAML in single quotes", value.replace('\'', "''")),
        ("CSV", value.replace('"', "\"\"")),
        ("shell", escaped(value, shell)),
        ("shell in single quotes", value.replace('\'', "'\\''")),
        ("shell, ANSI-C", escaped(value, ansi)),
        ("URL", utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()),
        ("form", utf8_percent_encode(value, NON_ALPHANUMERIC).to_string().replace("%20", "+")),
        ("HTML", escaped(value, html)),
        ("hex", hex::encode(value)),
        ("base64", BASE64_STANDARD.encode(value)),
        ("base64 without padding", BASE64_STANDARD_NO_PAD.encode(value)),
        ("base64 for URLs", BASE64_URL_SAFE.encode(value)),
        ("base64 for URLs without padding", BASE64_URL_SAFE_NO_PAD.encode(value)),
        ("base64 in lines", wrapped(&BASE64_STANDARD.encode(value), 16)),
        ("base64 of JSON", BASE64_STANDARD.encode(go_json(value))),
        ("base64 in JSON", go_json(&BASE64_STANDARD.encode(value)).replace('=', "\\u003d")),
    ];
    for (name, before) in [("base64, offset 0", "abc"), ("base64, offset 1", "a"), ("base64, offset 2", "ab")] {
        all.push((name, BASE64_STANDARD.encode(format!("{before} {value} and more"))));
    }
    all
}

/// Values that people have: long enough not to be a word, with everything in them that somebody may quote.
fn value() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        6 => proptest::char::range('!', '~'),
        1 => proptest::sample::select(vec!['&', '<', '>', '"', '\'', '\\', '%', '+', ' ', '/', '=', '\u{2028}', 'ü', '\u{85}', '€', '🔑', '\u{7f}', '\t']),
    ];
    let value =
        proptest::collection::vec(character, 10..40).prop_map(|characters| characters.into_iter().collect::<String>());
    value.prop_map(|value| value.trim().to_owned()).prop_filter("long enough", |value| value.chars().count() >= 10)
}

/// A text without quotes: one that stands beside a value may be read as a part of its spelling, and then goes with it.
fn bare(text: &str) -> String {
    text.replace(['"', '\''], "")
}

/// Whether the beginning or the end of a secret can be read in a text.
fn leaks(masked: &str, spelled: &str) -> bool {
    let parts: Vec<char> = spelled.chars().collect();
    parts.windows(8.min(parts.len())).any(|part| masked.contains(&part.iter().collect::<String>()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn value_is_masked_in_every_spelling(value in value(), given_encoded in any::<bool>()) {
        let manifest = if given_encoded {
            json!({"kind": "Secret", "data": {"key": BASE64_STANDARD.encode(&value)}})
        } else {
            secret(&value)
        };
        let secrets = Secrets::of_value(&manifest);
        for (name, spelled) in spellings(&value) {
            for (before, behind) in [("Invalid value: \"", "\": must be"), ("(", ")"), ("is ", " here")] {
                let masked = secrets.mask(&format!("{before}{spelled}{behind}"));
                prop_assert!(masked.contains(MASK), "{name}: {masked}");
                let is_whole = !name.starts_with("base64, offset");
                let wanted = format!("{before}{MASK}{behind}");
                prop_assert!(!is_whole || bare(&masked) == bare(&wanted), "{name}: {spelled} -> {masked}");
                prop_assert!(!leaks(&masked, &BASE64_STANDARD.encode(&value)) && !leaks(&masked, &value), "{name}: {masked}");
            }
        }
    }

    #[test]
    fn what_is_cut_is_masked_before(value in value(), filler in 1_200usize..2_100) {
        let text = Unmasked::from(format!("{} {value}{}", "¤".repeat(filler), "¤".repeat(4_000)));
        let said = Secrets::of_value(&secret(&value)).render(&text);
        prop_assert!(said.len() <= LONGEST + '…'.len_utf8());
        // Nothing is left but the filler, and what the cut left of a mask.
        let rest = said.replace(MASK, "").replace(['¤', ' ', '…'], "");
        prop_assert!(MASK.starts_with(&rest), "{rest}");
    }

    #[test]
    fn any_text_comes_through_where_nothing_is_secret(text in "\\PC{0,200}", value in value()) {
        prop_assert_eq!(Secrets::default().mask(&text), text.clone());
        // Nothing but the value goes, whatever the text holds.
        if !text.contains(&value[..floor(&value, 8)]) {
            prop_assert_eq!(Secrets::of_value(&secret(&value)).mask(&text), text);
        }
    }
}

/// What Go 1.26 itself made of these values with encoding/json (once and twice), %q, %+q, %x, net/url and html.
#[test]
fn what_go_writes_is_masked() {
    let first = "pa\"ss\\wo'rd\u{2028}ü\u{85} €🔑x";
    for (value, spelled) in [
        ("a&b<canary>7f1", r#"a\u0026b\u003ccanary\u003e7f1"#),
        ("a&b<canary>7f1", r#"\"a\\u0026b\\u003ccanary\\u003e7f1\""#),
        ("a&b<canary>7f1", "6126623c63616e6172793e376631"),
        ("a&b<canary>7f1", "a&b%3Ccanary%3E7f1"),
        ("a&b<canary>7f1", "a&amp;b&lt;canary&gt;7f1"),
        (first, "pa\\\"ss\\\\wo'rd\\u2028ü\u{85} €🔑x"),
        (first, "\\\"pa\\\\\\\"ss\\\\\\\\wo'rd\\\\u2028ü\u{85} €🔑x\\\""),
        (first, r#"pa\"ss\\wo'rd\u2028ü\u0085 €🔑x"#),
        (first, r#"pa\"ss\\wo'rd\u2028\u00fc\u0085 \u20ac\U0001f511x"#),
        (first, "pa%22ss%5Cwo%27rd%E2%80%A8%C3%BC%C2%85+%E2%82%AC%F0%9F%94%91x"),
        (first, "pa%22ss%5Cwo%27rd%E2%80%A8%C3%BC%C2%85%20%E2%82%AC%F0%9F%94%91x"),
        (first, "pa&#34;ss\\wo&#39;rd\u{2028}ü\u{85} €🔑x"),
        ("line one\nline\ttwo\0\u{7f}end", "line one\\nline\\ttwo\\x00\\x7fend"),
        ("line one\nline\ttwo\0\u{7f}end", "line one\\nline\\ttwo\\u0000\u{7f}end"),
    ] {
        let masked = mask(&secret(value), &format!("it said {spelled}."));
        let rest = masked.strip_prefix("it said ").and_then(|rest| rest.strip_suffix('.')).unwrap();
        assert_eq!(rest.trim_matches(['\\', '"']), MASK, "{spelled}");
    }
}

#[test]
fn unmasked_text_is_not_printed() {
    let text = Unmasked::from("canary-7f1");
    assert!(!format!("{text:?}").contains("canary"));
    assert!(text.contains("canary"));
}

#[test]
fn values_of_another_components_secret_are_masked_unless_they_are_common_words() {
    let secret = json!({"kind": "Secret", "stringData": {"password": "S3CR3T-7f1", "user": "admin"}}).to_string();
    let design = OfDesign::new(vec![Bytes::from(secret)]);
    let pod = json!({"kind": "Pod", "spec": {"args": ["S3CR3T-7f1"]}}).to_string();
    let masked = Secrets::around(pod.as_bytes(), &design).mask("admin said S3CR3T-7f1");
    assert_eq!(masked, "admin said [redacted]");
}

#[test]
fn values_of_a_secret_are_masked_in_every_form_in_which_it_may_give_them() {
    let plain = "S3CR3T-7f1";
    let encoded = BASE64_STANDARD.encode(plain);
    let manifest = json!({"kind": "Secret", "data": {"a": encoded}, "stringData": {
        "b": "multi\nline-of-text-that-is-long", "n": 5432,
        "env": "DB_PASSWORD='hunter2!'\nMODE=x", "url": "postgres://shop:pa%4055word@db/shop",
        "docker": r#"{"auths": {"h": {"auth": "cm9ib3Q6cm9ib3QtcGFzcw=="}}}"#,
    }});
    for (text, value) in [
        (format!("bad \"{plain}\""), plain),
        (format!("bad {encoded}!"), encoded.as_str()),
        (format!("cut {}...", &encoded[..14]), &encoded[..14]),
        ("bad multi\\nline-of-text-that-is-long".into(), "line-of-text"),
        ("got line-of-text-that-is-long".into(), "line-of-text"),
        ("number 5432".into(), "5432"),
        ("with hunter2! refused".into(), "hunter2!"),
        ("with pa@55word refused".into(), "pa@55word"),
        ("as robot:robot-pass refused".into(), "robot-pass"),
    ] {
        let masked = mask(&manifest, &text);
        assert!(masked.contains(MASK) && !masked.contains(value), "{masked}");
    }
}

#[test]
fn cut_value_is_masked_too() {
    assert_eq!(
        mask(&secret("0123456789abcdefghijklmnop"), "value 0123456789abcdef... is bad"),
        "value [redacted]... is bad"
    );
}

#[test]
fn values_that_overlap_leave_nothing_between_them() {
    let manifest = json!({"kind": "Secret", "stringData": {"a": "abcdefgh", "b": "efghijkl"}});
    assert_eq!(mask(&manifest, "abcdefghijkl"), MASK);
}

#[test]
fn telling_names_are_masked_and_references_are_not() {
    let manifest = json!({
        "kind": "Deployment",
        "spec": {
            "env": [
                {"name": "DB_PASSWORD", "value": "hunter2!"},
                {"name": "MODE", "value": "verbose"},
                {"name": "X", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "pw"}}},
            ],
            "api-token": "tok-123456",
            "url": "postgres://shop:pa55word@db/shop",
            "secretName": "shop-tls",
        }
    });
    assert_eq!(mask(&manifest, "hunter2! tok-123456 pa55word"), "[redacted] [redacted] [redacted]");
    assert_eq!(mask(&manifest, "verbose shop-db shop-tls"), "verbose shop-db shop-tls");
}

#[test]
fn config_map_text_is_not_masked() {
    let manifest = json!({"kind": "ConfigMap", "data": {"colour": "blueish"}});
    assert_eq!(mask(&manifest, "blueish"), "blueish");
}

#[test]
fn short_values_are_masked_as_words_and_shorter_ones_in_quotes_only() {
    assert_eq!(mask(&secret("no"), "\"no\" is not known"), "\"[redacted]\" is not known");
    assert_eq!(mask(&secret("test"), "the latest test"), "the latest [redacted]");
}

#[test]
fn credentials_of_urls_are_those_before_the_host_and_in_the_query() {
    let secrets = Secrets::of_url("https://robot:p%40ssword@charts/x.tgz?X-Amz-Signature=5f1canary7&v=1");
    assert_eq!(secrets.mask("p@ssword, 5f1canary7 and v=1"), "[redacted], [redacted] and v=1");
}

#[test]
fn difference_that_a_refusal_quotes_is_left_out() {
    let unified = "Pod \"web\" is invalid: spec: Forbidden: pod updates may not change fields other than `image`\n\
                   @@ -1,3 +1,3 @@\n DB_PASSWORD\n-old-canary\n+new";
    let compared = "Pod \"web\" is invalid: spec: Forbidden: pod updates may not change fields other than `image`\n\
                    \u{20}\u{20}core.PodSpec{\n- \tValue: \"old-canary\",\n+ \tValue: \"new\",";
    for text in [unified, compared] {
        let said = Secrets::default().render(&text.into());
        assert!(said.contains("other than `image`") && said.contains(NO_DIFF) && !said.contains("canary"), "{said}");
    }
    let list = "denied:\n- image has no tag\n- no limits";
    assert_eq!(Secrets::default().render(&list.into()), list);
}

/// Cost follows the text that is said and not the values.
#[test]
fn large_secrets_are_looked_up_and_not_searched_for_one_by_one() {
    let data: serde_json::Map<_, _> =
        (0..20_000).map(|n| (n.to_string(), json!(format!("canary-value-{n}")))).collect();
    let secrets = Secrets::of_value(&json!({"kind": "Secret", "stringData": data}));
    let text = "Invalid value: \"canary-value-19999\" ".repeat(200);
    let said = secrets.render(&text.as_str().into());
    assert!(!said.contains("canary") && said.starts_with("Invalid value: \"[redacted]\""), "{said}");
}
