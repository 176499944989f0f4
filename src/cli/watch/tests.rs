use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::draw;
use super::follow::told;
use super::keys::{Effect, press};
use super::question::{PendingOrder, Question};
use super::scene::{Page, Scene, SceneReply};
use crate::cli::screen::{Paint, Tone};
use crate::fleet::BlastRadius;
use crate::peer::wire::{
    Class, EventLine, Hello, LaneReport, NodeReport, NodeState, Outcome, Refusal, RefusalCode, ServerFrame,
    TaskReport, Verb, Verdict, WorkerReport,
};
use crate::vocabulary::{BootNonce, FailureClass, FleetHash, InvocationId};

fn hello() -> Hello {
    Hello {
        node: "ai-core".parse().unwrap(),
        version: "0.1.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([7; 16]),
        fleet_hash: FleetHash::of(b"fleet"),
    }
}

fn worker(node: &str, name: &str, class: Class) -> WorkerReport {
    WorkerReport {
        why: "running".to_owned(),
        for_ms: 11_400_000,
        invocation: Some(InvocationId::from_bytes([0x3f; 16])),
        ..WorkerReport::plain(node, name, class)
    }
}

fn node(name: &str, state: NodeState, why: &str, workers: Vec<WorkerReport>) -> NodeReport {
    NodeReport {
        node: name.parse().unwrap(),
        state,
        why: why.to_owned(),
        version: Some("0.1.0".to_owned()),
        fleet_hash: None,
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers,
    }
}

fn lane(waiting: u64, action: Option<&str>) -> Option<Box<LaneReport>> {
    let task = |action: &str| TaskReport {
        id: "t1".to_owned(),
        action: action.to_owned(),
        for_ms: 12_000,
        idempotent: false,
    };
    Some(Box::new(LaneReport {
        queue: "tasks:maintenance:mars".to_owned(),
        connected: true,
        waiting: Some(waiting),
        running: action.iter().len() as u64,
        in_flight: action.map(task).into_iter().collect(),
        done: 4711,
        last: None,
        silent_ms: None,
    }))
}

fn line(seq: u64, event: &str, priority: u8, subject: &str, text: &str) -> EventLine {
    EventLine {
        seq,
        at: format!("2026-11-29T17:0{}:0{}.120Z", seq / 10, seq % 10),
        event: event.to_owned(),
        priority,
        message_id: String::new(),
        by: "local".to_owned(),
        subject: subject.to_owned(),
        text: text.to_owned(),
    }
}

/// Three nodes with one of everything.
fn story(start: Instant) -> Scene {
    let mut scene = Scene::new(hello(), None, start);
    let earlier = vec![
        line(1, "supervisor", 5, "ai-core", "keyholder 0.1.0 supervises 2 workers"),
        line(2, "observed", 4, "mars/agent", "healthy -> dead: signal 9 (KILL)"),
        line(3, "acting", 5, "mars/agent", "relaunching agent.service: ai-core: its watcher saw it dead"),
    ];
    scene.connected(hello(), earlier, start);
    let mut write = worker("ai-core", "write", Class::Healthy);
    write.lane = lane(3, Some("apt.upgrade"));
    let mut read = worker("ai-core", "read", Class::Healthy);
    read.lane = lane(0, None);
    let mut agent = worker("mars", "agent", Class::Dead);
    (agent.why, agent.for_ms) = ("signal 9 (KILL)".to_owned(), 1_200);
    (agent.doing, agent.due_in_ms) = ("its watchers repair it after the grace".to_owned(), Some(2_000));
    let mut crawler = worker("mars", "crawler", Class::Stuck);
    (crawler.why, crawler.for_ms) = ("its heartbeat is 95 s old".to_owned(), 5_000);
    crawler.doing = "nudging".to_owned();
    (crawler.last_act, crawler.last_act_ms) = (Some("nudged with SIGUSR1".to_owned()), Some(400));
    let mut web = worker("mars", "web", Class::Held);
    (web.held_for_ms, web.blast_radius) = (Some(1_740_000), BlastRadius::Critical);
    let mut mars = node("mars", NodeState::Up, "", vec![agent, crawler, web]);
    mars.degraded = vec!["the system bus is gone: systemctl is used instead".to_owned()];
    let tower = node(
        "tower",
        NodeState::Unreachable,
        "no answer for 12 s: down or cut off; someone must go there",
        vec![worker("tower", "mail", Class::Healthy)],
    );
    for report in [node("ai-core", NodeState::Up, "", vec![read, write]), mars, tower] {
        scene.frame(ServerFrame::Snapshot(report), start);
    }
    let alert = line(4, "alert", 3, "mars/web", "web.service was stopped and no hold was declared");
    scene.frame(ServerFrame::Event(alert), start);
    scene.tick(start);
    scene
}

