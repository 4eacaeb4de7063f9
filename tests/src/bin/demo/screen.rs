//! What the demo writes: the same words on a terminal and in a pipe, colour and a line in motion on a terminal only.

use std::{
    env, fmt,
    io::{self, IsTerminal as _, Write as _},
};

/// What a piece of text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paint {
    /// Nothing special.
    Plain,
    /// A heading, a name that matters.
    Strong,
    /// Of lesser weight.
    Faint,
    /// It went well.
    Good,
    /// It did not.
    Bad,
    /// It was not attempted, or is to be looked at.
    Wary,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Wary => "33",
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Screen {
    colour: bool,
    terminal: bool,
    /// Whether the last line is one in motion, which the next one replaces.
    moving: bool,
}

impl Screen {
    /// Looks at what standard output is, and at `NO_COLOR` and `TERM`.
    pub(crate) fn new() -> Self {
        let terminal = io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb");
        let colour = terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colour, terminal, moving: false }
    }

    /// Has neither colour nor motion.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colour: false, terminal: false, moving: false }
    }

    /// Returns `text`, painted if there is colour.
    pub(crate) fn paint(&self, paint: Paint, text: impl fmt::Display) -> String {
        match paint {
            Paint::Plain => text.to_string(),
            _ if self.colour => format!("\x1b[{}m{text}\x1b[0m", paint.code()),
            _ => text.to_string(),
        }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        let clear = self.clear();
        let mut out = io::stdout().lock();
        writeln!(out, "{clear}{text}")?;
        out.flush()
    }

    /// Writes lines, indented.
    pub(crate) fn block(&mut self, text: &str) -> io::Result<()> {
        text.lines().try_for_each(|line| self.line(format!("  {line}").trim_end()))
    }

    /// Writes the heading of a chapter.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(Paint::Strong, text);
        self.line(format!("\n{text}"))
    }

    /// Writes that something is done.
    pub(crate) fn done(&mut self, text: impl fmt::Display) -> io::Result<()> {
        let mark = self.paint(Paint::Good, "✓");
        self.line(format!("  {mark} {text}"))
    }

    /// Shows a line for as long as nothing else is written. There is none in a pipe.
    pub(crate) fn moving(&mut self, text: impl fmt::Display) -> io::Result<()> {
        if !self.terminal {
            return Ok(());
        }
        let clear = self.clear();
        self.moving = true;
        let mut out = io::stdout().lock();
        // Without wrapping: of a line that had become two, only the second could be taken away again.
        write!(out, "{clear}\x1b[?7l  {text}\x1b[?7h")?;
        out.flush()
    }

    /// Takes the line in motion away, before others write to the terminal.
    pub(crate) fn clear_away(&mut self) {
        let clear = self.clear();
        // Nobody reading is no reason to fail here: what comes next goes elsewhere.
        write!(io::stdout(), "{clear}").ok();
        io::stdout().flush().ok();
    }

    fn clear(&mut self) -> &'static str {
        if std::mem::take(&mut self.moving) { "\r\x1b[K" } else { "" }
    }
}
