//! The standard variables whose values the SDK would ignore without a word (case 326).

/// Variables whose values are whole numbers.
const NUMBERS: [&str; 11] = [
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_CONCURRENT_EXPORTS",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_EVENT_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_METRIC_EXPORT_INTERVAL",
];

/// Variables that are lists of `key=value`.
const LISTS: [&str; 3] =
    ["OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// What is wrong with the values that `read` gives, a sentence each. Lists may hold credentials, so these are not quoted.
pub(super) fn troubles(read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut troubles = Vec::new();
    for variable in NUMBERS {
        if let Some(value) = read(variable).filter(|value| value.parse::<u64>().is_err()) {
            troubles.push(format!("{variable} is {value:?}, which is no whole number; the default is used"));
        }
    }
    for variable in LISTS {
        if read(variable)
            .is_some_and(|value| !value.split(',').all(|pair| pair.trim().is_empty() || pair.contains('=')))
        {
            troubles.push(format!("{variable} holds something that is not of the form key=value; that is left out"));
        }
    }
    if let Some(sampler) = read(SAMPLER) {
        let ratio = read(SAMPLER_ARGUMENT);
        if !SAMPLERS.contains(&sampler.as_str()) {
            let known = SAMPLERS.join(", ");
            troubles.push(format!("{SAMPLER} is {sampler:?}, and there are {known}; parentbased_always_on is used"));
        } else if sampler.ends_with("ratio")
            && !ratio.as_deref().is_some_and(|ratio| ratio.parse().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)))
        {
            let ratio = ratio.unwrap_or_default();
            troubles.push(format!(
                "{SAMPLER_ARGUMENT} is {ratio:?}, which is no number from 0 to 1; everything is sampled"
            ));
        }
    }
    troubles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)]) -> Vec<String> {
        troubles(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn values_that_would_be_ignored_are_told_without_secrets() {
        let told = told(&[
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
        ]);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("OTEL_BSP_MAX_QUEUE_SIZE is \"many\""), "{told:?}");
        assert!(told.iter().all(|text| !text.contains("hunter2")), "{told:?}");
        assert!(told[2].contains("OTEL_TRACES_SAMPLER"), "{told:?}");
    }

    #[test]
    fn values_that_are_understood_are_not_told() {
        let sampler = |ratio| [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
        assert_eq!(told(&sampler("0.25")), Vec::<String>::new());
        assert_eq!(told(&sampler("2")).len(), 1);
        assert_eq!(
            told(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b, c=d"), ("OTEL_BSP_SCHEDULE_DELAY", "200")]),
            Vec::<String>::new()
        );
    }
}
