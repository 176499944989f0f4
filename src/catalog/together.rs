//! Catalogs that contradict each other, or the fleet.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::Draft;
use crate::vocabulary::NodeName;

/// What the catalogs of different nodes say about each other, and whether the fleet knows their nodes.
pub(super) fn check(drafts: &mut [&mut Draft<'_>], fleet: Option<&BTreeSet<NodeName>>) {
    // Who has each action, and the first catalog of each node.
    let mut owners: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    let mut nodes: BTreeMap<String, String> = BTreeMap::new();
    let mut seconds = BTreeSet::new();
    for (index, draft) in drafts.iter_mut().enumerate() {
        let Some(raw) = &draft.raw else { continue };
        if let Some(node) = &raw.node {
            if let Some(first) = nodes.get(node.value.as_str()) {
                let message = format!("node `{}` has another catalog, {first}", node.value);
                draft.report.error(node.at, message, "expected one catalog for each node");
                // Everything in it stands there a second time; once is enough to say so.
                seconds.insert(index);
                continue;
            }
            nodes.insert(node.value.to_string(), draft.name.clone());
            if let Some(fleet) = fleet.filter(|fleet| !fleet.contains(&node.value)) {
                let help = draft.report.did_you_mean(node.value.as_str(), fleet.iter().map(NodeName::as_str));
                draft.report.error(node.at, "there is no such node in the fleet file", help);
            }
        }
        for action in &raw.actions {
            let place = format!("{}:{}", draft.name, action.name.at.line);
            owners.entry(action.name.value.clone()).or_default().push((index, place));
        }
    }
    for (index, draft) in drafts.iter_mut().enumerate().filter(|(index, _)| !seconds.contains(index)) {
        let Some(raw) = &draft.raw else { continue };
        for action in &raw.actions {
            let Some(only_here) = action.only_here else { continue };
            let others =
                owners.get(&action.name.value).into_iter().flatten().filter(|(other, _)| *other != index);
            let others: Vec<&str> = others.map(|(_, place)| place.as_str()).collect();
            if !others.is_empty() {
                draft.report.error(
                    only_here,
                    format!("action `{}` is only here, and yet at {}", action.name.value, others.join(", ")),
                    "its name is to say the node: give one of them another name, or take it out there",
                );
            }
        }
    }
}
