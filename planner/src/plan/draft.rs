//! Each component by itself: set aside or semantic, who carries it out, and whether it can be an object at all.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{BadAddress, Code, SetAside, Warning, Warnings, is_map_or_nothing};
use crate::budget::{Budget, Spent};
use crate::design::{Component, Components, Field, Position, Renamed};
use crate::document::{At, Map, Node, Path, Value};
use crate::manifest::{self, Chosen, Identity, Rule};
use crate::problem::{Kind, Problem, Problems, quoted, shortened};
use crate::registry::{Chart, Found, Layers, NearMisses, Protocol, Registrant};
use crate::route::{self, Route, Unusable};

/// A semantic component on its way to a step.
pub(super) struct Draft<'t, 'r> {
    pub(super) component: Component<'t>,
    /// Whether it has a `displayName`, which is what others may depend on (S9), and not just the name of its object.
    pub(super) displayed: bool,
    /// The name of its object.
    pub(super) name: Cow<'t, str>,
    /// The namespace of its object; none for kinds known to have none.
    pub(super) namespace: Option<Cow<'t, str>>,
    pub(super) route: Route,
    /// Boxed, because hardly any draft has one and all are moved about.
    pub(super) unusable: Option<Box<Unusable>>,
    pub(super) registrant: Option<&'r Registrant>,
    pub(super) chart: Option<&'r Chart>,
}

/// A drawing, as far as others may refer to it.
pub(super) struct Drawing {
    pub(super) position: Option<String>,
}

/// All components of a design.
#[derive(Default)]
pub(super) struct Drafts<'t, 'r> {
    pub(super) semantic: Vec<Draft<'t, 'r>>,
    pub(super) set_aside: Vec<SetAside>,
    /// Beside `set_aside`, in the same order.
    pub(super) drawings: Vec<Drawing>,
}

/// What a component takes on its way to a step of the answer, apart from its object and the edges that lead to it: itself,
/// its places in the tables of ids, names and objects, its step, and the step as a message.
const COMPONENT: usize = 2_500;
/// What a drawing takes.
const DRAWING: usize = 600;
/// What an entry of the list of components takes, whatever it is: its place in the table of ids.
const ENTRY: usize = 200;
/// What an entry of a `dependsOn` takes, apart from the id in the answer: itself, and in each of a few graphs an edge.
const DEPENDENCY: usize = size_of::<crate::design::Dependency<'static>>() + 64;

