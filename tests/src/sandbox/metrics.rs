//! Counters of an API server, from its Prometheus page.

/// What `/metrics` said at one moment.
#[derive(Debug, Clone)]
pub struct Metrics(Vec<Sample>);

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// Adds up the samples of a metric that carry all of these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.0
            .iter()
            .filter(|sample| sample.name == name)
            .filter(|sample| labels.iter().all(|(k, v)| sample.labels.iter().any(|(sk, sv)| sk == k && sv == v)))
            .map(|sample| sample.value)
            .sum()
    }

    /// Counts the requests answered for a resource (`configmaps`). The verb is the API server's word for it: `APPLY` for
    /// a server-side apply, `PATCH` for other patches, `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `DELETE`.
    pub fn requests(&self, verb: &str, resource: &str) -> u64 {
        // A counter of requests is a whole number, and far below 2^52.
        self.sum("apiserver_request_total", &[("verb", verb), ("resource", resource)]) as u64
    }
}

/// Reads `name{key="value",…} 12.5`, where a value may hold escaped quotes.
fn sample(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let (name, mut rest) = head.split_once('{').unwrap_or((head, "}"));
    let mut labels = Vec::new();
    while let Some((key, after)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (end, '"') => break end,
                (_, '\\') => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => text.push(other),
            }
        };
        labels.push((key.trim_start_matches(',').to_owned(), text));
        rest = &after[end + 1..];
    }
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_added_up_by_label() {
        let metrics = Metrics::parse(
            r#"# HELP apiserver_request_total Counter
apiserver_request_total{code="200",resource="configmaps",verb="APPLY"} 3
apiserver_request_total{code="201",resource="configmaps",verb="APPLY"} 4
apiserver_request_total{code="200",resource="secrets",verb="APPLY"} 5
go_goroutines 1234
odd{text="a \"quoted\", one",b="2"} 1e+06"#,
        );
        assert_eq!(metrics.requests("APPLY", "configmaps"), 7);
        assert_eq!(metrics.sum("go_goroutines", &[]), 1234.0);
        assert_eq!(metrics.sum("odd", &[("text", "a \"quoted\", one"), ("b", "2")]), 1e6);
        assert_eq!(metrics.sum("odd", &[("b", "3")]), 0.0);
    }
}
