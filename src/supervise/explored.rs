//! One node and its two watchers, explored: the judge, the door's rules and the watchers' own decisions as they are, around a
//! unit of systemd that is as simple as it can be. Every order of events is played, until no new state comes up: falls, an
//! operator's stop, a start that fails, a hold, a release, a restart of the supervisor, reports and orders that take their time.
//!
//! In every state: no relaunch of what runs, none beside another, none against a hold, none that the flap guard forbids. From
//! every state: if nothing more happens, the worker is up again and nothing is left to do.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::neighbours::seen::{Seen, WatcherOrder};
use super::worker::Worker;
use crate::fleet::Worker as Spec;
use crate::judge::{
    Action, ActiveState, Admitted, Crowd, Ending, Event, Hold, Host, Observation, OrderRequest, Phase,
    StopCause, Timeouts, UnitSnapshot, WorkerState, admit, classify, decide,
};
use crate::peer::wire::WorkerReport;
use crate::vocabulary::{InvocationId, Moment, Remedy, RepairBy};

/// Long after the boot, so that nothing before it is cut off at zero.
const START: Moment = Moment::from_millis(10_000_000);
/// How long nobody has been there who could act: longer than every wait of a watcher.
const THERE: Duration = Duration::from_secs(3600);
/// How many steps of a world in which nothing more happens lead to its end.
const STEPS_TO_THE_END: usize = 400;

/// How often each thing may still happen.
#[derive(Debug, Clone, Copy)]
struct Left {
    falls: u8,
    stops: u8,
    failures: u8,
    restarts: u8,
    holds: u8,
    releases: u8,
    jumps: u8,
}

/// The unit, as PID 1 has it.
#[derive(Debug, Clone)]
struct Unit {
    up: bool,
    run: u8,
    stop: StopCause,
    /// Since when a restart is under way; it goes on whatever becomes of who ordered it.
    job: Option<Moment>,
}

/// The node's supervisor.
#[derive(Debug, Clone)]
struct Node {
    state: WorkerState,
    /// What is on disk.
    saved: WorkerState,
    seen: Observation,
    since: Moment,
    acted: Option<Moment>,
    /// Whether this run of the supervisor waits for the job.
    waits: bool,
}

/// One watcher.
#[derive(Debug, Clone)]
struct Watcher {
    seen: Seen,
    /// The run that its order is about, while the order is on its way.
    order: Option<Option<InvocationId>>,
    /// Its order was admitted and is answered with the job.
    waits: bool,
}

#[derive(Debug, Clone)]
struct World {
    now: Moment,
    unit: Unit,
    node: Node,
    watchers: [Watcher; 2],
    left: Left,
}

/// What does not change while worlds are explored.
struct Rules {
    spec: Arc<Spec>,
    /// A watcher does not say which run its order is about: the error that the exploration has to find.
    careless: bool,
}

/// What must not be.
type Wrong = String;

fn run(n: u8) -> InvocationId {
    InvocationId::from_bytes([n; 16])
}

impl Rules {
    fn start(&self, left: Left) -> World {
        let unit = Unit { up: true, run: 1, stop: StopCause::Never, job: None };
        let state = WorkerState::default();
        let node = Node {
            saved: state.clone(),
            state,
            seen: Observation::Unit(snapshot(&unit)),
            since: START,
            acted: None,
            waits: false,
        };
        let report = self.report(&node, START);
        let watcher = Watcher { seen: Seen::new(report, START), order: None, waits: false };
        World { now: START, unit, node, watchers: [watcher.clone(), watcher], left }
    }

    fn report(&self, node: &Node, now: Moment) -> WorkerReport {
        let mut worker = Worker::new(self.spec.clone(), node.state.clone(), node.since);
        worker.seen = node.seen.clone();
        worker.health = classify(&node.seen, &worker.signs.vitals(), Host::Running, false);
        worker.last_act = node.acted.map(|at| (at, "relaunch".to_owned()));
        worker.report(&"mars".parse().unwrap(), &"agent".parse().unwrap(), now)
    }