impl<'t, 'r> Drafts<'t, 'r> {
    /// Takes every component in, and reports what is wrong with each by itself and with its identity.
    pub(super) fn take(
        &mut self,
        mut components: Components<'t>,
        registries: Layers<'r>,
        default_namespace: &'t str,
        problems: &mut Problems,
        warnings: &mut Warnings,
        budget: &Budget,
    ) -> Result<(), Spent> {
        // A field that could not be read has been reported; that it is missing as well needs no word.
        let unread: HashSet<String> = problems.kept().iter().map(|problem| problem.field.clone()).collect();
        budget.spend(components.left().saturating_mul(ENTRY))?;
        let mut near = registries.near_misses();
        let mut ids: HashMap<Cow<'t, str>, (Cow<'t, str>, At)> = HashMap::with_capacity(components.left());
        // Told once it is known which of them are copies.
        let mut twins: Vec<(usize, Problem)> = Vec::new();
        loop {
            let told = problems.kept().len();
            let Some(mut component) = components.next(problems) else { break };
            let mut twin = None;
            match ids.entry(component.id.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert((component.name.clone(), component.at(Field::Id)));
                }
                Entry::Occupied(entry) => {
                    let (name, at) = entry.get();
                    let message = format!("has the same id as component {}; ids must be unique", quoted(name));
                    budget.spend(2 * size_of::<Problem>() + 500)?;
                    twin = Some(component.problem(Kind::DuplicateId, Field::Id, message).repeats(*at));
                }
            }
            let found = registries.find(&component.model, &component.model_version);
            if component.annotation || found.model.is_some_and(|model| model.is_annotation) {
                budget.spend(DRAWING)?;
                twin.into_iter().for_each(|problem| problems.push(problem));
                let Component { id, name, kind, position, .. } = component;
                self.drawings.push(Drawing { position: position.key().map(str::to_owned) });
                self.set_aside.push(SetAside { id: id.into(), name: name.into(), kind: kind.into() });
                continue;
            }
            twins.extend(twin.map(|problem| (self.semantic.len(), problem)));
            let chart = found.model.and_then(|model| model.chart.as_ref());
            let named = found.registrant.map_or(0, Registrant::bytes) + chart.map_or(0, Chart::bytes);
            budget.spend(COMPONENT + component.depends_on.len() * DEPENDENCY + 2 * named)?;
            if self.semantic.capacity() == 0 {
                // Once it is clear that there is room for at least one: exact, so that nothing is moved about.
                self.semantic.reserve_exact(components.left() + 1);
            }
            let displayed = !component.name.is_empty();
            let mut check = Check {
                component: &mut component,
                unread: &unread,
                told,
                near: &mut near,
                problems: &mut *problems,
                warnings: &mut *warnings,
            };
            let (name, namespace, route, unusable) = check.draft(found, default_namespace);
            let unusable = unusable.map(Box::new);
            let registrant = found.registrant;
            if route == Route::Direct {
                // Only adapters get what is not said elsewhere. It is most of a design, so it goes at once.
                component.rest = Map::default();
            }
            self.semantic.push(Draft { component, displayed, name, namespace, route, unusable, registrant, chart });
        }
        drop(ids);
        self.scopes();
        let copies = self.same_objects(problems, warnings);
        let told = twins.into_iter().filter(|(index, _)| !copies.contains(index));
        told.for_each(|(_, problem)| problems.push(problem));
        budget.check()
    }

    /// Objects of kinds that the design itself defines as having no namespace have none.
    fn scopes(&mut self) {
        let defined = |Draft { component, .. }: &Draft<'_, '_>| {
            let Component { kind, api_version, configuration, .. } = component;
            if kind != "CustomResourceDefinition" || manifest::group(api_version) != "apiextensions.k8s.io" {
                return None;
            }
            let spec = configuration.get("spec")?;
            let text = |keys: &[&str]| spec.get(keys).and_then(Node::as_str);
            (text(&["scope"])? == "Cluster")
                .then_some((text(&["group"])?.to_owned(), text(&["names", "kind"])?.to_owned()))
        };
        let mut kinds: HashMap<String, HashSet<String>> = HashMap::new();
        for (group, kind) in self.semantic.iter().filter_map(defined) {
            kinds.entry(group).or_default().insert(kind);
        }
        if kinds.is_empty() {
            return;
        }
        for Draft { component: Component { kind, api_version, .. }, namespace, .. } in &mut self.semantic {
            if kinds.get(manifest::group(api_version)).is_some_and(|kinds| kinds.contains(kind.as_ref())) {
                *namespace = None;
            }
        }
    }

    /// Components that mean one object (D15): copies become one step, others are refused. Answers which are gone.
    fn same_objects(&mut self, problems: &mut Problems, warnings: &mut Warnings) -> HashSet<usize> {
        let mut seen: HashMap<Identity<'_>, &Draft<'_, '_>> = HashMap::with_capacity(self.semantic.len());
        let mut copies = HashSet::new();
        for (index, draft) in self.semantic.iter().enumerate() {
            let Some(identity) = draft.identity() else { continue };
            let mut entry = match seen.entry(identity) {
                Entry::Vacant(entry) => {
                    entry.insert(draft);
                    continue;
                }
                Entry::Occupied(entry) => entry,
            };
            let first = *entry.get_mut();
            if draft.is_copy_of(first) {
                copies.insert(index);
                warnings.add(|| draft.copy_of(&first.component));
            } else {
                problems.add(|| draft.same_object_as(&first.component, entry.key()));
            }
        }
        drop(seen);
        if !copies.is_empty() {
            let mut index = 0..;
            self.semantic.retain(|_| index.next().is_none_or(|index| !copies.contains(&index)));
        }
        copies
    }

    /// Addresses that cannot be dialled, one for each model that needs one.
    pub(super) fn bad_addresses(&self) -> Vec<BadAddress> {
        // More than these nobody reads, and no status carries.
        const MOST: usize = 1_000;
        let mut bad = BTreeMap::new();
        for draft in &self.semantic {
            if let Some(unusable) = draft.unusable.as_deref() {
                bad.entry((draft.component.model.as_ref(), unusable)).or_insert(());
            }
        }
        let addresses = bad.into_keys().take(MOST);
        addresses.map(|(model, unusable)| BadAddress { model: shortened(model), unusable: unusable.clone() }).collect()
    }

    /// In a dry run an address that cannot be dialled is only worth a word (D21).
    pub(super) fn warn_of_addresses(&self, warnings: &mut Warnings) {
        for draft in &self.semantic {
            let Some(Unusable { registrant, address, why }) = draft.unusable.as_deref() else { continue };
            warnings.add(|| {
                let message = format!(
                    "the address {} of registrant {}, who stands behind model {}, cannot be used: {why}. A run that is \
                     not dry would be refused",
                    quoted(address),
                    quoted(registrant),
                    quoted(&draft.component.model)
                );
                draft.component.warning(Field::Model, Code::AddressUnusable, message)
            });
        }
    }

    /// Charts that nobody can fetch, and components that want one chart in different namespaces: what it has for the whole cluster
    /// is there only once.
    pub(super) fn warn_of_charts(&self, default: &str, warnings: &mut Warnings) {
        let mut wanted: HashMap<&str, BTreeMap<&str, &str>> = HashMap::new();
        for draft in &self.semantic {
            // A namespace of the chart's own is the same for all.
            let is_looked_at = |chart: &&Chart| chart.namespace.is_empty() || chart.url.is_empty();
            let Some(chart) = draft.chart.filter(is_looked_at) else { continue };
            let namespace = draft.namespace.as_deref().unwrap_or(default);
            if chart.url.is_empty() {
                warnings.add(|| {
                    let model = quoted(&draft.component.model);
                    let message = format!(
                        "the registry names no URL for the chart of model {model}, so nothing is installed for it"
                    );
                    draft.component.warning(Field::Model, Code::ChartMissing, message)
                });
                continue;
            }
            let wanted = wanted.entry(&chart.url).or_default();
            if wanted.contains_key(namespace) {
                continue;
            }
            if let Some((first, component)) = wanted.first_key_value() {
                warnings.add(|| {
                let message = format!(
                    "the chart of model {} is wanted in namespace {} by this component, and in namespace {} by {}. If it has \
                     objects for the whole cluster, it is installed in one of them only; name that namespace beside the chart's \
                     URL in the registry",
                    quoted(&draft.component.model),
                    quoted(namespace),
                    quoted(first),
                    quoted(component)
                );
                draft.component.warning(Field::Model, Code::ChartNamespaces, message)
                });
            }
            wanted.insert(namespace, &draft.component.name);
        }
    }
}

