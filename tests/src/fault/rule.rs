//! What happens to which requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::{gate::Gate, log::Seen};

/// An answer made up by the proxy.
#[derive(Debug, Clone)]
pub struct Canned {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Canned {
    /// An answer with a status and no body.
    pub fn status(code: u16) -> Self {
        let status = StatusCode::from_u16(code).expect("tests name statuses that exist");
        Self { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// An answer as API servers word their refusals: a `Status` with reason, message and, if not null, details.
    pub fn refusal(code: u16, reason: &str, message: &str, details: Value) -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message, "details": details,
        });
        Self::status(code).json(&status)
    }

    /// Gives it a JSON body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self.header(header::CONTENT_TYPE.as_str(), "application/json")
    }

    /// Gives it a text body.
    #[must_use]
    pub fn text(mut self, body: impl Into<String>) -> Self {
        self.body = Bytes::from(body.into());
        self
    }

    /// Adds a header; others of the same name stay.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("tests name headers that can be");
        self.headers.append(name, HeaderValue::from_str(value).expect("tests give headers values that can be"));
        self
    }

    /// Returns its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Has it ask to come back after so many seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER.as_str(), &seconds.to_string())
    }
}

/// How the answer to a request that was carried out is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The connection breaks before the answer's first byte.
    BeforeHeaders,
    /// The request's stream is reset before the answer's first byte, and the connection stays, with the other requests on it.
    Reset,
    /// The connection breaks after the answer's headers.
    AfterHeaders,
    /// The answer breaks off in the middle of its body.
    HalfBody,
    /// Somebody on the way gives up and answers 504.
    GatewayTimeout,
    /// Nothing ever comes.
    Silence,
    /// The headers come and then nothing.
    SilenceAfterHeaders,
    /// The body comes, one byte a second.
    Drip,
}

/// What happens to a request.
#[derive(Clone)]
pub enum Fault {
    /// The proxy answers; the API server never sees the request.
    Answer(Canned),
    /// Passed on after this long.
    Delay(Duration),
    /// Passed on when the gate opens.
    Hold(Gate),
    /// Passed on, and the answer is changed on its way back.
    Alter(Arc<dyn Fn(&mut Canned) + Send + Sync>),
    /// Passed on and carried out, but the answer is lost.
    Lose(Loss),
    /// Never passed on and never answered.
    Ignore,
    /// Never passed on; the connection breaks.
    Cut,
    /// Passed on unless so many requests of this rule are in flight; those above get this answer.
    Crowd(usize, Canned),
}

/// Which requests, how many of them, and what happens to them.
pub struct Rule {
    method: Option<Method>,
    path: String,
    is_whole: bool,
    watches: bool,
    skip: u32,
    times: Option<u32>,
    pub(super) fault: Fault,
    pub(super) in_flight: usize,
}

impl Rule {
    /// A rule for all requests whose path contains `path`.
    pub fn any(path: &str, fault: Fault) -> Self {
        Self {
            method: None,
            path: path.to_owned(),
            is_whole: false,
            watches: false,
            skip: 0,
            times: None,
            fault,
            in_flight: 0,
        }
    }

    /// A rule for GET requests whose path contains `path`.
    pub fn get(path: &str, fault: Fault) -> Self {
        Self { method: Some(Method::GET), ..Self::any(path, fault) }
    }

    /// A rule for PATCH requests whose path contains `path`.
    pub fn patch(path: &str, fault: Fault) -> Self {
        Self { method: Some(Method::PATCH), ..Self::any(path, fault) }
    }

    /// A rule for DELETE requests whose path contains `path`.
    pub fn delete(path: &str, fault: Fault) -> Self {
        Self { method: Some(Method::DELETE), ..Self::any(path, fault) }
    }

    /// A rule for watches whose path contains `path`.
    pub fn watch(path: &str, fault: Fault) -> Self {
        Self { watches: true, ..Self::get(path, fault) }
    }

    /// Takes only what has this very path.
    #[must_use]
    pub fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Leaves the first so many requests alone.
    #[must_use]
    pub fn after(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Is used up after so many requests.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Takes the request on, if it is one of this rule's and the rule is not used up.
    pub(super) fn takes(&mut self, seen: &Seen) -> bool {
        let fits = self.method.as_ref().is_none_or(|method| *method == seen.method)
            && if self.is_whole { seen.path == self.path } else { seen.path.contains(&self.path) }
            && (!self.watches || seen.is_watch())
            && self.times != Some(0);
        if !fits {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}
