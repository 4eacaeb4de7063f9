//! What the proxy has seen.

use std::time::Instant;

use bytes::Bytes;
use http::Method;

/// One request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its query, empty if there is none.
    pub query: String,
    /// Its body.
    pub body: Bytes,
    /// Its `authorization` header, empty if there is none.
    pub authorization: String,
    /// Its `traceparent` header, empty if there is none.
    pub traceparent: String,
    /// When it had come in.
    pub at: Instant,
}

impl Seen {
    /// Tells whether it is a server-side apply to a path that ends like this.
    pub fn is_apply_of(&self, end: &str) -> bool {
        self.method == Method::PATCH && self.path.ends_with(end)
    }

    /// Tells whether it could have changed something.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Tells whether it watches.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|part| part == "watch=1")
    }

    /// Tells whether it asks which kinds there are.
    pub fn is_discovery(&self) -> bool {
        let depth = self.path.trim_matches('/').split('/').count();
        self.method == Method::GET
            && (self.path.starts_with("/apis") && depth <= 3 || self.path.starts_with("/api") && depth <= 2)
    }
}