fn drawn(scene: &Scene, (width, height): (u16, u16), paint: bool, now: Instant) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, scene, Paint(paint), now)).unwrap();
    terminal
}

fn typed(scene: &mut Scene, keys: &str, now: Instant) -> Vec<Effect> {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\x08' => KeyCode::Backspace,
        '\x1b' => KeyCode::Esc,
        key => KeyCode::Char(key),
    };
    let effects = keys.chars().map(|key| press(scene, KeyEvent::new(code(key), KeyModifiers::NONE), now));
    effects.filter(|effect| *effect != Effect::Show).collect()
}

fn cursor(scene: &Scene) -> String {
    scene.cursor.as_ref().unwrap().to_string()
}

#[test]
fn the_fleet_at_80_by_24() {
    let start = Instant::now();
    let mut scene = story(start);
    typed(&mut scene, "jjj", start);
    insta::assert_snapshot!(drawn(&scene, (80, 24), true, start).backend());
}

#[test]
fn the_fleet_at_120_by_40() {
    let start = Instant::now();
    insta::assert_snapshot!(drawn(&story(start), (120, 40), true, start).backend());
}

#[test]
fn a_supervisor_that_is_gone_is_said_and_the_last_picture_stays_and_gets_no_older() {
    let start = Instant::now();
    let mut scene = story(start);
    let later = start + Duration::from_secs(7);
    scene.lost("the supervisor closed the connection while it was followed".to_owned(), start);
    scene.lost("the supervisor does not answer on /run/keyholder/keyholder.sock".to_owned(), later);
    scene.tick(later);
    insta::assert_snapshot!(drawn(&scene, (80, 24), true, later).backend());
    scene.connected(hello(), Vec::new(), later);
    scene.tick(later);
    let text = drawn(&scene, (80, 24), true, later).backend().to_string();
    assert!(text.contains("the supervisor answers again") && !text.contains("NO SUPERVISOR"), "{text}");
    assert!(text.contains("agent"), "until its first frame the old picture is better than none: {text}");
}

#[test]
fn no_size_is_too_small_to_draw() {
    let start = Instant::now();
    let mut scene = story(start);
    for keys in ["", "?", "?r", "\x1bh"] {
        typed(&mut scene, keys, start);
        for width in [1, 2, 7, 20, 79, 300] {
            for height in [1, 2, 3, 5, 8, 15, 16, 60] {
                drawn(&scene, (width, height), true, start);
            }
        }
    }
}

#[test]
fn the_chosen_worker_is_always_in_view() {
    let start = Instant::now();
    let mut scene = Scene::new(hello(), None, start);
    let workers = (0..60).map(|n| worker("mars", &format!("w{n:02}"), Class::Healthy)).collect();
    scene.frame(ServerFrame::Snapshot(node("mars", NodeState::Up, "", workers)), start);
    scene.tick(start);
    for n in 0..60 {
        assert_eq!(cursor(&scene), format!("mars/w{n:02}"));
        let text = drawn(&scene, (80, 24), false, start).backend().to_string();
        assert!(text.contains(&format!("> w{n:02}")), "{n}: {text}");
        typed(&mut scene, "j", start);
    }
    assert_eq!(cursor(&scene), "mars/w59", "and there it ends");
    typed(&mut scene, "g", start);
    assert_eq!(cursor(&scene), "mars/w00");
}

