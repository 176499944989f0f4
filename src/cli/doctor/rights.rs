//! Who may do what on this host by our leave: whether the alert hook can be executed by whoever runs it, and whether sudo allows
//! the write lane exactly what the catalog needs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::Group;

use super::finding::Finding;
use super::show;
use crate::catalog::{Catalog, installed, sudoers};
use crate::config::trust::quoted;
use crate::vocabulary::NodeName;

/// A unit that runs the hook; any number of a record will do.
const HOOK_UNIT: &str = "keyholder-alert@1.service";

/// As whom a program is executed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum As {
    /// As root, who may execute whatever anybody may.
    Root,
    /// As a user who owns none of our files, with these groups.
    User(BTreeSet<u32>),
    /// As a user of whom only the name is known.
    Unknown,
}

/// As whom the hook is run, drop-ins included.
pub(super) fn hook_user() -> As {
    let shown = show::show("User,DynamicUser,SupplementaryGroups", &[HOOK_UNIT]);
    let Some(shown) = shown.as_ref().ok().and_then(|shown| shown.first()) else { return As::Unknown };
    match (shown.get("DynamicUser"), shown.get("User")) {
        ("yes", _) => {
            let gid = |name: &str| Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
            As::User(shown.get("SupplementaryGroups").split_whitespace().filter_map(gid).collect())
        }
        (_, "" | "root") => As::Root,
        (_, _) => As::Unknown,
    }
}

/// What in the way to a program, or the program itself, such a user cannot enter or execute; a script is also read.
pub(super) fn in_the_way(program: &Path, user: &As) -> Option<PathBuf> {
    let As::User(groups) = user else { return None };
    let real = program.canonicalize().ok()?;
    let may = |path: &Path, bits: u32| {
        // What cannot be looked at was said already.
        let Ok(meta) = path.metadata() else { return true };
        let class = if groups.contains(&meta.gid()) { meta.mode() >> 3 } else { meta.mode() };
        class & bits == bits
    };
    let mut way: Vec<&Path> = real.ancestors().skip(1).collect();
    way.reverse();
    if let Some(shut) = way.into_iter().find(|directory| !may(directory, 0o1)) {
        return Some(shut.to_owned());
    }
    let needed = if is_script(&real) { 0o5 } else { 0o1 };
    (!may(&real, needed)).then_some(real)
}

fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    fs::File::open(file).is_ok_and(|mut file| file.read_exact(&mut start).is_ok() && start == *b"#!")
}

/// The finding for a hook that is there and trusted.
pub(super) fn hook(program: &Path, user: &As) -> Finding {
    let shown = program.display();
    match in_the_way(program, user) {
        None => Finding::ok("alert", format!("{shown} is run for each alert, outside root")),
        Some(shut) => Finding::fail(
            "alert",
            format!(
                "{shown} cannot be run: {HOOK_UNIT} runs as a user without rights, and that user cannot execute {}",
                shut.display()
            ),
        )
        .way_out(format!("chmod a+rx {}", quoted(&shut))),
    }
}

/// Whether the installed lines are those that this node's catalog needs; nothing if there are neither.
pub(super) fn sudo(etc: &Path, me: &NodeName, file: &Path) -> Option<Finding> {
    let catalog = etc.join(format!("catalog_{me}.yaml"));
    let (shown, source) = (file.display(), catalog.display());
    let is = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Some(
                Finding::warn("sudoers", format!("{shown}: {error}")).way_out("sudo keyholder doctor"),
            );
        }
        Err(error) => return Some(Finding::fail("sudoers", format!("{shown}: {error}"))),
    };
    if !catalog.exists() {
        return is.filter(|text| text.contains("NOPASSWD")).map(|_| {
            Finding::fail(
                "sudoers",
                format!("there is no {source}, and the lines of {shown} are still in force"),
            )
            .way_out(format!("sudo ./install.sh, or rm {shown}"))
        });
    }
    let Ok(loaded) = Catalog::load(&catalog) else {
        return Some(
            Finding::fail(
                "sudoers",
                format!("{source} is not valid, so what sudo should allow is not known"),
            )
            .way_out("keyholder check"),
        );
    };
    let needs = sudoers::lines(&loaded.catalog).is_ok_and(|lines| !lines.is_empty());
    match is {
        None if needs => Some(
            Finding::fail("sudoers", format!("there is no {shown}, and actions of {source} use sudo"))
                .way_out("sudo ./install.sh"),
        ),
        None => None,
        Some(_) => Some(match installed(file, &loaded.catalog) {
            Ok(()) => Finding::ok("sudoers", format!("{shown} has exactly the lines that {source} needs")),
            Err(problems) => {
                let first = problems.iter().next().map(ToString::to_string).unwrap_or_default();
                let more = match problems.iter().count() {
                    0 | 1 => String::new(),
                    all => format!(", and {} more", all - 1),
                };
                Finding::fail("sudoers", format!("{shown} is not what {source} needs: {first}{more}"))
                    .way_out("sudo ./install.sh; keyholder catalog sudoers --check shows all")
            }
        }),
    }
}
