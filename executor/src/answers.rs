//! What an answer means, or that there was none: the one place that classifies, and the closed list of reasons.

pub(crate) mod classify;
pub(crate) mod failure;
