//! A chart's archive, looked over before helm sees it (case 145).
//!
//! What it unpacks to is bounded as a whole, which bounds every file in it and makes a ratio of no matter. Nothing in it may
//! lead out of the chart's own folder. Nothing is ever unpacked to disk, neither here nor by helm.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Component, Path},
};

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use tar::{Archive, Entry, EntryType};

/// Largest archive, in bytes. The largest that are published have about 1 MiB, and a release's record must fit into an object.
const MAX_ARCHIVE: u64 = 20 * 1024 * 1024;
/// Most that it may unpack to, in bytes; helm has the same bound.
const MAX_UNPACKED: u64 = 100 * 1024 * 1024;
/// Most files and folders in it.
const MAX_ENTRIES: usize = 10_000;
/// Largest `Chart.yaml`, in bytes.
const MAX_ABOUT: u64 = 1024 * 1024;
/// Longest name of a release; helm's own bound.
const MAX_NAME: usize = 53;

/// What a chart says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct About {
    /// Also the name of its release.
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default, rename = "type")]
    kind: String,
    /// Whether there are definitions in it where helm looks for them.
    #[serde(skip)]
    pub(crate) has_definitions: bool,
}

/// Why an archive is not fit to be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("it cannot be read as a chart: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it has {0} bytes, more than the {MAX_ARCHIVE} that are taken")]
    TooLarge(u64),
    #[error("it unpacks to more than {MAX_UNPACKED} bytes")]
    Bomb,
    #[error("it holds more than {MAX_ENTRIES} files")]
    TooMany,
    #[error("`{0}` in it leads out of its folder")]
    Escapes(String),
    #[error("`{0}` in it is neither a file nor a folder")]
    NotAFile(String),
    #[error("it has no Chart.yaml with name and version")]
    NotAChart,
    #[error("it has more than one Chart.yaml, of which helm would read another than is looked at")]
    Twice,
    #[error("it is a library, which is not to be installed")]
    Library,
    #[error("`{0}` cannot be the name of a release")]
    Name(String),
}

/// Reads as much as an archive may unpack to, and then fails.
struct Bounded<R> {
    inner: R,
    left: u64,
}

/// What [`Bounded`] fails with, which is found again below whatever wraps it.
#[derive(Debug, thiserror::Error)]
#[error("the bound is reached")]
struct BoundReached;

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(BoundReached))?;
        Ok(read)
    }
}

/// Looks the archive over. Blocks, for as long as its bounds let it.
pub(crate) fn look_over(path: &Path) -> Result<About, Error> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > MAX_ARCHIVE {
        return Err(Error::TooLarge(size));
    }
    let bounded = Bounded { inner: MultiGzDecoder::new(BufReader::new(file)), left: MAX_UNPACKED };
    read(bounded).map_err(|error| match error {
        Error::Unreadable(error) if is_bound(&error) => Error::Bomb,
        error => error,
    })
}

fn is_bound(error: &io::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|error| error as _);
    while let Some(error) = source {
        if error.is::<BoundReached>() {
            return true;
        }
        // An `io::Error` hides what it wraps from `source`.
        source = match error.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref().map(|error| error as _),
            None => error.source(),
        };
    }
    false
}

fn read(unpacked: impl Read) -> Result<About, Error> {
    let mut archive = Archive::new(unpacked);
    let mut about = None;
    let mut has_definitions = false;
    for (ix, entry) in archive.entries()?.enumerate() {
        if ix >= MAX_ENTRIES {
            return Err(Error::TooMany);
        }
        let mut entry = entry?;
        let depth = place(&entry)?;
        has_definitions |= entry.header().entry_type() != EntryType::Directory && holds_definitions(&entry.path()?);
        if depth == 2 && entry.path_bytes().ends_with(b"/Chart.yaml") {
            let mut text = String::new();
            (&mut entry).take(MAX_ABOUT).read_to_string(&mut text)?;
            if about.replace(serde_saphyr::from_str::<About>(&text).ok()).is_some() {
                return Err(Error::Twice);
            }
        }
    }
    let about = About { has_definitions, ..about.flatten().ok_or(Error::NotAChart)? };
    if about.kind == "library" {
        return Err(Error::Library);
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = about.name.len() <= MAX_NAME
        && about.name.starts_with(is_plain)
        && about.name.chars().all(|c| is_plain(c) || c == '-' || c == '.');
    if fits { Ok(about) } else { Err(Error::Name(about.name)) }
}

/// Whether helm takes a file for a definition: it lies in the folder `crds` of the chart, or of a chart within it (case 347).
fn holds_definitions(path: &Path) -> bool {
    if !path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end.eq_ignore_ascii_case(known)))
    {
        return false;
    }
    let parts = path.components().filter(|part| *part != Component::CurDir).map(Component::as_os_str);
    let parts: Vec<_> = parts.skip(1).collect();
    let mut within = parts.as_slice();
    while let [charts, _, rest @ ..] = within
        && *charts == "charts"
    {
        within = rest;
    }
    within.len() > 1 && within[0] == "crds"
}

