//! Whether the fleet's Redis is fit for the lanes' queues, for `keyholder doctor`. Changes nothing.

use std::time::Duration;

use redis::RedisError;
use tokio::time::timeout;

use super::conn::Conn;
use super::error::{QueueError, mask, shown};
use super::limit::Limit;
use super::look::PROBE;
use super::place::{Found, RedisAddress};

/// What is read of an answer: `INFO` has some 10 KiB, more with many databases or modules.
const LIMIT: Limit = Limit { string: 1024 * 1024, reply: 2 * 1024 * 1024, values: 4096 };

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was found, and the way out if it is not well. Fit for a terminal, free of passwords.
    pub text: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but tasks can be lost.
    Warn,
    /// The lanes cannot or must not work with it.
    Error,
}

/// Looks at the Redis at `url` and says what is well and what is not, everything at once.
///
/// # Errors
/// When nothing can be found out: no address, no connection, no answer within `deadline` (for all of it), no entry.
pub async fn preflight(url: &str, deadline: Duration) -> Result<Vec<Finding>, QueueError> {
    let place = RedisAddress::parse(url)?;
    let look = async { look(&place.find().await?, deadline).await };
    timeout(deadline, look).await.unwrap_or(Err(QueueError::Late { url: mask(url), deadline }))
}

async fn look(found: &Found, deadline: Duration) -> Result<Vec<Finding>, QueueError> {
    let mut conn = found.connect(Some(deadline), LIMIT).await?;
    ask(&mut conn).await.map_err(|error| QueueError::of(&error, &found.url))
}

async fn ask(conn: &mut Conn) -> Result<Vec<Finding>, RedisError> {
    redis::cmd("PING").query_async::<()>(conn).await?;
    let mut findings = match allowed(redis::cmd("INFO").query_async::<String>(conn).await)? {
        Some(info) => judge(&info),
        None => vec![warn(
            "our user may not run INFO, so version, role, cluster mode, eviction and persistence are not checked; \
             allow it: ACL SETUSER … +info",
        )],
    };
    findings.extend(commands(conn).await?);
    Ok(findings)
}

