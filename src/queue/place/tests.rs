use super::*;

fn sentinels(url: &str) -> Sentinels {
    match RedisAddress::parse(url).unwrap() {
        RedisAddress::Sentinels(sentinels) => sentinels,
        RedisAddress::One(url) => panic!("{url} names no sentinels"),
    }
}

#[test]
fn a_url_names_sentinels_their_word_for_the_master_and_what_is_for_the_master() {
    let found = sentinels("rediss-sentinel://u:p%40@a,[::1]:7,b:26380/my-master_1.x/3?ca=/etc/ca.pem");
    assert_eq!(found.nodes, ["a:26379", "[::1]:7", "b:26380"]);
    assert_eq!(found.master, "my-master_1.x");
    assert_eq!(found.master_at("10.0.0.1", 6379), "rediss://u:p%40@10.0.0.1:6379/3?ca=/etc/ca.pem");
    assert_eq!(found.master_at("::1", 1), "rediss://u:p%40@[::1]:1/3?ca=/etc/ca.pem");
    let plain = sentinels("redis-sentinel://192.0.2.40/m");
    assert_eq!(plain.master_at("h", 1), "redis://h:1/");
    plain.next();
    assert_eq!(plain.first.load(Ordering::Relaxed), 0);
    found.next();
    assert_eq!(found.first.load(Ordering::Relaxed), 1);
}

#[test]
fn what_cannot_be_meant_is_refused_without_its_password() {
    for bad in [
        "redis-sentinel://",
        "redis-sentinel:///m",
        "redis-sentinel://u:secret@h",
        "redis-sentinel://u:secret@h/",
        "redis-sentinel://h,,i/m",
        "redis-sentinel://h:x/m",
        "redis-sentinel://h/m/x",
        "redis-sentinel://h/m/1/2",
        "redis-sentinel://h/m%20",
        "redis-sentinel://u:secret@h/m?ca=/etc/ca.pem",
        "redis-sentinel://a,b,c,d,e,f,g,h,i/m",
        "redis+sentinel://h/m",
        "redis://u:secret@h?ca=/etc/ca.pem",
        "redis://u:secret@h?cert=/etc/c.pem&key=/etc/k.pem",
        "rediss://u:secret@h?cert=/etc/c.pem",
        "rediss://u:secret@h?key=/etc/k.pem",
        "rediss://u:secret@h#insecure",
        "unix://",
        "unix:///run/redis.sock?db=x&pass=secret",
    ] {
        let error = RedisAddress::parse(bad).unwrap_err();
        assert!(matches!(error, QueueError::Url { .. }), "{bad}: {error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn what_a_sentinel_says_is_no_way_into_the_url() {
    for bad in ["", "h/1", "u@h", "h:1", "h?x", "h#x", "a b", "[::1]", "ä"] {
        assert!(!fit(bad), "{bad:?}");
    }
    for good in ["10.0.0.1", "::1", "redis-1.example_x"] {
        assert!(fit(good), "{good}");
    }
}

#[test]
fn an_authority_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.pem");
    let url = format!("rediss://u:secret@h?ca={}", file.display());
    for (text, word) in [(None, "No such file"), (Some("nonsense"), "PEM")] {
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let error = Found::at(url.clone()).err().unwrap();
        let said = error.to_string();
        assert!(matches!(error, QueueError::TlsFile { .. }) && said.contains(word), "{said}");
        assert!(said.contains("ca.pem") && !said.contains("secret"), "{said}");
    }
}
