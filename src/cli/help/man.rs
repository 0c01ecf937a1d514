//! The manual page: one page for all commands, from the table of `--help`.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::help::{self, About};
use crate::error::ErrorReason;

/// The page `inrush(1)`, as roff.
#[must_use]
pub fn man() -> Vec<u8> {
    let mut command = crate::cli::command();
    command.build();
    let whole = Man::new(command.clone()).manual("User Commands").date("");
    let mut page = Page::default();
    page.part(|out| whole.render_title(out));
    page.part(|out| whole.render_name_section(out));
    page.heading("SYNOPSIS");
    for child in command.get_subcommands() {
        let usage = child.clone().render_usage().to_string();
        for form in usage.trim_start_matches("Usage:").lines() {
            page.roff(|roff| roff.text([roman(form.trim())]).control("br", []));
        }
    }
    page.part(|out| whole.render_description_section(out));
    for about in &help::COMMANDS {
        let child = command.find_subcommand(about.name).expect("the words are about commands");
        page.command(about, child);
    }
    page.heading("GLOBS");
    page.table(help::GLOBS.map(|(glob, what)| (glob.to_owned(), what)));
    page.paragraph(help::FILTERS);
    page.heading("ENVIRONMENT");
    page.table(help::VARIABLES.map(|(name, what)| (name.to_owned(), what)));
    page.paragraph(help::CREDENTIALS);
    page.heading("EXIT STATUS");
    page.table(help::exit_codes().map(|(code, what)| (code.to_string(), what)));
    page.paragraph(help::ERROR_KINDS);
    page.table(ErrorReason::ALL.map(|reason| (reason.name().to_owned(), reason.meaning())));
    page.text.into_bytes()
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Appends rendered text, without the preamble that each rendering repeats.
    fn part(&mut self, render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let part = rendered(render);
        let preamble = rendered(|out| Roff::new().to_writer(out));
        let rest = part.strip_prefix(&preamble).unwrap_or(&part);
        self.text += if self.text.is_empty() { &part } else { rest };
    }

    /// Appends rendered text with its section headings one level down.
    fn shifted(&mut self, render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let from = self.text.len();
        self.part(render);
        let section = self.text.split_off(from);
        self.text += &section.replace("\n.SH ", "\n.SS ").replacen(".SH ", ".SS ", 1);
    }

    fn roff(&mut self, write: impl FnOnce(&mut Roff) -> &mut Roff) {
        self.part(|out| {
            let mut roff = Roff::new();
            write(&mut roff).to_writer(out)
        });
    }

    fn heading(&mut self, name: &str) {
        self.roff(|roff| roff.control("SH", [name]));
    }

    fn paragraph(&mut self, text: &str) {
        self.roff(|roff| roff.control("PP", []).text([roman(text)]));
    }

    fn table<S: Into<String>>(&mut self, rows: impl IntoIterator<Item = (String, S)>) {
        for (name, meaning) in rows {
            self.roff(|roff| roff.control("TP", []).text([bold(name)]).text([roman(meaning)]));
        }
    }

    fn command(&mut self, about: &About, command: &clap::Command) {
        let name = format!("{} {}", help::NAME, about.name);
        self.heading(&name.to_uppercase());
        if let Some(line) = command.get_about() {
            self.roff(|roff| roff.text([roman(line.to_string())]));
        }
        about.details.split("\n\n").filter(|text| !text.is_empty()).for_each(|text| {
            self.paragraph(text);
        });
        let operands = about.operands.iter();
        self.table(operands.map(|(name, lines)| ((*name).to_owned(), lines.join(" "))));
        let man = Man::new(command.clone());
        self.shifted(|out| man.render_options_section(out));
        self.roff(|roff| roff.control("SS", ["EXAMPLES"]));
        self.table(about.examples.iter().map(|(what, typed)| ((*typed).to_owned(), *what)));
    }
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).expect("memory takes all bytes");
    String::from_utf8(out).expect("the table is UTF-8")
}
