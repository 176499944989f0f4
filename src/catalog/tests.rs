//! The reading of whole catalogs: what is found, where, and that nothing is found twice.

mod fit;
mod hostile;
mod params;
mod pid1;
mod rights;
mod single;

use std::time::Duration;

use super::{Arg, Loaded, Mode, Param, Rate, parse, parse_all, schema};
use crate::config::{Problems, Severity};
use crate::vocabulary::CatalogHash;

const MARS: &str = include_str!("../../catalogs/catalog_mars.yaml");
const AI_CORE: &str = include_str!("../../catalogs/catalog_ai-core.yaml");

/// A small good catalog, in which the tests break one thing each.
const GOOD: &str = r#"version: 1
node: mars
actions:
  service.logs:
    mode: read
    description: the last lines of a service's log
    argv: [/usr/bin/journalctl, -u, "{unit}", -n, "{lines}", --no-pager]
    params:
      unit: { enum: [a.service, b.service] }
      lines: { int: { min: 10, max: 200 } }
    timeout: 10s
    rate: { at_most: 3, per: 1h }
  service.restart:
    mode: write
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, "{unit}"]
    params: { unit: { enum: [a.service] } }
    approval: required
    idempotent: true
  queue.length_aicore_peer:
    mode: read
    only_here: true
    argv: [/usr/bin/redis-cli, -h, ai-core, LLEN, "tasks:maintenance:ai-core"]
"#;

/// The good catalog with the one occurrence of `old` replaced.
#[track_caller]
fn with(old: &str, new: &str) -> String {
    assert_eq!(GOOD.matches(old).count(), 1, "`{old}` must stand in the good catalog once");
    GOOD.replace(old, new)
}

fn load(text: &str) -> Result<Loaded, Problems> {
    parse("c.yaml", text.as_bytes())
}

fn lines(problems: &Problems) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn errors(text: &str) -> Vec<String> {
    load(text).map_or_else(|problems| lines(&problems), |_| Vec::new())
}

/// The catalog has exactly this one problem.
#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(errors(text), [expected], "in\n{text}");
}

#[test]
fn the_examples_are_good_and_mean_what_the_articles_say() {
    let all = parse_all(
        &[
            ("catalogs/catalog_mars.yaml", MARS.as_bytes()),
            ("catalogs/catalog_ai-core.yaml", AI_CORE.as_bytes()),
        ],
        None,
    );
    let [mars, ai_core] = all.map_each();
    for name in [
        "service.status",
        "service.logs",
        "host.memory",
        "host.disk",
        "queue.length",
        "maintenance.self_status",
    ] {
        for catalog in [&mars, &ai_core] {
            let action = &catalog.actions[&name.parse().unwrap()];
            assert_eq!((action.mode, action.sudo_command()), (Mode::Read, None), "{name}");
        }
    }
    let limited = &mars.actions[&"queue.length".parse().unwrap()];
    assert_eq!(limited.rate, Some(Rate { at_most: 3, per: Duration::from_secs(3600) }));
    assert!(
        matches!(&limited.params[&"queue".parse().unwrap()], Param::Enum(keys) if keys[0] == "tasks:maintenance:mars")
    );
    for (here, there, peer) in
        [(&mars, &ai_core, "queue.length_aicore_peer"), (&ai_core, &mars, "queue.length_mars_peer")]
    {
        let action = &here.actions[&peer.parse().unwrap()];
        assert!(action.only_here && action.rate.is_none() && action.params.is_empty());
        assert!(!there.actions.contains_key(&peer.parse().unwrap()));
    }
    let restart = &mars.actions[&"service.restart".parse().unwrap()];
    assert!(restart.approval && restart.idempotent && restart.sudo_command().is_some());
    let upgrade = &mars.actions[&"apt.upgrade".parse().unwrap()];
    assert_eq!((upgrade.mode, upgrade.idempotent), (Mode::Write, false));
    assert!(upgrade.timeout > Duration::from_secs(100), "it was measured to take that long");
    assert!(ai_core.actions.values().all(|action| action.mode == Mode::Read), "so that it needs no sudo");
}