impl Draft<'_, '_> {
    /// Whether two components that mean one object say the same of it in everything.
    fn is_copy_of(&self, first: &Self) -> bool {
        let Component { name, kind, api_version, model, model_version, depends_on, configuration, .. } =
            &self.component;
        let other = &first.component;
        let (names, others) = (depends_on.iter().map(|d| &d.name), other.depends_on.iter().map(|d| &d.name));
        // An adapter gets the rest of the entry too, of which a copy has its own id and its own place in the drawing.
        const OWN: [&str; 2] = ["id", "styles"];
        let is_direct = self.route == Route::Direct;
        self.route == first.route
            && (is_direct || self.component.rest.says_the_same_beside(&other.rest, &OWN))
            && (name, kind, api_version, model, model_version)
                == (&other.name, &other.kind, &other.api_version, &other.model, &other.model_version)
            && names.eq(others)
            && configuration.says_the_same_as(&other.configuration)
    }

    fn copy_of(&self, first: &Component<'_>) -> Warning {
        let message = format!("is a copy of component {} in everything; the two are one step", first.id);
        self.component.warning(Field::Name, Code::IdenticalCopy, message)
    }

    fn same_object_as(&self, first: &Component<'_>, Identity { kind, namespace, name, .. }: &Identity<'_>) -> Problem {
        let place = if namespace.is_empty() {
            quoted(name)
        } else {
            format!("{} in namespace {}", quoted(name), quoted(namespace))
        };
        let message = format!(
            "is the same Kubernetes object as component {} ({}): {} {place}; rename one of the two or put it into another \
             namespace",
            quoted(&first.name),
            first.id,
            shortened(kind)
        );
        self.component.problem(Kind::DuplicateObject, Field::Name, message).repeats(first.at(Field::Name))
    }