    /// Feeds the judge and carries out what it decides.
    fn feed(&self, world: &mut World, event: &Event) -> Result<(), Wrong> {
        let before = world.node.state.clone();
        let (state, actions) = {
            let mut worker = Worker::new(self.spec.clone(), before.clone(), world.now);
            worker.seen = world.node.seen.clone();
            decide(&before, event, worker.terms(1, Crowd::default()), world.now)
        };
        world.node.state = state;
        for action in actions {
            let Action::Act(remedy) = action else { continue };
            let held = before.held(world.now).is_some();
            let spent = before.recent(&self.spec.policy, world.now) >= self.spec.policy.relaunches as usize;
            let wrong = |what: &str| Err(format!("{remedy} {what} on {event:?}: {world:?}"));
            if remedy != Remedy::Relaunch {
                return wrong("of a dead worker");
            }
            if world.unit.up {
                return wrong("of a run that is up");
            }
            if world.unit.job.is_some() {
                return wrong("beside another");
            }
            if held {
                return wrong("against a hold");
            }
            if spent && !before.quarantined() {
                return wrong("beyond the flap guard");
            }
            world.unit.job = Some(world.now);
            world.node.waits = true;
            world.node.acted = Some(world.now);
        }
        world.node.saved = world.node.state.clone();
        Ok(())
    }

    fn look(&self, world: &mut World) -> Result<(), Wrong> {
        let seen = Observation::Unit(snapshot(&world.unit));
        let shown = |seen: &Observation| classify(seen, &Default::default(), Host::Running, false);
        if shown(&world.node.seen) != shown(&seen) {
            world.node.since = world.now;
        }
        world.node.seen = seen;
        let health = shown(&world.node.seen);
        self.feed(world, &Event::Seen { health, invocation: Some(run(world.unit.run)) })
    }

    fn ended(&self, world: &mut World, up: bool) -> Result<(), Wrong> {
        world.unit.job = None;
        if up {
            world.unit = Unit { up: true, run: world.unit.run + 1, stop: StopCause::Never, job: None };
        } else {
            world.unit.stop = StopCause::ByItself;
        }
        if !std::mem::take(&mut world.node.waits) {
            return Ok(());
        }
        // The look comes with the end of the job.
        world.node.seen = Observation::Unit(snapshot(&world.unit));
        let ending = if up { Ending::Started(run(world.unit.run)) } else { Ending::Failed };
        self.feed(world, &Event::Done(ending))?;
        let now = world.now;
        for watcher in &mut world.watchers {
            if std::mem::take(&mut watcher.waits) {
                watcher.seen.answered(up, now);
            }
        }
        Ok(())
    }

    /// An order comes in at the door.
    fn ordered(&self, world: &mut World, by: usize, expect: Option<InvocationId>) -> Result<(), Wrong> {
        let expect = expect.filter(|_| !self.careless);
        let health = classify(&world.node.seen, &Default::default(), Host::Running, false);
        let invocation = match &world.node.seen {
            Observation::Unit(unit) => unit.invocation,
            Observation::Failed(_) => None,
        };
        let wish = OrderRequest { remedy: Remedy::Relaunch, expect, force: false };
        let admitted =
            admit(&world.node.state, &health, invocation, Host::Running, wish, &self.spec.policy, world.now);
        let now = world.now;
        match admitted {
            Ok(Admitted::Start) => {
                world.watchers[by].waits = true;
                self.feed(world, &Event::Ordered(Remedy::Relaunch))
            }
            Ok(Admitted::Join) => {
                world.watchers[by].waits = true;
                Ok(())
            }
            Ok(Admitted::AlreadyRecovered(_)) => {
                world.watchers[by].seen.answered(true, now);
                Ok(())
            }
            Err(_) => {
                world.watchers[by].seen.answered(false, now);
                Ok(())
            }
        }
    }

    /// What the node would say now is not what this watcher has heard.
    fn news(&self, world: &World, watcher: usize) -> Option<WorkerReport> {
        let report = self.report(&world.node, world.now);
        let known = &world.watchers[watcher].seen.report;
        let same = known.class == report.class
            && known.invocation == report.invocation
            && known.doing == report.doing
            && known.left_to_peers == report.left_to_peers
            && known.quarantined == report.quarantined
            && known.held_for_ms.is_some() == report.held_for_ms.is_some();
        (!same).then_some(report)
    }

    fn ask(&self, world: &mut World, watcher: usize) -> WatcherOrder {
        let now = world.now;
        let me = ["ada", "bob"][watcher].parse().unwrap();
        world.watchers[watcher].seen.ask(&me, &self.spec, || watcher as u32, THERE, now)
    }

    /// When something comes by itself.
    fn next(&self, world: &World) -> Option<Moment> {
        let mut dues: Vec<Moment> = world.node.state.wake(&self.spec.policy).into_iter().collect();
        for watcher in 0..2 {
            if world.watchers[watcher].order.is_none()
                && let WatcherOrder::At(at) = self.ask(&mut world.clone(), watcher)
            {
                dues.push(at);
            }
        }
        // systemd ends every job in its time.
        let end = world.unit.job.map(|since| since + Timeouts::default().relaunch(&self.spec.policy));
        dues.into_iter().filter(|due| *due > world.now && end.is_none_or(|end| *due < end)).min()
    }