trait Both {
    fn map_each(self) -> [super::Catalog; 2];
}

impl Both for Vec<Result<Loaded, Problems>> {
    fn map_each(self) -> [super::Catalog; 2] {
        let good = self.into_iter().map(|loaded| {
            let Loaded { catalog, warnings } = loaded.unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(warnings.to_string(), "");
            catalog
        });
        good.collect::<Vec<_>>().try_into().unwrap()
    }
}

#[test]
fn the_good_catalog_is_good_and_means_what_it_says() {
    let Loaded { catalog, warnings } = load(GOOD).unwrap();
    assert_eq!(warnings.to_string(), "");
    assert_eq!((catalog.node.as_str(), catalog.hash), ("mars", CatalogHash::of(GOOD.as_bytes())));
    let logs = &catalog.actions[&"service.logs".parse().unwrap()];
    assert_eq!(logs.description, "the last lines of a service's log");
    assert_eq!(logs.argv[1], Arg::Literal("-u".into()));
    assert_eq!(logs.argv[2], Arg::Param("unit".parse().unwrap()));
    assert_eq!(logs.params[&"lines".parse().unwrap()], Param::Int { min: 10, max: 200 });
    assert_eq!(logs.timeout, Duration::from_secs(10));
    assert!(!logs.approval && !logs.idempotent && !logs.only_here);
    let restart = &catalog.actions[&"service.restart".parse().unwrap()];
    assert_eq!((restart.timeout, restart.rate), (super::DEFAULT_TIMEOUT, None));
    assert!(restart.approval && restart.idempotent);
    assert!(load(&GOOD.replace('\n', "\r\n")).is_ok(), "CRLF");
}

/// Mistakes of different kinds, in one go, each on its line.
const MANY: &str = r#"version: 1
node: ma:rs
action: {}
actions:
  Service.logs:
    mode: reed
    argv: [journalctl, -u, "{unt}", "--lines={lines}"]
    params:
      unit: { enum: [a.service, --evil, a.service] }
      lines: { int: { min: 20, max: 10 } }
    timeout: 10
  queue.length:
    mode: read
    argv: [/usr/bin/redis-cli, LLEN, {queue}]
    rate: { at_most: 0, per: 1y }
    env: { PATH: /tmp }
  shell.run:
    mode: write
    argv: [/bin/sh, -c, "rm *"]
  service.restart:
    mode: read
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, "app-*.service"]
    only_here: yes
"#;

#[test]
fn every_mistake_is_reported_at_once_with_its_place() {
    let found = load(MANY).unwrap_err();
    insta::assert_snapshot!("many_lines", found.to_string());
    insta::assert_snapshot!("many_fancy", found.fancy(Severity::Error, false));
}

#[test]
fn the_schema_knows_every_setting_and_no_other() {
    let schema = schema();
    let names = |pointer: &str| {
        let object = schema.pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).as_object().unwrap();
        let mut names: Vec<String> = object.keys().cloned().collect();
        names.sort();
        names
    };
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
        names.sort();
        names
    };
    use super::raw;
    let action = "/properties/actions/additionalProperties/properties";
    let param = format!("{action}/params/additionalProperties/oneOf");
    assert_eq!(names("/properties"), sorted(&raw::FILE));
    assert_eq!(names(action), sorted(&raw::ACTION));
    assert_eq!(names(&format!("{action}/rate/properties")), sorted(&raw::RATE));
    assert_eq!(
        [names(&format!("{param}/0/properties")), names(&format!("{param}/1/properties"))].concat(),
        sorted(&raw::PARAM)
    );
    assert_eq!(names(&format!("{param}/1/properties/int/properties")), sorted(&raw::INT));
    insta::assert_snapshot!("schema", format!("{schema:#}"));
}