    fn identity(&self) -> Option<Identity<'_>> {
        let Component { api_version, kind, .. } = &self.component;
        // An adapter's types have no apiVersion and are no objects. What lacks one by mistake means an object all the same:
        // two of them are told now, not when the mistake is gone.
        let object = !api_version.is_empty() || (self.registrant.is_some() && self.route == Route::Direct);
        if !object || kind.is_empty() || self.name.is_empty() {
            return None;
        }
        Some(Identity {
            group: if api_version.is_empty() { "?" } else { manifest::group(api_version) },
            kind,
            namespace: self.namespace.as_deref().unwrap_or_default(),
            name: &self.name,
        })
    }
}

impl Component<'_> {
    fn warning(&self, field: Field, code: Code, message: String) -> Warning {
        self.warning_at(self.path(field), code, message)
    }

    fn warning_at(&self, field: Path, code: Code, message: String) -> Warning {
        Warning { at: self.at, place: None, component: self.id.to_string(), field: field.into(), code, message }
    }
}

/// The checks of one component.
struct Check<'t, 'p, 'r> {
    component: &'p mut Component<'t>,
    /// Fields that were told to be wrong before the components were looked at.
    unread: &'p HashSet<String>,
    /// How many problems there were before this component.
    told: usize,
    near: &'p mut NearMisses<'r>,
    problems: &'p mut Problems,
    warnings: &'p mut Warnings,
}

impl<'t> Check<'t, '_, '_> {
    /// Name, namespace and route of the component's object.
    fn draft(
        &mut self,
        found: Found<'_>,
        default_namespace: &'t str,
    ) -> (Cow<'t, str>, Option<Cow<'t, str>>, Route, Option<Unusable>) {
        if self.component.kind.is_empty() {
            self.missing(Kind::KindMissing, Field::Kind, "has no kind");
        }
        let (route, unusable) = match found.registrant {
            Some(registrant) => Route::to(registrant),
            None => {
                let Self { component, near, problems, .. } = self;
                problems.add(|| {
                    let message = route::no_registrant(near, &component.model, &component.model_version);
                    component.problem(Kind::NoRegistrant, Field::Model, message)
                });
                (Route::Direct, None)
            }
        };
        // Who nobody carries out may have been meant for an adapter, which needs no apiVersion.
        let direct = found.registrant.is_some() && route == Route::Direct;
        self.renamed();
        self.metadata_types();
        self.api_version(direct);
        if direct {
            self.refuse_list();
            self.clean();
        }
        if let Route::Adapter { protocol: Protocol::Auto | Protocol::ProcessOam, .. } = route {
            self.beside_spec();
        }
        let name = self.name(direct);
        let namespace = self.namespace(default_namespace, direct);
        (name, namespace, route, unusable)
    }

    fn report(&mut self, kind: Kind, field: Field, message: impl Into<String>) {
        self.problems.push(self.component.problem(kind, field, message));
    }

    fn missing(&mut self, kind: Kind, field: Field, what: &str) {
        let path = self.component.position.field(field).to_string();
        let unread = self.unread.contains(&path)
            || self.problems.kept()[self.told..].iter().any(|problem| problem.field == path);
        if !unread {
            self.report(kind, field, format!("{what}; give it one in `{path}`"));
        }
    }

    fn warn(&mut self, field: Field, code: Code, message: String) {
        self.warnings.add(|| self.component.warning(field, code, message));
    }

    /// Keys that were put together: right for the fields of Kubernetes, and not for keys that somebody chose.
    fn renamed(&mut self) {
        let Renamed { first, count } = std::mem::take(&mut self.component.renamed);
        let Some((path, _)) = first.first() else { return };
        let pair = |(path, key): &(Path, String)| format!("{} → `{}`", quoted(key), shortened(&path.to_string()));
        let named: Vec<_> = first.iter().map(pair).collect();
        let more = count - first.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message =
            format!("spaces were taken out of keys, as no field of Kubernetes has any: {}{more}", named.join(", "));
        self.warnings.add(|| self.component.warning_at(path.clone(), Code::ValueSuspicious, message));
    }

