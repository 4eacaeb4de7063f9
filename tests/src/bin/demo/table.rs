//! Tables: columns as wide as what is in them.

use super::screen::{Paint, Screen};

/// A piece of text and what it stands for.
pub(crate) type Cell = (Paint, String);

/// Makes a cell of no special meaning.
pub(crate) fn plain(text: impl Into<String>) -> Cell {
    (Paint::Plain, text.into())
}

/// Rows below a head.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Draws it. The last column is not padded, so nothing trails.
    pub(crate) fn draw(&self, screen: &Screen) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(_, text)| text.chars().count()).chain([self.head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let draw = |cells: &mut dyn Iterator<Item = (Paint, &str)>| {
            let mut line = String::new();
            let mut gap = 0;
            for ((paint, text), width) in cells.zip(&widths) {
                if text.is_empty() {
                    gap += width + 2;
                    continue;
                }
                line.push_str(&" ".repeat(gap));
                line.push_str(&screen.paint(paint, text));
                gap = width - text.chars().count() + 2;
            }
            line.push('\n');
            line
        };
        let mut text = draw(&mut self.head.iter().map(|&name| (Paint::Faint, name)));
        for row in &self.rows {
            text += &draw(&mut row.iter().map(|(paint, text)| (*paint, text.as_str())));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = Table::new(&["a", "long head", "c"]);
        table.row(vec![plain("wide cell"), plain(""), plain("é")]);
        table.row(vec![plain("x"), plain("y"), plain("")]);
        let expected = "a          long head  c\nwide cell             é\nx          y\n";
        assert_eq!(table.draw(&Screen::plain()), expected);
    }
}
