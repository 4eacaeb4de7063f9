//! Requests that say much in few bytes, or ask for much.

use std::fmt::Write as _;

use prost::Message;
use switchyard_proto::v1;

use crate::common::server::of_text;

/// What becomes of a request.
#[derive(Clone, Copy)]
pub(crate) enum Expected {
    /// A plan.
    Planned,
    /// A refusal for this reason, which says this somewhere.
    Refused(&'static str, &'static str),
    /// A plan or a refusal in the contract's terms.
    Anything,
}

use Expected::{Anything, Planned, Refused};

const DESIGN: &str = "DESIGN_INVALID";
const REQUEST: &str = "REQUEST_INVALID";
const COSTLY: &str = "REQUEST_TOO_COSTLY";

type Case = (&'static str, Box<dyn Fn() -> Vec<u8>>, Expected);

fn case(name: &'static str, expected: Expected, text: impl Fn() -> String + 'static) -> Case {
    (name, Box::new(move || of_text(text()).encode_to_vec()), expected)
}

fn raw(name: &'static str, expected: Expected, bytes: impl Fn() -> Vec<u8> + 'static) -> Case {
    (name, Box::new(bytes), expected)
}

/// A field that holds bytes.
pub(crate) fn encoded(number: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 8);
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// A component in JSON, with more of its fields.
fn pod(name: &str, more: &str) -> String {
    object(name, "v1", "Pod", more)
}

fn object(name: &str, version: &str, kind: &str, more: &str) -> String {
    format!(
        "{{\"displayName\":\"{name}\",\"component\":{{\"kind\":\"{kind}\",\"version\":\"{version}\"}},\"model\":\
         {{\"name\":\"kubernetes\"}}{more}}}"
    )
}

fn components(components: impl IntoIterator<Item = String>) -> String {
    let components = components.into_iter().collect::<Vec<_>>().join(",");
    format!("{{\"id\":\"d\",\"name\":\"x\",\"components\":[{components}]}}")
}

/// So many pieces, with commas between.
fn many(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect::<Vec<_>>().join(",")
}

/// What the table of the faults that were seen has, and more of the kind.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = expansion();
    all.extend(order());
    all.extend(answers());
    all.extend(quadratic());
    all.extend(texts());
    all.extend(messages());
    all
}

/// 242: copies that are asked for.
fn expansion() -> Vec<Case> {
    let big = || "x".repeat(1_000_000);
    let with = move |more: String| {
        let component = pod("a", &format!(",\"configuration\":{{{more}}}"));
        format!("{{\"name\":\"x\",\"big\":\"{}\",\"components\":[{component}]}}", big())
    };
    vec![
        case("242: 20,000 references to 1 MB", Refused(DESIGN, "references add more"), move || {
            with(many(20_000, |number| format!("\"k{number}\":\"$(#ref.big)\"")))
        }),
        case("242: 20,000 different references to 1 MB", Refused(DESIGN, "references add more"), move || {
            with(many(20_000, |number| format!("\"k{number}\":\"{number}$(#ref.big)\"")))
        }),
        case("30,000 different references into a map of as many keys", Planned, || {
            let keys = many(30_000, |number| format!("\"k{number}\":\"v\""));
            let references = many(30_000, |number| format!("\"r{number}\":\"$(#ref.m.k{number})\""));
            let component = pod("a", &format!(",\"configuration\":{{{references}}}"));
            format!("{{\"name\":\"x\",\"m\":{{{keys}}},\"components\":[{component}]}}")
        }),
        case("aliases of text that is six times as long in JSON", Refused(COSTLY, "aliases"), || {
            let text = "\\x01".repeat(20_000);
            let uses = many(800, |_| "*t".into());
            let component = "{displayName: a, component: {kind: Pod, version: v1}, model: {name: kubernetes}";
            format!("t: &t \"{text}\"\nname: x\ncomponents:\n- {component}, configuration: {{l: [{uses}]}}}}\n")
        }),
        case("100,000 anchors", Anything, || {
            format!("name: x\ncomponents: []\nl: [{}]\n", many(100_000, |number| format!("&a{number} x")))
        }),
    ]
}

