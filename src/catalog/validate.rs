//! How the values of an action fit together: the program, and that placeholders and parameters are the same ones.

use std::collections::BTreeSet;

use super::lint;
use super::model::{Action, Arg, Catalog};
use super::program::absolute;
use super::raw::{RawAction, RawCatalog};
use crate::config::report::Report;
use crate::vocabulary::{ActionName, CatalogHash, ParamName};

/// Checks every action for itself.
pub(super) fn validate(report: &mut Report<'_>, raw: &RawCatalog) {
    for action in &raw.actions {
        let before = report.errors();
        program(report, action);
        if action.readable {
            placeholders(report, action);
        }
        // What cannot be read cannot be judged.
        if action.readable && report.errors() == before {
            lint::action(report, action);
        }
    }
}

/// The first element: said in full, so that no PATH and no parameter decides what is run.
fn program(report: &mut Report<'_>, action: &RawAction) {
    if let Some(first) = action.argv.first() {
        absolute(report, first);
    }
}

/// Each placeholder is declared and stands once, and each parameter has its placeholder.
fn placeholders(report: &mut Report<'_>, action: &RawAction) {
    let declared = || action.params.iter().map(|param| param.name.value.as_str());
    let mut seen: BTreeSet<&ParamName> = BTreeSet::new();
    let mut slips = false;
    for arg in &action.argv {
        let Arg::Param(name) = &arg.value else { continue };
        if !declared().any(|param| param == name.as_str()) {
            slips = true;
            let help = if action.params.is_empty() {
                "expected it under `params`".to_owned()
            } else {
                report.did_you_mean(name.as_str(), declared())
            };
            report.error(arg.at, "there is no such parameter", help);
        } else if !seen.insert(name) {
            report.error(arg.at, "this parameter stands in the command a second time", "keep one of the two");
        }
    }
    // A misspelt placeholder is one mistake, not two.
    let params = action.params.iter().filter(|_| !slips);
    for param in params {
        if !seen.iter().any(|name| name.as_str() == param.name.value) {
            let message = format!("parameter `{}` has no place in the command", param.name.value);
            let help = format!("expected \"{{{}}}\" as an element of `argv`", param.name.value);
            report.error(param.name.at, message, help);
        }
    }
}

/// Everything is there by now, or a problem has been reported for it.
pub(super) fn build(raw: &RawCatalog, hash: CatalogHash) -> Option<Catalog> {
    Some(Catalog {
        node: raw.node.as_ref()?.value.clone(),
        hash,
        actions: raw.actions.iter().map(build_action).collect::<Option<_>>()?,
    })
}

fn build_action(raw: &RawAction) -> Option<(ActionName, Action)> {
    let params = raw.params.iter().map(|param| Some((param.parsed.clone()?, param.param.clone()?)));
    let action = Action {
        mode: raw.mode.as_ref()?.value,
        description: raw.description.clone(),
        argv: raw.argv.iter().map(|arg| arg.value.clone()).collect(),
        params: params.collect::<Option<_>>()?,
        timeout: raw.timeout,
        rate: raw.rate,
        approval: raw.approval,
        idempotent: raw.idempotent,
        only_here: raw.only_here.is_some(),
    };
    Some((raw.parsed.clone()?, action))
}
