//! The one door through which a text from outside passes before it is said: to a caller, to the log, in a span (D25, cases 138, 140
//! and 231 to 237).
//!
//! API servers, adapters, helm and what answers in their place quote what they were given. Their texts come in as [`Unmasked`],
//! which cannot be printed, and go out as what [`Secrets::render`] makes of it: without the secret values, in whatever spelling,
//! and only then cut to a length that is fit to be passed on.
//!
//! Nothing of this is done where nothing is said: who makes [`Secrets`] does so for a text that is there.

mod dictionary;
pub(crate) mod sources;
mod values;
mod views;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use self::{dictionary::Dictionary, values::Values};

const MASK: &str = "[redacted]";
/// Longest text from outside that is passed on, in bytes.
const LONGEST: usize = 4096;
/// What is read beyond the part that is shown, in bytes: a value that is cut off within it leaves nothing of itself in what is shown.
const MARGIN: usize = 1024;
/// What another component's Secret holds is masked from this length on, in bytes: words such as `admin` are in many Secrets and in
/// many a harmless sentence.
const FOREIGN: usize = 8;
/// What stands in place of a quoted difference.
const NO_DIFF: &str = "[the difference is left out, as it shows values of the object in the cluster]";

/// A text from outside, which may hold anything: it can be looked into, and it can be rendered, and that is all.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Unmasked(String);

impl From<String> for Unmasked {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Unmasked {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Unmasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unmasked({} bytes)", self.0.len())
    }
}

impl Unmasked {
    /// Whether the text holds these words: for whoever has to know what it is about.
    pub(crate) fn contains(&self, words: &str) -> bool {
        self.0.contains(words)
    }

    /// The text, and words of ours behind it.
    pub(crate) fn followed_by(self, words: &str) -> Self {
        Self(self.0 + words)
    }

    /// Whether the text is this one: for words of a closed list.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.0 == word
    }
}

/// Values that must not be said.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    own: Dictionary,
    foreign: Option<Arc<Secrets>>,
}

/// What must not be said in a whole run: the Secrets of its design, which any component may repeat (case 140), and the credentials
/// for its clusters. Read when first asked for: only refusals and warnings need it.
#[derive(Default)]
pub(crate) struct OfDesign {
    manifests: Vec<Bytes>,
    secrets: OnceLock<Arc<Secrets>>,
}

impl OfDesign {
    /// From the manifests of the design's Secrets.
    pub(crate) fn new(manifests: Vec<Bytes>) -> Self {
        Self { manifests, secrets: OnceLock::new() }
    }

    /// What must not be said.
    pub(crate) fn secrets(&self) -> &Arc<Secrets> {
        self.secrets.get_or_init(|| {
            let mut values = Values::default();
            for object in self.manifests.iter().filter_map(|manifest| serde_json::from_slice(manifest).ok()) {
                values.object(&object);
            }
            let mut values = values.into_inner();
            values.retain(|value| value.len() >= FOREIGN);
            Arc::new(Secrets { own: Dictionary::new(values), foreign: None })
        })
    }
}

/// What must not be said of a cluster in a run: the credentials for it, and the Secrets of the design.
pub(crate) struct OfCluster {
    pub(crate) credentials: Secrets,
    pub(crate) design: Arc<OfDesign>,
}

impl OfCluster {
    /// Whatever it is about.
    pub(crate) fn secrets(&self) -> Secrets {
        Secrets { foreign: Some(self.design.secrets().clone()), ..self.credentials.clone() }
    }

    /// Where it is about an object, which is JSON: also what is secret in that.
    pub(crate) fn around(&self, manifest: &[u8]) -> Secrets {
        Secrets::around(manifest, &self.design).and(self.credentials.clone())
    }
}

impl Secrets {
    /// The secret values that may be quoted where it is about `manifest`: its own, and those of the design's Secrets.
    pub(crate) fn around(manifest: &[u8], design: &OfDesign) -> Self {
        let own = serde_json::from_slice(manifest).map(|object| Self::of_value(&object)).unwrap_or_default();
        Self { foreign: Some(design.secrets().clone()), ..own }
    }

    /// The secret values of an object.
    pub(crate) fn of_value(object: &Value) -> Self {
        Self::gathered(|values| values.object(object))
    }

    /// The credentials in a kubeconfig, which is JSON.
    pub(crate) fn of_kubeconfig(kubeconfig: &str) -> Self {
        let kubeconfig = serde_json::from_str(kubeconfig).unwrap_or_default();
        Self::gathered(|values| values.kubeconfig(&kubeconfig))
    }

