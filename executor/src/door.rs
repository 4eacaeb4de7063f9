//! Where calls come in and answers go out: the one module that knows streams, and who may have what started.

pub(crate) mod incoming;
pub(crate) mod intake;
pub(crate) mod refuse;
pub(crate) mod runs;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod story;
