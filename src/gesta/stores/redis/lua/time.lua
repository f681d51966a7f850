-- The time of the server that has a key, in ms.
-- KEYS: the key. On a Cluster it decides which server is asked.
local time = redis.call('TIME')
return string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
