//! The table of a catalog's actions.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};

use crate::catalog::{Action, Catalog, Param};
use crate::vocabulary::human;

const HEADER: [&str; 6] = ["ACTION", "MODE", "PARAMETERS", "TIMEOUT", "RATE", "NOTES"];

/// One row per action, what it does below it. Values that do not fit are counted.
pub(super) fn table(catalog: &Catalog, width: u16) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(HEADER);
    for (name, action) in &catalog.actions {
        let rate = action.rate.map(|rate| format!("{} in {}", rate.at_most, human(rate.per)));
        table.add_row(Row::from([
            name.to_string(),
            action.mode.to_string(),
            params(action),
            human(action.timeout),
            rate.unwrap_or_else(|| "-".to_owned()),
            notes(action),
        ]));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    text.push_str(head.trim_end());
    text.push('\n');
    for (line, action) in lines.zip(catalog.actions.values()) {
        text.push_str(line.trim_end());
        text.push('\n');
        for words in wrapped(&action.description, usize::from(width).saturating_sub(4)) {
            text.push_str(&format!("    {words}\n"));
        }
    }
    text
}

fn params(action: &Action) -> String {
    let params: Vec<String> = action
        .params
        .iter()
        .map(|(name, param)| match param {
            Param::Enum(values) if values.len() == 1 => format!("{name}={param}"),
            Param::Enum(values) => format!("{name} (one of {})", values.len()),
            Param::Int { min, max } => format!("{name} ({min} to {max})"),
        })
        .collect();
    if params.is_empty() { "-".to_owned() } else { params.join(", ") }
}

fn notes(action: &Action) -> String {
    let notes = [
        (action.approval, "approval required"),
        (action.idempotent, "idempotent"),
        (action.only_here, "only here"),
        (action.sudo_command().is_some(), "sudo"),
    ];
    notes.iter().filter(|(is, _)| *is).map(|(_, note)| *note).collect::<Vec<_>>().join(", ")
}

/// Lines of at most `width` characters, broken at blanks; text without blanks is not broken.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}
