-- Shared by the scripts of the job store.
-- KEYS[1] queue, KEYS[2] jobs in progress, scored by the end of the claim in ms, KEYS[3] id to
--   worker and token (and `<id>:cancel`), KEYS[4] counts, KEYS[5] name → turn, KEYS[6] what every job's key begins
--   with; then the keys of the jobs.
-- ARGV[1] now in ms (0: the server's time), ARGV[2] layout, ARGV[3] seconds to keep ended jobs.
-- Layout `shared` has one queue and writes '' for null. Layout `cluster` has a queue for each name
-- (KEYS[1] .. ':' .. name, in the slot of KEYS[1]) and leaves a null field out.
local call = redis.call
local QUEUE, HELD, CLAIMS, COUNTS, TURNS, JOB = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local SHARED, KEEP = ARGV[2] == 'shared', ARGV[3]
local NOW = tonumber(ARGV[1])
if NOW == 0 then
  local time = call('TIME')
  NOW = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
-- Scores below this are seconds, written by another service; ours are milliseconds.
local SECONDS_MAX = 100000000000
local QUEUED, SCHEDULED, IN_PROGRESS = '100', '200', '300'
local COMPLETED, FAILED, CANCELED = '400', '500', '600'
local FIRST = 7

local function text_of(number) return string.format('%.17g', number) end

-- Milliseconds as .NET's "O" without the zone. `ticks`: the four digits behind the milliseconds.
local function iso(ms, ticks)
  local s = math.floor(ms / 1000)
  local days = math.floor(s / 86400)
  local rest = s - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor(
    (doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03d%04d', year, month,
    doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, ms - s * 1000, ticks or 0)
end

-- An ISO time as milliseconds and ticks; nil for null, or what is none. Without a zone it is UTC.
local function ms_of(text)
  if not text or text == '' then return nil end
  local y, m, d, h, min, s, rest =
    string.match(text, '^(%d%d%d%d)-(%d%d)-(%d%d)[T ](%d%d):(%d%d):(%d%d)(.*)$')
  if not y then return nil end
  y, m, d = tonumber(y), tonumber(m), tonumber(d)
  if m <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (m + (m > 2 and -3 or 9)) + 2) / 5) + d - 1
  local doe = yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy
  local seconds = (era * 146097 + doe - 719468) * 86400
    + tonumber(h) * 3600 + tonumber(min) * 60 + tonumber(s)
  local digits = string.sub((string.match(rest, '^%.(%d+)') or '') .. '0000000', 1, 7)
  local sign, zone_h, zone_m = string.match(rest, '([+-])(%d%d):?(%d%d)$')
  if sign then
    local zone = tonumber(zone_h) * 3600 + tonumber(zone_m) * 60
    seconds = seconds - (sign == '+' and zone or -zone)
  end
  return seconds * 1000 + tonumber(string.sub(digits, 1, 3)), tonumber(string.sub(digits, 4, 7))
end

-- The new LastUpdatedAt: now, and always later than the one before, which makes it a version.
local function stamp(key)
  local ms, ticks = ms_of(call('HGET', key, 'LastUpdatedAt'))
  if not ms or ms < NOW then return iso(NOW) .. '+00:00' end
  -- Ten ticks are a microsecond, which is as fine as Python tells times apart.
  if ticks + 10 > 9999 then return iso(ms + 1) .. '+00:00' end
  return iso(ms, ticks + 10) .. '+00:00'
end

local function set(key, field, value)
  if value ~= nil then
    call('HSET', key, field, value)
  elseif SHARED then
    call('HSET', key, field, '')
  else
    call('HDEL', key, field)
  end
end

local function queue_of(key)
  if SHARED then return QUEUE end
  return QUEUE .. ':' .. (call('HGET', key, 'Name') or '')
end

-- Queue a job for a time. Jobs of one millisecond stay in the order in which they came: each gets
-- the next 4096th of it as score.
local function enqueue(key, id, due)
  local queue = queue_of(key)
  local last = call('ZREVRANGEBYSCORE', queue, '(' .. text_of(due + 1), text_of(due),
    'WITHSCORES', 'LIMIT', 0, 1)
  local score = due
  if last[2] then score = math.min(tonumber(last[2]) + 1 / 4096, due + 4095 / 4096) end
  call('ZADD', queue, text_of(score), id)
end

local function dequeue(key, id)
  call('ZREM', queue_of(key), id)
end

-- When a waiting job is due: its delay, or now.
local function due_of(key)
  return ms_of(call('HGET', key, 'RetryDelayUntil')) or NOW
end

local function type_of(key)
  return call('TYPE', key).ok
end

local function unclaim(id)
  call('ZREM', HELD, id)
  call('HDEL', CLAIMS, id, id .. ':cancel')
end

-- Whether this worker and token have the job now.
local function is_held(key, id, worker, token)
  return call('HGET', CLAIMS, id) == worker .. ' ' .. token
    and call('HGET', key, 'Status') == IN_PROGRESS
end

local ENDS = {[COMPLETED] = 'completed', [FAILED] = 'failed', [CANCELED] = 'canceled'}

-- End a job for good. It is removed some time later; the counts stay.
local function finish(key, id, status)
  local at = stamp(key)
  set(key, 'Status', status)
  set(key, 'CompletedAt', at)
  set(key, 'LastUpdatedAt', at)
  unclaim(id)
  dequeue(key, id)
  call('HINCRBY', COUNTS, ENDS[status], 1)
  call('EXPIRE', key, KEEP)
end

-- Let any worker claim the job from `due` on.
local function requeue(key, id, due, has_delay)
  set(key, 'Status', SCHEDULED)
  set(key, 'WorkerId', nil)
  set(key, 'RetryDelayUntil', has_delay and iso(due) .. 'Z' or nil)
  set(key, 'LastUpdatedAt', stamp(key))
  unclaim(id)
  enqueue(key, id, due)
end

-- Count a failed attempt; whether the job may be tried again.
local function retry(key)
  local count = (tonumber(call('HGET', key, 'RetryCount')) or 0) + 1
  local most = tonumber(call('HGET', key, 'MaxRetries')) or 0
  if count > most then return false end
  set(key, 'RetryCount', count)
  return true
end
