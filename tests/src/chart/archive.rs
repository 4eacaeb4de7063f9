//! Archives that helm would not make.

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use tar::{Builder, EntryType, Header};

/// An archive in the making.
pub struct Archive(Builder<GzEncoder<Vec<u8>>>);

impl Archive {
    /// Begins with what makes it a chart of this name.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let about = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        Self(Builder::new(GzEncoder::new(Vec::new(), Compression::best()))).entry(
            &format!("{name}/Chart.yaml"),
            EntryType::Regular,
            about.len() as u64,
            about.as_bytes(),
        )
    }

    /// Adds a file of so many zeros.
    pub fn zeros(self, path: &str, bytes: u64) -> anyhow::Result<Self> {
        use std::io::Read as _;
        self.entry(path, EntryType::Regular, bytes, std::io::repeat(0).take(bytes))
    }

    /// Adds a symbolic link.
    pub fn link(mut self, path: &str, target: &str) -> anyhow::Result<Self> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        self.0.append_link(&mut header, path, target)?;
        Ok(self)
    }

    /// Adds a file at a path that may lead anywhere.
    pub fn file_at(self, path: &str, text: &str) -> anyhow::Result<Self> {
        self.entry(path, EntryType::Regular, text.len() as u64, text.as_bytes())
    }

    fn entry(mut self, path: &str, kind: EntryType, size: u64, content: impl std::io::Read) -> anyhow::Result<Self> {
        let mut header = Header::new_ustar();
        // Past the builder, which would not write a path that leads out.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o644);
        header.set_cksum();
        self.0.append(&header, content)?;
        Ok(self)
    }

    /// Returns the archive.
    pub fn bytes(self) -> anyhow::Result<Bytes> {
        Ok(self.0.into_inner()?.finish()?.into())
    }
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").finish_non_exhaustive()
    }
}
