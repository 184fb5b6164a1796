-- Counts one more death for each job, up to a bound. Own arguments: kept for milliseconds, the bound, jobs.
local kept, bound = ARGV[ARGS], tonumber(ARGV[ARGS + 1])
local refused = enter()
if refused then return refused end
local counts = {}
for at = ARGS + 2, #ARGV do
  local deaths = key('deaths', ARGV[at])
  local count = tonumber(redis.call('GET', deaths) or 0)
  count = math.max(count, math.min(count + 1, bound))
  redis.call('SET', deaths, text(count), 'PX', kept)
  counts[#counts + 1] = count
end
return counts
