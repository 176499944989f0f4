//! What must happen in one step, in Redis' own language.
//!
//! Each begins with a command that takes no memory. A full server refuses only a script whose *first* write would take
//! some (`-OOM`), and a lane must be able to finish what it has begun.

/// Becomes the owner of the queue, or stays it. Keys: owner. Arguments: our words, our id, time to live in ms. The id is
/// what the words begin with. Answers with the other owner's words if there is one.
pub(super) const OWN: &str = "
local now = redis.call('GET', KEYS[1])
if now and string.sub(now, 1, #ARGV[2]) ~= ARGV[2] then return now end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return false
";

/// Gives the queue up, if it is ours. Keys: owner. Arguments: our words.
pub(super) const DISOWN: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
";

/// Marks a task as begun. Keys: owner, begun, in-flight. Arguments: our words, the task's hash, the mark, the task, and
/// whether it must be in flight (1 or 0). Answers 1, or 0 if the queue or the task is no longer ours.
pub(super) const BEGIN: &str = "
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] then return 0 end
if ARGV[5] == '1' and not redis.call('LPOS', KEYS[3], ARGV[4]) then return 0 end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
";

/// Answers a task. Keys: in-flight, begun, result, results, dead, seal. Arguments: the task, its hash, the result, its time to
/// live in s, how many results and how many dead are kept (highest index), the entry for the dead (empty: none), the result's
/// seal (empty: none). A task that has its result keeps it. Answers 1 if this is it, 0 if there was one.
pub(super) const FINISH: &str = "
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[2])
if ARGV[7] ~= '' then
  redis.call('LPUSH', KEYS[5], ARGV[7])
  redis.call('LTRIM', KEYS[5], 0, ARGV[6])
end
if ARGV[3] == '' or not redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[4], 'NX') then return 0 end
if ARGV[8] ~= '' then redis.call('SET', KEYS[6], ARGV[8], 'EX', ARGV[4]) end
if redis.call('LPUSH', KEYS[4], ARGV[3]) > tonumber(ARGV[5]) then redis.call('LTRIM', KEYS[4], 0, ARGV[5]) end
return 1
";

/// Puts a task back to where it is taken next. Keys: in-flight, queue, begun. Arguments: the task, its hash. Nothing if it is
/// not in flight. However often it is in flight, it is put back once.
pub(super) const PUT_BACK: &str = "
if redis.call('LREM', KEYS[1], 0, ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
";

/// Takes the oldest task without waiting, on a server that may be full. Keys: queue, in-flight.
pub(super) const CLAIM_WHEN_FULL: &str = "
local task = redis.call('RPOP', KEYS[1])
if task then redis.call('LPUSH', KEYS[2], task) end
return task
";

/// Answers a canary: it is nobody's task, so its answer is not among the results that are collected, and is soon forgotten.
/// Keys: in-flight, result. Arguments: the canary, its answer, its time to live in s.
pub(super) const ANSWER_CANARY: &str = "
redis.call('LREM', KEYS[1], 0, ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
";