/// 243: order that nobody declared, and cycles.
fn order() -> Vec<Case> {
    let definition = |number: usize| {
        let spec = "{\"group\":\"ex.io\",\"names\":{\"kind\":\"Widget\"}}";
        let name = format!("w{number}.ex.io");
        let more = format!(",\"configuration\":{{\"spec\":{spec}}}");
        object(&name, "apiextensions.k8s.io/v1", "CustomResourceDefinition", &more)
    };
    let long = |number: usize| format!("{number}-{}", "n".repeat(2_000));
    vec![
        case("243: 4,000 definitions of one kind and as many objects", Planned, move || {
            let objects = (0..4_000).map(|number| object(&format!("o{number}"), "ex.io/v1", "Widget", ""));
            components((0..4_000).map(definition).chain(objects))
        }),
        case("243: 4,000 twins of a namespace and as many Pods", Refused(DESIGN, "same Kubernetes object"), || {
            let different = |number| format!(",\"configuration\":{{\"n\":{number}}}");
            let twins = (0..4_000).map(|number| object("shop", "v1", "Namespace", &different(number)));
            let metadata = ",\"configuration\":{\"metadata\":{\"namespace\":\"shop\"}}";
            components(twins.chain((0..4_000).map(|number| pod(&format!("p{number}"), metadata))))
        }),
        case("1,000 cycles of components with long names", Refused(DESIGN, "form a cycle"), move || {
            let pair = |number: usize| {
                let (one, other) = (long(2 * number), long(2 * number + 1));
                let on = |name: &str| format!(",\"metadata\":{{\"dependsOn\":[\"{name}\"]}}");
                [pod(&one, &on(&other)), pod(&other, &on(&one))]
            };
            components((0..1_000).flat_map(pair))
        }),
        case("a dependsOn of 300,000 entries that closes 300 cycles", Refused(DESIGN, "cycle"), || {
            let entries = many(300_000, |number| format!("\"p{}\"", number % 300));
            let others = (0..300).map(|number| pod(&format!("p{number}"), ",\"metadata\":{\"dependsOn\":[\"a\"]}"));
            let all = pod("a", &format!(",\"metadata\":{{\"dependsOn\":[{entries}]}}"));
            components(others.chain([all]))
        }),
        case("300,000 entries of a dependsOn that name nobody", Refused(DESIGN, "no component"), || {
            let entries = many(300_000, |number| format!("\"{number}\""));
            components([pod("a", &format!(",\"metadata\":{{\"dependsOn\":[{entries}]}}"))])
        }),
    ]
}

/// 244: answers that are larger than the question.
fn answers() -> Vec<Case> {
    let clusters = |clusters: usize, pods: usize| {
        let clusters = (0..clusters).map(|number| format!("c{number}")).collect();
        let text = components((0..pods).map(|number| pod(&format!("p{number}"), "")));
        v1::PlanRequest { clusters, ..of_text(text) }.encode_to_vec()
    };
    vec![
        case("244: an id of 500 kB on which 5,000 depend", Refused(DESIGN, "limit for an id"), || {
            let large = pod("a", &format!(",\"id\":\"{}\"", "i".repeat(500_000)));
            let on = ",\"metadata\":{\"dependsOn\":[\"a\"]}";
            components((0..5_000).map(|number| pod(&format!("p{number}"), on)).chain([large]))
        }),
        raw("244: 20,000 clusters", Refused(REQUEST, "the limit is 10000"), move || clusters(20_000, 1)),
        raw("244: 10,000 clusters and 5,000 components", Refused(COSTLY, "fewer clusters"), move || {
            clusters(10_000, 5_000)
        }),
        raw("a registrant with a long name and 5,000 components", Refused(COSTLY, ""), || {
            let name = "r".repeat(500_000);
            let registrant = v1::Registrant { name: name.clone(), ..v1::Registrant::default() };
            let model = v1::Model { name: "kubernetes".into(), registrant: name, ..v1::Model::default() };
            let registry =
                v1::Registry { registrants: vec![registrant], models: vec![model], ..v1::Registry::default() };
            let text = components((0..5_000).map(|number| pod(&format!("p{number}"), "")));
            v1::PlanRequest { registry: Some(registry), ..of_text(text) }.encode_to_vec()
        }),
        case("100,000 drawings", Anything, || {
            let drawings: String = (0..100_000).fold(String::new(), |mut text, number| {
                let _ = writeln!(text, "  d{number}: {{isAnnotation: true}}");
                text
            });
            format!("name: x\nservices:\n{drawings}")
        }),
        case("100,000 components of 26 bytes", Anything, || {
            let services: String = (0..100_000).fold(String::new(), |mut text, number| {
                let _ = writeln!(text, "  s{number}: {{type: P, model: kubernetes, apiVersion: v1}}");
                text
            });
            format!("name: x\nservices:\n{services}")
        }),
        case("a version of 500 kB", Refused(DESIGN, "version has"), || {
            let text = components((0..2_000).map(|number| pod(&format!("p{number}"), "")));
            format!("{{\"version\":\"{}\",{}", "v".repeat(500_000), &text[1..])
        }),
        raw("a chart of 500 kB and 5,000 components", Refused(COSTLY, ""), || {
            let chart = v1::Chart { url: format!("https://{}", "u".repeat(500_000)), ..v1::Chart::default() };
            let registrant = v1::Registrant { name: "r".into(), ..v1::Registrant::default() };
            let model = v1::Model {
                name: "kubernetes".into(),
                registrant: "r".into(),
                chart: Some(chart),
                ..v1::Model::default()
            };
            let registry =
                v1::Registry { registrants: vec![registrant], models: vec![model], ..v1::Registry::default() };
            let text = components((0..5_000).map(|number| pod(&format!("p{number}"), "")));
            v1::PlanRequest { registry: Some(registry), include_dependencies: true, ..of_text(text) }.encode_to_vec()
        }),
    ]
}

