//! Results as Markdown that can be read in a terminal too.

use std::fmt::Write as _;

/// A table whose first column is text and whose others are figures.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins with the head.
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|&text| text.to_owned()).collect()] }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes it as Markdown.
    pub(super) fn markdown(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") };
                write!(out, "| {cell} ").expect("a string grows as needed");
            }
            out.push_str("|\n");
            if index == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let end = if column == 0 { "-" } else { ":" };
                    write!(out, "|{}{end}", "-".repeat(width + 1)).expect("a string grows as needed");
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["who", "rate"]);
        table.row(["floor".to_owned(), "1500".to_owned()]);
        assert_eq!(table.markdown(), "| who   | rate |\n|-------|-----:|\n| floor | 1500 |\n");
    }
}
