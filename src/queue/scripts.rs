//! What must happen in one step, in Redis' own language.
//!
//! Each begins with a command that takes no memory. A full server refuses only a script whose *first* write would take
//! some (`-OOM`), and a lane must be able to finish what it has begun.

/// Becomes the owner of the queue, or stays it. Keys: owner. Arguments: our words, our id, time to live in ms. The id is
/// what the words begin with. Answers 0 if the queue was ours, 1 if it was nobody's, 2 if it is another owner's; and that one's words.
pub(super) const OWN: &str = "
local now = redis.call('GET', KEYS[1])
if now and string.sub(now, 1, #ARGV[2]) ~= ARGV[2] then return {2, string.sub(now, 1, 1000)} end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
if now then return {0, ''} end
return {1, ''}
";

/// Takes away what is too long to be a task, and answers it, in the in-flight list and at the end of the queue that is taken
/// from: a lane that loads it would be gone, and so would the next. A lane never sees such an element; it goes by its SHA-1,
/// which is what the server can make. Keys: in-flight, queue, dead, results. Arguments: the longest element, the entry for the
/// dead and the result with @SHA1@ and @BYTES@ in them, the beginning of the result's key, its time to live in s, how many
/// results and how many dead are kept (highest index), how many elements of each list are looked at. Answers with SHA-1 and
/// length of each, at most 100.
///
/// One element at a time, because what a script has read stays in the server's memory until it ends. `LRANGE` and not
/// `LINDEX`, because the users that are in place may run that.
pub(super) const SWEEP: &str = "
local found = {}
local function sweep(list, at, step)
  for _ = 1, tonumber(ARGV[8]) do
    local one = redis.call('LRANGE', list, at, at)[1]
    if not one or #found >= 100 then return end
    if #one > tonumber(ARGV[1]) then
      local sha, bytes = redis.sha1hex(one), string.format('%d', #one)
      local function fill(text) return (string.gsub(string.gsub(text, '@SHA1@', sha), '@BYTES@', bytes)) end
      redis.call('LREM', list, 0, one)
      redis.call('LPUSH', KEYS[3], fill(ARGV[2]))
      redis.call('LTRIM', KEYS[3], 0, ARGV[7])
      local result = fill(ARGV[3])
      if redis.call('SET', ARGV[4] .. sha, result, 'EX', ARGV[5], 'NX') then
        if redis.call('LPUSH', KEYS[4], result) > tonumber(ARGV[6]) then redis.call('LTRIM', KEYS[4], 0, ARGV[6]) end
      end
      found[#found + 1] = { sha, bytes }
    else
      at = at + step
    end
  end
end
sweep(KEYS[1], 0, 1)
sweep(KEYS[2], -1, -1)
return found
";

/// What is in flight, newest first, as far as it is no longer than a lane reads. Keys: in-flight. Arguments: the longest
/// element, how many elements, how many bytes in all. Answers with the elements, and 1 if there are more.
pub(super) const IN_FLIGHT: &str = "
local found, bytes, at = {}, 0, 0
while true do
  local one = redis.call('LRANGE', KEYS[1], at, at)[1]
  if not one then return { found, 0 } end
  if #one <= tonumber(ARGV[1]) then
    bytes = bytes + #one
    if #found >= tonumber(ARGV[2]) or bytes > tonumber(ARGV[3]) then return { found, 1 } end
    found[#found + 1] = one
  end
  at = at + 1
end
";

/// The mark of a task; empty if it is too long to be one. Keys: begun. Arguments: the task's hash, the longest mark.
pub(super) const MARK: &str = "
local mark = redis.call('HGET', KEYS[1], ARGV[1])
if mark and #mark > tonumber(ARGV[2]) then return '' end
return mark
";

/// Strings; nothing for one that is too long. Keys: they. Arguments: how long each may be.
pub(super) const READ: &str = "
local all = {}
for at, key in ipairs(KEYS) do
  local text = redis.call('GET', key)
  if text and #text > tonumber(ARGV[1]) then text = false end
  all[at] = text
end
return all
";

/// What is in and around a queue, for people. Its names are arguments and not keys, because whoever declares a key wants to
/// write to it, as far as the server's access list knows. Arguments: queue, in-flight, begun, dead, owner; how many elements of
/// each list; how many bytes of the queue and of what is in flight, each; how many of the dead; the longest element, and the
/// longest dead one. What is longer, or over the bytes, stands as the SHA-1 of its beginning and its length, because the whole would
/// take the server a second, and as its length.
pub(super) const VIEW: &str = "
local count, most = tonumber(ARGV[6]), tonumber(ARGV[7])
local function list(key, at, step, most, longest)
  local all, bytes = {}, 0
  for _ = 1, count do
    local one = redis.call('LRANGE', key, at, at)[1]
    if not one then break end
    bytes = bytes + math.min(#one, 100)
    if #one > longest or bytes + #one > most then
      one = { redis.sha1hex(string.sub(one, 1, 1024) .. #one), string.format('%d', #one) }
    else
      bytes = bytes + #one
    end
    all[#all + 1] = one
    at = at + step
    if bytes > most then break end
  end
  return all
end
local marks = {}
if redis.call('HLEN', ARGV[3]) <= count then
  local all = redis.call('HGETALL', ARGV[3])
  for i = 1, #all, 2 do
    if #all[i] == 64 and #all[i + 1] <= 4096 and #marks < 200 then
      marks[#marks + 1] = all[i]
      marks[#marks + 1] = all[i + 1]
    end
  end
end
local owner = redis.call('GET', ARGV[5])
return {
  redis.call('LLEN', ARGV[1]),
  list(ARGV[1], -1, -1, most, tonumber(ARGV[9])),
  list(ARGV[2], -1, -1, most, tonumber(ARGV[9])),
  marks,
  list(ARGV[4], -1, -1, tonumber(ARGV[8]), tonumber(ARGV[10])),
  owner and string.sub(owner, 1, 1000)
}
";

/// Takes an entry away from the dead, or the one that [`VIEW`] calls by that SHA-1. Keys: dead. Arguments: the entry, the SHA-1
/// (empty: none), how many are looked at. Answers how many there were.
pub(super) const BURY: &str = "
local gone = redis.call('LREM', KEYS[1], 1, ARGV[1])
if gone > 0 or ARGV[2] == '' then return gone end
for at = 0, tonumber(ARGV[3]) do
  local one = redis.call('LRANGE', KEYS[1], at, at)[1]
  if not one then return 0 end
  if redis.sha1hex(string.sub(one, 1, 1024) .. #one) == ARGV[2] then return redis.call('LREM', KEYS[1], 1, one) end
end
return 0
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
