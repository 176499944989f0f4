//! What well-known programs are known to do, so that a mode that does not fit is noticed. It only warns of slips: a program
//! that is not listed is believed, and what a read action may not do is enforced by the read lane's sandbox.

/// What a command does to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// It changes nothing.
    Looks,
    /// It changes something.
    Changes,
    /// It is not known here.
    Unknown,
}

/// Programs that do one or the other whatever their arguments say.
const LOOKERS: [&str; 30] = [
    "cat", "df", "du", "findmnt", "free", "getent", "grep", "head", "id", "iostat", "ls", "lsblk", "lscpu",
    "lsof", "mpstat", "nproc", "pgrep", "pidof", "ps", "readlink", "sensors", "ss", "stat", "tail", "test",
    "true", "uname", "uptime", "vmstat", "wc",
];
const CHANGERS: [&str; 22] = [
    "chmod", "chown", "cp", "dd", "halt", "install", "kill", "killall", "ln", "mkdir", "mount", "mv",
    "pkill", "poweroff", "reboot", "rm", "rmdir", "shutdown", "tee", "touch", "truncate", "umount",
];

/// Programs whose arguments decide.
struct Verbs {
    programs: &'static [&'static str],
    /// With one of these it changes nothing after all.
    rehearse: &'static [&'static str],
    changes: &'static [&'static str],
    looks: &'static [&'static str],
}

const VERBS: [Verbs; 3] = [
    Verbs {
        programs: &["systemctl"],
        rehearse: &["--dry-run"],
        changes: &[
            "start",
            "stop",
            "restart",
            "try-restart",
            "reload",
            "reload-or-restart",
            "try-reload-or-restart",
            "kill",
            "enable",
            "disable",
            "reenable",
            "preset",
            "mask",
            "unmask",
            "link",
            "edit",
            "revert",
            "set-property",
            "reset-failed",
            "clean",
            "freeze",
            "thaw",
            "isolate",
            "set-default",
            "daemon-reload",
            "daemon-reexec",
            "poweroff",
            "reboot",
            "halt",
            "kexec",
            "suspend",
            "hibernate",
            "rescue",
            "emergency",
        ],
        looks: &[
            "status",
            "show",
            "cat",
            "is-active",
            "is-failed",
            "is-enabled",
            "is-system-running",
            "list-units",
            "list-unit-files",
            "list-timers",
            "list-sockets",
            "list-jobs",
            "list-dependencies",
            "get-default",
        ],
    },
    Verbs {
        programs: &["redis-cli", "valkey-cli"],
        rehearse: &[],
        changes: &[
            "append", "blmove", "blpop", "brpop", "decr", "del", "eval", "evalsha", "expire", "flushall",
            "flushdb", "hdel", "hset", "incr", "lmove", "lpop", "lpush", "lrem", "lset", "ltrim", "persist",
            "publish", "rename", "rpop", "rpush", "sadd", "set", "shutdown", "srem", "unlink", "xadd",
            "zadd", "zrem",
        ],
        looks: &[
            "dbsize", "exists", "get", "hget", "hgetall", "hlen", "info", "lastsave", "lindex", "llen",
            "lrange", "mget", "ping", "pttl", "scard", "smembers", "strlen", "time", "ttl", "type", "xlen",
            "zcard",
        ],
    },
    Verbs {
        programs: &["apt", "apt-get", "aptitude"],
        rehearse: &["-s", "--simulate", "--dry-run", "--just-print", "--no-act"],
        changes: &[
            "update",
            "upgrade",
            "dist-upgrade",
            "full-upgrade",
            "install",
            "reinstall",
            "remove",
            "purge",
            "autoremove",
            "autopurge",
            "clean",
            "autoclean",
        ],
        looks: &["list", "show", "policy", "search", "depends", "rdepends", "changelog"],
    },
];

/// What a command does: the program's path, and for each argument all that it may be.
pub(super) fn habit(program: &str, arguments: &[Vec<&str>]) -> Habit {
    let program = program.rsplit('/').next().unwrap_or_default();
    let mut words = arguments.iter().flatten().copied();
    if LOOKERS.contains(&program) {
        return Habit::Looks;
    }
    if CHANGERS.contains(&program) {
        return Habit::Changes;
    }
    if program == "journalctl" {
        const KEEPING: [&str; 4] = ["--vacuum-", "--rotate", "--flush", "--relinquish-var"];
        let keeps_house = words.any(|word| KEEPING.iter().any(|option| word.starts_with(option)));
        return if keeps_house { Habit::Changes } else { Habit::Looks };
    }
    let Some(verbs) = VERBS.iter().find(|verbs| verbs.programs.contains(&program)) else {
        return Habit::Unknown;
    };
    let has =
        |list: &[&str]| words.clone().any(|word| list.iter().any(|known| word.eq_ignore_ascii_case(known)));
    match (has(verbs.rehearse), has(verbs.changes), has(verbs.looks)) {
        (false, true, _) => Habit::Changes,
        (false, false, true) => Habit::Looks,
        (false, false, false) | (true, ..) => Habit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str) -> Habit {
        let mut words = command.split(' ');
        let program = words.next().unwrap();
        let arguments: Vec<Vec<&str>> = words.map(|word| word.split('|').collect()).collect();
        habit(program, &arguments)
    }

    #[test]
    fn what_programs_are_known_for() {
        for looks in [
            "/usr/bin/journalctl -u x -n 5",
            "/usr/bin/systemctl status x.service --no-pager",
            "/bin/systemctl status|show x.service",
            "/usr/bin/redis-cli -h ai-core LLEN k",
            "/usr/bin/free -m",
            "/usr/bin/apt list --upgradable",
        ] {
            assert_eq!(of(looks), Habit::Looks, "{looks}");
        }
        for changes in [
            "/usr/bin/systemctl restart x.service",
            "/usr/bin/systemctl status|restart x.service",
            "/usr/bin/redis-cli -h ai-core lpush k v",
            "/usr/bin/apt-get -y upgrade",
            "/usr/bin/journalctl --vacuum-size=1G",
            "/sbin/reboot",
        ] {
            assert_eq!(of(changes), Habit::Changes, "{changes}");
        }
        for unknown in ["/opt/site/thing restart", "/usr/bin/apt-get -s upgrade", "/usr/bin/systemctl"] {
            assert_eq!(of(unknown), Habit::Unknown, "{unknown}");
        }
    }
}
