use super::*;

const HEALTHY: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n\
                       loading:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n\
                       role:master\r\n";

fn worst(info: &str) -> (Level, String) {
    let worst = judge(info).into_iter().max_by_key(|finding| finding.level).unwrap();
    (worst.level, worst.text)
}

#[test]
fn each_unfit_trait_is_found_and_named() {
    assert_eq!(worst(HEALTHY).0, Level::Ok);
    for (from, to, level, word) in [
        ("standalone", "cluster", Level::Error, "Redis Cluster"),
        ("standalone", "sentinel", Level::Error, "Sentinel"),
        ("role:master", "role:slave\r\nmaster_host:mars", Level::Error, "master (mars)"),
        ("noeviction", "allkeys-lru", Level::Error, "CONFIG SET maxmemory-policy"),
        ("aof_enabled:1", "aof_enabled:0", Level::Warn, "appendonly yes"),
        ("loading:0", "loading:1", Level::Error, "loading"),
        ("rdb_last_bgsave_status:ok", "rdb_last_bgsave_status:err", Level::Error, "snapshot"),
        ("redis_mode:standalone\r\n", "", Level::Warn, "mode is not known"),
        ("role:master", "role:\x1b[2J", Level::Warn, "\\x1b[2J"),
    ] {
        let (found, text) = worst(&HEALTHY.replace(from, to));
        assert!(found == level && text.contains(word), "{to}: {found:?} {text}");
    }
}

#[test]
fn a_valkey_is_called_by_its_name() {
    let valkey = HEALTHY.replace("7.0.15", "7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2");
    assert_eq!(judge(&valkey)[0].text, "Valkey 9.1.2 answers");
    assert_eq!(worst(&valkey.replace("redis_mode", "server_mode")).0, Level::Ok);
    assert_eq!(judge(HEALTHY)[0].text, "Redis 7.0.15 answers");
}

#[test]
fn no_password_is_shown_however_it_is_written() {
    for (url, masked) in [
        ("redis://ai-core:6379/0", "redis://ai-core:6379/0"),
        ("redis://me:hunter2@ai-core:6379", "redis://me:***@ai-core:6379"),
        ("rediss://:hunter2@ai-core/1?x=hunter2", "rediss://:***@ai-core/1"),
        ("redis://me:hun/ter2@hunter2@ai-core", "redis://me:***@ai-core"),
        ("redis://me:hunter2:hunter2@ai-core", "redis://me:***@ai-core"),
        ("redis://me@ai-core", "redis://me@ai-core"),
    ] {
        assert_eq!(mask(url), masked);
    }
    assert_eq!(shown("AUTH hunter2 failed\n", "redis://me:hunter2@ai-core"), "AUTH *** failed\\n");
}
