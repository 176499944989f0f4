//! What the lanes of this node say of themselves, read beside the loop and only told to it when there is something new to
//! show. Redis is never asked: a supervisor that waits for it would be no help when it is gone.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::vocabulary::{LANE_STATUS_EVERY, LANE_STATUS_MAX, LaneStatus, Mode, Moment, NodeName, WorkerName};

/// How often a lane's file is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// After which time without a new word a lane is called silent: it misses several.
const SILENT: Duration = Duration::from_secs(5 * LANE_STATUS_EVERY.as_secs());

/// What is new about a lane.
#[derive(Debug)]
pub(super) struct LaneNews {
    pub(super) worker: WorkerName,
    /// Its word, nothing if there is none, or why it is not believed.
    pub(super) said: Result<Option<LaneStatus>, String>,
    /// Whether it should have said more since.
    pub(super) silent: bool,
}

/// What was told last of one lane, and which file it was.
#[derive(Default)]
struct LastStatus {
    file: Option<(u64, i64, i64)>,
    at: Option<Moment>,
    told: Option<(Result<Option<LaneStatus>, String>, bool)>,
}

/// Looks at the files of these lanes until the loop has gone.
pub(super) async fn follow(
    me: NodeName,
    mut lanes: watch::Receiver<Vec<(WorkerName, Mode)>>,
    news: mpsc::Sender<LaneNews>,
) {
    let mut known = BTreeMap::<WorkerName, (Mode, LastStatus)>::new();
    loop {
        let wanted = lanes.borrow_and_update().clone();
        known.retain(|name, (mode, _)| wanted.iter().any(|(worker, lane)| worker == name && lane == mode));
        for (worker, lane) in &wanted {
            let (_, known) = known.entry(worker.clone()).or_insert_with(|| (*lane, LastStatus::default()));
            if let Some((said, silent)) = known.look(&LaneStatus::path(*lane), &me, *lane, Moment::now())
                && news.send(LaneNews { worker: worker.clone(), said, silent }).await.is_err()
            {
                return;
            }
        }
        let gone = if wanted.is_empty() {
            lanes.changed().await.is_err()
        } else {
            // Both may be given up at any moment.
            tokio::select! {
                changed = lanes.changed() => changed.is_err(),
                () = sleep(LOOK) => false,
            }
        };
        if gone {
            return;
        }
    }
}

/// A lane's word at this moment, for whoever has not followed it. None if there is none or it is not believed.
pub(super) fn word(me: &NodeName, lane: Mode) -> Option<LaneStatus> {
    match read(&LaneStatus::path(lane), None) {
        FileRead::Read(_, bytes) => believe(&bytes, me, lane).ok(),
        FileRead::Same | FileRead::Gone | FileRead::Unreadable(_) => None,
    }
}

impl LastStatus {
    /// What is new to show, if anything is.
    fn look(
        &mut self,
        path: &Path,
        me: &NodeName,
        lane: Mode,
        now: Moment,
    ) -> Option<(Result<Option<LaneStatus>, String>, bool)> {
        let (file, said) = match read(path, self.file) {
            FileRead::Same => (self.file, None),
            FileRead::Gone => (None, Some(Ok(None))),
            FileRead::Unreadable(why) => (None, Some(Err(why))),
            FileRead::Read(file, bytes) => (Some(file), Some(believe(&bytes, me, lane).map(Some))),
        };
        self.file = file;
        if let Some(said) = &said {
            self.at = said.as_ref().ok().and_then(|status| status.as_ref()).map(|status| status.at);
        }
        let silent = self.at.is_some_and(|at| now.since(at) > SILENT);
        let (told, was_silent) =
            self.told.as_ref().map_or((&Ok(None), false), |(told, silent)| (told, *silent));
        let said = match said {
            Some(said) if !same(&said, told) => said,
            Some(_) | None if silent != was_silent => told.clone(),
            Some(_) | None => return None,
        };
        // With a new word its moment comes, too.
        self.told = Some((said.clone(), silent));
        Some((said, silent))
    }
}

/// Whether two words show the same. That a lane's loop comes round is as it should be and shows nothing.
fn same(one: &Result<Option<LaneStatus>, String>, other: &Result<Option<LaneStatus>, String>) -> bool {
    match (one, other) {
        (Ok(Some(one)), Ok(Some(other))) => {
            let LaneStatus { passes, pass_at, at, .. } = *other;
            LaneStatus { passes, pass_at, at, ..one.clone() } == *other
        }
        // Whatever is wrong with it now: it was said that it is not believed.
        (Err(_), Err(_)) | (Ok(None), Ok(None)) => true,
        (Err(_) | Ok(_), Err(_) | Ok(_)) => false,
    }
}

fn believe(bytes: &[u8], me: &NodeName, lane: Mode) -> Result<LaneStatus, String> {
    let status = LaneStatus::read(bytes)?;
    if status.lane == lane && status.node == *me {
        Ok(status)
    } else {
        Err(format!("it is the word of the {} lane of {}", status.lane, status.node))
    }
}

enum FileRead {
    Same,
    Gone,
    Unreadable(String),
    Read((u64, i64, i64), Vec<u8>),
}

