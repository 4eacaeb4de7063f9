//! The gRPC contract of Switchyard and the code generated from it. Knows nothing of the services that speak it.
//!
//! The `.proto` files beside this crate are the documentation of every message; the comments there are repeated on the
//! generated types.

#[cfg(test)]
mod comments;
pub mod digest;
mod kept;
mod redact;
mod unknown;

pub use kept::{Kept, KeptWatchRunResponse};
pub use redact::{presentable, userinfo, without_userinfo};
#[cfg(test)]
pub(crate) use unknown::pool;
pub use unknown::unknown_fields;

/// Package `switchyard.v1`: the contract of the planner and of the executor.
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated code is not held to our lints")]
pub mod v1 {
    tonic::include_proto!("switchyard.v1");
}

/// The executor's server with events that are [`Kept`]: for who keeps an event and sends it to several.
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated code is not held to our lints")]
pub mod serving {
    include!(concat!(env!("OUT_DIR"), "/serving/switchyard.v1.rs"));
}

/// Package `meshes`: the contract of adapters, given from outside.
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated code is not held to our lints")]
pub mod meshes {
    tonic::include_proto!("meshes");
}

/// The longest time that a step may be given (`RunOptions.step_timeout`).
pub const LONGEST_STEP: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 60 * 60);

/// The descriptors of both packages and of what they import, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

#[cfg(test)]
mod tests {
    use crate::pool;

    /// Generators of other languages need to be told where to put what they make.
    #[test]
    fn every_file_of_ours_names_its_packages() {
        let ours: Vec<_> = pool().files().filter(|file| file.package_name() == "switchyard.v1").collect();
        assert_eq!(ours.len(), 4);
        for file in ours {
            let options = file.file_descriptor_proto().options.clone().unwrap_or_default();
            assert!(options.go_package().ends_with("/switchyard/v1;switchyardv1"), "{}", file.name());
            assert_eq!(options.java_package(), "dev.switchyard.v1", "{}", file.name());
            assert!(options.java_multiple_files() && options.csharp_namespace.is_some(), "{}", file.name());
        }
    }
}
