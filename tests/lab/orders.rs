//! What several scenarios order and ask for.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Lab;

/// The fields of a worker that is relaunched more often than any real one, in `fleet.yaml`.
pub(crate) const OFTEN: &str = "unit: agent.service, relaunches: 1000, per: 1m, settle: 100ms";

/// `keyholder relaunch TARGET --no-settle` on a node: its verdict, and how long the whole command took.
pub(crate) fn relaunch(lab: &Lab, at: &str, target: &str) -> (Value, Duration) {
    let begun = Instant::now();
    let output = lab.try_sh(at, &format!("keyholder relaunch {target} --no-settle --json --timeout 20s"));
    let took = begun.elapsed();
    let verdict = serde_json::from_slice(&output.stdout);
    (verdict.unwrap_or_else(|_| panic!("no verdict: {output:?}")), took)
}

/// What a verdict says of a relaunch that worked; panics if it did not.
pub(crate) fn relaunched(verdict: &Value) -> &Value {
    verdict["outcome"].get("relaunched").unwrap_or_else(|| panic!("not relaunched: {verdict}"))
}

/// The sentences with which a node says what is degraded on it, as seen at `at`.
pub(crate) fn degraded(lab: &Lab, at: &str, node: &str) -> Vec<String> {
    let report = lab.node(at, node);
    report["degraded"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