    /// What comes next by itself, in no order.
    fn own_steps(&self, world: &World) -> Vec<Result<(&'static str, World), Wrong>> {
        let mut steps = Vec::new();
        let mut step = |what, change: &dyn Fn(&mut World) -> Result<(), Wrong>| {
            let mut next = world.clone();
            steps.push(change(&mut next).map(|()| (what, next)));
        };
        let due = world.node.state.wake(&self.spec.policy).is_some_and(|due| due <= world.now);
        if world.node.seen != Observation::Unit(snapshot(&world.unit)) || due {
            step("look", &|next| self.look(next));
        }
        if world.unit.job.is_some() {
            step("the job is done", &|next| self.ended(next, true));
        }
        for watcher in 0..2 {
            if let Some(report) = self.news(world, watcher) {
                step("a report", &|next| {
                    let seen = next.watchers[watcher].seen.clone();
                    next.watchers[watcher].seen = seen.replaced(report.clone(), next.now);
                    Ok(())
                });
            }
            if let Some(expect) = world.watchers[watcher].order {
                // Orders are taken once every worker has been looked at.
                if matches!(world.node.seen, Observation::Failed(_)) {
                    continue;
                }
                step("an order comes in", &|next| {
                    next.watchers[watcher].order = None;
                    self.ordered(next, watcher, expect)
                });
            } else if let WatcherOrder::Now(..) = self.ask(&mut world.clone(), watcher) {
                step("an order leaves", &|next| {
                    self.ask(next, watcher);
                    next.watchers[watcher].order = Some(next.watchers[watcher].seen.report.invocation);
                    Ok(())
                });
            }
        }
        steps
    }

    /// What else may happen.
    fn other_steps(&self, world: &World) -> Vec<Result<(&'static str, World), Wrong>> {
        let mut steps = Vec::new();
        let left = world.left;
        let mut step = |what, left: Left, change: &dyn Fn(&mut World) -> Result<(), Wrong>| {
            let mut next = World { left, ..world.clone() };
            steps.push(change(&mut next).map(|()| (what, next)));
        };
        if let (Some(falls), true) = (left.falls.checked_sub(1), world.unit.up) {
            step("it falls", Left { falls, ..left }, &|next| {
                (next.unit.up, next.unit.stop) = (false, StopCause::ByItself);
                Ok(())
            });
        }
        if let (Some(stops), true) = (left.stops.checked_sub(1), world.unit.up) {
            step("it is stopped", Left { stops, ..left }, &|next| {
                (next.unit.up, next.unit.stop) = (false, StopCause::Ordered);
                Ok(())
            });
        }
        if let (Some(failures), true) = (left.failures.checked_sub(1), world.unit.job.is_some()) {
            step("the job fails", Left { failures, ..left }, &|next| self.ended(next, false));
        }
        if let Some(restarts) = left.restarts.checked_sub(1) {
            step("the supervisor restarts", Left { restarts, ..left }, &|next| {
                next.node.state = next.node.saved.clone().taken_over();
                next.node.saved = next.node.state.clone();
                next.node.seen = Observation::Failed("not looked at yet".to_owned());
                (next.node.since, next.node.acted, next.node.waits) = (next.now, None, false);
                let now = next.now;
                for watcher in &mut next.watchers {
                    // Orders end with the connection.
                    if watcher.order.take().is_some() || std::mem::take(&mut watcher.waits) {
                        watcher.seen.answered(false, now);
                    }
                }
                Ok(())
            });
        }
        if let Some(holds) = left.holds.checked_sub(1) {
            step("a hold", Left { holds, ..left }, &|next| {
                let until = next.now + Duration::from_secs(30);
                let hold = Hold { until, why: "deploy".to_owned(), by: "root".to_owned(), by_peer: false };
                self.feed(next, &Event::Hold(hold))
            });
        }
        if let Some(releases) = left.releases.checked_sub(1) {
            step("a release", Left { releases, ..left }, &|next| self.feed(next, &Event::Release));
        }
        if let (Some(jumps), Some(due)) = (left.jumps.checked_sub(1), self.next(world)) {
            step("time passes", Left { jumps, ..left }, &|next| {
                next.now = due;
                Ok(())
            });
        }
        steps
    }

