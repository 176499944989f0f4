//! Help, version, completions and manual pages.

use super::fake::{keyholder, told};

#[test]
fn help_of_everything_that_is_ours() {
    insta::assert_snapshot!("help_keyholder", told(&mut keyholder(&["--help"])));
    for command in [
        "status",
        "explain",
        "relaunch",
        "nudge",
        "repipe",
        "power",
        "hold",
        "release",
        "drill",
        "matrix",
        "events",
        "audit",
        "alert",
        "run",
        "prove",
        "queue",
        "doctor",
        "completions",
        "man",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), told(&mut keyholder(&[command, "--help"])));
    }
    for command in ["catalog", "check", "key"] {
        keyholder(&[command, "--help"]).assert().code(0);
    }
}

/// Where an example was broken into lines nobody can copy it, and the meaning of an exit code would pass for another.
#[test]
fn at_80_columns_neither_examples_nor_exit_codes_are_broken() {
    let page = |command: &str, columns: &str| {
        let output =
            keyholder(&["help"]).args(command.split_whitespace()).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let end = |text: &str| {
        let lines =
            text.lines().skip_while(|line| !line.starts_with("Example") && !line.starts_with("Exit status:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let listed = page("", "100");
    let names =
        listed.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut names: Vec<&str> = names
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 20, "{names:?}");
    names.retain(|name| *name != "help");
    names.extend(["", "catalog sudoers", "key probe"]);
    for name in names {
        assert_eq!(end(&page(name, "80")), end(&page(name, "100")), "{name}");
    }
}

#[test]
fn version_and_usage() {
    let version = format!("keyholder {}\n", env!("CARGO_PKG_VERSION"));
    keyholder(&["--version"]).assert().code(0).stdout(version);
    keyholder(&[]).assert().code(2);
    keyholder(&["relunch"]).assert().code(2);
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = keyholder(&["completions", shell]).assert().code(0).get_output().stdout.clone();
        assert!(String::from_utf8(output).unwrap().contains("relaunch"), "{shell}");
    }
    keyholder(&["completions", "tcsh"]).assert().code(2);
}

#[test]
fn every_command_gets_a_page_with_all_its_sections() {
    let dir = tempfile::tempdir().unwrap();
    keyholder(&["man"]).arg(dir.path()).assert().code(0).stdout("");
    let mut pages: Vec<_> =
        dir.path().read_dir().unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    assert!(pages.contains(&"keyholder.1".to_owned()) && !pages.contains(&"keyholder-help.1".to_owned()));
    let help = keyholder(&["--help"]).assert().code(0).get_output().stdout.clone();
    let help = String::from_utf8(help).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let without: Vec<_> =
        names.filter(|name| *name != "help" && !pages.contains(&format!("keyholder-{name}.1"))).collect();
    assert!(without.is_empty() && pages.len() > 20, "no page for {without:?}");
    for page in pages {
        let text = std::fs::read_to_string(dir.path().join(&page)).unwrap();
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\""];
        let missing: Vec<_> = sections.iter().filter(|name| !text.contains(&format!(".SH {name}"))).collect();
        assert!(missing.is_empty(), "{page}: {missing:?}");
    }
    let main = keyholder(&["man"]).assert().code(0).get_output().stdout.clone();
    let main = String::from_utf8(main).unwrap();
    assert!(
        main.contains(".SH EXAMPLES")
            && main.contains(".SH FILES")
            && main.contains("/etc/keyholder/fleet.yaml"),
        "{main}"
    );
}