/// 245: work that grows faster than the request.
fn quadratic() -> Vec<Case> {
    let models = |models: Vec<v1::Model>, text: String| {
        let registrant = v1::Registrant { name: "r".into(), ..v1::Registrant::default() };
        let registry = v1::Registry { registrants: vec![registrant], models, ..v1::Registry::default() };
        v1::PlanRequest { registry: Some(registry), ..of_text(text) }.encode_to_vec()
    };
    let model =
        |name: String, version: String| v1::Model { name, version, registrant: "r".into(), ..Default::default() };
    vec![
        case("245: 20,000 merge sources over 20,000 keys", Planned, || {
            let keys = many(20_000, |number| format!("k{number}: 0"));
            let sources = many(20_000, |number| format!("{{m{number}: 1}}"));
            format!("name: x\ncomponents: []\nm: {{{keys}, <<: [{sources}]}}\n")
        }),
        case("245: 50,000 keys of stringData", Planned, || {
            let data = many(50_000, |number| format!("\"k{number}\":\"v\""));
            components([object("s", "v1", "Secret", &format!(",\"configuration\":{{\"stringData\":{{{data}}}}}"))])
        }),
        raw(
            "245: 5,000 components of an unknown model beside 20,000 models",
            Refused(DESIGN, "model \"x"),
            move || {
                let listed = (0..20_000).map(|number| model(format!("model-{number}"), String::new())).collect();
                let unknown = |number: usize| pod(&format!("p{number}"), "").replace("\"kubernetes\"", "\"x-unknown\"");
                models(listed, components((0..5_000).map(unknown)))
            },
        ),
        raw("5,000 unknown models beside 20,000 models", Refused(DESIGN, "no registrant"), move || {
            let listed = (0..20_000).map(|number| model(format!("model-{number}"), String::new())).collect();
            let unknown = |number| pod(&format!("p{number}"), "").replace("kubernetes", &format!("modle-{number:04}"));
            models(listed, components((0..5_000).map(unknown)))
        }),
        raw("5,000 components of a model with 20,000 versions", Planned, move || {
            let listed = (0..20_000).map(|number| model("kubernetes".into(), format!("v{number}"))).collect();
            models(listed, components((0..5_000).map(|number| pod(&format!("p{number}"), ""))))
        }),
        case("names too long to be compared, and wrong ones", Refused(DESIGN, "no component"), || {
            let names = (0..5_000).map(|number| pod(&format!("{number}{}", "n".repeat(101)), ""));
            let wrong = many(20_000, |number| format!("\"wrong-{number}\""));
            components(names.chain([pod("a", &format!(",\"metadata\":{{\"dependsOn\":[{wrong}]}}"))]))
        }),
    ]
}