/// How deep an entry lies, if it may lie there.
fn place(entry: &Entry<'_, impl Read>) -> Result<usize, Error> {
    let name = || switchyard_service::status::capped(&String::from_utf8_lossy(&entry.path_bytes()), 256);
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::XGlobalHeader => {}
        _ => return Err(Error::NotAFile(name())),
    }
    let path = entry.path()?;
    let leads_out = |part| !matches!(part, Component::Normal(_) | Component::CurDir);
    // Programs that were made elsewhere read a backslash as a slash.
    if path.components().any(leads_out) || entry.path_bytes().contains(&b'\\') {
        return Err(Error::Escapes(name()));
    }
    Ok(path.components().filter(|part| matches!(part, Component::Normal(_))).count())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, Header};

    use super::*;

    const ABOUT: &str = "apiVersion: v2\nname: widgets\nversion: 1.2.3\n";

    /// An archive in the making.
    struct Making(Builder<GzEncoder<Vec<u8>>>);

    impl Making {
        fn new() -> Self {
            Self(Builder::new(GzEncoder::new(Vec::new(), Compression::fast())))
        }

        fn file(self, path: &str, text: &str) -> Self {
            self.entry(path, EntryType::Regular, text)
        }

        /// Past the builder, which would not write a path that leads out.
        fn entry(mut self, path: &str, kind: EntryType, text: &str) -> Self {
            let mut header = Header::new_ustar();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            self.0.append(&header, text.as_bytes()).unwrap();
            self
        }

        fn bytes(self) -> Vec<u8> {
            self.0.into_inner().unwrap().finish().unwrap()
        }
    }

    fn look(bytes: &[u8]) -> Result<About, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        look_over(file.path()).map_err(|error| error.to_string())
    }

    fn chart() -> Making {
        Making::new().file("widgets/Chart.yaml", ABOUT)
    }

    #[test]
    fn chart_says_its_name_and_version() {
        let about = look(&chart().file("widgets/templates/a.yaml", "a: b").bytes()).unwrap();
        assert_eq!((about.name.as_str(), about.version.as_str()), ("widgets", "1.2.3"));
        assert!(!about.has_definitions);
        assert!(look(&chart().file("widgets/crds/a.yaml", "a: b").bytes()).unwrap().has_definitions);
        let place = |path: &str| look(&chart().file(path, "a: b").bytes()).unwrap().has_definitions;
        assert!(place("widgets/charts/inner/crds/a.yaml") && place("widgets/charts/a/charts/b/crds/c/d.yaml"));
        assert!(place("./widgets/crds/a.yaml"));
        for path in
            ["templates/crds/a.yaml", "crds", "files/crds/a.yaml", "charts/crds/a.yaml", "charts/a/templates/crds/b"]
        {
            assert!(!place(&format!("widgets/{path}")), "{path}");
        }
        // The chart's own, and not that of a chart within it.
        let nested = Making::new().file("widgets/charts/inner/Chart.yaml", "name: inner\nversion: '1'\n");
        assert_eq!(look(&nested.file("widgets/Chart.yaml", ABOUT).bytes()).unwrap().name, "widgets");
    }

    #[test]
    fn nothing_may_lead_out_of_the_folder() {
        for path in ["../x", "widgets/../../x", "/etc/x", "widgets/..\\x"] {
            let told = look(&chart().file(path, "x").bytes()).unwrap_err();
            assert_eq!(told, format!("`{path}` in it leads out of its folder"));
        }
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char] {
            let told = look(&chart().entry("widgets/link", kind, "").bytes()).unwrap_err();
            assert_eq!(told, "`widgets/link` in it is neither a file nor a folder");
        }
    }

    #[test]
    fn what_it_unpacks_to_is_bounded() {
        let mut making = chart();
        let mut header = Header::new_ustar();
        header.set_path("widgets/big").unwrap();
        header.set_size(MAX_UNPACKED + 1);
        header.set_cksum();
        making.0.append(&header, io::repeat(0).take(MAX_UNPACKED + 1)).unwrap();
        let bytes = making.bytes();
        assert!(bytes.len() < 2 * 1024 * 1024, "{}", bytes.len());
        assert_eq!(look(&bytes).unwrap_err(), Error::Bomb.to_string());

        let crowd = (0..=MAX_ENTRIES).fold(chart(), |making, ix| making.file(&format!("widgets/{ix}"), ""));
        assert_eq!(look(&crowd.bytes()).unwrap_err(), Error::TooMany.to_string());
        let heavy = vec![0; MAX_ARCHIVE as usize + 1];
        assert_eq!(look(&heavy).unwrap_err(), Error::TooLarge(MAX_ARCHIVE + 1).to_string());
    }

    #[test]
    fn what_is_no_chart_is_refused() {
        let whole = chart().bytes();
        assert!(look(&whole[..whole.len() / 2]).unwrap_err().contains("cannot be read"));
        assert!(look(b"<html>not found</html>").unwrap_err().contains("cannot be read"));
        assert_eq!(look(&Making::new().file("a/b", "").bytes()).unwrap_err(), Error::NotAChart.to_string());
        for twice in ["widgets/Chart.yaml", "other/Chart.yaml", "./widgets/Chart.yaml"] {
            let told = look(&chart().file(twice, "name: other\nversion: '1'\n").bytes()).unwrap_err();
            assert_eq!(told, Error::Twice.to_string());
        }
        let library = Making::new().file("w/Chart.yaml", "name: w\nversion: '1'\ntype: library\n");
        assert_eq!(look(&library.bytes()).unwrap_err(), Error::Library.to_string());
        for name in ["--post-renderer", "Widgets", ""] {
            let named = Making::new().file("w/Chart.yaml", &format!("name: '{name}'\nversion: '1'\n"));
            assert_eq!(look(&named.bytes()).unwrap_err(), Error::Name(name.into()).to_string());
        }
    }
}
