//! `keyholder man`: the manual, made from the same definitions as the command line itself.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::exit::Exit;
use super::{Cli, screen};

/// Print the manual page, or write one for each command into a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder man | man -l -\n  keyholder man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Where to write all pages [default: print the main one]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

const FILES: [(&str, &str); 10] = [
    (
        "/etc/keyholder/fleet.yaml",
        "the fleet: nodes, workers, who watches whom, who may do what; the same on every node",
    ),
    (
        "/etc/keyholder/catalog_NODE.yaml",
        "what a node may be asked to do; obeyed only if nobody but root can write it",
    ),
    (
        "/etc/keyholder/alert",
        "a program of root's that is run outside root for each alert, with the record as JSON on its standard input",
    ),
    ("/etc/keyholder/node", "what the fleet file calls this host; install.sh writes it"),
    ("/etc/keyholder/key.pem", "this node's private key; mode 0600, never leaves the host"),
    ("/etc/keyholder/task.pem", "the key that signs tasks, where they are given; mode 0600"),
    (
        "/etc/keyholder/supervise.env, lane-write.env, lane-read.env",
        "KEYHOLDER_REDIS=URL with a user and a password, for the detectors and the lanes; mode 0600",
    ),
    ("/var/lib/keyholder/", "the supervisor's state: counters, holds, quarantines and the audit trail"),
    (
        super::link::SOCKET,
        "where the supervisor answers the command line: root may act, group keyholder may look",
    ),
    (
        "keyholder.socket, keyholder.service",
        "the units: PID 1 holds the sockets, so a knock starts even a dead supervisor",
    ),
];

const MAIN_EXAMPLES: &str = "keyholder status                        is all well? 3 if not
keyholder explain mars/agent            what is seen, what is done, and why
keyholder relaunch mars/agent --why \"its queue does not drain\"
keyholder hold mars/write --for 30m --why deploy
keyholder release mars/write
keyholder matrix                        what would be seen and done; UNHANDLED where nothing is
keyholder drill mars/agent --class dead
keyholder events --last 0
keyholder audit -n 50
keyholder run mars host.memory --prove
keyholder queue mars
keyholder doctor";

/// Carries it out.
///
/// # Errors
/// An output that cannot be written.
pub fn run(args: ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    match args.dir {
        None => {
            screen::print(&page(&command)?)?;
        }
        Some(dir) => {
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let mut pages = Vec::new();
            all(&command, &mut pages)?;
            for (name, page) in pages {
                let file = dir.join(name);
                fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
    }
    Ok(Exit::Ok.into())
}

/// The pages of a command and all below it, with their file names.
fn all(command: &Command, pages: &mut Vec<(String, String)>) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    pages.push((format!("{name}.1"), page(command)?));
    // clap's own `help` says nothing that the pages do not say.
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        all(below, pages)?;
    }
    Ok(())
}

/// One page.
fn page(command: &Command) -> anyhow::Result<String> {
    let main = command.get_display_name().is_none_or(|name| name == "keyholder");
    let shown = command.clone();
    let has_help = shown.find_subcommand("help").is_some();
    let shown = if has_help { shown.mut_subcommand("help", |help| help.hide(true)) } else { shown };
    let man = Man::new(shown).source(format!("keyholder {}", env!("CARGO_PKG_VERSION"))).manual("keyholder");
    let mut bytes = Vec::new();
    man.render_title(&mut bytes)?;
    man.render_name_section(&mut bytes)?;
    man.render_synopsis_section(&mut bytes)?;
    man.render_description_section(&mut bytes)?;
    man.render_options_section(&mut bytes)?;
    if command.get_subcommands().next().is_some() {
        man.render_subcommands_section(&mut bytes)?;
    }
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        roff.control("TP", ["4"]).text([bold(exit.code().to_string())]).text([roman(exit.meaning())]);
    }
    if main {
        roff.control("SH", ["FILES"]);
        for (file, what) in FILES {
            roff.control("TP", []).text([bold(file)]).text([roman(what)]);
        }
    }
    let examples = examples(command, main);
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            roff.text([roman(line.trim_start())]);
        }
        roff.control("fi", []);
    }
    if !main {
        roff.control("SH", ["SEE ALSO"]).text([bold("keyholder"), roman("(1)")]);
    }
    roff.to_writer(&mut bytes)?;
    Ok(String::from_utf8(bytes)?)
}

/// The examples that a command's help ends with, without their heading.
fn examples(command: &Command, main: bool) -> String {
    if main {
        return MAIN_EXAMPLES.to_owned();
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    help.lines().skip(1).collect::<Vec<_>>().join("\n")
}