    /// Nothing more happens: is the worker up at the end, with nothing left to do? `well` are the worlds of which that is known.
    fn ends_well(&self, world: &World, well: &mut HashSet<u64>) -> Result<(), Wrong> {
        let left = Left { falls: 0, stops: 0, failures: 0, restarts: 0, holds: 0, releases: 0, jumps: 0 };
        let mut world = World { left, ..world.clone() };
        let mut way = Vec::new();
        for _ in 0..STEPS_TO_THE_END {
            let key = key(&world);
            if well.contains(&key) {
                well.extend(way);
                return Ok(());
            }
            way.push(key);
            match self.own_steps(&world).into_iter().next() {
                Some(step) => world = step?.1,
                None => match self.next(&world) {
                    Some(due) => world.now = due,
                    None if world.unit.up && world.node.state.phase == Phase::Watching => {
                        well.extend(way);
                        return Ok(());
                    }
                    None => break,
                },
            }
        }
        Err(format!("it ends so: {world:?}"))
    }

    /// Plays every order of events; gives how many states there are, and the first that is wrong with the way to it.
    fn explore(&self, left: Left) -> (usize, Option<String>) {
        let (mut known, mut well) = (HashSet::new(), HashSet::new());
        let mut open = vec![(self.start(left), Vec::<&'static str>::new())];
        while let Some((world, way)) = open.pop() {
            if !known.insert(key(&world)) {
                continue;
            }
            if let Err(wrong) = self.ends_well(&world, &mut well) {
                return (known.len(), Some(format!("{way:?}: {wrong}")));
            }
            for step in self.own_steps(&world).into_iter().chain(self.other_steps(&world)) {
                match step {
                    Ok((what, next)) => {
                        let mut way = way.clone();
                        way.push(what);
                        open.push((next, way));
                    }
                    Err(wrong) => return (known.len(), Some(format!("{way:?}: {wrong}"))),
                }
            }
        }
        (known.len(), None)
    }
}

fn snapshot(unit: &Unit) -> UnitSnapshot {
    let (active, sub) =
        if unit.up { (ActiveState::Active, "running") } else { (ActiveState::Inactive, "dead") };
    let plain = UnitSnapshot::plain(active, sub);
    UnitSnapshot { job: unit.job.is_some(), stop: unit.stop, invocation: Some(run(unit.run)), ..plain }
}

/// Names a state, whenever it comes about: moments count from now.
fn key(world: &World) -> u64 {
    let text = format!("{world:?}");
    let mut hasher = DefaultHasher::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("Moment(") {
        before.hash(&mut hasher);
        let (digits, after) = after.split_once(')').unwrap();
        let moment: i128 = digits.trim().trim_end_matches(',').parse().unwrap();
        (moment - i128::from(world.now.as_millis())).hash(&mut hasher);
        rest = after;
    }
    rest.hash(&mut hasher);
    hasher.finish()
}

fn rules(by: RepairBy, careless: bool) -> Rules {
    let text = "version: 1\nnodes:\n  mars:\n    address: 192.0.2.3:7433\n    pins: [\"sha256:PIN\"]\n    workers: { agent: { unit: agent.service } }\n"
        .replace("PIN", &"a".repeat(64));
    let fleet = crate::fleet::parse("fleet.yaml", text.as_bytes())
        .unwrap_or_else(|problems| panic!("{problems}"))
        .fleet;
    let mut spec = (*fleet.nodes[&"mars".parse().unwrap()].workers[&"agent".parse().unwrap()]).clone();
    spec.policy.repair_by = by;
    Rules { spec: Arc::new(spec), careless }
}

/// Nothing happens besides time and what follows from it.
const QUIET: Left = Left { falls: 0, stops: 0, failures: 0, restarts: 0, holds: 0, releases: 0, jumps: 2 };

/// What may happen together. All at once has too many orders to play.
const STORIES: [Left; 3] = [
    Left { falls: 1, restarts: 1, ..QUIET },
    Left { stops: 1, failures: 1, ..QUIET },
    Left { falls: 1, holds: 1, releases: 1, jumps: 1, ..QUIET },
];

#[test]
fn in_every_order_of_events_a_worker_is_relaunched_once_and_comes_back() {
    for by in [RepairBy::Node, RepairBy::Peer] {
        for story in STORIES {
            let began = Instant::now();
            let (states, wrong) = rules(by, false).explore(story);
            println!("repair_by {by:?}, {story:?}: {states} states, {:.1?}", began.elapsed());
            assert_eq!(wrong, None);
        }
    }
}

#[test]
fn the_exploration_finds_a_watcher_that_does_not_say_which_run_it_means() {
    let (_, wrong) = rules(RepairBy::Peer, true).explore(Left { falls: 1, ..QUIET });
    assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains("of a run that is up")), "{wrong:?}");
}
