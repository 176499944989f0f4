//! Clients that no well-meaning program is: frames as bare text, sockets by the hundred, from any place in the lab.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use crate::harness::{Lab, SOON, address};

/// How long an answer may take; the door closes whatever is not one of its clients within this.
pub(crate) const PATIENCE: Duration = SOON;

/// OpenSSL 3.0 does not read Ed25519 keys that carry their public half (RFC 5958): the same key in the older form (RFC 5208),
/// and any certificate around it.
const OWN_KEY: &str = r"
{ printf '\060\056\002\001\000\060\005\006\003\053\145\160\004\042\004\040'
  sed /---/d /etc/keyholder/key.pem | base64 -d | tail -c +17 | head -c 32; } >/root/own.der &&
openssl pkey -inform DER -in /root/own.der -out /root/own.key &&
openssl req -x509 -key /root/own.key -out /root/own.pem -subj /CN=x -days 1";

/// A connection past TLS or to the local socket, and what comes back over it, frame by frame.
pub(crate) struct Speech {
    to: Box<dyn Write>,
    from: Receiver<Value>,
    /// `openssl`, which ends with the connection.
    child: Option<Child>,
    /// The supervisor's run, once it has said hello.
    pub(crate) nonce: Value,
}

impl Speech {
    /// Root's connection to the local socket of a node, before the hello.
    pub(crate) fn local(lab: &Lab, node: &str) -> Self {
        let path = lab.root(node).join("run/keyholder/keyholder.sock");
        let stream = UnixStream::connect(&path).expect("the local socket takes connections");
        let from = frames(stream.try_clone().expect("a second handle"));
        Self { to: Box::new(stream), from, child: None, nonce: Value::Null }
    }

    /// A TLS connection to `to` with the key of `node`, by another implementation of TLS than ours, before the hello.
    pub(crate) fn peer(lab: &Lab, node: &str, to: &str) -> Self {
        lab.sh(node, OWN_KEY);
        let line = format!(
            "exec openssl s_client -quiet -tls1_3 -alpn keyholder/1 -connect {}:7433 \
             -key /root/own.key -cert /root/own.pem 2>/dev/null",
            address(to)
        );
        let mut child = lab
            .command(&["exec", node, "sh", "-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("tests/lab/lab runs");
        let from = frames(child.stdout.take().expect("a pipe"));
        let to = Box::new(child.stdin.take().expect("a pipe"));
        Self { to, from, child: Some(child), nonce: Value::Null }
    }

    /// Says hello as `name` and hears the supervisor's.
    pub(crate) fn greet(mut self, name: &str) -> Self {
        self.say(&json!({"hello": {
            "node": name, "version": "0", "boot_nonce": "0".repeat(32), "fleet_hash": format!("sha256:{}", "0".repeat(64)),
        }}));
        let hello = self.next().expect("a hello");
        self.nonce = hello["hello"]["boot_nonce"].clone();
        assert!(self.nonce.is_string(), "{hello}");
        self
    }

    /// Sends bytes as they are. What the other side has closed cannot be written to, which its silence shows.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.to.write_all(bytes).and_then(|()| self.to.flush());
    }

    /// Sends one frame.
    pub(crate) fn say(&mut self, frame: &Value) {
        self.send(&framed(frame.to_string().as_bytes()));
    }

    /// The next frame; `None` when the connection has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.from.recv_timeout(PATIENCE) {
            Ok(frame) => Some(frame),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("neither a frame nor an end within {PATIENCE:?}"),
        }
    }

    /// The next verdict; `None` when the connection has ended.
    pub(crate) fn verdict(&mut self) -> Option<Value> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let frame = self.next()?;
            if frame.get("reply").is_some() {
                return Some(frame["reply"]["result"].clone());
            }
        }
        panic!("keepalives, but no verdict within {PATIENCE:?}");
    }

    /// Asks for something and returns the verdict.
    pub(crate) fn ask(&mut self, request: &Value) -> Value {
        self.say(&json!({ "request": request }));
        self.verdict().expect("a verdict, and not the end of the connection")
    }

    /// Waits until the other side has closed; returns after how long.
    pub(crate) fn end(mut self) -> Duration {
        let begun = Instant::now();
        while self.next().is_some() {
            assert!(begun.elapsed() < PATIENCE, "it is kept open");
        }
        begun.elapsed()
    }
}

impl Drop for Speech {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A relaunch of `mars/agent`, made for the run `nonce` of its supervisor, with the request's own number.
pub(crate) fn relaunch(nonce: &Value, number: u32) -> Value {
    json!({
        "boot_nonce": nonce, "req_id": format!("{number:032x}"), "target_node": "mars", "worker": "agent",
        "verb": {"relaunch": {"settled": false, "force": false}}, "because": "a scenario of the lab",
    })
}

/// A frame around anything.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(bytes.len()).expect("short").to_be_bytes().to_vec();
    frame.extend_from_slice(bytes);
    frame
}

/// Reads frames in a thread of its own, so that whoever waits for one can have a deadline.
fn frames(mut from: impl Read + Send + 'static) -> Receiver<Value> {
    let (to, frames) = channel();
    std::thread::spawn(move || {
        loop {
            let mut head = [0; 4];
            if from.read_exact(&mut head).is_err() {
                return;
            }
            let mut body = vec![0; u32::from_be_bytes(head) as usize];
            if from.read_exact(&mut body).is_err() {
                return;
            }
            let frame = serde_json::from_slice(&body).expect("the supervisor sends JSON");
            if to.send(frame).is_err() {
                return;
            }
        }
    });
    frames
}

/// A place in the lab's network: the bridge (192.0.2.1, an address that no fleet file names) or a node.
#[derive(Clone)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// The bridge.
    pub(crate) fn bridge(lab: &Lab) -> Self {
        Self(format!("/run/netns/kh-{}", lab.lab(&["id"]).trim()).into())
    }

    /// A node, with its own address.
    pub(crate) fn of(lab: &Lab, node: &str) -> Self {
        Self(format!("/proc/{}/ns/net", lab.lab(&["leader", node]).trim()).into())
    }

    /// Does something there, in a thread: a network namespace is a thread's own.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let namespace = std::fs::File::open(&self.0).expect("the lab's namespace");
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter it");
            body()
        })
    }
}

/// The door of a node.
pub(crate) fn door(node: &str) -> SocketAddr {
    SocketAddr::new(address(node).parse().expect("an address"), 7433)
}

/// Connects to a door.
pub(crate) fn knock(node: &str) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&door(node), SOON)
}
