-- A store of runs, each call of which is one operation. Redis runs it with nothing in between.
--
-- KEYS: the index of all names (a sorted set, by name), and what one name holds: a list of the position before
-- its first value, and its values. It is never empty: a list that would be is not there. What they begin with
-- is also the channel on which changed names are told.
-- ARGV: the operation, and what it needs. What may be refused for want of memory is written first, so that the
-- rest either follows or never begins.

local INDEX, HELD = KEYS[1], KEYS[2]
local AT_ONCE = 5000 -- arguments of a command; Lua takes no more than 8,000

local function revision_of(held)
    local length = redis.call('LLEN', held)
    if length == 0 then return 0 end
    return tonumber(redis.call('LINDEX', held, 0)) + length - 1
end

local function digits(number) return string.format('%.0f', number) end

-- Who waits for a change hears of it. A user who may not publish can still write, and whoever follows, polls.
local function hint(name)
    redis.pcall('PUBLISH', string.sub(HELD, 1, #HELD - #name), name)
end

local operations = {}

-- The values are the arguments from the fourth on: there may be more of them than a function can be given.
function operations.append(name, revision)
    local actual = revision_of(HELD)
    if actual ~= tonumber(revision) or #ARGV < 4 then return actual end
    if actual == 0 then
        redis.call('ZADD', INDEX, 0, name)
        redis.call('RPUSH', HELD, '0')
    end
    for first = 4, #ARGV, AT_ONCE do
        redis.call('RPUSH', HELD, unpack(ARGV, first, math.min(first + AT_ONCE - 1, #ARGV)))
    end
    hint(name)
    return actual
end

function operations.compare_and_set(name, revision, value)
    local actual = revision_of(HELD)
    if actual ~= tonumber(revision) then return actual end
    if actual == 0 then redis.call('ZADD', INDEX, 0, name) end
    redis.call('RPUSH', HELD, value)
    redis.call('LTRIM', HELD, -1, -1)
    redis.call('LPUSH', HELD, digits(actual))
    hint(name)
    return actual
end

function operations.read(after)
    local revision, now, values = revision_of(HELD), redis.call('TIME'), {}
    if revision > tonumber(after) then
        local before = tonumber(redis.call('LINDEX', HELD, 0))
        values = redis.call('LRANGE', HELD, math.max(after - before, 0) + 1, -1)
    end
    return {revision, now[1], now[2], values}
end

-- A name in the index whose values somebody has removed, or the server has evicted, is passed over.
function operations.list(first, last, limit)
    local found, from = {}, '[' .. first
    while #found < tonumber(limit) do
        local names = redis.call('ZRANGEBYLEX', INDEX, from, '(' .. last, 'LIMIT', 0, limit - #found)
        if #names == 0 then return found end
        for _, name in ipairs(names) do
            local held = HELD .. name
            local value = redis.call('LINDEX', held, -1)
            if value then found[#found + 1] = {name, value, revision_of(held)} end
        end
        from = '(' .. names[#names]
    end
    return found
end

function operations.delete(name)
    redis.call('ZREM', INDEX, name)
    hint(name)
    return redis.call('DEL', HELD)
end

return operations[ARGV[1]](ARGV[2], ARGV[3], ARGV[4])
