//! Hostile requests, against the executor as a process of its own: whatever a request of n bytes holds, the process takes at most
//! 64 MB and 30 n more, and the next caller is served within a second meanwhile.

mod intake;
mod runs;
mod victim;
mod wire;
