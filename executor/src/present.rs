//! What is there, and how it stands to what is asked for. Pure: the requests that look are in `cluster`.

pub(crate) mod compare;
pub(crate) mod diff;
mod quantity;
pub(crate) mod schema;