    /// `metadata`, labels and annotations are maps, or nothing; the namespace is text.
    fn metadata_types(&mut self) {
        let metadata = self.component.configuration.get("metadata");
        let mut wrong: Vec<(Path, At, &'static str, &'static str)> = Vec::new();
        let path = |field| self.component.position.field(field);
        if let Some(node) = metadata.filter(|node| !is_map_or_nothing(Some(node))) {
            wrong.push((path(Field::Configuration).key("metadata"), node.at, node.value.type_name(), "a map"));
        }
        let inner = |key: &str| metadata.and_then(|metadata| metadata.get(&[key]));
        for (key, field) in [("labels", Field::Labels), ("annotations", Field::Annotations)] {
            if let Some(node) = inner(key).filter(|node| !is_map_or_nothing(Some(node))) {
                wrong.push((path(field), node.at, node.value.type_name(), "a map"));
            }
        }
        for key in ["namespace", "name"] {
            let node: Option<&Node<'_>> =
                inner(key).filter(|node| !matches!(node.value, Value::String(_) | Value::Null));
            if let Some(node) = node {
                let field = match key {
                    "namespace" => path(Field::Namespace),
                    _ => path(Field::Configuration).keys(&["metadata", key]),
                };
                wrong.push((field, node.at, node.value.type_name(), "text; put it in quotes"));
            }
        }
        for (path, at, found, wanted) in wrong {
            let message = format!("`{path}` is {found}; it must be {wanted}");
            self.problems.push(Problem::new(Kind::WrongType, path, at, message).of(self.component.subject()));
        }
    }

    fn api_version(&mut self, direct: bool) {
        // Old designs have `/v1` for the core group.
        if let Some(bare) = self.component.api_version.strip_prefix('/') {
            let bare = bare.to_owned();
            let message = format!("{} is read as {}", quoted(&self.component.api_version), quoted(&bare));
            self.warn(Field::ApiVersion, Code::ValueSuspicious, message);
            self.component.api_version = bare.into();
        }
        if !direct {
            return;
        }
        let version = &self.component.api_version;
        if version.starts_with("core.oam.dev/") {
            let message = format!(
                "{} is no version of a Kubernetes kind but what old designs wrote for every component; write the version \
                 of {}, such as apps/v1",
                quoted(version),
                shortened(&self.component.kind)
            );
            self.warn(Field::ApiVersion, Code::ValueSuspicious, message);
            return;
        }
        if version.is_empty() {
            self.missing(Kind::ApiVersionMissing, Field::ApiVersion, "has no apiVersion, which the API server needs");
        } else if !is_api_version(version) {
            let message = format!(
                "{} is no apiVersion; write `version`, such as v1, or `group/version`, such as apps/v1",
                quoted(version)
            );
            self.report(Kind::ApiVersionInvalid, Field::ApiVersion, message);
        } else if let Some(known) = manifest::instead_of(version) {
            let message = format!(
                "{} is no version that any Kubernetes up to 1.37 has served; its group has had {}",
                quoted(version),
                known.join(", ")
            );
            self.warn(Field::ApiVersion, Code::ValueSuspicious, message);
        }
    }

    fn refuse_list(&mut self) {
        let Component { kind, api_version, .. } = &*self.component;
        if manifest::is_list(manifest::group(api_version), kind) {
            let message = format!(
                "{} is a list of objects, which is how an API server answers and nothing that can be applied; make each \
                 item a component of its own",
                shortened(kind)
            );
            self.report(Kind::ListKind, Field::Kind, message);
        }
    }

