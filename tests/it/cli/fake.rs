//! A supervisor's end of the local socket, on a thread.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use assert_cmd::Command;
use keyholder::fleet::BlastRadius;
use keyholder::peer::wire::{
    Class, ClientFrame, Hello, NodeReport, NodeState, Outcome, Refusal, RefusalCode, Reply, Request,
    ServerFrame, Verdict, WorkerReport,
};
use keyholder::vocabulary::{BootNonce, FleetHash, InvocationId};

/// Longer than anything here takes; whoever reaches it has hung.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// A listening fake; each connection is served by the function that it was started with, one after the other.
pub(super) struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    pub(super) fn serving(mut serve: impl FnMut(UnixStream) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("sock")).unwrap();
        // The thread ends with the test process; it waits for nothing but the next connection.
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_read_timeout(Some(LONG)).unwrap();
                serve(stream);
            }
        });
        Self { dir }
    }

    /// Greets properly, then answers each request with what `answer` makes of it.
    pub(super) fn answering(mut answer: impl FnMut(&Request) -> Verdict + Send + 'static) -> Self {
        Self::serving(move |mut stream| {
            if greet(&mut stream).is_none() {
                return;
            }
            while let Some(ClientFrame::Request(request)) = receive(&mut stream) {
                let result = answer(&request);
                send(&mut stream, &ServerFrame::Reply(Reply { req_id: request.req_id, result }));
            }
        })
    }

    /// Answers every request with this outcome.
    pub(super) fn outcome(outcome: Outcome) -> Self {
        Self::answering(move |_| Verdict::Outcome(outcome.clone()))
    }

    /// Refuses every request.
    pub(super) fn refusing(code: RefusalCode, text: &'static str) -> Self {
        Self::answering(move |_| Verdict::Refused(Refusal::new(code, text)))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// The binary, told to use this socket.
    pub(super) fn keyholder(&self, args: &[&str]) -> Command {
        let mut command = keyholder(args);
        command.arg("--socket").arg(self.path());
        command
    }

    /// The directory the socket is in.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// The binary, without the test's own environment.
pub(crate) fn keyholder(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyholder"));
    command.args(args).timeout(LONG).env_clear();
    command
}

/// Takes the client's hello and answers it; nothing if that was none.
pub(super) fn greet(stream: &mut UnixStream) -> Option<Hello> {
    let Some(ClientFrame::Hello(client)) = receive(stream) else { return None };
    send(stream, &ServerFrame::Hello(hello()));
    Some(client)
}

pub(super) fn hello() -> Hello {
    Hello {
        node: "mars".parse().unwrap(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_nonce: BootNonce::from_bytes([7; 16]),
        fleet_hash: FleetHash::of(b"fleet"),
    }
}

/// One frame, in one write. A client that has gone is the client's business.
pub(super) fn send(stream: &mut UnixStream, frame: &ServerFrame) {
    let body = serde_json::to_vec(frame).unwrap();
    let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(body);
    let _ = stream.write_all(&bytes);
}

/// The next frame, none once the client has gone. What is no frame fails the test's expectations by silence.
pub(super) fn receive(stream: &mut UnixStream) -> Option<ClientFrame> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let length = usize::try_from(u32::from_be_bytes(head)).ok()?;
    assert!(length <= keyholder::peer::wire::MAX_REQUEST, "a request of {length} bytes");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

pub(super) fn worker(node: &str, name: &str, class: Class) -> WorkerReport {
    WorkerReport {
        node: node.parse().unwrap(),
        worker: name.parse().unwrap(),
        unit: format!("{name}.service").parse().unwrap(),
        blast_radius: BlastRadius::Normal,
        class,
        why: String::new(),
        for_ms: 90_000,
        invocation: Some(InvocationId::from_bytes([0x3f; 16])),
        doing: String::new(),
        due_in_ms: None,
        last_act: None,
        last_act_ms: None,
        held_for_ms: None,
        quarantined: false,
        left_to_peers: false,
        startable: true,
        lane: None,
        alert: None,
        drill: None,
        rehearsed: Vec::new(),
    }
}

pub(super) fn node(name: &str, state: NodeState, workers: Vec<WorkerReport>) -> NodeReport {
    NodeReport {
        node: name.parse().unwrap(),
        state,
        why: String::new(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        fleet_hash: Some(FleetHash::of(b"fleet")),
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers,
    }
}

/// What a command printed and how it ended, for snapshots.
pub(crate) fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).unwrap().replace(env!("CARGO_PKG_VERSION"), "VERSION")
    };
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}
