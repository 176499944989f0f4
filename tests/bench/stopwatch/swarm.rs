//! Fleets of simulated nodes on one host: one supervisor each, with its own key, state and sockets, watched by the next two.
//! All fleets run at the same time, so that they are measured under the same circumstances.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyholder::peer::identity;
use keyholder::peer::wire::NodeState;

use super::Watch;
use super::cost::Sample;

/// How many nodes watch one node.
const WATCHERS: u8 = 2;
const PORT: u16 = 7433;
/// Between "everybody is up" and the first look, so that what the start cost is over.
const CALM: Duration = Duration::from_secs(5);

/// One simulated node, as long as this value lives.
struct Node {
    child: Child,
    address: Ipv4Addr,
    socket: PathBuf,
    watches: Vec<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a fleet of each size and prints, per fleet and node: resident and anonymous kB, CPU in microseconds and wake-ups within
/// `seconds`, and bytes and packets sent; each as a median and the most. After that all processors are kept busy for `busy`
/// seconds; whether anybody called anybody unreachable is in the journal.
///
/// A file `up` in the directory says that all nodes see each other; `over` has the time at which nothing is measured any more.
pub(super) fn run(directory: &str, binary: &str, unit: &str, seconds: u32, busy: u32, sizes: &[u8]) {
    let directory = Path::new(directory);
    let fleets: Vec<Vec<Node>> = (1..)
        .zip(sizes)
        .map(|(fleet, size)| start(&directory.join(format!("fleet{size}")), binary, unit, fleet, *size))
        .collect();
    for node in fleets.iter().flatten() {
        for other in &node.watches {
            Watch::open(node.socket.to_str().unwrap()).until_node(other, NodeState::Up);
        }
    }
    std::thread::sleep(CALM);
    fs::write(directory.join("up"), []).unwrap();
    let look = || {
        let samples = fleets.iter().map(|nodes| nodes.iter().map(|node| Sample::of(node.child.id())));
        (samples.map(Iterator::collect).collect::<Vec<Vec<_>>>(), traffic())
    };
    let (before, sent) = look();
    std::thread::sleep(Duration::from_secs(seconds.into()));
    let (after, sent_since) = look();
    for ((nodes, before), after) in fleets.iter().zip(&before).zip(&after) {
        let both = || before.iter().zip(after);
        let of = |node: &Node, at: &HashMap<Ipv4Addr, [u64; 2]>| {
            at.get(&node.address).copied().unwrap_or_default()
        };
        let grown = |field: usize| {
            nodes.iter().map(|node| of(node, &sent_since)[field] - of(node, &sent)[field]).collect::<Vec<_>>()
        };
        let columns = [
            after.iter().map(|sample| sample.rss).collect(),
            after.iter().map(|sample| sample.anon).collect(),
            both().map(|(before, after)| after.cpu.saturating_sub(before.cpu)).collect(),
            both().map(|(before, after)| after.woken - before.woken).collect(),
            grown(0),
            grown(1),
        ];
        let mut line = nodes.len().to_string();
        for mut column in columns {
            column.sort_unstable();
            let _ = write!(line, " {} {}", column[column.len() / 2], column[column.len() - 1]);
        }
        println!("{line}");
    }
    let end = Instant::now() + Duration::from_secs(busy.into());
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let spin = move || while Instant::now() < end {};
    let threads: Vec<_> = (0..processors).map(|_| std::thread::spawn(spin)).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // From here on they are missed, and rightly so.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    fs::write(directory.join("over"), now.as_secs().to_string()).unwrap();
}

fn name(number: u8) -> String {
    format!("n{number}")
}

/// Those that come after `number` in a ring of `size`; they watch it.
fn next(number: u8, size: u8) -> impl Iterator<Item = u8> {
    (1..=WATCHERS).map(move |step| (number - 1 + step) % size + 1)
}

/// One fleet. Every door is open before anybody knocks.
fn start(directory: &Path, binary: &str, unit: &str, fleet: u8, size: u8) -> Vec<Node> {
    let address = |number: u8| Ipv4Addr::new(127, 7, fleet, number);
    let mut yaml = String::from("version: 1\nnodes:\n");
    let mut doors = Vec::new();
    for number in 1..=size {
        let home = directory.join(name(number));
        fs::create_dir_all(&home).unwrap();
        let pin = identity::generate(&home.join("key.pem"), true).unwrap().pin();
        let watchers: Vec<_> = next(number, size).map(name).collect();
        let _ = write!(
            yaml,
            "  {}:\n    address: {}:{PORT}\n    pins: [\"{pin}\"]\n    watched_by: [{}]\n    workers:\n      work: {{ unit: {unit} }}\n",
            name(number),
            address(number),
            watchers.join(", ")
        );
        let socket = home.join("sock");
        let tcp = TcpListener::bind(SocketAddr::from((address(number), PORT))).unwrap();
        let unix = UnixListener::bind(&socket).unwrap();
        doors.push((number, home, socket, tcp, unix));
    }
    yaml.push_str("grants:\n");
    for number in 1..=size {
        for watcher in next(number, size) {
            let (from, on) = (name(watcher), name(number));
            let _ = writeln!(
                yaml,
                "  - {{ from: {from}, on: {on}, workers: [\"*\"], verbs: [status, relaunch] }}"
            );
        }
    }
    let file = directory.join("fleet.yaml");
    fs::write(&file, yaml).unwrap();
    doors
        .into_iter()
        .map(|(number, home, socket, tcp, unix)| Node {
            child: supervise(binary, &file, &home, &name(number), tcp, unix),
            address: address(number),
            socket,
            watches: (1..=size).filter(|other| next(*other, size).any(|by| by == number)).map(name).collect(),
        })
        .collect()
}

/// A supervisor that is handed its sockets as systemd does it: as descriptors 3 and 4, with its own pid. Only a shell can
/// put them there without a word of `unsafe`.
fn supervise(
    binary: &str,
    fleet: &Path,
    home: &Path,
    node: &str,
    tcp: TcpListener,
    unix: UnixListener,
) -> Child {
    let script = "exec 3<&0 4>&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
    Command::new("sh")
        .args(["-c", script, "sh", binary, "--node", node, "--fleet"])
        .arg(fleet)
        .arg("--key-dir")
        .arg(home)
        .arg("--state-dir")
        .arg(home.join("state"))
        .stdin(OwnedFd::from(tcp))
        .stdout(OwnedFd::from(unix))
        .stderr(File::create(home.join("stderr")).unwrap())
        .spawn()
        .unwrap()
}

/// Bytes and packets that each address has sent so far over the connections that it has, without the headers of IP and TCP.
fn traffic() -> HashMap<Ipv4Addr, [u64; 2]> {
    let output = Command::new("ss").args(["-tinOH", "state", "established"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut sent = HashMap::<_, [u64; 2]>::new();
    for line in text.lines() {
        let local = line.split_ascii_whitespace().nth(2).and_then(|local| local.rsplit_once(':'));
        let Some(Ok(local)) = local.map(|(address, _)| address.parse()) else { continue };
        let value = |name: &str| -> u64 {
            let value = line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        let sums = sent.entry(local).or_default();
        sums[0] += value("bytes_sent:");
        sums[1] += value("segs_out:");
    }
    sent
}
