//! A registry from a file or a folder of files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::meshery::{Conflict, Gathering};
use super::{Form, Registry, form};
use crate::document::{self, Limits, Map, Node, Text, Value};

/// Why a registry cannot be read. Every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be opened.
    #[error("cannot read {path}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is neither JSON nor YAML.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// An entry is wrong by itself.
    #[error("{path}: {source}")]
    Entry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: super::Error,
    },
    /// It holds nothing of a registry.
    #[error(
        "{path} holds no registry: neither the fields of switchyard.v1.Registry nor Meshery's connections, models or \
         components"
    )]
    NoRegistry {
        /// The file or folder.
        path: PathBuf,
    },
    /// It holds entries, and none of them can be read.
    #[error(
        "{path} holds entries of a registry, and none of them is in the form of switchyard.v1.Registry or of Meshery's connections, \
         models or components"
    )]
    NoEntry {
        /// The file.
        path: PathBuf,
    },
    /// Two files name a default.
    #[error("{path} names a second `default_registrant`; keep one")]
    SecondDefault {
        /// The file.
        path: PathBuf,
    },
    /// Entries do not go together.
    #[error("{path}: {source}")]
    Together {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: super::Error,
    },
    /// Meshery's documents contradict each other.
    #[error("{path}: {source}")]
    Conflict {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: Conflict,
    },
}

/// A registry as it was read.
#[derive(Debug)]
pub struct Read {
    /// The registry.
    pub registry: Registry,
    /// Files of a folder that hold nothing of a registry.
    pub skipped: Vec<PathBuf>,
}

/// What tells one version of a file or folder from another: cheap enough to be taken every second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Vec<(PathBuf, u64, u64, i64, i64)>);

/// One file of a registry is larger than this only by mistake.
const LIMITS: Limits = Limits::for_bytes(256 << 20);

/// Reads the registry at `path`.
pub fn read(path: &Path) -> Result<Read, Error> {
    let files = files(path)?;
    let folder = files.len() != 1 || files[0] != path;
    let mut whole = Form::default();
    let mut gathering = Gathering::default();
    let mut skipped = Vec::new();
    let mut any = false;
    for file in files {
        let text = fs::read(&file).map_err(|source| Error::Read { path: file.clone(), source })?;
        let text = String::from_utf8(text)
            .map_err(|_| Error::Syntax { path: file.clone(), message: "it is no UTF-8 text".into() })?;
        let text = Text::new(&text);
        let (node, mut problems) = document::read(text, &LIMITS);
        crate::problem::settle(&mut problems, Some(&text));
        if let Some(problem) = problems.first() {
            return Err(Error::Syntax { path: file, message: problem.to_string() });
        }
        match node {
            Some(Node { value: Value::Map(map), .. }) if is_form(&map) => {
                any = true;
                let form = form::read(&map).map_err(|source| Error::Entry { path: file.clone(), source })?;
                whole.registrants.extend(form.registrants);
                whole.models.extend(form.models);
                if !form.default_registrant.is_empty() {
                    if !whole.default_registrant.is_empty() {
                        return Err(Error::SecondDefault { path: file });
                    }
                    whole.default_registrant = form.default_registrant;
                }
            }
            Some(node) => {
                let before = gathering.understood();
                match gathering.take(&node) {
                    // A registry that is emptied by mistake would route everything elsewhere, and nobody would be told (case 298).
                    true if gathering.understood() == before && holds_entries(&node) => {
                        return Err(Error::NoEntry { path: file });
                    }
                    true => any = true,
                    false => skipped.push(file),
                }
            }
            None => skipped.push(file),
        }
    }
    if !any && !folder {
        return Err(Error::NoRegistry { path: path.into() });
    }
    let registry = Registry::from_form(whole, None).map_err(|source| Error::Together { path: path.into(), source })?;
    let registry = gathering.into_registry(registry).map_err(|source| Error::Conflict { path: path.into(), source })?;
    Ok(Read { registry, skipped })
}

/// The version that lies at `path` now.
pub fn stamp(path: &Path) -> Result<Stamp, Error> {
    let stamps = files(path)?.into_iter().map(|file| match fs::metadata(&file) {
        Ok(data) => {
            Ok((file, data.ino(), data.len(), data.mtime_nsec() + data.mtime() * 1_000_000_000, data.ctime_nsec()))
        }
        Err(source) => Err(Error::Read { path: file, source }),
    });
    stamps.collect::<Result<_, _>>().map(Stamp)
}

/// The file itself, or the JSON and YAML files of a folder in the order of their names. Names that start with a dot are
/// left out: Kubernetes mounts a ConfigMap with such folders beside links to what they hold.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    if !fs::metadata(path).map_err(fail(path))?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(fail(&folder))? {
            let path = entry.map_err(fail(&folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let data = fs::metadata(&path).map_err(fail(&path))?;
            let link = fs::symlink_metadata(&path).is_ok_and(|data| data.is_symlink());
            if data.is_dir() && !link {
                folders.push(path);
            } else if data.is_file() && [".json", ".yaml", ".yml"].iter().any(|end| name.ends_with(end)) {
                files.push(path);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Whether a document is meant as the JSON form, rather than as a list that Meshery's REST API answers. The latter has page
/// numbers around it, or entries that hold what only Meshery's do: judged by the values, since a stray key in our own form is a
/// mistake that has to be named.
fn is_form(map: &Map<'_>) -> bool {
    let has = |key: &str| map.get(key).is_some();
    let form = ["registrants", "models", "default_registrant", "defaultRegistrant"].iter().any(|key| has(key));
    let paged = ["page", "pageSize", "page_size", "totalCount", "total_count"].iter().any(|key| has(key));
    let entries = ["registrants", "models"].iter().filter_map(|key| map.get(key)?.as_list()).flatten();
    form && !paged && !entries.filter_map(Node::as_map).any(is_mesherys)
}

fn is_mesherys(entry: &Map<'_>) -> bool {
    let text = |key: &str| entry.get(key).and_then(Node::as_str).unwrap_or_default();
    let is_map = |key: &str| entry.get(key).is_some_and(|node| node.as_map().is_some());
    let described = !text("status").is_empty() || is_map("metadata") || is_map("summary");
    is_map("registrant") || text("schemaVersion").contains(".meshery.io/") || (!text("id").is_empty() && described)
}

/// Whether a document lists anything.
fn holds_entries(node: &Node<'_>) -> bool {
    let list = |node: &Node<'_>| node.as_list().is_some_and(|list| !list.is_empty());
    let lists = ["registrants", "models", "components"];
    list(node) || node.as_map().is_some_and(|map| lists.iter().any(|key| map.get(key).is_some_and(list)))
}