    /// These values.
    pub(crate) fn of_values<'a>(each: impl IntoIterator<Item = &'a str>) -> Self {
        Self::gathered(|values| each.into_iter().for_each(|value| values.value(value)))
    }

    /// The credentials in a URL.
    pub(crate) fn of_url(url: &str) -> Self {
        Self::gathered(|values| values.url(url))
    }

    /// The secret values of a component in the design's own shape, which is JSON.
    pub(crate) fn of_declaration(declaration: &str) -> Self {
        let Ok(mut declaration) = serde_json::from_str::<Value>(declaration) else { return Self::default() };
        let mut object = declaration["configuration"].take();
        if let Some(object) = object.as_object_mut() {
            object.insert("kind".into(), declaration["component"]["kind"].take());
        }
        Self::of_value(&object)
    }

    /// The values of both.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut values = self.own.into_values();
        values.extend(other.own.into_values());
        Self { own: Dictionary::new(values), foreign: self.foreign.or(other.foreign) }
    }

    fn gathered(gather: impl FnOnce(&mut Values)) -> Self {
        let mut values = Values::default();
        gather(&mut values);
        Self { own: Dictionary::new(values.into_inner()), foreign: None }
    }

    /// What may be said of a text from outside.
    pub(crate) fn render(&self, Unmasked(text): &Unmasked) -> String {
        self.mask_within(without_difference(text.trim()).as_ref(), LONGEST)
    }

    /// What may be said of `text`, in at most `most` bytes.
    pub(crate) fn mask_within(&self, text: &str, most: usize) -> String {
        let window = &text[..floor(text, most.saturating_mul(2).saturating_add(2 * MARGIN))];
        let masked = self.mask(window);
        if window.len() == text.len() {
            return switchyard_service::status::capped(&masked, most);
        }
        // The text goes on, so what stands at the end of what was looked at may be the beginning of a value.
        let kept = &masked[..floor(&masked, masked.len().saturating_sub(MARGIN).min(most))];
        format!("{kept}…")
    }

    /// `text` with every secret value replaced.
    pub(crate) fn mask(&self, text: &str) -> String {
        let dictionaries = [Some(&self.own), self.foreign.as_ref().map(|foreign| &foreign.own)];
        let dictionaries: Vec<_> = dictionaries.into_iter().flatten().filter(|it| !it.is_empty()).collect();
        if dictionaries.is_empty() {
            return text.to_owned();
        }
        let mut ranges = Vec::new();
        for view in views::views(text) {
            for at in 0..view.bytes.len() {
                let span = |length| {
                    let (start, end) = view.range(at, length);
                    end - start
                };
                let lengths = dictionaries.iter().map(|dictionary| dictionary.length(&view.bytes, at, span));
                let length = lengths.max().unwrap_or_default();
                if length > 0 {
                    ranges.push(view.range(at, length));
                }
            }
        }
        without(text, ranges)
    }
}

/// The last place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default()
}

/// `text` with these ranges of bytes replaced, as far as they overlap by one mask.
fn without(text: &str, mut ranges: Vec<(usize, usize)>) -> String {
    ranges.sort_unstable();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut ranges = ranges.into_iter().peekable();
    while let Some((start, mut end)) = ranges.next() {
        while let Some((_, other)) = ranges.next_if(|(start, _)| *start <= end) {
            end = end.max(other);
        }
        out.push_str(&text[at..floor(text, start)]);
        out.push_str(MASK);
        at = (end..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    }
    out.push_str(&text[at..]);
    out
}

/// A refusal without the difference that it quotes (kubernetes/kubernetes#8668): that shows the object as it is in the cluster,
/// whose values nobody here knows.
fn without_difference(text: &str) -> std::borrow::Cow<'_, str> {
    let unified = text.find("@@ ").or_else(|| text.find("@@\n"));
    // As Go's cmp package shows it: lines with a sign and a tabulator.
    let is_signed = |line: &str| {
        let rest = line.strip_prefix(['+', '-']).map(|rest| rest.trim_start_matches([' ', '\u{a0}']));
        rest.is_some_and(|rest| rest.starts_with('\t'))
    };
    let compared = || text.lines().skip(1).any(is_signed).then(|| text.find('\n')).flatten();
    match unified.or_else(compared) {
        None => text.into(),
        Some(at) => format!("{} {NO_DIFF}", text[..at].trim_end()).into(),
    }
}

#[cfg(test)]
mod tests;
