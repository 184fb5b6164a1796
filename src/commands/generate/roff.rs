//! The little of the manual's markup that the hand-made pages need.

/// A page that grows.
pub(super) struct Page(String);

impl Page {
    /// Begins one: its name, section and what it is.
    pub(super) fn new(name: &str, section: u8, what: &str) -> Self {
        let version = concat!("shardvisor ", env!("CARGO_PKG_VERSION"));
        let mut page = Self(format!(".TH \"{}\" \"{section}\" \"\" \"{version}\"\n", escaped(name)));
        page.section("NAME");
        page.text(&format!("{name} - {what}"));
        page
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0.push_str(&format!(".SH {title}\n"));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.0.push_str(&format!(".SS {title}\n"));
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&format!(".PP\n{}\n", escaped(text)));
    }

    /// A term, and what it means.
    pub(super) fn term(&mut self, term: &str, meaning: &str) {
        self.0.push_str(&format!(".TP\n.B {}\n{}\n", escaped(term), escaped(meaning)));
    }

    /// Lines as they are.
    pub(super) fn example(&mut self, lines: &str) {
        self.0.push_str(&format!(".PP\n.nf\n.RS 4\n{}\n.RE\n.fi\n", escaped(lines)));
    }

    pub(super) fn done(self) -> String {
        self.0
    }
}

/// Text that is taken as it is: no letter of it is markup, and code is not shown with typographic dashes.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    let lines = text.lines().map(|line| {
        let control = line.starts_with(['.', '\'']);
        if control { format!("\\&{line}") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n")
}