#[test]
fn the_chosen_worker_stays_chosen_while_others_come_and_go() {
    let start = Instant::now();
    let mut scene = story(start);
    typed(&mut scene, "jj", start);
    assert_eq!(cursor(&scene), "mars/agent");
    scene.frame(ServerFrame::Change(worker("mars", "aaa", Class::Healthy)), start);
    scene.tick(start);
    assert_eq!(cursor(&scene), "mars/agent");
    scene.frame(ServerFrame::Snapshot(node("mars", NodeState::Up, "", Vec::new())), start);
    scene.tick(start);
    assert_eq!(cursor(&scene), "ai-core/read", "it is gone");
}

#[test]
fn colour_is_on_request_only() {
    let start = Instant::now();
    let scene = story(start);
    let colours = |paint| {
        let terminal = drawn(&scene, (80, 24), paint, start);
        let cells = terminal.backend().buffer().content().to_vec();
        cells.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 0);
}

#[test]
fn nothing_from_outside_steers_the_terminal() {
    let start = Instant::now();
    let mut scene = story(start);
    let bad = "\x1b[2J\u{9b}31m\u{202e}\r\n\x07";
    let mut hostile = worker("mars", "agent", Class::Stuck);
    (hostile.why, hostile.doing, hostile.last_act) = (bad.to_owned(), bad.to_owned(), Some(bad.to_owned()));
    hostile.lane = lane(1, Some(bad));
    let mut report = node("mars", NodeState::SupervisorDead, bad, vec![hostile]);
    (report.version, report.degraded) = (Some(bad.to_owned()), vec![bad.to_owned()]);
    scene.frame(ServerFrame::Snapshot(report), start);
    scene.frame(ServerFrame::Event(EventLine { at: bad.to_owned(), ..line(9, bad, 3, bad, bad) }), start);
    scene.lost(bad.to_owned(), start);
    scene.away = None;
    scene.tick(start);
    typed(&mut scene, "jj", start);
    let mut seen = drawn(&scene, (300, 60), true, start).backend().to_string();
    scene.answered(
        SceneReply { title: bad.to_owned(), text: bad.to_owned(), tone: Tone::Bad, page: true },
        start,
    );
    seen.push_str(&drawn(&scene, (300, 60), true, start).backend().to_string());
    let steering = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!seen.contains(steering), "{seen:?}");
    assert!(seen.contains("\\x1b[2J"), "it is shown, not hidden: {seen}");
}

#[test]
fn what_touches_a_worker_is_asked_about_first() {
    let start = Instant::now();
    for (keys, name) in [("r", "relaunch"), ("n", "nudge"), ("dd", "drill"), ("ds", "drill"), ("dg", "drill")]
    {
        let mut scene = story(start);
        typed(&mut scene, "jj", start);
        for no in ["n", "\x1b", "q", "\n", "x"] {
            assert_eq!(typed(&mut scene, &format!("{keys}{no}"), start), [], "{keys}{no}");
            assert_eq!(scene.question, None);
        }
        let effects = typed(&mut scene, &format!("{keys}y"), start);
        let [Effect::Do(deed)] = &effects[..] else { panic!("{keys}: {effects:?}") };
        assert_eq!((deed.verb.name(), deed.target.to_string().as_str()), (name, "mars/agent"));
        assert!(!deed.because.is_empty());
    }
    let mut scene = story(start);
    let effects = typed(&mut scene, "dsy", start);
    let [Effect::Do(PendingOrder { verb: Verb::Drill(order), .. })] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(order.class, FailureClass::Stuck);
}

