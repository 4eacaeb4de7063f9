//! What is to be done, and in which order: the plan as it is carried out, its targets, and the schedule. Pure.

pub(crate) mod kind;
pub(crate) mod limit;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod target;
