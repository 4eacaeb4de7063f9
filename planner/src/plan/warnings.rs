//! Warnings as they are found, bounded: they travel in one message, the header.

use super::{Code, Warning};
use crate::document::{At, Text};

/// Warnings as they are found. Beyond [`Self::MOST`] and [`Self::MOST_BYTES`] they are counted and not told.
#[derive(Default)]
pub(super) struct Warnings {
    kept: Vec<Warning>,
    bytes: usize,
    left_out: usize,
}

impl Warnings {
    const MOST: usize = 1_000;
    const MOST_BYTES: usize = 1 << 20;

    /// Adds a warning, which is made only if it is to be kept.
    pub(super) fn add(&mut self, warning: impl FnOnce() -> Warning) {
        if self.kept.len() == Self::MOST || self.bytes > Self::MOST_BYTES {
            self.left_out += 1;
            return;
        }
        let warning = warning();
        self.bytes += warning.component.len() + warning.field.len() + warning.message.len();
        self.kept.push(warning);
    }

    /// Counts warnings that nobody made.
    pub(super) fn leave_out(&mut self, more: usize) {
        self.left_out += more;
    }

    /// The warnings in document order, with line and column when the document is text, and at the end how many are not told.
    pub(super) fn told(self, text: Option<&Text<'_>>) -> Vec<Warning> {
        let Self { kept: mut warnings, left_out, .. } = self;
        warnings.sort_by_key(|warning| warning.at);
        if let Some(text) = text {
            let mut places = text.places();
            for warning in warnings.iter_mut().filter(|warning| warning.at != At::START) {
                warning.place = Some(places.find(warning.at));
            }
        }
        if left_out > 0 {
            warnings.push(Warning::of_design("", Code::MoreWarnings, format!("{left_out} more warnings are not told")));
        }
        warnings
    }
}
