//! Whose an object is: the one place that decides it, from the object's mark and the design's id (D11, D19, L1).

use super::object::Metadata;

/// Whose an object is, as a design sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// It carries the mark of the design that asks.
    Ours,
    /// It carries the mark of another design, which has this id.
    Design(&'a str),
    /// It carries no design's mark.
    Nobody,
}

/// Tells whose the object is. An empty mark is none.
pub(crate) fn owner<'a>(metadata: &'a Metadata, design_id: &str) -> Owner<'a> {
    match metadata.design() {
        None | Some("") => Owner::Nobody,
        Some(id) if id == design_id => Owner::Ours,
        Some(id) => Owner::Design(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::object::DESIGN_LABEL;

    #[test]
    fn the_mark_says_whose_an_object_is() {
        let marked = |id: Option<&str>| Metadata {
            labels: id.map(|id| (DESIGN_LABEL.to_owned(), id.to_owned())).into_iter().collect(),
            ..Metadata::default()
        };
        assert_eq!(owner(&marked(Some("a")), "a"), Owner::Ours);
        assert_eq!(owner(&marked(Some("b")), "a"), Owner::Design("b"));
        assert_eq!(owner(&marked(None), "a"), Owner::Nobody);
        assert_eq!(owner(&marked(Some("")), ""), Owner::Nobody);
        assert_eq!(owner(&marked(None), ""), Owner::Nobody);
    }
}
