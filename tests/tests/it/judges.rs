//! What real parts say of the product: older API servers, policies and webhooks of the cluster, narrow rights, designs of every
//! kind beside kubectl, and designs at random against a model of the rules.

mod kinds;
mod large;
mod model;
mod policies;
mod random;
mod rights;
mod user_agent;
mod versions;
mod webhook;
