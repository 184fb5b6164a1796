-- What every script begins with. Arguments: prefix, worker, incarnation, session key, session, lease and settling time in
-- milliseconds; a script's own follow from `ARGS` on. Keys are made here, since all of them lie on one server.
local PREFIX, ME, LIFE, LEASE, SETTLE = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[6]), tonumber(ARGV[7])
local ARGS = 8
local KEPT_MS = 30 * 24 * 3600 * 1000

local function key(kind, name)
  return PREFIX .. kind .. ':' .. name
end

-- Numbers are written without an exponent.
local function text(number)
  return string.format('%.0f', number)
end

local function fenced(what)
  return redis.error_reply('FENCED ' .. what)
end

local function wall_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Which life of the server this is: another one may have lost its last writes, in a restart or a failover.
local function server()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or 'unknown'
end

-- The registry's own time. It runs only while somebody looks: a step of the server's wall clock, or a time in which
-- nobody could reach it, must not end the leases of those who live. Every living holder looks each three seconds.
-- Gives now, and until when the registry is settling: holders of whom its data know nothing may still be there.
local STEP, CREDIT = 5000, 2000
local function tick(claiming)
  local wall = wall_ms()
  local stored = redis.call('HMGET', PREFIX .. 'clock', 'wall', 'now', 'settled', 'server')
  local now, settled, life = wall, wall + SETTLE, ''
  if stored[1] and stored[2] and stored[3] then
    local passed = wall - tonumber(stored[1])
    if passed < 0 then passed = 0 end
    if passed > STEP then passed = CREDIT end
    now, settled, life = tonumber(stored[2]) + passed, tonumber(stored[3]), stored[4] or ''
  end
  if claiming then
    local found = server()
    if found ~= life then
      life, settled = found, now + SETTLE
    end
  end
  redis.call('HSET', PREFIX .. 'clock', 'wall', text(wall), 'now', text(now), 'settled', text(settled), 'server', life)
  return now, settled
end

-- For how long a holder's leases still hold.
local function remaining(worker, life, now)
  local ends = redis.call('HGET', key('holder', worker), life)
  if not ends then return 0 end
  return math.min(tonumber(ends) - now, LEASE)
end

-- Whether a later life of the worker is known; makes this life known otherwise.
local function superseded()
  local holder = key('holder', ME)
  local current = redis.call('HGET', holder, 'current')
  if current and tonumber(current) > tonumber(LIFE) then return true end
  if current ~= LIFE then
    redis.call('HSET', holder, 'current', LIFE)
    redis.call('PEXPIRE', holder, text(KEPT_MS))
  end
  return false
end

-- Before a durable write: refuses an earlier life, and what was sent over a connection that was given up since.
local function enter()
  local session = redis.call('GET', PREFIX .. ARGV[4])
  if session and tonumber(session) > tonumber(ARGV[5]) then return redis.error_reply('LATE a newer connection is there') end
  if superseded() then return fenced('worker/' .. ME) end
end

-- Refuses a token older than one that has written; remembers a newer one.
local function check_fence(channel, token)
  local fence = key('fence', channel)
  local stored = redis.call('GET', fence)
  if stored and tonumber(stored) > tonumber(token) then return fenced('channel/' .. channel) end
  if stored ~= token then redis.call('SET', fence, token, 'PX', text(KEPT_MS)) end
end

-- A lease's record is `token incarnation worker`; released, the incarnation is `-`.
local function parse(record)
  local token, life, worker = string.match(record, '^(%d+) (%S+) (.*)$')
  return tonumber(token), life, worker
end
