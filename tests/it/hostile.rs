//! Somebody else who answers where a Redis or a sentinel should: whatever it says, who reads it fails in time and stays small.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keyholder::queue::{Front, How, Question, QueueError, QueueName, QueueProbe, Server, preflight};

/// What one who reads may grow by, in KiB: some megabytes are read of a list, and no more than twice that is made of it.
const GROWTH: u64 = 24 * 1024;
/// Longer than every deadline of those who read, and connecting to sentinels.
const DEADLINE: Duration = Duration::from_secs(15);

/// What it says, before and over and over.
const ATTACKS: [(&str, &[u8], &[u8]); 9] = [
    ("a string of 512 MB", b"$536870912\r\n", &[b'x'; 65_536]),
    ("a line without an end", b"+", &[b'x'; 65_536]),
    ("an error without an end", b"-ERR ", &[b'x'; 65_536]),
    ("a hundred million values", b"*100000000\r\n", b":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"),
    ("arrays in arrays", b"", b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"),
    ("arrays of large strings", b"*1000000\r\n", b"$4\r\nxxxx\r\n$4\r\nxxxx\r\n"),
    ("push messages", b"", b">3\r\n+message\r\n+a\r\n+b\r\n>3\r\n+message\r\n+a\r\n+b\r\n"),
    ("answers that nobody asked for", b"", b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n"),
    ("a byte now and then", b"$4000\r\n", b"x"),
];

/// Answers every connection with one attack.
struct Hostile {
    at: SocketAddr,
    ended: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Hostile {
    fn new(first: &'static [u8], then: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let ended = Arc::<AtomicBool>::default();
        let end = Arc::clone(&ended);
        let listening = std::thread::spawn(move || {
            let mut talking = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let end = Arc::clone(&end);
                talking.push(std::thread::spawn(move || talk(stream, first, then, &end)));
            }
            talking.into_iter().for_each(|talk| talk.join().unwrap());
        });
        Self { at, ended, listening: Some(listening) }
    }
}

/// At most 64 MB, once something was asked.
fn talk(mut stream: TcpStream, first: &[u8], then: &[u8], end: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(first);
    let drips = then.len() == 1;
    let mut sent = 0;
    while sent < 64 << 20 && !end.load(Ordering::Relaxed) && stream.write_all(then).is_ok() {
        sent += then.len();
        if drips {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.at));
        self.listening.take().unwrap().join().unwrap();
    }
}

/// Kilobytes of resident memory: at present, and at most so far.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Everybody who reads of Redis, one after the other.
async fn all_read(url: &str) {
    let queue = QueueName::write(&"mars".parse().unwrap());
    let limit = |who: &str, began: Instant| {
        assert!(began.elapsed() < DEADLINE, "{who}: {:?}", began.elapsed());
    };
    let said = |who: &str, error: &QueueError| {
        let fine = matches!(
            error,
            QueueError::Excess { .. } | QueueError::Late { .. } | QueueError::NoMaster { .. }
                // The last byte of the flood may come with the end of the connection.
                | QueueError::Unreachable { .. } | QueueError::Refused { .. }
        );
        assert!(fine, "{who}: {error:?}");
    };
    let began = Instant::now();
    said("preflight", &preflight(url, Duration::from_secs(3)).await.unwrap_err());
    limit("preflight", began);
    let began = Instant::now();
    let mut eyes = QueueProbe::new(url).unwrap();
    let looked = eyes.look(&[Question::List { key: "inbox".to_owned(), busy: None }]).await;
    assert!(looked.is_err(), "{looked:?}");
    limit("a detector", began);
    let began = Instant::now();
    match Front::connect(url).await {
        Err(error) => said("connecting", &error),
        Ok(front) => said("keyholder queue", &front.look(&queue).await.unwrap_err()),
    }
    limit("keyholder queue", began);
    let began = Instant::now();
    match Server::new(url, &queue).unwrap().connect(How::Blmove).await {
        Err(error) => said("a lane", &error),
        Ok(_) => panic!("a lane has connected"),
    }
    limit("a lane", began);
}

#[test]
fn whatever_a_server_says_who_reads_it_fails_in_time_and_stays_small() {
    const URL: &str = "KEYHOLDER_TEST_HOSTILE_URL";
    if let Ok(url) = std::env::var(URL) {
        let (before, _) = resident();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::task::LocalSet::new().run_until(all_read(&url)).await });
        let (_, most) = resident();
        assert!(most - before < GROWTH, "grown from {before} to {most} KiB");
        return;
    }
    for (attack, first, then) in ATTACKS {
        let server = Hostile::new(first, then);
        for url in [format!("redis://{}", server.at), format!("redis-sentinel://{}/mymaster", server.at)] {
            // Memory is that of a process of its own.
            let told = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "hostile::whatever_a_server_says_who_reads_it_fails_in_time_and_stays_small",
                ])
                .arg("--nocapture")
                .env(URL, &url)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&told.stderr) + String::from_utf8_lossy(&told.stdout);
            assert!(told.status.success(), "{attack}, {url}: {text}");
        }
    }
}
