-- Publishes the count in force. Own arguments: the count, and the greatest epoch that was seen with its count: what the
-- server forgot must not come again. Gives the layout as producers read it.
local count, seen_epoch, seen_count = tonumber(ARGV[ARGS]), tonumber(ARGV[ARGS + 1]), tonumber(ARGV[ARGS + 2])
local stored = redis.call('GET', PREFIX .. 'layout')
local known, layout = pcall(cjson.decode, stored or '')
if not known or type(layout) ~= 'table' or type(layout.epoch) ~= 'number' then layout = nil end
if layout and layout.shard_count == count and layout.epoch >= seen_epoch then return stored end
local epoch
if not layout and seen_count == count then
  epoch = seen_epoch
else
  epoch = math.max(layout and layout.epoch or 0, seen_epoch) + 1
end
if layout and layout.shard_count ~= count then
  redis.call('SET', PREFIX .. 'layout_before', text(layout.shard_count))
end
local published = '{"shard_count":' .. text(count) .. ',"epoch":' .. text(epoch) .. '}'
redis.call('SET', PREFIX .. 'layout', published)
return published
