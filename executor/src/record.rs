//! What is known of a design in a cluster between its runs.

pub(crate) mod locks;
