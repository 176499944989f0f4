//! A thousand sockets that say nothing must neither keep a peer out nor use up descriptors, memory or the audit trail.

use std::time::Instant;

use keyholder::peer::wire::Verdict;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::clients::tcp;
use super::house::{House, PATIENCE, PEER_ADDRESS, eventually, name, relaunch, worker};

/// Both floods count the descriptors of this one process: side by side, each sees the other's thousand as its own.
static ALONE: Mutex<()> = Mutex::const_new(());

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn flood(from: [u8; 4]) {
    let _alone = ALONE.lock().await;
    let house = House::open().await;
    let before = descriptors();
    let mut silent: Vec<TcpStream> = Vec::new();
    for n in 0..1000 {
        silent.push(tcp(house.address, from).await);
        if n == 500 {
            served(&house).await;
        }
    }
    served(&house).await;
    // Ours are 1,000; the door holds 32 strangers at most, and other tests run beside this one.
    eventually("bounded descriptors", || (descriptors() < before + 1000 + 200).then_some(())).await;
    assert!(house.records().len() < 100, "{} records", house.records().len());
    assert_eq!(house.orders().len(), 2);
    // Whoever stays silent is closed in the end.
    let begun = Instant::now();
    for mut socket in silent {
        assert_eq!(super::clients::rest(&mut socket).await, b"");
    }
    assert!(begun.elapsed() < 2 * PATIENCE);
}

async fn served(house: &House) {
    let begun = Instant::now();
    let (link, _events) = house.call().await.unwrap();
    let verdict =
        link.request(&name("mars"), Some(&worker("write")), relaunch(), "", PATIENCE).await.unwrap();
    assert!(matches!(verdict, Verdict::Outcome(_)));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_thousand_silent_sockets_from_elsewhere() {
    flood([127, 0, 0, 9]).await;
}

#[tokio::test]
async fn a_thousand_silent_sockets_from_the_peers_own_address() {
    flood(PEER_ADDRESS).await;
}
