//! Why a call of helm did not do what it should.

use crate::{
    answers::failure::{Failure, Reason},
    helm,
    mask::Secrets,
};

/// The failure of a call; `reason` where helm itself said no, `what` was not done.
pub(crate) fn helm_failed(reason: Reason, what: &str, error: &helm::Error, secrets: &Secrets) -> Failure {
    let reason = match error {
        helm::Error::Missing(_) | helm::Error::TooOld(..) => Reason::HelmMissing,
        helm::Error::Stopped => Reason::Cancelled,
        _ => reason,
    };
    Failure::new(reason, format!("{what}: {}", error.render(secrets)))
}

/// What is in the way, where helm says that it finds an object of the chart that is not of the release (cases 100 and 341).
pub(crate) fn in_helms_way(said: &str) -> Option<String> {
    let (object, why) = said.split_once(" exists and cannot be imported into the current release: ")?;
    let object = object.rsplit_once(": ").map_or(object, |(_, object)| object).replace(" in namespace \"\"", "");
    let owner = |key: &str| {
        let (_, said) = why.split_once(&format!("key \"meta.helm.sh/{key}\" must equal "))?;
        said.split_once("current value is \"")?.1.split('"').next()
    };
    let whose = match (owner("release-name"), owner("release-namespace")) {
        (Some(name), Some(namespace)) => format!("belongs to release {name} in namespace {namespace}"),
        (Some(name), None) => format!("belongs to release {name} in the same namespace"),
        (None, Some(namespace)) => format!("belongs to the release of the same name in namespace {namespace}"),
        (None, None) => "belongs to no release".into(),
    };
    Some(format!("{object} is there already and {whose}, so helm does not take it over"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_in_the_way_is_told_with_its_owner() {
        let said = |why: &str| {
            let said = format!(
                "unable to continue with install: CustomResourceDefinition \"w.g\" in namespace \"\" exists and cannot be \
                 imported into the current release: invalid ownership metadata; {why}"
            );
            in_helms_way(&said).unwrap()
        };
        let nobodys =
            said("label validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \"Helm\"");
        let wanted = "CustomResourceDefinition \"w.g\" is there already and belongs to no release, so helm does not take it over";
        assert_eq!(nobodys, wanted);
        let anothers = said(
            "annotation validation error: key \"meta.helm.sh/release-name\" must equal \"a\": current value is \"b\"; \
             annotation validation error: key \"meta.helm.sh/release-namespace\" must equal \"c\": current value is \"d\"",
        );
        assert!(anothers.contains("belongs to release b in namespace d"), "{anothers}");
        assert_eq!(in_helms_way("no"), None);
    }
}
