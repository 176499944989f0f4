//! `keyholder-supervisor`: what keyholder.service runs. It reads its options, runs the supervisor, and ends with an exit code.
//!
//! A binary of its own: neither the command line nor the lanes are part of what runs as root.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use keyholder::fleet::whoami;
use keyholder::queue::address_from_environment;
use keyholder::supervise::{Setup, supervise};
use keyholder::vocabulary::{printable, with_causes};

const HELP: &str = "\
The supervisor of this node; systemd starts it (keyholder.service) and holds its sockets (keyholder.socket)

Usage: keyholder-supervisor [OPTIONS]

Options:
      --fleet FILE     The fleet file [default: /etc/keyholder/fleet.yaml]
      --key-dir DIR    Where this node's key is [default: /etc/keyholder]
      --state-dir DIR  Where the state is kept [default: /var/lib/keyholder]
      --node NAME      What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
  -h, --help           Print help
  -V, --version        Print version

It runs until SIGTERM or SIGINT; SIGHUP has it read the fleet file again. `keyholder status` shows what it sees.
";

/// What the command line asks for.
enum CommandLine {
    Help,
    Version,
    Run(Options),
}

struct Options {
    fleet: PathBuf,
    key_dir: PathBuf,
    state_dir: PathBuf,
    node: Option<String>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args_os().skip(1)) {
        Ok(CommandLine::Run(options)) => options,
        Ok(CommandLine::Help) => return print(HELP),
        Ok(CommandLine::Version) => {
            return print(concat!("keyholder-supervisor ", env!("CARGO_PKG_VERSION"), "\n"));
        }
        Err(why) => {
            complain(&format!("{why} (--help)"));
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    let node = whoami(options.node.as_deref()).map_err(|error| error.to_string())?;
    let key = options.key_dir.join("key.pem");
    let redis = address_from_environment();
    let setup = Setup { node, fleet: options.fleet, key, state_dir: options.state_dir, redis };
    supervise(setup).map_err(|error| with_causes(&error))
}

/// Options are written as `--fleet FILE` or `--fleet=FILE`.
fn parse(words: impl Iterator<Item = OsString>) -> Result<CommandLine, String> {
    let mut options = Options {
        fleet: PathBuf::from("/etc/keyholder/fleet.yaml"),
        key_dir: PathBuf::from("/etc/keyholder"),
        state_dir: PathBuf::from("/var/lib/keyholder"),
        node: None,
    };
    let mut words =
        words.map(|word| word.into_string().map_err(|word| format!("{} is not UTF-8", word.display())));
    while let Some(word) = words.next().transpose()? {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        match name {
            "-h" | "--help" => return Ok(CommandLine::Help),
            "-V" | "--version" => return Ok(CommandLine::Version),
            "--fleet" | "--key-dir" | "--state-dir" | "--node" => {}
            _ => return Err(format!("unknown option '{word}'")),
        }
        let value = match value {
            Some(value) => value,
            None => words.next().transpose()?.ok_or_else(|| format!("{name} needs a value"))?,
        };
        match name {
            "--fleet" => options.fleet = value.into(),
            "--key-dir" => options.key_dir = value.into(),
            "--state-dir" => options.state_dir = value.into(),
            _ => options.node = Some(value),
        }
    }
    Ok(CommandLine::Run(options))
}

fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    // Help whose reader has gone is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(why: &str) {
    use std::io::Write as _;
    // Without standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "keyholder-supervisor: error: {}", printable(why));
}