/// Reads a file that somebody with fewer rights made: no link is followed, nothing that could block is waited for, and not
/// more is read than there may be. Each word is a new file; the one that is known is not read again.
fn read(path: &Path, known: Option<(u64, i64, i64)>) -> FileRead {
    let which = |meta: &Metadata| (meta.ino(), meta.mtime(), meta.mtime_nsec());
    let unreadable = |error: std::io::Error| {
        if error.kind() == ErrorKind::NotFound {
            FileRead::Gone
        } else {
            FileRead::Unreadable(error.to_string())
        }
    };
    match path.symlink_metadata() {
        Ok(meta) if known == Some(which(&meta)) => return FileRead::Same,
        Ok(_) => {}
        Err(error) => return unreadable(error),
    }
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = File::options().read(true).custom_flags(flags.bits()).open(path);
    let (file, meta) = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
        Ok(opened) => opened,
        Err(error) => return unreadable(error),
    };
    if !meta.is_file() {
        return FileRead::Unreadable("it is no file".to_owned());
    }
    let mut bytes = Vec::with_capacity(1024);
    // One byte more, so that too long is seen as too long.
    match file.take(LANE_STATUS_MAX as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) => FileRead::Read(which(&meta), bytes),
        Err(error) => FileRead::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: Moment = Moment::from_millis(1_000_000);

    fn status() -> LaneStatus {
        LaneStatus {
            lane: Mode::Write,
            node: "mars".parse().unwrap(),
            pid: 1,
            invocation: None,
            connected: true,
            no_tasks: None,
            queue: "q".to_owned(),
            waiting: Some(0),
            running: 0,
            in_flight: Vec::new(),
            done: 0,
            last: None,
            passes: 1,
            pass_at: NOW,
            at: NOW,
        }
    }

    struct Scene {
        dir: tempfile::TempDir,
        known: LastStatus,
    }

    impl Scene {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), known: LastStatus::default() }
        }

        fn put(&self, bytes: &[u8]) {
            fs::write(self.dir.path().join("new"), bytes).unwrap();
            fs::rename(self.dir.path().join("new"), self.dir.path().join("status.json")).unwrap();
        }

        fn say(&self, status: &LaneStatus) {
            self.put(&serde_json::to_vec(status).unwrap());
        }

        fn look(&mut self, now: Moment) -> Option<(Result<Option<LaneStatus>, String>, bool)> {
            let path = self.dir.path().join("status.json");
            self.known.look(&path, &"mars".parse().unwrap(), Mode::Write, now)
        }
    }

    #[test]
    fn only_what_shows_is_told() {
        let mut scene = Scene::new();
        assert_eq!(scene.look(NOW), None);
        scene.say(&status());
        assert_eq!(scene.look(NOW), Some((Ok(Some(status())), false)));
        assert_eq!(scene.look(NOW), None);
        let round = LaneStatus { passes: 2, pass_at: NOW + LOOK, at: NOW + LOOK, ..status() };
        scene.say(&round);
        assert_eq!(scene.look(NOW + LOOK), None);
        let busy = LaneStatus { waiting: Some(3), ..round };
        scene.say(&busy);
        assert_eq!(scene.look(NOW + LOOK), Some((Ok(Some(busy)), false)));
        fs::remove_file(scene.dir.path().join("status.json")).unwrap();
        assert_eq!(scene.look(NOW + LOOK), Some((Ok(None), false)));
        assert_eq!(scene.look(NOW + LOOK), None);
    }

    #[test]
    fn a_lane_that_says_nothing_any_more_is_silent_until_it_does() {
        let mut scene = Scene::new();
        scene.say(&status());
        scene.look(NOW);
        assert_eq!(scene.look(NOW + SILENT), None);
        let later = NOW + SILENT + LOOK;
        assert_eq!(scene.look(later), Some((Ok(Some(status())), true)));
        assert_eq!(scene.look(later + SILENT), None);
        scene.say(&LaneStatus { at: later + SILENT, ..status() });
        let (said, silent) = scene.look(later + SILENT).unwrap();
        assert!(said.unwrap().is_some() && !silent);
    }

    #[test]
    fn what_is_no_word_of_this_lane_is_not_believed() {
        let mut scene = Scene::new();
        for bad in [
            LaneStatus { lane: Mode::Read, ..status() },
            LaneStatus { node: "venus".parse().unwrap(), ..status() },
            LaneStatus { queue: "\x1b[2J".to_owned(), ..status() },
        ] {
            scene.say(&bad);
            assert!(matches!(scene.look(NOW), Some((Err(_), false))));
            scene.put(b"{}");
            assert_eq!(scene.look(NOW), None, "it was said already");
            scene.say(&status());
            assert!(matches!(scene.look(NOW), Some((Ok(Some(_)), false))));
        }
        scene.put(&[b' '; LANE_STATUS_MAX + 1]);
        assert!(matches!(scene.look(NOW), Some((Err(_), false))));
        let at = scene.dir.path().join("status.json");
        scene.say(&status());
        scene.look(NOW);
        fs::rename(&at, scene.dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &at).unwrap();
        assert!(matches!(scene.look(NOW), Some((Err(_), false))), "a link is not followed");
        fs::remove_file(&at).unwrap();
        scene.look(NOW);
        assert!(std::process::Command::new("mkfifo").arg(&at).status().unwrap().success());
        let (said, _) = scene.look(NOW).unwrap();
        assert_eq!(said, Err("it is no file".to_owned()), "and a pipe is not waited for");
    }
}