#[test]
fn a_hold_asks_for_minutes_and_a_reason() {
    let start = Instant::now();
    let mut scene = story(start);
    // The default is taken away, what is no number does not arrive, and no reason is no reason.
    let effects = typed(&mut scene, "h\x08\x084x5\n\ndeploy\x08y 2\n", start);
    let [Effect::Do(deed)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((&deed.verb, deed.because.as_str()), (&Verb::Hold { for_ms: 45 * 60_000 }, "deploy 2"));
    for none in ["h\x08\x08\n", "h\x08\x080\n", "h\x08\x0899999\n"] {
        let mut scene = story(start);
        assert_eq!(typed(&mut scene, none, start), []);
        assert!(matches!(scene.question, Some(Question::HoldFor(..))), "{none:?}");
        assert!(scene.said().is_some(), "and it is said why");
        assert_eq!(typed(&mut scene, "\x1b", start), []);
        assert_eq!(scene.question, None);
    }
}

#[test]
fn a_critical_worker_is_called_critical_before_it_is_touched() {
    let start = Instant::now();
    let mut scene = story(start);
    typed(&mut scene, "jjjjr", start);
    let text = drawn(&scene, (80, 24), true, start).backend().to_string();
    assert!(text.contains("relaunch mars/web, which is CRITICAL? y/N"), "{text}");
}

#[test]
fn looking_needs_no_yes_and_the_answer_is_a_page() {
    let start = Instant::now();
    let mut scene = story(start);
    let effects = typed(&mut scene, "e", start);
    let [Effect::Do(deed)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(deed.verb, Verb::Explain {});
    let report = scene.selected().unwrap().clone();
    let explained = crate::peer::wire::Explanation {
        report,
        observed: vec!["active (running)".to_owned()],
        decided: vec!["nothing to do".to_owned()],
        log: Vec::new(),
    };
    let verdict = Verdict::Outcome(Outcome::Explained(explained));
    scene.answered(told(deed, &verdict, Duration::from_millis(3)), start);
    let text = drawn(&scene, (80, 24), true, start).backend().to_string();
    assert!(text.contains("nothing to do"), "{text}");
    assert_eq!(typed(&mut scene, "jk\x1b", start), []);
    assert_eq!(scene.page, Page::Fleet);
}

#[test]
fn a_refusal_is_said_with_its_way_out_and_goes_after_a_while() {
    let start = Instant::now();
    let mut scene = story(start);
    let effects = typed(&mut scene, "ry", start);
    let [Effect::Do(deed)] = &effects[..] else { panic!("{effects:?}") };
    scene.under_way = 1;
    let refusal =
        Refusal::new(RefusalCode::NotRoot, "only root may relaunch, and this is uid 1000: use sudo");
    scene.answered(told(deed, &Verdict::Refused(refusal), Duration::ZERO), start);
    assert_eq!(scene.under_way, 0);
    let last = |scene: &Scene| {
        let text = drawn(scene, (100, 24), true, start).backend().to_string();
        text.lines().last().unwrap().to_owned()
    };
    assert!(
        last(&scene).contains("relaunch ai-core/read: refused (not_root): only root may"),
        "{}",
        last(&scene)
    );
    scene.tick(start + Duration::from_secs(60));
    assert!(last(&scene).contains("q quit"), "{}", last(&scene));
}

#[test]
fn orders_do_not_pile_up_and_nothing_is_done_to_nobody() {
    let start = Instant::now();
    let mut scene = story(start);
    scene.under_way = 4;
    assert_eq!(typed(&mut scene, "ry", start), []);
    let mut empty = Scene::new(hello(), None, start);
    empty.tick(start);
    assert_eq!(typed(&mut empty, "ejkry", start), []);
    drawn(&empty, (80, 24), true, start);
}

#[test]
fn the_end_is_near() {
    let start = Instant::now();
    for keys in ["q", "\x1b", "?q"] {
        assert_eq!(typed(&mut story(start), keys, start), [Effect::Quit], "{keys:?}");
    }
    let mut scene = story(start);
    typed(&mut scene, "h", start);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut scene, interrupt, start), Effect::Quit, "in the middle of a question, too");
    assert_eq!(typed(&mut story(start), "??", start), [], "help, and back");
}

#[test]
fn what_the_audit_has_told_already_is_not_told_again_and_a_loss_is_said() {
    let start = Instant::now();
    let mut scene = story(start);
    assert_eq!(scene.events.len(), 4);
    scene.frame(ServerFrame::Event(line(3, "acting", 5, "mars/agent", "again")), start);
    assert_eq!(scene.events.len(), 4);
    for seq in 5..500 {
        scene.frame(ServerFrame::Event(line(seq, "acted", 5, "mars/agent", "x")), start);
    }
    assert_eq!(scene.events.len(), 100, "and memory is bounded");
    scene.frame(ServerFrame::Missed { count: 7 }, start);
    assert!(scene.said().unwrap().0.contains("7 records passed by"));
}
