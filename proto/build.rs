//! Compiles the contract with a protobuf compiler that comes from crates, so that no system protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=switchyard");
    println!("cargo:rerun-if-changed=meshes");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files([
        "switchyard/v1/codes.proto",
        "switchyard/v1/plan.proto",
        "switchyard/v1/planner_service.proto",
        "switchyard/v1/executor_service.proto",
        "meshes/meshops.proto",
    ])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Encoded by protox itself: going through prost-types would drop options such as `debug_redact`.
    fs::write(out.join("descriptor.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        // These hold kubeconfigs, designs, manifests or credentials: their Debug is written by hand and says nothing of these.
        .skip_debug([
            ".switchyard.v1.Chart",
            ".switchyard.v1.Design",
            ".switchyard.v1.Design.source",
            ".switchyard.v1.DirectRoute",
            ".switchyard.v1.AdapterRoute",
            ".switchyard.v1.ClusterAccess",
            ".switchyard.v1.ClusterAccess.source",
            ".switchyard.v1.EncodedPart",
            ".switchyard.v1.ExecuteRequest",
            ".meshes.ProcessOAMRequest",
            ".meshes.ProvisionRequest",
        ])
        .compile_fds(compiler.file_descriptor_set())?;
    // The executor's server once more, whose events are kept and not copied (see `Kept`); its messages are those from above.
    let mut serving = compiler.file_descriptor_set();
    serving.file.retain(|file| file.name() == "switchyard/v1/executor_service.proto");
    let folder = out.join("serving");
    fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".switchyard.v1", "crate::v1")
        .extern_path(".switchyard.v1.ExecuteResponse", "crate::Kept<crate::v1::ExecuteResponse>")
        .extern_path(".switchyard.v1.WatchRunResponse", "crate::KeptWatchRunResponse")
        .out_dir(folder)
        .compile_fds(serving)?;
    Ok(())
}