/// Texts of problems and warnings, and documents of nothing but them.
fn texts() -> Vec<Case> {
    let deep = |inner: String| {
        let levels: String = (0..90).map(|level| format!("\"{}{level:02}\":{{", "k".repeat(1_000))).collect();
        components([pod("a", &format!(",\"configuration\":{{{levels}{inner}{}}}", "}".repeat(90)))])
    };
    vec![
        case("200,000 empty components", Refused(COSTLY, ""), || {
            format!("{{\"name\":\"x\",\"components\":[{}]}}", many(200_000, |_| "{}   ".into()))
        }),
        case("150,000 labels that are no text", Planned, || {
            let labels = many(150_000, |number| format!("\"l{number}\":1"));
            components([pod("a", &format!(",\"configuration\":{{\"metadata\":{{\"labels\":{{{labels}}}}}}}"))])
        }),
        case("20,000 dead references below 90 kB of path", Refused(DESIGN, "leads to nothing"), move || {
            deep(many(20_000, |number| format!("\"r{number}\":\"$(#ref.x)\"")))
        }),
        case("1,000 keys given twice below 90 kB of path", Refused(DESIGN, "second time"), move || {
            deep(many(2_000, |number| format!("\"r{}\":1", number / 2)))
        }),
        case("20,000 keys that are one without spaces, below 90 kB of path", Refused(DESIGN, "spaces"), move || {
            deep(many(40_000, |number| format!("\"r{}{}\":1", number / 2, if number % 2 == 0 { "" } else { " " })))
        }),
        case("a number of 1,000,000 digits", Planned, || {
            components([pod("a", &format!(",\"configuration\":{{\"n\":{}}}", "9".repeat(1_000_000)))])
        }),
        case("a hexadecimal number of 1,000,000 digits", Anything, || {
            format!("name: x\ncomponents: []\nn: 0x{}\n", "f".repeat(1_000_000))
        }),
        case("200,000 documents that hold nothing", Anything, || "---\n".repeat(200_000)),
        case("a list of 1,000,000 zeros", Refused(DESIGN, "values"), || {
            format!("{{\"components\":[{}]}}", many(1_000_000, |_| "0".into()))
        }),
        case("300,000 components that are texts", Refused(DESIGN, "must be a map"), || {
            format!("{{\"components\":[{}]}}", many(300_000, |_| "\"abc\"".into()))
        }),
        case("a plain scalar of 300,000 lines", Anything, || {
            format!("name: x\ncomponents: []\nt: a\n{}", "  b\n".repeat(300_000))
        }),
        case("300,000 comments and tags", Anything, || {
            format!("name: x\ncomponents: []\nl:\n{}", "# c\n- !t x\n".repeat(100_000))
        }),
    ]
}

/// Messages that grow when they are decoded.
fn messages() -> Vec<Case> {
    let document = |more: Vec<u8>| {
        let mut bytes = of_text(components([pod("a", "")])).encode_to_vec();
        bytes.extend(more);
        bytes
    };
    vec![
        raw("1,000,000 empty models in 2 MB", Refused(COSTLY, ""), move || {
            document(encoded(6, &encoded(2, &[]).repeat(1_000_000)))
        }),
        raw("1,000,000 empty registrants in 2 MB", Refused(COSTLY, ""), move || {
            document(encoded(6, &encoded(1, &[]).repeat(1_000_000)))
        }),
        raw("1,000,000 clusters without a name in 2 MB", Refused(REQUEST, "the limit is 10000"), move || {
            document(encoded(4, &[]).repeat(1_000_000))
        }),
        raw("200,000 structs of one field in 2 MB", Refused(COSTLY, ""), || {
            let one = encoded(1, &encoded(5, &encoded(1, &[])));
            let list = encoded(6, &one.repeat(200_000));
            let field = [encoded(1, b"components"), encoded(2, &list)].concat();
            encoded(1, &encoded(2, &encoded(1, &field)))
        }),
        raw("structured data 3,000 levels deep", Refused(REQUEST, "cannot be decoded"), || {
            let deep = (0..3_000).fold(Vec::new(), |inner, _| encoded(1, &encoded(6, &inner)));
            let field = [encoded(1, b"a"), encoded(2, &encoded(6, &deep))].concat();
            encoded(1, &encoded(2, &encoded(1, &field)))
        }),
        raw("text that is not UTF-8", Refused(REQUEST, "cannot be decoded"), || {
            encoded(1, &encoded(1, &vec![0xff; 1_000_000]))
        }),
        raw("300,000 registrants of a protocol that is none", Anything, move || {
            document(encoded(6, &encoded(1, &[0x28, 0x63]).repeat(100_000)))
        }),
    ]
}
