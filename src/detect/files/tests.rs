use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::*;
use crate::vocabulary::{InFlight, Mode, Moment};

fn beat(path: impl Into<PathBuf>) -> Target {
    Target::Beat(path.into())
}

#[tokio::test]
async fn a_beat_is_a_change_of_the_file_and_a_missing_one_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("beat");
    let files = Files::default();
    let read = async || files.read(vec![beat(&path)]).await.remove(0);
    assert_eq!(read().await, Reading::Silent(format!("{} is missing", path.display())));
    std::fs::write(&path, "").unwrap();
    let first = read().await;
    assert!(matches!(first, Reading::Mark(_)));
    assert_eq!(read().await, first, "nothing has happened");
    // An hour back: a beat by a clock that was set.
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let second = read().await;
    assert!(matches!(second, Reading::Mark(_)) && second != first);
}

#[tokio::test]
async fn nothing_but_a_plain_file_is_a_beat() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    let all = vec![beat("/dev/null"), beat(dir.path()), beat(&link), beat("/etc/passwd/x")];
    for reading in Files::default().read(all).await {
        assert!(matches!(reading, Reading::Failed(_)), "{reading:?}");
    }
}

#[test]
fn a_private_tmp_is_known_by_what_is_mounted_there() {
    // Seen in a unit with PrivateTmp=yes under systemd 252.
    let mounts = "30 1 0:27 / / rw,relatime master:1 - overlay overlay rw\n\
        31 30 0:27 /tmp/systemd-private-0123456789abcdef-keyholder.service-aBcDeF/tmp /tmp rw,relatime - overlay overlay rw\n\
        32 30 0:28 / /var/tmp rw - tmpfs tmpfs rw\n33 30\n\n";
    assert_eq!(private_in(mounts), [PathBuf::from("/tmp")]);
}

#[tokio::test]
async fn a_lane_that_runs_something_beats_by_writing_and_else_by_its_passes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("status.json");
    let status = |running, passes, at| LaneStatus {
        lane: Mode::Write,
        node: "mars".parse().unwrap(),
        pid: 1,
        invocation: None,
        connected: true,
        no_tasks: None,
        queue: "q".to_owned(),
        waiting: None,
        running,
        in_flight: Vec::<InFlight>::new(),
        done: 0,
        last: None,
        passes,
        pass_at: Moment::default(),
        at: Moment::from_millis(at),
    };
    let files = Files::default();
    let read = async |status: Option<LaneStatus>| {
        std::fs::write(&path, status.map_or(b"[]".to_vec(), |s| serde_json::to_vec(&s).unwrap())).unwrap();
        files.read(vec![Target::Lane(path.clone())]).await.remove(0)
    };
    let idle = read(Some(status(0, 7, 1))).await;
    assert_eq!(read(Some(status(0, 7, 2))).await, idle, "it writes, and its loop stands still");
    assert_ne!(read(Some(status(0, 8, 3))).await, idle);
    let busy = read(Some(status(1, 7, 1))).await;
    assert_ne!(read(Some(status(1, 7, 2))).await, busy, "a long write");
    assert!(matches!(read(None).await, Reading::Failed(_)));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(files.read(vec![Target::Lane(path.clone())]).await[0], Reading::Failed(_)));
}

static HANG: AtomicBool = AtomicBool::new(true);
/// How often somebody has looked at a file that hangs.
static TRIED: AtomicUsize = AtomicUsize::new(0);

fn hung(target: &Target) -> Reading {
    let dead = target.path().starts_with("/dead");
    TRIED.fetch_add(dead.into(), Ordering::AcqRel);
    while dead && HANG.load(Ordering::Acquire) {
        thread::park_timeout(Duration::from_millis(5));
    }
    Reading::Mark(1)
}

#[tokio::test]
async fn a_file_that_hangs_costs_its_own_reading_once_and_is_read_again_when_it_is_back() {
    let files = Files::default();
    let all = || vec![beat("/a"), beat("/dead/b"), beat("/c"), beat("/dead/d"), beat("/e")];
    let seen = |readings: &[Reading]| {
        readings.iter().map(|reading| matches!(reading, Reading::Mark(1))).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(seen(&files.read_with(all(), hung).await), [true, false, true, false, true]);
        assert_eq!(TRIED.load(Ordering::Acquire), 2, "each once, also when all are read once more");
    }
    // So many that no more threads are risked.
    let more = (0..8).map(|n| beat(format!("/dead/{n}"))).collect();
    assert_eq!(seen(&files.read_with(more, hung).await), [false; 8]);
    assert_eq!(files.hanging().len(), HANGING);
    HANG.store(false, Ordering::Release);
    let until = Instant::now() + DEADLINE * 20;
    while !files.hanging().is_empty() {
        assert!(Instant::now() < until);
        tokio::task::yield_now().await;
    }
    assert_eq!(seen(&files.read_with(all(), hung).await), [true; 5]);
}
