-- A number for a new life of a worker, above all that were given or used, also when the record of them is lost.
local lives = key('incarnation', ME)
local last = tonumber(redis.call('GET', lives) or 0)
local current = tonumber(redis.call('HGET', key('holder', ME), 'current') or 0)
local life = text(math.max(last + 1, current + 1, wall_ms()))
redis.call('SET', lives, life, 'PX', text(KEPT_MS))
return life