    fn clean(&mut self) {
        let Component { configuration, api_version, kind, .. } = &mut *self.component;
        let manifest::Cleaned { server_fields, generate_name, suspicious, more } =
            manifest::clean(configuration, api_version, kind);
        if !server_fields.is_empty() {
            let message = format!("dropped what belongs to the API server: {}", server_fields.join(", "));
            self.warn(Field::Configuration, Code::ServerFieldDropped, message);
        }
        if generate_name {
            let message = "`generateName` was dropped: an object that is applied needs a name of its own";
            self.warn(Field::Configuration, Code::GenerateNameDropped, message.into());
        }
        for manifest::Suspicion { path, at, message } in suspicious {
            let path = match (&self.component.position, path.to_string().strip_prefix("metadata.")) {
                // Legacy files have labels and annotations beside the settings.
                (Position::Legacy(_), Some(rest)) if rest.starts_with("labels") || rest.starts_with("annotations") => {
                    self.component.position.path().join(rest)
                }
                (position, _) => position.field(Field::Configuration).join(&path.to_string()),
            };
            // Some are of our making, and stand nowhere.
            let at = if at == At::START { self.component.at } else { at };
            let warning = |component: &Component<'_>| component.warning_at(path, Code::ValueSuspicious, message);
            self.warnings.add(|| Warning { at, ..warning(self.component) });
        }
        self.warnings.leave_out(more);
    }

    /// Adapters that are asked by ProcessOAM make an object of metadata and a spec, and lose what stands beside them. Without a
    /// spec they take all of it as one, which is no loss where a kind has one: only Kubernetes' own kinds are known here.
    fn beside_spec(&mut self) {
        let Component { configuration, api_version, kind, .. } = &*self.component;
        let group = manifest::group(api_version);
        let is_own = !api_version.is_empty() && (!group.contains('.') || group.ends_with(".k8s.io"));
        if configuration.get("spec").is_none() && !is_own {
            return;
        }
        let travels = ["apiVersion", "kind", "metadata", "name", "namespace", "spec", "status"];
        let keys = configuration.iter().map(|entry| entry.key.as_ref()).filter(|key| !travels.contains(key));
        let keys: Vec<_> = keys.map(quoted).take(5).collect();
        if !keys.is_empty() {
            let message = format!(
                "an adapter that is asked by ProcessOAM makes the {kind} of `metadata` and `spec` alone, and loses {}; have \
                 the component applied directly, or its adapter asked by Provision",
                keys.join(", ")
            );
            self.warn(Field::Configuration, Code::ValueSuspicious, message);
        }
    }

    fn name(&mut self, direct: bool) -> Cow<'t, str> {
        let configured = self.component.configuration.get("metadata").and_then(|metadata| metadata.get(&["name"]));
        let configured = match configured.map(|node| &node.value) {
            Some(Value::String(name)) => name.clone(),
            _ => Cow::Borrowed(""),
        };
        let rule = Rule::of(manifest::group(&self.component.api_version), &self.component.kind, |keys| {
            let text = self.component.configuration.get("spec")?.get(keys).and_then(Node::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        });
        let Some(chosen) = manifest::choose(&self.component.name, &configured, &rule) else {
            self.missing(Kind::NameMissing, Field::Name, "has no name");
            return Cow::Borrowed("");
        };
        let warning = match chosen {
            Chosen::Plain(_) => None,
            Chosen::Over(name, other) => Some((
                Code::NameChosen,
                format!(
                    "the object is named {} after the component; {} in the configuration is not used",
                    quoted(name),
                    quoted(other)
                ),
            )),
            Chosen::Doubtful(name) => Some((
                Code::NameNotValid,
                format!(
                    "{} can be no name of a {}, which is {rule}; the API server decides",
                    quoted(name),
                    shortened(&self.component.kind)
                ),
            )),
        };
        let name = if chosen.name() == self.component.name { self.component.name.clone() } else { configured.clone() };
        if let Some((code, message)) = warning.filter(|_| direct) {
            self.warn(Field::Name, code, message);
        }
        if self.component.name.is_empty() {
            self.component.name = name.clone();
        }
        name
    }

    fn namespace(&mut self, default: &'t str, direct: bool) -> Option<Cow<'t, str>> {
        let Component { api_version, kind, .. } = &*self.component;
        if manifest::is_cluster_scoped(manifest::group(api_version), kind) {
            return None;
        }
        let given = manifest::namespace(self.component);
        if let Some(namespace) = given.as_deref().filter(|namespace| direct && !manifest::is_label(namespace)) {
            let message = format!("{} can be no namespace: lower-case letters, digits and `-`", quoted(namespace));
            self.warn(Field::Namespace, Code::ValueSuspicious, message);
        }
        Some(given.unwrap_or(Cow::Borrowed(default)))
    }
}

fn is_api_version(text: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    match text.split_once('/') {
        Some((group, version)) => part(group) && part(version),
        None => part(text),
    }
}