/// `None` if the server's access list forbids the command.
fn allowed<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Err(error) if QueueError::forbids(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// By capability: Valkey calls itself Redis 7.2.4, and forks and proxies say what they like.
async fn commands(conn: &mut Conn) -> Result<Vec<Finding>, RedisError> {
    let answer =
        redis::cmd("COMMAND").arg("INFO").arg(&COMMANDS).query_async::<Vec<redis::Value>>(conn).await;
    let mut findings = Vec::new();
    match allowed(answer)? {
        None => findings
            .push(warn("our user may not run COMMAND, so it is not known which commands the server has")),
        Some(known) => {
            let has = |entry: Option<&redis::Value>| entry.is_some_and(|entry| *entry != redis::Value::Nil);
            let lacks: Vec<_> = COMMANDS
                .iter()
                .enumerate()
                .filter(|(at, _)| !has(known.get(*at)))
                .map(|(_, name)| *name)
                .collect();
            if !lacks.contains(&"BLMOVE") {
                findings.push(ok("it has BLMOVE: no task is lost between queue and lane"));
            }
            if !lacks.is_empty() {
                findings.push(error(format!(
                    "it has no {}, which lanes and detectors need: take the rename-command for it out of the server's \
                     configuration, or upgrade the server to 6.2 or newer",
                    lacks.join(", ")
                )));
            }
        }
    }
    let script = redis::cmd("EVAL").arg("return 1").arg(0).query_async::<i64>(conn).await;
    match script {
        Ok(_) => {}
        Err(refused) if QueueError::forbids(&refused) => findings.push(warn(
            "our user may not run EVAL, so this address is not for detectors and not for keyholder queue; allow it: ACL \
             SETUSER … +eval",
        )),
        // That it is not there has been said.
        Err(refused) if refused.code() == Some("ERR") => {}
        Err(refused) => return Err(refused),
    }
    // An empty write, as detectors try it. What else is in its way than a right is found by whoever needs it.
    if let Err(refused) = redis::cmd("SETRANGE").arg(PROBE).arg(0).arg("").query_async::<i64>(conn).await
        && QueueError::forbids(&refused)
    {
        findings.push(warn(format!(
            "our user may not run SETRANGE on {PROBE}, so a detector with this address cannot see whether the server takes \
             writes, and every heartbeat in it stays unknown; allow it: ACL SETUSER … +setrange ~{PROBE}",
        )));
    }
    Ok(findings)
}

/// What lanes, detectors and the command line send, in their scripts as well.
const COMMANDS: [&str; 29] = [
    "BLMOVE", "BRPOP", "CLIENT", "DEL", "EVAL", "EVALSHA", "EXISTS", "GET", "HDEL", "HGET", "HGETALL",
    "HLEN", "HSET", "INFO", "LINDEX", "LLEN", "LPOS", "LPUSH", "LRANGE", "LREM", "LTRIM", "PING", "PTTL",
    "ROLE", "RPOP", "RPUSH", "SCRIPT", "SET", "SETRANGE",
];

/// What the text of INFO says about fitness.
fn judge(info: &str) -> Vec<Finding> {
    let field =
        |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
    let version = field("valkey_version").map_or_else(
        || format!("Redis {}", field("redis_version").unwrap_or("of an unknown version")),
        |version| format!("Valkey {version}"),
    );
    let mut findings = vec![ok(format!("{} answers", shown(&version, "")))];
    // Valkey's own word for it, unless it is told to speak as Redis does.
    findings.push(match field("redis_mode").or_else(|| field("server_mode")) {
        Some("standalone") => ok("it is one server, not a cluster"),
        Some("cluster") => error(
            "it is a Redis Cluster, which is not supported: a lane moves tasks between keys in one step; use a single \
             server, or one with Sentinel",
        ),
        Some("sentinel") => error("it is a Sentinel, not a Redis; write redis-sentinel://HOST:PORT/MASTER, or in fleet.yaml redis: { sentinel: … }"),
        other => unknown("mode", other),
    });
    findings.push(match field("role") {
        Some("master") => ok("it is the master"),
        Some("slave") => {
            let of = field("master_host").unwrap_or("unknown");
            error(format!(
                "it is a replica and takes no tasks; write the address of its master ({})",
                shown(of, "")
            ))
        }
        other => unknown("role", other),
    });
    findings.push(match field("maxmemory_policy") {
        Some("noeviction") => ok("it never evicts (noeviction)"),
        Some(policy) => error(format!(
            "when memory is short it throws keys away, queued tasks among them ({}); CONFIG SET maxmemory-policy \
             noeviction, and the same in its configuration file",
            shown(policy, "")
        )),
        None => unknown("maxmemory-policy", None),
    });
    findings.push(match field("aof_enabled") {
        Some("1") => ok("it keeps an append-only file"),
        Some("0") => warn(
            "it keeps no append-only file, so tasks queued since its last snapshot are lost when it dies; CONFIG SET \
             appendonly yes, and the same in its configuration file",
        ),
        other => unknown("aof_enabled", other),
    });
    if field("loading") == Some("1") {
        findings.push(error("it is still loading its data and takes no tasks; wait"));
    }
    for (what, name) in
        [("append-only file", "aof_last_write_status"), ("snapshot", "rdb_last_bgsave_status")]
    {
        if field(name).is_some_and(|status| status != "ok") {
            findings.push(error(format!(
                "it could not write its last {what}, and may refuse tasks for that; look at its disk and its log"
            )));
        }
    }
    findings
}

fn ok(text: impl Into<String>) -> Finding {
    Finding { level: Level::Ok, text: text.into() }
}

fn warn(text: impl Into<String>) -> Finding {
    Finding { level: Level::Warn, text: text.into() }
}

fn error(text: impl Into<String>) -> Finding {
    Finding { level: Level::Error, text: text.into() }
}

fn unknown(what: &str, said: Option<&str>) -> Finding {
    let said = said.map_or_else(|| "nothing".to_owned(), |said| shown(said, ""));
    warn(format!("its {what} is not known (it says {said}); is it a Redis or Valkey of 6.2 or later?"))
}

#[cfg(test)]
mod tests;
