//! `ARCHITECTURE.md` is drawn as the code is: which module may know which is read from the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::visit::{self, Visit};

const CRATES: [&str; 3] = ["planner", "executor", "service"];

/// By module (`planner::plan`), the modules of the same crate that it knows.
type Known = BTreeMap<String, BTreeSet<String>>;

/// What a file of a module names of its crate, outside of tests.
struct Names<'a> {
    /// Modules of the crate.
    modules: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Names<'_> {
    fn note(&mut self, name: &syn::Ident) {
        let name = name.to_string();
        if self.modules.contains(&name) {
            self.found.insert(name);
        }
    }

    fn tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.note(&path.ident),
            syn::UseTree::Name(name) => self.note(&name.ident),
            syn::UseTree::Rename(rename) => self.note(&rename.ident),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree)),
            syn::UseTree::Glob(_) => panic!("a module does not take everything of its crate"),
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|what| what == "test")
    })
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && path.ident == "crate"
            && !is_for_tests(&item.attrs)
        {
            self.tree(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|first| first.ident == "crate")
            && let Some(second) = segments.next()
        {
            self.note(&second.ident);
        }
        visit::visit_path(self, path);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The source files below a folder, but for those that are all tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_owned();
        if stem == "tests" || stem == "load" {
            continue;
        }
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// What each module of a crate knows.
fn known(krate: &str) -> Known {
    let folder = root().join(krate).join("src");
    let module = |file: &Path| {
        let first = file.strip_prefix(&folder).unwrap().components().next().unwrap();
        Path::new(first.as_os_str()).file_stem().unwrap().to_str().unwrap().to_owned()
    };
    let files: Vec<_> = sources(&folder).into_iter().map(|file| (module(&file), file)).collect();
    let modules: BTreeSet<String> =
        files.iter().map(|(module, _)| module.clone()).filter(|module| module != "lib" && module != "main").collect();
    let mut known: Known = modules.iter().map(|module| (format!("{krate}::{module}"), BTreeSet::new())).collect();
    for (module, file) in files.iter().filter(|(module, _)| modules.contains(module)) {
        let mut names = Names { modules: &modules, found: BTreeSet::new() };
        names.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
        names.found.remove(module);
        known.get_mut(&format!("{krate}::{module}")).unwrap().extend(names.found);
    }
    known
}

/// What the page says of each module: the texts in backticks of the first and of the last column.
fn drawn() -> Known {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows = page.lines().filter(|line| CRATES.iter().any(|krate| line.starts_with(&format!("| `{krate}::"))));
    let cells = rows.map(|row| row.trim_matches(|c| c == '|' || c == ' ').split(" | ").collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [module, _, knows] = cells[..] else { panic!("a row has three cells: {cells:?}") };
            (quoted(module).remove(0), quoted(knows).into_iter().collect())
        })
        .collect()
}

#[test]
fn each_module_knows_what_the_page_says() {
    let drawn = drawn();
    let found: Known = CRATES.iter().flat_map(|krate| known(krate)).collect();
    let mut wrong = Vec::new();
    for (module, knows) in &found {
        let list =
            |names: &BTreeSet<String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match drawn.get(module) {
            Some(may) if may == knows => {}
            Some(may) => wrong.push(format!("{module} knows {}, and is drawn with {}", list(knows), list(may))),
            None => wrong.push(format!("{module} is not drawn; it knows {}", list(knows))),
        }
    }
    wrong.extend(
        drawn.keys().filter(|module| !found.contains_key(*module)).map(|module| format!("{module} is not there")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_two_modules_know_each_other() {
    for krate in CRATES {
        let known = known(krate);
        // Takes away, again and again, what knows nothing that is left.
        let mut left = known.clone();
        loop {
            let names: BTreeSet<String> =
                left.keys().map(|module| module.rsplit("::").next().unwrap().to_owned()).collect();
            let before = left.len();
            left.retain(|_, knows| knows.iter().any(|other| names.contains(other)));
            if left.len() == before {
                break;
            }
        }
        assert!(left.is_empty(), "these modules of {krate} stand in a cycle, or on one: {left:#?}");
    }
}
